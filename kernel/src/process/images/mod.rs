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
//!   places that hold the number or the time: these are filled in at each start ([`image::Patch`]).
//!   Random bytes and addresses are the same in both on purpose; starts from one image share them,
//!   as the children of a fork server do.
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
//!   ([`question`]), copies the image's memory, and returns to the instruction of the horizon's
//!   system call.
//!
//! If images of a command are spoiled again and again by one file, the next recording ends before
//! that file is touched: the script that is written anew for each job.
//!
//! What is never recorded: a program with set-user-id bits, one that its user may not read, one in
//! supervisor mode. One user's images serve no other user: the credentials are part of the key.
//!
//! The policy word `image` switches all of this on; without it, exec pays one load and one branch.
//!
//! Layers, lowest first: [`depend`], [`question`], [`image`], [`key`], [`table`], [`recording`],
//! and this module, which joins them to threads.
//!
//! Road not taken: recording at the level of instructions, as debuggers do. It would slow the
//! recorded start a hundred times and prove the same.

pub mod depend;
pub mod image;
pub mod key;
pub mod question;
pub mod recording;
pub mod table;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::sync::Once;
use hayate_machine::trap::UserRegs;
use hayate_machine::{boot, debug, fpu, frames, info, user, vdso};
use hayate_recycler::{KeptKinds, ResourceKind};

use crate::memory::{Layout, PAGE, Space};
use crate::process::pids;
use crate::process::record::Vectors;
use crate::process::signal::{ActionTable, send};
use crate::process::thread::Thread;
use crate::process::transform::{Position, Running};
use crate::program;
use crate::program::stack::Stack;
use crate::program::{Beginning, Program, Strings};
use crate::random;
use crate::reclaim::growth::Grow;
use crate::recycle::registry;
use crate::recycle::registry::{ResourceAttributes, ResourceRow, ResourceSource, Serial};
use crate::recycle::{policy, pools};
use crate::schedule;
use crate::schedule::time;
use crate::vfs::watch;

use depend::Mark;
use image::{Image, Moment};
use key::{Asked, Key};
use recording::Recording;
use table::{Entry, Next};

/// The least time that an image must save to be worth its copy, in nanoseconds.
const WORTH: u64 = 30_000;

/// Prepares the module; boot calls it once, after the policy is known.
pub fn init() {
    table::LIMIT.store(frames::total() / 8 * PAGE, Ordering::Relaxed);
    watch::register(&depend::Reports);
    pools::register(&Images);
    registry::register(&Images);
}

/// Whether starts are remembered: the policy says so, and nothing measures or traces every call.
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
}

impl Course {
    /// What exec prepares for it.
    pub fn beginning(&self) -> Beginning {
        match self {
            Course::Plain => Beginning::Usual,
            Course::Recorded(plan) => Beginning::Fixed(plan.layout, plan.random),
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
    pub layout: Option<Layout>,
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
}

/// What exec knows of a start besides its program.
pub struct Start<'a> {
    /// The path by which the program was named.
    pub path: &'a [u8],
    /// Its arguments.
    pub arguments: &'a Strings,
    /// Its environment.
    pub environment: &'a Strings,
    /// Whether addresses are random.
    pub randomise: bool,
}

/// Decides how a program begins that the current thread is about to execute. Call it only if
/// [`are_wanted`].
#[cold]
#[inline(never)]
pub fn choose(thread: &Thread, program: &Program, start: &Start<'_>) -> Course {
    let process = thread.process();
    let plain = program.executable.is_set_id()
        || !program.is_readable()
        || process.keeps_mode.load(Ordering::Relaxed)
        || thread.pending() != 0
        || boot::option("trace").is_some();
    if plain {
        return Course::Plain;
    }
    let Ok(directories) = thread.directories() else { return Course::Plain };
    let Some(descriptors) = thread.files().kept_by_exec() else { return Course::Plain };
    let (ignored, _) = process.actions().ignored_and_caught();
    let asked = Asked {
        program,
        path: start.path,
        arguments: start.arguments,
        environment: start.environment,
        credentials: &thread.credentials(),
        limits: &process.limits(),
        root: &directories.root(),
        working: &directories.working(),
        signals: (thread.blocked(), ignored),
        randomise: start.randomise,
        numbers: [
            u64::from(directories.umask()),
            u64::from(thread.personality.load(Ordering::Relaxed)) << 1
                | u64::from(thread.no_new_privileges.load(Ordering::Relaxed)),
            thread.timer_slack.load(Ordering::Relaxed),
            descriptors,
        ],
    };
    match table::next(&asked) {
        Next::Nothing => Course::Plain,
        Next::Record(entry, first) => {
            let layout = first.as_ref().map(|image| image.layout);
            let random = match &first {
                Some(image) => image.auxiliary_random,
                None => [random::quick_word(), random::quick_word()],
            };
            Course::Recorded(Box::new(Plan { entry, first, layout, random }))
        }
        Next::Begin(entry, image) => begin_at(thread, &entry, image).unwrap_or(Course::Plain),
    }
}

/// Prepares a start from an image. `None`: an answer that the program saw is another one now, or
/// memory is exhausted.
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
    let actions = Arc::new(image.actions.fork());
    // Checked last: a change that another process saw before it called exec has spoiled the mark
    // by now.
    if image.mark.is_spoiled() {
        return None;
    }
    entry.hit();
    let vectors = image.vectors;
    Some(Course::Image(Box::new(Begin { space, vectors, image, actions })))
}

impl Begin {
    /// Completes the start of a process that has the image's memory: its registers, its signals,
    /// and what the C library has told the kernel.
    ///
    /// Returns the status with which the process is to end, if its image's next act is its end:
    /// then no instruction of it is executed, and it gets neither registers nor handlers.
    pub fn complete(&self, running: &mut Running<'_, '_>) -> Option<i32> {
        let (thread, image) = (running.thread, &self.image);
        image.note_start();
        REUSED.fetch_add(1, Ordering::Relaxed);
        if let Some(status) = image.ends() {
            return Some(status);
        }
        thread.process().set_actions(Arc::clone(&self.actions));
        thread.set_blocked(image.blocked);
        thread.set_signal_stack(image.signal_stack);
        thread.clear_tid.store(image.clear_tid, Ordering::Relaxed);
        thread.robust_list.store(image.robust_list, Ordering::Relaxed);
        // The state was written by this kernel, so it is valid.
        let _ = fpu::from_signal_bytes(&image.fpu);
        running.change_position(&image.position);
        None
    }
}

/// Starts from images, and images made.
static REUSED: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);

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
            entry: self.entry,
            first: self.first,
            process: process.serial(),
            mark: Arc::new(Mark::default()),
            dependencies: Vec::new(),
            answers: Vec::new(),
            drawn: Vec::new(),
            auxiliary_random: self.random,
            layout: space.layout(),
            vectors,
            own: ArrayVec::new(),
            calls: 0,
            from,
            shift,
            readings: 0,
            varies: None,
            run: execution.run_time(),
            done: false,
        };
        if recording::begin(process.id(), Box::new(recording)) {
            execution.let_read_tsc(false);
        }
    }
}

/// Gives up recordings whose process has ended.
fn sweep() {
    for (number, serial) in recording::processes() {
        let process = pids::process(number);
        if process.is_none_or(|process| process.serial() != serial || process.is_zombie()) {
            recording::end(number);
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
    for own in &recording.own {
        let _ = thread.files().close(own.fd);
    }
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
/// the system call that `regs` ask for.
pub fn reach_horizon(thread: &Thread, regs: &UserRegs<'_>, mut recording: Box<Recording>) -> After {
    if has_been_supervisor(thread) {
        return abandon(thread, recording, "it was in supervisor mode");
    }
    if let Some(own) = recording.own.first() {
        // Descriptors of its own are not part of an image: the next recording ends before the
        // first of them is opened.
        recording.entry.end_at(own.calls);
        return abandon(thread, recording, "it holds a file open");
    }
    let entry = Arc::clone(&recording.entry);
    debug!(
        "images: {} comes to its horizon at call {} after {}",
        entry.key.path().escape_ascii(),
        regs.orig_rax,
        recording.calls
    );
    let first = recording.first.take();
    let mut image = match capture(thread, regs, &mut recording) {
        Ok(image) => image,
        Err(why) => {
            recording.first = first;
            return abandon(thread, recording, why);
        }
    };
    recording.done = true;
    let varies = recording.varies;
    drop(recording);
    end(thread);
    if image.saved < WORTH && first.is_none() {
        entry.refuse("it starts fast enough");
        return After::GoesOn;
    }
    let Some(first) = first else {
        entry.take(Arc::new(image), false);
        return After::GoesOn;
    };
    let why = match image.agree(&first) {
        Ok(Ok(())) => None,
        Ok(Err(why)) => {
            entry.disagree(varies);
            Some(why)
        }
        Err(_) => Some("memory is exhausted"),
    };
    if let Some(why) = why {
        info!("images: {} is not remembered: {why}", entry.key.path().escape_ascii());
        entry.fail(why);
        return After::StartsAgain(entry);
    }
    let own = thread.space();
    let filled = own.is_some_and(|own| image.fill(&own, thread.process().id()).is_ok());
    MADE.fetch_add(1, Ordering::Relaxed);
    entry.take(Arc::new(image), true);
    table::keep_limit();
    if filled { After::GoesOn } else { After::StartsAgain(entry) }
}

/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

fn capture(
    thread: &Thread,
    regs: &UserRegs<'_>,
    recording: &mut Recording,
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
    let saved = schedule::current().run_time().saturating_sub(recording.run);
    let space = own.fork().map_err(|_| EXHAUSTED)?;
    space.remember_contents();
    let resident = space.resident();
    let bytes = (resident.anonymous + resident.tables + 1) * PAGE;
    image::count(bytes);
    Ok(Image {
        position,
        fpu: state,
        actions: Arc::new(process.actions().fork()),
        blocked: thread.blocked(),
        signal_stack: thread.signal_stack(),
        clear_tid: thread.clear_tid.load(Ordering::Relaxed),
        robust_list: thread.robust_list.load(Ordering::Relaxed),
        vectors: recording.vectors,
        number: process.id(),
        call: regs.orig_rax,
        calls: recording.calls,
        answers: core::mem::take(&mut recording.answers),
        drawn: core::mem::take(&mut recording.drawn),
        auxiliary_random: recording.auxiliary_random,
        layout: recording.layout,
        mark: Arc::clone(&recording.mark),
        dependencies: core::mem::take(&mut recording.dependencies),
        window: recording.window(),
        began: recording.from,
        readings: recording.readings,
        holds: (0, 0),
        saved,
        patches: Vec::new(),
        bytes,
        starts: AtomicU64::new(0),
        space,
    })
}

/// The bytes of the arguments that are shown.
const SHOWN: usize = 256;

/// The images as kept resources.
struct Images;

impl pools::AnyPool for Images {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Image
    }

    fn is_wanted(&self) -> bool {
        are_wanted()
    }

    fn limit(&self) -> usize {
        table::LIMIT.load(Ordering::Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        table::LIMIT.store(bytes, Ordering::Relaxed);
        table::keep_limit();
    }

    fn oldest(&self) -> Option<u64> {
        table::oldest()
    }

    fn drop_oldest(&self) -> Option<usize> {
        table::drop_oldest()
    }

    fn counts(&self) -> hayate_recycler::ResourceCounts {
        hayate_recycler::ResourceCounts {
            made: MADE.load(Ordering::Relaxed),
            reused: REUSED.load(Ordering::Relaxed),
            stored: MADE.load(Ordering::Relaxed),
            kept: table::all().map_or(0, |all| all.iter().filter(|row| row.image.is_some()).count())
                as u64,
            bytes: image::bytes() as u64,
            ..Default::default()
        }
    }

    fn forget_page_cache(&self, id: u64) {
        table::forget_content(id);
    }
}

impl ResourceSource for Images {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Image
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        for row in table::all()? {
            show(ResourceRow {
                serial: Serial::of(row.entry.serial),
                name: crate::reclaim::growth::copy(row.entry.key.path())?,
                owner: row.entry.key.owner(),
                bytes: row.image.as_ref().map_or(0, |image| image.bytes as u64),
                kept: row.image.is_some(),
            });
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let all = table::all()?;
        let row = all.iter().find(|row| Serial::of(row.entry.serial) == serial);
        let row = row.ok_or(Errno::ENOENT)?;
        let arguments = row.entry.key.arguments();
        let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
        // The beginning: the kernel sizes what it shows.
        let arguments = arguments.get(..SHOWN).unwrap_or(arguments);
        to.add("arguments", format_args!("{}", arguments.escape_ascii()))?;
        to.add("stage", format_args!("{}", row.state))?;
        if !row.why.is_empty() {
            to.add("reason", format_args!("{}", row.why))?;
        }
        if let Some(image) = &row.image {
            to.add("horizon", format_args!("{}", image.call))?;
            to.add("calls", format_args!("{}", image.calls))?;
            to.add("saved", format_args!("{}", image.saved))?;
            to.add("starts", format_args!("{}", image.starts.load(Ordering::Relaxed)))?;
            to.add("dependencies", format_args!("{}", image.dependencies.len()))?;
            to.add("patches", format_args!("{}", image.patches.len()))?;
        }
        Ok(())
    }
}
