//! What is filled in at each start from an image, and how it is found: places where two recordings
//! differ, and whose values are the number of the process, a time, or random bytes.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use hayate_random_copies as copies;
use hayate_random_copies::{Copied, Pair};

use crate::memory::PAGE;
use crate::reclaim::growth::Grow;
use crate::schedule::time;

/// A moment, by all clocks that a program can read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// The time stamp counter.
    pub counter: u64,
    /// The real time, in nanoseconds.
    pub real: u64,
    /// The monotonic time, in nanoseconds.
    pub monotonic: u64,
}

impl Moment {
    /// This moment.
    pub fn now() -> Moment {
        Moment { counter: time::tsc(), real: time::realtime_ns(), monotonic: time::monotonic_ns() }
    }

    /// The moment this much later: ticks of the counter, which are so many nanoseconds.
    pub fn later(self, ticks: u64, nanoseconds: u64) -> Moment {
        Moment {
            counter: self.counter.wrapping_add(ticks),
            real: self.real.wrapping_add(nanoseconds),
            monotonic: self.monotonic.wrapping_add(nanoseconds),
        }
    }

    fn of(&self, clock: Clock) -> u64 {
        match clock {
            Clock::Real => self.real,
            Clock::Monotonic => self.monotonic,
        }
    }
}

/// The ticks between two readings of the counter by a recorded program: fewer than the exception
/// takes that each of them is, so the counter never goes back when the recording ends.
pub const STEP: u64 = 64;

/// The time in which a recording ran, as its program saw it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// When it began.
    pub from: Moment,
    /// When it ended.
    pub to: Moment,
}

/// A place in an image whose content is filled in at each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address.
    pub address: usize,
    /// What is written there.
    pub value: Value,
}

/// A clock of nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The real time.
    Real,
    /// The monotonic time.
    Monotonic,
}

/// What is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The number of the process, four bytes.
    Number,
    /// The time stamp counter, eight bytes.
    Counter,
    /// The nanoseconds of a clock, eight bytes.
    Whole(Clock),
    /// The seconds of a clock, eight bytes.
    Seconds(Clock),
    /// The microseconds within the second, eight bytes.
    Microseconds(Clock),
    /// The nanoseconds within the second, eight bytes.
    Nanoseconds(Clock),
    /// A seed, four bytes: this number with the seconds of the real time, its microseconds and the
    /// number of the process, as far as [`Parts`] says, by exclusive or.
    Seed(u32, Parts),
    /// Random bytes of the start.
    Random(Copied),
    /// A pointer as the C library hides it by them.
    Mangled(u64),
}

/// What fills the places of one start.
pub struct Facts<'a> {
    /// The number of the process.
    pub number: u32,
    /// The time.
    pub now: Moment,
    /// Its random bytes, if they are its own.
    pub random: &'a [u8],
}

/// What a seed is made of besides a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The seconds.
    pub seconds: bool,
    /// The microseconds within the second.
    pub microseconds: bool,
    /// The number of the process.
    pub number: bool,
}

impl Parts {
    /// All that seeds are made of.
    const ALL: [Parts; 5] = [
        Parts { seconds: true, microseconds: true, number: true },
        Parts { seconds: true, microseconds: false, number: true },
        Parts { seconds: true, microseconds: true, number: false },
        Parts { seconds: false, microseconds: true, number: true },
        Parts { seconds: true, microseconds: false, number: false },
    ];

    /// The parts of a process with this number, at this real time in microseconds.
    fn mixed(self, number: u32, microseconds: u64) -> u32 {
        let part = |used: bool, value: u32| if used { value } else { 0 };
        part(self.seconds, (microseconds / 1_000_000) as u32)
            ^ part(self.microseconds, (microseconds % 1_000_000) as u32)
            ^ part(self.number, number)
    }
}

/// Nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

impl Value {
    /// What is written, and how many bytes.
    pub fn word(self, facts: &Facts<'_>) -> (u64, usize) {
        let Facts { number, now, random } = facts;
        match self {
            Value::Number => (u64::from(*number), 4),
            Value::Counter => (now.counter, 8),
            Value::Whole(clock) => (now.of(clock), 8),
            Value::Seconds(clock) => (now.of(clock) / SECOND, 8),
            Value::Microseconds(clock) => (now.of(clock) % SECOND / 1000, 8),
            Value::Nanoseconds(clock) => (now.of(clock) % SECOND, 8),
            Value::Seed(constant, parts) => {
                (u64::from(constant ^ parts.mixed(*number, now.real / 1000)), 4)
            }
            Value::Random(copied) => copied.word(random),
            Value::Mangled(pointer) => (copies::mangled(pointer, random), 8),
        }
    }
}

/// The first moments at which a recorded program read a clock, in microseconds of the real time.
pub type Moments = ArrayVec<u64, 16>;

/// Finds out what differs between two recordings, and whether it can be filled in.
pub struct Patches<'a> {
    /// The places.
    pub patches: Vec<Patch>,
    /// The numbers of the processes.
    pub numbers: (u32, u32),
    /// The times in which they ran.
    pub windows: (Window, Window),
    /// The moments, in microseconds of the real time, at which the programs read a clock.
    pub readings: (Moments, Moments),
    /// The random bytes of both, where they had other ones.
    pub random: Option<Pair<'a>>,
    /// Memory whose content does not matter.
    pub dead: core::ops::Range<usize>,
    /// Whether memory is exhausted.
    pub lacking: bool,
}

/// The most places that are filled in, without and with those of random bytes: each piece of memory
/// that a program has given back holds some.
const MOST: usize = 64;
const MOST_RANDOM: usize = 1024;

impl Patches<'_> {
    /// Looks at a page that differs; false if something in it cannot be explained.
    pub fn page(&mut self, address: usize, mine: &[u8; PAGE], other: &[u8; PAGE]) -> bool {
        let (mine, _) = mine.as_chunks::<8>();
        let (other, _) = other.as_chunks::<8>();
        let words = mine.iter().zip(other).enumerate();
        // The place right behind seconds, where their part may be.
        let mut behind = None;
        for (at, (mine, other)) in words {
            let place = address + at * 8;
            let (a, b) = (u64::from_le_bytes(*mine), u64::from_le_bytes(*other));
            if a == b || self.dead.contains(&place) {
                continue;
            }
            let part = behind.take().filter(|(expected, _)| *expected == place);
            let explained = part.is_some_and(|(_, clock)| self.part(place, a, b, clock))
                || self.number(place, a, b)
                || self.time(place, a, b, &mut behind)
                || self.random(place, a, b)
                || self.seeds(place, a, b);
            if !explained {
                hayate_machine::debug!("images: at {place:#x} {a:#x} and {b:#x} differ");
                return false;
            }
        }
        true
    }

    fn put(&mut self, address: usize, value: Value) -> bool {
        let most = if self.random.is_some() { MOST_RANDOM } else { MOST };
        self.lacking |= self.patches.make_room(1).is_err();
        if self.lacking || self.patches.len() == most {
            return false;
        }
        self.patches.push(Patch { address, value });
        true
    }

    /// The number of the process, in one half of the word.
    fn number(&mut self, place: usize, a: u64, b: u64) -> bool {
        let is = |a: u64, b: u64| (a as u32, b as u32) == self.numbers;
        let low = is(a, b);
        let high = is(a >> 32, b >> 32);
        let same_low = a as u32 == b as u32;
        let same_high = a >> 32 == b >> 32;
        if !((low || same_low) && (high || same_high)) {
            return false;
        }
        (!low || self.put(place, Value::Number)) && (!high || self.put(place + 4, Value::Number))
    }

    /// A reading of a clock.
    fn time(&mut self, place: usize, a: u64, b: u64, behind: &mut Option<(usize, Clock)>) -> bool {
        let windows = (self.windows.0, self.windows.1);
        let both = |read: &dyn Fn(&Moment) -> u64| {
            let within =
                |word, window: &Window| (read(&window.from)..=read(&window.to)).contains(&word);
            within(a, &windows.0) && within(b, &windows.1)
        };
        if both(&|at| at.counter) {
            return self.put(place, Value::Counter);
        }
        for clock in [Clock::Real, Clock::Monotonic] {
            if both(&|at| at.of(clock)) {
                return self.put(place, Value::Whole(clock));
            }
            if both(&|at| at.of(clock) / SECOND) {
                *behind = Some((place + 8, clock));
                return self.put(place, Value::Seconds(clock));
            }
            // A part of a second by itself, whose seconds were overwritten: the windows are so
            // short that another value lies in both once in a thousand million.
            if both(&|at| at.of(clock) % SECOND) {
                return self.put(place, Value::Nanoseconds(clock));
            }
            if both(&|at| at.of(clock) % SECOND / 1000) {
                return self.put(place, Value::Microseconds(clock));
            }
        }
        false
    }

    /// Random bytes, or what the C library makes of them.
    fn random(&mut self, place: usize, a: u64, b: u64) -> bool {
        let Some(pair) = self.random else { return false };
        if let Some(copied) = pair.word(a, b) {
            return self.put(place, Value::Random(copied));
        }
        if let Some(pointer) = pair.pointer(a, b) {
            return self.put(place, Value::Mangled(pointer));
        }
        let halves = [(place, a as u32, b as u32), (place + 4, (a >> 32) as u32, (b >> 32) as u32)];
        halves.into_iter().all(|(place, a, b)| {
            let copied = pair.half(a, b);
            a == b || copied.is_some_and(|copied| self.put(place, Value::Random(copied)))
        })
    }

    /// Seeds, in one half of the word or in both.
    fn seeds(&mut self, place: usize, a: u64, b: u64) -> bool {
        let halves = [(place, a as u32, b as u32), (place + 4, (a >> 32) as u32, (b >> 32) as u32)];
        halves.into_iter().all(|(place, a, b)| a == b || self.seed(place, a, b))
    }

    /// A number that programs draw their first random number from: the time and their own number,
    /// by exclusive or. The constant is the same in both recordings, or it is no seed.
    fn seed(&mut self, place: usize, a: u32, b: u32) -> bool {
        let (mine, theirs) = self.numbers;
        for parts in Parts::ALL {
            for (at, then) in self.readings.0.iter().zip(&self.readings.1) {
                // The kernel's own reading was some instructions before or after.
                for (x, y) in (0..9).map(|pair| (pair / 3, pair % 3)) {
                    let constant = a ^ parts.mixed(mine, at + x - 1);
                    if constant == b ^ parts.mixed(theirs, then + y - 1) {
                        return self.put(place, Value::Seed(constant, parts));
                    }
                }
            }
        }
        false
    }

    /// The part of a second behind its seconds.
    fn part(&mut self, place: usize, a: u64, b: u64, clock: Clock) -> bool {
        if a < SECOND / 1000 && b < SECOND / 1000 {
            self.put(place, Value::Microseconds(clock))
        } else if a < SECOND && b < SECOND {
            self.put(place, Value::Nanoseconds(clock))
        } else {
            false
        }
    }
}
