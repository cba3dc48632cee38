//! The processor time that a group may have in each period (`cpu.max`, `cpu.max.burst`;
//! kernel/sched/core.c and fair.c of Linux 6.1, "CFS bandwidth").
//!
//! Time that was used beyond the quota is a debt, which the next periods pay: so a group that is
//! noticed late is never ahead for long. Nothing happens at the end of a period by itself. Whoever
//! charges time or asks brings the account up to date first.

/// No quota.
pub const NO_QUOTA: u64 = u64::MAX;

const MICROSECOND: u64 = 1000;
/// Of quotas and periods (`min_cfs_quota_period`, `max_cfs_quota_period`), in nanoseconds.
const SHORTEST: u64 = 1_000_000;
const LONGEST_PERIOD: u64 = 1_000_000_000;
/// `max_cfs_runtime`.
const LARGEST: u64 = ((1 << 44) - 1) * MICROSECOND;

/// The processor time that a group is allowed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Of processor time in a period; [`NO_QUOTA`]: all.
    pub quota: u64,
    /// The period.
    pub period: u64,
    /// How much may be saved for later periods.
    pub burst: u64,
}

impl Default for Limit {
    fn default() -> Self {
        Limit::NONE
    }
}

/// Reads the digits at the beginning of a text, as `%llu` does; returns what follows, too.
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(count);
    if digits.is_empty() {
        return None;
    }
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    Some((digits.iter().fold(0, add), rest))
}

impl Limit {
    /// No limit.
    pub const NONE: Limit = Limit { quota: NO_QUOTA, period: 100_000_000, burst: 0 };

    /// Reads what is written to `cpu.max`: a quota or `max`, and perhaps a period, in microseconds
    /// (`cpu_period_quota_parse`). `None`: it is none, or none that is allowed (`EINVAL`).
    pub fn changed(self, text: &[u8]) -> Option<Limit> {
        let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let first = words.next()?;
        let quota = match digits(first) {
            Some((quota, _)) => quota.checked_mul(MICROSECOND)?,
            None if first == b"max" => NO_QUOTA,
            None => return None,
        };
        let period = match words.next().and_then(digits) {
            Some((period, _)) => period.checked_mul(MICROSECOND)?,
            None => self.period,
        };
        Limit { quota, period, ..self }.allowed()
    }

    /// The same with another burst, in microseconds. `None` as for [`changed`](Self::changed).
    pub fn with_burst(self, microseconds: u64) -> Option<Limit> {
        Limit { burst: microseconds.checked_mul(MICROSECOND)?, ..self }.allowed()
    }

    /// `tg_set_cfs_bandwidth`.
    fn allowed(self) -> Option<Limit> {
        let Limit { quota, period, burst } = self;
        if !(SHORTEST..=LONGEST_PERIOD).contains(&period) {
            return None;
        }
        let has_quota = quota != NO_QUOTA;
        if has_quota && !(SHORTEST..=LARGEST).contains(&quota) {
            return None;
        }
        if has_quota && (burst > quota || burst.checked_add(quota)? > LARGEST) {
            return None;
        }
        Some(self)
    }
}

/// The events of a group, as `cpu.stat` tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Periods in which it ran or was held back.
    pub periods: u64,
    /// Those at the end of which it was held back.
    pub throttled: u64,
    /// How long it was held back, in nanoseconds.
    pub throttled_ns: u64,
    /// Periods in which it used what it had saved.
    pub bursts: u64,
    /// How much of that, in nanoseconds.
    pub burst_ns: u64,
}

/// The account of a group. Times are nanoseconds of any clock that never goes back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bandwidth {
    limit: Limit,
    /// How much it may still use; negative: its debt.
    left: i64,
    /// How much it was allowed when the period began.
    allowed: i64,
    /// When the period ends.
    ends: u64,
    /// Since when it is held back.
    spent_since: Option<u64>,
    told: Told,
}

impl Bandwidth {
    /// Without a limit.
    pub const fn new() -> Bandwidth {
        Bandwidth {
            limit: Limit::NONE,
            left: 0,
            allowed: 0,
            ends: 0,
            spent_since: None,
            told: Told { periods: 0, throttled: 0, throttled_ns: 0, bursts: 0, burst_ns: 0 },
        }
    }

    /// The time that it is allowed.
    pub fn limit(&self) -> Limit {
        self.limit
    }

    /// Its events.
    pub fn told(&self) -> Told {
        self.told
    }

    /// Allows it something else from now on: it begins without debt and without savings.
    pub fn set_limit(&mut self, now: u64, limit: Limit) {
        self.advance(now);
        if let Some(since) = self.spent_since.take() {
            self.told.throttled_ns += now.saturating_sub(since);
        }
        self.limit = limit;
        self.left = limit.quota.min(LARGEST) as i64;
        self.allowed = self.left;
        self.ends = now.saturating_add(limit.period);
    }

    /// Charges time that it has used until now. Returns whether it is to be held back.
    pub fn charge(&mut self, now: u64, used: u64) -> bool {
        if self.limit.quota == NO_QUOTA {
            return false;
        }
        self.advance(now);
        self.left = self.left.saturating_sub_unsigned(used);
        if self.left <= 0 && self.spent_since.is_none() {
            self.spent_since = Some(now);
        }
        self.spent_since.is_some()
    }

    /// When it may go on. `None`: it need not wait.
    pub fn waits_until(&mut self, now: u64) -> Option<u64> {
        self.advance(now);
        self.spent_since?;
        let periods = self.periods_to_pay() - 1;
        Some(self.ends.saturating_add(periods.saturating_mul(self.limit.period)))
    }

    /// After how many periods there is something left; at least one.
    fn periods_to_pay(&self) -> u64 {
        let debt = self.left.min(0).unsigned_abs();
        debt / self.limit.quota + 1
    }

    /// Begins the periods that have begun until now.
    fn advance(&mut self, now: u64) {
        let Limit { quota, period, burst } = self.limit;
        if quota == NO_QUOTA || now < self.ends {
            return;
        }
        let passed = (now - self.ends) / period + 1;
        let used = self.allowed.saturating_sub(self.left).min(self.allowed);
        let beyond = used.saturating_sub_unsigned(quota);
        if beyond > 0 {
            self.told.bursts += 1;
            self.told.burst_ns += beyond as u64;
        }
        match self.spent_since {
            Some(since) => {
                let held = self.periods_to_pay().min(passed);
                self.told.periods += held;
                self.told.throttled += held;
                let goes_on = self.ends.saturating_add((held - 1).saturating_mul(period));
                if self.periods_to_pay() <= passed {
                    self.told.throttled_ns += goes_on.saturating_sub(since);
                    self.spent_since = None;
                }
            }
            None => self.told.periods += 1,
        }
        let gained = i64::try_from(quota.saturating_mul(passed)).unwrap_or(i64::MAX);
        let most = i64::try_from(quota.saturating_add(burst)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(gained).min(most);
        self.allowed = self.left;
        self.ends = self.ends.saturating_add(passed.saturating_mul(period));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn limited(quota_ms: u64, period_ms: u64, burst_ms: u64) -> Bandwidth {
        let limit = Limit { quota: quota_ms * MS, period: period_ms * MS, burst: burst_ms * MS };
        let mut bandwidth = Bandwidth::new();
        bandwidth.set_limit(0, limit.allowed().unwrap());
        bandwidth
    }

    #[test]
    fn the_text_is_a_quota_and_a_period() {
        let limit = |text: &str| Limit::NONE.changed(text.as_bytes());
        let some = |quota, period| Some(Limit { quota, period, burst: 0 });
        assert_eq!(limit("50000 100000\n"), some(50 * MS, 100 * MS));
        assert_eq!(limit("50000"), some(50 * MS, 100 * MS));
        assert_eq!(limit("max 20000"), some(NO_QUOTA, 20 * MS));
        assert_eq!(limit("max"), Some(Limit::NONE));
        assert_eq!(limit("2000x"), some(2 * MS, 100 * MS));
        for bad in ["", " ", "-1", "x", "999", "1000 999", "1000 1000001", "17592186044416"] {
            assert_eq!(limit(bad), None, "{bad}");
        }
        let half = limit("50000").unwrap();
        assert_eq!(half.with_burst(50_000).map(|limit| limit.burst), Some(50 * MS));
        assert_eq!(half.with_burst(50_001), None);
        assert_eq!(half.with_burst(u64::MAX), None);
        assert_eq!(half.with_burst(50_000).unwrap().changed(b"40000"), None);
        assert_eq!(Limit::NONE.with_burst(1 << 40).map(|limit| limit.quota), Some(NO_QUOTA));
    }

    #[test]
    fn a_group_waits_for_the_next_period() {
        let mut own = limited(20, 100, 0);
        assert!(!own.charge(10 * MS, 10 * MS));
        assert_eq!(own.waits_until(10 * MS), None);
        assert!(own.charge(22 * MS, 12 * MS));
        assert_eq!(own.waits_until(30 * MS), Some(100 * MS));
        assert_eq!(own.waits_until(100 * MS), None);
        // The debt of two milliseconds is paid.
        assert!(!own.charge(117 * MS, 17 * MS));
        assert!(own.charge(118 * MS, MS));
        let told = own.told();
        assert_eq!((told.periods, told.throttled, told.throttled_ns), (1, 1, 78 * MS));
    }

    #[test]
    fn a_large_debt_takes_several_periods() {
        let mut own = limited(10, 100, 0);
        assert!(own.charge(50 * MS, 50 * MS));
        assert_eq!(own.waits_until(50 * MS), Some(500 * MS));
        assert_eq!(own.waits_until(250 * MS), Some(500 * MS));
        assert_eq!(own.waits_until(500 * MS), None);
        let told = own.told();
        assert_eq!((told.periods, told.throttled, told.throttled_ns), (5, 5, 450 * MS));
        // It is even, so anything more is beyond.
        assert!(own.charge(511 * MS, 11 * MS));
    }

    #[test]
    fn what_is_saved_is_used_later() {
        let mut own = limited(10, 100, 10);
        assert!(!own.charge(250 * MS, 15 * MS));
        assert!(own.charge(260 * MS, 5 * MS));
        assert_eq!(own.waits_until(301 * MS), None);
        assert_eq!((own.told().bursts, own.told().burst_ns), (1, 10 * MS));
    }

    #[test]
    fn another_limit_begins_anew() {
        let mut own = limited(10, 100, 0);
        assert!(own.charge(50 * MS, 50 * MS));
        own.set_limit(60 * MS, Limit::NONE);
        assert_eq!(own.waits_until(61 * MS), None);
        assert!(!own.charge(70 * MS, 1000 * MS));
        assert_eq!(own.told().throttled_ns, 10 * MS);
    }

    #[test]
    fn no_times_break_it() {
        let mut random = 1u64;
        let mut own = Bandwidth::new();
        let mut now = 0u64;
        for round in 0..100_000u64 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = random >> 33;
            now = now.saturating_add(value << (round % 32));
            match round % 7 {
                0 => {
                    let quota = [NO_QUOTA, SHORTEST, LARGEST][value as usize % 3];
                    let period = [SHORTEST, LONGEST_PERIOD][value as usize % 2];
                    let limit = Limit { quota, period, burst: 0 };
                    own.set_limit(now, limit.allowed().unwrap());
                }
                1 => {
                    own.waits_until(now);
                }
                _ => {
                    own.charge(now, value << (round % 30));
                }
            }
        }
        // Over a long time a group gets its quota, however it is charged.
        let mut own = limited(30, 100, 0);
        let (mut now, mut used) = (0, 0);
        while now < 100_000 * MS {
            now += 4 * MS;
            if own.waits_until(now).is_none() {
                used += 4 * MS;
                own.charge(now, 4 * MS);
            }
        }
        assert!(used.abs_diff(30_000 * MS) < 100 * MS, "{used}");
    }
}
