//! Files that are executed.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_recycler::Content;

use crate::credentials::{Credentials, Id, access};
use crate::file::attributes::FileKind;
use crate::file::context::FsContext;
use crate::file::mount::{Location, flags};
use crate::file::open;
use crate::file::open_file::OpenFile;
use crate::file::path::{Resolver, permitted};
use crate::file::plate::{Plate, WriteDenial};

const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
const O_RDONLY: u32 = 0;

/// A file that is, or is about to be, executed: open, and protected from writers for as long as
/// this exists.
pub struct Executable {
    file: Arc<OpenFile>,
    plate: Arc<Plate>,
    _denial: WriteDenial,
    /// Whether the caller that executes it may also read it.
    pub readable: bool,
    /// The owner, if the file sets the user (`S_ISUID`).
    pub set_user: Option<Id>,
    /// The group, if the file sets the group (`S_ISGID`).
    pub set_group: Option<Id>,
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
    /// Whether it has set-user-id or set-group-id bits that count.
    pub fn is_set_id(&self) -> bool {
        self.set_user.is_some() || self.set_group.is_some()
    }

    /// Opens a file for execution.
    ///
    /// Fails with `EACCES` if it may not be executed or is no regular file, `ETXTBSY` while it is
    /// open for writing.
    pub fn open(
        location: Location,
        context: &FsContext,
        credentials: &Credentials,
    ) -> Result<Executable> {
        let attributes = location.inode()?.attributes();
        let mount_flags = location.mount.flags();
        if attributes.kind != FileKind::Regular || mount_flags & flags::MS_NOEXEC != 0 {
            return Err(Errno::EACCES);
        }
        // Check both rights first: nearly every program may be read as well.
        let readable = permitted(credentials, &attributes, access::EXECUTE | access::READ).is_ok();
        if !readable {
            permitted(credentials, &attributes, access::EXECUTE)?;
        }
        let resolver = Resolver { context, credentials, start: None };
        // Execution does not need the right to read, so the open is not checked again.
        let file = open::open_location(&resolver, location, O_RDONLY, true)?;
        let plate = file.inode().plate().ok_or(Errno::EACCES)?;
        let denial = plate.deny_writing()?;
        let sets = if mount_flags & flags::MS_NOSUID == 0 { attributes.mode } else { 0 };
        Ok(Executable {
            file,
            plate,
            _denial: denial,
            readable,
            set_user: (sets & SET_USER != 0).then_some(attributes.uid),
            // Without the right to execute for the group, the bit means mandatory locking.
            set_group: (sets & SET_GROUP != 0 && attributes.mode & GROUP_EXECUTE != 0)
                .then_some(attributes.gid),
            interpreter: None,
            is_interpreter: false,
        })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// Its page cache.
    pub fn plate(&self) -> &Arc<Plate> {
        &self.plate
    }

    /// The content and name of the file: the identity by which kept parts match. It does not change
    /// while this exists, because no process can write the file.
    pub fn content(&self) -> Content {
        let location = self.location();
        Content {
            plate: self.plate.id(),
            version: self.plate.version(),
            place: (Arc::as_ptr(&location.mount) as usize, Arc::as_ptr(&location.dentry) as usize),
        }
    }

    /// Its location.
    pub fn location(&self) -> &Location {
        self.file.location()
    }

    /// Reads at `offset` as much as there is. Fails with `EIO` if the device fails.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let size = self.plate.size();
        let wanted = (to.len() as u64).min(size.saturating_sub(offset)) as usize;
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let within = (at % 4096) as usize;
            let length = (wanted - done).min(4096 - within);
            let Some(part) = to.get_mut(done..done + length) else { break };
            self.plate.page(at / 4096)?.read(within, part);
            done += length;
        }
        Ok(done)
    }
}
