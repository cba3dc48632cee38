//! How to wait for memory whose flush takes time and raises no interrupt.
//!
//! Most flushes complete at once, so the waiter polls continuously at first. A flush that takes
//! longer waits for a disk, so the pauses between polls grow. A flush that has not completed after
//! [`Patience::END`] never will.

/// The next step of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Poll again.
    Now,
    /// Poll again when the clock has reached this time.
    At(u64),
    /// Give up: it will not complete any more.
    Never,
}

/// A wait that began at some time. All times are nanoseconds of a monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    since: u64,
}

impl Patience {
    /// How long to poll without a pause.
    pub const BUSY: u64 = 50_000;
    /// The longest pause.
    pub const LONGEST: u64 = 2_000_000;
    /// How long to wait in total: longer than a disk with much to write, or a busy host, takes.
    pub const END: u64 = 60_000_000_000;

    /// A wait that begins now.
    pub fn new(now: u64) -> Patience {
        Patience { since: now }
    }

    /// Returns the next step if the flush has not completed by now.
    pub fn next(&self, now: u64) -> Look {
        let waited = now.saturating_sub(self.since);
        match waited {
            ..Self::BUSY => Look::Now,
            // A pause is a quarter of the wait so far: it delays the result by at most that much.
            Self::BUSY..Self::END => Look::At(now.saturating_add((waited / 4).min(Self::LONGEST))),
            Self::END.. => Look::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Look, Patience};

    #[test]
    fn a_wait_ends() {
        let (mut now, mut looks) = (7, 0);
        let patience = Patience::new(now);
        loop {
            looks += 1;
            now = match patience.next(now) {
                Look::Now => now + 500,
                Look::At(then) => {
                    assert!(then > now && then - now <= Patience::LONGEST);
                    then
                }
                Look::Never => break,
            };
        }
        assert!(now - 7 >= Patience::END && now - 7 < Patience::END + 2 * Patience::LONGEST);
        assert!(looks < 40_000, "{looks} looks");
    }

    #[test]
    fn an_answer_is_seen_soon() {
        for answer in [1_000, 49_000, 80_000, 1_000_000, 30_000_000, 5_000_000_000] {
            let mut now = 0;
            let patience = Patience::new(now);
            while now < answer {
                now = match patience.next(now) {
                    Look::Now => now + 500,
                    Look::At(then) => then,
                    Look::Never => panic!("given up at {now}"),
                };
            }
            assert!(now - answer <= (answer / 4).clamp(500, Patience::LONGEST), "{answer}: {now}");
        }
    }

    #[test]
    fn clocks_at_their_ends_do_no_harm() {
        assert_eq!(Patience::new(5).next(0), Look::Now);
        assert_eq!(Patience::new(0).next(u64::MAX), Look::Never);
        assert_eq!(Patience::new(u64::MAX).next(u64::MAX), Look::Now);
    }
}
