//! The table of one kind of System V object, by identifier and key.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::NoMemory;
use hayate_ipc_rules::ids::{Full, IdTable, MOST};
use hayate_machine::sync::{RwSpinLock, RwSpinWriteGuard};

use crate::ipc::actor::Actor;
use crate::reclaim::growth;
use crate::reclaim::growth::relieved;

/// `IPC_CREAT`
const CREATE: u32 = 0o1000;
/// `IPC_EXCL`
const EXCLUSIVE: u32 = 0o2000;

/// One object.
pub trait Object: Sized {
    /// What is made before the object has an identifier.
    type Draft;
    /// The object of a draft.
    fn finish(draft: Self::Draft, id: i32) -> Self;
    /// Its identifier.
    fn id(&self) -> i32;
    /// Fails with the errors of a `get` call that finds it, for this size and these flags.
    fn check(&self, actor: &Actor, size: usize, flags: u32) -> Result<()>;
}

/// All objects of a kind.
pub struct Objects<T> {
    table: RwSpinLock<IdTable<Arc<T>>>,
    most: AtomicUsize,
}

impl<T: Object> Objects<T> {
    /// No objects, and at most `most`.
    pub const fn new(most: usize) -> Self {
        Objects { table: RwSpinLock::new(IdTable::new()), most: AtomicUsize::new(most) }
    }

    /// The most objects that there may be; those beyond it stay.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets [`most`](Self::most). `EINVAL` beyond what identifiers can name.
    pub fn set_most(&self, most: i64) -> Result<()> {
        let most = usize::try_from(most).ok().filter(|&most| most <= MOST).ok_or(Errno::EINVAL)?;
        self.most.store(most, Ordering::Relaxed);
        Ok(())
    }

    /// The identifier that the next object is to get, or -1 (`/proc/sys/kernel/shm_next_id`).
    pub fn next_id(&self) -> i64 {
        self.table.read().wanted().map_or(-1, i64::from)
    }

    /// Sets [`next_id`](Self::next_id).
    pub fn set_next_id(&self, id: i64) -> Result<()> {
        let id = i32::try_from(id).map_err(|_| Errno::EINVAL)?;
        self.table.write().set_wanted(u32::try_from(id).ok());
        Ok(())
    }

    /// The number of objects.
    pub fn count(&self) -> usize {
        self.table.read().len()
    }

    /// The largest index in use; 0 if there is none (what `IPC_INFO` returns).
    pub fn highest(&self) -> usize {
        self.table.read().highest().unwrap_or(0)
    }

    /// The object with an identifier: `EINVAL`.
    pub fn get(&self, id: i32) -> Result<Arc<T>> {
        self.table.read().get(id).cloned().ok_or(Errno::EINVAL)
    }

    /// The object at the index of an identifier: `EINVAL`.
    pub fn at(&self, id: i32) -> Result<Arc<T>> {
        self.table.read().at(id).cloned().ok_or(Errno::EINVAL)
    }

    /// Calls `visit` for each object in the order of their indices, without a lock.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<T>) -> Result<()>) -> Result<()> {
        let mut index = 0;
        loop {
            let object = {
                let table = self.table.read();
                match table.highest() {
                    Some(highest) if index <= highest => table.at(index as i32).cloned(),
                    _ => return Ok(()),
                }
            };
            if let Some(object) = object {
                visit(&object)?;
            }
            index += 1;
        }
    }

    /// Finds the object with a key, or makes it, as a `get` call with these flags does (`ipcget`,
    /// ipc/util.c); returns its identifier.
    pub fn obtain(
        &self,
        actor: &Actor,
        (key, size, flags): (i32, usize, u32),
        mut draft: impl FnMut() -> Result<T::Draft>,
    ) -> Result<i32> {
        if let Some(found) = self.existing(actor, (key, size, flags))? {
            return Ok(found);
        }
        let mut made = None;
        relieved(|| {
            if made.is_none() {
                made = Some(draft()?);
            }
            let mut table = self.table.write();
            let found = table.find(key).cloned();
            if let Some(found) = found {
                // Another thread was faster.
                drop(table);
                return Self::checked(&found, actor, size, flags);
            }
            if growth::is_refused() {
                return Err(Errno::ENOMEM);
            }
            table.reserve().map_err(|NoMemory| Errno::ENOMEM)?;
            let Some(draft) = made.take() else { return Err(Errno::ENOMEM) };
            let make = |id| (Arc::new(T::finish(draft, id)), id);
            table.insert(key, self.most(), make).map_err(|Full| Errno::ENOSPC)
        })
    }

    /// The identifier of the object with a key; `None` if it is to be made.
    fn existing(
        &self,
        actor: &Actor,
        (key, size, flags): (i32, usize, u32),
    ) -> Result<Option<i32>> {
        let found = self.table.read().find(key).cloned();
        match found {
            Some(found) => Self::checked(&found, actor, size, flags).map(Some),
            None if key != 0 && flags & CREATE == 0 => Err(Errno::ENOENT),
            None => Ok(None),
        }
    }

    fn checked(found: &T, actor: &Actor, size: usize, flags: u32) -> Result<i32> {
        const BOTH: u32 = CREATE | EXCLUSIVE;
        if flags & BOTH == BOTH {
            return Err(Errno::EEXIST);
        }
        found.check(actor, size, flags)?;
        Ok(found.id())
    }

    /// The table, to remove objects or their keys.
    pub fn lock(&self) -> RwSpinWriteGuard<'_, IdTable<Arc<T>>> {
        self.table.write()
    }
}
