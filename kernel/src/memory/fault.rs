//! Page faults.
//!
//! The common cases run through [`Space::handle`] once, under the space's lock: look up the region,
//! check the access right, walk the page table to the entry, and
//!
//! * empty entry, no backing: enter a zeroed frame (or the zero page, for reading), sometimes a
//!   large page ([`large`]);
//! * empty entry, a page that is in the page cache: enter that page, and for reading up to
//!   [`AROUND`] neighbours that are in memory too; for writing to a private mapping, a copy;
//! * a private page that may be shared: use the page itself if no other reference is left, else
//!   copy;
//! * a missing page that a program provides: the thread waits ([`userfault`]);
//! * a page that is present with the access right: another processor was faster.
//!
//! Work that may sleep or fail (reading a page, reclaiming memory) is done with the lock released,
//! and the fault starts again from the look-up, because the region may have changed by then.

use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use hayate_abi::Errno;
use hayate_cgroup_rules::memory::Use;
use hayate_space_map::Region;
use machine::cpu::{MAX_CPUS, PerCpu};
use machine::frames::Frame;
use machine::paging::{Access, Edit, PageKind, Slot};
use machine::per_cpu;
use machine::trap::{FaultCode, FaultOutcome, PageFault};

use super::claims::Claims;
use super::large;
use super::layout::STACK_GUARD;
use super::limits::may_lock;
use super::outcome::{Cause, FaultResult, Touch};
use super::page::{LOWEST, PAGE, USER_END};
use super::region::{Backing, Mapping, Protection, RegionFlags};
use super::space::{self, Inner, Space};
use super::userfault::{self, Provider};
use crate::page_cache::cache::PageCache;
use crate::page_cache::load::Reader;
use crate::page_cache::read_ahead;
use crate::reclaim;
use crate::reclaim::charge;

/// The most pages of a file that one read fault maps: an aligned window.
const AROUND: usize = 16;

/// Handles a fault of this processor's program, for the kernel's page-fault handler.
#[inline]
pub fn handle_fault(address: usize, touch: Touch, cause: impl FnOnce() -> Cause) -> FaultResult {
    match space::try_current() {
        Some(space) => space.handle_for(address, touch, cause),
        None => FaultResult::NotMapped,
    }
}

/// The result if no more memory can be given back.
#[cold]
fn lack() -> FaultResult {
    if charge::limit::was_hopeless() { FaultResult::Limited } else { FaultResult::OutOfMemory }
}

/// The result of one attempt under the lock.
enum Step {
    Finished(FaultResult),
    /// A page of the file must be read first.
    Page(Arc<PageCache>, u64, Reader),
    /// Memory must be reclaimed first.
    Memory,
    /// Changed pages must be written first, because there are too many.
    WriteBack(Arc<PageCache>),
    /// The source of the page must make it ready to be changed.
    Prepare(Arc<PageCache>, u64),
    /// A program must provide the page.
    Provide(Arc<Provider>),
}

impl Space {
    /// Resolves a fault at `address`, of the kernel's work for the current thread.
    #[inline]
    pub fn handle(&self, address: usize, touch: Touch) -> FaultResult {
        self.handle_for(address, touch, || Cause::Kernel)
    }

    /// Resolves a fault at `address`. Most faults are over before `cause` is asked for.
    #[inline]
    pub fn handle_for(
        &self,
        address: usize,
        touch: Touch,
        cause: impl FnOnce() -> Cause,
    ) -> FaultResult {
        match self.try_fault(address, touch, true) {
            Step::Finished(result) => result,
            step => self.handle_slowly(address, touch, cause(), step),
        }
    }

    #[cold]
    fn handle_slowly(
        &self,
        address: usize,
        touch: Touch,
        cause: Cause,
        mut step: Step,
    ) -> FaultResult {
        // Keeps the page that was read from being reclaimed before it is mapped.
        let mut _held;
        // A fault counts once, when it is done. It counts as major if a page was read for it.
        let mut minor = true;
        loop {
            match step {
                Step::Finished(result) => return result,
                Step::Page(page_cache, index, reader) => {
                    if !page_cache.is_memory() {
                        if minor {
                            self.count_major();
                            minor = false;
                        }
                        // Read the pages that follow too, since they are likely to be used. If the
                        // page before was used, ask for the next window as well (sequential
                        // reading).
                        let around = AROUND as u64;
                        if index > 0 && page_cache.peek(index - 1).is_some() {
                            read_ahead::ask_for(reader, &page_cache, index + around, around);
                        }
                        page_cache.read_for(reader, index, around);
                    }
                    _held = match page_cache.page(index) {
                        Ok(frame) => Some(frame),
                        Err(Errno::ENOMEM) if reclaim::relieve() => None,
                        Err(Errno::ENOMEM) => return lack(),
                        Err(_) => return FaultResult::NoContent,
                    };
                }
                Step::WriteBack(page_cache) => page_cache.balance(),
                Step::Prepare(page_cache, index) => match page_cache.prepare(index) {
                    Ok(()) => {}
                    Err(Errno::ENOMEM) if reclaim::relieve() => {}
                    Err(Errno::ENOMEM) => return lack(),
                    Err(_) => return FaultResult::NoContent,
                },
                Step::Memory => {
                    if !reclaim::relieve() {
                        return lack();
                    }
                }
                Step::Provide(provider) => {
                    if let Err(result) = provider.wait(self, address, touch, cause) {
                        return result;
                    }
                }
            }
            step = self.try_fault(address, touch, minor);
        }
    }

    #[inline]
    fn try_fault(&self, address: usize, touch: Touch, minor: bool) -> Step {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        let Some(region) = inner.map.find(address) else {
            if !self.grow_stack(inner, address) {
                return Step::Finished(FaultResult::NotMapped);
            }
            drop(edit);
            drop(guard);
            return self.try_fault(address, touch, minor);
        };
        let needed = match touch {
            Touch::Read => Protection::all(),
            Touch::Write => Protection::WRITE,
            Touch::Execute => Protection::EXECUTE,
        };
        if !region.value.protection.intersects(needed) {
            return Step::Finished(FaultResult::NotAllowed);
        }
        let step = resolve(region, &inner.claims, address & !(PAGE - 1), touch, &mut edit);
        if minor && matches!(step, Step::Finished(FaultResult::Done)) {
            self.count_minor();
        }
        step
    }

    /// Lets the stack above `address` grow down to it, if there is a stack and it may grow.
    #[cold]
    fn grow_stack(&self, inner: &mut Inner, address: usize) -> bool {
        if address >= USER_END {
            return false;
        }
        let page = address & !(PAGE - 1);
        let Some(stack) = inner.map.find_from(address) else { return false };
        if !stack.value.flags.contains(RegionFlags::GROWS_DOWN) || page < LOWEST {
            return false;
        }
        let (start, size) = (stack.start, stack.end - page);
        let grown = start - page;
        // Keep the guard gap to the mapping below, unless that cannot be accessed or is a stack
        // too.
        if let Some(below) = inner.map.find_below(page + 1)
            && !below.value.protection.is_empty()
            && !below.value.flags.contains(RegionFlags::GROWS_DOWN)
            && page - below.end < STACK_GUARD
        {
            return false;
        }
        let limits = self.limits();
        let locked = stack.value.flags.contains(RegionFlags::LOCKED);
        if size > limits.stack
            || inner.map.size() + grown > limits.address_space
            || (locked && !may_lock(grown, inner.locked, limits.locked))
        {
            return false;
        }
        if stack.value.flags.contains(RegionFlags::PROVIDED)
            && inner.claims.enter(page..start, inner.claims.at(start)).is_err()
        {
            return false;
        }
        if locked {
            inner.locked += grown;
        }
        inner.map.grow_down(start, page)
    }
}

/// A frame for a page of a space that charges its pages to `owner`. `None`: memory is exhausted, or
/// a limit does not allow it.
#[inline(always)]
pub(super) fn fresh(owner: u32) -> Option<Frame> {
    charge::frame(owner, Use::Anonymous, Frame::allocate()?)
}

/// Like [`fresh`], full of zeroes.
#[inline(always)]
pub fn zeroed(owner: u32) -> Option<Frame> {
    charge::frame(owner, Use::Anonymous, Frame::allocate_zeroed()?)
}

/// Enters the page, or says what is needed for it. The access has been checked.
#[inline]
fn resolve(
    region: &Region<Mapping>,
    claims: &Claims,
    page: usize,
    touch: Touch,
    edit: &mut Edit<'_>,
) -> Step {
    const DONE: Step = Step::Finished(FaultResult::Done);
    let mapping = &region.value;
    let access = mapping.protection.access();
    if mapping.flags.intersects(RegionFlags::LARGE.union(RegionFlags::PROVIDED))
        && let Some(step) = special(region, claims, page, edit)
    {
        return step;
    }
    let Some(mut slot) = edit.slot(page) else { return Step::Memory };
    let write = touch == Touch::Write;
    if let Some(there) = slot.page() {
        return present(slot, there, region, page, write);
    }
    let Some(backing) = &mapping.backing else {
        if !write {
            slot.fill_zero(access.execute);
            return DONE;
        }
        if large::is_time(&slot)
            && let Some(earned) = large::earned(region, page, &slot)
        {
            if large::spend(earned, region, page, edit) {
                return DONE;
            }
            let Some(again) = edit.slot(page) else { return Step::Memory };
            slot = again;
        }
        let Some(frame) = zeroed(slot.owner()) else { return Step::Memory };
        // The slot is empty, since the lock is held.
        let _ = slot.fill(frame, PageKind::Private, access);
        return DONE;
    };
    let index = mapping.index(region.start, page);
    if index >= backing.page_cache.page_count() {
        return Step::Finished(FaultResult::NoContent);
    }
    let Some(frame) = backing.page_cache.peek(index) else {
        let reader = if access.execute { Reader::Text } else { Reader::Other };
        return Step::Page(backing.page_cache.clone(), index, reader);
    };
    if mapping.is_shared() {
        let access = match shared_access(backing, index, &frame, access, write) {
            Ok(access) => access,
            Err(step) => return step,
        };
        let _ = slot.fill(frame, PageKind::Shared, access);
    } else if write {
        let Some(copy) = fresh(slot.owner()) else { return Step::Memory };
        copy.copy_from(&frame);
        let _ = slot.fill(copy, PageKind::Private, access);
    } else {
        let access = Access { write: false, ..access };
        let _ = slot.fill(frame, PageKind::File, access);
        if access.execute {
            count_text(backing);
        }
        fill_around(&mut slot, region, page, index, access);
    }
    DONE
}

/// The step of a fault where the program asked for large pages, or a program provides missing ones;
/// `None`: as everywhere.
#[cold]
fn special(
    region: &Region<Mapping>,
    claims: &Claims,
    page: usize,
    edit: &mut Edit<'_>,
) -> Option<Step> {
    let mapping = &region.value;
    if mapping.flags.contains(RegionFlags::PROVIDED) {
        return userfault::missing(region, claims, page, edit).map(Step::Provide);
    }
    let is_large = mapping.backing.is_none() && large::asked(region, page, edit);
    is_large.then_some(Step::Finished(FaultResult::Done))
}

/// How a page of a shared mapping is entered. A page that is written back is entered for writing
/// only at a fault that writes, which notes that it is dirty.
fn shared_access(
    backing: &Backing,
    index: u64,
    frame: &Frame,
    access: Access,
    write: bool,
) -> Result<Access, Step> {
    let page_cache = &backing.page_cache;
    if !page_cache.is_written_back() {
        return Ok(access);
    }
    if !write {
        return Ok(Access { write: false, ..access });
    }
    if page_cache.is_over_bound() {
        return Err(Step::WriteBack(page_cache.clone()));
    }
    // A page that was prepared is noted as changed. When it has been written before the program
    // comes here again, it is prepared once more; from now on a write takes it out of the tables
    // first, for which it needs the lock of this space.
    if page_cache.prepares() {
        let is_noted = page_cache.is_noted(index, frame);
        return if is_noted { Ok(access) } else { Err(Step::Prepare(page_cache.clone(), index)) };
    }
    // If the page was replaced meanwhile, the program faults again.
    if page_cache.note_dirty(index, frame) {
        Ok(access)
    } else {
        Err(Step::Finished(FaultResult::Done))
    }
}

/// Faults on text since boot, counted by the processor that had them: of programs, of libraries.
struct TextFaults([AtomicU64; 2]);

per_cpu! {
    static TEXT_FAULTS: PerCpu<TextFaults> = PerCpu::new(TextFaults([const { AtomicU64::new(0) }; 2]));
}

/// Counts a fault on text. The counts show that text on non-volatile memory has none.
#[inline]
fn count_text(backing: &Backing) {
    let count = &TEXT_FAULTS.here().0[usize::from(!backing.is_program())];
    // Only this processor writes the count, and no interrupt comes in between.
    count.store(count.load(Relaxed) + 1, Relaxed);
}

/// The numbers of page faults since boot on the text of programs and on that of libraries,
/// including the dynamic linker. Pages that were in memory and pages that had to be read both
/// count.
pub fn text_faults() -> (u64, u64) {
    let sum = |which: usize| {
        let each = (0..MAX_CPUS).filter_map(|cpu| TEXT_FAULTS.of(cpu));
        each.filter_map(|counts| counts.0.get(which)).map(|count| count.load(Relaxed)).sum()
    };
    (sum(0), sum(1))
}

/// Maps the pages around `page` that are in the page cache, within the region, the page table and
/// an aligned window.
fn fill_around(
    slot: &mut Slot<'_, '_>,
    region: &Region<Mapping>,
    page: usize,
    index: u64,
    access: Access,
) {
    let Some(backing) = &region.value.backing else { return };
    let window = AROUND * PAGE;
    let low = (page & !(window - 1)).max(region.start);
    let high = (page & !(window - 1)).saturating_add(window).min(region.end);
    let first = index - ((page - low) / PAGE) as u64;
    let end = (first + ((high - low) / PAGE) as u64).min(backing.page_cache.page_count());
    if region.value.flags.contains(RegionFlags::RANDOM) || end <= first {
        return;
    }
    backing.page_cache.peek_range(first, end - first, |other, frame| {
        if other != index
            && let Some(place) = slot.neighbour(other as isize - index as isize)
            && place.page().is_none()
        {
            let _ = place.fill(frame.clone(), PageKind::File, access);
        }
    });
}

/// Handles a fault on a page that is present.
fn present(
    slot: Slot<'_, '_>,
    there: machine::paging::Page,
    region: &Region<Mapping>,
    page: usize,
    write: bool,
) -> Step {
    const DONE: Step = Step::Finished(FaultResult::Done);
    let mapping = &region.value;
    let access = mapping.protection.access();
    if !write {
        // The page is readable now: another processor was faster, or it was protected with
        // PROT_NONE and has been allowed since. Set the right again.
        slot.allow(Access { write: false, ..access });
        return DONE;
    }
    if there.access.write {
        return DONE;
    }
    if there.kind == PageKind::Shared || slot.is_sole_owner() {
        if let (PageKind::Shared, Some(backing), Some(frame)) =
            (there.kind, &mapping.backing, slot.frame())
        {
            let index = mapping.index(region.start, page);
            if let Err(step) = shared_access(backing, index, &frame, access, true) {
                return step;
            }
        }
        slot.allow(access);
        // This processor's TLB may hold the page as read-only: without the flush it would fault
        // once more.
        slot.forget_here();
        return DONE;
    }
    match slot.split() {
        Ok(slot) => copy(slot, access),
        Err(_) => Step::Memory,
    }
}

/// Copies the page (copy-on-write).
fn copy(mut slot: Slot<'_, '_>, access: Access) -> Step {
    let Some(there) = slot.page() else { return Step::Memory };
    let frame = if there.kind == PageKind::Zero {
        zeroed(slot.owner())
    } else {
        fresh(slot.owner()).inspect(|frame| slot.copy_to(frame))
    };
    let Some(frame) = frame else { return Step::Memory };
    let _ = slot.replace(frame, PageKind::Private, access);
    Step::Finished(FaultResult::Done)
}

/// Handles a page fault in one of the kernel's checked copies from or to user memory.
pub fn user_copy_fault(fault: &PageFault) -> FaultOutcome {
    let write = fault.code.contains(FaultCode::WRITE);
    let touch = if write { Touch::Write } else { Touch::Read };
    match handle_fault(fault.address as usize, touch, || Cause::Kernel) {
        FaultResult::Done => FaultOutcome::Done,
        _ => FaultOutcome::Failed,
    }
}
