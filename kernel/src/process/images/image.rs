//! An image: a program at the moment before a system call that reaches the outside.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_abi::Result;
use hayate_abi::signal::{SignalSet, SignalStack};
use hayate_random_copies::Pair;

use super::depend;
use super::depend::{Dependency, Mark};
use super::held::Held;
use super::patch::{Facts, Moment, Moments, Patch, Patches, SECOND, STEP, Window};
use super::question::Answer;
use crate::memory::Space;
use crate::memory::space::Lineage;
use crate::process::record::Vectors;
use crate::process::sequences::registration::Registration;
use crate::process::signal::ActionTable;
use crate::process::transform::Position;
use crate::program::Addresses;
use crate::random;
use crate::reclaim::growth::Grow;
use crate::recycle::heirs;
use crate::schedule::time;

/// An image.
pub struct Image {
    /// What its starts have in common; `None`: it has not been compared, or memory was exhausted.
    pub lineage: Option<Arc<Lineage>>,
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
    /// See `rseq(2)`.
    pub sequences: Registration,
    /// Where the strings lie.
    pub vectors: Vectors,
    /// The number of the process that was recorded.
    pub number: u32,
    /// The system call before which it was taken.
    pub call: u64,
    /// The same as it is shown.
    pub horizon: String,
    /// The files that the program holds.
    pub held: Held,
    /// The number of system calls before.
    pub calls: u32,
    /// The answers that the program saw.
    pub answers: Vec<Answer>,
    /// Random bytes that the program drew, in order.
    pub drawn: Vec<u8>,
    /// The random bytes of its auxiliary vector.
    pub auxiliary_random: [u64; 2],
    /// The addresses.
    pub addresses: Addresses,
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
    /// Whether each start has random bytes of its own.
    pub is_fresh: bool,
    /// The starts from it.
    pub starts: AtomicU64,
    /// How many there may be.
    pub most_starts: u64,
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

/// The number of `exit_group(2)`.
pub const EXIT_GROUP: u64 = 231;

/// Why two recordings are not one image.
pub type Difference = &'static str;

impl Image {
    /// Makes a copy of the memory for a process with this number. `ENOMEM`.
    pub fn space_for(&self, number: u32) -> Result<Arc<Space>> {
        let space = match &self.lineage {
            Some(lineage) => heirs::space_of(lineage, &self.space, self.space.limits())?,
            None => self.space.fork()?,
        };
        self.fill(&space, number)?;
        Ok(space)
    }

    /// Lets the spaces of its starts be kept for later ones, if memory suffices.
    pub fn begin_lineage(&mut self) {
        if self.ends().is_none() {
            self.lineage = Lineage::of(&self.space).ok();
        }
    }

    /// Fills in what depends on the process and the time. `ENOMEM`.
    pub fn fill(&self, space: &Space, number: u32) -> Result<()> {
        let mut fresh = Vec::new();
        if self.is_fresh {
            // Those of the auxiliary vector, and those that it drew.
            let count = size_of_val(&self.auxiliary_random) + self.drawn.len();
            fresh.make_room_exact(count)?;
            fresh.resize(count, 0);
            random::fill(&mut fresh);
        }
        let facts = Facts { number, now: Moment::now(), random: &fresh };
        for patch in &self.patches {
            let (word, length) = patch.value.word(&facts);
            let bytes = word.to_le_bytes();
            space.fill_forced(patch.address, bytes.get(..length).unwrap_or(&bytes))?;
        }
        Ok(())
    }

    /// The random bytes of its recording: those of the auxiliary vector, and those that it drew.
    fn random(&self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        all.make_room_exact(size_of_val(&self.auxiliary_random) + self.drawn.len())?;
        self.auxiliary_random.iter().for_each(|word| all.extend_from_slice(&word.to_le_bytes()));
        all.extend_from_slice(&self.drawn);
        Ok(all)
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
            let area = image.sequences;
            (image.blocked, image.clear_tid, image.robust_list, area, image.signal_stack.ss_sp)
        };
        if signals(self) != signals(first) || !self.actions.is_same(&first.actions) {
            return Ok(Err("it handles signals in another way"));
        }
        let same = self.answers.len() == first.answers.len()
            && self.answers.iter_mut().zip(&first.answers).all(|(a, b)| a.merge(b));
        if !same {
            return Ok(Err("it asked other questions"));
        }
        if !self.held.is_same(&first.held) {
            return Ok(Err("it holds other files open"));
        }
        if !self.space.is_mapped_as(&first.space)? {
            return Ok(Err("it mapped other memory"));
        }
        let random = match self.is_fresh {
            true => Some((self.random()?, first.random()?)),
            false => None,
        };
        let pair = random.as_ref().map(|(mine, theirs)| Pair::new(mine, theirs));
        if let Some(None) = pair {
            return Ok(Err("it drew other numbers of random bytes"));
        }
        let mut found = Patches {
            patches: Vec::new(),
            numbers: (self.number, first.number),
            windows: (self.window, first.window),
            readings: (self.moments(), first.moments()),
            random: pair.flatten(),
            dead: self.space.stack_range().map_or(0..0, |stack| {
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

impl Image {
    /// The status with which a start from it ends at once, if that is what it does next
    /// (`exit_group(2)`).
    pub fn ends(&self) -> Option<i32> {
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

    /// Counts a start that is about to begin. Returns false if there were as many as there may be.
    pub fn takes_start(&self) -> bool {
        let one_more = |starts| (starts < self.most_starts).then_some(starts + 1);
        self.starts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}
