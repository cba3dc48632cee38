//! Tests of the hashes of names, inside the kernel: their keys are drawn at boot.

use alloc::vec;
use alloc::vec::Vec;

use crate::hash::hash_name;
use crate::{check, ktest};

ktest! {
    /// Names that collide under repeated multiplication without keys: the uppermost bit of a word
    /// passes a product unchanged, and a bit of the next word cancels it.
    fn names_made_to_collide_do_not() {
        const PAIRS: usize = 12;
        const COUNT: usize = 1 << PAIRS;
        let mut buckets = vec![0_u8; COUNT];
        let mut all = Vec::new();
        for number in 0..COUNT {
            let mut name = [b'a'; PAIRS * 16];
            for (pair, words) in name.chunks_exact_mut(16).enumerate() {
                if number >> pair & 1 != 0 {
                    words[7] ^= 0x80;
                    words[8] ^= 0x10;
                }
            }
            let hash = hash_name(&name);
            buckets[hash as usize % COUNT] += 1;
            all.push(hash);
        }
        all.sort_unstable();
        all.dedup();
        check!(all.len() == COUNT);
        check!(buckets.iter().all(|&count| count < 20));
    }
}
