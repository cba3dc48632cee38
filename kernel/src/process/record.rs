//! The record of a process: the state that its threads share besides memory and files.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hayate_abi::process::{RLIM_INFINITY, RLIMIT_CPU, RLIMIT_FSIZE};
use hayate_abi::signal::{CLD_DUMPED, CLD_EXITED, CLD_KILLED, SIGKILL, Siginfo, SignalSet};
use hayate_machine::sync::{Once, SpinLock};
use intrusive_collections::{LinkedList, LinkedListAtomicLink, linked_list};
use smallvec::SmallVec;

use super::cgroup::member::Member;
use super::limits::Limits;
use super::pid_namespace::Inside;
use super::session::Session;
use super::signal::actions::ActionTable;
use super::signal::queue::Queue;
use super::signal::stop;
use super::signal::stop::Stop;
use super::thread::Thread;
use super::timers::Timers;
use super::usage::{Moved, Usage};
use crate::program::Executable;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;

/// Bits of [`Process::notice`], which every thread checks before it returns to user mode.
pub mod notice {
    /// The process ends; every thread ends itself.
    pub const EXIT: u32 = 1;
    /// The process is being stopped; every thread stops itself.
    pub const STOP: u32 = 2;
    /// A thread executes a new program; every other thread ends itself.
    pub const EXEC: u32 = 4;
    /// The last thread has ended; the record remains until the parent waits for it.
    pub const ZOMBIE: u32 = 8;
    /// No parent may wait for it: its parent ignores its children, and the record will soon be
    /// removed.
    pub const VANISHING: u32 = 16;
    /// A thread writes a core file; every other thread waits with its end until that is done.
    pub const DUMP: u32 = 32;
    /// The core file is not to be finished.
    pub const CUT: u32 = 64;
    /// It has ended, and its parent may not wait for it before a tracer has (`super::tracing`).
    pub const HELD: u32 = 128;
    /// Its control group is being frozen; every thread rests ([`super::super::cgroup`]).
    pub const FREEZE: u32 = 256;
}

/// The bit of a wait status that tells of a core file (`WCOREDUMP`).
pub const DUMPED: i32 = 0x80;

/// A wait status as code and value of `waitid(2)` and of `SIGCHLD`.
pub fn end_code(status: i32) -> (i32, i32) {
    match status & 0x7f {
        0 => (CLD_EXITED, status >> 8 & 0xff),
        killer if status & DUMPED != 0 => (CLD_DUMPED, killer),
        killer => (CLD_KILLED, killer),
    }
}

/// The progress of a process from one state to another; under one lock because the steps depend on
/// each other.
#[derive(Default)]
pub struct Control {
    /// The wait status of the process, once it is decided.
    pub exit: Option<i32>,
    /// Stopping and continuing.
    pub stop: Stop,
    /// The thread that executes a new program and outlives the others.
    pub survivor: Option<u64>,
}

/// Where the arguments and the environment of the program lie, for `/proc/PID/cmdline`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vectors {
    /// First byte of the arguments.
    pub arguments: usize,
    /// First byte after the arguments.
    pub arguments_end: usize,
    /// First byte of the environment.
    pub environment: usize,
    /// First byte after the environment.
    pub environment_end: usize,
    /// First byte of the auxiliary vector.
    pub auxiliary: usize,
    /// First byte after the auxiliary vector.
    pub auxiliary_end: usize,
}

#[allow(unsafe_code)]
mod adapter {
    use alloc::sync::Arc;

    use crate::process::record::Process;
    use intrusive_collections::{LinkedListAtomicLink, intrusive_adapter};
    intrusive_adapter!(pub Siblings = Arc<Process>: Process { sibling => LinkedListAtomicLink });
}
use adapter::Siblings;

/// The children of a process, the oldest first. They are linked, so that an ending process can hand
/// them over without memory: a child that no process waits for would stay for ever.
pub struct Children {
    pub(super) list: LinkedList<Siblings>,
    /// The process is ending and gets no more children.
    pub(super) closed: bool,
}

impl Children {
    /// An empty list.
    pub const fn none() -> Children {
        Children { list: LinkedList::new(Siblings::NEW), closed: false }
    }

    /// Iterates over the children.
    pub fn iter(&self) -> linked_list::Iter<'_, Siblings> {
        self.list.iter()
    }

    /// The oldest child, from which one can go on.
    pub fn oldest(&self) -> linked_list::Cursor<'_, Siblings> {
        self.list.front()
    }

    /// Adds a child, which is on no such list.
    pub(super) fn add(&mut self, child: Arc<Process>) {
        self.list.push_back(child);
    }

    /// Removes a child.
    pub fn remove(&mut self, child: &Process) -> Option<Arc<Process>> {
        // The child that ended last was often the last to start.
        let mut at = self.list.back_mut();
        while let Some(entry) = at.get() {
            if core::ptr::eq(entry, child) {
                return at.remove();
            }
            at.move_prev();
        }
        None
    }
}

/// A process: a number, a parent and children, and threads.
pub struct Process {
    id: u32,
    serial: u64,
    pub(super) parent: SpinLock<Option<Arc<Process>>>,
    pub(super) parent_id: AtomicU32,
    /// The parent's number in its own PID namespace.
    pub(super) shown_parent_id: AtomicU32,
    pub(super) children: SpinLock<Children>,
    /// Its place among the children of its parent.
    sibling: LinkedListAtomicLink,
    /// Woken when a child ends, stops or continues, and when a thread of this process ends.
    pub child_events: WaitQueue,
    pub(super) threads: SpinLock<SmallVec<[Arc<Thread>; 1]>>,
    group: AtomicU32,
    session: SpinLock<Arc<Session>>,
    /// The process has given up its session's terminal (TIOCNOTTY).
    pub(super) without_terminal: AtomicBool,
    notice: AtomicU32,
    pub(super) control: SpinLock<Control>,
    /// The status that `wait` reports about the ended process.
    pub(super) exit_status: AtomicI32,
    /// The execution of its parent that made it; 0: none (`__WNOTHREAD` of `wait4(2)`).
    pub(super) maker: AtomicU64,
    /// The signal that is sent to the parent at the end; 0 for none.
    pub(super) exit_signal: AtomicU32,
    /// Signals to the process.
    pub queue: Queue,
    /// Woken when a signal is queued for the process or a thread of it (signalfd, sigtimedwait).
    pub signal_events: WaitQueue,
    actions: SpinLock<Arc<ActionTable>>,
    limits: SpinLock<Arc<Limits>>,
    /// The usage of ended threads.
    pub(super) ended_usage: SpinLock<Usage>,
    /// The usage of waited-for children.
    pub(super) children_usage: SpinLock<Usage>,
    /// The reads and writes of ended threads and waited-for children.
    pub(super) moved: SpinLock<Moved>,
    pub(super) timers: SpinLock<Option<Box<Timers<Process>>>>,
    /// Whether a limit or a timer depends on the processor time of the process.
    pub(super) cpu_time_watched: AtomicBool,
    /// `RLIMIT_FSIZE` of `limits`.
    size_limit: AtomicU64,
    /// The program that it executes, and where its arguments and environment lie: under one lock,
    /// since each fork reads both.
    program: SpinLock<(Option<Arc<Executable>>, Vectors)>,
    /// See [`Process::steady`].
    exchange: SpinLock<()>,
    started: u64,
    /// Orphans below this process become its children (`PR_SET_CHILD_SUBREAPER`).
    pub subreaper: AtomicBool,
    /// Whether processes of the same user may look into this process (`PR_SET_DUMPABLE`).
    pub dumpable: AtomicU32,
    /// Which memory goes into a core file (`/proc/PID/coredump_filter`).
    pub dump_filter: AtomicU32,
    /// `/proc/PID/oom_score_adj`.
    pub oom_score_adjust: AtomicI32,
    /// The number of programs that the process has executed since it was forked.
    programs: AtomicU32,
    /// Programs that it executes start in supervisor mode (see [`crate::supervisor::switch`]).
    pub keeps_mode: AtomicBool,
    /// Its program began in another user namespace than the one it is in, or may not be read there.
    pub is_newcomer: AtomicBool,
    /// How often its mode was switched.
    pub mode_switches: AtomicU64,
    /// [`INVOLVED`] and [`GROUPED`].
    marks: AtomicU8,
    /// Its place among the control groups, if it is or was outside their root.
    pub(super) member: Once<Box<Member>>,
    /// Its place in a PID namespace other than the first; set before it begins.
    pub(super) inside: Once<Inside>,
}

/// A mark of a process: see [`Process::is_involved`].
const INVOLVED: u8 = 1;
/// A mark of a process: see [`Process::is_grouped`].
const GROUPED: u8 = 2;

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// The properties that a new process inherits.
pub struct Inheritance {
    /// The parent; `None` for the first process.
    pub parent: Option<Arc<Process>>,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: Arc<Session>,
    /// Signal actions.
    pub actions: Arc<ActionTable>,
    /// Resource limits.
    pub limits: Arc<Limits>,
    /// The program file.
    pub executable: Option<Arc<Executable>>,
    /// Where its arguments and environment lie.
    pub vectors: Vectors,
    /// `PR_SET_DUMPABLE`.
    pub dumpable: u32,
    /// `/proc/PID/coredump_filter`.
    pub dump_filter: u32,
    /// `/proc/PID/oom_score_adj`.
    pub oom_score_adjust: i32,
    /// The execution of the parent that makes it; 0: none.
    pub maker: u64,
    /// The signal that is sent to the parent at the end; 0 for none.
    pub exit_signal: u32,
    /// Whether programs that it executes start in supervisor mode.
    pub keeps_mode: bool,
    /// See [`Process::is_newcomer`].
    pub is_newcomer: bool,
}

impl Process {
    /// Makes a process without threads.
    pub fn new(id: u32, from: Inheritance) -> Process {
        let parent_id = from.parent.as_ref().map_or(0, |parent| parent.id);
        let cpu_limited = from.limits.soft(RLIMIT_CPU) != RLIM_INFINITY;
        let size_limit = AtomicU64::new(from.limits.soft(RLIMIT_FSIZE));
        Process {
            id,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            parent: SpinLock::new(from.parent),
            parent_id: AtomicU32::new(parent_id),
            shown_parent_id: AtomicU32::new(parent_id),
            children: SpinLock::new(Children::none()),
            sibling: LinkedListAtomicLink::new(),
            child_events: WaitQueue::new(),
            threads: SpinLock::new(SmallVec::new()),
            group: AtomicU32::new(from.group),
            session: SpinLock::new(from.session),
            without_terminal: AtomicBool::new(false),
            notice: AtomicU32::new(0),
            control: SpinLock::new(Control::default()),
            exit_status: AtomicI32::new(0),
            maker: AtomicU64::new(from.maker),
            exit_signal: AtomicU32::new(from.exit_signal),
            queue: Queue::new(),
            signal_events: WaitQueue::new(),
            actions: SpinLock::new(from.actions),
            limits: SpinLock::new(from.limits),
            ended_usage: SpinLock::new(Usage::default()),
            children_usage: SpinLock::new(Usage::default()),
            moved: SpinLock::new(Moved::default()),
            timers: SpinLock::new(None),
            cpu_time_watched: AtomicBool::new(cpu_limited),
            size_limit,
            program: SpinLock::new((from.executable, from.vectors)),
            exchange: SpinLock::new(()),
            started: crate::schedule::time::monotonic_ns(),
            subreaper: AtomicBool::new(false),
            dumpable: AtomicU32::new(from.dumpable),
            dump_filter: AtomicU32::new(from.dump_filter),
            oom_score_adjust: AtomicI32::new(from.oom_score_adjust),
            programs: AtomicU32::new(0),
            keeps_mode: AtomicBool::new(from.keeps_mode),
            is_newcomer: AtomicBool::new(from.is_newcomer),
            mode_switches: AtomicU64::new(0),
            marks: AtomicU8::new(0),
            member: Once::new(),
            inside: Once::new(),
        }
    }

    /// Its number.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// A number that no other process ever has.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// The number of programs that it has executed since it was forked.
    pub fn programs(&self) -> u32 {
        self.programs.load(Ordering::Relaxed)
    }

    /// Notes that it executes another program. For its only thread.
    pub(super) fn count_program(&self) {
        // No other thread writes it: a locked instruction would cost more.
        self.programs.store(self.programs().wrapping_add(1), Ordering::Relaxed);
    }

    /// The number of its parent; 0 for the first process.
    #[inline]
    pub fn parent_id(&self) -> u32 {
        self.parent_id.load(Ordering::Relaxed)
    }

    /// The number of its parent as its own threads see it; 0 if they see none.
    #[inline]
    pub fn shown_parent_id(&self) -> u32 {
        self.shown_parent_id.load(Ordering::Relaxed)
    }

    /// Its parent; `None` for the first process.
    pub fn parent(&self) -> Option<Arc<Process>> {
        self.parent.lock().clone()
    }

    /// Its process group.
    #[inline]
    pub fn group(&self) -> u32 {
        self.group.load(Ordering::Relaxed)
    }

    /// Puts it into a process group.
    pub fn set_group(&self, group: u32) {
        if group == self.id {
            self.note_leading();
        }
        self.group.store(group, Ordering::Relaxed);
    }

    /// Its session.
    pub fn session(&self) -> Arc<Session> {
        self.session.lock().clone()
    }

    /// The number of its session.
    pub fn session_id(&self) -> u32 {
        self.session.lock().id()
    }

    /// Puts it into a session.
    pub fn set_session(&self, session: Arc<Session>) {
        let old = core::mem::replace(&mut *self.session.lock(), session);
        drop(old);
    }

    /// When it was started, on the monotonic clock in nanoseconds.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// The bits of [`notice`].
    #[inline]
    pub fn notice(&self) -> u32 {
        self.notice.load(Ordering::SeqCst)
    }

    pub(super) fn raise_notice(&self, bits: u32) {
        self.notice.fetch_or(bits, Ordering::SeqCst);
    }

    pub(super) fn clear_notice(&self, bits: u32) {
        self.notice.fetch_and(!bits, Ordering::SeqCst);
    }

    /// Whether a thread of it has ever traced another one or been traced.
    #[inline(always)]
    pub fn is_involved(&self) -> bool {
        self.marks.load(Ordering::SeqCst) & INVOLVED != 0
    }

    /// Whether it is, or was, in another control group than the root ([`super::cgroup`]).
    #[inline(always)]
    pub fn is_grouped(&self) -> bool {
        self.marks.load(Ordering::SeqCst) & GROUPED != 0
    }

    /// Whether it is involved or grouped, which few are.
    #[inline(always)]
    pub(super) fn is_marked(&self) -> bool {
        self.marks.load(Ordering::SeqCst) != 0
    }

    /// Notes that it is about to be in another control group than the root.
    pub(super) fn mark_grouped(&self) {
        self.marks.fetch_or(GROUPED, Ordering::SeqCst);
    }

    /// Notes that a thread of it is about to trace or to be traced.
    pub(super) fn involve(&self) {
        self.marks.fetch_or(INVOLVED, Ordering::SeqCst);
    }

    /// Whether the process is to end or has ended.
    #[inline]
    pub fn is_exiting(&self) -> bool {
        self.notice() & (notice::EXIT | notice::ZOMBIE) != 0
    }

    /// Whether it has ended and its parent has not waited for it yet.
    #[inline]
    pub fn is_zombie(&self) -> bool {
        self.notice() & notice::ZOMBIE != 0
    }

    /// Whether its parent has waited for it: only references to the record remain.
    pub fn is_reaped(&self) -> bool {
        self.is_zombie() && self.thread_count() == 0
    }

    /// Whether it has ended and its parent may wait for it.
    pub fn is_waitable(&self) -> bool {
        self.notice() & (notice::ZOMBIE | notice::VANISHING | notice::HELD) == notice::ZOMBIE
    }

    /// Its signal actions.
    pub fn actions(&self) -> Arc<ActionTable> {
        self.actions.lock().clone()
    }

    /// Replaces its signal actions.
    pub fn set_actions(&self, actions: Arc<ActionTable>) {
        let old = core::mem::replace(&mut *self.actions.lock(), actions);
        drop(old);
    }

    /// Its resource limits.
    pub fn limits(&self) -> Arc<Limits> {
        self.limits.lock().clone()
    }

    /// One soft limit (`RLIMIT_*`).
    pub fn limit(&self, resource: usize) -> u64 {
        self.limits.lock().soft(resource)
    }

    /// `RLIMIT_FSIZE`, which each write asks for.
    #[inline]
    pub fn size_limit(&self) -> u64 {
        self.size_limit.load(Ordering::Relaxed)
    }

    /// Changes its resource limits in one step.
    pub fn change_limits<T>(&self, change: impl FnOnce(&mut Limits) -> T) -> T {
        let mut limits = self.limits.lock();
        let result = change(Arc::make_mut(&mut limits));
        self.size_limit.store(limits.soft(RLIMIT_FSIZE), Ordering::Relaxed);
        result
    }

    /// Whether each tick must check its processor time.
    #[inline]
    pub fn watches_cpu_time(&self) -> bool {
        self.cpu_time_watched.load(Ordering::Relaxed)
    }

    /// Makes each tick check its processor time from now on.
    pub fn watch_cpu_time(&self) {
        self.cpu_time_watched.store(true, Ordering::Relaxed);
    }

    /// The program it executes.
    pub fn executable(&self) -> Option<Arc<Executable>> {
        self.program.lock().0.clone()
    }

    /// The program it executes, and where its arguments and environment lie.
    pub fn program(&self) -> (Option<Arc<Executable>>, Vectors) {
        self.program.lock().clone()
    }

    /// Sets the program it executes. Returns the old one, whose file closes when the caller drops
    /// it; the caller must hold no locks then.
    pub fn set_executable(&self, file: Option<Arc<Executable>>) -> Option<Arc<Executable>> {
        core::mem::replace(&mut self.program.lock().0, file)
    }

    /// Runs `look` while no thread replaces the space or the program of the process, or the state
    /// that exec changes with them: credentials, dumpability, mode. A caller that decides by
    /// several of these must read them all in `look` (Linux: `exec_update_lock`, fs/exec.c).
    ///
    /// `look` must neither sleep nor drop what may be the last reference to a thread, a space or a
    /// file. Lock order: before the locks of single fields, before a space's; of two processes, in
    /// the order of their addresses.
    #[inline]
    pub fn steady<T>(&self, look: impl FnOnce() -> T) -> T {
        let _exchange = self.exchange.lock();
        look()
    }

    /// Where its arguments and environment lie.
    pub fn vectors(&self) -> Vectors {
        self.program.lock().1
    }

    /// Sets where its arguments and environment lie.
    pub fn set_vectors(&self, vectors: Vectors) {
        self.program.lock().1 = vectors;
    }

    /// Calls a function for each thread, under the lock of the list: it must not sleep.
    pub fn for_each_thread(&self, mut visit: impl FnMut(&Arc<Thread>)) {
        self.threads.lock().iter().for_each(&mut visit);
    }

    /// Its threads. (Four fit without the heap.) Fails with `ENOMEM`.
    pub fn threads(&self) -> hayate_abi::Result<SmallVec<[Arc<Thread>; 4]>> {
        let threads = self.threads.lock();
        let mut list = SmallVec::new();
        list.make_room(threads.len())?;
        list.extend(threads.iter().cloned());
        Ok(list)
    }

    /// The number of threads that have not ended.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().len()
    }

    /// The thread with this number.
    pub fn thread(&self, number: u32) -> Option<Arc<Thread>> {
        self.threads.lock().iter().find(|thread| thread.id() == number).cloned()
    }

    /// The first of its threads that has not ended: the one with the process's number unless that
    /// has ended.
    pub fn first_thread(&self) -> Option<Arc<Thread>> {
        self.threads.lock().first().cloned()
    }

    /// The signals that every thread blocks.
    pub fn blocked_by_all(&self) -> SignalSet {
        self.threads.lock().iter().fold(u64::MAX, |all, thread| all & thread.blocked())
    }

    /// Interrupts one thread that does not block all of `signals`: the first such thread, since
    /// finding a running one would take as long as asking all.
    pub(super) fn interrupt_one(&self, signals: SignalSet) {
        let threads = self.threads.lock();
        if let Some(thread) = threads.iter().find(|thread| thread.blocked() & signals != signals) {
            thread.interrupt();
        }
    }

    /// Interrupts every thread.
    pub(super) fn interrupt_all(&self) {
        self.for_each_thread(|thread| thread.interrupt());
    }

    /// Ends the process: decides its wait status, unless that is decided, and makes every thread
    /// end itself. The calling thread ends when it is about to return to user mode.
    ///
    /// * `status` - as `wait(2)` reports it: the exit status in bits 8 to 15, or a signal.
    pub fn begin_exit(&self, status: i32) {
        self.begin_exit_of_others(status, None);
    }

    /// The same for the current thread, `own`, which ends itself next: it is not told.
    pub(super) fn begin_exit_of_others(&self, status: i32, own: Option<&Thread>) {
        let mut control = self.control.lock();
        control.exit.get_or_insert(status);
        control.stop.cancel();
        self.clear_notice(notice::STOP);
        self.raise_notice(notice::EXIT);
        self.for_each_thread(|thread| {
            if own.is_none_or(|own| !core::ptr::eq(own, &**thread)) {
                thread.interrupt();
            }
        });
        drop(control);
        stop::wake();
    }

    /// Decides that a signal ends the process, and that the current thread writes a core file
    /// first; every other thread comes to [`super::dump::wait`]. False if its end is decided
    /// already.
    pub(super) fn begin_dump(&self, signal: u32) -> bool {
        let mut control = self.control.lock();
        if control.exit.is_some() {
            return false;
        }
        control.exit = Some(signal as i32);
        control.stop.cancel();
        self.clear_notice(notice::STOP);
        self.raise_notice(notice::EXIT | notice::DUMP);
        self.interrupt_all();
        drop(control);
        stop::wake();
        true
    }

    /// The core file is written, or as much of it as there will be. The process ends.
    pub(super) fn end_dump(&self, is_there: bool) {
        let mut control = self.control.lock();
        if is_there && self.notice() & notice::CUT == 0 {
            control.exit = control.exit.map(|status| status | DUMPED);
        }
        self.clear_notice(notice::DUMP);
    }

    /// Ends a process that writes its core file by `SIGKILL` instead; others stay as they are.
    #[cold]
    pub(super) fn cut_dump(&self) {
        let mut control = self.control.lock();
        if self.notice() & notice::DUMP != 0 {
            control.exit = Some(SIGKILL as i32);
            self.raise_notice(notice::CUT);
            self.interrupt_all();
        }
    }

    /// Takes a pending signal of `wanted` sent to the process.
    pub fn take_signal(&self, wanted: SignalSet) -> Option<Siginfo> {
        self.queue.take(wanted)
    }

    /// The resources that its threads consumed, including those that ended.
    pub fn usage(&self) -> Usage {
        // Held meanwhile, so that a thread that ends now counts once, here or there.
        let ended = self.ended_usage.lock();
        let mut sum = *ended;
        self.for_each_thread(|thread| sum.add(&thread.usage()));
        drop(ended);
        if let Some(space) = self.first_thread().and_then(|thread| thread.space()) {
            let (minor, major) = space.faults();
            sum.minor_faults += minor;
            sum.major_faults += major;
            sum.peak_resident = sum.peak_resident.max(space.peak_resident() as u64 * 4096);
        }
        sum
    }

    /// The bytes that its threads read and wrote, ended ones included, and its waited-for children.
    pub fn moved(&self) -> Moved {
        // Held meanwhile, so that a thread that ends now counts once, here or there.
        let ended = self.ended_usage.lock();
        let mut sum = *self.moved.lock();
        self.for_each_thread(|thread| {
            if thread.execution().is_some() {
                sum.add(&thread.moved.sums());
            }
        });
        drop(ended);
        sum
    }

    /// Returns the usage of its waited-for children.
    pub fn children_usage(&self) -> Usage {
        *self.children_usage.lock()
    }
}
