//! Large pages: 2 MiB mapped by one entry of a table of the second level.
//!
//! A large page is counted once for each *entry* that maps it, in the `tag` of its first frame's
//! info; all these entries together hold one reference to each of its 512 frames. So sharing a
//! large page at fork is one addition. Breaking up a large page that is not shared hands its
//! references to the small entries without touching a count. Only when a shared large page is
//! broken up does each frame get a further reference.
//!
//! Road not taken: one count for all references to any part (Linux's compound pages). Unmapping a
//! small part must then find the head frame, on the path of each page.

use super::run::Run;
use crate::frames::{Frame, FrameInfo, info};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Number of small pages in a large one.
pub(super) const FRAMES: u32 = 512;

/// How many large pages there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns how many large pages programs have; a shared one counts once.
pub fn count() -> usize {
    COUNT.load(Relaxed)
}

/// Returns the infos of a large page's frames; the first frame's info has the count.
#[inline]
fn infos(first: u32) -> impl Iterator<Item = &'static FrameInfo> {
    // SAFETY: these are the 512 frames of a large page, named by its first frame's number; the
    // number comes from an entry that this module made or from a block of the allocator.
    (first..first + FRAMES).map(|number| unsafe { info(number) })
}

/// The info of a large page's first frame.
#[inline]
pub(super) fn info_of(first: u32) -> &'static FrameInfo {
    // SAFETY: as for `infos`.
    unsafe { info(first) }
}

/// Sets the count to one, for the first entry that maps the page.
pub(super) fn begin(first: u32) {
    info_of(first).set_tag(1);
    COUNT.fetch_add(1, Relaxed);
}

/// Counts another entry that maps the page. The caller holds an entry that maps it.
#[inline]
pub(super) fn add(first: u32) {
    info_of(first).add_to_tag();
}

/// Returns how many entries map the page.
#[inline]
pub(super) fn entries(first: u32) -> u32 {
    info_of(first).tag()
}

/// Whether one entry maps the page, and nothing else refers to any of its frames.
pub(super) fn is_sole_owner(first: u32) -> bool {
    entries(first) == 1 && infos(first).all(|info| info.refs() == 1)
}

/// Gives up one entry's part in the page, and with the last entry the frames.
///
/// # Safety
/// The entry must be gone, from the TLBs as well.
pub(super) unsafe fn release(first: u32) {
    if info_of(first).take_from_tag() == 1 {
        COUNT.fetch_sub(1, Relaxed);
        let mut run = Run::default();
        for number in first..first + FRAMES {
            // SAFETY: the reference that the large entries held together.
            run.give(unsafe { Frame::from_number(number) });
        }
    }
}

/// Turns one entry's part in a large page into one reference to each of its frames.
pub(super) fn break_up(first: u32) {
    let head = info_of(first);
    if head.tag() == 1 {
        // No other entry maps the page, and only a space that maps it can share it.
        head.take_from_tag();
        COUNT.fetch_sub(1, Relaxed);
        return;
    }
    infos(first).for_each(|info| {
        info.add_ref();
    });
    if head.take_from_tag() == 1 {
        // The other entries were removed meanwhile, and the references that they held together are
        // left over. This is not the last reference: ours was just added.
        COUNT.fetch_sub(1, Relaxed);
        infos(first).for_each(|info| {
            info.drop_ref(AcqRel);
        });
    }
}
