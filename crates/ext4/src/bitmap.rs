//! Bits of a bitmap: the format's order, lowest bit of the lowest byte first.

use crate::error::{Error, Result, buffer};
use alloc::vec::Vec;
use core::ops::Range;

/// Whether bit `at` is set; bits beyond the end are.
pub fn get(bits: &[u8], at: u32) -> bool {
    bits.get((at / 8) as usize).is_none_or(|byte| byte >> (at % 8) & 1 != 0)
}

/// Sets or clears the bits of `range`, which must not exceed the end.
pub fn fill(bits: &mut [u8], range: Range<u32>, value: bool) {
    let mut at = range.start;
    while at < range.end {
        let whole = at.is_multiple_of(8) && range.end - at >= 8;
        let Some(byte) = bits.get_mut((at / 8) as usize) else { return };
        if whole {
            *byte = if value { 0xff } else { 0 };
            at += 8;
        } else {
            let mask = 1 << (at % 8);
            *byte = if value { *byte | mask } else { *byte & !mask };
            at += 1;
        }
    }
}

/// The number of set bits of `range`.
pub fn count(bits: &[u8], range: Range<u32>) -> u32 {
    let mut at = range.start;
    let mut sum = 0;
    while at < range.end {
        if at.is_multiple_of(8) && range.end - at >= 8 {
            sum += bits.get((at / 8) as usize).map_or(8, |byte| byte.count_ones());
            at += 8;
        } else {
            sum += u32::from(get(bits, at));
            at += 1;
        }
    }
    sum
}

/// A view of two bitmaps of which a bit is free if it is zero in both.
#[derive(Clone, Copy)]
pub struct Free<'a> {
    pub used: &'a [u8],
    pub held: Option<&'a [u8]>,
}

impl Free<'_> {
    fn word(&self, index: usize) -> u64 {
        let word = |bits: &[u8]| {
            let bytes = bits.get(index * 8..index * 8 + 8);
            bytes.and_then(|bytes| bytes.try_into().ok()).map_or(!0, u64::from_le_bytes)
        };
        word(self.used) | self.held.map_or(0, word)
    }

    /// The first bit from `from` on, below `end`, that is free (`wanted`) or is not.
    fn next(&self, from: u32, end: u32, wanted: bool) -> u32 {
        let mut at = from;
        while at < end {
            let word = self.word((at / 64) as usize);
            let word = if wanted { word } else { !word } >> (at % 64);
            let here = 64 - at % 64;
            let skip = word.trailing_ones().min(here);
            at += skip;
            if skip < here {
                break;
            }
        }
        at.min(end)
    }

    /// The first free run in `range`, of at most `most` bits.
    pub fn run(&self, range: Range<u32>, most: u32) -> Option<Range<u32>> {
        let start = self.next(range.start, range.end, true);
        if start >= range.end {
            return None;
        }
        let limit = range.end.min(start.saturating_add(most));
        Some(start..self.next(start, limit, false))
    }

    /// The first free run of `want` bits, or the longest one, if none has so many.
    pub fn best(&self, range: Range<u32>, want: u32) -> Option<Range<u32>> {
        let mut best: Option<Range<u32>> = None;
        let mut at = range.start;
        while let Some(run) = self.run(at..range.end, want) {
            at = run.end;
            let length = run.end - run.start;
            if best.as_ref().is_none_or(|best| length > best.end - best.start) {
                best = Some(run);
            }
            if length >= want {
                break;
            }
        }
        best
    }
}

/// Blocks that were freed in one transaction and must not be used before it has committed: a
/// bitmap for each group that has some. Ascending.
#[derive(Default)]
pub struct Held(Vec<(u32, Vec<u8>)>);

impl Held {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn group(&self, group: u32) -> Option<&[u8]> {
        let at = self.0.binary_search_by_key(&group, |entry| entry.0).ok()?;
        self.0.get(at).map(|entry| entry.1.as_slice())
    }

    /// Adds bits of a group, whose bitmap has `size` bytes.
    pub fn add(&mut self, group: u32, range: Range<u32>, size: usize) -> Result<()> {
        let at = match self.0.binary_search_by_key(&group, |entry| entry.0) {
            Ok(at) => at,
            Err(at) => {
                let bits = buffer(size)?;
                self.0.try_reserve(1).map_err(|_| Error::Memory)?;
                self.0.insert(at, (group, bits));
                at
            }
        };
        if let Some((_, bits)) = self.0.get_mut(at) {
            fill(bits, range, true);
        }
        Ok(())
    }

    /// Takes bits back.
    pub fn remove(&mut self, group: u32, range: Range<u32>) {
        if let Ok(at) = self.0.binary_search_by_key(&group, |entry| entry.0)
            && let Some((_, bits)) = self.0.get_mut(at)
        {
            fill(bits, range, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_a_plain_search() {
        let mut state = 1u64;
        for _ in 0..200 {
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u32
            };
            let used: Vec<u8> = (0..32).map(|_| (random() & random()) as u8).collect();
            let held: Vec<u8> = (0..32).map(|_| (random() & random() & random()) as u8).collect();
            let (from, want) = (random() % 256, 1 + random() % 9);
            let free = Free { used: &used, held: Some(&held) };
            let is_free = |at: u32| at < 256 && !get(&used, at) && !get(&held, at);
            let start = (from..256).find(|&at| is_free(at));
            let run = free.run(from..256, want);
            assert_eq!(run.as_ref().map(|run| run.start), start);
            if let Some(run) = run {
                assert!(run.clone().all(is_free) && run.end - run.start <= want);
                assert!(run.end - run.start == want || !is_free(run.end));
            }
            let whole = (from..256).find(|&at| (at..at + want).all(is_free));
            let best = free.best(from..256, want);
            match (whole, best) {
                (Some(at), best) => assert_eq!(best, Some(at..at + want)),
                (None, Some(best)) => {
                    assert!(best.clone().all(is_free));
                    let more = best.end - best.start + 1;
                    assert!(!(from..256).any(|at| (at..at + more).all(is_free)));
                }
                (None, None) => assert_eq!(start, None),
            }
        }
    }

    #[test]
    fn ranges_are_filled_and_counted() {
        let mut bits = [0u8; 8];
        fill(&mut bits, 3..41, true);
        assert_eq!(count(&bits, 0..64), 38);
        fill(&mut bits, 5..8, false);
        assert_eq!((count(&bits, 0..64), count(&bits, 4..9)), (35, 2));
        assert!(!get(&bits, 2) && get(&bits, 3) && get(&bits, 4) && !get(&bits, 5));
        assert!(get(&bits, 64));
    }
}
