//! Processes and threads.
//!
//! A [`Process`] is a record that its threads share. A [`Thread`] has an execution and holds
//! counted references to its parts: space, descriptors, directories, credentials. None of these
//! belongs to the process. That is on purpose: fork, exec and exit only arrange parts that exist on
//! their own (see `clone.rs`, `exec.rs`, `exit.rs`), so parts can be made in advance and kept
//! afterwards.
//!
//! | file | contents |
//! |---|---|
//! | [`record`] | the process |
//! | [`thread`] | the thread |
//! | [`pids`], [`pidfd`] | process and thread numbers, descriptors of processes |
//! | [`family`], [`wait`] | parents and children, waiting |
//! | [`session`] | sessions, groups, job control |
//! | [`transform`], [`held`] | changing the program, the position and the space of a process |
//! | [`clone`], [`exec`], [`exit`] | start, exec and exit, built from these |
//! | [`signal`] | signals |
//! | [`fault`] | exceptions of programs |
//! | [`dump`] | core files |
//! | [`futex`], [`timer`], [`cpu_time`] | waiting for futexes and for time |
//! | [`mode`] | user or supervisor mode |
//! | [`limits`], [`usage`], [`identity`] | limits, consumption, names |
//! | [`access`] | which processes may look into a process |
//! | [`starts`] | the time of each part of a program's start, if it is to be measured |
//! | [`resources`] | the parts of processes as the registry shows them |
//!
//! Lock order: a child's `parent`, the parent's `children`, `control`, `ended_usage`, `threads`,
//! then leaves (queues, actions, the slots of a thread, shards of the number table). No lock of
//! this module is held during a sleep, and none of those on the path of a start or an end is
//! global.

pub mod access;
mod addressee;
pub mod clone;
pub mod cpu_time;
pub mod dump;
pub mod exec;
pub mod exit;
pub mod family;
pub mod fault;
pub mod futex;
pub mod held;
pub mod identity;
pub mod limits;
pub mod pidfd;
pub mod pids;
pub mod record;
pub mod resources;
pub mod session;
pub mod signal;
pub mod starts;
pub mod thread;
pub mod timer;
pub mod transform;
pub mod usage;
mod victim;
pub mod wait;

use alloc::sync::Arc;
use hayate_abi::signal::SignalStack;
use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::sync::Once;
use hayate_machine::trap::{self, UserRegs};
use hayate_machine::{info, power};

pub use pids::{PID_MAX, processes};
pub use record::Process;
pub use thread::{Restart, Thread, current, try_current};

use transform::{Executed, Newcomer, Position, Transform};

use crate::credentials::{Capability, Credentials};
use crate::memory;
use crate::program;
use crate::program::Strings;
use crate::recycle::watch::Unwatched;
use crate::schedule;
use crate::schedule::Execution;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;
use crate::vfs::path::{Resolver, WalkFlags};

static INIT: Once<Arc<Process>> = Once::new();

/// Prepares the module; boot calls it once.
pub fn init() {
    session::init();
    memory::lock::set_privilege(|| {
        try_current().is_some_and(|thread| thread.credentials().has(Capability::IpcLock))
    });
    addressee::init();
    resources::register();
}

/// Returns the first process.
///
/// # Panics
/// Before the first process is started: until then no other process exists that could ask.
pub fn init_process() -> Arc<Process> {
    match INIT.get() {
        Some(process) => process.clone(),
        None => panic!("the first process was asked for before it was started"),
    }
}

/// Handles the processes' attention bits of the current execution, for the attention handler.
pub fn attend(regs: &mut UserRegs) {
    if trap::attention::get() & trap::MEMORY != 0 {
        trap::attention::clear(trap::MEMORY);
        #[cfg(debug_assertions)]
        if crate::reclaim::refusal::end_call() {
            return;
        }
        fault::out_of_reserve();
    }
    if trap::attention::get() & trap::INTERRUPTED == 0 {
        return;
    }
    if thread::try_current().is_some() {
        signal::deliver::attend(regs);
    } else {
        trap::attention::clear(trap::INTERRUPTED);
    }
}

/// Starts the first process with the program at `path` and these strings. Call it from an execution
/// that may sleep.
///
/// Errors as `execve(2)`.
pub fn start_first(
    path: &[u8],
    arguments: Strings,
    environment: Strings,
    directories: Arc<FsContext>,
    files: Arc<FdTable>,
) -> Result<()> {
    let number = pids::Number::draw()?;
    let credentials = Credentials::root();
    let limits = Arc::new(limits::Limits::initial());
    let location = Resolver { context: &directories, credentials: &credentials, start: None }
        .resolve(path, WalkFlags::empty())?;
    let prepared = program::prepare::<Unwatched>(program::Request {
        location,
        path,
        path_vanishes: false,
        arguments,
        environment,
        context: &directories,
        credentials: &credentials,
        no_new_privileges: false,
        refuses_privilege: &|| false,
        limits: exec::space_limits(&limits),
        randomise: crate::memory::randomizes(),
    })?;
    let position = Position::start(prepared.entry as u64, prepared.stack.pointer as u64);
    let mut newcomer = Newcomer::default();
    newcomer.change_space(prepared.space);
    newcomer.change_program(Executed {
        executable: Some(prepared.executable),
        vectors: exec::vectors(&prepared.stack),
        name: thread::name_of(&prepared.name),
    });
    newcomer.change_position(&position);
    let Newcomer { space, program, .. } = newcomer;
    let process = Arc::new(Process::new(
        number.get(),
        record::Inheritance {
            parent: None,
            group: 0,
            session: session::Session::first(),
            actions: Arc::new(signal::ActionTable::new()),
            limits,
            executable: program.executable,
            vectors: program.vectors,
            dumpable: 1,
            dump_filter: dump::FILTER_DEFAULT,
            oom_score_adjust: 0,
            exit_signal: 0,
            keeps_mode: false,
        },
    ));
    let thread = Thread::new(thread::Parts {
        id: number.get(),
        process: process.clone(),
        name: program.name,
        credentials: Arc::new(prepared.credentials),
        files,
        directories,
        space,
        fs_base: position.fs_base,
        gs_base: position.gs_base,
        blocked: 0,
        signal_stack: SignalStack::default(),
        borrows: false,
        no_new_privileges: false,
        personality: 0,
        timer_slack: 50_000,
    });
    let fpu = FpuState::new_init().ok_or(Errno::ENOMEM)?;
    let execution = Execution::new_user(thread.clone(), &position.regs, fpu)?;
    thread.set_execution(Some(execution.clone()));
    process.threads.lock().push(thread);
    INIT.call_once(|| process.clone());
    number.to_process(&process);
    info!("first-instruction {}", schedule::time::monotonic_ns());
    schedule::start(&execution);
    Ok(())
}

/// Returns the space of a process that the caller may read and write (`process_vm_readv(2)`): its
/// own, and those of processes of the same user that have not gained privilege.
///
/// Fails with `ESRCH` if there is none, `EPERM` if the caller may not ([`access`]).
pub fn foreign_space(pid: i32) -> Result<Arc<crate::memory::Space>> {
    let number = u32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    let target = pids::thread(number).ok_or(Errno::ESRCH)?;
    // Check and take the space of one program, even if the process executes another one meanwhile.
    target.process.steady(|| {
        access::check(&target, access::Ids::Real)?;
        target.space().ok_or(Errno::ESRCH)
    })
}

/// The number of processes and threads started since boot (`/proc/stat`).
pub fn started() -> u64 {
    pids::started()
}

/// Stops the system, since the first process has ended.
fn first_process_ended(status: i32) {
    match status & 0x7f {
        0 => info!("the first process ended with status {}", status >> 8),
        signal => info!(
            "the first process was ended by {}",
            hayate_abi::signal::name(signal as u32).unwrap_or("a signal")
        ),
    }
    crate::tty::settle_output();
    power::off()
}
