//! Kernel stacks: made, kept for the next thread, given up.
//!
//! Stacks are 16 KiB with an unmapped page below. One that nobody needs any more goes to its
//! processor's stock, and beyond that to the common one, so that the next thread's costs one pop.
//! What exceeds the limit ([`keep`]) is given up: it is unmapped and its frames are free at once. Its
//! *place*, the addresses, a processor may still remember. So the place is dirty and is used again only
//! when all processors have forgotten the kernel's pages, which is seen to for many places at a time.
//! (Nobody follows a pointer into a stack that was given up; what a processor reads ahead by mistake
//! from a page it remembers has no effect.) The lists of places are kept in the places' own first
//! page-table entries, which say "not present", as [`crate::scattered`] does it.
//!
//! A stack is not cleared for its next owner: programs never see one.
//!
//! Lock order: a stock's lock, the common stock's, that of the places, that of the kernel's page
//! tables, the frame allocator's. A processor that waits for one of them answers shootdowns meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::boot::VMAP;
use crate::cpu::{self, MAX_CPUS, PerCpu};
use crate::smp::{self, Flush};
use crate::sync::SpinLock;
use crate::{mmio, per_cpu};

/// Bytes of a kernel stack.
pub const STACK_SIZE: usize = 16 * 1024;
const SLOT: u64 = STACK_SIZE as u64 + 4096;

/// How many stacks a CPU keeps for itself at most; it moves half as many at once.
const MOST_OWN: usize = 32;
/// How many dirty places are worth a shootdown.
const WORTH: u64 = 64;

/// Stacks that belong to no CPU. The limit is set when the policy is known.
static COMMON: SpinLock<Stock> = SpinLock::new(Stock::new(usize::MAX));
static PLACES: SpinLock<Places> = SpinLock::new(Places { used: 0, clean: 0, dirty: 0, count: 0 });
/// How many places were ever used: those of [`PLACES`], for who must not wait for its lock.
static USED: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

per_cpu! {
    /// This CPU's stock. Others take the lock only to change the limit and to drop what is kept.
    static OWN: PerCpu<SpinLock<Stock>> = PerCpu::new(SpinLock::new(Stock::new(MOST_OWN)));
}

/// Stacks that are mapped and nobody's: a list threaded through their lowest words.
struct Stock {
    /// Bottom of the first one, 0 if there is none.
    first: u64,
    count: usize,
    /// How many it is to hold.
    most: usize,
    /// How often one was put in by who had used it.
    stored: u64,
}

impl Stock {
    const fn new(most: usize) -> Stock {
        Stock { first: 0, count: 0, most, stored: 0 }
    }

    #[inline]
    fn pop(&mut self) -> Option<u64> {
        let bottom = self.first;
        if bottom == 0 {
            return None;
        }
        // SAFETY: a free stack is mapped and nobody's; its lowest word is the link.
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

    /// Takes one for the CPU whose stock this is from the common ones, and some more for later.
    #[cold]
    #[inline(never)]
    fn refill(&mut self) -> Option<u64> {
        let mut common = COMMON.lock();
        for _ in 1..self.most / 2 {
            let Some(bottom) = common.pop() else { break };
            self.push(bottom);
        }
        // Where the common ones were few, all of them are among the own now.
        common.pop().or_else(|| self.pop())
    }

    /// The CPU's stock is more than full: half of it goes.
    #[cold]
    #[inline(never)]
    fn spill(&mut self) {
        if self.most == 0 {
            // Nothing is kept, the one that was put in just now neither.
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

    /// Changes how many it holds; what is too much goes.
    fn limit(&mut self, most: usize) {
        self.most = most;
        while self.count > most {
            let Some(bottom) = self.pop() else { break };
            give_up(bottom);
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Unmaps a stack that nobody uses and that is in no list.
fn give_up(bottom: u64) {
    // SAFETY: as the caller says.
    unsafe { mmio::unmap_stack(bottom, STACK_SIZE) };
    PLACES.lock().give_back(bottom);
}

/// Where stacks may be. Places are numbered from 1; 0 ends a list.
struct Places {
    used: u64,
    /// Places that every processor has forgotten.
    clean: u64,
    /// Places that one may remember, and how many.
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

impl Places {
    /// A place where nothing is mapped, and that nobody remembers; its bottom.
    fn take(&mut self) -> Option<u64> {
        if self.clean == 0 && self.count >= WORTH {
            self.forget();
        }
        if self.clean == 0 {
            let bottom = bottom_of(self.used + 1);
            // With the tables for it there, the place can be put on a list later.
            // SAFETY: nothing is mapped there, and the place is ours.
            if unsafe { mmio::swap_kernel_page(bottom as usize, 0) }.is_some() {
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
        self.clean = unsafe { mmio::swap_kernel_page(bottom as usize, 0) }? >> 1;
        Some(bottom)
    }

    /// Makes the dirty places clean.
    fn forget(&mut self) {
        if self.dirty != 0 {
            smp::shootdown(u64::MAX, Flush::Global);
            self.clean = core::mem::take(&mut self.dirty);
            self.count = 0;
        }
    }

    /// Puts a place where nothing is mapped any more on the dirty list.
    fn give_back(&mut self, bottom: u64) {
        // An entry that says "not present" and carries a number.
        // SAFETY: nothing is mapped there, and the place is the caller's.
        if unsafe { mmio::swap_kernel_page(bottom as usize, self.dirty << 1) }.is_some() {
            self.dirty = place_of(bottom);
            self.count += 1;
        }
    }
}

/// A kernel stack; goes back to the stock when dropped.
#[derive(Debug)]
pub struct KernelStack {
    bottom: u64,
}

impl KernelStack {
    /// A stack from the stock, or a new one. None if memory is out.
    pub fn new() -> Option<KernelStack> {
        let kept = {
            let mut own = OWN.here().lock();
            own.pop().or_else(|| own.refill())
        };
        kept.or_else(make).map(|bottom| KernelStack { bottom })
    }

    /// One past the highest byte.
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
    // SAFETY: the place is ours, and nobody remembers it.
    if unsafe { mmio::map_stack(bottom, STACK_SIZE) } {
        MADE.fetch_add(1, Ordering::Relaxed);
        return Some(bottom);
    }
    give_up(bottom);
    None
}

/// Keeps no more than this many bytes of stacks that nobody uses: what is kept above goes now. A part of
/// them lies ready at each processor; for less than one each, nothing is kept.
pub fn keep(bytes: usize) {
    let cpus = cpu::count().max(1);
    let stacks = bytes / STACK_SIZE;
    let each = if stacks < cpus { 0 } else { (stacks / cpus / 2).clamp(1, MOST_OWN) };
    COMMON.lock().limit(if each == 0 { 0 } else { stacks - each * cpus });
    for own in (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)) {
        own.lock().limit(each);
    }
}

/// Gives up one kept stack; the bytes it took. `None`: none is kept.
pub fn drop_one() -> Option<usize> {
    // Not with the common stock locked: it comes after those of the processors.
    let common = COMMON.lock().pop();
    let of_cpus = || (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)?.lock().pop()).next();
    let bottom = common.or_else(of_cpus)?;
    give_up(bottom);
    DROPPED.fetch_add(1, Ordering::Relaxed);
    Some(STACK_SIZE)
}

/// What became of stacks: exact when nothing is going on, close while something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Made new.
    pub made: u64,
    /// Put into a stock by who had used them; how often.
    pub stored: u64,
    /// Given up after having been kept.
    pub dropped: u64,
    /// Kept now.
    pub kept: u64,
}

/// What became of stacks so far.
pub fn counts() -> Counts {
    let (mut stored, mut kept) = (0, COMMON.lock().count as u64);
    for own in (0..MAX_CPUS).filter_map(|cpu| OWN.of(cpu)) {
        let own = own.lock();
        stored += own.stored;
        kept += own.count as u64;
    }
    let (made, dropped) = (MADE.load(Ordering::Relaxed), DROPPED.load(Ordering::Relaxed));
    Counts { made, stored, dropped, kept }
}

/// Whether `address` lies in a guard page below a kernel stack.
pub(crate) fn is_guard(address: u64) -> bool {
    address >= VMAP
        && address < VMAP + USED.load(Ordering::Relaxed) * SLOT
        && (address - VMAP) % SLOT < 4096
}
