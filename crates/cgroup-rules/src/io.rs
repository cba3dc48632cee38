//! The limits of a group for input and output of a device (`io.max`; block/blk-throttle.c and
//! block/blk-cgroup.c of Linux 6.1), and how a group is held to them.
//!
//! The use of a group is kept as a time: the one at which it would have used so much at the speed
//! that it is allowed ([`Pace`]). Beyond the present that is a debt, and the group waits until it
//! is over. Nothing is saved for later: a group that rested begins anew. The time is one word, so
//! neither a charge nor a look takes a lock.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// No limit.
pub const NO_LIMIT: u64 = u64::MAX;
/// The largest limit of requests that is told from none (`UINT_MAX`).
const MOST_REQUESTS: u64 = u32::MAX as u64;

/// A debt up to which a group goes on, in nanoseconds: so that it does not rest after each page.
pub const SLACK_NS: u64 = 10_000_000;

/// The longest debt, a year: more is forgotten.
const LONGEST_NS: u64 = 365 * 24 * 60 * 60 * 1_000_000_000;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

/// A device and what is behind it in a line that a program wrote into `io.max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
    /// The settings.
    pub settings: &'a [u8],
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let count = text.iter().take_while(|&&byte| is_space(byte)).count();
    text.get(count..).unwrap_or_default()
}

/// `isspace` of the kernel, for ASCII.
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

/// Reads a number as `%llu` of the kernel's sscanf(3) does: spaces, then digits; what follows is
/// returned too. A number of more than 64 bits loses its high ones.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let text = skip_spaces(text);
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(count);
    let add = |sum: u64, byte: &u8| sum.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    (count > 0).then(|| (digits.iter().fold(0, add), rest))
}

impl Line<'_> {
    /// Takes a line apart (`blkg_conf_open_bdev`). `None`: it names no device (`EINVAL`).
    pub fn parse(text: &[u8]) -> Option<Line<'_>> {
        let (major, rest) = number(text)?;
        let (minor, rest) = number(rest.strip_prefix(b":")?)?;
        let (major, minor) = (major as u32, minor as u32);
        rest.first().filter(|&&byte| is_space(byte))?;
        Some(Line { major, minor, settings: skip_spaces(rest) })
    }
}

/// Why settings are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `EINVAL`.
    Invalid,
    /// A limit of nothing at all (`ERANGE`).
    Zero,
}

/// The limits of a group for a device, in a second; [`NO_LIMIT`]: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are read.
    pub read_bytes: u64,
    /// Bytes that are written.
    pub written_bytes: u64,
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits::NONE
    }
}

impl Limits {
    /// No limits.
    pub const NONE: Limits =
        Limits { read_bytes: NO_LIMIT, written_bytes: NO_LIMIT, reads: NO_LIMIT, writes: NO_LIMIT };

    /// The limits after a program has written `settings`: words like `rbps=1048576` or `riops=max`;
    /// what is not named stays (`tg_set_limit`).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn changed(self, settings: &[u8]) -> Result<Limits, Refusal> {
        /// The longest word that is taken as a whole.
        const LONGEST: usize = 26;
        let (mut new, mut rest) = (self, skip_spaces(settings));
        while !rest.is_empty() {
            let length = rest.iter().take(LONGEST).take_while(|&&byte| !is_space(byte)).count();
            let (word, behind) = rest.split_at(length);
            rest = skip_spaces(behind);
            let equals = word.iter().position(|&byte| byte == b'=').ok_or(Refusal::Invalid)?;
            let (name, value) = (&word[..equals], &word[equals + 1..]);
            let value = match number(value) {
                Some((0, _)) => return Err(Refusal::Zero),
                Some((value, _)) => value,
                None if value == b"max" => NO_LIMIT,
                None => return Err(Refusal::Invalid),
            };
            let requests = if value >= MOST_REQUESTS { NO_LIMIT } else { value };
            let (place, value) = match name {
                b"rbps" => (&mut new.read_bytes, value),
                b"wbps" => (&mut new.written_bytes, value),
                b"riops" => (&mut new.reads, requests),
                b"wiops" => (&mut new.writes, requests),
                _ => return Err(Refusal::Invalid),
            };
            // Linux refuses 1 as well.
            if value == 1 {
                return Err(Refusal::Invalid);
            }
            *place = value;
        }
        Ok(new)
    }

    /// Each with its name, in the order in which `io.max` shows them.
    pub fn named(self) -> [(&'static str, u64); 4] {
        [
            ("rbps", self.read_bytes),
            ("wbps", self.written_bytes),
            ("riops", self.reads),
            ("wiops", self.writes),
        ]
    }
}

/// How a group is held to so many units in a second. Times are nanoseconds of any clock that never
/// goes back.
#[derive(Debug)]
pub struct Pace {
    rate: AtomicU64,
    /// When all that it has used would be used at that speed.
    due: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace::new()
    }
}

impl Pace {
    /// Without a limit.
    pub const fn new() -> Pace {
        Pace { rate: AtomicU64::new(NO_LIMIT), due: AtomicU64::new(0) }
    }

    /// The limit; [`NO_LIMIT`]: none.
    pub fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    /// Sets the limit, and forgets the debt if it is another one.
    pub fn set_rate(&self, rate: u64) {
        if self.rate.swap(rate, Relaxed) != rate {
            self.due.store(0, Relaxed);
        }
    }

    /// Charges `units` that are used now.
    pub fn charge(&self, now: u64, units: u64) {
        let rate = self.rate();
        if rate == NO_LIMIT || units == 0 {
            return;
        }
        let nanoseconds = u128::from(units) * 1_000_000_000;
        let taken = nanoseconds.div_ceil(u128::from(rate.max(1)));
        let taken = u64::try_from(taken).unwrap_or(u64::MAX);
        let most = now.saturating_add(LONGEST_NS);
        let add = |due: u64| Some(due.max(now).saturating_add(taken).min(most));
        let _ = self.due.fetch_update(Relaxed, Relaxed, add);
    }

    /// When it has no debt any more. `None`: it has none now.
    pub fn due(&self, now: u64) -> Option<u64> {
        if self.rate() == NO_LIMIT {
            return None;
        }
        Some(self.due.load(Relaxed)).filter(|&due| due > now)
    }
}

/// The limits of a group for one device, and its debts.
#[derive(Debug, Default)]
pub struct Meter {
    /// Bytes and requests of each direction.
    read: [Pace; 2],
    write: [Pace; 2],
}

impl Meter {
    /// Without limits.
    pub const fn new() -> Meter {
        Meter { read: [const { Pace::new() }; 2], write: [const { Pace::new() }; 2] }
    }

    fn of(&self, direction: Direction) -> &[Pace; 2] {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        let ([read_bytes, reads], [written_bytes, writes]) = (&self.read, &self.write);
        Limits {
            read_bytes: read_bytes.rate(),
            written_bytes: written_bytes.rate(),
            reads: reads.rate(),
            writes: writes.rate(),
        }
    }

    /// Sets the limits. Debts of those that change are forgotten.
    pub fn set(&self, limits: Limits) {
        let ([read_bytes, reads], [written_bytes, writes]) = (&self.read, &self.write);
        read_bytes.set_rate(limits.read_bytes);
        reads.set_rate(limits.reads);
        written_bytes.set_rate(limits.written_bytes);
        writes.set_rate(limits.writes);
    }

    /// Whether there is a limit of a direction.
    pub fn is_limited(&self, direction: Direction) -> bool {
        self.of(direction).iter().any(|pace| pace.rate() != NO_LIMIT)
    }

    /// Charges what is transferred now.
    pub fn charge(&self, now: u64, direction: Direction, bytes: u64, requests: u64) {
        let [by_bytes, by_requests] = self.of(direction);
        by_bytes.charge(now, bytes);
        by_requests.charge(now, requests);
    }

    /// When nothing of a direction is owed any more. `None`: nothing is owed now.
    pub fn due(&self, now: u64, direction: Direction) -> Option<u64> {
        let [by_bytes, by_requests] = self.of(direction);
        by_bytes.due(now).max(by_requests.due(now))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;
    use std::vec::Vec;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_line_begins_with_a_device() {
        let device = |text: &str| {
            Line::parse(text.as_bytes()).map(|line| (line.major, line.minor, line.settings.len()))
        };
        assert_eq!(device("254:16 rbps=2"), Some((254, 16, 6)));
        assert_eq!(device("8:0\n"), Some((8, 0, 0)));
        assert_eq!(device(" 8: 0 \t x"), Some((8, 0, 1)));
        for bad in ["", "8", "8:", ":0 ", "8:0", "8:0x", "vda rbps=2", "8-0 ", "-8:0 "] {
            assert_eq!(device(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn settings_are_words_with_values() {
        let change = |text: &str| Limits::NONE.changed(text.as_bytes());
        let limits = change("rbps=2097152 wiops=120\n").unwrap();
        assert_eq!(limits, Limits { read_bytes: 2_097_152, writes: 120, ..Limits::NONE });
        // A limit that is not named stays, and the last of two counts.
        let more = limits.changed(b"riops=5 riops=7 rbps=max").unwrap();
        assert_eq!(more, Limits { writes: 120, reads: 7, ..Limits::NONE });
        assert_eq!(limits.changed(b""), Ok(limits));
        assert_eq!(change("rbps=18446744073709551615"), Ok(Limits::NONE));
        assert_eq!(change("riops=4294967295"), Ok(Limits::NONE));
        assert_eq!(change("riops=99999999999"), Ok(Limits::NONE));
        assert_eq!(change("wbps=4096x").map(|limits| limits.written_bytes), Ok(4096));
        for bad in ["rbps", "rbps=", "rbps=x", "rbps=maximum", "rbps=1", "bps=5", "=5", "rbps =5"] {
            assert_eq!(change(bad), Err(Refusal::Invalid), "{bad:?}");
        }
        assert_eq!(change("rbps=0"), Err(Refusal::Zero));
        assert_eq!(change("what=0"), Err(Refusal::Zero));
        assert_eq!(change("rbps=-5"), Err(Refusal::Invalid));
        assert_eq!(limits.named().map(|(name, _)| name), ["rbps", "wbps", "riops", "wiops"]);
    }

    #[test]
    fn what_is_shown_is_read_again() {
        let mut random = numbers();
        for _ in 0..10_000 {
            let mut any = || match random() % 4 {
                0 => NO_LIMIT,
                1 => 2 + random() % 100,
                _ => 2 + random() % (MOST_REQUESTS - 2),
            };
            let limits =
                Limits { read_bytes: any(), written_bytes: any(), reads: any(), writes: any() };
            let words: Vec<_> = limits
                .named()
                .iter()
                .map(|(name, value)| match *value {
                    NO_LIMIT => format!("{name}=max"),
                    value => format!("{name}={value}"),
                })
                .collect();
            assert_eq!(Limits::NONE.changed(words.join(" ").as_bytes()), Ok(limits));
        }
    }

    fn numbers() -> impl FnMut() -> u64 {
        let mut state = 1u64;
        move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 20
        }
    }

    #[test]
    fn no_text_panics() {
        let mut random = numbers();
        let letters = b"rwbiops=max0123456789: \t\n\xff\0-";
        for _ in 0..100_000 {
            let length = random() % 40;
            let text: Vec<u8> =
                (0..length).map(|_| letters[random() as usize % letters.len()]).collect();
            let _ = Limits::NONE.changed(&text);
            if let Some(line) = Line::parse(&text) {
                let _ = Limits::NONE.changed(line.settings);
            }
        }
    }

    #[test]
    fn a_debt_is_over_in_time() {
        let pace = Pace::new();
        pace.charge(5, 1 << 40);
        assert_eq!(pace.due(5), None);
        pace.set_rate(1000);
        pace.charge(SECOND, 500);
        assert_eq!(pace.due(SECOND), Some(SECOND * 3 / 2));
        pace.charge(SECOND, 500);
        assert_eq!(pace.due(SECOND), Some(2 * SECOND));
        assert_eq!(pace.due(2 * SECOND), None);
        // Nothing was saved meanwhile.
        pace.charge(10 * SECOND, 1000);
        assert_eq!(pace.due(10 * SECOND), Some(11 * SECOND));
        // Another limit begins without a debt; the same one does not.
        pace.set_rate(1000);
        assert_eq!(pace.due(10 * SECOND), Some(11 * SECOND));
        pace.set_rate(2000);
        assert_eq!(pace.due(10 * SECOND), None);
    }

    #[test]
    fn bytes_and_requests_are_limited_by_themselves() {
        let meter = Meter::new();
        meter.set(Limits { read_bytes: 4096, writes: 10, ..Limits::NONE });
        meter.charge(0, Direction::Read, 4096, 100);
        meter.charge(0, Direction::Write, 1 << 30, 1);
        assert_eq!(meter.due(0, Direction::Read), Some(SECOND));
        assert_eq!(meter.due(0, Direction::Write), Some(SECOND / 10));
        meter.set(Limits { read_bytes: 4096, ..Limits::NONE });
        assert_eq!(meter.due(0, Direction::Read), Some(SECOND));
        assert_eq!(meter.due(0, Direction::Write), None);
        assert_eq!(meter.limits(), Limits { read_bytes: 4096, ..Limits::NONE });
    }

    #[test]
    fn over_a_long_time_a_group_gets_its_limit() {
        let mut random = numbers();
        for rate in [2, 1000, 4 << 20, 1 << 33] {
            let pace = Pace::new();
            pace.set_rate(rate);
            let (mut now, mut used) = (0, 0u64);
            let end = 1000 * SECOND;
            while now < end {
                match pace.due(now) {
                    Some(due) if due - now > SLACK_NS => now = due,
                    _ => {
                        let units = 1 + random() % (rate / 50).max(1);
                        used += units;
                        pace.charge(now, units);
                        now += random() % 100_000;
                    }
                }
            }
            let wanted = rate * 1000;
            assert!(used.abs_diff(wanted) <= wanted / 100 + 1, "{rate}: {used} of {wanted}");
        }
    }

    #[test]
    fn no_numbers_break_it() {
        let mut random = numbers();
        let pace = Pace::new();
        for _ in 0..100_000 {
            let mut any = || random().wrapping_shl(random() as u32 % 64);
            let (now, value) = (any(), any());
            if value % 5 == 0 {
                pace.set_rate(value);
            }
            pace.charge(now, value);
            let longest = now.saturating_add(LONGEST_NS);
            if let Some(due) = pace.due(now) {
                assert!(due > now);
                pace.charge(now, 1);
                assert!(pace.due(now).is_some_and(|due| due <= longest));
            }
        }
    }
}
