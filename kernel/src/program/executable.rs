//! Files that are executed.

use alloc::sync::Arc;

use hayate_abi::capability::FileCapabilities;
use hayate_abi::{Errno, Result};
use hayate_landlock::Access;
use hayate_recycler::ContentKey;

use crate::credentials::{Credentials, Id, access};
use crate::page_cache::access::WriteDenial;
use crate::page_cache::cache::PageCache;
use crate::vfs::attributes::FileKind;
use crate::vfs::context::FsContext;
use crate::vfs::file_count::Counted;
use crate::vfs::inode::Inode;
use crate::vfs::landlock;
use crate::vfs::mount::{Location, flags};
use crate::vfs::mount_tree;
use crate::vfs::open;
use crate::vfs::open_file::OpenFile;
use crate::vfs::path::{Resolver, permitted};
use crate::vfs::set_id::CAPABILITIES;

const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
const O_RDONLY: u32 = 0;

/// A file that is, or is about to be, executed: open, and protected from writers for as long as
/// this exists.
pub struct Executable {
    file: Arc<OpenFile>,
    page_cache: Arc<PageCache>,
    _denial: WriteDenial,
    /// Whether the caller that executes it may also read it.
    pub readable: bool,
    /// The owner, if the file sets the user (`S_ISUID`).
    pub set_user: Option<Id>,
    /// The group, if the file sets the group (`S_ISGID`).
    pub set_group: Option<Id>,
    /// The capabilities that the file gives its program.
    pub capabilities: Option<FileCapabilities>,
    /// The file of the program's interpreter, which closes with the program.
    pub interpreter: Option<Arc<OpenFile>>,
    /// It is such an interpreter of a program.
    pub is_interpreter: bool,
}

impl Drop for Executable {
    /// Reports the close of the file to its watchers, since the last process that executes it has
    /// ended. Pools may still hold the file, which does not concern watchers.
    fn drop(&mut self) {
        if self.is_interpreter {
            return;
        }
        for file in core::iter::once(&self.file).chain(&self.interpreter) {
            if Arc::strong_count(file) != 1 {
                file.close_for_watchers();
            }
        }
    }
}

impl Executable {
    /// Whether it may give its program rights that the caller lacks: it has set-user-id or
    /// set-group-id bits or file capabilities that count.
    pub fn gives_rights(&self) -> bool {
        self.set_user.is_some() || self.set_group.is_some() || self.capabilities.is_some()
    }

    /// Opens a file for execution.
    ///
    /// Fails with `EACCES` if it may not be executed or is no regular file, `ETXTBSY` while it is
    /// open for writing, `EINVAL` if its capabilities make no sense.
    pub fn open(
        location: Location,
        context: &FsContext,
        credentials: &Credentials,
    ) -> Result<Executable> {
        let inode = location.inode()?;
        let attributes = inode.attributes();
        let mount_flags = location.mount.flags();
        if attributes.kind != FileKind::Regular || mount_flags & flags::MS_NOEXEC != 0 {
            return Err(Errno::EACCES);
        }
        // Check both rights first: nearly every program may be read as well.
        let readable = permitted(credentials, &attributes, access::EXECUTE | access::READ).is_ok();
        if !readable {
            permitted(credentials, &attributes, access::EXECUTE)?;
        }
        landlock::check(credentials, &location, Access::EXECUTE)?;
        let resolver = Resolver { context, credentials, start: None };
        // Execution does not need the right to read, so the open is not checked again.
        let counted = Counted::new()?;
        let known = (inode, attributes);
        let file = open::open_known(&resolver, location, known, O_RDONLY, true, counted)?;
        let page_cache = Arc::clone(file.opened_cache().ok_or(Errno::EACCES)?);
        let denial = page_cache.deny_writing()?;
        let gives = attributes.mode & (SET_USER | SET_GROUP) != 0 || attributes.capabilities;
        let counts = gives && may_give_rights(file.location(), credentials);
        let is_known = || credentials.knows(attributes.uid, attributes.gid);
        let sets = if counts && is_known() { attributes.mode } else { 0 };
        let capabilities = match attributes.capabilities && counts {
            true => capabilities_of(file.inode(), credentials)?,
            false => None,
        };
        Ok(Executable {
            file,
            page_cache,
            _denial: denial,
            readable,
            set_user: (sets & SET_USER != 0).then_some(attributes.uid),
            // Without the right to execute for the group, the bit means mandatory locking.
            set_group: (sets & SET_GROUP != 0 && attributes.mode & GROUP_EXECUTE != 0)
                .then_some(attributes.gid),
            capabilities,
            interpreter: None,
            is_interpreter: false,
        })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// Its page cache.
    pub fn page_cache(&self) -> &Arc<PageCache> {
        &self.page_cache
    }

    /// The content and name of the file: the identity by which kept parts match. It does not change
    /// while this exists, because no process can write the file.
    pub fn content(&self) -> ContentKey {
        let location = self.location();
        ContentKey {
            page_cache: self.page_cache.id(),
            version: self.page_cache.version(),
            place: (Arc::as_ptr(&location.mount) as usize, Arc::as_ptr(&location.dentry) as usize),
        }
    }

    /// Its location.
    pub fn location(&self) -> &Location {
        self.file.location()
    }

    /// Reads at `offset` as much as there is. Fails with `EIO` if the device fails.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let size = self.page_cache.size();
        let wanted = (to.len() as u64).min(size.saturating_sub(offset)) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % 4096) as usize;
            let length = (wanted - done).min(4096 - within);
            let Some(part) = to.get_mut(done..done + length) else { break };
            self.page_cache.page(at / 4096)?.read(within, part);
            done += length;
        }
        Ok(done)
    }
}

/// Whether set-id bits and capabilities of a file count at all: not if its mount says so, or is not
/// in the caller's mount namespace, or its file system was mounted in another user namespace than
/// the caller's or one around it (`mnt_may_suid`, fs/namespace.c of Linux 6.1).
#[cold]
fn may_give_rights(place: &Location, credentials: &Credentials) -> bool {
    let mount = &place.mount;
    mount.flags() & flags::MS_NOSUID == 0
        && mount_tree::of_caller().has(mount)
        && credentials.user.is_within(mount.user())
}

/// Reads the capabilities that a file gives (`get_vfs_caps_from_disk`, security/commoncap.c).
/// Those of another user namespace's root do not count.
#[cold]
fn capabilities_of(
    inode: &Arc<dyn Inode>,
    credentials: &Credentials,
) -> Result<Option<FileCapabilities>> {
    let value = match inode.get_xattr(CAPABILITIES) {
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(None),
        other => other?,
    };
    let read = FileCapabilities::read(&value).ok_or(Errno::EINVAL)?;
    Ok(credentials.has_root_around(read.root).then_some(read))
}
