//! Limits the length of rounds, so that a run keeps to its time.
//!
//! The remaining time is divided among the remaining rounds. On a busy machine rounds get shorter
//! but not fewer, because only several rounds of a result show how much it varies between them.

use std::time::{Duration, Instant};

/// The time of a session.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    /// The time limit of the session; `None`: no limit.
    whole: Option<Duration>,
    /// Rounds made, and their time apart from sampling: starting a process, making files.
    rounds: u32,
    beside: Duration,
}

impl Pace {
    /// Starts now.
    pub fn new(whole: Option<Duration>) -> Self {
        Self { began: Instant::now(), whole, rounds: 0, beside: Duration::ZERO }
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the time is up.
    pub fn is_over(&self) -> bool {
        self.whole.is_some_and(|whole| self.elapsed() > whole)
    }

    /// Returns the sampling time of the next round, at most `wanted`, when so many rounds are still
    /// to be made, including the next one.
    pub fn budget(&self, wanted: Duration, rounds_left: usize) -> Duration {
        let Some(whole) = self.whole else { return wanted };
        let each = whole.saturating_sub(self.elapsed())
            / u32::try_from(rounds_left.max(1)).unwrap_or(u32::MAX);
        let beside = self.beside / self.rounds.max(1);
        wanted.min(each.saturating_sub(beside))
    }

    /// Records that a round with this budget took so long.
    pub fn made(&mut self, budget: Duration, took: Duration) {
        self.rounds += 1;
        self.beside += took.saturating_sub(budget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_share_what_is_left() {
        let wanted = Duration::from_millis(40);
        assert_eq!(Pace::new(None).budget(wanted, 1_000_000), wanted);
        let mut pace = Pace::new(Some(Duration::from_secs(50)));
        assert_eq!(pace.budget(wanted, 100), wanted, "there is time enough");
        let tight = pace.budget(wanted, 5000);
        assert!(
            tight <= Duration::from_millis(10) && tight > Duration::from_millis(5),
            "{tight:?}"
        );
        // Four fifths of each round are spent outside of sampling.
        pace.made(Duration::from_millis(10), Duration::from_millis(18));
        let tighter = pace.budget(wanted, 5000);
        assert!(tighter <= Duration::from_millis(2), "{tighter:?}");
        assert_eq!(pace.budget(wanted, 1_000_000), Duration::ZERO);
        assert!(!pace.is_over());
        assert!(Pace::new(Some(Duration::ZERO)).is_over());
    }
}
