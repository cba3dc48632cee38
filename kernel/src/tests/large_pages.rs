//! Tests of large pages of spaces, inside the kernel.

use machine::layout::LARGE_PAGE_SIZE;
use machine::paging;

use super::memory::{at, get, put, space};
use crate::memory::advise::Advice;
use crate::memory::*;
use crate::{check, ktest};

ktest! {
    fn large_pages_come_split_and_go() {
        let space = space().unwrap();
        let base = 64 * LARGE_PAGE_SIZE;
        let mut request = at(base, 2 * LARGE_PAGE_SIZE);
        request.flags |= RegionFlags::LARGE;
        space.map(request).unwrap();
        check!(put(&space, base + 5 * PAGE, 5));
        check!(space.resident().anonymous == 512);
        for page in 0..512 {
            put(&space, base + page * PAGE + 8, page as u64);
        }
        check!(space.shown(true).unwrap().iter().map(|shown| shown.pages.large).sum::<usize>() == 512);
        let child = space.fork().unwrap();
        check!(put(&child, base + 7 * PAGE + 8, 1000));
        check!(get(&space, base + 7 * PAGE + 8) == Some(7));
        check!(get(&child, base + 8 * PAGE + 8) == Some(8));
        check!(get(&child, base + 7 * PAGE + 8) == Some(1000));
        check!(child.resident().anonymous == 512);
        drop(child);
        space.unmap(base + 3 * PAGE, PAGE).unwrap();
        check!(space.resident().anonymous == 511);
        check!(get(&space, base + 4 * PAGE + 8) == Some(4));
        check!(get(&space, base + 3 * PAGE).is_none());
        space.unmap(base, 2 * LARGE_PAGE_SIZE).unwrap();
        check!(space.resident().anonymous == 0);
    }
}

/// How many pages of a space are in large ones.
fn large(space: &Space) -> usize {
    space.shown(true).unwrap().iter().map(|shown| shown.pages.large).sum()
}

ktest! {
    fn large_pages_are_earned() {
        let base = 64 * LARGE_PAGE_SIZE;
        let pages = LARGE_PAGE_SIZE / PAGE;
        let touch = |space: &Space, mut range: core::ops::Range<usize>| {
            range.all(|page| put(space, base + page * PAGE + 8, page as u64 + 1))
        };
        let before = paging::large_pages();
        let space = space().unwrap();
        space.map(at(base, 3 * LARGE_PAGE_SIZE + 9 * PAGE)).unwrap();
        // A small heap has small pages only.
        check!(touch(&space, 0..100));
        check!((large(&space), space.resident().anonymous) == (0, 100));
        check!(touch(&space, 100..128));
        check!((large(&space), space.resident().anonymous) == (pages, pages));
        check!(get(&space, base + 127 * PAGE + 8) == Some(128));
        check!(get(&space, base + 128 * PAGE + 8) == Some(0));
        // The ranges that follow in order become large at once, as far as they lie inside the
        // region.
        check!(touch(&space, 128..3 * pages + 9));
        check!(large(&space) == 3 * pages);
        check!(space.resident().anonymous == 3 * pages + 9);
        check!(paging::large_pages() == before + 3);
        for page in 0..3 * pages + 9 {
            check!(get(&space, base + page * PAGE + 8) == Some(page as u64 + 1));
        }
        // A range whose large page was broken up stays small.
        space.advise(base, 200 * PAGE, Advice::DontNeed).unwrap();
        check!(touch(&space, 0..200));
        check!(large(&space) == 2 * pages);
        // Shared by a fork it is one large page; each side has its own once either writes.
        let child = space.fork().unwrap();
        check!(large(&child) == 2 * pages);
        check!(paging::large_pages() == before + 2);
        check!(put(&child, base + (pages + 3) * PAGE, 77));
        check!((large(&child), large(&space)) == (pages, 2 * pages));
        check!(get(&space, base + (pages + 3) * PAGE) == Some(0));
        drop(space);
        paging::teardown::free_all(|| {});
        check!(paging::large_pages() == before + 1);
        check!(get(&child, base + (3 * pages - 1) * PAGE + 8) == Some(3 * pages as u64));
        check!(get(&child, base + (pages + 4) * PAGE + 8) == Some(pages as u64 + 5));
        drop(child);
        paging::teardown::free_all(|| {});
        check!(paging::large_pages() == before);
    }
}

ktest! {
    fn large_pages_are_not_forced_on_anybody() {
        let base = 64 * LARGE_PAGE_SIZE;
        let space = space().unwrap();
        let mut request = at(base, 2 * LARGE_PAGE_SIZE);
        request.flags |= RegionFlags::NO_LARGE;
        space.map(request).unwrap();
        // A page with another reference cannot be moved.
        space.map(at(base + 4 * LARGE_PAGE_SIZE, LARGE_PAGE_SIZE)).unwrap();
        let apart = base + 4 * LARGE_PAGE_SIZE;
        check!(put(&space, apart, 1));
        let child = space.fork().unwrap();
        for page in 1..512 {
            check!(put(&space, base + page * PAGE, 1) && put(&space, apart + page * PAGE, 1));
        }
        check!(large(&space) == 0);
        check!(get(&child, apart) == Some(1) && get(&child, apart + PAGE) == Some(0));
    }
}
