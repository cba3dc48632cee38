//! Random bytes found again in a program's memory, and what C libraries make of them.
//!
//! A program runs twice with other random bytes. A word of its memory that differs is explained if
//! one function gives both values of both runs' bytes: a copy of some of them, a canary of the
//! stack, a pointer that is hidden by them. Then the word of a third run can be computed from its
//! bytes. A word that no function explains is not: the program has made something else of them.
//!
//! The bytes of a run are the sixteen of `AT_RANDOM` (`getauxval(3)`), followed by those that it
//! drew by `getrandom(2)` or from a device, in order.
//!
//! A word of eight bytes is explained by chance once in 2^64 tries, half of one too: both runs'
//! values have to fit, at the same place of the bytes.
#![no_std]
#![forbid(unsafe_code)]

use core::ops::Range;

/// The bytes of `AT_RANDOM`, as words.
const FIRST: Range<usize> = 0..8;
const SECOND: Range<usize> = 8..16;

/// The rotation of hidden pointers: twice the bytes of a pointer and one (glibc, `PTR_MANGLE` of
/// sysdeps/unix/sysv/linux/x86_64/pointer_guard.h).
const ROTATION: u32 = 17;

/// What of the bytes at a place is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Eight bytes.
    Whole,
    /// Four bytes.
    Half,
    /// The canary of glibc: eight bytes, of which the first is zero (`_dl_setup_stack_chk_guard`,
    /// sysdeps/generic/dl-osinfo.h).
    CanaryOfGlibc,
    /// The canary of musl: eight bytes, of which the second is zero (`__init_ssp`,
    /// src/env/__stack_chk_fail.c).
    CanaryOfMusl,
}

/// A copy of random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The first byte that is copied.
    at: u32,
    form: Form,
}

fn load<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<[u8; SIZE]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn word_at(bytes: &[u8], place: Range<usize>) -> Option<u64> {
    load(bytes, place.start).map(u64::from_le_bytes)
}

impl Form {
    fn of(self, word: u64) -> u64 {
        match self {
            Form::Whole => word,
            Form::Half => word & 0xffff_ffff,
            Form::CanaryOfGlibc => word & !0xff,
            Form::CanaryOfMusl => word & !0xff00,
        }
    }
}

impl Copied {
    /// The word of a run with these bytes, and how many bytes of it there are.
    pub fn word(self, random: &[u8]) -> (u64, usize) {
        let at = self.at as usize;
        match self.form {
            Form::Half => {
                (load(random, at).map_or(0, |half| u64::from(u32::from_le_bytes(half))), 4)
            }
            form => (form.of(load(random, at).map_or(0, u64::from_le_bytes)), 8),
        }
    }
}

/// A pointer as a run with these bytes has it hidden.
pub fn mangled(pointer: u64, random: &[u8]) -> u64 {
    (pointer ^ word_at(random, SECOND).unwrap_or(0)).rotate_left(ROTATION)
}

/// The random bytes of two runs.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    one: &'a [u8],
    other: &'a [u8],
}

/// The most bytes that are looked through.
pub const LONGEST: usize = 16 + 4096;

impl<'a> Pair<'a> {
    /// Joins the bytes of two runs: as many, and no more than [`LONGEST`].
    pub fn new(one: &'a [u8], other: &'a [u8]) -> Option<Pair<'a>> {
        (one.len() == other.len() && one.len() <= LONGEST).then_some(Pair { one, other })
    }

    /// Explains a word as a copy: `a` of the one run, `b` of the other.
    pub fn word(&self, a: u64, b: u64) -> Option<Copied> {
        for form in [Form::CanaryOfGlibc, Form::CanaryOfMusl] {
            let canary = |bytes| word_at(bytes, FIRST).map(|word| form.of(word));
            if canary(self.one) == Some(a) && canary(self.other) == Some(b) {
                return Some(Copied { at: 0, form });
            }
        }
        self.find(a.to_le_bytes(), b.to_le_bytes(), Form::Whole)
    }

    /// Explains half a word as a copy.
    pub fn half(&self, a: u32, b: u32) -> Option<Copied> {
        self.find(a.to_le_bytes(), b.to_le_bytes(), Form::Half)
    }

    fn find<const SIZE: usize>(&self, a: [u8; SIZE], b: [u8; SIZE], form: Form) -> Option<Copied> {
        let mut places = self.one.windows(SIZE).zip(self.other.windows(SIZE));
        let at = places.position(|(one, other)| one == a && other == b)?;
        Some(Copied { at: u32::try_from(at).ok()?, form })
    }

    /// Explains a word as a hidden pointer, and returns it: the same in both runs.
    pub fn pointer(&self, a: u64, b: u64) -> Option<u64> {
        let shown = |word: u64, bytes| Some(word.rotate_right(ROTATION) ^ word_at(bytes, SECOND)?);
        let pointer = shown(a, self.one)?;
        (shown(b, self.other)? == pointer).then_some(pointer)
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, Vec<u8>)> {
        (16usize..100).prop_flat_map(|length| {
            let one = || prop::collection::vec(any::<u8>(), length);
            (one(), one(), one())
        })
    }

    proptest! {
        /// What two runs have copied, a third has at the same place.
        #[test]
        fn a_copy_is_found((one, other, third) in bytes(), at in any::<prop::sample::Index>()) {
            let pair = Pair::new(&one, &other).unwrap();
            let at = at.index(one.len() - 7);
            let at_of = |bytes: &[u8]| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let copied = pair.word(at_of(&one), at_of(&other)).unwrap();
            for (random, length) in [(&one, 8), (&other, 8), (&third, 8)] {
                prop_assert_eq!(copied.word(random), (at_of(random), length));
            }
            let half = pair.half(at_of(&one) as u32, at_of(&other) as u32).unwrap();
            prop_assert_eq!(half.word(&third), (at_of(&third) & 0xffff_ffff, 4));
        }

        /// Canaries are those of the libraries.
        #[test]
        fn a_canary_is_found((one, other, third) in bytes()) {
            let pair = Pair::new(&one, &other).unwrap();
            for zero in [0, 1] {
                let canary = |bytes: &[u8]| {
                    let mut word: [u8; 8] = bytes[..8].try_into().unwrap();
                    word[zero] = 0;
                    u64::from_le_bytes(word)
                };
                let copied = pair.word(canary(&one), canary(&other)).unwrap();
                prop_assert_eq!(copied.word(&third), (canary(&third), 8));
            }
        }

        /// A hidden pointer is shown, and hidden again.
        #[test]
        fn a_pointer_is_found((one, other, third) in bytes(), pointer in any::<u64>()) {
            let pair = Pair::new(&one, &other).unwrap();
            let found = pair.pointer(mangled(pointer, &one), mangled(pointer, &other));
            prop_assert_eq!(found, Some(pointer));
            let guard = u64::from_le_bytes(third[8..16].try_into().unwrap());
            prop_assert_eq!(mangled(pointer, &third), (pointer ^ guard).rotate_left(17));
        }

        /// What fits one run alone is not explained.
        #[test]
        fn chance_explains_nothing((one, other, _) in bytes(), word in any::<u64>()) {
            let pair = Pair::new(&one, &other).unwrap();
            let first = u64::from_le_bytes(one[..8].try_into().unwrap());
            prop_assume!(!other.windows(8).any(|bytes| bytes == word.to_le_bytes()));
            prop_assume!(word & 0xff != 0 && word & 0xff00 != 0);
            prop_assert_eq!(pair.word(first, word), None);
            prop_assert_eq!(pair.pointer(mangled(word, &one), mangled(!word, &other)), None);
        }
    }

    #[test]
    fn too_much_is_not_looked_through() {
        let long = [0; LONGEST + 1];
        assert!(Pair::new(&long, &long).is_none());
        assert!(Pair::new(&long[..16], &long[..17]).is_none());
        let short = Pair::new(&[], &[]).unwrap();
        assert_eq!((short.word(0, 0), short.half(0, 0), short.pointer(0, 0)), (None, None, None));
        assert_eq!(mangled(1, &[]), 1 << 17);
    }
}
