//! A folder of starts that nobody asked for: snapshots of machines that ran before.
//!
//! The first run of a machine leaves an empty file. The second has its start kept, so that nobody
//! pays who runs something once. The folder has the newest [`MOST`] starts, and beside them a file
//! for each machine that ran once. It can be removed at any time.
//!
//! A machine is named by its user, who has to put all that makes it one into the name
//! ([`super::automatic`], and `shim/src/starts.rs` for containerd).

use super::directory::{Making, Snapshot, Snapshots};
use anyhow::Result;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The most starts that are kept.
const MOST: usize = 6;
/// The most machines that are remembered after one run.
const MOST_SEEN: usize = 64;
/// The most tries to keep a start: the process that does so may be killed, or the disk be full.
const MOST_TRIES: u64 = 3;
/// The beginning of the names of files about machines that ran once.
const SEEN: &str = ".seen-";

/// The longest that keeping a start may take, in seconds.
pub const PATIENCE: u64 = 60;

/// Starts that are kept.
pub struct Starts {
    all: Snapshots,
}

impl Starts {
    /// Those of `./hayate run`.
    ///
    /// # Errors
    /// There is no such folder, and none can be made.
    pub fn of_run() -> Result<Starts> {
        Ok(Starts { all: Snapshots::kept()? })
    }

    /// Those of a folder, which is made if missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn at(folder: PathBuf) -> Result<Starts> {
        Ok(Starts { all: Snapshots::at(folder)? })
    }

    /// Returns the start of a machine if it was kept and can be used.
    pub fn find(&self, name: &str) -> Option<Snapshot> {
        let found = self.all.find(name).ok();
        let snapshot = found.filter(|found| found.manifest.obstacle().is_none())?;
        // It was used now: those that were not go first. Where this fails they go in another order.
        let used = File::open(self.all.folder().join(name));
        let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        Some(snapshot)
    }

    /// Notes that a machine ran; the second time its start is kept, by `keep`.
    ///
    /// The file about the machine is empty after its first run. It has a byte for each time that
    /// its start was about to be kept, and goes when it is.
    ///
    /// # Errors
    /// The folder cannot be written, or the start not be kept.
    pub fn note(&self, name: &str, keep: impl FnOnce(&Making) -> Result<()>) -> Result<()> {
        let seen = self.all.folder().join(format!("{SEEN}{name}"));
        let Ok(found) = seen.metadata() else {
            File::create(&seen)?;
            return self.keep_newest(|name| name.starts_with(SEEN), MOST_SEEN);
        };
        if found.len() >= MOST_TRIES {
            return Ok(());
        }
        let mut file = File::options().append(true).open(&seen)?;
        if file.try_lock().is_err() {
            // Another run is about to keep it.
            return Ok(());
        }
        file.write_all(b".")?;
        self.all.clear_up()?;
        let making = self.all.begin(name)?;
        keep(&making)?;
        self.keep_newest(|name| !name.starts_with('.'), MOST)?;
        let _ = std::fs::remove_file(&seen);
        Ok(())
    }

    /// Removes all but the newest of the entries whose names fit.
    fn keep_newest(&self, fits: impl Fn(&str) -> bool, most: usize) -> Result<()> {
        let mut entries: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in self.all.folder().read_dir()? {
            let entry = entry?;
            if fits(&entry.file_name().to_string_lossy()) {
                // Another run may have removed it.
                let Ok(metadata) = entry.metadata() else { continue };
                entries.push((metadata.modified()?, entry.path()));
            }
        }
        entries.sort();
        let old = entries.len().saturating_sub(most);
        entries.iter().take(old).try_for_each(|(_, path)| self.forget(path))
    }

    fn forget(&self, path: &Path) -> Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let gone = match path.is_dir() {
            true => self.all.remove(&name),
            false => std::fs::remove_file(path).map_err(Into::into),
        };
        // Another run may have been faster.
        if path.exists() { gone } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn count(starts: &Starts, fits: impl Fn(&str) -> bool) -> usize {
        let names = starts.all.folder().read_dir().unwrap();
        names.filter(|entry| fits(&entry.as_ref().unwrap().file_name().to_string_lossy())).count()
    }

    #[test]
    fn the_second_run_keeps_a_start_and_a_failure_is_tried_again_a_few_times() {
        let folder = tempfile::tempdir().unwrap();
        let starts = Starts::at(folder.path().join("starts")).unwrap();
        let mut tries = 0;
        starts.note("a", |_| bail!("the first run keeps nothing")).unwrap();
        for _ in 0..MOST_TRIES + 2 {
            let _ = starts.note("a", |_| {
                tries += 1;
                bail!("the disk is full")
            });
        }
        assert_eq!(tries, MOST_TRIES);
        assert_eq!(count(&starts, |name| name.starts_with(".making")), 0);
        starts.note("b", |_| bail!("the first run keeps nothing")).unwrap();
        starts.note("b", |_| Ok(())).unwrap();
        assert_eq!(count(&starts, |name| name == ".seen-b"), 0);
    }

    #[test]
    fn machines_that_ran_once_are_forgotten_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let starts = Starts::at(folder.path().join("starts")).unwrap();
        for number in 0..MOST_SEEN + 3 {
            starts.note(&format!("{number}"), |_| bail!("none")).unwrap();
        }
        assert_eq!(count(&starts, |name| name.starts_with(SEEN)), MOST_SEEN);
    }
}
