//! Verdicts about a QEMU, kept until they may have changed: whether KVM works with it, whether it
//! has a network of its own, and whether it can share folders.
//!
//! A file for each question, with one line for each QEMU: the verdict, what it depends on (for KVM
//! the host's boot and its kernel's release), and the program's time, size and path. A line is
//! valid only if all of these are the same today. The file is replaced as a whole, so that a reader
//! sees the old or the new one; writers hold [`paths::lock`].

use crate::paths;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The names of the files and their locks.
const KVM: &str = "kvm";
const NETWORK: &str = "own-network";
const SHARES: &str = "shares";
const WORKS: &str = "works ";
const FAILS: &str = "fails ";

/// The verdict about one QEMU, on this host as it is.
pub struct Verdict {
    file: PathBuf,
    /// The host's state if the verdict depends on it; the same in every valid line.
    host: String,
    /// The program.
    qemu: String,
}

impl Verdict {
    /// Whether KVM works with this program.
    pub fn of_kvm(qemu: &Path) -> Result<Verdict> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let host = format!("{} {} ", boot.trim(), release.trim());
        Verdict::of(paths::build("stamps")?.join(KVM), host, qemu)
    }

    /// Whether this program has a network of its own.
    pub fn of_network(qemu: &Path) -> Result<Verdict> {
        Verdict::of(paths::build("stamps")?.join(NETWORK), String::new(), qemu)
    }

    /// Whether this program can share folders.
    pub fn of_shares(qemu: &Path) -> Result<Verdict> {
        Verdict::of(paths::build("stamps")?.join(SHARES), String::new(), qemu)
    }

    fn of(file: PathBuf, host: String, qemu: &Path) -> Result<Verdict> {
        let found = qemu.metadata().with_context(|| format!("cannot read {}", qemu.display()))?;
        let (seconds, size) = (found.mtime(), found.size());
        let qemu = format!("{seconds}.{:09} {size} {qemu:?}", found.mtime_nsec());
        Ok(Verdict { file, host, qemu })
    }

    /// Whether it works, if that is known.
    pub fn known(&self) -> Option<bool> {
        let line = format!("{}{}", self.host, self.qemu);
        self.lines().iter().find_map(|known| {
            let works = known.strip_prefix(WORKS).map(|rest| (true, rest));
            let fails = || known.strip_prefix(FAILS).map(|rest| (false, rest));
            let (works, rest) = works.or_else(fails)?;
            (rest == line).then_some(works)
        })
    }

    /// Returns the lock that keeps other commands from asking the same at the same time.
    pub fn alone(&self) -> Result<File> {
        paths::lock(&self.file.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Keeps a verdict; `None` removes it. The caller holds [`Verdict::alone`].
    pub fn keep(&self, works: Option<bool>) -> Result<()> {
        // Lines of earlier boots and of the program's earlier versions are dropped.
        let mut lines = self.lines();
        let path = self.path();
        lines.retain(|line| line.contains(&self.host) && !line.ends_with(path));
        if let Some(works) = works {
            let word = if works { WORKS } else { FAILS };
            lines.push(format!("{word}{}{}", self.host, self.qemu));
        }
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let write = || -> Result<()> {
            let mut next = tempfile::NamedTempFile::with_prefix_in("verdicts-", folder)?;
            next.write_all(text.as_bytes())?;
            next.persist(&self.file)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", self.file.display()))
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    /// Returns the program's path, as at the end of a line.
    fn path(&self) -> &str {
        let rest = self.qemu.splitn(3, ' ').nth(2);
        rest.unwrap_or(&self.qemu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_kept_as_long_as_everything_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let about = |qemu: &Path, boot: &str| {
            Verdict::of(folder.path().join("verdicts"), boot.into(), qemu).unwrap()
        };
        let (one, two) = (program("one", "1"), program("two", "2"));
        assert_eq!(about(&one, "boot1 ").known(), None);
        about(&one, "boot1 ").keep(Some(true)).unwrap();
        about(&two, "boot1 ").keep(Some(false)).unwrap();
        assert_eq!(about(&one, "boot1 ").known(), Some(true));
        assert_eq!(about(&two, "boot1 ").known(), Some(false));
        assert_eq!(about(&one, "boot2 ").known(), None);
        about(&two, "boot1 ").keep(None).unwrap();
        assert_eq!(about(&two, "boot1 ").known(), None);
        // Another program of the same name.
        program("one", "longer");
        assert_eq!(about(&one, "boot1 ").known(), None);
        about(&one, "boot1 ").keep(Some(false)).unwrap();
        assert_eq!(about(&one, "boot1 ").known(), Some(false));
        // Another boot: the lines of the previous one are removed.
        about(&two, "boot2 ").keep(Some(true)).unwrap();
        let text = std::fs::read_to_string(folder.path().join("verdicts")).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 3, "a file stays behind");
    }

    #[test]
    fn a_file_that_is_none_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, qemu) = (folder.path().join("verdicts"), folder.path().join("q"));
        std::fs::write(&qemu, "").unwrap();
        for garbage in [&b"\xff\xfe\0"[..], b"works", b"works \nfails \n\n"] {
            std::fs::write(&file, garbage).unwrap();
            let verdict = Verdict::of(file.clone(), "boot ".into(), &qemu).unwrap();
            assert_eq!(verdict.known(), None);
            verdict.keep(Some(true)).unwrap();
            assert_eq!(verdict.known(), Some(true));
        }
    }
}
