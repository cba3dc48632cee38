//! Extended attributes kept in memory (`xattr(7)`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::reclaim::growth::Grow;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

/// Flags of `setxattr(2)`.
pub mod flags {
    #![allow(missing_docs, reason = "the names are those of setxattr(2)")]
    pub const XATTR_CREATE: u32 = 1;
    pub const XATTR_REPLACE: u32 = 2;
}

/// The most bytes that all attributes of one file take, names and values together. (Linux' tmpfs
/// has no limit of its own here; without one a program could fill the kernel's memory past every
/// other limit.)
const MOST: usize = 128 << 10;

/// The attributes of one file. Costs a word and a lock while there are none.
#[derive(Default)]
pub struct Xattrs(SpinLock<BTreeMap<Vec<u8>, Vec<u8>>>);

fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = Vec::new();
    copy.make_room_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

impl Xattrs {
    /// Returns the value of an attribute; `ENODATA` when there is none.
    pub fn get(&self, name: &[u8]) -> Result<Vec<u8>> {
        copied(self.0.lock().get(name).ok_or(Errno::ENODATA)?)
    }

    /// Whether there is an attribute of this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.0.lock().contains_key(name)
    }

    /// Sets an attribute, or removes it with `None`. `EEXIST` or `ENODATA` depending on `flags`,
    /// `ENOSPC` when there are too many.
    pub fn set(&self, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
        // Copies are made before the lock is taken; the replaced value is dropped after it is
        // released.
        let new = value.map(|value| Ok::<_, Errno>((copied(name)?, copied(value)?))).transpose()?;
        let mut all = self.0.lock();
        let exists = all.contains_key(name);
        if exists && flags & flags::XATTR_CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        if !exists && (flags & flags::XATTR_REPLACE != 0 || new.is_none()) {
            return Err(Errno::ENODATA);
        }
        let old = match new {
            None => all.remove(name),
            Some((name, value)) => {
                let taken: usize = all.iter().map(|(name, value)| name.len() + value.len()).sum();
                if taken + name.len() + value.len() > MOST {
                    return Err(Errno::ENOSPC);
                }
                all.insert(name, value)
            }
        };
        drop(all);
        drop(old);
        Ok(())
    }

    /// Returns all names, each ended by a zero byte.
    pub fn list(&self) -> Result<Vec<u8>> {
        let all = self.0.lock();
        let mut list = Vec::new();
        list.make_room_exact(all.keys().map(|name| name.len() + 1).sum())?;
        for name in all.keys() {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }
}
