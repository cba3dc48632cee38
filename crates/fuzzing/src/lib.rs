//! Repeatable random numbers and settings, shared by the fuzzers of the other crates.
//!
//! `FUZZ_ROUNDS` sets how many inputs are tried and `FUZZ_SEED` the first one, for all of them.

#![forbid(unsafe_code)]

/// xorshift64*: any generator with the same results everywhere would do.
pub struct Random(u64);

impl Random {
    /// Makes a generator that begins at `seed`, which may be any number.
    pub fn new(seed: u64) -> Random {
        // Zero would stay zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, or 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit.max(1) as u64) as usize
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// How many inputs to try: `FUZZ_ROUNDS`, or `default`.
pub fn rounds(default: u64) -> u64 {
    setting("FUZZ_ROUNDS", default)
}

/// The first seed: `FUZZ_SEED`, or 1.
pub fn seed() -> u64 {
    setting("FUZZ_SEED", 1)
}
