//! Where things lie: the project, what cargo builds, and what is made once and kept.

use crate::step::Step;
use anyhow::{Context, Result};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// The root of the project. `./hayate` says it; a `cargo run` knows it from its build.
pub fn project() -> PathBuf {
    std::env::var_os("HAYATE_ROOT").map_or_else(
        || {
            let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
            cli.parent().unwrap_or(cli).to_path_buf()
        },
        PathBuf::from,
    )
}

/// Where cargo puts what it builds.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| project().join("target"), |path| project().join(path))
}

/// A folder below `build/`, made if it is not there. Everything in `build/` can be removed at any
/// time and is made again.
pub fn build(folder: &str) -> Result<PathBuf> {
    let base = std::env::var_os("HAYATE_BUILD_DIR")
        .map_or_else(|| project().join("build"), |path| project().join(path));
    let path = base.join(folder);
    std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// Waits until no other command in this project does what `name` says, and returns what keeps
/// others from it as long as it lives: the tests, and people, run several commands at once in one
/// project, and the first ones find nothing made. The kernel gives the lock back with the process,
/// however it ends (flock(2)). It is no lock between functions: asking twice waits for good.
pub fn alone(name: &str) -> Result<File> {
    let path = build("stamps")?.join(format!("{name}.lock"));
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        let _step = Step::new(format!("Waiting for another hayate at work on {name}"));
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
    fn alone_is_one_at_a_time() {
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", std::process::id());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _alone = alone(&name).unwrap();
                    assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::sleep(Duration::from_millis(2));
                    INSIDE.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        std::fs::remove_file(build("stamps").unwrap().join(format!("{name}.lock"))).unwrap();
    }
}
