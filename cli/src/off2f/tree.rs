//! A whole root file system: every program and library converted, the texts in one store.

use super::files::store_text;
use super::store::FileStore;
use crate::failure::{Failure, USAGE};
use crate::progress::Progress;
use anyhow::{Context, Result};
use hayate_off2f::{Converted, MARK, Options, Refusal};
use hayate_off2f_tool::name;
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Counts of a tree's files, by result.
#[derive(Default)]
struct Summary {
    converted: usize,
    original: u64,
    text: u64,
    stored: u64,
    refused: BTreeMap<String, Vec<String>>,
}

/// Converts the programs and libraries below `root` whose path there matches `glob` (all, if there
/// is none), with a new store in the file `nvm`. Returns a summary.
///
/// Files are written in place, so that hard links of one file remain such, and owners (real ones or
/// fakeroot's) do not change.
pub fn convert(root: &Path, nvm: &Path, glob: Option<&str>) -> Result<String> {
    let _step = Progress::new("Converting programs");
    let mut summary = Summary::default();
    let mut done: Vec<(PathBuf, Converted)> = Vec::new();
    let executables = executables(root, glob)?;
    if let (true, Some(glob)) = (executables.is_empty(), glob.filter(|&glob| glob != "*")) {
        let text =
            format!("--off2f={glob}: no program or library of the image has a path that matches");
        return Err(Failure::error(USAGE, text));
    }
    for path in executables {
        let original = std::fs::read(&path)?;
        match hayate_off2f::convert(&original, Options::default()) {
            Ok(converted) => {
                summary.original += original.len() as u64;
                done.push((path, converted));
            }
            Err(refusal) => summary.refuse(root, &path, refusal),
        }
    }
    // Large texts first: small texts then fill the gaps between them.
    done.sort_by_key(|(path, converted)| {
        (std::cmp::Reverse(converted.header.text_pages), path.clone())
    });
    let pages: u64 = done.iter().map(|(_, file)| u64::from(file.header.text_pages)).sum();
    let large = done.iter().filter(|(_, file)| file.header.large).count() as u64;
    let mut store = FileStore::create(nvm, done.len() as u64, pages, large)?;
    for (path, converted) in &mut done {
        summary.converted += 1;
        summary.text += converted.text.len() as u64;
        store_text(converted, &mut store, &name(path))?;
        let mode = path.metadata()?.mode() & 0o7777;
        // A program without write permission must be converted, too.
        std::fs::set_permissions(&*path, std::fs::Permissions::from_mode(mode | 0o200))?;
        let mut file =
            File::create(&*path).with_context(|| format!("cannot write {}", path.display()))?;
        file.write_all(&converted.file)?;
        drop(file);
        std::fs::set_permissions(&*path, std::fs::Permissions::from_mode(mode | MARK))?;
    }
    summary.stored = store.store.usage().used * 4096;
    store.sync()?;
    Ok(summary.tell(nvm))
}

impl Summary {
    fn refuse(&mut self, root: &Path, path: &Path, refusal: Refusal) {
        let shown = Path::new("/").join(path.strip_prefix(root).unwrap_or(path));
        self.refused.entry(refusal.to_string()).or_default().push(shown.display().to_string());
    }

    fn tell(&self, nvm: &Path) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut said = format!(
            "{} programs and libraries of {:.1} MiB converted; {:.1} MiB of text, {:.1} MiB stored in {}\n",
            self.converted,
            mib(self.original),
            mib(self.text),
            mib(self.stored),
            nvm.display()
        );
        for (reason, files) in &self.refused {
            said += &format!("{} left as they are, {reason}: {}", files.len(), files[0]);
            said += if files.len() > 1 { ", ...\n" } else { "\n" };
        }
        said
    }
}

/// Returns the ELF files below `root` that are executable or named like a library, each once.
fn executables(root: &Path, glob: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(path) = pending.pop() {
        let state = path.symlink_metadata()?;
        if state.is_dir() {
            let entries =
                path.read_dir().with_context(|| format!("cannot read {}", path.display()))?;
            for entry in entries {
                pending.push(entry?.path());
            }
            continue;
        }
        let shown = Path::new("/").join(path.strip_prefix(root).unwrap_or(&path));
        let library = name(&path).contains(".so");
        let wanted = state.is_file()
            && (state.mode() & 0o111 != 0 || library)
            && glob.is_none_or(|glob| matches(glob, &shown.to_string_lossy()))
            && seen.insert((state.dev(), state.ino()));
        if wanted && begins_as_elf(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn begins_as_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && &magic == b"\x7fELF"
}

/// Whether `text` matches `glob`, in which `*` matches anything, also slashes, and `?` one
/// character.
fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match star {
                Some((from, at)) => {
                    star = Some((from, at + 1));
                    g = from + 1;
                    t = at + 1;
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::off2f::store::FileStore;
    use hayate_off2f::Header;

    #[test]
    fn globs_match_paths() {
        assert!(matches("*", "/usr/bin/ls"));
        assert!(matches("/usr/bin/*", "/usr/bin/ls"));
        assert!(matches("*/l?", "/usr/bin/ls"));
        assert!(!matches("/bin/*", "/usr/bin/ls"));
        assert!(!matches("*/l?x", "/usr/bin/ls"));
    }

    #[test]
    fn many_small_texts_have_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = FileStore::create(&folder.path().join("nvm"), 300, 300, 0).unwrap();
        for number in 0..300u32 {
            store.store.put(&number.to_le_bytes(), u32::MAX, b"small").unwrap();
        }
    }

    #[test]
    fn a_tree_is_converted_and_restored() {
        let folder = tempfile::tempdir().unwrap();
        let (root, nvm) = (folder.path().join("root"), folder.path().join("nvm"));
        std::fs::create_dir_all(root.join("bin")).unwrap();
        let original = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let program = root.join("bin/program");
        std::fs::write(&program, &original).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o555)).unwrap();
        std::fs::hard_link(&program, root.join("bin/other")).unwrap();
        std::fs::write(root.join("bin/script"), "#!/bin/sh\n").unwrap();
        std::fs::write(root.join("bin/broken.so"), b"\x7fELF\x02\x01 and no more").unwrap();
        let said = convert(&root, &nvm, None).unwrap();
        assert!(said.starts_with("1 programs") && said.contains("1 left as they are"), "{said}");
        let state = program.metadata().unwrap();
        assert_eq!((state.mode() & 0o7777, state.nlink()), (0o1555, 2));
        let file = std::fs::read(&program).unwrap();
        let header = Header::parse(&file).unwrap();
        let store = FileStore::open(&nvm, false).unwrap();
        let text = store.get(&header.text).unwrap();
        assert_eq!(header.restore(&file, text.as_deref()).unwrap(), original);
    }
}
