//! Sets of semaphores (`semget(2)`, `semop(2)`, `semctl(2)`).
//!
//! What operations do and which waiters may go on is in `hayate_ipc_rules::semaphores`; here are
//! the locks, the sleep and the names. A thread whose operations have to wait leaves them in the
//! set. The thread that changes the set does them, with the sleeper's process and adjustments, and
//! wakes it: so the first that came goes first, and a woken thread has nothing to try again.
//!
//! **Undo.** The adjustments of `SEM_UNDO` belong to a list ([`UndoList`]) that threads share which
//! were made with `CLONE_SYSVSEM`. The set keeps them under its own lock, by the list's number; the
//! list knows its sets. When the last thread leaves the list, each set adds them (`traces.rs`).
//!
//! Lock order: a list's lock is held alone. See [`super`] for the others.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::NoMemory;
use hayate_ipc_rules::permission::Permission;
use hayate_ipc_rules::semaphores::{Attempt, LARGEST, Operation, Refusal, Set, Who, alters};
use hayate_machine::sync::{SpinGuard, SpinLock};

use super::head::Head;
use super::now;
use super::objects::{Object, Objects};
use crate::ipc::account;
use crate::ipc::account::{Share, Total};
use crate::ipc::actor::{Actor, READ, WRITE};
use crate::namespace::Handle;
use crate::reclaim::growth;
use crate::reclaim::growth::{Grow, relieved};
use crate::schedule::{WaitQueue, Woken};

/// `SEMMNI`, `SEMMSL`, `SEMOPM`, and `SEMMNS` (`include/uapi/linux/sem.h`).
const MOST: usize = 32000;
const MOST_OPERATIONS: usize = 500;

/// All sets of a namespace, and its settings.
pub struct Sets {
    /// The table.
    pub objects: Objects<SemSet>,
    /// The most semaphores of a set (`kernel.sem`).
    pub most_in_set: AtomicUsize,
    /// The most semaphores of all sets.
    pub most_in_all: AtomicUsize,
    /// The most operations of a call.
    pub most_at_once: AtomicUsize,
    semaphores: Handle<Total>,
}

impl Sets {
    /// Those of the first namespace.
    pub const fn first() -> Sets {
        static SEMAPHORES: Total = Total::new();
        Sets::with(Handle::First(&SEMAPHORES))
    }

    /// Those of another one.
    pub fn another() -> Sets {
        Sets::with(Handle::another())
    }

    const fn with(semaphores: Handle<Total>) -> Sets {
        Sets {
            objects: Objects::new(MOST),
            most_in_set: AtomicUsize::new(MOST),
            most_in_all: AtomicUsize::new(MOST * MOST),
            most_at_once: AtomicUsize::new(MOST_OPERATIONS),
            semaphores,
        }
    }

    /// The semaphores of all sets.
    pub fn semaphores(&self) -> usize {
        self.semaphores.sum()
    }

    /// `semget(2)`: the identifier of a set that is found or made.
    pub fn obtain(&self, actor: &Actor, key: i32, count: i32, flags: u32) -> Result<i32> {
        let most = self.most_in_set.load(Ordering::Relaxed);
        let count = usize::try_from(count).ok().filter(|&count| count <= most);
        let count = count.ok_or(Errno::EINVAL)?;
        self.objects.obtain(actor, (key, count, flags), || {
            if count == 0 {
                return Err(Errno::EINVAL);
            }
            let most = self.most_in_all.load(Ordering::Relaxed);
            let share = self.semaphores.share(count, most).ok_or(Errno::ENOSPC)?;
            let charge = account::charge(count * 12)?;
            if growth::is_refused() {
                return Err(Errno::ENOMEM);
            }
            let set = Set::new(count).map_err(|NoMemory| Errno::ENOMEM)?;
            Ok(Draft { key, count, share, charge, permission: actor.permission(flags), set })
        })
    }
}

/// A set.
pub struct SemSet {
    id: i32,
    count: usize,
    _share: Share,
    _charge: Share,
    state: SpinLock<State>,
}

struct State {
    head: Head,
    operated_at: i64,
    set: Set<Sleeper>,
}

/// A thread that sleeps until its operations happened.
struct Sleeper(Arc<Sleep>);

struct Sleep {
    /// [`WAITING`], [`HAPPENED`], or the number of an error.
    outcome: AtomicI32,
    queue: WaitQueue,
}

const WAITING: i32 = -1;
const HAPPENED: i32 = 0;

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper(Arc::new(Sleep { outcome: AtomicI32::new(WAITING), queue: WaitQueue::new() }))
    }

    fn another(&self) -> Sleeper {
        Sleeper(self.0.clone())
    }

    fn end(&self, outcome: Result<()>) {
        let outcome = outcome.map_or_else(|error| error.number(), |()| HAPPENED);
        self.0.outcome.store(outcome, Ordering::Release);
        self.0.queue.wake_all();
    }

    fn outcome(&self) -> Option<Result<()>> {
        match self.0.outcome.load(Ordering::Acquire) {
            WAITING => None,
            HAPPENED => Some(Ok(())),
            error => Some(Err(Errno::from_number(error).unwrap_or(Errno::EINTR))),
        }
    }
}

fn error_of(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::WouldWait => Errno::EAGAIN,
        Refusal::Range => Errno::ERANGE,
    }
}

impl State {
    /// Lets those go on that can; returns whether operations of one happened.
    fn settle(&mut self) -> bool {
        self.set.settle(|sleeper, result| sleeper.end(result.map_err(error_of)))
    }
}

/// What `semctl` and `/proc/sysvipc/sem` show of a set.
#[allow(missing_docs, reason = "named as in semctl(2)")]
pub struct Status {
    pub id: i32,
    pub key: i32,
    pub permission: Permission,
    pub operated_at: i64,
    pub changed_at: i64,
    pub count: usize,
}

/// A set before it has an identifier.
pub struct Draft {
    key: i32,
    count: usize,
    share: Share,
    charge: Share,
    permission: Permission,
    set: Set<Sleeper>,
}

impl Object for SemSet {
    type Draft = Draft;

    fn finish(draft: Draft, id: i32) -> SemSet {
        SemSet {
            id,
            count: draft.count,
            _share: draft.share,
            _charge: draft.charge,
            state: SpinLock::new(State {
                head: Head::new(draft.permission, draft.key),
                operated_at: 0,
                set: draft.set,
            }),
        }
    }

    fn id(&self) -> i32 {
        self.id
    }

    fn check(&self, actor: &Actor, size: usize, flags: u32) -> Result<()> {
        if size > self.count {
            return Err(Errno::EINVAL);
        }
        actor.may(&self.state.lock().head.permission, flags)
    }
}

impl SemSet {
    /// The number of semaphores.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What is shown of it.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        Status {
            id: self.id,
            key: state.head.key,
            permission: state.head.permission,
            operated_at: state.operated_at,
            changed_at: state.head.changed_at,
            count: self.count,
        }
    }

    /// Its state, if the caller may access it so and it is there: `EACCES`, `EIDRM`.
    fn open(&self, actor: &Actor, wanted: u32) -> Result<SpinGuard<'_, State>> {
        let state = self.state.lock();
        state.head.open(actor, wanted)?;
        Ok(state)
    }

    /// Looks whether the caller may read it: `EACCES`, `EIDRM`.
    pub fn check_readable(&self, actor: &Actor) -> Result<()> {
        self.open(actor, READ).map(drop)
    }

    /// Does operations, or waits until they happened (`semtimedop(2)`). `list`: the thread's
    /// adjustments, if one is to be undone; `deadline` on the monotonic clock.
    pub fn operate(
        self: &Arc<Self>,
        actor: &Actor,
        operations: Vec<Operation>,
        list: Option<&UndoList>,
        deadline: Option<u64>,
    ) -> Result<()> {
        let list = list.map(|list| self.enter(list)).transpose()?;
        if operations.iter().any(|operation| usize::from(operation.number) >= self.count) {
            return Err(Errno::EFBIG);
        }
        let changes = alters(&operations);
        let who = Who { process: actor.process, list };
        let sleeper;
        {
            let mut state = self.open(actor, if changes { WRITE } else { READ })?;
            let state = &mut *state;
            if let Some(list) = list
                && !state.set.has_list(list)
            {
                if growth::is_refused() {
                    return Err(Errno::ENOMEM);
                }
                state.set.add_list(list).map_err(|NoMemory| Errno::ENOMEM)?;
            }
            match state.set.attempt(&operations, who) {
                Attempt::Done => {
                    state.operated_at = now();
                    if changes {
                        state.settle();
                    }
                    return Ok(());
                }
                Attempt::Refused(refusal) => return Err(error_of(refusal)),
                Attempt::Waits(stopped_by) => {
                    sleeper = Sleeper::new();
                    let waits = state.set.wait(operations, who, stopped_by, sleeper.another());
                    waits.map_err(|NoMemory| Errno::ENOMEM)?;
                }
            }
        }
        let ended = sleeper.0.queue.wait_interruptible(deadline, || sleeper.outcome());
        match ended {
            Ok(outcome) => outcome,
            Err(_) if !self.state.lock().set.give_up(&sleeper) => {
                // They happened meanwhile, or cannot any more.
                sleeper.outcome().unwrap_or(Err(Errno::EINTR))
            }
            Err(Woken::TimedOut) => Err(Errno::EAGAIN),
            // Never made again, whatever the handler says (signal(7)).
            Err(Woken::Interrupted) => Err(Errno::EINTR),
        }
    }

    /// Enters this set in a list; returns the number of the list. `ENOMEM`.
    fn enter(self: &Arc<Self>, list: &UndoList) -> Result<u64> {
        relieved(|| {
            let mut sets = list.sets.lock();
            sets.retain(|entry| entry.0.strong_count() != 0);
            if !sets.iter().any(|entry| core::ptr::eq(entry.0.as_ptr(), Arc::as_ptr(self))) {
                let charge = account::charge(self.count * 2)?;
                growth::push(&mut sets, (Arc::downgrade(self), charge))?;
            }
            Ok(())
        })?;
        Ok(list.number)
    }

    /// Removes it from the table that it is in (`IPC_RMID`); those that wait are told: `EPERM`,
    /// `EIDRM`.
    pub fn remove(&self, all: &Sets, actor: &Actor) -> Result<()> {
        let mut table = all.objects.lock();
        let mut state = self.state.lock();
        state.head.own(actor)?;
        state.head.is_there = false;
        let gone = table.remove(self.id);
        state.set.dismiss(|sleeper| sleeper.end(Err(Errno::EIDRM)));
        drop(state);
        drop(table);
        drop(gone);
        Ok(())
    }

    /// Changes its owner and mode (`IPC_SET`): `EPERM`, `EIDRM`.
    pub fn set(&self, actor: &Actor, new: (u32, u32, u32)) -> Result<()> {
        let mut state = self.state.lock();
        state.head.own(actor)?;
        state.head.set(new);
        Ok(())
    }

    /// All values (`GETALL`): `EACCES`, `EIDRM`, `ENOMEM`.
    pub fn values(&self, actor: &Actor) -> Result<Vec<u16>> {
        actor.may(&self.state.lock().head.permission, READ)?;
        let mut values = relieved(|| {
            let mut values = Vec::new();
            values.make_room_exact(self.count)?;
            Ok(values)
        })?;
        let state = self.open(actor, READ)?;
        values.extend(state.set.semaphores().iter().map(|semaphore| semaphore.value));
        Ok(values)
    }

    /// Looks whether the caller may change its values: `EACCES`.
    pub fn check_writable(&self, actor: &Actor) -> Result<()> {
        actor.may(&self.state.lock().head.permission, WRITE)
    }

    /// Sets values from the semaphore `first` on (`SETVAL`, `SETALL`): `EACCES`, `ERANGE`, `EIDRM`.
    pub fn set_values(&self, actor: &Actor, first: usize, values: &[u16]) -> Result<()> {
        self.check_writable(actor)?;
        if values.iter().any(|&value| i32::from(value) > LARGEST) {
            return Err(Errno::ERANGE);
        }
        let mut state = self.open(actor, WRITE)?;
        state.set.set(first, values, actor.process);
        state.head.changed_at = now();
        if state.settle() {
            state.operated_at = now();
        }
        Ok(())
    }

    /// Asks about one semaphore (`GETVAL`, `GETPID`, `GETNCNT`, `GETZCNT`): `EACCES`, `EINVAL`,
    /// `EIDRM`.
    pub fn ask(&self, actor: &Actor, number: i32, question: Question) -> Result<i32> {
        actor.may(&self.state.lock().head.permission, READ)?;
        let number = usize::try_from(number).ok().filter(|&number| number < self.count);
        let number = number.ok_or(Errno::EINVAL)?;
        let state = self.open(actor, READ)?;
        let semaphore = state.set.semaphores().get(number).ok_or(Errno::EINVAL)?;
        Ok(match question {
            Question::Value => i32::from(semaphore.value),
            Question::Process => semaphore.process as i32,
            Question::WaitingForMore => state.set.waiting(number as u16, false) as i32,
            Question::WaitingForZero => state.set.waiting(number as u16, true) as i32,
        })
    }
}

/// What is asked about one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// `GETVAL`
    Value,
    /// `GETPID`
    Process,
    /// `GETNCNT`
    WaitingForMore,
    /// `GETZCNT`
    WaitingForZero,
}

/// The sets in which threads have adjustments that their end adds.
pub struct UndoList {
    number: u64,
    sets: SpinLock<Vec<(Weak<SemSet>, Share)>>,
}

impl UndoList {
    /// An empty list.
    pub(super) fn new() -> Arc<UndoList> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(UndoList { number, sets: SpinLock::new(Vec::new()) })
    }

    /// A thread of this process leaves the list: the last one adds what it has (`exit_sem`).
    pub(super) fn leave(self: Arc<Self>, process: u32) {
        let Some(list) = Arc::into_inner(self) else { return };
        for (set, charge) in list.sets.into_inner() {
            if let Some(set) = set.upgrade() {
                let mut state = set.state.lock();
                if state.head.is_there && state.set.has_list(list.number) {
                    state.set.undo(list.number, process);
                    state.settle();
                    state.operated_at = now();
                }
            }
            drop(charge);
        }
    }
}
