//! Programs that were loaded by `bpf(2)`, and those of a group: see [`super::devices`].

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_device_programs::Program;
use hayate_machine::sync::SpinLock;

/// Flags of a group's programs, and of a request to attach one (`include/uapi/linux/bpf.h`).
pub mod flags {
    #![allow(missing_docs, reason = "the names are those of bpf(2)")]
    pub const ALLOW_OVERRIDE: u32 = 1;
    pub const ALLOW_MULTI: u32 = 2;
    pub const REPLACE: u32 = 4;
}

/// Kinds of programs (`enum bpf_prog_type`).
pub mod kind {
    /// One about packets (`BPF_PROG_TYPE_CGROUP_SKB`). Libraries load one that reads none to find
    /// out whether programs can be attached to groups at all. This one cannot be, as on a Linux
    /// without `CONFIG_CGROUP_BPF`.
    pub const PACKETS: u32 = 8;
    /// One about devices (`BPF_PROG_TYPE_CGROUP_DEVICE`).
    pub const DEVICES: u32 = 15;
}

/// The most programs of a group (`BPF_CGROUP_MAX_PROGS`).
pub const MOST: usize = 64;

/// A program that was loaded.
pub struct Filter {
    /// Its number.
    pub id: u32,
    /// Its kind ([`kind`]).
    pub kind: u32,
    /// What it does.
    pub program: Program,
    /// What its maker called it, filled up with zeros.
    pub name: [u8; 16],
    /// The user who made it.
    pub maker: u32,
    /// When, in nanoseconds since boot.
    pub loaded: u64,
}

/// All that are loaded, by number.
static ALL: SpinLock<BTreeMap<u32, Weak<Filter>>> = SpinLock::new(BTreeMap::new());

impl Filter {
    /// Loads a program.
    pub fn new(
        kind: u32,
        program: Program,
        name: [u8; 16],
        maker: u32,
        loaded: u64,
    ) -> Arc<Filter> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let filter = Arc::new(Filter { id, kind, program, name, maker, loaded });
        ALL.lock().insert(id, Arc::downgrade(&filter));
        filter
    }

    /// The one with this number.
    pub fn of(id: u32) -> Option<Arc<Filter>> {
        ALL.lock().get(&id)?.upgrade()
    }

    /// The number of the next one.
    pub fn after(id: u32) -> Option<u32> {
        let from = id.checked_add(1)?;
        ALL.lock().range(from..).find(|(_, one)| one.strong_count() != 0).map(|(&id, _)| id)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        ALL.lock().remove(&self.id);
    }
}

/// The programs of a group.
#[derive(Default)]
pub struct Attached {
    /// Of [`flags`], without `REPLACE`.
    pub flags: u32,
    /// In the order in which they were attached.
    pub filters: Vec<Arc<Filter>>,
}

impl Attached {
    /// Whether there may be several, together with those of groups below.
    pub fn has_several(&self) -> bool {
        self.flags & flags::ALLOW_MULTI != 0
    }

    /// The place of one among them.
    pub fn place_of(&self, filter: &Arc<Filter>) -> Option<usize> {
        self.filters.iter().position(|one| Arc::ptr_eq(one, filter))
    }
}
