//! System calls on System V objects and POSIX message queues: decoding and encoding;
//! [`crate::ipc::sysv`] and [`crate::ipc::mqueue`] do the work.

pub mod mq;
pub mod msg;
pub mod sem;
pub mod shm;

use hayate_abi::Result;
use hayate_abi::ipc::IpcPerm;
use hayate_ipc_rules::permission::Permission;

use crate::credentials::Id;
use crate::process::numbers;

/// The permission of an object as a program sees it.
fn shown(permission: &Permission, key: i32, id: i32) -> IpcPerm {
    IpcPerm {
        key,
        uid: numbers::shown_user(permission.uid),
        gid: numbers::shown_group(permission.gid),
        cuid: numbers::shown_user(permission.cuid),
        cgid: numbers::shown_group(permission.cgid),
        mode: permission.mode,
        // The bits of an identifier above those of the index (ipc/util.h).
        seq: (id >> 15) as u16,
        ..IpcPerm::default()
    }
}

/// Owner, group and mode that a program gives an object (`IPC_SET`): `EINVAL` for a number that
/// nobody has.
fn given(permission: &IpcPerm) -> Result<(Id, Id, u32)> {
    let (user, group) = (numbers::user(permission.uid)?, numbers::group(permission.gid)?);
    Ok((user, group, permission.mode))
}
