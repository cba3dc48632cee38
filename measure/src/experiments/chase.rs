//! Pointer chases: each load needs the result of the previous one, so that latency cannot be
//! hidden. The order is one random cycle through all nodes (Sattolo's algorithm), which no
//! prefetcher can predict.

use crate::sys::memory::Mapping;
use std::arch::asm;

/// Loads per turn of the unrolled loop.
pub const UNROLLED: u32 = 16;

/// Links nodes at `offsets` into one random cycle; returns the address of one of them.
pub fn link(mapping: &Mapping, offsets: &[usize]) -> usize {
    let mut random = fastrand::Rng::with_seed(0x6861_7461);
    let mut order: Vec<u32> = (0..offsets.len() as u32).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.usize(..i));
    }
    // `order` is a permutation that is a single cycle: node i is followed by node order[i].
    for (from, to) in order.iter().enumerate() {
        mapping.link(offsets[from], offsets[*to as usize]);
    }
    mapping.start() + offsets.first().copied().unwrap_or(0)
}

/// Follows `loads` links from `node`, a multiple of [`UNROLLED`]; returns the last node.
///
/// # Safety
/// `node` must come from [`link`] or from this function, on a mapping that still exists.
#[inline(always)]
pub unsafe fn follow(mut node: usize, loads: u32) -> usize {
    let turns = (loads / UNROLLED).max(1);
    // SAFETY: every node of the cycle holds the address of a node of the same mapping.
    unsafe {
        asm!(
            "2:",
            ".rept 16",
            "mov {node}, [{node}]",
            ".endr",
            "dec {turns:e}",
            "jnz 2b",
            node = inout(reg) node,
            turns = inout(reg) turns => _,
            options(readonly, nostack),
        );
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::Pages;

    #[test]
    fn one_cycle_visits_every_node_once() {
        let mapping = Mapping::anonymous(1 << 16, Pages::Default).unwrap();
        let offsets: Vec<usize> = (0..512).map(|i| i * 64).collect();
        let first = link(&mapping, &offsets);
        let (mut node, mut seen) = (first, 0);
        loop {
            // SAFETY: sixteen links at a time, on a mapping of this test.
            let after_16 = unsafe { follow(node, UNROLLED) };
            seen += 16;
            node = after_16;
            if node == first {
                break;
            }
            assert!(seen < 512 * 16, "the nodes are not one cycle");
        }
        // 512 nodes, visited every 16th: the cycle closes after 512 links exactly.
        assert_eq!(seen, 512);
    }
}
