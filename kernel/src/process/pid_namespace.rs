//! PID namespaces (pid_namespaces(7)): in each, processes and threads have numbers of its own.
//!
//! Inside the kernel a process has one number, that of the first namespace, and so have groups and
//! sessions; tables, signals and records of all kinds have these. A number is translated where a
//! program tells or is told one ([`super::visible`]). A process of another namespace has a number
//! there and in each one above it, up to the first.
//!
//! The first process of a namespace is its **init**. It gets the orphans, signals from inside reach
//! it only if it has a handler, and with it all others of the namespace end ([`super::zap`]). From
//! then on the namespace is closed: nothing begins there (`ENOMEM`).
//!
//! The namespace of a process is fixed ([`Process::pid_namespace`]); a thread's set has the one in
//! which its children begin ([`super::namespaces`]). The first has neither table nor init here:
//! fork and exit there touch nothing of this module.
//!
//! Locks: a namespace's state is a leaf, taken one level at a time. Road not taken: an object for
//! each number, as Linux' `struct pid`, which every fork would make.

use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_pid_table::{Refusal, Table};

use super::pids;
use super::pids::PID_MAX;
use super::record::Process;
use super::thread::Thread;
use crate::namespace::{self, Handle};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::user_namespace::{self, UserNamespace};
use crate::vfs::users::Counted;

/// The depth below which there is no further namespace (`MAX_PID_NS_LEVEL`).
const DEEPEST: u32 = 32;

struct State {
    table: Table,
    /// The first process; none before it begins, and when it is gone.
    init: Weak<Process>,
    /// The first process has begun.
    begun: bool,
    /// Nothing begins here any more.
    closed: bool,
    /// The signal by which `reboot(2)` ends the init; 0: none.
    reboot: i32,
    /// The numbers of ended processes of this namespace, and none below it, that are still those of
    /// groups or sessions.
    leaders: Vec<u32>,
}

/// A PID namespace.
pub struct PidNamespace {
    /// Its number among namespaces.
    pub number: u64,
    parent: Option<Handle<PidNamespace>>,
    level: u32,
    /// The user namespace that it belongs to.
    pub owner: Handle<UserNamespace>,
    state: SpinLock<State>,
    /// Its place among those of the user who made it.
    _counted: Option<Counted>,
}

const fn empty() -> SpinLock<State> {
    SpinLock::new(State {
        table: Table::new(),
        init: Weak::new(),
        begun: false,
        closed: false,
        reboot: 0,
        leaders: Vec::new(),
    })
}

/// The first one.
pub static FIRST: PidNamespace = PidNamespace {
    number: namespace::first::PID,
    parent: None,
    level: 0,
    owner: user_namespace::first(),
    state: empty(),
    _counted: None,
};

/// Makes a namespace in `parent`, which belongs to `owner`.
///
/// # Errors
/// `ENOSPC` if it would lie too deep.
pub fn another(
    parent: &Handle<PidNamespace>,
    owner: Handle<UserNamespace>,
    counted: Counted,
) -> Result<Handle<PidNamespace>> {
    if parent.level >= DEEPEST {
        return Err(Errno::ENOSPC);
    }
    Ok(Handle::Other(Arc::new(PidNamespace {
        number: namespace::number(),
        parent: Some(parent.clone()),
        level: parent.level + 1,
        owner,
        state: empty(),
        _counted: Some(counted),
    })))
}

impl PidNamespace {
    /// Whether it is the first.
    pub fn is_first(&self) -> bool {
        self.parent.is_none()
    }

    /// The namespace that it was made in.
    pub fn parent(&self) -> Option<&Handle<PidNamespace>> {
        self.parent.as_ref()
    }

    /// Whether it is `other`.
    pub fn is(&self, other: &PidNamespace) -> bool {
        core::ptr::eq(self, other)
    }

    /// Whether it is `other` or a descendant of it.
    pub fn is_within(&self, other: &PidNamespace) -> bool {
        let mut here = self;
        while here.level > other.level {
            let Some(parent) = &here.parent else { return false };
            here = parent;
        }
        here.is(other)
    }

    /// Itself and those around it, without the first.
    fn levels(&self) -> impl Iterator<Item = &PidNamespace> {
        core::iter::successors(Some(self), |here| here.parent().map(|parent| &**parent))
            .take_while(|level| !level.is_first())
    }

    /// The number here of the process or thread, or of the group or session, that has the number
    /// `kernel` in the first namespace, also of one that is gone; 0 for one that has none here.
    pub fn shown(&self, kernel: u32) -> u32 {
        if self.is_first() {
            return kernel;
        }
        self.state.lock().table.known(kernel, pids::moment()).unwrap_or(0)
    }

    /// The number in the first namespace of the process, thread, group or session that has this
    /// number here.
    pub fn meant(&self, number: u32) -> Option<u32> {
        if self.is_first() {
            return Some(number);
        }
        self.state.lock().table.outer(number)
    }

    /// The number given last here.
    pub fn last(&self) -> u32 {
        if self.is_first() { pids::last() } else { self.state.lock().table.last() }
    }

    /// Whether a process or thread with this number is, or was, here.
    pub fn contains(&self, kernel: u32) -> bool {
        self.is_first() || self.state.lock().table.inner(kernel).is_some()
    }

    /// The processes here, in the order of their numbers. `ENOMEM`.
    pub fn processes(&self) -> Result<Vec<Arc<Process>>> {
        if self.is_first() {
            return pids::processes();
        }
        let mut all = Vec::new();
        let mut last = 0;
        while let Some((number, kernel)) = self.after(last) {
            last = number;
            if let Some(process) = pids::process(kernel) {
                all.make_room(1)?;
                all.push(process);
            }
        }
        Ok(all)
    }

    /// The first number here above `number`, and the number that its bearer has in the first
    /// namespace.
    pub(super) fn after(&self, number: u32) -> Option<(u32, u32)> {
        self.state.lock().table.after(number)
    }

    /// Its first process.
    pub fn init(&self) -> Option<Arc<Process>> {
        if self.is_first() { pids::INIT.get().cloned() } else { self.state.lock().init.upgrade() }
    }

    /// Whether its first process has begun.
    pub fn has_begun(&self) -> bool {
        self.is_first() || self.state.lock().begun
    }

    /// Gives the bearer of a number of the first namespace numbers here and in those around.
    /// Returns the one here.
    ///
    /// # Errors
    /// `ENOMEM` if memory is exhausted, or nothing begins here any more; `EAGAIN` if all numbers
    /// are taken.
    pub(super) fn draw(&self, kernel: u32) -> Result<u32> {
        let mut own = 0;
        for (depth, level) in self.levels().enumerate() {
            let drawn = {
                let mut state = level.state.lock();
                if state.closed {
                    Err(Errno::ENOMEM)
                } else {
                    let round = pids::moment().round;
                    state.table.draw(kernel, round, PID_MAX).map_err(|refusal| match refusal {
                        Refusal::Full => Errno::EAGAIN,
                        Refusal::NoMemory => Errno::ENOMEM,
                    })
                }
            };
            match drawn {
                Ok(number) if depth == 0 => own = number,
                Ok(_) => {}
                Err(error) => {
                    self.levels().take(depth).for_each(|level| level.undo_here(kernel));
                    return Err(error);
                }
            }
        }
        Ok(own)
    }

    /// Undoes [`draw`](Self::draw): nobody has got the number.
    pub(super) fn undo(&self, kernel: u32) {
        self.levels().for_each(|level| level.undo_here(kernel));
    }

    fn undo_here(&self, kernel: u32) {
        let waiting = {
            let mut state = self.state.lock();
            state.table.undo(kernel);
            state.waiting()
        };
        wake(waiting);
    }

    /// The bearer of a number is gone. `hold`: its number is still that of a group or session.
    pub(super) fn release(&self, kernel: u32, hold: bool) {
        for level in self.levels() {
            let waiting = {
                let mut state = level.state.lock();
                state.table.release(kernel, hold);
                state.waiting()
            };
            wake(waiting);
        }
    }

    /// Keeps the number of a leader that has ended. False without memory to do so.
    pub(super) fn keep_leader(&self, kernel: u32) -> bool {
        let mut state = self.state.lock();
        let has_room = state.leaders.make_room(1).is_ok();
        if has_room {
            state.leaders.push(kernel);
        }
        has_room
    }

    /// Takes out a kept number for which `is_over` holds; that takes no lock.
    pub(super) fn take_leader(&self, is_over: impl Fn(u32) -> bool) -> Option<u32> {
        let mut state = self.state.lock();
        let place = state.leaders.iter().position(|&kernel| is_over(kernel))?;
        Some(state.leaders.swap_remove(place))
    }

    /// Whether a process that has numbers here may begin; if it is the first, it is the init.
    ///
    /// # Errors
    /// `ENOMEM` if nothing begins here any more.
    pub(super) fn admit(&self, process: &Arc<Process>) -> Result<()> {
        if self.levels().any(|level| level.state.lock().closed) {
            return Err(Errno::ENOMEM);
        }
        if process.is_reaper() {
            let mut state = self.state.lock();
            state.init = Arc::downgrade(process);
            state.begun = true;
        }
        Ok(())
    }

    /// Nothing begins here any more.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
    }

    /// How many processes and threads are here.
    pub(super) fn count(&self) -> usize {
        self.state.lock().table.count()
    }

    /// Ends its init by `SIGKILL`, which is reported as an end by `signal` (`reboot_pid_ns`).
    pub fn reboot(&self, signal: i32) -> Option<Arc<Process>> {
        let mut state = self.state.lock();
        state.reboot = signal;
        state.init.upgrade()
    }

    /// The signal by which `reboot(2)` ends the init; 0: none.
    pub(super) fn reboot_signal(&self) -> i32 {
        self.state.lock().reboot
    }
}

/// Appends the numbers of the process, thread, group or session `kernel` in the namespaces below
/// `above`, up to that of `process`; each after a tab. `ENOMEM`.
pub fn list_below(
    above: &PidNamespace,
    process: &Process,
    kernel: u32,
    text: &mut Vec<u8>,
) -> Result<()> {
    let Some(own) = process.own_pid_namespace() else { return Ok(()) };
    let depth = own.levels().take_while(|level| !level.is(above)).count();
    for at in (0..depth).rev() {
        let number = own.levels().nth(at).map_or(0, |level| level.shown(kernel));
        growth::append(text, format!("\t{number}").as_bytes())?;
    }
    Ok(())
}

impl State {
    /// The init, if it waits until it is alone.
    fn waiting(&self) -> Option<Arc<Process>> {
        if self.closed { self.init.upgrade() } else { None }
    }
}

fn wake(waiting: Option<Arc<Process>>) {
    if let Some(init) = waiting {
        init.child_events.wake_all();
    }
}

impl Drop for PidNamespace {
    fn drop(&mut self) {
        while let Some(kernel) = self.take_leader(|_| true) {
            self.release(kernel, false);
            pids::free(kernel);
        }
    }
}

/// The place of a process in a namespace other than the first.
pub(super) struct Inside {
    namespace: Arc<PidNamespace>,
    /// It is the init.
    is_init: bool,
    /// Signals without a handler do not reach it (`SIGNAL_UNKILLABLE`).
    unkillable: AtomicBool,
    /// It has led a group or a session.
    leads: AtomicBool,
}

impl Inside {
    pub(super) fn new(namespace: Arc<PidNamespace>, is_init: bool) -> Inside {
        let unkillable = AtomicBool::new(is_init);
        Inside { namespace, is_init, unkillable, leads: AtomicBool::new(false) }
    }
}

impl Process {
    /// Its PID namespace, if that is not the first.
    #[inline]
    pub fn own_pid_namespace(&self) -> Option<&Arc<PidNamespace>> {
        self.inside.get().map(|inside| &inside.namespace)
    }

    /// Its PID namespace.
    pub fn pid_namespace(&self) -> Handle<PidNamespace> {
        match self.own_pid_namespace() {
            Some(own) => Handle::Other(own.clone()),
            None => Handle::First(&FIRST),
        }
    }

    /// Whether it is in this PID namespace, and in none below.
    pub fn is_in(&self, namespace: &PidNamespace) -> bool {
        match self.own_pid_namespace() {
            Some(own) => own.is(namespace),
            None => namespace.is_first(),
        }
    }

    /// Whether it is the init of a PID namespace that is not the first.
    #[inline]
    pub(super) fn is_reaper(&self) -> bool {
        self.inside.get().is_some_and(|inside| inside.is_init)
    }

    /// Whether it is the first process, or an init that signals without a handler do not reach.
    #[inline]
    pub(super) fn is_unkillable(&self) -> bool {
        let spared = |inside: &Inside| inside.unkillable.load(Ordering::Relaxed);
        self.id() == 1 || self.inside.get().is_some_and(spared)
    }

    /// An init that cannot go on is spared no more (`force_sig_info_to_task`).
    pub(super) fn give_up_sparing(&self) {
        if let Some(inside) = self.inside.get() {
            inside.unkillable.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that it leads a group or a session.
    #[inline]
    pub(super) fn note_leading(&self) {
        if let Some(inside) = self.inside.get() {
            inside.leads.store(true, Ordering::Relaxed);
        }
    }

    /// Whether its number may be that of a group or session when it is gone.
    pub(super) fn has_led(&self) -> bool {
        self.inside.get().is_some_and(|inside| inside.leads.load(Ordering::Relaxed))
    }
}

impl Thread {
    /// Gives it the numbers that it and its process have in its PID namespace. Before it begins.
    pub(super) fn set_own_numbers(&self, process: u32, own: u32) {
        self.process_id.store(process, Ordering::Relaxed);
        self.own_id.store(own, Ordering::Relaxed);
    }

    /// Its number in its own PID namespace.
    pub fn own_id(&self) -> u32 {
        self.own_id.load(Ordering::Relaxed)
    }

    /// The number of its process in its own PID namespace.
    pub fn own_process_id(&self) -> u32 {
        self.process_id.load(Ordering::Relaxed)
    }
}
