//! Tests of unused memory on its way to the host (`frames::Unused`), inside the kernel. The
//! machine's own device may take unused memory at the same time.

use alloc::vec::Vec;

use machine::frames::{self, Block, Unused};
use machine::layout::LARGE_PAGE_SIZE;

use super::teardown::is_back;
use crate::{check, ktest};

/// Looks at all free memory once; takes at most 16 pieces of at most 4 MiB.
fn look(found: &mut Vec<Unused>) {
    let mut from = 0;
    while found.len() < 16
        && let Some(memory) = Unused::take(&mut from, 1024)
    {
        found.push(memory);
    }
}

fn overlaps(memory: &Unused, block: &Block) -> bool {
    memory.address() < block.address() + block.size() as u64
        && block.address() < memory.address() + memory.size() as u64
}

ktest! {
    fn unused_memory_is_out_of_the_allocator_until_it_is_given_back() {
        let mut found = Vec::with_capacity(16);
        // Whole units are free, however little the machine has used before.
        drop((0..4).map_while(|_| Block::allocate(512)).collect::<Vec<_>>());
        let before = super::teardown::left();
        // The first look may only note that it is unused.
        look(&mut found);
        look(&mut found);
        check!(!found.is_empty());
        for (at, memory) in found.iter().enumerate() {
            check!(memory.address().is_multiple_of(LARGE_PAGE_SIZE as u64));
            check!(memory.size().is_multiple_of(LARGE_PAGE_SIZE) && memory.size() > 0);
            check!(memory.size() <= 4 << 20);
            for other in &found[..at] {
                check!(memory.address() != other.address());
            }
        }
        // It still counts as free, and nobody gets it.
        check!(is_back(before));
        let blocks: Vec<Block> = (0..8).map_while(|_| Block::allocate(512)).collect();
        check!(blocks.iter().all(|block| found.iter().all(|memory| !overlaps(memory, block))));
        drop(blocks);
        // Half of it goes back without a word, of half the host was told.
        let rest = found.split_off(found.len() / 2);
        found.into_iter().for_each(Unused::told);
        drop(rest);
        check!(is_back(before));
        check!(frames::given_back() > 0);
        let given = frames::given_back();
        check!(given <= frames::counts().free);
    }
}
