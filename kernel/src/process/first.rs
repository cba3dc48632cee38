//! The first process: made of a program alone, since there is none to fork.

use alloc::sync::Arc;

use hayate_abi::signal::SignalStack;
use hayate_abi::{Errno, Result};
use hayate_machine::fpu::FpuState;
use hayate_machine::info;

use super::dump::filter;
use super::exec;
use super::limits::Limits;
use super::pids::{INIT, Number};
use super::record::{Inheritance, Process, Vectors};
use super::session::Session;
use super::signal::actions::ActionTable;
use super::thread::{Thread, ThreadParts, name_of};
use super::transform::Position;
use crate::credentials::Credentials;
use crate::memory;
use crate::program;
use crate::program::Beginning;
use crate::program::{Executable, Strings};
use crate::recycle::watch::Unwatched;
use crate::schedule;
use crate::schedule::Execution;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;
use crate::vfs::path::{Resolver, WalkFlags};

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
    let number = Number::draw()?;
    let credentials = Credentials::root();
    let limits = Arc::new(Limits::initial());
    let location = Resolver { context: &directories, credentials: &credentials, start: None }
        .resolve(path, WalkFlags::empty())?;
    let request = program::ExecRequest {
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
        randomise: memory::places::are_random(),
    };
    let prepared = program::prepare::<Unwatched>(request, |_, _, _| Beginning::Usual)?;
    let position = Position::start(prepared.entry as u64, prepared.stack.pointer as u64);
    let vectors = exec::vectors(&prepared.stack);
    let process = make_process(number.get(), limits, prepared.executable, vectors);
    let thread = Thread::new(ThreadParts {
        id: number.get(),
        process: process.clone(),
        name: name_of(&prepared.name),
        credentials: prepared.credentials,
        files,
        directories,
        space: Some(prepared.space),
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

/// The record of a process that inherits nothing.
fn make_process(
    id: u32,
    limits: Arc<Limits>,
    executable: Arc<Executable>,
    vectors: Vectors,
) -> Arc<Process> {
    Arc::new(Process::new(
        id,
        Inheritance {
            parent: None,
            group: 0,
            session: Session::first(),
            actions: Arc::new(ActionTable::new()),
            limits,
            executable: Some(executable),
            vectors,
            dumpable: 1,
            dump_filter: filter::DEFAULT,
            oom_score_adjust: 0,
            maker: 0,
            exit_signal: 0,
            keeps_mode: false,
            is_newcomer: false,
        },
    ))
}
