//! When a program gets large pages.
//!
//! Clearing 2 MiB costs as much as some hundred page faults, and most programs are small: a large
//! page at the first touch (Linux' `always`) would make every short program pay for memory that it
//! never uses. So a range of 2 MiB gets its large page in one of these cases:
//!
//! * when [`EARNED`] of its 64 groups of eight pages have been touched, the small pages are copied
//!   into a large one. That costs about what the faults until then did, and saves the faults on the
//!   rest. Whatever the program does next, the sum is at most about twice the best possible cost
//!   (the argument of the ski-rental problem);
//! * at the first touch, if the 2 MiB before it are a large page of the same region: the program
//!   touches a large piece of memory in order, and at most the last large page is unnecessary;
//! * at the first touch, if the program asked for it (`MADV_HUGEPAGE`).
//!
//! In all cases the whole 2 MiB must lie inside one region and, unless the program asked, more than
//! a quarter of memory must be free. The check costs the common fault four instructions: whether
//! the table is empty or the entry one of every sixteen. A range whose large page was broken up (by
//! unmapping, protecting or giving up a part, or by copy-on-write) stays small, so that it does not
//! change back and forth. Programs in a control group whose memory is counted have no large pages.
//! Stacks, pages of files and memory whose missing pages a program provides stay small.
//!
//! `transparent_hugepage=` on the kernel's command line chooses as on Linux: `always` (this policy,
//! the default), `madvise` (only where the program asked), `never`.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use hayate_space_map::Region;
use machine::frames::{self, Block};
use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::{Edit, Slot};

use super::page::PAGE;
use super::region::{Mapping, RegionFlags};

/// How many of the 64 groups of eight pages must have been touched: a quarter of the range.
const EARNED: u32 = 16;

/// Which ranges get large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Those that meet the conditions of this module.
    Always = 1,
    /// Those for which the program asked.
    Asked,
    /// None.
    Never,
}

/// The mode set on the command line.
pub fn mode() -> Mode {
    /// 0: the command line has not been read yet.
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

/// Puts a zeroed large page around `page`, where the program asked for large pages. Returns whether
/// it did.
#[cold]
pub(super) fn asked(region: &Region<Mapping>, page: usize, edit: &mut Edit<'_>) -> bool {
    mode() != Mode::Never
        && edit.owner() == 0
        && around(region, page).is_some()
        && fill(region, page, edit)
}

/// Whether [`earned`] should be checked at `slot`, which was empty until now.
#[inline]
pub(super) fn is_time(slot: &Slot<'_, '_>) -> bool {
    slot.is_milestone() || slot.is_first()
}

/// The kind of large page that a fault on an empty entry may lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Earned {
    /// A new large page, if the range before it is one.
    ToGoOn,
    /// A large page in place of the small ones.
    ToCollapse,
}

/// Which large page, if any, is due around `page`, whose entry is `slot`. The region has no
/// backing, and the program wants to write.
#[cold]
pub(super) fn earned(region: &Region<Mapping>, page: usize, slot: &Slot<'_, '_>) -> Option<Earned> {
    // A large page would fill in small ones that a program is to provide.
    let small = RegionFlags::NO_LARGE | RegionFlags::GROWS_DOWN | RegionFlags::PROVIDED;
    if slot.is_large() || slot.owner() != 0 || region.value.flags.intersects(small) {
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

/// Puts the large page that is due around `page`. Returns whether it did.
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

/// Puts in a zeroed large page. Returns false if small pages must do: a page is mapped there
/// already, or no 2 MiB of contiguous memory are free.
fn fill(region: &Region<Mapping>, page: usize, edit: &mut Edit<'_>) -> bool {
    // Allocate the block first: making the large slot may free the table that small pages would
    // need.
    let Some(block) = Block::allocate((LARGE_PAGE_SIZE / PAGE) as u32) else { return false };
    let Some(slot) = edit.large_slot(page) else { return false };
    block.zero();
    slot.fill_large(block, region.value.protection.access()).is_ok()
}
