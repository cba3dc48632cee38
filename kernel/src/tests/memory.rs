//! Tests of spaces, inside the kernel. Reads and writes of spaces from outside
//! ([`Space::read_foreign`]), which take the same fault path, and checked copies on a loaded space
//! stand for programs.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use machine::{cpu, frames, heap, user};

use crate::memory::advise::Advice;
use crate::memory::remap::Move;
use crate::memory::*;
use crate::page_cache::cache::PageCache;
use crate::{check, ktest, schedule};

const ALL: RegionFlags = RegionFlags::MAY_WRITE.union(RegionFlags::MAY_EXECUTE);
const RW: Protection = Protection::READ.union(Protection::WRITE);

pub fn space() -> Result<Arc<Space>> {
    Space::new(Layout::new(8 << 20, None), Limits::default())
}

/// A request for a fixed place.
pub fn at(address: usize, length: usize) -> MapRequest {
    MapRequest { address, place: Placement::Fixed, ..MapRequest::anonymous(length) }
}

/// A request to map a page cache.
fn page_cache_at(address: usize, page_cache: &Arc<PageCache>, shared: bool) -> Result<MapRequest> {
    let mut request = at(address, page_cache.size() as usize);
    request.backing = Some(Backing::nameless(page_cache.clone(), "test")?);
    request.flags.set(RegionFlags::SHARED, shared);
    Ok(request)
}

pub fn put(space: &Space, address: usize, value: u64) -> bool {
    space.write_foreign(address, &value.to_le_bytes()) == 8
}

pub fn get(space: &Space, address: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    (space.read_foreign(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
}

/// Free frames after the heap is trimmed and the deferred free is complete.
pub fn free() -> usize {
    heap::trim();
    deferred_free::settled_counts().free
}

pub const BASE: usize = 0x1000_0000;

ktest! {
    fn memory_is_zeroes_and_keeps_what_is_written() {
        let space = space().unwrap();
        check!(space.map(at(BASE, 64 * PAGE)) == Ok(BASE));
        check!(get(&space, BASE + 5 * PAGE) == Some(0));
        check!(space.resident().pages() == 0);
        for page in 0..64 {
            check!(put(&space, BASE + page * PAGE + 16, page as u64 + 1));
        }
        for page in 0..64 {
            check!(get(&space, BASE + page * PAGE + 16) == Some(page as u64 + 1));
            check!(get(&space, BASE + page * PAGE + 24) == Some(0));
        }
        check!(space.resident().anonymous == 64);
        check!(space.handle(BASE - 1, Touch::Read) == FaultResult::NotMapped);
        check!(space.handle(BASE, Touch::Execute) == FaultResult::NotAllowed);
        check!(space.handle(usize::MAX - 5, Touch::Read) == FaultResult::NotMapped);
        check!(space.handle(USER_END, Touch::Write) == FaultResult::NotMapped);
    }
}

ktest! {
    fn nothing_leaks_from_a_space() {
        let run = || -> Result<bool> {
            let space = space()?;
            space.map(at(BASE, 300 * PAGE))?;
            for page in (0..300).step_by(3) {
                put(&space, BASE + page * PAGE, 1);
            }
            let child = space.fork()?;
            put(&child, BASE, 2);
            space.unmap(BASE + 10 * PAGE, 100 * PAGE)?;
            child.protect(BASE, 20 * PAGE, Protection::READ, false)?;
            child.remap(BASE + 100 * PAGE, 10 * PAGE, 40 * PAGE, Move::Anywhere, false)?;
            Ok(get(&child, BASE) == Some(2) && get(&space, BASE) == Some(1))
        };
        check!(run() == Ok(true));
        // Exact on one processor. Another processor may hold a frame that it is zeroing, and uses
        // slabs of its own when the test moves to it. A leak would lose a frame in each round.
        let slack = 4 * (machine::cpu::count() - 1);
        let level = || -> bool {
            let before = free();
            (0..300).all(|_| run() == Ok(true))
                && (0..100).any(|_| {
                    free() + slack >= before || {
                        let soon = crate::schedule::time::monotonic_ns() + 5_000_000;
                        let _ = crate::schedule::sleep_until(soon, false);
                        false
                    }
                })
        };
        // The interface gets its addresses in the first seconds of a boot and keeps memory for
        // them. A leak is there each time; what something else keeps is not.
        check!((0..4).any(|_| level()));
    }
}

ktest! {
    fn fork_copies_on_write_on_either_side() {
        let parent = space().unwrap();
        parent.map(at(BASE, 4 * PAGE)).unwrap();
        for page in 0..4 {
            put(&parent, BASE + page * PAGE, 10 + page as u64);
        }
        let child = parent.fork().unwrap();
        let grandchild = child.fork().unwrap();
        check!(child.resident() == parent.resident());
        check!(put(&child, BASE, 20));
        check!(put(&parent, BASE + PAGE, 30));
        check!(put(&grandchild, BASE + 2 * PAGE, 40));
        check!((get(&parent, BASE), get(&child, BASE), get(&grandchild, BASE)) == (Some(10), Some(20), Some(10)));
        let second = BASE + PAGE;
        check!((get(&parent, second), get(&child, second), get(&grandchild, second)) == (Some(30), Some(11), Some(11)));
        let third = second + PAGE;
        check!((get(&parent, third), get(&child, third), get(&grandchild, third)) == (Some(12), Some(12), Some(40)));
        drop(parent);
        check!(get(&child, second) == Some(11));
        drop(grandchild);
        check!(put(&child, third, 50));
        check!(get(&child, third) == Some(50));
        check!(get(&child, third + PAGE) == Some(13));
    }
}

ktest! {
    fn fork_keeps_shared_memory_shared() {
        let parent = space().unwrap();
        let page_cache = PageCache::memory(4 * PAGE as u64);
        parent.map(page_cache_at(BASE, &page_cache, true).unwrap()).unwrap();
        check!(put(&parent, BASE, 1));
        let child = parent.fork().unwrap();
        check!(put(&child, BASE, 2));
        check!(get(&parent, BASE) == Some(2));
        // A page first touched after the fork is shared, too.
        check!(put(&parent, BASE + PAGE, 3));
        check!(get(&child, BASE + PAGE) == Some(3));
        let mut bytes = [0; 8];
        page_cache.peek(0).map(|frame| frame.read(0, &mut bytes));
        check!(u64::from_le_bytes(bytes) == 2);
        check!(child.resident().shared == 2);
        check!(child.handle(BASE + 4 * PAGE, Touch::Read) == FaultResult::NotMapped);
    }
}

ktest! {
    fn a_private_mapping_leaves_the_page_cache_alone() {
        let page_cache = PageCache::memory(40 * PAGE as u64);
        for page in 0..40 {
            page_cache.page(page).unwrap().write(0, &(100 + page).to_le_bytes());
        }
        let space = space().unwrap();
        space.map(page_cache_at(BASE, &page_cache, false).unwrap()).unwrap();
        check!(get(&space, BASE + 20 * PAGE) == Some(120));
        // Its neighbours came with it.
        check!(space.resident().file == 16);
        check!(put(&space, BASE + 20 * PAGE, 7));
        check!(get(&space, BASE + 20 * PAGE) == Some(7));
        let mut bytes = [0; 8];
        page_cache.peek(20).map(|frame| frame.read(0, &mut bytes));
        check!(u64::from_le_bytes(bytes) == 120);
        check!(space.resident().file == 15 && space.resident().anonymous == 1);
        // After the page is given up, the page cache shows through again.
        space.advise(BASE + 20 * PAGE, PAGE, Advice::DontNeed).unwrap();
        check!(get(&space, BASE + 20 * PAGE) == Some(120));
    }
}

ktest! {
    fn truncation_takes_pages_out_of_every_space() {
        let page_cache = PageCache::memory(8 * PAGE as u64);
        let parent = space().unwrap();
        parent.map(page_cache_at(BASE, &page_cache, true).unwrap()).unwrap();
        parent.map(page_cache_at(BASE + 16 * PAGE, &page_cache, false).unwrap()).unwrap();
        for page in 0..8 {
            check!(put(&parent, BASE + page * PAGE, 1));
            check!(put(&parent, BASE + (16 + page) * PAGE, 2));
        }
        let child = parent.fork().unwrap();
        {
            let _content = page_cache.lock_content();
            page_cache.set_size(2 * PAGE as u64);
        }
        for space in [&parent, &child] {
            check!(get(space, BASE + PAGE) == Some(1));
            check!(get(space, BASE + 17 * PAGE) == Some(2));
            check!(space.handle(BASE + 2 * PAGE, Touch::Read) == FaultResult::NoContent);
            check!(space.handle(BASE + 18 * PAGE, Touch::Write) == FaultResult::NoContent);
        }
    }
}

ktest! {
    fn rights_are_taken_and_given_back() {
        let space = space().unwrap();
        space.map(at(BASE, 8 * PAGE)).unwrap();
        for page in 0..8 {
            put(&space, BASE + page * PAGE, 5);
        }
        space.protect(BASE + 2 * PAGE, 2 * PAGE, Protection::READ, false).unwrap();
        check!(!put(&space, BASE + 2 * PAGE, 6));
        check!(get(&space, BASE + 3 * PAGE) == Some(5));
        space.protect(BASE, 8 * PAGE, Protection::empty(), false).unwrap();
        check!(get(&space, BASE).is_none());
        check!(space.handle(BASE, Touch::Read) == FaultResult::NotAllowed);
        check!(space.resident().anonymous == 8);
        space.protect(BASE, 8 * PAGE, RW, false).unwrap();
        for page in 0..8 {
            check!(get(&space, BASE + page * PAGE) == Some(5));
            check!(put(&space, BASE + page * PAGE, 9));
        }
        check!(space.shown(false).unwrap().len() == 1);
        // A gap: the part before it has been changed.
        space.unmap(BASE + 4 * PAGE, PAGE).unwrap();
        check!(space.protect(BASE, 8 * PAGE, Protection::READ, false) == Err(Errno::ENOMEM));
        check!(!put(&space, BASE, 1));
        check!(put(&space, BASE + 5 * PAGE, 1));
    }
}

ktest! {
    fn mappings_grow_move_and_shrink() {
        let space = space().unwrap();
        space.map(at(BASE, 4 * PAGE)).unwrap();
        for page in 0..4 {
            put(&space, BASE + page * PAGE, page as u64 + 1);
        }
        check!(space.remap(BASE, 4 * PAGE, 8 * PAGE, Move::Never, false) == Ok(BASE));
        space.map(at(BASE + 8 * PAGE, PAGE)).unwrap();
        check!(space.remap(BASE, 8 * PAGE, 9 * PAGE, Move::Never, false) == Err(Errno::ENOMEM)
            || space.shown(false).unwrap().len() == 1);
        let to = BASE + 0x4000_0000;
        let moved = space.remap(BASE + PAGE, 3 * PAGE, 3 * PAGE, Move::To(to), false);
        check!(moved == Ok(to));
        check!(get(&space, BASE + PAGE).is_none());
        check!(get(&space, to) == Some(2) && get(&space, to + 2 * PAGE) == Some(4));
        check!(space.remap(to, 3 * PAGE, PAGE, Move::Never, false) == Ok(to));
        check!(get(&space, to + PAGE).is_none());
        // In a forked space the tables are shared.
        let child = space.fork().unwrap();
        let far = to + 0x4000_0000;
        check!(child.remap(to, PAGE, PAGE, Move::To(far), false) == Ok(far));
        check!(get(&child, far) == Some(2) && get(&child, to).is_none());
        check!(get(&space, to) == Some(2) && get(&space, far).is_none());
        check!(space.remap(to, PAGE, PAGE, Move::To(to), false) == Err(Errno::EINVAL));
        check!(space.remap(BASE + 3, PAGE, PAGE, Move::Anywhere, false) == Err(Errno::EINVAL));
        check!(space.remap(BASE + PAGE, PAGE, PAGE, Move::Anywhere, false) == Err(Errno::EFAULT));
    }
}

ktest! {
    fn the_stack_grows_to_its_limit() {
        let space = space().unwrap();
        let top = 0x7000_0000_0000;
        let mut request = at(top - 4 * PAGE, 4 * PAGE);
        request.flags = ALL | RegionFlags::GROWS_DOWN | RegionFlags::STACK;
        space.map(request).unwrap();
        check!(put(&space, top - 100 * PAGE, 1));
        check!(space.size() == 100 * PAGE);
        check!(space.handle(top - (8 << 20), Touch::Write) == FaultResult::Done);
        check!(space.handle(top - (8 << 20) - PAGE, Touch::Write) == FaultResult::NotMapped);
        // A stack keeps the guard gap to its neighbour.
        let space = self::space().unwrap();
        let mut request = at(top - 4 * PAGE, 4 * PAGE);
        request.flags = ALL | RegionFlags::GROWS_DOWN;
        space.map(request).unwrap();
        space.map(at(top - 400 * PAGE, PAGE)).unwrap();
        check!(put(&space, top - 100 * PAGE, 1));
        check!(!put(&space, top - 200 * PAGE, 1));
    }
}

ktest! {
    fn the_heap_moves() {
        let space = space().unwrap();
        space.set_heap(BASE + 5);
        let start = space.heap().start;
        check!(start == BASE + PAGE);
        check!(space.brk(start + 10) == start + 10);
        check!(put(&space, start, 1));
        check!(space.brk(start + 3 * PAGE) == start + 3 * PAGE);
        check!(put(&space, start + 2 * PAGE, 2));
        check!(space.shown(false).unwrap().len() == 1);
        check!(space.brk(start + PAGE) == start + PAGE);
        check!(get(&space, start) == Some(1));
        check!(get(&space, start + 2 * PAGE).is_none());
        check!(space.brk(start + 3 * PAGE) == start + 3 * PAGE);
        check!(get(&space, start + 2 * PAGE) == Some(0));
        check!(space.brk(0) == start + 3 * PAGE);
        check!(space.brk(usize::MAX) == start + 3 * PAGE);
        space.set_limits(Limits { data: 4 * PAGE, ..Limits::default() });
        check!(space.brk(start + 40 * PAGE) == start + 3 * PAGE);
    }
}

ktest! {
    fn places_are_found_and_refused() {
        let space = space().unwrap();
        let first = space.map(MapRequest::anonymous(5 * PAGE)).unwrap();
        check!(first + 5 * PAGE == space.layout().mmap_top);
        let second = space.map(MapRequest::anonymous(1)).unwrap();
        check!(second + PAGE == first);
        let none = |request: MapRequest| space.map(request).err();
        check!(none(MapRequest::anonymous(0)) == Some(Errno::EINVAL));
        check!(none(MapRequest::anonymous(usize::MAX)) == Some(Errno::ENOMEM));
        check!(none(at(BASE + 1, PAGE)) == Some(Errno::EINVAL));
        check!(none(at(0, PAGE)) == Some(Errno::EPERM));
        check!(none(at(USER_END, PAGE)) == Some(Errno::ENOMEM));
        let exact = |address| MapRequest { place: Placement::FixedNoReplace, ..at(address, PAGE) };
        check!(none(exact(second)) == Some(Errno::EEXIST));
        check!(space.map(exact(BASE)) == Ok(BASE));
        let low = MapRequest { place: Placement::Low, ..MapRequest::anonymous(PAGE) };
        check!(space.map(low).is_ok_and(|address| address < 1 << 31));
        space.set_limits(Limits { address_space: space.size() + PAGE, ..Limits::default() });
        check!(none(MapRequest::anonymous(2 * PAGE)) == Some(Errno::ENOMEM));
        check!(space.map(MapRequest::anonymous(PAGE)).is_ok());
    }
}

ktest! {
    fn advice_at_fork_is_followed() {
        let space = space().unwrap();
        for n in 0..3 {
            space.map(at(BASE + n * 16 * PAGE, 4 * PAGE)).unwrap();
            put(&space, BASE + n * 16 * PAGE, 1);
        }
        let none = RegionFlags::empty();
        space.advise(BASE, 4 * PAGE, Advice::Flags(RegionFlags::NO_FORK, none)).unwrap();
        let wipe = Advice::Flags(RegionFlags::WIPE_ON_FORK, none);
        space.advise(BASE + 16 * PAGE, 4 * PAGE, wipe).unwrap();
        let child = space.fork().unwrap();
        check!(get(&child, BASE).is_none());
        check!(get(&child, BASE + 16 * PAGE) == Some(0));
        check!(get(&child, BASE + 32 * PAGE) == Some(1));
        check!(get(&space, BASE) == Some(1) && get(&space, BASE + 16 * PAGE) == Some(1));
    }
}

ktest! {
    fn checked_copies_take_the_fault_path_and_stop_at_bad_addresses() {
        let space = space().unwrap();
        space.map(at(BASE, 2 * PAGE)).unwrap();
        space.visit(|| {
            check!(user::copy_out(BASE + PAGE - 3, b"hayate") == Ok(()));
            let mut bytes = [0; 6];
            check!(user::copy_in(&mut bytes, BASE + PAGE - 3) == Ok(()));
            check!(&bytes == b"hayate");
            check!(user::copy_out_partly(BASE + 2 * PAGE - 13, &[1; 100]) == 13);
            check!(user::copy_in(&mut bytes, BASE - 1) == Err(Errno::EFAULT));
            check!(user::copy_in(&mut bytes, usize::MAX - 2) == Err(Errno::EFAULT));
            check!(user::copy_in(&mut bytes, machine::layout::KERNEL) == Err(Errno::EFAULT));
            check!(user::store_u32(BASE, 7) == Ok(()));
            check!(user::compare_exchange_u32(BASE, 7, 8) == Ok(7));
            check!(user::load_u32(BASE) == Ok(8));
            check!(user::load_u32(BASE + 2 * PAGE) == Err(Errno::EFAULT));
            check!(user::load_u32(USER_END) == Err(Errno::EFAULT));
            check!(user::zero_partly(BASE, 3 * PAGE) == 2 * PAGE);
            check!(user::UserPtr::<u64>::new(BASE).read() == Ok(0));
            check!(user::UserPtr::<u64>::new(BASE).write(&9) == Ok(()));
            check!(user::UserPtr::<u64>::new(BASE + 2 * PAGE - 4).read() == Err(Errno::EFAULT));
            check!(user::copy_out(BASE + 2 * PAGE - 4, b"abc\0") == Ok(()));
            let mut text = [0; 64];
            check!(user::read_cstr(&mut text, BASE + 2 * PAGE - 4) == Ok(3));
            check!(user::copy_out(BASE + 2 * PAGE - 4, b"abcd") == Ok(()));
            check!(user::read_cstr(&mut text, BASE + 2 * PAGE - 4) == Err(Errno::EFAULT));
            check!(user::read_cstr(&mut text[..2], BASE + 2 * PAGE - 4) == Err(Errno::ENAMETOOLONG));
            space.protect(BASE, PAGE, Protection::empty(), false).ok();
            check!(user::load_u32(BASE) == Err(Errno::EFAULT));
            Ok(())
        })?;
    }
}

ktest! {
    fn rights_are_gone_on_every_processor_when_protect_returns() {
        use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
        if cpu::count() < 2 {
            return Ok(());
        }
        let space = space().unwrap();
        space.map(at(BASE, PAGE)).unwrap();
        let allowed = Arc::new(AtomicBool::new(true));
        let stop = Arc::new(AtomicBool::new(false));
        let (wrong, rounds) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..cpu::count() - 1 {
            let (space, allowed, stop) = (space.clone(), allowed.clone(), stop.clone());
            let (wrong, rounds) = (wrong.clone(), rounds.clone());
            let writer = move || {
                while !stop.load(SeqCst) {
                    space.visit(|| {
                        let before = allowed.load(SeqCst);
                        let written = user::store_u32(BASE, 1).is_ok();
                        // If the write was forbidden before and after it, it must have failed.
                        if written && !before && !allowed.load(SeqCst) {
                            wrong.fetch_add(1, SeqCst);
                        }
                        rounds.fetch_add(1, SeqCst);
                    });
                    schedule::yield_now();
                }
                drop(space);
                rounds.fetch_add(1 << 32, SeqCst);
            };
            check!(schedule::start_kernel("writer", writer).is_ok());
        }
        // On a loaded host the other processors may stand still for longer than the rest of the
        // test takes.
        while rounds.load(SeqCst) == 0 {
            schedule::yield_now();
        }
        for _ in 0..300 {
            let _ = space.protect(BASE, PAGE, Protection::READ, false);
            allowed.store(false, SeqCst);
            schedule::yield_now();
            allowed.store(true, SeqCst);
            let _ = space.protect(BASE, PAGE, RW, false);
            schedule::yield_now();
        }
        stop.store(true, SeqCst);
        while rounds.load(SeqCst) >> 32 < cpu::count() - 1 {
            schedule::yield_now();
        }
        check!(wrong.load(SeqCst) == 0);
    }
}

ktest! {
    fn processors_fault_at_once_without_losing_a_page() {
        use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
        const PAGES: usize = 512;
        let before_all = free();
        for _ in 0..4 {
            let parent = space().unwrap();
            parent.map(at(BASE, PAGES * PAGE)).unwrap();
            for page in 0..PAGES {
                put(&parent, BASE + page * PAGE, 7);
            }
            let spaces: Vec<_> = (0..4).map(|_| parent.fork().unwrap()).collect();
            let (done, bad) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            for (number, space) in spaces.into_iter().enumerate() {
                let (done, bad) = (done.clone(), bad.clone());
                let work = move || {
                    let mine = number as u64 + 100;
                    for page in 0..PAGES {
                        let ok = get(&space, BASE + page * PAGE) == Some(7)
                            && put(&space, BASE + page * PAGE, mine)
                            && get(&space, BASE + page * PAGE) == Some(mine);
                        bad.fetch_add(usize::from(!ok), SeqCst);
                    }
                    drop(space);
                    done.fetch_add(1, SeqCst);
                };
                check!(schedule::start_kernel("faulter", work).is_ok());
            }
            while done.load(SeqCst) < 4 {
                schedule::yield_now();
            }
            check!(bad.load(SeqCst) == 0);
            check!((0..PAGES).all(|page| get(&parent, BASE + page * PAGE) == Some(7)));
        }
        // Only the stacks of the executions may have been added.
        let lost = before_all.saturating_sub(free());
        check!(lost < 128);
    }
}

ktest! {
    fn running_out_of_memory_is_an_answer() {
        let space = space().unwrap();
        let total = frames::total();
        let mut request = at(BASE, (total + total / 2) * PAGE);
        request.flags |= RegionFlags::NO_RESERVE;
        space.map(request).unwrap();
        let before = free();
        let mut page = 0;
        let result = loop {
            match space.handle(BASE + page * PAGE, Touch::Write) {
                FaultResult::Done => page += 1,
                other => break other,
            }
        };
        check!(result == FaultResult::OutOfMemory);
        check!(page > before / 2 && page < total);
        // The kernel still works.
        let mut large = core::hint::black_box(Vec::<u8>::new());
        check!(large.try_reserve(1 << 20).is_err());
        check!(!core::hint::black_box(Arc::new([0u64; 32])).is_empty());
        drop(space);
        check!(free() + 64 > before);
        let mut request = MapRequest::anonymous((total + 1) * PAGE);
        check!(self::space().unwrap().map(request).err() == Some(Errno::ENOMEM));
        request = MapRequest::anonymous(PAGE);
        check!(self::space().unwrap().map(request).is_ok());
    }
}

ktest! {
    fn large_tables_are_made_of_memory_in_pieces() {
        use machine::frames::Frame;
        const SIZE: usize = 3 << 20;
        let mut all: Vec<Frame> = Vec::new();
        all.try_reserve_exact(frames::total()).unwrap();
        while all.len() < all.capacity()
            && let Some(frame) = Frame::allocate()
        {
            all.push(frame);
        }
        let mut full = core::hint::black_box(Vec::<u64>::new());
        check!(full.try_reserve_exact(SIZE / 8).is_err());
        // Every second frame is free now: no two in a row.
        all.retain(|frame| frame.number() % 2 == 1);
        let before = free();
        check!(before > 8 * SIZE / PAGE);
        for round in 0..40 {
            let mut tables: Vec<Vec<u64>> = Vec::new();
            for table in 0..4 {
                let mut words: Vec<u64> = Vec::new();
                check!(words.try_reserve_exact(SIZE / 8 / (table + 1)).is_ok());
                words.extend((0..words.capacity() as u64).map(|word| word * 3 + round));
                tables.push(words);
            }
            for words in &tables {
                check!(words.iter().zip(0..).all(|(&word, at)| word == at * 3 + round));
            }
            // Growing the table copies it.
            let words = &mut tables[3];
            check!(words.try_reserve(words.len()).is_ok());
            check!(words.iter().zip(0..).all(|(&word, at)| word == at * 3 + round));
        }
        // The page tables of the area stay: at most one for each 2 MiB.
        check!(free() + 32 > before);
        let mut huge = core::hint::black_box(Vec::<u8>::new());
        check!(huge.try_reserve_exact(frames::total() * PAGE).is_err());
        drop(all);
    }
}

ktest! {
    fn locked_memory_is_counted_and_limited() {
        let space = space().unwrap();
        space.map(at(BASE, 16 * PAGE)).unwrap();
        space.set_limits(Limits { locked: 8 * PAGE, ..Limits::default() });
        check!(space.lock_memory(BASE, 9 * PAGE, false) == Err(Errno::ENOMEM));
        check!(space.lock_memory(BASE + 1, 7 * PAGE, false).is_ok());
        check!(space.totals().locked == 8);
        check!(space.resident().anonymous == 8);
        check!(space.advise(BASE, PAGE, Advice::DontNeed) == Err(Errno::EINVAL));
        check!(space.unlock_memory(BASE, 4 * PAGE).is_ok());
        check!(space.totals().locked == 4);
        check!(space.lock_memory(BASE + 15 * PAGE, 2 * PAGE, false) == Err(Errno::ENOMEM));
        check!(space.unmap(BASE, 16 * PAGE).is_ok());
        check!(space.totals().locked == 0 && space.totals().data == 0);
    }
}
