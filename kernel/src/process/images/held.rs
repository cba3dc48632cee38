//! Files that a recorded program opened itself and holds at its horizon: they are part of its
//! image, and a start from the image opens each anew.
//!
//! A start gets open files of its own (open file descriptions, `open(2)`), with the flags and at
//! the positions of the horizon, under the same numbers. Descriptors that shared one share one
//! again (`dup(2)`). What is held is named by its place in the tree, weakly: an image keeps no file
//! and no mount alive. The place is that of the original open as long as the image is not spoiled,
//! since every name and every directory on the way to it is depended on; the rights are checked as
//! that open did.
//!
//! The files are opened before exec's point of no return ([`Held::open`]): if one cannot be, the
//! start is one as always. They get their numbers behind it ([`Held::install`]), after exec has
//! closed what it closes.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::process::RLIMIT_NOFILE;
use hayate_abi::{Errno, Result};

use crate::process::thread::Thread;
use crate::reclaim::growth::Grow;
use crate::vfs::dentry::Dentry;
use crate::vfs::file_count::Counted;
use crate::vfs::mount::{Location, Mount};
use crate::vfs::open;
use crate::vfs::open_file::OpenFile;
use crate::vfs::path::Resolver;

/// What a recorded program has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnFile {
    /// A file, a directory, or a device that always reads the same.
    File,
    /// A device that reads random bytes.
    Random,
    /// A Unix socket that is not connected.
    Socket,
}

/// The most descriptors that a recorded program has opened and not closed.
pub const OWN: usize = 16;

/// A descriptor that a recorded program opened.
#[derive(Clone, Copy)]
pub struct Own {
    /// The descriptor.
    pub fd: i32,
    /// What it is.
    pub file: OwnFile,
    /// How many system calls the program had made before it was opened.
    pub calls: u32,
}

/// An open file.
struct File {
    mount: Weak<Mount>,
    dentry: Weak<Dentry>,
    /// Device and inode number.
    identity: (u64, u64),
    flags: u32,
    position: u64,
}

/// A descriptor: its number, whether exec closes it, and which of the files it is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Descriptor {
    number: i32,
    close_on_exec: bool,
    file: usize,
}

/// What a program holds at its horizon.
#[derive(Default)]
pub struct Held {
    files: Vec<File>,
    descriptors: Vec<Descriptor>,
}

/// The files of [`Held`] for one start.
#[derive(Default)]
pub struct Opened(Vec<Arc<OpenFile>>);

impl File {
    fn of(file: &OpenFile) -> Result<File> {
        let location = file.location();
        Ok(File {
            mount: Arc::downgrade(&location.mount),
            dentry: Arc::downgrade(&location.dentry),
            identity: file.metadata()?.identity(),
            flags: file.flags(),
            position: *file.lock_position(),
        })
    }

    fn is_same(&self, other: &File) -> bool {
        self.identity == other.identity
            && (self.flags, self.position) == (other.flags, other.position)
            && self.mount.ptr_eq(&other.mount)
            && self.dentry.ptr_eq(&other.dentry)
    }

    /// Fails as `open(2)`, and with `ENOENT` if the place is gone.
    fn open(&self, resolver: &Resolver<'_>) -> Result<Arc<OpenFile>> {
        let mount = self.mount.upgrade().ok_or(Errno::ENOENT)?;
        let dentry = self.dentry.upgrade().ok_or(Errno::ENOENT)?;
        let location = Location { mount, dentry };
        let file = open::open_location(resolver, location, self.flags, false, Counted::new()?)?;
        *file.lock_position() = self.position;
        Ok(file)
    }
}

impl Held {
    /// Notes what the current thread's program holds of what it opened. `None`: something of it
    /// cannot be opened anew, or memory is exhausted.
    pub fn by(thread: &Thread, own: &[Own]) -> Option<Held> {
        let table = thread.files();
        let mut held = Held::default();
        let mut known = Vec::<Arc<OpenFile>>::new();
        known.make_room_exact(own.len()).ok()?;
        held.files.make_room_exact(own.len()).ok()?;
        held.descriptors.make_room_exact(own.len()).ok()?;
        for Own { fd, file: kind, .. } in own {
            let file = table.get(*fd).ok().filter(|_| *kind == OwnFile::File)?;
            let index = match known.iter().position(|other| Arc::ptr_eq(other, &file)) {
                Some(index) => index,
                None => {
                    held.files.push(File::of(&file).ok()?);
                    known.push(file);
                    known.len() - 1
                }
            };
            let close_on_exec = table.close_on_exec(*fd).ok()?;
            held.descriptors.push(Descriptor { number: *fd, close_on_exec, file: index });
        }
        Some(held)
    }

    /// How many descriptors there are.
    pub fn count(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether two recordings of one command hold the same.
    pub fn is_same(&self, other: &Held) -> bool {
        self.descriptors == other.descriptors
            && self.files.len() == other.files.len()
            && self.files.iter().zip(&other.files).all(|(one, other)| one.is_same(other))
    }

    /// Opens all for a start of the current thread's. Fails as `open(2)`.
    pub fn open(&self, thread: &Thread) -> Result<Opened> {
        let mut opened = Vec::new();
        if self.files.is_empty() {
            return Ok(Opened(opened));
        }
        opened.make_room_exact(self.files.len())?;
        let context = thread.directories()?;
        let credentials = thread.credentials();
        let resolver = Resolver { context: &context, credentials: &credentials, start: None };
        for file in &self.files {
            opened.push(file.open(&resolver)?);
        }
        Ok(Opened(opened))
    }

    /// Gives files that were opened their numbers in the current thread's table, where these are
    /// free.
    ///
    /// # Errors
    /// `ENOMEM`: the start cannot be completed.
    pub fn install(&self, opened: &Opened, thread: &Thread) -> Result<()> {
        if self.descriptors.is_empty() {
            return Ok(());
        }
        let table = thread.files();
        let limit = thread.process().limits().soft(RLIMIT_NOFILE);
        for Descriptor { number, close_on_exec, file } in &self.descriptors {
            let file = opened.0.get(*file).ok_or(Errno::EBADF)?;
            let old = table.replace(*number, Arc::clone(file), limit, *close_on_exec)?;
            if let Some(old) = old {
                table.closed(old);
            }
        }
        Ok(())
    }
}

/// Closes what the current thread's program opened itself, before it is started again.
pub fn close(thread: &Thread, own: &[Own]) {
    let table = thread.files();
    for own in own {
        let _ = table.close(own.fd);
    }
}
