//! Temporary folders that do not remain when the command that made them is killed.
//!
//! Each is a folder of `build/making`, locked (flock(2)) by the command that works in it. The
//! kernel releases the lock with the process, however that ends; the command that makes the next
//! folder removes those that no command has locked. Between the creation of a folder and its lock
//! another command may remove it as abandoned. The creator then notices that the name is gone, and
//! makes another folder.
//!
//! Road not taken: names with the process ID, which another process may get later.

use crate::paths;
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary folder, removed when it is dropped, or by the next command if it is not dropped.
pub struct Scratch {
    // Dropped before the lock is.
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a new, empty folder, on the file system of the images.
    pub fn new() -> Result<Scratch> {
        Scratch::below(&paths::build("making")?)
    }

    fn below(all: &Path) -> Result<Scratch> {
        remove_abandoned(all);
        loop {
            let folder = tempfile::tempdir_in(all)
                .with_context(|| format!("cannot make a folder in {}", all.display()))?;
            let Ok(lock) = File::open(folder.path()) else { continue };
            lock.lock().with_context(|| format!("cannot lock {}", folder.path().display()))?;
            if is_named(&lock, folder.path()) {
                return Ok(Scratch { folder, _lock: lock });
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether the open folder still has this name.
fn is_named(open: &File, path: &Path) -> bool {
    let both = (open.metadata(), path.symlink_metadata());
    matches!(both, (Ok(open), Ok(named)) if (open.dev(), open.ino()) == (named.dev(), named.ino()))
}

/// Removes folders whose creators are gone. A folder that cannot be removed is tried again by a
/// later command.
fn remove_abandoned(all: &Path) {
    let entries = all.read_dir().into_iter().flatten().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    for path in paths {
        if let Ok(folder) = File::open(&path)
            && folder.try_lock().is_ok()
            && is_named(&folder, &path)
        {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_removed_and_the_rest_stays() {
        let all = tempfile::tempdir().unwrap();
        let left = all.path().join("left");
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("half"), "an image").unwrap();
        let first = Scratch::below(all.path()).unwrap();
        assert!(!left.exists());
        std::fs::write(first.path().join("file"), "").unwrap();
        let second = Scratch::below(all.path()).unwrap();
        assert!(first.path().join("file").exists());
        assert_ne!(first.path(), second.path());
        drop((first, second));
        assert_eq!(all.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn many_at_once_each_have_their_own() {
        let all = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let all = all.path();
                scope.spawn(move || {
                    for _ in 0..25 {
                        let scratch = Scratch::below(all).unwrap();
                        let file = scratch.path().join("who");
                        std::fs::write(&file, number.to_string()).unwrap();
                        assert_eq!(std::fs::read_to_string(&file).unwrap(), number.to_string());
                    }
                });
            }
        });
        assert_eq!(all.path().read_dir().unwrap().count(), 0);
    }
}
