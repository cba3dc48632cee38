//! What objects of all three kinds have: owner and mode, key, and whether they are still there.

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::permission::Permission;

use super::now;
use crate::ipc::actor::Actor;

/// A part of an object's state, under the object's lock.
pub struct Head {
    /// Owner, maker and mode.
    pub permission: Permission,
    /// The key by which it is found; `IPC_PRIVATE` if it has none.
    pub key: i32,
    /// Whether the table has it.
    pub is_there: bool,
    /// When it was made or changed last, in seconds of the realtime clock.
    pub changed_at: i64,
}

impl Head {
    /// That of a new object.
    pub fn new(permission: Permission, key: i32) -> Head {
        Head { permission, key, is_there: true, changed_at: now() }
    }

    /// Whether the actor may access the object so: `EACCES`, or `EIDRM` if it is removed.
    pub fn open(&self, actor: &Actor, wanted: u32) -> Result<()> {
        actor.may(&self.permission, wanted)?;
        self.exists()
    }

    /// Whether the actor may change or remove it: `EPERM`, `EIDRM`.
    pub fn own(&self, actor: &Actor) -> Result<()> {
        actor.owns(&self.permission)?;
        self.exists()
    }

    /// `EIDRM` if it is removed.
    pub fn exists(&self) -> Result<()> {
        if self.is_there { Ok(()) } else { Err(Errno::EIDRM) }
    }

    /// Changes owner and mode (`IPC_SET`).
    pub fn set(&mut self, (uid, gid, mode): (u32, u32, u32)) {
        self.permission.set(uid, gid, mode);
        self.changed_at = now();
    }
}
