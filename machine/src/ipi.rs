//! Interprocessor interrupts: reschedule, TLB shootdown, stop.
//!
//! **Shootdown** works by mailboxes: the initiator writes what to flush into its own request, sets
//! its bit in every target's inbox, interrupts the targets, and waits until the request's mask of
//! CPUs that have not answered is empty, answering its own inbox meanwhile. A target answers from
//! the interrupt (in user mode or idle) or from [`mailbox::poll`] (spinning in the kernel with
//! interrupts off). `hayate_protocols::shootdown` defines the words, and is model-checked.
//!
//! This module does not know what a target does about the space that it has loaded: page tables
//! register it ([`register`]).

use core::sync::atomic::{AtomicBool, Ordering, fence};

use hayate_protocols::shootdown::FlushRequest;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;

use crate::cpu::{self, PerCpu};
use crate::layout::PAGE_SIZE;
use crate::mailbox::{self, INBOX};
use crate::sync::{Once, relax};
use crate::{apic, attention, per_cpu};

/// The TLB entries that a shootdown removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlbFlush {
    /// Pages `start..end` (byte addresses, page-aligned) of the current space.
    Range {
        /// First address.
        start: u64,
        /// One past the last address.
        end: u64,
    },
    /// Everything, including global (kernel) pages.
    Global,
    /// Leaves the space whose root is at this address: a CPU that has it loaded loads the kernel's
    /// root.
    Leave {
        /// The root's physical address.
        root: u64,
    },
    /// Everything of the user half; the mode of the loaded space has changed.
    Mode,
}

per_cpu! {
    /// The requests of this CPU to others.
    static REQUEST: PerCpu<FlushRequest> = PerCpu::new(FlushRequest::new());
}

/// The acts of this processor on the space that it has loaded.
pub(crate) struct SpaceActions {
    /// Leaves the space whose root is at this physical address, if it is loaded.
    pub leave: fn(u64),
    /// Prepares for the mode of the space that is loaded, which has changed.
    pub follow_mode: fn(),
}

static SPACE_ACTIONS: Once<SpaceActions> = Once::new();

/// Registers what a processor does about its space. Called once, before there are spaces.
pub(crate) fn register(actions: SpaceActions) {
    SPACE_ACTIONS.call_once(|| actions);
}

/// Makes processors that wait for a lock answer the requests of others. Called once, at boot.
pub(crate) fn init() {
    mailbox::register(answer);
}

/// Set before other CPUs are stopped for good by an NMI; the NMI stub reads it.
// SAFETY: the name is the stub's.
#[unsafe(export_name = "hayate_stopping")]
static STOPPING: AtomicBool = AtomicBool::new(false);

/// Above this many pages everything is flushed instead (as Linux' tlb_single_page_flush_ceiling).
const MOST_PAGES: u64 = 33;
/// Values of a request that stand in place of an address.
const ALL: u64 = 1;
const GLOBAL: u64 = 3;
const LEAVE: u64 = 5;
const MODE: u64 = 7;
const LOOK: u64 = 9;

fn flush(start: u64, end: u64) {
    match start {
        ALL => tlb::flush_all(),
        GLOBAL => {
            use x86_64::registers::control::{Cr4, Cr4Flags};
            // SAFETY: turning global pages off and on again flushes them and changes nothing else.
            unsafe {
                Cr4::update(|f| f.remove(Cr4Flags::PAGE_GLOBAL));
                Cr4::update(|f| f.insert(Cr4Flags::PAGE_GLOBAL));
            }
        }
        LEAVE => {
            if let Some(actions) = SPACE_ACTIONS.get() {
                (actions.leave)(end);
            }
        }
        MODE => {
            tlb::flush_all();
            if let Some(actions) = SPACE_ACTIONS.get() {
                (actions.follow_mode)();
            }
        }
        LOOK => attention::raise(attention::RESCHEDULE),
        _ => (start..end).step_by(4096).for_each(|page| tlb::flush(VirtAddr::new_truncate(page))),
    }
}

/// Removes `what` from the TLBs of the CPUs in mask `cpus` and returns when all of them have done
/// so. This CPU is flushed as well if it is in the mask. May be called with spin locks held.
pub(crate) fn shootdown(cpus: u64, what: TlbFlush) {
    let (start, end) = match what {
        TlbFlush::Range { start, end } if end.saturating_sub(start) / 4096 <= MOST_PAGES => {
            (start & !0xfff, end)
        }
        TlbFlush::Range { .. } => (ALL, 0),
        TlbFlush::Global => (GLOBAL, 0),
        TlbFlush::Leave { root } => (LEAVE, root),
        TlbFlush::Mode => (MODE, 0),
    };
    request(cpus, start, end);
}

/// Lets the CPUs in mask `cpus` do what a request with these words asks, and returns when all have.
fn request(cpus: u64, start: u64, end: u64) {
    let me = 1u64 << cpu::id();
    let others = cpus & !me & cpu::online_mask();
    if others != 0 {
        let request = REQUEST.here();
        request.fill(start, end, others);
        for target in bits(others) {
            if let Some(inbox) = INBOX.of(target) {
                inbox.put(me);
                apic::send(apic::id_of(target), u32::from(apic::SHOOTDOWN_VECTOR));
            } else {
                request.answer(1 << target);
            }
        }
    }
    if cpus & me != 0 {
        flush(start, end);
    }
    if others != 0 {
        while !REQUEST.here().is_answered() {
            relax();
        }
    }
}

/// Interrupts the other processors in `mask` and returns when all have answered: each has then
/// executed a full barrier between its earlier and its later accesses.
pub fn synchronise(mask: u64) {
    fence(Ordering::SeqCst);
    // This asks for the flush of a page that is never mapped: only the request matters.
    shootdown(mask & !(1 << cpu::id()), TlbFlush::Range { start: 0, end: PAGE_SIZE as u64 });
    fence(Ordering::SeqCst);
}

/// Makes the other processors look at what is wanted of their executions ([`attention`]) before
/// they go on in a program. When this returns, none of them is in a program without having looked.
pub fn look_again() {
    fence(Ordering::SeqCst);
    request(cpu::online_mask() & !(1 << cpu::id()), LOOK, 0);
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            bit
        })
    })
}

/// Does what the CPUs in the mailbox request.
fn answer() {
    let me = 1u64 << cpu::id();
    for initiator in bits(INBOX.here().take()) {
        if let Some(request) = REQUEST.of(initiator) {
            let (start, end) = request.range();
            flush(start, end);
            request.answer(me);
        }
    }
}

/// Interrupts CPU `cpu` so that it checks its attention word and run queue.
pub fn reschedule(cpu: usize) {
    if cpu < cpu::count() {
        apic::send(apic::id_of(cpu), u32::from(apic::RESCHEDULE_VECTOR));
    }
}

/// Stops all other CPUs for good, by NMI: they may be spinning with interrupts off.
pub(crate) fn stop_others() {
    if !STOPPING.swap(true, Ordering::SeqCst) && cpu::count() > 1 {
        // All excluding self, delivery mode NMI.
        apic::send(0, 3 << 18 | 4 << 8 | 1 << 14);
    }
}
