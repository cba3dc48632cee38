//! When a program gets large pages.
//!
//! Clearing 2 MiB costs as much as some hundred page faults, and most programs are small: a page at
//! the first touch (Linux' `always`) would make every short program pay for memory that it never
//! uses. So a range of 2 MiB earns its large page:
//!
//! * when [`EARNED`] of its 64 groups of eight pages have been touched, the small pages are copied
//!   into a large one. That costs about what the faults until then did, and saves the faults on the
//!   rest: whatever the program does next, the sum is at most about twice the best that could have
//!   been done (the argument of renting or buying skis);
//! * at the first touch, if the 2 MiB before it are a large page of the same region: the program
//!   goes through a large piece of memory in order, and at most the last large page is too much;
//! * at the first touch, if the program said so (`MADV_HUGEPAGE`).
//!
//! Always only where the whole 2 MiB lie inside one region, and, unless the program asked, while
//! more than a quarter of memory is free. Asking costs the common fault four instructions: a look
//! whether the table is empty or the place one of every sixteen. A range whose large page was broken
//! up (by unmapping, protecting or giving up a part, or by a copy on write) stays small, so that
//! nothing goes back and forth. Stacks stay small. Pages of files are small.
//!
//! `transparent_hugepage=` on the kernel's command line chooses as on Linux: `always` (this policy,
//! the default), `madvise` (only where the program said so), `never`.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use hayate_space_map::Region;
use machine::frames::{self, Block};
use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::{Edit, Slot};

use super::PAGE;
use super::region::{Mapping, RegionFlags};

/// How many groups of eight pages, of 64, must have been touched: a quarter of the range.
const EARNED: u32 = 16;

/// Who gets large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Whoever earns them.
    Always = 1,
    /// Who asks.
    Asked,
    /// Nobody.
    Never,
}

/// What the command line says.
pub fn mode() -> Mode {
    /// 0: not looked at yet.
    static MODE: AtomicU8 = AtomicU8::new(0);
    match MODE.load(Relaxed) {
        1 => Mode::Always,
        2 => Mode::Asked,
        3 => Mode::Never,
        _ => {
            let mode = match machine::boot::option("transparent_hugepage") {
                Some("madvise") => Mode::Asked,
                Some("never") => Mode::Never,
                _ => Mode::Always,
            };
            MODE.store(mode as u8, Relaxed);
            mode
        }
    }
}

/// The 2 MiB around `page`, if they lie inside the region.
fn around(region: &Region<Mapping>, page: usize) -> Option<usize> {
    let start = page & !(LARGE_PAGE_SIZE - 1);
    (region.start <= start && start + LARGE_PAGE_SIZE <= region.end).then_some(start)
}

/// Puts a large page of zeroes around `page`, where the program asked for large ones; whether it did.
#[cold]
pub(super) fn asked(region: &Region<Mapping>, page: usize, edit: &mut Edit<'_>) -> bool {
    mode() != Mode::Never && around(region, page).is_some() && fill(region, page, edit)
}

/// Whether `slot`, empty until now, is one at which [`earned`] is to be asked.
#[inline]
pub(super) fn is_time(slot: &Slot<'_, '_>) -> bool {
    slot.is_milestone() || slot.is_first()
}

/// What a place without a page may have earned its neighbourhood.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Earned {
    /// A large page, if there is one right before.
    ToGoOn,
    /// A large page in the place of the small ones.
    ToCollapse,
}

/// What may have been earned around `page`, whose place `slot` is. The region has no backing, and
/// the program wants to write.
#[cold]
pub(super) fn earned(region: &Region<Mapping>, page: usize, slot: &Slot<'_, '_>) -> Option<Earned> {
    let small = RegionFlags::NO_LARGE | RegionFlags::GROWS_DOWN;
    if slot.is_large() || region.value.flags.intersects(small) {
        return None;
    }
    let start = around(region, page)?;
    if slot.is_first() {
        let before = start.checked_sub(LARGE_PAGE_SIZE).filter(|&before| before >= region.start);
        before.filter(|_| may_spend()).map(|_| Earned::ToGoOn)
    } else {
        (slot.occupied_groups() >= EARNED && may_spend()).then_some(Earned::ToCollapse)
    }
}

/// Puts the large page around `page` that was earned; whether it did.
#[cold]
pub(super) fn spend(
    earned: Earned,
    region: &Region<Mapping>,
    page: usize,
    edit: &mut Edit<'_>,
) -> bool {
    match earned {
        Earned::ToGoOn => {
            let before = (page & !(LARGE_PAGE_SIZE - 1)).checked_sub(LARGE_PAGE_SIZE);
            let goes_on =
                before.and_then(|before| edit.page(before)).is_some_and(|page| page.large);
            goes_on && fill(region, page, edit)
        }
        Earned::ToCollapse => edit.collapse(page, region.value.protection.access()),
    }
}

fn may_spend() -> bool {
    mode() == Mode::Always && frames::is_plentiful()
}

/// Puts a large page of zeroes in; false if small pages must do: something is mapped there already,
/// or no 2 MiB in a row are free.
fn fill(region: &Region<Mapping>, page: usize, edit: &mut Edit<'_>) -> bool {
    // The block first: the place for it may take the table away that small pages would go to.
    let Some(block) = Block::allocate((LARGE_PAGE_SIZE / PAGE) as u32) else { return false };
    let Some(slot) = edit.large_slot(page) else { return false };
    block.zero();
    slot.fill_large(block, region.value.protection.access()).is_ok()
}
