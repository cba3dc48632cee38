//! Threads, and the state that each has for itself.
//!
//! Each thread holds counted references to files, directories, space and credentials, as in Linux:
//! `clone(2)` decides which of them a new thread shares. Only the thread itself replaces them.
//! Other threads may read them, so each is behind a spin lock that is held for the length of a
//! clone. The thread itself borrows its space without that lock ([`ObjectCell`]).

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::process::RLIMIT_NOFILE;
use hayate_abi::signal::{SignalSet, SignalStack};
use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::context::{ObjectCell, Principal};
use hayate_machine::cpu::{self, Local, OfObject, OfPrincipal};
use hayate_machine::sync::{Once, SpinLock};

use smallvec::SmallVec;

use super::namespaces::Membership;
use super::record::Process;
use super::restart::Restart;
use super::seccomp::State;
use super::sequences::registration::Sequences;
use super::signal::queue::Queue;
use super::signal::sets::UNBLOCKABLE;
use super::templates::declaration::Declaration;
use super::usage::{Counters, Usage};
use crate::credentials::{Capability, Credentials};
use crate::ipc::actor::Actor;
use crate::ipc::sysv::traces::Traces;
use crate::memory;
use crate::memory::Space;
use crate::schedule;
use crate::schedule::{Execution, Scheduling, WaitQueue};
use crate::user_namespace;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;
use crate::vfs::open_file::OpenFile;

hayate_machine::per_cpu! {
    static CURRENT: Local<Thread, OfPrincipal> = Local::new();
}

hayate_machine::word_call!(
    /// The number of the current process in its PID namespace.
    current_process_id, current_process_id_gate, current, CURRENT, Thread, process_id
);
hayate_machine::word_call!(
    /// The number of the current thread in its PID namespace.
    current_thread_id, current_thread_id_gate, current, CURRENT, Thread, own_id
);

/// The thread that this processor runs.
///
/// # Panics
/// In a context without a thread: a kernel execution. System-call handlers always have one.
#[inline(always)]
pub fn current() -> cpu::Here<Thread> {
    try_current().unwrap_or_else(|| cpu::empty_slot())
}

hayate_machine::read_slot!(
    /// The thread that this processor runs, if any.
    pub fn try_current = CURRENT: Thread, OfPrincipal
);

/// Whether what runs here may use the memory that is kept for administrators: their programs, and
/// the kernel itself.
pub fn is_administrator_here() -> bool {
    try_current().is_none_or(|thread| thread.administers.load(Ordering::Relaxed))
}

fn administers(credentials: &Credentials) -> bool {
    credentials.has(Capability::SysAdmin)
}

/// The name of a thread (`comm`), at most 15 bytes.
pub type ThreadName = [u8; 16];

/// Converts a name to the form that a thread keeps: up to the first NUL, and at most 15 bytes.
pub fn name_of(text: &[u8]) -> ThreadName {
    let mut bytes = ThreadName::default();
    let text = text.get(..15).unwrap_or(text);
    let length = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    if let Some((to, from)) = bytes.get_mut(..length).zip(text.get(..length)) {
        to.copy_from_slice(from);
    }
    bytes
}

/// A thread of a process.
pub struct Thread {
    this: Weak<Thread>,
    id: AtomicU32,
    /// The number of its process in its PID namespace, kept here for `getpid(2)`.
    pub(super) process_id: AtomicU32,
    /// Its own number there, for `gettid(2)`.
    pub(super) own_id: AtomicU32,
    /// The process it belongs to.
    pub process: Arc<Process>,
    pub(super) execution: SpinLock<Option<Arc<Execution>>>,
    name: SpinLock<ThreadName>,
    credentials: SpinLock<Arc<Credentials>>,
    /// Whether these are an administrator's: readable without the lock.
    administers: AtomicBool,
    files: SpinLock<Option<Arc<FdTable>>>,
    directories: SpinLock<Option<Arc<FsContext>>>,
    pub(super) space: ObjectCell<Space>,
    pub(super) fs_base: AtomicU64,
    pub(super) gs_base: AtomicU64,
    /// Signals to this thread.
    pub queue: Queue,
    blocked: AtomicU64,
    /// The mask to restore when the call that replaced it ends; valid if `mask_is_saved`.
    saved_mask: AtomicU64,
    mask_is_saved: AtomicBool,
    pub(super) signal_stack: SpinLock<SignalStack>,
    /// Where the thread's number is written before its first instruction; 0: nowhere.
    start_tid: AtomicUsize,
    /// The futex that is zeroed and woken when the thread ends (`CLONE_CHILD_CLEARTID`).
    pub clear_tid: AtomicUsize,
    /// The list of robust futexes.
    pub robust_list: AtomicUsize,
    /// Its area for restartable sequences.
    pub sequences: Sequences,
    /// The last exception of the program, for a signal frame.
    trap: SpinLock<Trap>,
    /// How an interrupted sleep continues (`restart_syscall(2)`).
    pub(super) restart: SpinLock<Restart>,
    /// The space belongs to a parent that waits until this thread gives it back (`vfork(2)`).
    pub(super) borrows: AtomicBool,
    pub(super) given_back: WaitQueue,
    /// The signal this thread gets when its parent ends (`PR_SET_PDEATHSIG`).
    pub parent_death_signal: AtomicU32,
    /// Programs executed from here gain no privilege (`PR_SET_NO_NEW_PRIVS`).
    pub no_new_privileges: AtomicBool,
    /// Its filters of system calls; without any until it gets one.
    pub filters: Once<Arc<State>>,
    /// `personality(2)`.
    pub personality: AtomicU32,
    /// How late timers of this thread may expire, in nanoseconds (`PR_SET_TIMERSLACK`).
    pub timer_slack: AtomicU64,
    /// The value that setting `timer_slack` to 0 restores: the one the thread started with.
    pub default_timer_slack: u64,
    /// What it has declared about the template that its next fork makes.
    pub declared: Declaration,
    /// What it has done with System V objects.
    pub traces: Traces,
    pub(super) namespaces: SpinLock<Membership>,
    /// Counts of its reads and writes.
    pub moved: Counters,
    /// How it was scheduled when it ended, in packed form.
    last_scheduling: AtomicU64,
    started: u64,
}

/// An exception that a program caused, as a signal frame shows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trap {
    /// The vector.
    pub number: u64,
    /// The error code.
    pub error: u64,
    /// The address of a page fault.
    pub address: u64,
}

/// The parts and properties with which a new thread starts.
pub struct ThreadParts {
    /// Its number.
    pub id: u32,
    /// The process it belongs to.
    pub process: Arc<Process>,
    /// Its name.
    pub name: ThreadName,
    /// Its credentials.
    pub credentials: Arc<Credentials>,
    /// Its descriptors.
    pub files: Arc<FdTable>,
    /// Its root, working directory and umask.
    pub directories: Arc<FsContext>,
    /// Its memory; `None` only before the first program.
    pub space: Option<Arc<Space>>,
    /// Its thread pointer (FS base).
    pub fs_base: u64,
    /// Its GS base.
    pub gs_base: u64,
    /// The signals it blocks.
    pub blocked: SignalSet,
    /// Its alternate signal stack.
    pub signal_stack: SignalStack,
    /// Whether it borrows its space (`vfork(2)`).
    pub borrows: bool,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: bool,
    /// `personality(2)`.
    pub personality: u32,
    /// `PR_SET_TIMERSLACK`.
    pub timer_slack: u64,
}

impl Thread {
    /// Makes a thread that is not yet in its process's list and has no execution.
    pub fn new(parts: ThreadParts) -> Arc<Thread> {
        Arc::new_cyclic(|this| Thread {
            this: this.clone(),
            id: AtomicU32::new(parts.id),
            process_id: AtomicU32::new(parts.process.id()),
            own_id: AtomicU32::new(parts.id),
            process: parts.process,
            execution: SpinLock::new(None),
            name: SpinLock::new(parts.name),
            administers: AtomicBool::new(administers(&parts.credentials)),
            credentials: SpinLock::new(parts.credentials),
            files: SpinLock::new(Some(parts.files)),
            directories: SpinLock::new(Some(parts.directories)),
            space: ObjectCell::new(parts.space),
            fs_base: AtomicU64::new(parts.fs_base),
            gs_base: AtomicU64::new(parts.gs_base),
            queue: Queue::new(),
            blocked: AtomicU64::new(parts.blocked),
            saved_mask: AtomicU64::new(0),
            mask_is_saved: AtomicBool::new(false),
            signal_stack: SpinLock::new(parts.signal_stack),
            start_tid: AtomicUsize::new(0),
            clear_tid: AtomicUsize::new(0),
            robust_list: AtomicUsize::new(0),
            sequences: Sequences::default(),
            trap: SpinLock::new(Trap::default()),
            restart: SpinLock::new(Restart::Nothing),
            borrows: AtomicBool::new(parts.borrows),
            given_back: WaitQueue::new(),
            parent_death_signal: AtomicU32::new(0),
            no_new_privileges: AtomicBool::new(parts.no_new_privileges),
            filters: Once::new(),
            personality: AtomicU32::new(parts.personality),
            timer_slack: AtomicU64::new(parts.timer_slack),
            default_timer_slack: parts.timer_slack,
            declared: Declaration::default(),
            traces: Traces::default(),
            namespaces: SpinLock::new(Membership::First),
            moved: Counters::default(),
            last_scheduling: AtomicU64::new(0),
            started: schedule::time::monotonic_ns(),
        })
    }

    /// Its number; that of the first thread is the number of the process.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id.load(Ordering::Relaxed)
    }

    /// Takes over the number of the process, since the thread executed a program and is its only
    /// one.
    pub(super) fn become_first(&self) {
        self.id.store(self.process.id(), Ordering::Relaxed);
        self.own_id.store(self.own_process_id(), Ordering::Relaxed);
    }

    /// A counted reference to itself.
    pub fn arc(&self) -> Option<Arc<Thread>> {
        self.this.upgrade()
    }

    /// Where its number is to be written before its first instruction (`CLONE_CHILD_SETTID`).
    pub(super) fn start_tid(&self) -> usize {
        self.start_tid.load(Ordering::Relaxed)
    }

    /// Sets [`Thread::start_tid`].
    pub(super) fn set_start_tid(&self, address: usize) {
        self.start_tid.store(address, Ordering::Relaxed);
    }

    /// The process it belongs to.
    #[inline]
    pub fn process(&self) -> &Arc<Process> {
        &self.process
    }

    /// Its identity for a peer: process number and effective ids (`SO_PEERCRED`).
    pub fn identity(&self) -> Ucred {
        let credentials = self.credentials();
        Ucred { pid: self.process.id() as i32, uid: credentials.euid, gid: credentials.egid }
    }

    /// Itself as objects of System V and POSIX see it.
    pub fn actor(&self) -> Actor {
        let over = match self.is_apart() {
            true => self.ipc().owner.clone(),
            false => user_namespace::first(),
        };
        Actor { credentials: self.credentials(), process: self.process.id(), over }
    }

    /// Its execution; `None` before it starts and after it ended.
    pub fn execution(&self) -> Option<Arc<Execution>> {
        self.execution.lock().clone()
    }

    pub(super) fn set_execution(&self, execution: Option<Arc<Execution>>) {
        let old = core::mem::replace(&mut *self.execution.lock(), execution);
        drop(old);
    }

    /// Records how it was scheduled, for queries after its end.
    #[inline]
    pub(super) fn keep_scheduling(&self, execution: &Execution) {
        self.last_scheduling.store(execution.packed_scheduling(), Ordering::Relaxed);
    }

    /// How it was scheduled when it ended.
    pub fn last_scheduling(&self) -> Scheduling {
        Scheduling::unpack(self.last_scheduling.load(Ordering::Relaxed))
    }

    /// Changes how it was scheduled when it ended: the value of an ended thread can still be set
    /// and read.
    pub fn set_last_scheduling(&self, new: Scheduling) {
        self.last_scheduling.store(new.pack(), Ordering::Relaxed);
    }

    /// Makes it check for signals and notices soon, on whatever processor it is.
    pub fn interrupt(&self) {
        if let Some(execution) = self.execution.lock().as_ref() {
            execution.interrupt();
        }
    }

    /// Its name.
    pub fn name(&self) -> ThreadName {
        *self.name.lock()
    }

    /// Its name without the trailing NULs.
    pub fn shown_name(&self) -> SmallVec<[u8; 16]> {
        self.name().into_iter().take_while(|&byte| byte != 0).collect()
    }

    /// Sets its name; bytes after the 15th are cut off.
    pub fn set_name(&self, name: &[u8]) {
        self.take_name(name_of(name));
    }

    /// Sets its name to one that [`name_of`] made.
    pub(super) fn take_name(&self, name: ThreadName) {
        *self.name.lock() = name;
    }

    /// Its credentials.
    #[inline]
    pub fn credentials(&self) -> Arc<Credentials> {
        self.credentials.lock().clone()
    }

    /// Its real user.
    pub fn real_user(&self) -> u32 {
        self.credentials.lock().uid
    }

    /// Changes its credentials.
    pub fn set_credentials(&self, credentials: Arc<Credentials>) {
        self.administers.store(administers(&credentials), Ordering::Relaxed);
        let old = core::mem::replace(&mut *self.credentials.lock(), credentials);
        drop(old);
    }

    /// Its descriptors. A thread that is ending has an empty table of its own.
    #[inline]
    pub fn files(&self) -> Arc<FdTable> {
        match self.files.lock().as_ref() {
            Some(files) => files.clone(),
            None => Arc::new(FdTable::new()),
        }
    }

    /// Returns the open file of a descriptor. Takes one reference: that to the file; the reference
    /// to the table is not counted.
    #[inline(always)]
    pub fn file(&self, fd: i32) -> Result<Arc<OpenFile>> {
        match self.files.lock().as_ref() {
            Some(files) => files.get(fd),
            None => Err(Errno::EBADF),
        }
    }

    /// Its descriptors, unless it is ending; for callers that only read the table.
    pub fn try_files(&self) -> Option<Arc<FdTable>> {
        self.files.lock().clone()
    }

    /// Whether its descriptor table is `table`.
    pub fn has_files(&self, table: &Arc<FdTable>) -> bool {
        self.files.lock().as_ref().is_some_and(|files| Arc::ptr_eq(files, table))
    }

    /// Puts an open file at the lowest free descriptor. Fails with `EMFILE`, `ENOMEM`.
    pub fn install(&self, file: Arc<OpenFile>, close_on_exec: bool) -> Result<i32> {
        let limit = self.process.limit(RLIMIT_NOFILE);
        self.files().install(file, 0, limit, close_on_exec)
    }

    /// Gives it a descriptor table of its own (`unshare(CLONE_FILES)`). For the current thread.
    pub fn unshare_files(&self) -> Result<()> {
        let files = self.files();
        // One reference is the thread's, one is this function's.
        if Arc::strong_count(&files) > 2 {
            self.set_files(Some(files.unshare()?));
        }
        Ok(())
    }

    /// Gives it root, working directory and umask of its own. For the current thread.
    pub fn unshare_directories(&self) -> Result<()> {
        let directories = self.directories()?;
        if Arc::strong_count(&directories) > 2 {
            self.set_directories(Some(Arc::new(directories.fork())));
        }
        Ok(())
    }

    pub(super) fn set_files(&self, files: Option<Arc<FdTable>>) {
        let old = core::mem::replace(&mut *self.files.lock(), files);
        drop(old);
    }

    /// Its root, working directory and umask. Fails with `ESRCH` for another thread that is ending.
    #[inline]
    pub fn directories(&self) -> Result<Arc<FsContext>> {
        self.directories.lock().clone().ok_or(Errno::ESRCH)
    }

    /// Whether its root, working directory and umask are these.
    pub(super) fn has_directories(&self, directories: &Arc<FsContext>) -> bool {
        self.directories.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, directories))
    }

    pub(super) fn set_directories(&self, directories: Option<Arc<FsContext>>) {
        let old = core::mem::replace(&mut *self.directories.lock(), directories);
        drop(old);
    }

    /// Its memory; `None` after it has ended.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.space.get()
    }

    /// Whether it is in that space.
    pub fn is_in(&self, space: &Arc<Space>) -> bool {
        self.space.look(|own| own.is_some_and(|own| Arc::ptr_eq(own, space)))
    }

    /// Whether no other thread or process executes in its space. Only the thread itself can change
    /// that, so the result stays true for the current thread. It may be false only because another
    /// thread holds a reference for a moment.
    pub fn is_alone_in_space(&self) -> bool {
        self.space.look(|space| space.is_some_and(|space| Arc::strong_count(space) == 1))
    }

    /// Replaces its space and loads the new one. Returns the old one, which the caller drops when
    /// it is not needed any more. For the current thread.
    pub(super) fn change_space(&self, space: Option<Arc<Space>>) -> Option<Arc<Space>> {
        match &space {
            Some(space) => space.activate(),
            None => memory::leave(),
        }
        self.space.replace(space)
    }

    /// Gives a borrowed space back, so that the parent continues.
    pub(super) fn give_back(&self) {
        if self.borrows.swap(false, Ordering::SeqCst) {
            self.given_back.wake_all();
        }
    }

    /// Sets the thread pointer (FS base). For the current thread.
    pub fn set_fs_base(&self, base: u64) -> Result<()> {
        if !cpu::set_user_fs_base(base) {
            return Err(Errno::EPERM);
        }
        self.fs_base.store(base, Ordering::Relaxed);
        Ok(())
    }

    /// Sets the GS base. For the current thread.
    pub fn set_gs_base(&self, base: u64) -> Result<()> {
        if !cpu::set_user_gs_base(base) {
            return Err(Errno::EPERM);
        }
        self.gs_base.store(base, Ordering::Relaxed);
        Ok(())
    }

    /// Sets both bases at once, whatever they are (a value that the processor does not accept
    /// becomes 0). For the current thread.
    pub(super) fn take_bases(&self, fs: u64, gs: u64) {
        self.fs_base.store(fs, Ordering::Relaxed);
        self.gs_base.store(gs, Ordering::Relaxed);
        cpu::restore_user_bases(fs, gs);
    }

    /// The signals it blocks.
    #[inline]
    pub fn blocked(&self) -> SignalSet {
        self.blocked.load(Ordering::SeqCst)
    }

    /// Sets the signals it blocks; pending signals that are no longer blocked are taken before the
    /// thread returns to user mode. For the current thread.
    pub fn set_blocked(&self, mask: SignalSet) {
        let mask = mask & !UNBLOCKABLE;
        let old = self.blocked.swap(mask, Ordering::SeqCst);
        if self.has_signals() {
            schedule::current().interrupt();
        }
        // A signal to the process that only this thread did not block must find another thread.
        let newly = mask & !old & self.process.queue.mask();
        if newly != 0 {
            self.process.interrupt_one(newly);
        }
    }

    /// The mask as its tracer sees it: that which a call that replaced it restores, if it does.
    pub fn shown_mask(&self) -> SignalSet {
        if self.mask_is_saved.load(Ordering::Relaxed) {
            self.saved_mask.load(Ordering::Relaxed)
        } else {
            self.blocked()
        }
    }

    /// Sets the mask of a thread that is in a stop of its tracing; when it goes on, it looks for
    /// signals.
    pub fn set_mask_in_stop(&self, mask: SignalSet) {
        self.mask_is_saved.store(false, Ordering::Relaxed);
        self.set_blocked_quietly(mask);
        let pending = !mask & self.process.queue.mask();
        if pending != 0 {
            self.process.interrupt_one(pending);
        }
        self.interrupt();
    }

    pub(super) fn set_blocked_quietly(&self, mask: SignalSet) {
        self.blocked.store(mask & !UNBLOCKABLE, Ordering::SeqCst);
    }

    /// The pending signals, including blocked ones.
    pub fn pending(&self) -> SignalSet {
        self.queue.mask() | self.process.queue.mask()
    }

    /// Whether an unblocked signal is pending, or the process has raised a notice.
    #[inline]
    pub fn has_signals(&self) -> bool {
        self.pending() & !self.blocked() != 0 || self.process.notice() != 0
    }

    /// Replaces the mask for the length of one call (`ppoll(2)`, `sigsuspend(2)`). The call ends
    /// with [`Thread::restore_mask`].
    pub fn replace_mask(&self, mask: SignalSet) {
        self.saved_mask.store(self.blocked(), Ordering::Relaxed);
        self.mask_is_saved.store(true, Ordering::Relaxed);
        self.set_blocked(mask);
    }

    /// Ends [`Thread::replace_mask`]. If a signal interrupted the call, the old mask is restored
    /// only after that signal was taken, so that its handler runs under the mask that the caller
    /// asked for.
    pub fn restore_mask<T>(&self, result: &Result<T>) {
        let interrupted =
            matches!(result, Err(error) if error.is_restart() || *error == Errno::EINTR);
        if !interrupted {
            self.settle_mask();
        }
    }

    /// Takes the mask to restore, if there is one.
    pub(super) fn take_saved_mask(&self) -> Option<SignalSet> {
        self.mask_is_saved
            .swap(false, Ordering::Relaxed)
            .then(|| self.saved_mask.load(Ordering::Relaxed))
    }

    /// Restores the saved mask, if there is one.
    pub(super) fn settle_mask(&self) {
        if let Some(mask) = self.take_saved_mask() {
            self.set_blocked(mask);
        }
    }

    /// Sets how the interrupted call continues, and returns the error that causes that.
    pub fn restart_with(&self, restart: Restart) -> Errno {
        *self.restart.lock() = restart;
        Errno::ERESTART_RESTARTBLOCK
    }

    /// The last exception it caused.
    pub fn trap(&self) -> Trap {
        *self.trap.lock()
    }

    /// Notes an exception it caused.
    pub fn set_trap(&self, trap: Trap) {
        *self.trap.lock() = trap;
    }

    /// Its alternate signal stack.
    pub fn signal_stack(&self) -> SignalStack {
        *self.signal_stack.lock()
    }

    /// Sets its alternate signal stack. For the current thread.
    pub(super) fn set_signal_stack(&self, stack: SignalStack) {
        *self.signal_stack.lock() = stack;
    }

    /// Takes the record of how its interrupted call continues.
    pub fn take_restart(&self) -> Restart {
        core::mem::take(&mut *self.restart.lock())
    }

    /// When it was started, on the monotonic clock in nanoseconds.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// The resources that it has consumed.
    pub fn usage(&self) -> Usage {
        // It has ended: its process has counted what it consumed.
        self.execution().map_or(Usage::default(), |execution| Usage::of(&execution))
    }
}

impl Principal for Thread {
    type Object = Space;

    fn slot() -> &'static Local<Thread, OfPrincipal> {
        &CURRENT
    }

    fn object_slot() -> &'static Local<Space, OfObject> {
        &memory::CURRENT
    }

    fn object_cell(&self) -> &ObjectCell<Space> {
        &self.space
    }
}
