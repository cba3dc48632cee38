//! The generic tree: items, the inode that serves them, and open texts.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use crate::reclaim::growth::{Grow, relieved};
use crate::schedule::Mutex;
use crate::vfs::inode::{Attributes, Change, DirectorySink, FileKind, Inode, Jump, Metadata};
use crate::vfs::mount::Location;
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// The longest text that a file takes when it is written.
const LONGEST_WRITE: usize = 4096;

/// The subject of a subtree: a process, a resource, a disk, or the system.
pub trait Subject: Clone + Send + Sync + 'static {
    /// Owner of its files. `public`: for a directory that every user may list.
    fn owner(&self, _public: bool) -> (u32, u32) {
        (0, 0)
    }
    /// Fails with ESRCH or ENOENT if it no longer exists.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// As [`Subject::check`], and with EPERM if the directory is closed to the caller.
    fn check_inside(&self) -> Result<()> {
        self.check()
    }
    /// Fails with EACCES unless the caller may look inside.
    fn check_access(&self) -> Result<()> {
        Ok(())
    }
    /// Whether it is the calling process.
    fn is_callers_own(&self) -> bool {
        false
    }
    /// A number for the program inside, which changes as soon as that is replaced.
    fn inside(&self) -> u64 {
        0
    }
    /// Whether it is there for as long as the system.
    fn is_fixed(&self) -> bool {
        false
    }
    /// Mixed into inode numbers, so that they differ between subjects and stay the same for one.
    fn seed(&self) -> u64;
}

/// The system itself.
impl Subject for () {
    fn is_fixed(&self) -> bool {
        true
    }

    fn seed(&self) -> u64 {
        0
    }
}

/// A named entry of a directory.
pub struct Item<T: 'static> {
    /// The name in its directory.
    pub name: &'static str,
    /// The object that the name stands for.
    pub what: What<T>,
}

/// Writes a text.
pub type Write<T> = fn(&T, &mut Vec<u8>) -> Result<()>;

/// The kind of an item.
pub enum What<T: 'static> {
    /// A text that every user may read.
    Text(Write<T>),
    /// A text about the inside, for the owner alone; the right is checked at the open.
    Private(Write<T>),
    /// A text for the owner alone; each read checks whether the reader may look inside.
    Asked(Write<T>),
    /// A text about the inside whose mode lets every user open it; the right is checked as for
    /// `Private`.
    Guarded(Write<T>),
    /// A text that the owner may also write; the function gets what was written.
    Setting(Write<T>, fn(&T, &[u8]) -> Result<()>),
    /// The same, and everybody may open it for both: it looks itself at who reads and writes.
    Open(Write<T>, fn(&T, &[u8]) -> Result<()>),
    /// A file that is no text, for the owner alone: its permission bits, and what opens it.
    Opened(u16, fn(&T, &OpenRequest) -> Result<Arc<dyn FileOps>>),
    /// A symbolic link with its text.
    Link(fn(&T) -> Result<Vec<u8>>),
    /// A link that leads to a location directly and not by a path, with the text that it shows.
    Magic(fn(&T) -> Result<Location>, fn(&T) -> Result<Vec<u8>>),
    /// A directory of items.
    Directory(&'static [Item<T>]),
    /// A directory with changing entries.
    Listing(&'static dyn Listing<T>),
}

/// A directory with changing entries.
pub trait Listing<T>: Sync {
    /// Finds an entry. Fails with ENOENT.
    fn lookup(&self, subject: &T, device: u64, name: &[u8]) -> Result<Arc<dyn Inode>>;
    /// Enumerates as [`Inode::read_dir`].
    fn list(&self, subject: &T, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()>;
    /// Permission bits.
    fn mode(&self) -> u16 {
        0o555
    }
}

impl<T> What<T> {
    fn kind(&self) -> FileKind {
        match self {
            What::Text(_)
            | What::Private(_)
            | What::Asked(_)
            | What::Guarded(_)
            | What::Setting(..)
            | What::Open(..)
            | What::Opened(..) => FileKind::Regular,
            What::Link(_) | What::Magic(..) => FileKind::Symlink,
            What::Directory(_) | What::Listing(_) => FileKind::Directory,
        }
    }

    fn mode(&self) -> u16 {
        match self {
            What::Text(_) | What::Guarded(_) => 0o444,
            What::Private(_) | What::Asked(_) => 0o400,
            What::Setting(..) => 0o644,
            What::Open(..) => 0o666,
            What::Opened(mode, _) => *mode,
            What::Link(_) | What::Magic(..) => 0o777,
            What::Directory(_) => 0o555,
            What::Listing(listing) => listing.mode(),
        }
    }
}

/// The inode of any item.
pub struct Node<T: Subject> {
    subject: T,
    what: &'static What<T>,
    number: u64,
    device: u64,
}

/// FNV-1a: inode numbers that stay the same from one look-up to the next.
pub fn mix(seed: u64, name: &[u8]) -> u64 {
    name.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    }) >> 8
}

impl<T: Subject> Node<T> {
    /// The inode of `what`, named `name` in a directory numbered `parent`.
    pub fn entry(
        subject: T,
        what: &'static What<T>,
        device: u64,
        parent: u64,
        name: &[u8],
    ) -> Arc<dyn Inode> {
        let number = mix(parent ^ subject.seed(), name) | 1;
        Arc::new(Self { subject, what, number, device })
    }

    /// Its subject, if it is the item `what`.
    pub fn subject_of(&self, what: &'static What<T>) -> Option<&T> {
        core::ptr::eq(self.what, what).then_some(&self.subject)
    }

    fn owner(&self) -> (u32, u32) {
        let public = self.what.kind() == FileKind::Directory && self.what.mode() == 0o555;
        self.subject.owner(public)
    }

    fn child(&self, item: &'static Item<T>) -> Arc<dyn Inode> {
        Node::entry(
            self.subject.clone(),
            &item.what,
            self.device,
            self.number,
            item.name.as_bytes(),
        )
    }
}

/// Inode number of the root, as on Linux.
pub const ROOT_NUMBER: u64 = 1;

/// Finds a fixed entry.
pub fn find<T>(items: &'static [Item<T>], name: &[u8]) -> Option<&'static Item<T>> {
    items.iter().find(|item| item.name.as_bytes() == name)
}

/// Enumerates fixed entries as [`Inode::read_dir`], from position `base` on; returns true if the
/// sink took all that were left.
pub fn list<T>(
    items: &'static [Item<T>],
    base: u64,
    position: &mut u64,
    sink: &mut dyn DirectorySink,
) -> bool {
    while let Some(item) = items.get((*position - base) as usize) {
        let number = mix(*position, item.name.as_bytes()) | 1;
        if !sink.entry(number, item.what.kind(), item.name.as_bytes(), *position + 1) {
            return false;
        }
        *position += 1;
    }
    true
}

impl<T: Subject> Inode for Node<T> {
    fn attributes(&self) -> Attributes {
        let (uid, gid) = self.owner();
        let mut mode = self.what.mode();
        // Every process may list its own directories, whichever user owns the files
        // (`proc_fd_permission`, fs/proc/fd.c).
        if matches!(self.what, What::Listing(_)) && self.subject.is_callers_own() {
            mode |= 0o555;
        }
        Attributes { kind: self.what.kind(), mode, uid, gid, capabilities: false }
    }

    fn metadata(&self) -> Result<Metadata> {
        self.subject.check()?;
        let (uid, gid) = self.owner();
        let kind = self.what.kind();
        Ok(Metadata {
            number: self.number,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid,
            gid,
            block_size: 1024,
            ..Metadata::anonymous(self.device, kind, self.what.mode())
        })
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        // An open with O_TRUNC, as by a shell's redirection, changes nothing; everything else is
        // fixed.
        let only_size = Change { size: change.size, ..Change::default() };
        let fixed = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        if fixed || only_size.size.is_none() { Err(Errno::EPERM) } else { Ok(()) }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        self.subject.check_inside()?;
        match self.what {
            What::Directory(items) => {
                find(items, name).map(|item| self.child(item)).ok_or(Errno::ENOENT)
            }
            What::Listing(listing) => listing.lookup(&self.subject, self.device, name),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn is_fixed(&self) -> bool {
        self.subject.is_fixed()
    }

    fn open_directory(self: Arc<Self>) -> Result<Option<Arc<dyn FileOps>>> {
        self.subject.check_inside().map(|()| None)
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        self.subject.check()?;
        match self.what {
            What::Directory(items) => {
                list(items, 2, position, sink);
                Ok(())
            }
            What::Listing(listing) => listing.list(&self.subject, position, sink),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match self.what {
            What::Link(text) | What::Magic(_, text) => text(&self.subject),
            _ => Err(Errno::EINVAL),
        }
    }

    fn follow(&self) -> Result<Jump> {
        match self.what {
            What::Magic(place, _) => place(&self.subject).map(Jump::Location),
            _ => Ok(Jump::Text),
        }
    }

    fn open(self: Arc<Self>, request: &OpenRequest) -> Result<Arc<dyn FileOps>> {
        self.subject.check()?;
        // Take the number first, so that it cannot be that of a program started after the check.
        let inside = self.subject.inside();
        if matches!(self.what, What::Private(_) | What::Guarded(_)) {
            self.subject.check_access()?;
        }
        if let What::Opened(_, open) = self.what {
            return open(&self.subject, request);
        }
        Ok(Arc::new(OpenText { node: self, inside, text: Mutex::new(None) }))
    }
}

/// An open text. A text about the inside of a process is readable only as long as the process
/// executes the program that its opener was allowed to see: others, with more rights, may read the
/// open file, or the process may have executed another program.
struct OpenText<T: Subject> {
    node: Arc<Node<T>>,
    inside: u64,
    text: Mutex<Option<Vec<u8>>>,
}

impl<T: Subject> FileOps for OpenText<T> {
    fn traits(&self) -> Traits {
        Traits::REGULAR | Traits::POLLABLE
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let write = match self.node.what {
            What::Private(_) | What::Guarded(_) if self.node.subject.inside() != self.inside => {
                self.node.subject.check()?;
                return Ok(0);
            }
            What::Text(write)
            | What::Private(write)
            | What::Asked(write)
            | What::Guarded(write)
            | What::Setting(write, _)
            | What::Open(write, _) => write,
            _ => return Err(Errno::EINVAL),
        };
        let mut text = self.text.lock();
        if offset == 0 || text.is_none() {
            let is_asked = matches!(self.node.what, What::Asked(_));
            if is_asked {
                self.node.subject.check_access()?;
            }
            // A program can make a text long: one with 65,530 regions has megabytes of them.
            let fresh = relieved(|| {
                let mut fresh = Vec::new();
                write(&self.node.subject, &mut fresh)?;
                Ok(fresh)
            })?;
            if is_asked {
                // The process may meanwhile execute a program that must not be looked into.
                self.node.subject.check_access()?;
            }
            let guarded = matches!(self.node.what, What::Private(_) | What::Guarded(_));
            if guarded && self.node.subject.inside() != self.inside {
                // The process executed another program while this was written.
                self.node.subject.check()?;
                return Ok(0);
            }
            *text = Some(fresh);
        }
        let text = text.as_deref().unwrap_or_default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let rest = &text[start..];
        out.put(&rest[..rest.len().min(out.remaining())])
    }

    fn write(&self, _: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let (What::Setting(_, store) | What::Open(_, store)) = self.node.what else {
            return Err(Errno::EACCES);
        };
        let length = input.remaining();
        if length > LONGEST_WRITE {
            return Err(Errno::EINVAL);
        }
        let mut text = Vec::new();
        text.make_room_exact(length)?;
        text.resize(length, 0);
        let count = input.take(&mut text)?;
        store(&self.node.subject, &text[..count])?;
        Ok(count)
    }

    fn poll(&self, _: &OpenFile, _: &mut Registrar<'_>) -> Events {
        Events::ALWAYS
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }
}
