//! The process or thread that a file of `/proc/PID` is about, and the right to look into it.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::hidden;
use super::hidden::Rules;
use super::tree::Subject;
use crate::credentials::Credentials;
use crate::memory::Space;
use crate::namespace::Handle;
use crate::net::config::Network;
use crate::process::access;
use crate::process::access::Ids;
use crate::process::pid_namespace::PidNamespace;
use crate::process::record::Process;
use crate::process::thread::{Thread, current};

/// A weak reference to a process or to one of its threads.
#[derive(Clone)]
pub struct Target {
    process: Weak<Process>,
    pub(super) thread: Option<Weak<Thread>>,
    id: u32,
    /// The PID namespace whose numbers the file shows: that of the mounted procfs.
    pub(super) pids: Handle<PidNamespace>,
    /// What that hides of the process, if it hides anything.
    rules: Option<Arc<Rules>>,
}

impl Target {
    /// The process as a whole.
    pub fn of_process(process: &Arc<Process>, pids: &Handle<PidNamespace>) -> Self {
        let (id, pids) = (process.id(), pids.clone());
        Self { process: Arc::downgrade(process), thread: None, id, pids, rules: None }
    }

    /// One thread.
    pub fn of_thread(thread: &Arc<Thread>, pids: &Handle<PidNamespace>) -> Self {
        let process = Arc::downgrade(&thread.process);
        let (thread, id) = (Some(Arc::downgrade(thread)), thread.id());
        Self { process, thread, id, pids: pids.clone(), rules: None }
    }

    /// The same in a procfs that hides something.
    pub fn under(self, rules: &Arc<Rules>) -> Self {
        Self { rules: Some(Arc::clone(rules)), ..self }
    }

    /// Whether the procfs shows the caller so much of the process (`has_pid_permissions`).
    fn is_seen(&self, what: u32) -> bool {
        let Some(rules) = &self.rules else { return true };
        rules.show(what) || self.check_access().is_ok()
    }

    /// Its number inside the kernel.
    pub fn kernel_number(&self) -> u32 {
        self.id
    }

    /// The number of a process, thread, group or session as the file shows it.
    pub fn shown(&self, kernel: u32) -> u32 {
        self.pids.shown(kernel)
    }

    /// Returns the process; ESRCH if it has ended.
    pub fn process(&self) -> Result<Arc<Process>> {
        let process = self.process.upgrade().ok_or(Errno::ESRCH)?;
        if process.is_reaped() { Err(Errno::ESRCH) } else { Ok(process) }
    }

    /// Returns the thread, or any of the process's; ESRCH if there is none any more.
    pub fn thread(&self) -> Result<Arc<Thread>> {
        match &self.thread {
            Some(thread) => thread.upgrade().ok_or(Errno::ESRCH),
            None => self.process()?.first_thread().ok_or(Errno::ESRCH),
        }
    }

    /// Its space; `None` if it has none any more.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.thread().ok().and_then(|thread| thread.space())
    }

    /// The network namespace that it is in; ESRCH or ENOENT if it has ended.
    pub fn network(&self) -> Result<Handle<Network>> {
        self.thread()?.namespaces().map(|set| set.network).ok_or(Errno::ENOENT)
    }

    /// PTRACE_MODE_READ of ptrace(2), "Ptrace access mode checking". Fails with EACCES.
    pub fn check_access(&self) -> Result<()> {
        if self.is_callers_own() { Ok(()) } else { self.look(|_| ()) }
    }

    /// Returns what `look` finds in the thread, if the caller may look into it; else fails with
    /// EACCES. The check and `look` see the same program, whatever the process executes meanwhile.
    /// So `look` must return any reference it takes and not drop it (see [`Process::steady`]).
    pub fn look<T>(&self, look: impl FnOnce(&Thread) -> T) -> Result<T> {
        let process = self.process()?;
        let missing = if self.is_callers_own() { Errno::ESRCH } else { Errno::EACCES };
        let thread = self.thread().map_err(|_| missing)?;
        process.steady(|| {
            access::check(&thread, Ids::FileSystem).map_err(|_| Errno::EACCES)?;
            Ok(look(&thread))
        })
    }
}

/// The owner of the files of a process that cannot be looked into: the superuser of the user
/// namespace in which its program began, or of the machine.
fn owner_of_hidden(process: &Process, credentials: &Credentials) -> (u32, u32) {
    if process.is_newcomer.load(Ordering::Relaxed) {
        return (0, 0);
    }
    let user = &credentials.user;
    (user.user(0).unwrap_or(0), user.group(0).unwrap_or(0))
}

impl Subject for Target {
    /// A process that cannot be looked into belongs to the superuser (`task_dump_owner`,
    /// fs/proc/base.c).
    fn owner(&self, public: bool) -> (u32, u32) {
        let Ok(thread) = self.thread() else { return (0, 0) };
        let shown = access::is_dumpable(&thread.process) && thread.space().is_some();
        let credentials = thread.credentials();
        if !public && !shown {
            return owner_of_hidden(&thread.process, &credentials);
        }
        (credentials.euid, credentials.egid)
    }

    fn check_access(&self) -> Result<()> {
        Target::check_access(self)
    }

    fn is_callers_own(&self) -> bool {
        self.process.upgrade().is_some_and(|it| Arc::ptr_eq(&it, &current().process))
    }

    fn inside(&self) -> u64 {
        self.space().map_or(0, |space| space.serial())
    }

    fn check(&self) -> Result<()> {
        self.process()?;
        if self.is_seen(hidden::EXISTENCE) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// `proc_pid_permission`.
    fn check_inside(&self) -> Result<()> {
        self.check()?;
        if self.is_seen(hidden::INSIDE) { Ok(()) } else { Err(Errno::EPERM) }
    }

    fn seed(&self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.thread.is_some())
    }
}
