//! Who may move a process from one group to another (`cgroup_attach_permissions`): whoever may
//! write `cgroup.procs` of the target and of the innermost group around both. So a user to whom a
//! group was given moves processes within it, and neither in nor out.

use hayate_abi::{Errno, Result};

use super::options;
use crate::credentials::{Credentials, access};
use crate::process::cgroup::group::{Group, file};
use crate::process::cgroup::moves;
use crate::process::cgroup::namespace::CgroupNamespace;
use crate::vfs::inode::{Attributes, FileKind};
use crate::vfs::path::permitted;

/// The number of `cgroup.procs` among the files of a group.
pub const PROCS: u8 = file::OTHERS;
/// Its permissions, unless they were changed.
pub const PROCS_MODE: u16 = 0o644;

/// Whether somebody may write `cgroup.procs` of a group (`cgroup_may_write`). `EACCES`.
pub fn may_write(group: &Group, credentials: &Credentials) -> Result<()> {
    let own = group.attributes(PROCS, PROCS_MODE);
    let attributes = Attributes {
        kind: FileKind::Regular,
        mode: own.mode,
        uid: own.uid,
        gid: own.gid,
        capabilities: false,
    };
    permitted(credentials, &attributes, access::WRITE)
}

/// Whether somebody with these rights, who sees the tree from `namespace`, may move a process from
/// one group to another; `whole`: all its threads.
///
/// # Errors
/// `EACCES` (not theirs), `ENOENT` (outside the namespace, if these delegate), those of
/// [`moves::vet`], `EOPNOTSUPP` (a thread alone does not leave its process).
pub fn may_move(
    from: &Group,
    to: &Group,
    credentials: &Credentials,
    namespace: &CgroupNamespace,
    whole: bool,
) -> Result<()> {
    may_write(from.common(to), credentials)?;
    let is_seen = |group: &Group| group.is_within(namespace.root());
    if options::namespaces_delegate() && !(is_seen(from) && is_seen(to)) {
        return Err(Errno::ENOENT);
    }
    moves::vet(to)?;
    if whole || from.is(to) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}
