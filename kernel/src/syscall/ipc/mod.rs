//! System calls on System V objects and POSIX message queues: decoding and encoding;
//! [`crate::ipc::sysv`] and [`crate::ipc::mqueue`] do the work.

pub mod mq;
pub mod msg;
pub mod sem;
pub mod shm;

use hayate_abi::ipc::IpcPerm;
use hayate_ipc_rules::permission::Permission;

/// The permission of an object as a program sees it.
fn shown(permission: &Permission, key: i32, id: i32) -> IpcPerm {
    IpcPerm {
        key,
        uid: permission.uid,
        gid: permission.gid,
        cuid: permission.cuid,
        cgid: permission.cgid,
        mode: permission.mode,
        // The bits of an identifier above those of the index (ipc/util.h).
        seq: (id >> 15) as u16,
        ..IpcPerm::default()
    }
}
