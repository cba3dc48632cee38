//! The set-user-id and set-group-id bits of files, and their capabilities: when a new file gets
//! them and when they are cleared.
//!
//! A program with such a bit acts as its file's owner or group. So a user may not set the bit for a
//! group that the user is not in, and a change by another user clears the bits, because otherwise
//! that user could change what runs with the rights of the owner. One case has cost Linux several
//! bugs (CVE-2018-13405, CVE-2021-4037): in a set-group-id directory a new file gets the
//! directory's group, of which its maker need not be a member. Whether the bit is refused there
//! depends on the requested mode, before the umask is applied: the umask could clear the group's
//! right to execute, and so hide the bit.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::inode::{Attributes, Change, FileKind, Inode};
use super::path::Resolver;
use crate::credentials::{Capability, Credentials};

/// The attribute with the capabilities of a file's program (`capabilities(7)`).
pub const CAPABILITIES: &[u8] = b"security.capability";

const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
/// The bit, and the group's right to execute: without that right, the bit once meant mandatory
/// locks.
const GROUP_PROGRAM: u16 = S_ISGID | 0o010;

/// Whether the caller may give a file of this owner and group the set-group-id bit
/// (`in_group_or_capable`, fs/inode.c).
pub fn may_set_group(credentials: &Credentials, of: &Attributes) -> bool {
    credentials.in_group(of.gid) || credentials.has_over(of.uid, of.gid, Capability::Fsetid)
}

/// Returns the mode of a new file in `directory`, from the requested mode and the maker's umask. A
/// directory inherits set-group-id; another file loses it if the maker is not in the group
/// (`mode_strip_sgid` and `inode_init_owner`, fs/inode.c of Linux 6.1).
pub fn of_new(directory: &Attributes, resolver: &Resolver<'_>, mode: u16, is_dir: bool) -> u16 {
    let mut mode = mode;
    if directory.mode & S_ISGID != 0 {
        if is_dir {
            mode |= S_ISGID;
        } else if mode & GROUP_PROGRAM == GROUP_PROGRAM
            && !may_set_group(resolver.credentials, directory)
        {
            mode &= !S_ISGID;
        }
    }
    mode & !resolver.context.umask()
}

/// Returns the mode of a file after a change by a user without the privilege to keep the bits
/// (`setattr_should_drop_sgid`, fs/attr.c).
pub fn after_change(attributes: &Attributes, credentials: &Credentials) -> u16 {
    let mut mode = attributes.mode & !S_ISUID;
    if mode & GROUP_PROGRAM == GROUP_PROGRAM
        || mode & S_ISGID != 0 && !may_set_group(credentials, attributes)
    {
        mode &= !S_ISGID;
    }
    mode
}

/// Whether a file has bits or capabilities that [`drop_for_write`] may have to clear.
#[inline]
pub fn are_there(inode: &Arc<dyn Inode>) -> bool {
    let attributes = inode.attributes();
    (attributes.mode & (S_ISUID | S_ISGID) != 0 || attributes.capabilities)
        && attributes.kind == FileKind::Regular
}

/// Takes away a file's capabilities, whoever changes its content or owner
/// (`cap_inode_killpriv`, security/commoncap.c).
pub fn drop_capabilities(inode: &Arc<dyn Inode>, attributes: &Attributes) -> Result<()> {
    if !attributes.capabilities {
        return Ok(());
    }
    match inode.set_xattr(CAPABILITIES, None, 0) {
        // Another call was faster.
        Ok(()) | Err(Errno::ENODATA) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Before the content of a regular file is changed: takes away its capabilities, and clears the
/// bits unless the caller has the privilege to keep them (`file_remove_privs`, fs/inode.c).
#[cold]
pub fn drop_for_write(inode: &Arc<dyn Inode>, credentials: &Credentials) -> Result<()> {
    let attributes = inode.attributes();
    drop_capabilities(inode, &attributes)?;
    let mode = after_change(&attributes, credentials);
    let privileged = || credentials.has_over(attributes.uid, attributes.gid, Capability::Fsetid);
    if mode == attributes.mode || privileged() {
        return Ok(());
    }
    inode.set_metadata(&Change { mode: Some(mode), ..Change::default() })
}
