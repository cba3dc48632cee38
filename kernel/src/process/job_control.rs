//! Leaders of sessions, process groups, and the job control of terminals (`setsid(2)`,
//! `credentials(7)`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};

use super::pids;
use super::record::Process;
use super::session::Session;
use super::signal::send;
use super::thread::current;
use super::visible;
use crate::credentials::Capability;
use crate::tty::groups::Groups;
use crate::tty::job;
use crate::tty::job::{Caller, JobControl};
use crate::tty::state::Tty;

/// Makes a process the leader of a new session and a new group. Fails with `EPERM` if it leads a
/// group.
pub fn start_session(process: &Process) -> Result<u32> {
    let id = process.id();
    if process.group() == id || first_of_group(id)?.is_some() {
        return Err(Errno::EPERM);
    }
    process.note_leading();
    process.set_session(Arc::new(Session::new(id)));
    process.without_terminal.store(false, Ordering::Relaxed);
    process.set_group(id);
    Ok(id)
}

/// Returns any process of a group. Fails with `ENOMEM` if memory is exhausted.
pub fn first_of_group(group: u32) -> Result<Option<Arc<Process>>> {
    // In most cases the process with the group's number still exists.
    if let Some(leader) = pids::process(group)
        && leader.group() == group
    {
        return Ok(Some(leader));
    }
    Ok(pids::processes()?.into_iter().find(|process| process.group() == group))
}

/// Whether no process could continue a stopped group: no member's parent is in another group of the
/// same session (POSIX, "orphaned process group"). `except` is treated as gone.
pub fn is_orphaned(group: u32, except: Option<&Process>) -> bool {
    let Ok(processes) = pids::processes() else { return false };
    !processes.iter().any(|process| {
        process.group() == group
            && !process.is_zombie()
            && except.is_none_or(|gone| !core::ptr::eq(&**process, gone))
            && process.parent().is_some_and(|parent| {
                parent.id() != 1
                    && except.is_none_or(|gone| !core::ptr::eq(&*parent, gone))
                    && parent.group() != group
                    && parent.session_id() == process.session_id()
            })
    })
}

/// Whether the end of `parent` orphans the group of its child `child`.
pub fn would_strand(child: &Process, parent: &Process) -> bool {
    child.group() != parent.group()
        && child.session_id() == parent.session_id()
        && is_orphaned(child.group(), Some(parent))
}

/// Whether the end of `process` orphans its own group, because only its parent was in another group
/// of the session.
pub fn own_end_strands(process: &Process) -> bool {
    process.parent().is_some_and(|parent| {
        parent.group() != process.group()
            && parent.session_id() == process.session_id()
            && is_orphaned(process.group(), Some(process))
    })
}

/// Sends SIGHUP and SIGCONT to a newly orphaned group if a member is stopped
/// (`kill_orphaned_pgrp`).
pub fn hang_up_if_stopped(group: u32) {
    let Ok(processes) = pids::processes() else { return };
    let stopped = processes.iter().any(|process| process.group() == group && process.is_stopped());
    if stopped {
        let _ = send::to_group(group, Siginfo::new(SIGHUP, SI_KERNEL), |_| true);
        let _ = send::to_group(group, Siginfo::new(SIGCONT, SI_KERNEL), |_| true);
    }
}

/// Hangs up and releases the terminal of a session whose leader ends.
pub fn leader_ends(process: &Process) {
    let session = process.session();
    if session.id() != process.id() {
        return;
    }
    let Some(terminal) = session.terminal() else { return };
    session.set_terminal(None);
    terminal.session_ended(session.id());
}

/// Job control, as terminals use it.
struct Control;

static CONTROL: Control = Control;

/// Registers job control with the terminals.
pub fn init() {
    job::register(&CONTROL);
}

fn session_by_id(id: u32) -> Option<Arc<Session>> {
    let session = |process: &Arc<Process>| {
        let session = process.session();
        (session.id() == id).then_some(session)
    };
    pids::process(id)
        .as_ref()
        .and_then(session)
        .or_else(|| pids::processes().ok()?.iter().find_map(session))
}

impl Groups for Control {
    fn signal_group(&self, group: u32, signal: u32) {
        let _ = send::to_group(group, Siginfo::new(signal, SI_KERNEL), |_| true);
    }

    fn signal_session_leader(&self, session: u32, signal: u32) {
        if let Some(leader) = pids::process(session) {
            let _ = send::to_process(&leader, Siginfo::new(signal, SI_KERNEL));
        }
    }

    fn take_terminal_away(&self, session: u32) {
        self.set_controlling_terminal(session, None);
    }
}

impl JobControl for Control {
    fn caller(&self) -> Caller {
        let thread = current();
        let process = &thread.process;
        let session = process.session_id();
        Caller {
            session,
            group: process.group(),
            leads_session: session == process.id(),
            privileged: thread.credentials().has(Capability::SysAdmin),
        }
    }

    fn shown(&self, number: u32) -> u32 {
        visible::shown(number)
    }

    fn meant(&self, number: u32) -> u32 {
        visible::meant(number)
    }

    fn controlling_terminal(&self) -> Option<Arc<Tty>> {
        let thread = current();
        if thread.process.without_terminal.load(Ordering::Relaxed) {
            return None;
        }
        thread.process.session().terminal()
    }

    fn set_controlling_terminal(&self, session: u32, terminal: Option<Arc<Tty>>) {
        if let Some(session) = session_by_id(session) {
            session.set_terminal(terminal);
        }
    }

    fn forget_controlling_terminal(&self) {
        current().process.without_terminal.store(true, Ordering::Relaxed);
    }

    fn group_exists(&self, group: u32) -> bool {
        matches!(first_of_group(group), Ok(Some(_)))
    }

    fn group_in_session(&self, group: u32, session: u32) -> bool {
        matches!(first_of_group(group), Ok(Some(member)) if member.session_id() == session)
    }

    fn blocks_or_ignores(&self, signal: u32) -> bool {
        let thread = current();
        thread.blocked() & bit(signal) != 0
            || thread.process.actions().ignored_and_caught().0 & bit(signal) != 0
    }

    fn group_is_orphaned(&self, group: u32) -> bool {
        is_orphaned(group, None)
    }
}
