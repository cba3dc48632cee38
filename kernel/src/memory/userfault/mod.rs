//! Missing pages that a program provides (`userfaultfd(2)`; fs/userfaultfd.c of Linux 6.1).
//!
//! A [`Provider`] is the object behind the descriptor. Regions of one space are *provided* by it:
//! where such a region misses a page, the fault becomes a message for who reads the descriptor, and
//! the thread waits. The reader fills the page ([`fill`]) and wakes the thread, whose fault starts
//! again from the look-up of the region. Anything else that ends the wait does so without the page:
//! then the thread faults once more, or takes a signal, or ends.
//!
//! A page is *missing* where a fault would make it: nothing is mapped at the address, and the
//! region is private memory, or its content in memory (a memfd, a file of tmpfs, shared memory
//! without a name) has a hole there. A page of such content that somebody else made is mapped as
//! ever.
//!
//! # Where it is noted
//!
//! A region that is provided has a flag, for which the fault path asks with the mask that asks for
//! large pages, and which a fork clears with the instruction that clears the locks of `mlock(2)`: a
//! space without such regions pays nothing. By whom they are provided is in a map of the space
//! ([`Claims`]), which has numbers of providers. That of a provider is in its own space alone, and
//! is taken out when the descriptor is closed, before it can be given to another. Where regions of
//! several providers have joined, the flag stays then: a page without a claim is a page as
//! everywhere, but for being small.
//!
//! The space of a provider stays out of the pools for good ([`Space::stay_out`]). It is no image,
//! no template, no heir, and no other program begins in it while the descriptor still names it.
//!
//! # Who waits, and how
//!
//! * a program: any signal that is to be handled ends the wait, and the instruction is executed
//!   again behind the handler;
//! * the kernel on behalf of a program (a copy from or to its memory, `mlock`, a populated mapping,
//!   `process_vm_readv`): the end of the thread alone ends the wait, and the access fails. Linux
//!   asks again for as long as another signal is pending, which to a program is the same;
//! * a debugger (`/proc/PID/mem`, `ptrace`) does not wait: its access fails.
//!
//! A copy may wait while its call holds a lock that sleeps (the content of a file that is written,
//! a pipe). Others that want the lock wait as long, and cannot be killed meanwhile, as on Linux;
//! killing the one that waits ends it. So to have the kernel wait needs `CAP_SYS_PTRACE` or the
//! administrator's leave (`vm.unprivileged_userfaultfd`); others get [`Provider`]s for which it does
//! not (`UFFD_USER_MODE_ONLY`). Filling takes no lock that sleeps, so a program that fills is never
//! among those others. No spin lock is held across a copy (`ARCHITECTURE.md`).
//!
//! Lock order: a space's lock, then `faults` or [`NUMBERS`], which are leaves. A fault enters the
//! list under the lock of its space, where the page was found missing, and a page is filled under
//! the same lock before its waiters are looked for: no wake-up is lost.
//!
//! Road not taken: the number of the provider in the region. It made each region larger, and every
//! search in the map of regions an instruction longer for each step.

mod file;
mod fill;
mod register;

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32};

use hayate_abi::{Errno, Result};
use hayate_space_map::Region;
use machine::paging::Edit;
use machine::sync::SpinLock;

use super::claims::Claims;
use super::outcome::{Cause, FaultResult, Touch};
use super::page::PAGE;
use super::region::{Mapping, RegionFlags};
use super::space::Space;
use crate::reclaim;
use crate::reclaim::growth::{self, Grow};
use crate::schedule::WaitQueue;
use crate::vfs::caller;
use crate::vfs::poll::Events;

pub use file::open;

/// Whether who lacks `CAP_SYS_PTRACE` may have the kernel wait, too
/// (`vm.unprivileged_userfaultfd`).
pub static UNPRIVILEGED: AtomicBool = AtomicBool::new(false);

/// Features that a program may ask for (`UFFD_FEATURE_*`).
mod feature {
    /// Content in memory can be registered.
    pub const MISSING_SHMEM: u64 = 1 << 5;
    /// A missing page is SIGBUS.
    pub const SIGBUS: u64 = 1 << 7;
    /// Messages name the thread.
    pub const THREAD_ID: u64 = 1 << 8;
    /// Messages have the address as it is, not that of its page.
    pub const EXACT_ADDRESS: u64 = 1 << 11;
    /// All that there are.
    pub const ALL: u64 = MISSING_SHMEM | SIGBUS | THREAD_ID | EXACT_ADDRESS;
    /// The two sides agreed on the features (`UFFD_FEATURE_INITIALIZED`).
    pub const AGREED: u64 = 1 << 31;
}

/// All providers: number N is at N - 1.
static NUMBERS: SpinLock<Vec<Option<Weak<Provider>>>> = SpinLock::new(Vec::new());

/// A thread that waits for a page.
struct Fault {
    id: u64,
    /// The address of the page.
    page: usize,
    /// The address for the message.
    shown: usize,
    write: bool,
    thread: u32,
    /// Whether its message was read.
    is_told: bool,
}

#[derive(Default)]
struct Faults {
    next: u64,
    /// In the order of their numbers.
    list: Vec<Fault>,
}

impl Faults {
    fn place(&self, id: u64) -> Option<usize> {
        self.list.binary_search_by_key(&id, |fault| fault.id).ok()
    }
}

/// What provides the missing pages of regions.
pub struct Provider {
    number: u32,
    /// The space that made it.
    space: Weak<Space>,
    /// The kernel does not wait (`UFFD_USER_MODE_ONLY`).
    user_only: bool,
    /// See [`feature`]; 0: nothing has been agreed.
    features: AtomicU32,
    is_closed: AtomicBool,
    faults: SpinLock<Faults>,
    /// Woken when there is a message.
    messages: WaitQueue,
    /// Woken when waits are over.
    ends: WaitQueue,
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(entry) = NUMBERS.lock().get_mut(self.number as usize - 1) {
            *entry = None;
        }
    }
}

/// The provider with a number, if it is there.
fn find(number: u32) -> Option<Arc<Provider>> {
    let at = (number as usize).checked_sub(1)?;
    let provider = NUMBERS.lock().get(at)?.as_ref()?.upgrade();
    provider.filter(|provider| !provider.is_closed.load(Acquire))
}

/// The provider of a page that is missing. `None`: the page is not missing, or it is nobody's.
#[cold]
pub(super) fn missing(
    region: &Region<Mapping>,
    claims: &Claims,
    page: usize,
    edit: &Edit<'_>,
) -> Option<Arc<Provider>> {
    if !region.value.flags.contains(RegionFlags::PROVIDED) || edit.page(page).is_some() {
        return None;
    }
    if let Some(backing) = &region.value.backing {
        let index = region.value.index(region.start, page);
        if index >= backing.page_cache.page_count() || backing.page_cache.peek(index).is_some() {
            return None;
        }
    }
    find(claims.at(page))
}

impl Provider {
    /// Makes one for a space. `user_only`: see [`Provider::user_only`]. `ENOMEM`.
    fn make(space: &Arc<Space>, user_only: bool) -> Result<Arc<Provider>> {
        let number = growth::relieved(|| {
            let mut numbers = NUMBERS.lock();
            let at = match numbers.iter().position(Option::is_none) {
                Some(at) => at,
                None => {
                    growth::push(&mut numbers, None)?;
                    numbers.len() - 1
                }
            };
            let number = u32::try_from(at + 1).map_err(|_| Errno::ENFILE)?;
            // Nobody finds it yet, and nobody else takes the number.
            numbers[at] = Some(Weak::new());
            Ok(number)
        })?;
        let provider = Arc::new(Provider {
            number,
            space: Arc::downgrade(space),
            user_only,
            features: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            faults: SpinLock::new(Faults::default()),
            messages: WaitQueue::new(),
            ends: WaitQueue::new(),
        });
        if let Some(entry) = NUMBERS.lock().get_mut(number as usize - 1) {
            *entry = Some(Arc::downgrade(&provider));
        }
        space.stay_out();
        Ok(provider)
    }

    fn has(&self, feature: u64) -> bool {
        u64::from(self.features.load(Relaxed)) & feature != 0
    }

    /// Waits until the page at `address` may be there: the fault is to be tried again. Otherwise
    /// the result of the fault. No lock may be held.
    pub(super) fn wait(
        &self,
        space: &Space,
        address: usize,
        touch: Touch,
        cause: Cause,
    ) -> core::result::Result<(), FaultResult> {
        if caller::must_end() {
            return Err(FaultResult::Interrupted);
        }
        let waits = match cause {
            Cause::Program => true,
            Cause::Kernel => !self.user_only,
            Cause::Debugger => false,
        };
        if !waits || self.has(feature::SIGBUS) {
            return Err(FaultResult::NoContent);
        }
        let id = loop {
            match self.enter(space, address, touch) {
                Ok(Some(id)) => break id,
                Ok(None) => return Ok(()),
                Err(_) if reclaim::relieve() => {}
                Err(_) => return Err(FaultResult::OutOfMemory),
            }
        };
        self.messages.wake_events(Events::READABLE.bits());
        let is_over = || self.faults.lock().place(id).is_none().then_some(());
        let ended = if cause == Cause::Program {
            self.ends.wait_interruptible(None, is_over).is_err()
        } else {
            self.ends.wait_through(None, || is_over().or(caller::must_end().then_some(())));
            caller::must_end()
        };
        let mut faults = self.faults.lock();
        if let Some(at) = faults.place(id) {
            faults.list.remove(at);
        }
        if ended { Err(FaultResult::Interrupted) } else { Ok(()) }
    }

    /// Enters a fault into the list; returns its number. `None`: its page is not missing any more.
    /// `ENOMEM`.
    fn enter(&self, space: &Space, address: usize, touch: Touch) -> Result<Option<u64>> {
        let page = address & !(PAGE - 1);
        let mut guard = space.table.lock();
        let (inner, edit) = guard.parts();
        let region = inner.map.find(address);
        let is_missing = inner.claims.at(page) == self.number
            && region.is_some_and(|region| missing(region, &inner.claims, page, &edit).is_some());
        if !is_missing {
            return Ok(None);
        }
        let mut faults = self.faults.lock();
        faults.list.make_room(1)?;
        let id = faults.next;
        faults.next += 1;
        faults.list.push(Fault {
            id,
            page,
            shown: if self.has(feature::EXACT_ADDRESS) { address } else { page },
            write: touch == Touch::Write,
            thread: if self.has(feature::THREAD_ID) { caller::thread() } else { 0 },
            is_told: false,
        });
        Ok(Some(id))
    }

    /// Ends the waits for pages in `range`.
    fn wake(&self, range: &Range<usize>) {
        let mut faults = self.faults.lock();
        let before = faults.list.len();
        faults.list.retain(|fault| !range.contains(&fault.page));
        let is_any = faults.list.len() != before;
        drop(faults);
        if is_any {
            self.ends.wake_all();
        }
    }

    /// The descriptor is closed: its regions are plain memory again, and all waits are over.
    fn close(&self) {
        self.is_closed.store(true, Release);
        if let Some(space) = self.space.upgrade() {
            let mut guard = space.table.lock();
            let (inner, ..) = guard.parts();
            inner.claims.end(self.number);
            let claims = &inner.claims;
            inner.map.change_all(|range, mapping| {
                let mut is_any = false;
                if mapping.flags.contains(RegionFlags::PROVIDED) {
                    claims.each(range, |_| is_any = true);
                }
                mapping.flags.set(RegionFlags::PROVIDED, is_any);
            });
        }
        self.wake(&(0..usize::MAX));
    }
}
