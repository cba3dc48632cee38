//! To whom a frame is charged: a number that the kernel chooses, below [`END`], in the tag of the
//! frame's info. The kernel is told of it when the last reference is dropped, whoever drops it.
//!
//! 0 is nobody. A bit beside the count of references says that the tag is an owner's number, so a
//! frame of nobody is freed after the one comparison that it needs anyway, and the end of another
//! reference takes one instruction more. A large page is charged to nobody.
//!
//! Roads not taken: to look at the tag beside the count when a frame is freed (two instructions for
//! each frame of everybody), and both as one word (a reference that is added or taken then needs
//! three instructions where the half word needs one).

use super::allocator;
use super::info::{FrameInfo, info};
use crate::sync::Once;
use core::sync::atomic::Ordering::AcqRel;

/// One past the largest number. The marks of the allocator are beyond it.
pub const END: u32 = 1 << 29;

/// What the kernel does about charges. Called with any lock held, so it takes none.
#[derive(Clone, Copy)]
pub struct Charging {
    /// Charges a page table to an owner; returns the number that its frame is to have. `None`: a
    /// limit does not allow it.
    pub table: fn(u32) -> Option<u32>,
    /// A frame with this number is free.
    pub gone: fn(u32),
}

static CHARGING: Once<Charging> = Once::new();

/// Registers what the kernel does about charges; later calls change nothing.
pub fn register(charging: Charging) {
    CHARGING.call_once(|| charging);
}

/// Charges a page table, which nobody else knows, to an owner. False: a limit does not allow it.
#[cold]
#[inline(never)]
pub(crate) fn take_table(info: &FrameInfo, owner: u32) -> bool {
    let Some(charging) = CHARGING.get() else { return true };
    match (charging.table)(owner) {
        Some(number) if number < END => info.charge_to(number),
        Some(_) => {}
        None => return false,
    }
    true
}

/// Gives up a reference to a frame that is charged, and with the last one the frame.
#[cold]
#[inline(never)]
pub(super) fn give(number: u32) {
    // SAFETY: the caller has a reference to the frame.
    if release(unsafe { info(number) }) {
        allocator::give(number);
    }
}

/// Gives up a reference to a frame that is charged; returns whether it was the last one.
#[cold]
#[inline(never)]
pub(crate) fn release(info: &FrameInfo) -> bool {
    if info.drop_ref(AcqRel) != 1 {
        return false;
    }
    tell(info);
    info.set_refs(0);
    true
}

/// The caller has the last reference to a frame: it belongs to nobody any more.
#[inline]
pub(crate) fn gone(info: &FrameInfo) {
    if info.is_charged() {
        tell(info);
    }
}

/// Nobody else uses the frame.
#[cold]
#[inline(never)]
fn tell(info: &FrameInfo) {
    let owner = info.tag();
    info.charge_to(0);
    if let Some(charging) = CHARGING.get() {
        (charging.gone)(owner);
    }
}
