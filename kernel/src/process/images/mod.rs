//! Remembered starts: the image of a program after its start-up is kept, and the next start of the
//! same command begins there.
//!
//! Most of what a short program executes it executes at every start: the dynamic linker, the
//! interpreter's own start-up. The kernel sees everything that it reads meanwhile. So it can prove
//! that the next start would come to the same point, and begin there.
//!
//! * The second start of a command is **recorded**, from its first instruction to its **horizon**:
//!   the first system call that reaches the outside, or whose effect the kernel does not follow
//!   (the rules: `syscall/recorder/rules.rs`). Before that call is carried out, the memory is copied
//!   as fork copies it, with the registers; the program goes on and notices nothing.
//! * The third start is recorded too, with another process number and with clocks that are more
//!   than a day ahead ([`table::SHIFTS`]). The two images must be equal, byte for byte, but for
//!   places that hold the number or the time: these are filled in at each start ([`patch::Patch`]).
//!   Random bytes and addresses are the same in both on purpose; a bounded number of starts from
//!   one image share them, as the children of a fork server do. With `images=fresh-random` the
//!   random bytes are others, and places that hold them are filled in too.
//! * A program reads every clock by the time stamp counter, directly or in the vDSO. While it is
//!   recorded, that instruction is refused (CR4.TSD, Intel SDM vol. 3, 2.5), and the kernel
//!   answers: so it decides what time the program sees. At the horizon of the second recording the
//!   program's own memory gets the right time at the same places; if the two images do not agree,
//!   or the recording ends before, the program is started again. Nobody can tell: it has reached
//!   nothing.
//! * Everything that a recorded program looks up, finds absent, reads or examines is entered in an
//!   index ([`depend`]) first. A change of any spoils the image when it happens.
//! * The fourth start, and each one after it, **begins at the image**: `execve(2)` finds the
//!   program as always, asks again what the program asked about its inherited descriptors
//!   ([`question`]), opens the files that the program holds ([`held`]), copies the image's memory,
//!   and returns to the instruction of the horizon's system call.
//!
//! If images of a command are spoiled again and again by one file, the next recording ends before
//! that file is touched: the script that is written anew for each job.
//!
//! What is never recorded: a program with set-user-id bits, one that its user may not read, one in
//! supervisor mode. One user's images serve no other user: the credentials are part of the key.
//!
//! The policy word `image` switches all of this on; without it, exec pays one load and one branch.
//!
//! Layers, lowest first: [`depend`], [`question`], [`held`], [`patch`], [`image`], [`key`],
//! [`table`], [`kept`], [`recording`], [`asking`], and this module, which joins them to threads.
//!
//! Road not taken: recording at the level of instructions, as debuggers do. It would slow the
//! recorded start a hundred times and prove the same.

pub mod asking;
pub mod depend;
pub mod held;
pub mod image;
mod kept;
pub mod key;
pub mod patch;
pub mod question;
pub mod recording;
pub mod table;
mod wishes;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use hashbrown::HashTable;
use hayate_abi::Result;
use hayate_machine::fpu::FpuState;
use hayate_machine::sync::Once;
use hayate_machine::trap::UserRegs;
use hayate_machine::{debug, fpu, frames, info, user, vdso};
use hayate_recycler::KeptKinds;
use hayate_start_account::Began;

use crate::memory::{PAGE, Space};
use crate::process::pids;
use crate::process::record::Vectors;
use crate::process::sequences;
use crate::process::signal::{ActionTable, send};
use crate::process::templates;
use crate::process::thread::Thread;
use crate::process::transform::{Position, Running};
use crate::program;
use crate::program::stack::Stack;
use crate::program::{Addresses, Beginning, Program};
use crate::random;
use crate::reclaim::growth::Grow;
use crate::recycle::policy;
use crate::schedule;
use crate::schedule::time;
use crate::vfs::watch;

pub use asking::Start;

use depend::Mark;
use held::{Held, Opened, OwnFile};
use image::{EXIT_GROUP, Image};
use key::Key;
use patch::Moment;
use recording::Recording;
use table::{Entry, Next};

/// The least time that an image must save to be worth its copy, in nanoseconds.
const WORTH: u64 = 30_000;

/// Prepares the module; boot calls it once, after the policy is known.
pub fn init() {
    wishes::init();
    table::LIMIT.store(frames::total() / 8 * PAGE, Ordering::Relaxed);
    watch::register(&depend::Reports);
    kept::init();
}

/// Whether starts are remembered: the policy says so.
#[inline]
pub fn are_wanted() -> bool {
    policy::keeps(KeptKinds::IMAGE)
}

/// How a program that exec has found begins.
pub enum Course {
    /// At its first instruction.
    Plain,
    /// At its first instruction, and is recorded.
    Recorded(Box<Plan>),
    /// At an image.
    Image(Box<Begin>),
    /// At a template.
    Template(Box<templates::Begin>),
}

impl Course {
    /// Where it begins, for a measurement.
    pub fn began(&self) -> Began {
        match self {
            Course::Plain => Began::First,
            Course::Recorded(_) => Began::Recorded,
            Course::Image(_) => Began::Image,
            Course::Template(_) => Began::Template,
        }
    }

    /// What exec prepares for it.
    pub fn beginning(&self) -> Beginning {
        match self {
            Course::Plain => Beginning::Usual,
            Course::Recorded(plan) => Beginning::Fixed(plan.addresses, plan.random),
            Course::Template(begin) => begin.beginning(),
            Course::Image(begin) => {
                let Vectors { arguments, environment, environment_end, .. } = begin.vectors;
                let Vectors { auxiliary, auxiliary_end, .. } = begin.vectors;
                let stack = Stack {
                    pointer: 0,
                    arguments,
                    environment,
                    environment_end,
                    auxiliary,
                    auxiliary_end,
                };
                Beginning::Under(Arc::clone(&begin.space), stack)
            }
        }
    }
}

/// A recording that is to begin.
pub struct Plan {
    entry: Arc<Entry>,
    first: Option<Arc<Image>>,
    /// The addresses that the program gets, if a first recording decided them.
    pub addresses: Option<Addresses>,
    /// The random bytes of the auxiliary vector.
    pub random: [u64; 2],
}

/// A start that begins at an image.
pub struct Begin {
    /// The memory.
    pub space: Arc<Space>,
    /// Where the strings lie.
    pub vectors: Vectors,
    image: Arc<Image>,
    actions: Arc<ActionTable>,
    files: Opened,
}

/// Decides how a program begins that the current thread is about to execute. Call it only if
/// [`are_wanted`].
#[cold]
#[inline(never)]
pub fn choose(thread: &Thread, program: &Program, start: &Start<'_>) -> Course {
    let Some(hash) = asking::noted(thread, program, start) else { return Course::Plain };
    let Ok(next) = asking::with(thread, program, start, hash, table::next) else {
        return Course::Plain;
    };
    match next {
        Next::Nothing => Course::Plain,
        Next::Record(entry, first) => {
            let addresses = first.as_ref().map(|image| image.addresses);
            let random = match &first {
                Some(image) if !image.is_fresh => image.auxiliary_random,
                _ => [random::quick_word(), random::quick_word()],
            };
            Course::Recorded(Box::new(Plan { entry, first, addresses, random }))
        }
        Next::Begin(entry, image) => begin_at(thread, &entry, image).unwrap_or(Course::Plain),
    }
}

/// Prepares a start from an image. `None`: an answer that the program saw is another one now, a
/// file that it held cannot be opened any more, or memory is exhausted.
fn begin_at(thread: &Thread, entry: &Entry, image: Arc<Image>) -> Option<Course> {
    let now = time::realtime_ns();
    if now < image.holds.0 || now >= image.holds.1 {
        entry.expire();
        return None;
    }
    if !image.answers.iter().all(|answer| answer.holds(thread)) {
        entry.miss();
        return None;
    }
    let space = match image.ends() {
        // It needs no memory to end.
        Some(_) => program::new_space(image.space.limits(), false).ok()?,
        None => image.space_for(thread.process().id()).ok()?,
    };
    let files = match image.ends() {
        Some(_) => Opened::default(),
        None => image.held.open(thread).inspect_err(|_| entry.miss()).ok()?,
    };
    let actions = Arc::new(image.actions.fork());
    // Checked last: a change that another process saw before it called exec has spoiled the mark
    // by now.
    if image.mark.is_spoiled() {
        return None;
    }
    if !image.takes_start() {
        entry.expire();
        return None;
    }
    entry.hit();
    let vectors = image.vectors;
    Some(Course::Image(Box::new(Begin { space, vectors, image, actions, files })))
}

impl Begin {
    /// Completes the start of a process that has the image's memory: its registers, its signals,
    /// and what the C library has told the kernel.
    ///
    /// Returns the status with which the process is to end, if its image's next act is its end:
    /// then no instruction of it is executed, and it gets neither registers nor handlers.
    pub fn complete(&self, running: &mut Running<'_, '_>) -> Option<i32> {
        let (thread, image) = (running.thread, &self.image);
        kept::REUSED.fetch_add(1, Ordering::Relaxed);
        if let Some(status) = image.ends() {
            return Some(status);
        }
        if image.held.install(&self.files, thread).is_err() {
            // Behind the point of no return, as in Linux.
            send::kill(thread.process());
        }
        thread.process().set_actions(Arc::clone(&self.actions));
        thread.set_blocked(image.blocked);
        thread.set_signal_stack(image.signal_stack);
        thread.clear_tid.store(image.clear_tid, Ordering::Relaxed);
        thread.robust_list.store(image.robust_list, Ordering::Relaxed);
        sequences::resume(thread, image.sequences);
        // The state was written by this kernel, so it is valid.
        let _ = fpu::from_signal_bytes(&image.fpu);
        running.change_position(&image.position);
        None
    }
}

impl Plan {
    /// Begins to record the current thread's program, which has its space but has not executed an
    /// instruction. If memory is exhausted, it is not recorded.
    #[cold]
    pub fn begin(self, thread: &Thread, vectors: Vectors) {
        let process = thread.process();
        let execution = schedule::current();
        sweep();
        watch::report_changes(true);
        let Some(space) = thread.space() else { return };
        if !execution.may_read_tsc() {
            return self.entry.refuse("it may not read the time stamp counter");
        }
        let mut from = Moment::now();
        let mut shift = 0;
        if self.first.is_some() {
            shift = self.entry.shift();
            from = from.later(shift * time::tsc_hz(), shift * 1_000_000_000);
        }
        let recording = Recording {
            volatile: self.entry.volatile(),
            most_calls: self.entry.most_calls(),
            places: HashTable::new(),
            reached: ArrayVec::new(),
            entry: self.entry,
            first: self.first,
            process: process.serial(),
            mark: Arc::new(Mark::default()),
            dependencies: Vec::new(),
            answers: Vec::new(),
            drawn: Vec::new(),
            draws: ArrayVec::new(),
            auxiliary_random: self.random,
            addresses: self.addresses.unwrap_or_else(|| Addresses::of(&space)),
            vectors,
            own: ArrayVec::new(),
            calls: 0,
            from,
            shift,
            readings: 0,
            varies: None,
            run: run_time(),
            done: false,
        };
        if recording::begin(process.id(), Box::new(recording)) {
            execution.let_read_tsc(false);
        }
    }
}

/// What tells the time that the measurement of the current thread's start took, in nanoseconds.
static PUT_ASIDE: Once<fn() -> u64> = Once::new();

/// Registers what measures starts, which lies above this module; boot calls it once, if anything
/// does.
pub fn put_aside_by(aside: fn() -> u64) {
    PUT_ASIDE.call_once(|| aside);
}

/// The processor time of the current thread in nanoseconds, without what its measurement took.
fn run_time() -> u64 {
    let aside = PUT_ASIDE.get().map_or(0, |aside| aside());
    schedule::current().run_time().saturating_sub(aside)
}

/// Gives up recordings whose process has ended.
fn sweep() {
    for (number, serial) in recording::processes() {
        let process = pids::process(number);
        if process.is_none_or(|process| process.serial() != serial || process.is_zombie()) {
            recording::give_up(number, serial);
        }
    }
}

/// What becomes of a recorded program when its recording ends.
pub enum After {
    /// It goes on.
    GoesOn,
    /// It has lived in another time and kept something of it: it is to be started again
    /// ([`follow`]).
    StartsAgain(Arc<Entry>),
}

/// What starts a program again ([`start_again_by`]).
type StartAgain = fn(&Thread, &mut UserRegs<'_>, &Key) -> Result<()>;

static START_AGAIN: Once<StartAgain> = Once::new();

/// Registers what starts a recorded program again: exec, which lies above this module. Boot calls
/// it once.
pub fn start_again_by(exec: StartAgain) {
    START_AGAIN.call_once(|| exec);
}

/// Does what becomes of a recorded program. Returns with `regs` as they were, or as those of the
/// first instruction.
#[cold]
pub fn follow(thread: &Thread, regs: &mut UserRegs<'_>, after: After) {
    let After::StartsAgain(entry) = after else { return };
    let exec = START_AGAIN.get();
    if exec.is_none_or(|exec| exec(thread, regs, &entry.key).is_err()) {
        // Memory is exhausted, or the file is gone: a start that cannot be completed ends, as one
        // does that fails behind the point of no return.
        send::kill(thread.process());
    }
}

/// Gives up the recording of a process, if there is one: something happened to it that its program
/// did not ask for.
#[cold]
pub fn give_up(thread: &Thread, why: &'static str) -> After {
    let process = thread.process();
    match recording::take(process.id(), process.serial()) {
        Some(recording) => abandon(thread, recording, why),
        None => After::GoesOn,
    }
}

/// Ends a recording that was taken and comes to nothing.
pub fn abandon(thread: &Thread, mut recording: Box<Recording>, why: &'static str) -> After {
    recording.done = true;
    depend::forget(&recording.mark, &recording.dependencies);
    recording.entry.fail(why);
    let after = match recording.is_shifted() {
        true => starts_again(thread, &recording),
        false => After::GoesOn,
    };
    drop(recording);
    end(thread);
    after
}

/// Ends the recording of a thread that was taken: its program reads the counter itself again.
fn end(thread: &Thread) {
    recording::end(thread.process().id());
    schedule::current().let_read_tsc(true);
}

/// Whether the program was switched to supervisor mode while it was recorded: calls through the
/// gate are not watched there, so nothing is known of what it has reached.
fn has_been_supervisor(thread: &Thread) -> bool {
    thread.space().is_some_and(|space| space.was_supervisor())
}

fn starts_again(thread: &Thread, recording: &Recording) -> After {
    if has_been_supervisor(thread) {
        // It may have reached the outside, and must not do that twice. It keeps a wrong time.
        return After::GoesOn;
    }
    held::close(thread, &recording.own);
    After::StartsAgain(Arc::clone(&recording.entry))
}

/// Answers a recorded program that reads the time stamp counter, at the instruction that `regs`
/// name. `None`: the program is not recorded, or this is another instruction.
#[cold]
pub fn read_counter(thread: &Thread, regs: &mut UserRegs<'_>) -> Option<After> {
    const RDTSC: [u8; 2] = [0x0f, 0x31];
    let process = thread.process();
    let mut recording = recording::take(process.id(), process.serial())?;
    let value = match instruction(regs.rip) {
        Some(RDTSC) => recording.read_counter(vdso::holds(regs.rip)),
        _ => None,
    };
    let Some(value) = value else {
        // It is another instruction, which traps by itself once more, or reads the counter too
        // often to be told a made-up time.
        return Some(abandon(thread, recording, "it reads the counter in its own way"));
    };
    recording::put_back(process.id(), recording);
    regs.rax = value & 0xffff_ffff;
    regs.rdx = value >> 32;
    regs.rip += RDTSC.len() as u64;
    Some(After::GoesOn)
}

/// The two bytes of an instruction of the current program, which may be in the vDSO.
fn instruction(at: u64) -> Option<[u8; 2]> {
    let mut bytes = [0; 2];
    if let Some(object) = vdso::object()
        && vdso::holds(at)
    {
        let offset = (at as usize).wrapping_sub(object);
        bytes.copy_from_slice(vdso::content().get(offset..offset + 2)?);
    } else {
        user::copy_in(&mut bytes, at as usize).ok()?;
    }
    Some(bytes)
}

/// Ends a recording that was taken, at its horizon: keeps an image of the program as it is before
/// the system call that `regs` ask for, which is shown as `horizon`.
pub fn reach_horizon(
    thread: &Thread,
    regs: &UserRegs<'_>,
    mut recording: Box<Recording>,
    horizon: String,
) -> After {
    if has_been_supervisor(thread) {
        return abandon(thread, recording, "it was in supervisor mode");
    }
    if thread.space().is_some_and(|space| space.stays_out()) {
        return abandon(thread, recording, "it came to a control group whose memory is counted");
    }
    if let Some(own) = recording.own.iter().find(|own| own.file != OwnFile::File) {
        // It cannot be opened anew: the next recording ends before it is opened.
        recording.entry.end_at(own.calls);
        return abandon(thread, recording, "it holds a socket or a device open");
    }
    let entry = Arc::clone(&recording.entry);
    debug!(
        "images: {} comes to its horizon at {horizon} after {} calls",
        entry.key.path().escape_ascii(),
        recording.calls
    );
    let first = recording.first.take();
    let mut image = match capture(thread, regs, &mut recording, horizon) {
        Ok(image) => image,
        Err(why) => {
            recording.first = first;
            return abandon(thread, recording, why);
        }
    };
    recording.done = true;
    let varies = recording.varies;
    let own = core::mem::take(&mut recording.own);
    let draws = core::mem::take(&mut recording.draws);
    drop(recording);
    end(thread);
    if image.saved < WORTH && first.is_none() {
        entry.refuse("its start-up is too short to be worth an image");
        return After::GoesOn;
    }
    let Some(first) = first else {
        entry.take(Arc::new(image), false);
        return After::GoesOn;
    };
    let why = match image.agree(&first) {
        Ok(Ok(())) => None,
        Ok(Err(why)) => {
            if !(image.is_fresh && entry.disagree_by_chance(&draws)) {
                entry.disagree(varies);
            }
            Some(why)
        }
        Err(_) => Some("memory is exhausted"),
    };
    if let Some(why) = why {
        info!("images: {} is not remembered: {why}", entry.key.path().escape_ascii());
        entry.fail(why);
        held::close(thread, &own);
        return After::StartsAgain(entry);
    }
    let space = thread.space();
    let filled = space.is_some_and(|space| image.fill(&space, thread.process().id()).is_ok());
    kept::MADE.fetch_add(1, Ordering::Relaxed);
    image.begin_lineage();
    entry.take(Arc::new(image), true);
    table::keep_limit();
    if filled {
        return After::GoesOn;
    }
    held::close(thread, &own);
    After::StartsAgain(entry)
}

/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

fn capture(
    thread: &Thread,
    regs: &UserRegs<'_>,
    recording: &mut Recording,
    horizon: String,
) -> core::result::Result<Image, &'static str> {
    const EXHAUSTED: &str = "memory is exhausted";
    let process = thread.process();
    let mut position = Position {
        regs: regs.copied(),
        fs_base: hayate_machine::cpu::user_fs_base(),
        gs_base: hayate_machine::cpu::user_gs_base(),
    };
    position.regs.rip = position.regs.rip.wrapping_sub(SYSCALL.len() as u64);
    position.regs.rax = regs.orig_rax;
    position.regs.orig_rax = u64::MAX;
    if instruction(position.regs.rip) != Some(SYSCALL) {
        return Err("its system call is not where it should be");
    }
    let mut state = Vec::new();
    state.make_room_exact(FpuState::signal_size()).map_err(|_| EXHAUSTED)?;
    state.resize(FpuState::signal_size(), 0);
    if !fpu::to_signal_bytes(&mut state) {
        return Err("its floating-point state cannot be kept");
    }
    let own = thread.space().ok_or("it has no memory")?;
    if !own.is_its_own() {
        return Err("it shares memory with others");
    }
    if !recording.entry.key.has_limits(&process.limits()) {
        return Err("its limits were changed");
    }
    sequences::show_first(thread).map_err(|_| "its area for sequences cannot be written")?;
    let held = Held::by(thread, &recording.own).ok_or("it holds a file that is gone")?;
    let saved = run_time().saturating_sub(recording.run);
    // No start uses the memory of a program that ends: it is compared, as it is before the end.
    let is_end = regs.orig_rax == EXIT_GROUP && process.thread_count() == 1;
    let space = if is_end { Arc::clone(&own) } else { own.fork().map_err(|_| EXHAUSTED)? };
    let clear_tid = thread.clear_tid.load(Ordering::Relaxed);
    if is_end {
        // Nobody waits for that in memory that no other process has.
        thread.clear_tid.store(0, Ordering::Relaxed);
    }
    if own.was_changed_from_outside() {
        // Asked after the copy: another process says so before it changes something.
        return Err("another process wrote into it, or changed its limits");
    }
    space.remember_contents();
    let resident = space.resident();
    let bytes = (resident.anonymous + resident.tables + 1) * PAGE;
    image::count(bytes);
    Ok(Image {
        lineage: None,
        position,
        fpu: state,
        actions: Arc::new(process.actions().fork()),
        blocked: thread.blocked(),
        signal_stack: thread.signal_stack(),
        clear_tid,
        robust_list: thread.robust_list.load(Ordering::Relaxed),
        sequences: thread.sequences.registration(),
        vectors: recording.vectors,
        number: process.id(),
        call: regs.orig_rax,
        horizon,
        held,
        calls: recording.calls,
        answers: core::mem::take(&mut recording.answers),
        drawn: core::mem::take(&mut recording.drawn),
        auxiliary_random: recording.auxiliary_random,
        addresses: recording.addresses,
        mark: Arc::clone(&recording.mark),
        dependencies: core::mem::take(&mut recording.dependencies),
        window: recording.window(),
        began: recording.from,
        readings: recording.readings,
        holds: (0, 0),
        saved,
        patches: Vec::new(),
        bytes,
        is_fresh: wishes::fresh_random(),
        starts: AtomicU64::new(0),
        most_starts: wishes::most_starts(),
        space,
    })
}
