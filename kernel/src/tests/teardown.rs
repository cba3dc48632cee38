//! Tests of the deferred free of large spaces (`paging::teardown`), inside the kernel.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use machine::frames::{self, Frame};
use machine::heap;
use machine::layout::LARGE_PAGE_SIZE;
use machine::paging::{self, teardown};
use machine::smp;

use super::memory::{BASE, at, free, get, put, space};
use crate::memory::*;
use crate::recycle::{KeptKinds, policy};
use crate::{check, ktest};

/// A space with `pages` pages, each of which contains its number plus one.
fn filled(pages: usize) -> Result<Arc<Space>> {
    let space = space()?;
    let mut request = at(BASE, pages * PAGE);
    request.flags |= RegionFlags::NO_LARGE;
    space.map(request)?;
    for page in 0..pages {
        put(&space, BASE + page * PAGE, page as u64 + 1).then_some(()).ok_or(Errno::EFAULT)?;
    }
    Ok(space)
}

/// The frame of a page.
fn frame(space: &Space, address: usize) -> Option<u32> {
    let mut guard = space.table.lock();
    let (_, edit) = guard.parts();
    edit.page(address).map(|page| page.frame())
}

/// Free frames after the deferred free, with those in the heap's slabs, which another processor may
/// have.
pub(super) fn left() -> usize {
    free() + heap::counts().0 / PAGE
}

/// Whether all frames are free again. An idle processor may hold a frame for a moment to zero it.
pub(super) fn is_back(before: usize) -> bool {
    (0..10_000).any(|_| {
        machine::sync::relax();
        left() == before
    })
}

/// Whether the deferred free holds at least `least` frames, as far as that can be tested: another
/// processor may be freeing them already.
fn is_pending(pending: usize, least: usize) -> bool {
    machine::cpu::count() > 1 || pending >= least
}

ktest! {
    fn a_large_space_is_given_back_later() {
        const PAGES: usize = 3000;
        drop(filled(PAGES).unwrap());
        let before = left();
        let space = filled(PAGES).unwrap();
        check!(left() + PAGES <= before);
        drop(space);
        check!(is_pending(teardown::pending(), PAGES));
        check!(teardown::pending() < PAGES + 600);
        teardown::free_all(|| {});
        check!(teardown::pending() == 0);
        check!(!teardown::free_one());
        check!(is_back(before));
        // A small space is freed at once.
        drop(filled(300).unwrap());
        check!(teardown::pending() == 0);
        check!(is_back(before));
    }
}

ktest! {
    fn a_step_is_one_table_at_most() {
        let before = left();
        drop(filled(3000).unwrap());
        let mut steps = 0;
        let mut pending = teardown::pending();
        while teardown::free_one() {
            smp::poll();
            let now = teardown::pending();
            check!(pending - now <= 513 || machine::cpu::count() > 1);
            pending = now;
            steps += 1;
        }
        check!(machine::cpu::count() > 1 || steps >= 6);
        check!(is_back(before));
    }
}

ktest! {
    fn without_the_policy_nothing_is_deferred() {
        let was = policy::get();
        policy::set(crate::recycle::Policy::new(was.keep() - KeptKinds::DEFERRED_FREE));
        let before = left();
        drop(filled(3000).unwrap());
        check!(teardown::pending() == 0);
        check!(frames::counts().free + heap::counts().0 / PAGE + 64 >= before);
        policy::set(was);
    }
}

ktest! {
    fn what_a_child_shares_is_let_go_at_once() {
        const PAGES: usize = 4096;
        // The first space of a boot leaves lists and slabs, and this may be the first test.
        drop(filled(PAGES).unwrap().fork().unwrap());
        let before = left();
        let parent = filled(PAGES).unwrap();
        let child = parent.fork().unwrap();
        // One table is the child's own as a whole, one has one page of the child's, and one has a
        // copy made by the parent.
        for page in 0..512 {
            check!(put(&child, BASE + page * PAGE, 7));
        }
        check!(put(&child, BASE + 600 * PAGE, 7));
        check!(put(&parent, BASE + 1200 * PAGE, 8));
        let frames: Vec<_> = (0..PAGES).map(|page| frame(&parent, BASE + page * PAGE)).collect();
        drop(child);
        // The parent is the only owner of its pages: nothing is copied.
        for (page, own) in frames.iter().enumerate().skip(512) {
            check!(put(&parent, BASE + page * PAGE + 8, 9));
            check!(frame(&parent, BASE + page * PAGE) == *own);
        }
        check!(get(&parent, BASE + 600 * PAGE) == Some(601));
        check!(get(&parent, BASE) == Some(1));
        drop((parent, frames));
        check!(is_back(before));
    }
}

ktest! {
    fn large_pages_wait_as_well() {
        const COUNT: usize = 6;
        let run = || -> Result<Arc<Space>> {
            let space = space()?;
            let mut request = at(BASE, COUNT * LARGE_PAGE_SIZE);
            request.flags |= RegionFlags::LARGE;
            space.map(request)?;
            for page in 0..COUNT {
                put(&space, BASE + page * LARGE_PAGE_SIZE, page as u64);
            }
            Ok(space)
        };
        drop(run());
        let (before, large) = (left(), paging::large_pages());
        let first = run().unwrap();
        check!(paging::large_pages() >= large + COUNT);
        let second = first.fork().unwrap();
        drop(first);
        check!(get(&second, BASE + LARGE_PAGE_SIZE) == Some(1));
        drop(second);
        check!(is_pending(teardown::pending(), 512 * COUNT));
        check!(is_back(before));
        check!(paging::large_pages() == large);
    }
}

ktest! {
    fn the_deferred_frees_have_a_bound_and_nobody_lacks_them() {
        let before = left();
        let most = frames::total() / 8;
        let pages = (most / 2).min(before / 8);
        for _ in 0..4 {
            drop(filled(pages).unwrap());
            check!(teardown::pending() <= most);
        }
        // Allocate all memory, including the frames of the deferred free.
        let mut taken = Vec::new();
        check!(taken.try_reserve_exact(before).is_ok());
        while let Some(frame) = Frame::allocate() {
            taken.push(frame);
        }
        check!(teardown::pending() == 0);
        check!(taken.len() + frames::counts().reserve + most / 2 > before);
        drop(taken);
        check!(is_back(before));
    }
}
