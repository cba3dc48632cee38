//! Writes results so that none is lost. It writes a temporary file beside the target, syncs it and
//! renames it, so that a full disk or a crash leaves an older result whole. If the target cannot be
//! written, it writes to another directory and tells the user where.

use crate::exit::{CANNOT_WRITE, Failure};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Fails at once if `path` cannot be written to, before minutes are spent on measuring.
pub fn check(path: &Path) -> Result<(), Failure> {
    if is_stdout(path) || is_special(path) {
        return Ok(());
    }
    let probe = beside(path);
    let tried = File::create(&probe).and_then(|_| fs::remove_file(&probe));
    tried.map_err(|error| {
        Failure::new(
            CANNOT_WRITE,
            format!("{}: {error}; give another path for the result", path.display()),
        )
    })
}

/// Writes `text` to `path`; - is standard output. On failure the text is saved elsewhere, and
/// the failure's message says where.
pub fn save(path: &Path, text: &str) -> Result<(), Failure> {
    let error = match write(path, text) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let name = path.file_name().map_or("measure-result".into(), |n| n.to_string_lossy());
    let name = format!("{name}.{}", std::process::id());
    let elsewhere = rescue_directories().into_iter().map(|d| d.join(&name));
    for rescue in elsewhere {
        if write(&rescue, text).is_ok() {
            return Err(Failure::new(
                CANNOT_WRITE,
                format!(
                    "{}: {error}; the result is saved as {} instead",
                    path.display(),
                    rescue.display()
                ),
            ));
        }
    }
    // The last resort: the result is not lost if the output is kept.
    let printed = io::stdout().write_all(text.as_bytes()).is_ok();
    let told = if printed { "the result is printed instead" } else { "the result is lost" };
    Err(Failure::new(CANNOT_WRITE, format!("{}: {error}; {told}", path.display())))
}

fn rescue_directories() -> Vec<PathBuf> {
    let mut all = vec![std::env::temp_dir()];
    all.extend(["/var/tmp", "/dev/shm", "/tmp", "."].map(PathBuf::from));
    all
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A device or pipe: written to directly, never replaced.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir())
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if is_stdout(path) {
        let mut out = io::stdout();
        out.write_all(text.as_bytes())?;
        return out.flush();
    }
    if is_special(path) {
        return fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes());
    }
    let partial = beside(path);
    let written = File::create(&partial).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        match file.sync_all() {
            // Some file systems cannot sync and report that; the write itself has succeeded.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            other => other,
        }
    });
    let moved = written.and_then(|()| fs::rename(&partial, path));
    if moved.is_err() {
        // A partial file would only use more of a full disk.
        let _ = fs::remove_file(&partial);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_keeps_the_old_result_and_saves_the_new_one_elsewhere() {
        let failure = save(Path::new("/dev/full"), "new").unwrap_err();
        assert_eq!(failure.status, CANNOT_WRITE);
        let place = failure.message.split("saved as ").nth(1).unwrap();
        let place = PathBuf::from(place.split(" instead").next().unwrap());
        assert_eq!(fs::read_to_string(&place).unwrap(), "new");
        fs::remove_file(place).unwrap();
    }

    #[test]
    fn unwritable_places_are_found_before_measuring() {
        assert!(check(Path::new("/nonexistent/run.json")).is_err());
        assert!(check(&std::env::temp_dir().join("run.json")).is_ok());
        assert!(check(Path::new("-")).is_ok());
    }
}
