//! The first process: the choice of its program, its descriptors and arguments.
//!
//! `init=PATH` on the command line names the program. Without it, `/init` of an initramfs or one of
//! the usual paths on a disk is taken, as Linux does (`kernel_init`, init/main.c). Its standard
//! descriptors are the console; its arguments are the words after `--`.

use alloc::sync::Arc;
use core::fmt;

use hayate_abi::{Errno, Result};
use hayate_machine::{boot, info};

use crate::credentials::Credentials;
use crate::process;
use crate::program::strings::Strings;
use crate::tty::devices;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;
use crate::vfs::inode::{FileKind, Inode, Owner};
use crate::vfs::open_file::flags::{O_NOCTTY, O_RDWR};
use crate::vfs::path::{Resolver, WalkFlags};
use crate::vfs::{mount, open};

/// The paths at which a first program is searched.
const PLACES: [&str; 5] = ["/init", "/sbin/init", "/etc/init", "/bin/init", "/bin/sh"];
const PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The reason why the first process could not be started.
pub enum Error {
    /// The program that `init=` names cannot be executed.
    Named(&'static str, Errno),
    /// None of the usual programs exists.
    NoProgram,
    /// Another step failed before a program could be tried.
    Preparation(Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Named(name, error) => write!(to, "init={name}: {error:?}"),
            Error::NoProgram => {
                to.write_str(
                    "no program to begin with; give one with init=PATH, or a root with one of",
                )?;
                PLACES.iter().try_for_each(|place| write!(to, " {place}"))
            }
            Error::Preparation(error) => write!(to, "the first process: {error:?}"),
        }
    }
}

/// Starts the first process on the mounted root.
pub fn start() -> core::result::Result<(), Error> {
    let root = mount::root().ok_or(Error::Preparation(Errno::ENOENT))?;
    let directories = Arc::new(FsContext::new(root));
    let files = Arc::new(FdTable::new());
    open_console(&directories, &files).map_err(Error::Preparation)?;
    if let Some(name) = boot::option("init") {
        return try_program(name, &directories, &files).map_err(|error| Error::Named(name, error));
    }
    for place in PLACES {
        match try_program(place, &directories, &files) {
            Ok(()) => return Ok(()),
            Err(Errno::ENOENT) => {}
            Err(error) => info!("{place}: {error:?}"),
        }
    }
    Err(Error::NoProgram)
}

fn try_program(path: &str, directories: &Arc<FsContext>, files: &Arc<FdTable>) -> Result<()> {
    let mut arguments = Strings::new();
    arguments.push(path.as_bytes())?;
    for word in boot::init_arguments() {
        arguments.push(word.as_bytes())?;
    }
    let mut environment = Strings::new();
    environment.push(b"HOME=/")?;
    environment.push(b"TERM=linux")?;
    environment.push(PATH)?;
    process::start_first(
        path.as_bytes(),
        arguments,
        environment,
        directories.clone(),
        files.clone(),
    )
}

/// Opens the console three times. A root without `/dev/console` gets one, as the smallest initramfs
/// of Linux has it.
fn open_console(directories: &FsContext, files: &FdTable) -> Result<()> {
    let credentials = Credentials::root();
    let resolver = Resolver { context: directories, credentials: &credentials, start: None };
    let walk = WalkFlags::empty();
    let path = b"/dev/console";
    // Do this before any look-up by path, so that no name is cached as missing.
    make_console(&directories.root().inode()?)?;
    for _ in 0..3 {
        let file = open::open(&resolver, path, O_RDWR | O_NOCTTY, 0, walk)?;
        files.install(file, 0, 3, false)?;
    }
    Ok(())
}

fn make_console(root: &Arc<dyn Inode>) -> Result<()> {
    let owner = Owner::default();
    let directory = match root.lookup(b"dev") {
        Ok(directory) => directory,
        Err(Errno::ENOENT) => root.mkdir(b"dev", 0o755, owner)?,
        Err(error) => return Err(error),
    };
    if directory.lookup(b"console").is_ok() {
        return Ok(());
    }
    match directory.mknod(b"console", FileKind::CharDevice, 0o600, devices::CONSOLE, owner) {
        // A read-only root must have its own.
        Ok(_) | Err(Errno::EEXIST | Errno::EROFS) => Ok(()),
        Err(error) => Err(error),
    }
}
