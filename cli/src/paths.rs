//! Paths: the project, cargo's output, and files that are made once and kept.

use crate::progress::Progress;
use anyhow::{Context, Result};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Returns the root of the project. `./hayate` passes it; under `cargo run` it is known from the
/// build.
pub fn project() -> PathBuf {
    std::env::var_os("HAYATE_ROOT").map_or_else(
        || {
            let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
            cli.parent().unwrap_or(cli).to_path_buf()
        },
        PathBuf::from,
    )
}

/// Returns cargo's output folder.
pub fn target() -> PathBuf {
    folder_or("CARGO_TARGET_DIR", "target")
}

/// Returns the folder that the variable names, or the given one of the project. `./hayate` makes a
/// relative path absolute, from where it was started.
fn folder_or(variable: &str, usual: &str) -> PathBuf {
    let given = std::env::var_os(variable).filter(|path| !path.is_empty());
    project().join(given.unwrap_or_else(|| usual.into()))
}

/// Returns a folder below `build/`, created if missing, that this user can write in. Everything in
/// `build/` can be removed at any time and is made again.
pub fn build(folder: &str) -> Result<PathBuf> {
    let path = folder_or("HAYATE_BUILD_DIR", "build").join(folder);
    writable(&path, "HAYATE_BUILD_DIR")?;
    Ok(path)
}

/// Creates a folder if missing, and checks that it is writable. The kernel is asked, because it
/// also knows about file systems that are mounted read-only. `variable` names the environment
/// variable that selects another folder.
pub fn writable(path: &Path, variable: &str) -> Result<()> {
    use rustix::fs::{Access, access};
    let access = || access(path, Access::WRITE_OK | Access::EXEC_OK);
    std::fs::create_dir_all(path).and_then(|()| Ok(access()?)).map_err(|error| {
        anyhow::anyhow!(
            "cannot write in {}: {error}; set {variable} to a folder of your own",
            path.display()
        )
    })
}

/// Takes the lock of a folder for a moment (flock(2)): it is held as long as the value lives.
pub fn lock_folder(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Waits until no other command in this project holds the lock `name`, and returns the lock, which
/// is held as long as the value lives. The tests, and people, run several commands at once in one
/// project, and the first ones find nothing built. The kernel releases the lock with the process,
/// however it ends (flock(2)). It is not a lock between functions: locking twice waits for ever.
pub fn lock(name: &str) -> Result<File> {
    let path = build("stamps")?.join(format!("{name}.lock"));
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let _step = Progress::new(format!(
            "Waiting for another ./hayate command that makes the same files ({name})"
        ));
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn a_folder_that_cannot_be_written_is_reported_with_its_variable() {
        // No process, not even root's, may create files in /proc.
        let error = writable(Path::new("/proc/hayate"), "SOME_DIR").unwrap_err().to_string();
        assert!(error.contains("/proc/hayate") && error.contains("set SOME_DIR"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        assert!(writable(&folder.path().join("a/b"), "SOME_DIR").is_ok());
    }

    #[test]
    fn a_lock_has_one_owner_at_a_time() {
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", std::process::id());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _lock = lock(&name).unwrap();
                    assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::sleep(Duration::from_millis(2));
                    INSIDE.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        std::fs::remove_file(build("stamps").unwrap().join(format!("{name}.lock"))).unwrap();
    }
}
