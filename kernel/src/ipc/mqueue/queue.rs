//! A queue: its messages, those that wait, and the notice that it gives.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::NoMemory;
use hayate_ipc_rules::priorities::{Prioritized, Ranked, Shape};
use hayate_machine::sync::SpinLock;

use super::message::Message;
use super::notice::{Notice, Shown};
use super::waiter;
use super::waiter::Waiter;
use crate::clock;
use crate::clock::Follower;
use crate::ipc::account::Share;
use crate::ipc::actor::Actor;
use crate::ipc::message::Text;
use crate::reclaim::growth;
use crate::schedule::{WaitQueue, Woken, time};
use crate::vfs::attributes::{Metadata, Timestamp};
use crate::vfs::caller;
use crate::vfs::descriptor::FdTable;
use crate::vfs::open_file::OpenFile;
use crate::vfs::users::Holdings;

/// What a queue counts for, as long as it exists.
pub struct Charge {
    /// Its place among all queues, and its share of the kernel's memory.
    pub shares: [Share; 2],
    /// The counts of the user who made it.
    pub user: Arc<Holdings>,
    /// The bytes of `RLIMIT_MSGQUEUE`.
    pub bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.user.message_queues.give(self.bytes);
    }
}

/// A queue.
pub struct Queue {
    shape: Shape,
    pub(super) state: SpinLock<State>,
    /// Those that poll it.
    pub(super) changes: WaitQueue,
    /// The clock knows of it.
    following: AtomicBool,
    me: Weak<Queue>,
    _charge: Charge,
}

/// What changes of a queue.
pub(super) struct State {
    /// What `stat(2)` shows of its file.
    pub metadata: Metadata,
    pub messages: Prioritized<Text>,
    /// The bytes of all messages.
    bytes: usize,
    senders: Ranked<Arc<Waiter>>,
    receivers: Ranked<Arc<Waiter>>,
    notice: Option<Notice>,
}

/// The end of a wait that is not in sight: how a call waits.
#[derive(Clone, Copy)]
pub struct Patience {
    /// `O_NONBLOCK`: not at all.
    pub none: bool,
    /// Until this time of the real-time clock, in nanoseconds.
    pub until: Option<u64>,
}

/// A side of a queue.
#[derive(Clone, Copy)]
enum Side {
    Senders,
    Receivers,
}

impl State {
    fn side(&mut self, side: Side) -> &mut Ranked<Arc<Waiter>> {
        match side {
            Side::Senders => &mut self.senders,
            Side::Receivers => &mut self.receivers,
        }
    }

    /// Lets the caller wait, with its message if it sends. The message stays with the caller if
    /// there is no memory: `ENOMEM`.
    fn wait(&mut self, side: Side, message: &mut Option<Message>) -> Result<Arc<Waiter>> {
        room(|| self.side(side).reserve())?;
        let waiter = Waiter::new(message.take());
        self.side(side).enter(waiter::rank(), waiter.clone());
        Ok(waiter)
    }

    fn store(&mut self, message: Message) {
        self.bytes += message.text.bytes().len();
        self.messages.push(message.priority, message.text);
    }

    /// Notes an access (`written`: and a change of the content).
    pub fn touch(&mut self, written: bool) {
        let now = Timestamp::now();
        self.metadata.accessed = now;
        self.metadata.changed = now;
        if written {
            self.metadata.modified = now;
        }
    }
}

/// Room in a list. `ENOMEM`.
fn room(reserve: impl FnOnce() -> Result<(), NoMemory>) -> Result<()> {
    if growth::is_refused() { Err(Errno::ENOMEM) } else { reserve().map_err(|_| Errno::ENOMEM) }
}

/// What became of a message that was to be sent.
enum Sent {
    /// It is in the queue, to which a notice belongs, or was received.
    Done(Option<Notice>),
    /// The caller has to wait.
    Waits(Arc<Waiter>),
}

/// What became of a message that was to be received.
enum Received {
    /// Here it is.
    Done(Message),
    /// The caller has to wait.
    Waits(Arc<Waiter>),
}

impl Queue {
    /// A queue without messages.
    pub fn new(metadata: Metadata, shape: Shape, charge: Charge) -> Arc<Queue> {
        Arc::new_cyclic(|me: &Weak<Queue>| Queue {
            shape,
            state: SpinLock::new(State {
                metadata,
                messages: Prioritized::default(),
                bytes: 0,
                senders: Ranked::default(),
                receivers: Ranked::default(),
                notice: None,
            }),
            changes: WaitQueue::new(),
            following: AtomicBool::new(false),
            me: me.clone(),
            _charge: charge,
        })
    }

    /// What it may hold.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The number of messages.
    pub fn length(&self) -> usize {
        self.state.lock().messages.len()
    }

    /// Notes that its attributes were changed.
    pub fn note_access(&self) {
        self.state.lock().touch(false);
    }

    /// The bytes of all messages, and what is shown of the notice.
    pub fn shown(&self) -> (usize, Shown) {
        let state = self.state.lock();
        (state.bytes, state.notice.as_ref().map_or(Shown::default(), Notice::shown))
    }

    /// Sends a message (`mq_timedsend(3)`). `EAGAIN`, `ETIMEDOUT`, `ENOMEM`, or a restart.
    pub fn send(&self, sender: &Actor, message: Message, patience: Patience) -> Result<()> {
        let mut message = Some(message);
        match growth::relieved(|| self.try_send(&mut message, patience))? {
            Sent::Done(notice) => {
                if let Some(notice) = notice {
                    notice.tell(sender);
                }
                self.changes.wake_all();
                Ok(())
            }
            Sent::Waits(waiter) => self.sleep(&waiter, Side::Senders, patience.until),
        }
    }

    fn try_send(&self, message: &mut Option<Message>, patience: Patience) -> Result<Sent> {
        let mut state = self.state.lock();
        if state.messages.len() >= self.shape.messages {
            if patience.none {
                return Err(Errno::EAGAIN);
            }
            return Ok(Sent::Waits(state.wait(Side::Senders, message)?));
        }
        let Some(receiver) = state.receivers.take_first() else {
            room(|| state.messages.reserve())?;
            if let Some(message) = message.take() {
                state.store(message);
            }
            state.touch(true);
            let was_empty = state.messages.len() == 1;
            return Ok(Sent::Done(if was_empty { state.notice.take() } else { None }));
        };
        if let Some(message) = message.take() {
            receiver.give(message);
        }
        state.touch(true);
        Ok(Sent::Done(None))
    }

    /// Receives a message (`mq_timedreceive(3)`). `EAGAIN`, `ETIMEDOUT`, `ENOMEM`, or a restart.
    pub fn receive(&self, patience: Patience) -> Result<Message> {
        match growth::relieved(|| self.try_receive(patience))? {
            Received::Done(message) => {
                self.changes.wake_all();
                Ok(message)
            }
            Received::Waits(waiter) => {
                self.sleep(&waiter, Side::Receivers, patience.until)?;
                waiter.received().ok_or(Errno::EAGAIN)
            }
        }
    }

    fn try_receive(&self, patience: Patience) -> Result<Received> {
        let mut state = self.state.lock();
        let Some((priority, text)) = state.messages.pop() else {
            if patience.none {
                return Err(Errno::EAGAIN);
            }
            return Ok(Received::Waits(state.wait(Side::Receivers, &mut None)?));
        };
        state.bytes -= text.bytes().len();
        // The first sender that waits fills the place, for which no memory is needed.
        if let Some(message) = state.senders.take_first().and_then(|sender| sender.take()) {
            state.store(message);
        }
        state.touch(true);
        Ok(Received::Done(Message { priority, text }))
    }

    /// Sleeps until the waiter is served. `ETIMEDOUT`, or a restart.
    fn sleep(&self, waiter: &Arc<Waiter>, side: Side, until: Option<u64>) -> Result<()> {
        let outcome = if until.is_some() { self.follow() } else { Ok(()) };
        let outcome = outcome.and_then(|()| sleep(waiter, until));
        if outcome.is_err() {
            let is_it = |other: &Arc<Waiter>| Arc::ptr_eq(other, waiter);
            self.state.lock().side(side).leave(is_it);
            if waiter.is_served() {
                return Ok(());
            }
        }
        outcome
    }

    /// Lets the clock tell when it is set. `ENOMEM`.
    fn follow(&self) -> Result<()> {
        if self.following.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let follower: Weak<dyn Follower> = self.me.clone();
        clock::follow(follower).inspect_err(|_| self.following.store(false, Ordering::Relaxed))
    }

    /// Gives a notice when a message comes to the queue while it is empty and nobody waits for one.
    /// `EBUSY`: it has one already.
    pub fn set_notice(&self, notice: Notice) -> Result<()> {
        let mut state = self.state.lock();
        if state.notice.is_some() {
            drop(state);
            drop(notice);
            return Err(Errno::EBUSY);
        }
        state.notice = Some(notice);
        state.touch(false);
        Ok(())
    }

    /// Withdraws the notice of a process; returns whether there was one.
    pub fn withdraw_notice(&self, process: u32) -> bool {
        let of = |state: &State| state.notice.as_ref()?.owner(process).cloned();
        let owner = of(&self.state.lock());
        // Asked without the lock: this may be the last reference to a process that ended.
        let Some(owner) = owner.filter(|owner| owner.number() == i32::try_from(process).ok())
        else {
            return false;
        };
        let notice = {
            let mut state = self.state.lock();
            let is_same = of(&state).is_some_and(|now| Arc::ptr_eq(&now, &owner));
            if is_same { state.notice.take() } else { None }
        };
        notice.map(Notice::withdraw).is_some()
    }
}

/// Sleeps until the waiter is served, the time of the real-time clock comes, or a signal does.
fn sleep(waiter: &Waiter, until: Option<u64>) -> Result<()> {
    loop {
        let seen = clock::settings();
        let left = |until: u64| until.saturating_sub(time::realtime_ns());
        let deadline = until.map(|until| time::monotonic_ns().saturating_add(left(until)));
        // True if it is served, false if the clock was set.
        let ended = waiter.sleep.wait_interruptible(deadline, || {
            let was_set = until.is_some() && clock::settings() != seen;
            if waiter.is_served() { Some(true) } else { was_set.then_some(false) }
        });
        match ended {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(Woken::Interrupted) => return Err(Errno::ERESTARTSYS),
            Err(Woken::TimedOut) => return Err(Errno::ETIMEDOUT),
        }
    }
}

impl Follower for Queue {
    fn clock_leapt(&self, _: i64) {
        let state = self.state.lock();
        state.senders.iter().chain(state.receivers.iter()).for_each(|it| it.sleep.wake_all());
    }
}

/// A process closes a descriptor: its notice at that queue is withdrawn (`mqueue_flush_file`).
pub fn closed(_: &FdTable, file: &OpenFile) {
    if let Some(queue) = file.ops_as::<Queue>() {
        queue.withdraw_notice(caller::process());
    }
}
