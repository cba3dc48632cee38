//! Threads, processes and groups as the targets of the signals of open files
//! (`vfs/signal_owner.rs`).

use alloc::sync::{Arc, Weak};

use hayate_abi::signal::Siginfo;
use hayate_abi::{Errno, Result};

use super::record::Process;
use super::signal::send;
use super::thread::{Thread, current};
use super::{job_control, pids, visible};
use crate::credentials::Credentials;
use crate::vfs::signal_owner;
use crate::vfs::signal_owner::{Addressee, AddresseeKind, Asker, Directory};

/// Whether `asker` may have signals sent to a process of `target` (`sigio_perm`).
fn may_tell(asker: Asker, target: &Credentials) -> bool {
    let fits = |user: u32| user == target.suid || user == target.uid;
    asker.euid == 0 || fits(asker.euid) || fits(asker.uid)
}

struct OneThread(Weak<Thread>);

impl Addressee for OneThread {
    fn number(&self) -> Option<i32> {
        let thread = self.0.upgrade()?;
        pids::thread(thread.id())
            .is_some_and(|now| Arc::ptr_eq(&now, &thread))
            .then(|| thread.id() as i32)
    }

    fn send(&self, asker: Asker, info: Siginfo) -> Result<()> {
        match self.0.upgrade() {
            Some(thread) if may_tell(asker, &thread.credentials()) => {
                send::to_thread(&thread, info)
            }
            _ => Ok(()),
        }
    }
}

struct OneProcess(Weak<Process>);

fn may_tell_process(asker: Asker, process: &Process) -> bool {
    process.first_thread().is_some_and(|thread| may_tell(asker, &thread.credentials()))
}

impl Addressee for OneProcess {
    fn number(&self) -> Option<i32> {
        let process = self.0.upgrade()?;
        (!process.is_reaped()).then(|| process.id() as i32)
    }

    fn send(&self, asker: Asker, info: Siginfo) -> Result<()> {
        match self.0.upgrade() {
            Some(process) if may_tell_process(asker, &process) => send::to_process(&process, info),
            _ => Ok(()),
        }
    }
}

/// A process as long as it executes the same program: what a program asked for does not reach the
/// next one (`notify_self_exec_id`, ipc/mqueue.c).
struct OneProgram {
    process: OneProcess,
    /// [`Process::programs`] when it asked.
    programs: u32,
}

impl Addressee for OneProgram {
    fn number(&self) -> Option<i32> {
        self.process.number()
    }

    fn send(&self, asker: Asker, info: Siginfo) -> Result<()> {
        let now = self.process.0.upgrade().map(|process| process.programs());
        if now == Some(self.programs) { self.process.send(asker, info) } else { Ok(()) }
    }
}

struct Group(u32);

impl Addressee for Group {
    fn number(&self) -> Option<i32> {
        matches!(job_control::first_of_group(self.0), Ok(Some(_))).then_some(self.0 as i32)
    }

    fn send(&self, asker: Asker, info: Siginfo) -> Result<()> {
        let (met, reached) =
            send::to_group(self.0, info, |process| may_tell_process(asker, process))?;
        if met != 0 && reached == 0 { Err(Errno::EAGAIN) } else { Ok(()) }
    }
}

struct Everybody;

impl Directory for Everybody {
    fn find(&self, kind: AddresseeKind, number: i32) -> Result<Arc<dyn Addressee>> {
        let id = visible::meant(u32::try_from(number).map_err(|_| Errno::ESRCH)?);
        if kind == AddresseeKind::Group {
            let exists = job_control::first_of_group(id)?.is_some() || pids::thread(id).is_some();
            return if exists { Ok(Arc::new(Group(id))) } else { Err(Errno::ESRCH) };
        }
        let thread = pids::thread(id).ok_or(Errno::ESRCH)?;
        if kind == AddresseeKind::Thread {
            return Ok(Arc::new(OneThread(Arc::downgrade(&thread))));
        }
        Ok(Arc::new(OneProcess(Arc::downgrade(&thread.process))))
    }

    fn group(&self, group: u32) -> Arc<dyn Addressee> {
        Arc::new(Group(group))
    }

    fn caller(&self) -> Arc<dyn Addressee> {
        Arc::new(OneProcess(Arc::downgrade(&current().process)))
    }

    fn calling_program(&self) -> Arc<dyn Addressee> {
        let process = &current().process;
        let programs = process.programs();
        Arc::new(OneProgram { process: OneProcess(Arc::downgrade(process)), programs })
    }

    fn asker(&self) -> Asker {
        let credentials = current().credentials();
        Asker { uid: credentials.uid, euid: credentials.euid }
    }
}

/// Registers processes as targets with the files.
pub fn init() {
    signal_owner::register(&Everybody);
}
