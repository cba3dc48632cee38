//! The relation of a traced thread to its tracer.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::ptrace::PTRACE_EVENT_STOP;
use hayate_abi::signal::{SIGCHLD, SIGTRAP, Siginfo};
use hayate_abi::{Errno, Result};
use hayate_machine::cpu::DebugRegisters;
use hayate_machine::fpu::FpuState;
use hayate_machine::sync::SpinLock;
use hayate_machine::trap::UserRegs;

use crate::credentials::Credentials;
use crate::process::signal::send;
use crate::process::thread::Thread;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;

/// All relations; see the module for the lock's place.
pub static LINKS: SpinLock<Vec<Arc<Tracee>>> = SpinLock::new(Vec::new());

/// A traced thread.
pub struct Tracee {
    /// The thread.
    pub thread: Arc<Thread>,
    /// The thread that traces it.
    pub tracer: Arc<Thread>,
    /// The rights of the tracer when it attached.
    pub credentials: Arc<Credentials>,
    /// It was attached by `PTRACE_SEIZE`, or started by one that was.
    pub seized: bool,
    /// What the two tell each other.
    pub state: SpinLock<State>,
    /// Where the thread sleeps in a stop.
    pub resumed: WaitQueue,
}

/// What a traced thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It runs, or sleeps in a system call.
    Running,
    /// It is in a stop.
    Stopped,
    /// It has ended before its process, with this wait status, and its tracer has yet to wait.
    Ended(i32),
}

/// Where the thread is to stop next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Until {
    /// At a system call.
    pub call: bool,
    /// At a system call, which is not carried out.
    pub emulated: bool,
    /// After an instruction.
    pub step: bool,
}

/// The state of a traced thread.
pub struct State {
    /// The relation exists.
    pub linked: bool,
    /// What the thread does.
    pub phase: Phase,
    /// `PTRACE_O_*`
    pub options: u32,
    /// What `PTRACE_GETEVENTMSG` tells.
    pub message: u64,
    /// The stop, as the upper part of a wait status.
    pub code: u32,
    /// `wait` has not reported it.
    pub untold: bool,
    /// The signal's information, of stops that have one.
    pub info: Option<Siginfo>,
    /// The stop is that of a signal to be delivered.
    pub delivers: bool,
    /// It stays stopped, but tells of changes (`PTRACE_LISTEN`).
    pub listening: bool,
    /// The signal with which it goes on.
    pub signal: u32,
    /// Where it stops next.
    pub until: Until,
    /// It is to stop as soon as it can (`PTRACE_INTERRUPT`).
    pub trap: bool,
    /// The stop of its process has changed.
    pub notify: bool,
    /// `SIGKILL` came while its process was ending: nothing stops it any more.
    pub killed: bool,
    /// The last stop of the process that it took part in.
    pub taken: u64,
    /// The trap flag was set for the tracer, not by the program.
    pub forced_step: bool,
    /// Its number is to be freed with the relation.
    pub keeps_number: bool,
    /// Its registers in a stop.
    pub regs: UserRegs<'static>,
    /// Its FS and GS bases.
    pub bases: [u64; 2],
    /// The tracer has changed registers.
    pub changed: bool,
    /// Its floating-point and vector registers, as in a core file.
    pub fpu: Vec<u8>,
    /// The tracer has changed these.
    pub fpu_changed: bool,
    /// The enabled components of that state.
    pub components: u64,
    /// Its debug registers.
    pub debug: DebugRegisters,
    /// What they have reported (DR6).
    pub debug_status: u64,
}

impl Tracee {
    /// Makes the relation of `thread` to `tracer`, which is not in the list yet.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        thread: &Arc<Thread>,
        tracer: &Arc<Thread>,
        credentials: Arc<Credentials>,
        seized: bool,
        options: u32,
    ) -> Result<Arc<Tracee>> {
        let mut fpu = Vec::new();
        fpu.make_room_exact(FpuState::core_size())?;
        fpu.resize(FpuState::core_size(), 0);
        Ok(Arc::new(Tracee {
            thread: thread.clone(),
            tracer: tracer.clone(),
            credentials,
            seized,
            state: SpinLock::new(State {
                linked: false,
                phase: Phase::Running,
                options,
                message: 0,
                code: 0,
                untold: false,
                info: None,
                delivers: false,
                listening: false,
                signal: 0,
                until: Until::default(),
                trap: false,
                notify: false,
                killed: false,
                taken: 0,
                forced_step: false,
                keeps_number: false,
                regs: UserRegs::default(),
                bases: [0; 2],
                changed: false,
                fpu,
                fpu_changed: false,
                components: 0,
                debug: DebugRegisters::default(),
                debug_status: 0,
            }),
            resumed: WaitQueue::new(),
        }))
    }

    /// Whether the thread is its process's first.
    pub fn is_first(&self) -> bool {
        self.thread.id() == self.thread.process().id()
    }

    /// Sends the tracer the news of a change, and wakes it if it waits (`do_notify_parent_cldstop`,
    /// kernel/signal.c). Call it without locks.
    pub fn tell(&self, code: i32, status: i32) {
        let process = self.tracer.process();
        if process.actions().about_children().1 {
            let mut info = send::about_child(self.thread.process(), code, status);
            let uid = u64::from(self.thread.credentials().uid) << 32;
            info.fields[0] = u64::from(self.thread.id()) | uid;
            info.si_signo = SIGCHLD as i32;
            let _ = send::to_process(process, info);
        }
        process.child_events.wake_all();
    }

    /// Makes a stopped thread go on.
    ///
    /// # Errors
    /// `ESRCH` if it is not stopped any more.
    pub fn go_on(&self, signal: u32, until: Until) -> Result<()> {
        {
            let mut state = self.state.lock();
            if !state.answers() {
                return Err(Errno::ESRCH);
            }
            state.until = until;
            state.leave_stop(signal);
        }
        self.resumed.wake_all();
        Ok(())
    }

    /// Makes it stop as soon as it can; one that listens does so at once.
    pub fn trap(&self, change: impl FnOnce(&mut State)) {
        let listens = {
            let mut state = self.state.lock();
            change(&mut state);
            let listens = state.listening && state.is_stopped();
            if listens {
                state.leave_stop(0);
            }
            listens
        };
        if listens {
            self.resumed.wake_all();
        }
        self.thread.interrupt();
    }
}

impl State {
    /// Whether it is in a stop.
    pub fn is_stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// Whether it is in a stop in which its tracer may ask for something.
    pub fn answers(&self) -> bool {
        self.is_stopped() && !self.listening
    }

    /// Whether the stop is that of an event.
    pub fn is_event(&self, event: u32) -> bool {
        self.info.is_some_and(|info| info.si_code >> 8 == event as i32)
    }

    /// Whether the stop is one of `PTRACE_EVENT_STOP`.
    pub fn is_event_stop(&self) -> bool {
        self.is_event(PTRACE_EVENT_STOP)
    }

    /// Whether the stop is at a system call, told as such (`PTRACE_O_TRACESYSGOOD`).
    pub fn is_at_call(&self) -> bool {
        self.info.is_some_and(|info| info.si_code == SIGTRAP as i32 | 0x80)
    }

    /// Ends the stop.
    pub fn leave_stop(&mut self, signal: u32) {
        self.phase = Phase::Running;
        self.untold = false;
        self.listening = false;
        self.signal = signal;
    }
}

/// The relation of a thread that is traced.
pub fn of(thread: &Thread) -> Option<Arc<Tracee>> {
    if !thread.process().is_involved() {
        return None;
    }
    LINKS.lock().iter().find(|link| core::ptr::eq(&*link.thread, thread)).cloned()
}

/// Whether a thread is traced.
pub fn is_traced(thread: &Thread) -> bool {
    thread.process().is_involved()
        && LINKS.lock().iter().any(|link| core::ptr::eq(&*link.thread, thread))
}

/// The thread with this number, if `tracer` traces it. Fails with `ESRCH`.
pub fn find(tracer: &Thread, number: u32) -> Result<Arc<Tracee>> {
    let links = LINKS.lock();
    let is_it =
        |link: &&Arc<Tracee>| link.thread.id() == number && core::ptr::eq(&*link.tracer, tracer);
    links.iter().find(is_it).cloned().ok_or(Errno::ESRCH)
}
