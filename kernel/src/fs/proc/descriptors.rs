//! `/proc/PID/fd` and `/proc/PID/fdinfo`.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::target::Target;
use super::text::{bytes, line};
use super::tree;
use super::tree::{Listing, Node, Subject, What};
use crate::process;
use crate::process::pidfd;
use crate::vfs::inode::{DirectorySink, FileKind, Inode};
use crate::vfs::mount::Location;
use crate::vfs::open_file::OpenFile;

/// One descriptor of a process.
#[derive(Clone)]
struct Descriptor {
    target: Target,
    number: i32,
}

impl Descriptor {
    fn file(&self) -> Result<Arc<OpenFile>> {
        // The table is returned too: its last reference must not be dropped where nothing may
        // sleep.
        let found = self.target.look(|thread| {
            let files = thread.try_files()?;
            Some((files.get(self.number), files))
        })?;
        let (file, _files) = found.ok_or(Errno::ENOENT)?;
        file.map_err(|_| Errno::ENOENT)
    }
}

impl Subject for Descriptor {
    fn owner(&self, public: bool) -> (u32, u32) {
        self.target.owner(public)
    }

    fn check(&self) -> Result<()> {
        self.file().map(|_| ())
    }

    fn seed(&self) -> u64 {
        self.target.seed() ^ (self.number as u64) << 8
    }
}

/// A directory with an entry for each descriptor of a process: `fd` and `fdinfo`.
pub struct Descriptors {
    kind: FileKind,
    mode: u16,
    what: &'static What<Descriptor>,
}

/// `/proc/PID/fd`.
pub static LINKS: Descriptors =
    Descriptors { kind: FileKind::Symlink, mode: 0o500, what: &What::Magic(place, text) };

/// `/proc/PID/fdinfo`.
pub static INFORMATION: Descriptors =
    Descriptors { kind: FileKind::Regular, mode: 0o555, what: &What::Text(information) };

impl Listing<Target> for Descriptors {
    fn lookup(&self, target: &Target, device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let number = match name {
            b"0" => 0,
            _ => super::text::number(name).ok_or(Errno::ENOENT)?,
        };
        let number = i32::try_from(number).map_err(|_| Errno::ENOENT)?;
        let descriptor = Descriptor { target: target.clone(), number };
        descriptor.file()?;
        Ok(Node::entry(descriptor, self.what, device, 2, name))
    }

    fn list(
        &self,
        target: &Target,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> Result<()> {
        let found = target.look(|thread| thread.try_files())?;
        let Some(files) = found else { return Ok(()) };
        for number in files.numbers()? {
            let at = number as u64 + 2;
            if at < *position {
                continue;
            }
            let name = format!("{number}");
            let inode = tree::mix(target.seed(), name.as_bytes()) | 1;
            if !sink.entry(inode, self.kind, name.as_bytes(), at + 1) {
                break;
            }
            *position = at + 1;
        }
        Ok(())
    }

    fn mode(&self) -> u16 {
        self.mode
    }
}

fn place(descriptor: &Descriptor) -> Result<Location> {
    Ok(descriptor.file()?.location().clone())
}

fn text(descriptor: &Descriptor) -> Result<Vec<u8>> {
    let file = descriptor.file()?;
    if let Some(name) = file.inode().anonymous_name() {
        return Ok(name);
    }
    let own_root = process::current().directories()?.root();
    file.location().display(&own_root)
}

fn information(descriptor: &Descriptor, out: &mut Vec<u8>) -> Result<()> {
    let file = descriptor.file()?;
    let files = descriptor.target.thread()?.try_files().ok_or(Errno::ENOENT)?;
    const O_CLOEXEC: u32 = 0o2000000;
    let close = files.close_on_exec(descriptor.number).unwrap_or(false);
    let flags = file.flags() | if close { O_CLOEXEC } else { 0 };
    line(out, format_args!("pos:\t{}", *file.lock_position()))?;
    line(out, format_args!("flags:\t0{flags:o}"))?;
    line(out, format_args!("mnt_id:\t{}", file.location().mount.id()))?;
    line(out, format_args!("ino:\t{}", file.metadata()?.number))?;
    if let Some(numbers) = pidfd::describe(&file, &descriptor.target.pids) {
        return bytes(out, &numbers?);
    }
    match file.ops().describe(&file) {
        Some(extra) => bytes(out, &extra),
        None => Ok(()),
    }
}
