//! The space itself: making, loading, counting.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use arrayvec::ArrayVec;
use core::ops::Range;
use hayate_abi::Result;
use hayate_recycler::ResourceKind;
use hayate_space_map::{Region, SpaceMap};
use machine::cpu::{Lent, Local, OfObject, PerCpu, empty_slot};
use machine::paging::{self, Frozen, PageTable, Resident};
use machine::per_cpu;
use machine::sync::SpinLock;

use super::claims::Claims;
use super::layout::Layout;
use super::limits::{AtomicLimits, Limits, most_regions};
use super::origin::{Altered, Origin};
use super::region::{Mapping, RegionFlags};
use super::weak_list::{ListPlace, WeakList};
use crate::reclaim;
use crate::recycle::statistics;
use crate::supervisor::sites::Sites;

/// The state that the space's lock protects besides the page table.
pub struct Inner {
    /// The mappings, by address.
    pub map: SpaceMap<Mapping>,
    /// The addresses of stack, heap and mappings.
    pub layout: Layout,
    /// Where the heap begins (`brk`).
    pub heap_start: usize,
    /// Where the heap ends.
    pub heap_end: usize,
    /// Bytes in regions with `LOCKED`.
    pub locked: usize,
    /// Bytes in private writable regions (`RLIMIT_DATA`).
    pub data: usize,
    /// Flags that new regions get (`mlockall(MCL_FUTURE)`).
    pub future: RegionFlags,
    /// No gap between the first address and the top is as large as the second number (bytes): the
    /// search for a gap from the top down may begin at the first address.
    pub full_above: (usize, usize),
    /// The state in which the program began, if the space may be kept for the same program.
    pub origin: Option<Box<Origin>>,
    /// Where access rights were changed since then.
    pub altered: Altered,
    /// Call sites that were examined in supervisor mode.
    pub sites: Sites,
    /// Segments of shared memory are or were attached: fork and what unmaps must tell them.
    pub has_segments: bool,
    /// The space never goes to supervisor mode, because a set-user-id program runs in it.
    pub user_only: bool,
    /// The lineage in whose state the program began, if it began at an image or template.
    pub lineage: Weak<Lineage>,
    /// The providers of missing pages.
    pub claims: Claims,
}

/// The memory of a program: a page table and a map of regions. Made by exec, copied by fork, shared
/// by threads and by the child of a vfork; freed with its last `Arc`.
pub struct Space {
    /// The page table, and the lock of the space.
    pub table: PageTable<Inner>,
    place: ListPlace,
    /// A number that no other program's stay in a space ever has: a kept space gets a new one for
    /// each program, the same program too.
    serial: AtomicU64,
    limits: AtomicLimits,
    /// Faults resolved from memory (minor), and with a read from a device (major).
    minor: AtomicU64,
    major: AtomicU64,
    /// The most pages that were mapped at once, as far as [`Space::resident`] saw.
    peak: AtomicUsize,
    /// The commands of `membarrier(2)` that the process has registered for, and [`OUTSIDE`].
    barriers: AtomicU32,
    /// Whether its program began at an image or template whose lineage may keep it.
    pub descends: AtomicBool,
}

/// The most heirs of one lineage.
pub const MOST_HEIRS: usize = 16;

/// All lineages.
pub(super) static LINEAGES: WeakList<Lineage> = WeakList::new();
/// The bytes that all heirs keep for themselves.
pub(super) static HEIR_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A space in which a start of the lineage ran, and which is in the first state again.
pub struct Heir {
    /// The space.
    pub space: Arc<Space>,
    /// The memory that only it keeps, in bytes.
    pub(super) bytes: usize,
}

impl Drop for Heir {
    fn drop(&mut self) {
        HEIR_BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

/// The state of a space in which programs begin again and again.
pub struct Lineage {
    /// Its pages.
    pub frozen: Frozen,
    /// Its mappings.
    pub map: SpaceMap<Mapping>,
    /// Its heap.
    pub heap: Range<usize>,
    /// Bytes in private writable regions (`RLIMIT_DATA`).
    pub data: usize,
    /// See [`Inner::full_above`].
    pub full_above: (usize, usize),
    /// Its private pages.
    pub private: usize,
    /// The spaces that wait for a start.
    pub heirs: SpinLock<ArrayVec<Heir, MOST_HEIRS>>,
    /// How many starts took one.
    pub inherited: AtomicU64,
    /// Nothing is kept any more, because a file that is mapped was truncated: the pages that it
    /// lost are still frozen.
    pub(super) closed: AtomicBool,
    pub(super) place: ListPlace,
}

impl Drop for Lineage {
    fn drop(&mut self) {
        LINEAGES.leave(self.place);
    }
}

/// A bit beside the commands of `membarrier(2)`: another process has written into the space, or has
/// changed the limits of its process.
const OUTSIDE: u32 = 1 << 31;
/// The space goes into no pool ([`Space::stay_out`]).
const STAYS_OUT: u32 = 1 << 30;

/// All spaces. A space keeps its entry until it is dropped.
pub(super) static SPACES: WeakList<Space> = WeakList::new();

per_cpu! {
    /// The space of the thread that runs on this processor.
    pub static CURRENT: Local<Space, OfObject> = Local::new();
    static SERIALS: PerCpu<AtomicU64> = PerCpu::new(AtomicU64::new(0));
}

/// The next serial. Each processor counts for itself, so that processors do not share a cache line.
fn next_serial() -> u64 {
    let counter = SERIALS.here();
    let count = counter.load(Relaxed);
    counter.store(count + 1, Relaxed);
    count * machine::cpu::count() as u64 + machine::cpu::id() as u64 + 1
}

/// The space of the current thread. It cannot change while the result is borrowed.
///
/// # Panics
/// In a context that has none (a kernel thread).
#[inline]
pub fn current() -> Lent<Space> {
    try_current().unwrap_or_else(|| empty_slot())
}

machine::read_slot!(
    /// The space of the current thread, if it has one.
    pub fn try_current = CURRENT: Space, OfObject
);

/// Unloads the space that this processor has loaded, which leaves only the kernel's half.
pub fn leave() {
    paging::deactivate();
}

impl Space {
    /// Makes an empty space with default limits.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn make(layout: Layout) -> Result<Arc<Space>> {
        let table = reclaim::obtain(|| PageTable::new(Inner::empty(layout)))?;
        let place = SPACES.reserve()?;
        let space = Arc::new(Space {
            table,
            place,
            serial: AtomicU64::new(next_serial()),
            limits: AtomicLimits::default(),
            minor: AtomicU64::new(0),
            major: AtomicU64::new(0),
            peak: AtomicUsize::new(0),
            barriers: AtomicU32::new(0),
            descends: AtomicBool::new(false),
        });
        SPACES.enter(place, &space);
        statistics::made(ResourceKind::Space);
        Ok(space)
    }

    /// Loads it on this processor. Cheap if it is already loaded.
    #[inline]
    pub fn activate(&self) {
        self.table.activate();
    }

    /// Lets a kernel thread use this space while `work` runs. If `work` sleeps, the thread finds
    /// another space loaded afterwards. For tests.
    pub fn visit<R>(self: &Arc<Space>, work: impl FnOnce() -> R) -> R {
        self.activate();
        let result = machine::context::work_in(&CURRENT, self, work);
        leave();
        result
    }

    /// A number that names this space with this start of a program in it, and nothing else ever.
    /// Two equal numbers, seen one after the other in a process, say that it executed nothing in
    /// between: `/proc/PID/maps` and its like depend on that (`fs/proc/tree.rs`).
    pub fn serial(&self) -> u64 {
        self.serial.load(Relaxed)
    }

    /// The addresses of stack, heap and mappings.
    pub fn layout(&self) -> Layout {
        self.table.lock().layout
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Changes the limits (`setrlimit`, exec). Mappings beyond them stay.
    pub fn set_limits(&self, limits: Limits) {
        self.limits.set(limits);
    }

    /// The number of pages in the page table, by kind.
    pub fn resident(&self) -> Resident {
        let resident = self.table.resident();
        self.peak.fetch_max(resident.pages(), Relaxed);
        resident
    }

    /// The most pages that were mapped at once, as far as [`resident`](Self::resident) saw.
    pub fn peak_resident(&self) -> usize {
        self.resident();
        self.peak.load(Relaxed)
    }

    /// Bytes in all regions.
    pub fn size(&self) -> usize {
        self.table.lock().map.size()
    }

    /// The numbers of faults resolved from memory, and of those that read from a device.
    pub fn faults(&self) -> (u64, u64) {
        (self.minor.load(Relaxed), self.major.load(Relaxed))
    }

    /// Counts a fault. Called under the space's lock, so a load and a store are enough.
    #[inline]
    pub fn count_minor(&self) {
        self.minor.store(self.minor.load(Relaxed) + 1, Relaxed);
    }

    /// Counts a fault that read from a device.
    pub fn count_major(&self) {
        self.major.fetch_add(1, Relaxed);
    }

    /// Resets a kept space for its next program: gives it another serial and other limits, and
    /// clears all counts.
    pub fn begin_again(&self, limits: Limits) {
        self.serial.store(next_serial(), Relaxed);
        self.set_limits(limits);
        self.minor.store(0, Relaxed);
        self.major.store(0, Relaxed);
        self.peak.store(0, Relaxed);
        self.barriers.store(0, Relaxed);
    }

    /// Turns an emptied space into a new one, with the addresses of `layout`.
    pub fn begin_as_new(&self, layout: Layout) {
        self.table.lock().layout = layout;
        self.begin_again(self.limits());
    }

    /// Keeps it out of the pools and from being an heir, for good: a debugger may change anything
    /// in it.
    pub fn stay_out(&self) {
        self.barriers.fetch_or(OUTSIDE | STAYS_OUT, SeqCst);
        // The flag that the end of a space asks in any case.
        self.descends.store(true, SeqCst);
    }

    /// Charges the pages that it gets from now on to an account ([`crate::reclaim::charge`]); 0: to
    /// nobody. What is charged to somebody is kept for nobody else.
    pub fn charge_to(&self, owner: u32) {
        if self.table.owner() == owner {
            return;
        }
        self.stay_out();
        self.table.set_owner(owner);
    }

    /// Whether it stays out of the pools.
    pub fn stays_out(&self) -> bool {
        self.barriers.load(SeqCst) & STAYS_OUT != 0
    }

    /// Notes that another process is about to write into it, or to change its process's limits.
    pub fn note_outside(&self) {
        self.barriers.fetch_or(OUTSIDE, SeqCst);
    }

    /// Whether another process has done that since its program began.
    pub fn was_changed_from_outside(&self) -> bool {
        self.barriers.load(SeqCst) & OUTSIDE != 0
    }

    /// Registers for commands of `membarrier(2)`, one bit each.
    pub fn register_barrier(&self, commands: u32) {
        self.barriers.fetch_or(commands, Relaxed);
    }

    /// Whether the process has registered for a command of `membarrier(2)`.
    pub fn may_use_barrier(&self, command: u32) -> bool {
        self.barriers.load(Relaxed) & command != 0
    }

    /// The processors that have it loaded (for `membarrier`).
    pub fn active(&self) -> u64 {
        self.table.active()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        SPACES.leave(self.place);
    }
}

/// How many bytes of a region count against `RLIMIT_DATA`.
pub fn data_size(region: &Region<Mapping>) -> usize {
    if region.value.counts_as_data() { region.size() } else { 0 }
}

impl Inner {
    /// A space without mappings.
    pub fn empty(layout: Layout) -> Inner {
        Inner {
            map: SpaceMap::new(),
            layout,
            heap_start: 0,
            heap_end: 0,
            locked: 0,
            data: 0,
            future: RegionFlags::empty(),
            full_above: (usize::MAX, 0),
            origin: None,
            altered: Altered::default(),
            sites: Sites::default(),
            has_segments: false,
            user_only: false,
            lineage: Weak::new(),
            claims: Claims::NONE,
        }
    }

    /// Notes that access rights or flags change in `range`, if the program began with a mapping
    /// there.
    #[inline]
    pub fn note_altered(&mut self, range: &Range<usize>) {
        if let Some(origin) = &self.origin
            && origin.maps(range)
        {
            self.altered.note(range);
        }
    }

    /// Whether `more` regions are too many.
    pub fn too_many(&self, more: usize) -> bool {
        self.map.len() + more > most_regions()
    }
}
