//! An image: a program at the moment before a system call that reaches the outside.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::schedule::time;
use arrayvec::ArrayVec;
use hayate_abi::Result;
use hayate_abi::signal::{SignalSet, SignalStack};

use super::depend;
use super::depend::{Dependency, Mark};
use super::question::Answer;
use crate::memory::{Layout, PAGE, Space};
use crate::process::record::Vectors;
use crate::process::signal::ActionTable;
use crate::process::transform::Position;
use crate::reclaim::growth::Grow;

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

const SECOND: u64 = 1_000_000_000;

impl Value {
    /// What is written for a process with this number at this moment, and how many bytes.
    fn word(self, number: u32, now: &Moment) -> (u64, usize) {
        match self {
            Value::Number => (u64::from(number), 4),
            Value::Counter => (now.counter, 8),
            Value::Whole(clock) => (now.of(clock), 8),
            Value::Seconds(clock) => (now.of(clock) / SECOND, 8),
            Value::Microseconds(clock) => (now.of(clock) % SECOND / 1000, 8),
            Value::Nanoseconds(clock) => (now.of(clock) % SECOND, 8),
            Value::Seed(constant, parts) => {
                (u64::from(constant ^ parts.mixed(number, now.real / 1000)), 4)
            }
        }
    }
}

/// An image.
pub struct Image {
    /// The memory: never run in, only copied.
    pub space: Arc<Space>,
    /// Where the program goes on: at the instruction of the system call.
    pub position: Position,
    /// The floating-point state, in the form of a signal frame.
    pub fpu: Vec<u8>,
    /// The signal actions.
    pub actions: Arc<ActionTable>,
    /// The blocked signals.
    pub blocked: SignalSet,
    /// The alternate signal stack.
    pub signal_stack: SignalStack,
    /// See `set_tid_address(2)`.
    pub clear_tid: usize,
    /// See `set_robust_list(2)`.
    pub robust_list: usize,
    /// Where the strings lie.
    pub vectors: Vectors,
    /// The number of the process that was recorded.
    pub number: u32,
    /// The system call before which it was taken, and how many the program had made.
    pub call: u64,
    /// The number of system calls before.
    pub calls: u32,
    /// The answers that the program saw.
    pub answers: Vec<Answer>,
    /// Random bytes that the program drew, in order.
    pub drawn: Vec<u8>,
    /// The random bytes of its auxiliary vector.
    pub auxiliary_random: [u64; 2],
    /// The addresses.
    pub layout: Layout,
    /// Whether it still holds.
    pub mark: Arc<Mark>,
    /// What it depends on.
    pub dependencies: Vec<Dependency>,
    /// When it was recorded.
    pub window: Window,
    /// When its recording began, as its program saw it.
    pub began: Moment,
    /// How often its program had read the counter.
    pub readings: u32,
    /// The real times between which it holds, in nanoseconds; known once a second recording was
    /// compared.
    pub holds: (u64, u64),
    /// The time that its program took to come here, in nanoseconds.
    pub saved: u64,
    /// What is filled in at a start; known once a second recording was compared.
    pub patches: Vec<Patch>,
    /// The memory that it keeps, in bytes.
    pub bytes: usize,
    /// The starts from it.
    pub starts: AtomicU64,
}

/// The memory that all images keep, in bytes.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The memory that all images keep, in bytes.
pub fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Counts the memory of an image that is made; its end subtracts it.
pub fn count(bytes: usize) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

impl Drop for Image {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Ordering::Relaxed);
        depend::forget(&self.mark, &self.dependencies);
    }
}

/// Why two recordings are not one image.
pub type Difference = &'static str;

impl Image {
    /// Makes a copy of the memory for a process with this number. `ENOMEM`.
    pub fn space_for(&self, number: u32) -> Result<Arc<Space>> {
        let space = self.space.fork()?;
        self.fill(&space, number)?;
        Ok(space)
    }

    /// Fills in what depends on the process and the time. `ENOMEM`.
    pub fn fill(&self, space: &Space, number: u32) -> Result<()> {
        let now = Moment::now();
        for patch in &self.patches {
            let (word, length) = patch.value.word(number, &now);
            let bytes = word.to_le_bytes();
            space.fill_forced(patch.address, bytes.get(..length).unwrap_or(&bytes))?;
        }
        Ok(())
    }

    /// Compares with a second recording of the same command and keeps what to fill in at a start.
    /// The outer error is `ENOMEM`.
    pub fn agree(&mut self, first: &Image) -> Result<core::result::Result<(), Difference>> {
        if (self.call, self.calls) != (first.call, first.calls) {
            return Ok(Err("it made other system calls"));
        }
        if !is_same_position(&self.position, &first.position) {
            return Ok(Err("its registers differ"));
        }
        if self.fpu != first.fpu {
            return Ok(Err("its floating-point registers differ"));
        }
        let signals = |image: &Image| {
            (image.blocked, image.clear_tid, image.robust_list, image.signal_stack.ss_sp)
        };
        if signals(self) != signals(first) || !self.actions.is_same(&first.actions) {
            return Ok(Err("it handles signals in another way"));
        }
        let same = self.answers.len() == first.answers.len()
            && self.answers.iter_mut().zip(&first.answers).all(|(a, b)| a.merge(b));
        if !same {
            return Ok(Err("it asked other questions"));
        }
        if !self.space.is_mapped_as(&first.space)? {
            return Ok(Err("it mapped other memory"));
        }
        let mut found = Patches {
            patches: Vec::new(),
            numbers: (self.number, first.number),
            windows: (self.window, first.window),
            readings: (self.moments(), first.moments()),
            stack: self.space.stack_range().map_or(0..0, |stack| {
                // What lies below the stack pointer and the red zone (System V ABI, 3.2.2) is dead.
                stack.start..(self.position.regs.rsp as usize).saturating_sub(128)
            }),
            lacking: false,
        };
        let same = self
            .space
            .compare(&first.space, &mut |address, mine, other| found.page(address, mine, other))?;
        if found.lacking {
            return Err(hayate_abi::Errno::ENOMEM);
        }
        if !same {
            return Ok(Err("its memory differs"));
        }
        self.patches = found.patches;
        self.holds = (first.window.from.real, self.window.from.real);
        Ok(Ok(()))
    }
}

/// Whether both go on at the same place with the same registers, without the two that the system
/// call itself changes.
fn is_same_position(one: &Position, other: &Position) -> bool {
    let words = |position: &Position| {
        let regs = &position.regs;
        [
            [regs.rax, regs.rbx, regs.rdx, regs.rsi, regs.rdi, regs.rbp],
            [regs.rsp, regs.rip, regs.r8, regs.r9, regs.r10, regs.r12],
            [regs.r13, regs.r14, regs.r15, position.fs_base, position.gs_base, 0],
        ]
    };
    for (at, (a, b)) in words(one).iter().flatten().zip(words(other).iter().flatten()).enumerate() {
        if a != b {
            hayate_machine::debug!("images: registers {at} {a:#x} and {b:#x} differ");
        }
    }
    words(one) == words(other)
}

/// The first moments at which a recorded program read a clock, in microseconds of the real time.
type Moments = ArrayVec<u64, 16>;

/// Finds out what differs between two recordings, and whether it can be filled in.
struct Patches {
    patches: Vec<Patch>,
    numbers: (u32, u32),
    windows: (Window, Window),
    /// The moments, in microseconds of the real time, at which the programs read a clock.
    readings: (Moments, Moments),
    stack: core::ops::Range<usize>,
    lacking: bool,
}

/// The most places that are filled in.
const MOST: usize = 64;

impl Patches {
    /// Looks at a page that differs; false if something in it cannot be explained.
    fn page(&mut self, address: usize, mine: &[u8; PAGE], other: &[u8; PAGE]) -> bool {
        let (mine, _) = mine.as_chunks::<8>();
        let (other, _) = other.as_chunks::<8>();
        let words = mine.iter().zip(other).enumerate();
        // The place right behind seconds, where their part may be.
        let mut behind = None;
        for (at, (mine, other)) in words {
            let place = address + at * 8;
            let (a, b) = (u64::from_le_bytes(*mine), u64::from_le_bytes(*other));
            if a == b || self.stack.contains(&place) {
                continue;
            }
            let part = behind.take().filter(|(expected, _)| *expected == place);
            let explained = part.is_some_and(|(_, clock)| self.part(place, a, b, clock))
                || self.number(place, a, b)
                || self.time(place, a, b, &mut behind)
                || self.seeds(place, a, b);
            if !explained {
                hayate_machine::debug!("images: at {place:#x} {a:#x} and {b:#x} differ");
                return false;
            }
        }
        true
    }

    fn put(&mut self, address: usize, value: Value) -> bool {
        self.lacking |= self.patches.make_room(1).is_err();
        if self.lacking || self.patches.len() == MOST {
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

impl Image {
    /// The status with which a start from it ends at once, if that is what it does next
    /// (`exit_group(2)`).
    pub fn ends(&self) -> Option<i32> {
        const EXIT_GROUP: u64 = 231;
        (self.call == EXIT_GROUP).then_some(self.position.regs.rdi as i32)
    }

    fn moments(&self) -> Moments {
        let hertz = time::tsc_hz().max(1);
        let after = |reading: u64| {
            let passed = u128::from(reading * STEP) * u128::from(SECOND) / u128::from(hertz);
            (self.began.real + passed as u64) / 1000
        };
        (1..=u64::from(self.readings)).map(after).take(16).collect()
    }

    /// Notes a start.
    pub fn note_start(&self) {
        self.starts.fetch_add(1, Ordering::Relaxed);
    }
}
