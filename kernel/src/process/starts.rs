//! The time of each part of a program's start, measured with `trace=starts` on the command line and
//! shown by `/proc/hayate/starts`.
//!
//! A process asks for the measurement of the starts it makes ([`watch`]). From its next call that
//! makes a process until it has waited for that process, each event of the new process is a *mark*:
//! the time since the mark before is added to one part of an [`Account`]. The events are the
//! process's system calls, page faults and attention (interrupts, signals), the steps of exec and
//! exit ([`Watched`]), and a breakpoint on the program's entry, where the dynamic linker is done.
//! The time of a mark itself is not counted, except the few instructions after the last reading of
//! the clock.
//!
//! One start is watched at a time, that of the process's first thread; the time of its children and
//! threads counts as other time. The breakpoint belongs to one processor, so the measurement is
//! meant for one processor. With more, the entry of a program that moves to another processor first
//! is missed.
//!
//! A kernel without `trace=starts` runs none of this code: boot registers other handlers.
//!
//! Lock order: [`STATE`] is taken first, with no other lock held; below it are the locks of a space
//! and of the table of processes. Code under it does not access a program's memory.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::paging::{Page, PageKind};
use hayate_machine::sync::SpinLock;
use hayate_machine::trap::{FaultOutcome, PageFault, UserRegs};
use hayate_recycler::KeptKinds;
use hayate_start_account::{Account, Began, Fault, Image, Moment, Runner, Stage, Start};

use super::thread::{Thread, current, try_current};
use super::{fault, pids};
use crate::reclaim::growth::Grow;
use crate::recycle::watch::{Pages, StartPart, Watch};
use crate::recycle::{Policy, ResourceCounts, ResourceKind, policy, statistics};
use crate::schedule;
use crate::schedule::{Execution, time};

/// The number of finished starts that are kept for reading.
const KEPT: usize = 16;

/// The process whose starts are watched; 0: none.
static PARENT: AtomicU32 = AtomicU32::new(0);
/// The process whose start is watched; 0: none yet.
static CHILD: AtomicU32 = AtomicU32::new(0);
static STATE: SpinLock<State> = SpinLock::new(State { going_on: None, finished: VecDeque::new() });

/// Pages of a kept space: copied, zeroed, left. Counted without a mark, because restoring one is
/// short.
static RESTORED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

struct State {
    going_on: Option<Course>,
    finished: VecDeque<Start>,
}

/// A start that is going on.
struct Course {
    account: Account,
    stage: Stage,
    parent: Arc<Execution>,
    /// Set at its first mark.
    child: Option<Arc<Execution>>,
    program: String,
    /// Of the first program that it executed.
    began: Began,
    image: Image,
    executed: u64,
    /// The program's first instruction, if a dynamic linker runs before it.
    entry: Option<usize>,
    linked: bool,
    /// The values of these counters when the start began.
    started: u64,
    records: ResourceCounts,
    spaces: ResourceCounts,
    before: (u64, u64),
    filled: (u64, u64),
}

/// Whether boot should register the handlers that measure.
pub fn is_wanted() -> bool {
    hayate_machine::boot::option("trace") == Some("starts")
}

/// Measures the starts that the current process makes from now on, and no others; they begin at no
/// image. Discards earlier results.
///
/// # Errors
/// `EOPNOTSUPP` without `trace=starts`.
pub fn watch() -> Result<()> {
    if !is_wanted() {
        return Err(Errno::EOPNOTSUPP);
    }
    policy::set(Policy::new(policy::get().keep().difference(KeptKinds::IMAGE)));
    let mut state = STATE.lock();
    let old = (state.going_on.take(), core::mem::take(&mut state.finished));
    CHILD.store(0, Relaxed);
    PARENT.store(current().process.id(), Relaxed);
    drop(state);
    drop(old);
    Ok(())
}

/// Lets starts begin at images from now on.
///
/// # Errors
/// `EOPNOTSUPP` without `trace=starts`, and where the policy is to keep nothing.
pub fn allow_images() -> Result<()> {
    if !is_wanted() || policy::get() == Policy::NONE {
        return Err(Errno::EOPNOTSUPP);
    }
    policy::set(Policy::new(policy::get().keep().union(KeptKinds::IMAGE)));
    Ok(())
}

/// Whether the current process is the one whose starts are measured.
pub fn is_watcher() -> bool {
    current().process.id() == PARENT.load(Relaxed)
}

/// Calls `out` with each finished start.
///
/// # Errors
/// `EOPNOTSUPP` without `trace=starts`; `ENOMEM`.
pub fn show(out: &mut impl FnMut(&Start) -> Result<()>) -> Result<()> {
    if !is_wanted() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut number = 0;
    loop {
        let start = STATE.lock().finished.get(number).cloned();
        let Some(start) = start else { return Ok(()) };
        out(&start)?;
        number += 1;
    }
}

/// The role of a thread in a watched start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It makes the new process.
    Parent,
    /// It is the new process.
    Child,
    /// It has no part in the start.
    Other,
}

/// The role of the current thread in a watched start.
pub fn role() -> Role {
    let parent = PARENT.load(Relaxed);
    if parent == 0 {
        return Role::Other;
    }
    let Some(thread) = try_current() else { return Role::Other };
    let id = thread.id();
    if id == parent {
        Role::Parent
    } else if id == CHILD.load(Relaxed) || is_first_mark(&thread, parent) {
        Role::Child
    } else {
        Role::Other
    }
}

/// Whether this thread is the new process at its first mark; if so, the process is recorded.
fn is_first_mark(thread: &Thread, parent: u32) -> bool {
    let id = thread.id();
    if CHILD.load(Relaxed) != 0 || id != thread.process.id() || thread.process.parent_id() != parent
    {
        return false;
    }
    let mut state = STATE.lock();
    let Some(course) = &mut state.going_on else { return false };
    course.child = thread.execution();
    CHILD.store(id, Relaxed);
    true
}

impl Course {
    fn moment(&self) -> Moment {
        let now = time::monotonic_ns();
        Moment {
            now,
            child: self.child.as_ref().map_or(0, |child| child.run_time_at(now)),
            parent: self.parent.run_time_at(now),
            idle: schedule::idle_ns(cpu::id()),
        }
    }

    /// Begins a new stage of the new process.
    fn goes_on(&mut self, stage: Stage) {
        self.stage = stage;
        self.account.enter(stage.own());
    }
}

/// Adds the time since the last mark to its part, and applies `change`. `None` if no start is being
/// measured.
fn mark<T>(runner: Runner, change: impl FnOnce(&mut Course) -> T) -> Option<T> {
    let mut state = STATE.lock();
    let course = state.going_on.as_mut()?;
    let moment = course.moment();
    course.account.pass(moment);
    let result = change(course);
    course.account.skip(time::monotonic_ns(), runner);
    Some(result)
}

/// Begins a measurement, as the parent is about to make a process.
pub fn begins() {
    if CHILD.load(Relaxed) != 0 {
        return;
    }
    let parent = schedule::current_arc();
    for count in &RESTORED {
        count.store(0, Relaxed);
    }
    let mut course = Course {
        account: Account::begin(Moment::default()),
        stage: Stage::Before,
        parent,
        child: None,
        program: String::new(),
        began: Began::default(),
        image: Image::default(),
        executed: 0,
        entry: None,
        linked: false,
        started: pids::started(),
        records: statistics::counts(ResourceKind::Program),
        spaces: statistics::counts(ResourceKind::Attachment),
        before: (0, 0),
        filled: (0, 0),
    };
    let mut state = STATE.lock();
    course.account = Account::begin(course.moment());
    let old = state.going_on.replace(course);
    drop(state);
    drop(old);
}

/// Handles the return of the parent's call, which made the process with this number or failed.
pub fn made(result: i64) {
    if result > 0 {
        mark(Runner::Parent, |course| course.account.parent_enters(StartPart::Wait));
    } else if CHILD.load(Relaxed) == 0 {
        let old = STATE.lock().going_on.take();
        drop(old);
    }
}

/// Handles the return of the parent's wait. If the process is gone, its start is complete.
pub fn waited() {
    let child = CHILD.load(Relaxed);
    if child == 0 || pids::process(child).is_some() {
        return;
    }
    // The time since the last mark is that of the end of the process.
    mark(Runner::Parent, |_| ());
    cpu::set_breakpoint(None);
    let mut state = STATE.lock();
    CHILD.store(0, Relaxed);
    let Some(course) = state.going_on.take() else { return };
    let oldest = if state.finished.len() >= KEPT { state.finished.pop_front() } else { None };
    let (records, spaces) =
        (statistics::counts(ResourceKind::Program), statistics::counts(ResourceKind::Attachment));
    let [copied, zeroed, left] = RESTORED.each_ref().map(|count| count.load(Relaxed));
    let start = Start {
        program: course.program,
        pid: child,
        began: course.began,
        image: course.image,
        executed: course.executed,
        linked: course.linked,
        hertz: time::tsc_hz(),
        // Do not count the new process itself.
        started: pids::started().saturating_sub(course.started).saturating_sub(1),
        account: course.account,
        records: (
            records.reused.saturating_sub(course.records.reused),
            records.made.saturating_sub(course.records.made),
        ),
        spaces: (
            spaces.reused.saturating_sub(course.spaces.reused),
            spaces.made.saturating_sub(course.spaces.made),
        ),
        kept: spaces.stored.saturating_sub(course.spaces.stored),
        restored: (copied, zeroed, left),
        filled: course.filled,
    };
    // If memory is exhausted, this start is not recorded.
    if state.finished.make_room(1).is_ok() {
        state.finished.push_back(start);
    }
    drop(state);
    drop((oldest, course.child, course.parent));
}

/// The kind of a system call of the new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It executes a program.
    Exec,
    /// It ends the process.
    Exit,
    /// Anything else.
    Other,
}

/// Handles a system call of the new process. Returns the stage to pass to [`returns`].
pub fn calls(call: Call) -> Stage {
    let stage = mark(Runner::Child, |course| {
        let stage = course.stage;
        match call {
            Call::Exec => {
                course.stage = Stage::Exec;
                course.account.enter(StartPart::Arguments);
            }
            Call::Exit => {
                cpu::set_breakpoint(None);
                course.goes_on(Stage::Exit);
            }
            Call::Other => {
                course.account.enter(stage.calls());
            }
        }
        stage
    });
    stage.unwrap_or(Stage::Others)
}

/// Handles the return of a system call that was made in stage `before`.
pub fn returns(call: Call, before: Stage, failed: bool) {
    mark(Runner::Child, |course| {
        if call == Call::Exec && !failed {
            course.executed += 1;
            cpu::set_breakpoint(course.entry);
            course.goes_on(if course.entry.is_some() { Stage::Link } else { Stage::Program });
        } else {
            course.stage = before;
            course.account.back(before.own());
        }
    });
}

/// Whether the new process, which has executed a program, is to end before its first instruction.
pub fn ends_at_once() -> bool {
    current().process.is_exiting()
}

/// The time that the measurement itself has taken since the start that is measured began, in
/// nanoseconds, if it is the current thread's.
pub fn aside() -> u64 {
    if role() != Role::Child {
        return 0;
    }
    STATE.lock().going_on.as_ref().map_or(0, |course| course.account.tracing())
}

/// Handles a page fault like [`fault::page_fault`], and measures it.
pub fn page_fault(at: &PageFault, regs: Option<&mut UserRegs>) -> FaultOutcome {
    if role() != Role::Child {
        return fault::page_fault(at, regs);
    }
    let address = at.address as usize;
    let begun = mark(Runner::Child, |course| {
        let seen = Seen::now(address);
        let from = course.account.enter(StartPart::faults(course.stage));
        (from, course.account.time(course.account.part()), seen)
    });
    let outcome = fault::page_fault(at, regs);
    if let Some((from, earlier, before)) = begun {
        mark(Runner::Child, |course| {
            let spent = course.account.time(course.account.part()).saturating_sub(earlier);
            course.account.fault(before.becomes(&Seen::now(address)), spent);
            course.account.back(from);
        });
    }
    outcome
}

/// The mapping at an address.
struct Seen {
    page: Option<Page>,
    file: bool,
    /// The number of faults so far that read from a device.
    read: u64,
}

impl Seen {
    fn now(address: usize) -> Seen {
        match crate::memory::try_current() {
            Some(space) => {
                let (page, file) = space.seen(address);
                Seen { page, file, read: space.faults().1 }
            }
            None => Seen { page: None, file: false, read: 0 },
        }
    }

    /// The kind of a fault that found `self` and left `then`.
    fn becomes(&self, then: &Seen) -> Fault {
        let Some(page) = &then.page else { return Fault::Other };
        if then.read != self.read {
            return Fault::Read;
        }
        match &self.page {
            None => match page.kind {
                PageKind::Private if then.file => Fault::FileCopied,
                PageKind::Private => Fault::Zeroed,
                PageKind::Zero => Fault::ZeroMapped,
                _ => Fault::Mapped,
            },
            Some(old) if old.frame() == page.frame() => Fault::Allowed,
            Some(old) if old.kind == PageKind::Zero => Fault::Zeroed,
            Some(_) => Fault::Copied,
        }
    }
}

/// Handles an exception like [`fault::exception`], and the breakpoint itself.
pub fn exception(vector: u8, error: u64, regs: &mut UserRegs) {
    if vector != 1 || !cpu::has_breakpoint(regs.rip as usize) {
        return fault::exception(vector, error, regs);
    }
    let arrived = role() == Role::Child
        && mark(Runner::Child, |course| {
            let is_entry = course.stage == Stage::Link;
            if is_entry {
                course.linked = true;
                course.goes_on(Stage::Program);
            }
            is_entry
        }) == Some(true);
    if arrived {
        cpu::set_breakpoint(None);
    } else {
        // Another program executes an instruction at the same address.
        regs.set_flags(regs.flags() | cpu::PASS);
    }
}

/// Runs the attention handler `attend`, and adds its time to interrupts and signals.
pub fn attend(attend: impl FnOnce()) {
    if role() != Role::Child {
        return attend();
    }
    let before = mark(Runner::Child, |course| {
        // A process that ends at once at an image ends here.
        let ends = course.stage == Stage::Exit;
        (!ends).then(|| course.account.enter(StartPart::Interrupts))
    });
    attend();
    if let Some(before) = before.flatten() {
        mark(Runner::Child, |course| course.account.back(before));
    }
}

/// Marks the steps of exec and exit.
pub struct Watched;

impl Watch for Watched {
    fn enter(part: StartPart) {
        mark(Runner::Child, |course| course.account.enter(part));
    }

    fn begins(path: &[u8], how: impl FnOnce() -> (Began, Image)) {
        if mark(Runner::Child, |_| ()).is_none() {
            return;
        }
        // Without the lock: this asks other tables. Its time is the accounting's.
        let (began, image) = how();
        let mut state = STATE.lock();
        let Some(course) = &mut state.going_on else { return };
        if course.executed == 0 {
            course.program = String::from_utf8_lossy(path).into_owned();
            course.began = began;
            course.image = image;
        }
        // A program that begins at an image has its dynamic linker behind it.
        course.entry = None;
        course.account.skip(time::monotonic_ns(), Runner::Child);
    }

    fn attached(entry: usize, linked: bool) {
        mark(Runner::Child, |course| {
            course.entry = linked.then_some(entry);
        });
    }

    #[inline]
    fn restored(written: bool, file: bool) {
        let which = if !written { 2 } else { usize::from(!file) };
        if let Some(count) = RESTORED.get(which) {
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
    }

    fn pages(when: Pages, count: impl FnOnce() -> (u64, u64)) {
        mark(Runner::Child, |course| {
            let (copied, zeroed) = count();
            match when {
                Pages::Before => course.before = (copied, zeroed),
                Pages::After => {
                    course.filled.0 += copied.saturating_sub(course.before.0);
                    course.filled.1 += zeroed.saturating_sub(course.before.1);
                }
            }
        });
    }
}
