//! Where things lie: the project, what cargo builds, and what is made once and kept.

use anyhow::{Context, Result};
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
