//! Kernel stacks: allocated, kept for the next thread, given up.
//!
//! Stacks are 16 KiB with an unmapped page below. A stack that is not needed any more goes to its
//! processor's cache, and from there to the common one, so that the next thread's stack costs one
//! pop. Stacks beyond the limit ([`keep`]) are given up: unmapped, and their frames are free at
//! once. But processors may still have TLB entries for the addresses (the *place*). So the place is
//! dirty, and is used again only after all processors have flushed their TLB entries of the
//! kernel's pages, which is done for many places at a time. (No code follows a pointer into a stack
//! that was given up; a speculative read through a stale TLB entry has no effect.) The lists of
//! places are kept in the places' own first page-table entries, which say "not present", as in
//! [`crate::scattered`].
//!
//! A stack is not cleared for its next owner: programs never see one.
//!
//! Lock order: a processor's cache, the common cache, the places, the kernel's page tables, the
//! frame allocator. A processor that waits for one of these locks answers shootdowns meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cpu::{self, MAX_CPUS, PerCpu};
use crate::ipi::{self, TlbFlush};
use crate::kernel_tables::{map_stack, swap_page, unmap_stack};
use crate::per_cpu;
use crate::sync::SpinLock;

/// Bytes of a kernel stack.
pub const STACK_SIZE: usize = 16 * 1024;
const SLOT: u64 = STACK_SIZE as u64 + 4096;
const VMAP: u64 = crate::layout::VMAP as u64;

/// How many stacks a CPU keeps for itself at most; it moves half as many at once.
const MOST_OWN: usize = 32;
/// How many dirty places justify a shootdown.
const WORTH: u64 = 64;

/// Stacks that belong to no CPU. The limit is set when the policy is known.
static COMMON: SpinLock<StackCache> = SpinLock::new(StackCache::new(usize::MAX));
static PLACES: SpinLock<StackPlaces> =
    SpinLock::new(StackPlaces { used: 0, clean: 0, dirty: 0, count: 0 });
/// How many places were ever used: a copy of the count in [`PLACES`], for callers that must not
/// wait for its lock.
static USED: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

per_cpu! {
    /// This CPU's cache. Other CPUs take the lock only to change the limit and to drop what is
    /// kept.
    static OWN: PerCpu<SpinLock<StackCache>> = PerCpu::new(SpinLock::new(StackCache::new(MOST_OWN)));
}

/// Stacks that are mapped and free: a list threaded through their lowest words.
struct StackCache {
    /// Bottom of the first one, 0 if there is none.
    first: u64,
    count: usize,
    /// How many stacks it may hold.
    most: usize,
    /// How often a stack was put in by the code that had used it.
    stored: u64,
}

impl StackCache {
    const fn new(most: usize) -> StackCache {
        StackCache { first: 0, count: 0, most, stored: 0 }
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        let bottom = self.first;
        if bottom == 0 {
            return None;
        }
        // SAFETY: a free stack is mapped and unused; its lowest word is the link.
        self.first = unsafe { (bottom as *const u64).read() };
        self.count -= 1;
        Some(bottom)
    }

    #[inline]
    fn push(&mut self, bottom: u64) {
        // SAFETY: the stack is mapped and its owner gives it up.
        unsafe { (bottom as *mut u64).write(self.first) };
        self.first = bottom;
        self.count += 1;
    }

    /// Takes a stack from the common cache for the CPU whose cache this is, and some more for
    /// later.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<u64> {
        let mut common = COMMON.lock();
        for _ in 1..self.most / 2 {
            let Some(bottom) = common.pop() else { break };
            self.push(bottom);
        }
        // If the common cache had few, all of them are in this cache now.
        common.pop().or_else(|| self.pop())
    }

    /// Moves half of the CPU's cache, which is too full, to the common one.
    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        if self.most == 0 {
            // No stacks are kept, not even the one that was put in just now.
            if let Some(bottom) = self.pop() {
                self.stored -= 1;
                give_up(bottom);
            }
            return;
        }
        for _ in 0..(self.most / 2).max(1) {
            let Some(bottom) = self.pop() else { break };
            let mut common = COMMON.lock();
            if common.count < common.most {
                common.push(bottom);
            } else {
                drop(common);
                give_up(bottom);
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Changes how many stacks it may hold; stacks above the limit are dropped.
    fn limit(&mut self, most: usize) {
        self.most = most;
        while self.count > most {
            let Some(bottom) = self.pop() else { break };
            give_up(bottom);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Unmaps a stack that is unused and in no list.
fn give_up(bottom: u64) {
    // SAFETY: as the caller says.
    unsafe { unmap_stack(bottom, STACK_SIZE) };
    PLACES.lock().give_back(bottom);
}

/// Where stacks may be. StackPlaces are numbered from 1; 0 ends a list.
struct StackPlaces {
    used: u64,
    /// StackPlaces for which no processor has TLB entries.
    clean: u64,
    /// StackPlaces for which a processor may have TLB entries, and how many.
    dirty: u64,
    count: u64,
}

/// The lowest byte of a place.
fn bottom_of(place: u64) -> u64 {
    VMAP + (place - 1) * SLOT + 4096
}

fn place_of(bottom: u64) -> u64 {
    (bottom - VMAP) / SLOT + 1
}

impl StackPlaces {
    /// Takes a place where nothing is mapped and for which no processor has TLB entries; returns
    /// its lowest byte.
    fn take(&mut self) -> Option<u64> {
        if self.clean == 0 && self.count >= WORTH {
            self.forget();
        }
        if self.clean == 0 {
            let bottom = bottom_of(self.used + 1);
            // When its page tables exist, the place can be put on a list later.
            // SAFETY: nothing is mapped there, and the place is ours.
            if unsafe { swap_page(bottom as usize, 0) }.is_some() {
                self.used += 1;
                USED.store(self.used, Ordering::Relaxed);
                return Some(bottom);
            }
            self.forget();
        }
        if self.clean == 0 {
            return None;
        }
        let bottom = bottom_of(self.clean);
        // SAFETY: the first page of a place on a list is not mapped, and the place is ours.
        self.clean = unsafe { swap_page(bottom as usize, 0) }? >> 1;
        Some(bottom)
    }

    /// Makes the dirty places clean, by a shootdown.
    fn forget(&mut self) {
        if self.dirty != 0 {
            ipi::shootdown(u64::MAX, TlbFlush::Global);
            self.clean = core::mem::take(&mut self.dirty);
            self.count = 0;
        }
    }

    /// Puts a place where nothing is mapped any more on the dirty list.
    fn give_back(&mut self, bottom: u64) {
        // An entry that says "not present" and carries a number.
        // SAFETY: nothing is mapped there, and the place is the caller's.
        if unsafe { swap_page(bottom as usize, self.dirty << 1) }.is_some() {
            self.dirty = place_of(bottom);
            self.count += 1;
        }
    }
}

/// A kernel stack; goes back to the cache when dropped.
#[derive(Debug)]
pub struct KernelStack {
    bottom: u64,
}

impl KernelStack {
    /// Returns a stack from the cache, or a new one. `None`: memory is exhausted.
    pub fn new() -> Option<KernelStack> {
        let kept = {
            let mut own = OWN.here().lock();
            own.pop().or_else(|| own.refill())
        };
        kept.or_else(make).map(|bottom| KernelStack { bottom })
    }

    /// Returns the address one past the highest byte.
    pub fn top(&self) -> u64 {
        self.bottom + STACK_SIZE as u64
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        let mut own = OWN.here().lock();
        own.push(self.bottom);
        own.stored += 1;
        if own.count > own.most {
            own.spill();
        }
    }
}

#[cold]
#[inline(never)]
fn make() -> Option<u64> {
    let bottom = PLACES.lock().take()?;
    // SAFETY: the place is ours, and no processor has TLB entries for it.
    if unsafe { map_stack(bottom, STACK_SIZE) } {
        MADE.fetch_add(1, Ordering::Relaxed);
        return Some(bottom);
    }
    give_up(bottom);
    None
}

/// Limits the unused stacks that are kept to this many bytes; stacks above the limit are dropped
/// now. A part of them is kept in each processor's cache; if the limit is less than one stack for
/// each processor, none are kept.
pub fn keep(bytes: usize) {
    let cpus = cpu::count().max(1);
    let stacks = bytes / STACK_SIZE;
    let each = if stacks < cpus { 0 } else { (stacks / cpus / 2).clamp(1, MOST_OWN) };
    COMMON.lock().limit(if each == 0 { 0 } else { stacks - each * cpus });
    for own in (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)) {
        own.lock().limit(each);
    }
}

/// Gives up one kept stack; returns its size in bytes. `None`: no stack is kept.
pub fn drop_one() -> Option<usize> {
    // Not while the common cache is locked: its lock comes after those of the processors' caches.
    let common = COMMON.lock().pop();
    let of_cpus = || (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)?.lock().pop()).next();
    let bottom = common.or_else(of_cpus)?;
    give_up(bottom);
    DROPPED.fetch_add(1, Ordering::Relaxed);
    Some(STACK_SIZE)
}

/// Counts of stacks: exact when no stack is being made or dropped, otherwise approximate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackCounts {
    /// How many were made new.
    pub made: u64,
    /// How often a stack was put into a cache by the code that had used it.
    pub stored: u64,
    /// How many were given up after having been kept.
    pub dropped: u64,
    /// How many are kept now.
    pub kept: u64,
}

/// Returns what happened to stacks so far.
pub fn counts() -> StackCounts {
    let (mut stored, mut kept) = (0, COMMON.lock().count as u64);
    for own in (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)) {
        let own = own.lock();
        stored += own.stored;
        kept += own.count as u64;
    }
    let (made, dropped) = (MADE.load(Ordering::Relaxed), DROPPED.load(Ordering::Relaxed));
    StackCounts { made, stored, dropped, kept }
}

/// Whether `address` lies in a guard page below a kernel stack.
pub(crate) fn is_guard(address: u64) -> bool {
    address >= VMAP
        && address < VMAP + USED.load(Ordering::Relaxed) * SLOT
        && (address - VMAP) % SLOT < 4096
}
