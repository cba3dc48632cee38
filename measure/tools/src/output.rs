//! Writes results: to files, or to the standard output.

use anyhow::{Context, Result, bail};
use hayate_cli::failure::Failure;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A result could not be written.
pub const UNWRITTEN: u8 = 6;

/// Makes a folder, if it is not there.
pub fn make(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Whether a path means the standard output.
pub fn is_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Checks whether a file can be written there: an error is better before an hour of measuring than
/// after.
pub fn writable(path: &Path) -> Result<()> {
    if is_output(path) {
        return Ok(());
    }
    let tried = std::fs::File::options().append(true).create(true).open(path);
    tried.map(drop).map_err(|error| {
        Failure::error(UNWRITTEN, format!("cannot write {}: {error}", path.display()))
    })
}

/// Writes a result through a file beside it; if that fails, writes it to another place and says
/// where.
pub fn save(path: &Path, text: &str) -> Result<()> {
    if is_output(path) {
        let mut output = std::io::stdout();
        let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
        return written.context("cannot write to standard output");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let write = |folder: &Path| -> std::io::Result<tempfile::NamedTempFile> {
        let mut file = tempfile::NamedTempFile::with_prefix_in("hayate-", folder)?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    };
    let attempt = write(folder.unwrap_or(Path::new("."))).and_then(|file| {
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.persist(path).map_err(|error| error.error)
    });
    let Err(error) = attempt else { return Ok(()) };
    let saved = write(&std::env::temp_dir()).and_then(|file| Ok(file.keep()?.1));
    match saved {
        Ok(other) => {
            bail!("cannot write {} ({error}); it is in {}", path.display(), other.display())
        }
        Err(_) => {
            eprint!("{text}");
            bail!("cannot write {} ({error}); it is above", path.display())
        }
    }
}
