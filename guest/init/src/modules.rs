//! Drivers for a Linux kernel that has them as modules.
//!
//! `/modules.list` in the initramfs names the files to load, one a line, in order; `./hayate`
//! writes it when it boots Debian's kernel. Hayate has no modules and no such file.

use crate::Failure;
use rustix::io::Errno;
use rustix::system::finit_module;
use std::fs::File;

const LIST: &str = "/modules.list";

/// Loads the modules of the list. Returns whether there was a list, that is, whether this is Linux.
pub fn load() -> Result<bool, Failure> {
    let Ok(list) = std::fs::read_to_string(LIST) else { return Ok(false) };
    for path in list.lines().filter(|line| !line.is_empty()) {
        let fail = |error: &dyn std::fmt::Display| {
            Failure::new(format!("cannot load the module {path}: {error}"))
        };
        let file = File::open(path).map_err(|error| fail(&error))?;
        match finit_module(&file, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A driver for hardware that this machine does not have.
            Err(Errno::NODEV) => {}
            Err(error) => return Err(fail(&error)),
        }
    }
    Ok(true)
}
