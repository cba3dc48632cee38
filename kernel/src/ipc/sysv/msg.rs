//! Queues of messages (`msgget(2)`, `msgop(2)`, `msgctl(2)`).
//!
//! A receiver that finds no message leaves in the queue what it wants; the sender of such a message
//! hands it over, so that receivers are served in the order in which they came. A sender that finds
//! no room sleeps and tries again: after each receipt all senders do, as in Linux those do whose
//! messages fit (ipc/msg.c).
//!
//! Bounded: a queue by its own limit, of bytes and as many messages; all queues and messages
//! together by the [`account`].
//!
//! Lock order: see [`super`]. Messages are copied from and to programs with no lock held.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::NoMemory;
use hayate_ipc_rules::messages::{Messages, Wanted};
use hayate_ipc_rules::permission::Permission;
use hayate_machine::sync::{SpinGuard, SpinLock};

use super::head::Head;
use super::now;
use super::objects::{Object, Objects};
use crate::credentials::Capability;
use crate::ipc::account;
use crate::ipc::account::{Share, Total};
use crate::ipc::actor::{Actor, READ, WRITE};
use crate::ipc::message::Text;
use crate::namespace::Handle;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::{WaitQueue, Woken};

/// `MSGMNI`
const MOST: usize = 32000;

/// All queues of a namespace, and its settings.
pub struct Queues {
    /// The table.
    pub objects: Objects<Queue>,
    /// The largest message (`kernel.msgmax`).
    pub largest: AtomicUsize,
    /// The bytes that a new queue may hold (`kernel.msgmnb`).
    pub room: AtomicUsize,
    sums: Sums,
}

/// The messages of all queues of a namespace, and their bytes.
#[derive(Clone)]
struct Sums {
    messages: Handle<Total>,
    bytes: Handle<Total>,
}

impl Queues {
    /// Those of the first namespace.
    pub const fn first() -> Queues {
        static MESSAGES: Total = Total::new();
        static BYTES: Total = Total::new();
        Queues::with(Sums { messages: Handle::First(&MESSAGES), bytes: Handle::First(&BYTES) })
    }

    /// Those of another one.
    pub fn another() -> Queues {
        Queues::with(Sums { messages: Handle::another(), bytes: Handle::another() })
    }

    const fn with(sums: Sums) -> Queues {
        Queues {
            objects: Objects::new(MOST),
            largest: AtomicUsize::new(8192),
            room: AtomicUsize::new(16384),
            sums,
        }
    }

    /// The number of messages in all queues, and of their bytes.
    pub fn all(&self) -> (usize, usize) {
        (self.sums.messages.sum(), self.sums.bytes.sum())
    }

    /// `msgget(2)`: the identifier of a queue that is found or made.
    pub fn obtain(&self, actor: &Actor, key: i32, flags: u32) -> Result<i32> {
        self.objects.obtain(actor, (key, 0, flags), || {
            let (charge, permission) = (account::charge(0)?, actor.permission(flags));
            let room = self.room.load(Ordering::Relaxed);
            Ok(Draft { key, charge, permission, room, sums: self.sums.clone() })
        })
    }
}

/// A message that was received.
pub struct Message {
    /// Its type.
    pub kind: i64,
    /// Its text.
    pub text: Text,
}

/// A queue.
pub struct Queue {
    id: i32,
    _charge: Share,
    state: SpinLock<State>,
    /// Senders that wait for room.
    senders: WaitQueue,
}

struct State {
    head: Head,
    sent_at: i64,
    received_at: i64,
    last_sender: u32,
    last_receiver: u32,
    /// The bytes that it may hold.
    room: usize,
    bytes: usize,
    messages: Messages<Text>,
    /// Those that wait for a message, in the order in which they came.
    receivers: Vec<Arc<Receiver>>,
    sums: Sums,
}

/// A thread that waits for a message.
struct Receiver {
    process: u32,
    wanted: Wanted,
    /// The largest text that it takes.
    size: usize,
    answer: SpinLock<Option<Answer>>,
    queue: WaitQueue,
}

enum Answer {
    Message(Message),
    Error(Errno),
    /// Permissions may have changed: it is to look again.
    LookAgain,
}

impl Receiver {
    fn end(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.queue.wake_all();
    }
}

/// What `msgctl` and `/proc/sysvipc/msg` show of a queue.
#[allow(missing_docs, reason = "named as in msgctl(2)")]
pub struct Status {
    pub id: i32,
    pub key: i32,
    pub permission: Permission,
    pub sent_at: i64,
    pub received_at: i64,
    pub changed_at: i64,
    pub bytes: usize,
    pub messages: usize,
    pub room: usize,
    pub last_sender: u32,
    pub last_receiver: u32,
}

/// A queue before it has an identifier.
pub struct Draft {
    key: i32,
    charge: Share,
    permission: Permission,
    room: usize,
    sums: Sums,
}

impl Object for Queue {
    type Draft = Draft;

    fn finish(draft: Draft, id: i32) -> Queue {
        Queue {
            id,
            _charge: draft.charge,
            senders: WaitQueue::new(),
            state: SpinLock::new(State {
                head: Head::new(draft.permission, draft.key),
                sent_at: 0,
                received_at: 0,
                last_sender: 0,
                last_receiver: 0,
                room: draft.room,
                bytes: 0,
                messages: Messages::default(),
                receivers: Vec::new(),
                sums: draft.sums,
            }),
        }
    }

    fn id(&self) -> i32 {
        self.id
    }

    fn check(&self, actor: &Actor, _: usize, flags: u32) -> Result<()> {
        actor.may(&self.state.lock().head.permission, flags)
    }
}

impl State {
    /// Whether a text of so many bytes has room (`msg_fits_inqueue`).
    fn has_room(&self, size: usize) -> bool {
        self.bytes.saturating_add(size) <= self.room && self.messages.len() < self.room
    }

    /// Hands a message to the first receiver that takes it (`pipelined_send`); those whose room is
    /// too small fail. Gives the message back if nobody takes it.
    fn hand_over(&mut self, message: Message) -> Option<Message> {
        loop {
            let takes = |receiver: &Arc<Receiver>| receiver.wanted.takes(message.kind);
            let Some(at) = self.receivers.iter().position(takes) else { return Some(message) };
            let receiver = self.receivers.remove(at);
            if receiver.size < message.text.bytes().len() {
                receiver.end(Answer::Error(Errno::E2BIG));
                continue;
            }
            self.last_receiver = receiver.process;
            self.received_at = now();
            receiver.end(Answer::Message(message));
            return None;
        }
    }

    /// Puts a message at the end.
    fn store(&mut self, message: Message) -> Result<(), Message> {
        if growth::is_refused() || self.messages.reserve() == Err(NoMemory) {
            return Err(message);
        }
        let size = message.text.bytes().len();
        self.bytes += size;
        self.sums.messages.raise(1);
        self.sums.bytes.raise(size);
        self.messages.push(message.kind, message.text);
        Ok(())
    }

    /// Takes the message at a place out.
    fn take(&mut self, place: usize) -> Option<Message> {
        let (kind, text) = self.messages.take(place)?;
        let size = text.bytes().len();
        self.bytes -= size;
        self.sums.messages.subtract(1);
        self.sums.bytes.subtract(size);
        Some(Message { kind, text })
    }

    /// Answers all receivers.
    fn answer_all(&mut self, answer: impl Fn() -> Answer) {
        self.receivers.drain(..).for_each(|receiver| receiver.end(answer()));
    }
}

/// How a message is received.
#[derive(Clone, Copy)]
pub struct Receipt {
    /// Which message.
    pub wanted: Wanted,
    /// The bytes that the receiver has room for.
    pub size: usize,
    /// `MSG_NOERROR`: a longer text is cut.
    pub cuts: bool,
    /// `IPC_NOWAIT`
    pub no_wait: bool,
}

/// What one look at the queue gives.
enum Look {
    Found(Message),
    Waits(Arc<Receiver>),
}

impl Queue {
    /// What is shown of it.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        Status {
            id: self.id,
            key: state.head.key,
            permission: state.head.permission,
            sent_at: state.sent_at,
            received_at: state.received_at,
            changed_at: state.head.changed_at,
            bytes: state.bytes,
            messages: state.messages.len(),
            room: state.room,
            last_sender: state.last_sender,
            last_receiver: state.last_receiver,
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

    /// Sends a message (`msgsnd(2)`): `EACCES`, `EIDRM`, `EAGAIN`, `ENOMEM`, or a restart.
    pub fn send(&self, actor: &Actor, message: Message, no_wait: bool) -> Result<()> {
        let mut message = Some(message);
        let mut attempt = || self.try_send(actor, &mut message).transpose();
        match attempt() {
            Some(result) => result,
            None if no_wait => Err(Errno::EAGAIN),
            None => match self.senders.wait_interruptible(None, attempt) {
                Ok(result) => result,
                Err(Woken::Interrupted | Woken::TimedOut) => Err(Errno::ERESTARTNOHAND),
            },
        }
    }

    /// Sends the message if it has room; `None` if not.
    fn try_send(&self, actor: &Actor, message: &mut Option<Message>) -> Result<Option<()>> {
        let mut state = self.open(actor, WRITE)?;
        let size = message.as_ref().map_or(0, |message| message.text.bytes().len());
        if !state.has_room(size) {
            return Ok(None);
        }
        let Some(taken) = message.take() else { return Ok(Some(())) };
        let rest = state.hand_over(taken);
        if let Some(Err(refused)) = rest.map(|message| state.store(message)) {
            *message = Some(refused);
            return Err(Errno::ENOMEM);
        }
        state.last_sender = actor.process;
        state.sent_at = now();
        Ok(Some(()))
    }

    /// Receives a message (`msgrcv(2)`): `EACCES`, `EIDRM`, `E2BIG`, `ENOMSG`, `ENOMEM`, or a
    /// restart.
    pub fn receive(&self, actor: &Actor, receipt: Receipt) -> Result<Message> {
        loop {
            let receiver = match self.look(actor, receipt)? {
                Look::Found(message) => {
                    self.senders.wake_all();
                    return Ok(message);
                }
                Look::Waits(receiver) => receiver,
            };
            let answer = || receiver.answer.lock().take();
            let ended = receiver.queue.wait_interruptible(None, answer);
            let answer = match ended {
                Ok(answer) => Some(answer),
                Err(_) => {
                    let mut state = self.state.lock();
                    state.receivers.retain(|other| !Arc::ptr_eq(other, &receiver));
                    drop(state);
                    // A sender may have been faster.
                    receiver.answer.lock().take()
                }
            };
            match answer {
                Some(Answer::Message(message)) => return Ok(message),
                Some(Answer::Error(error)) => return Err(error),
                Some(Answer::LookAgain) => {}
                None => return Err(Errno::ERESTARTNOHAND),
            }
        }
    }

    /// Takes a message, or leaves in the queue what is wanted.
    fn look(&self, actor: &Actor, receipt: Receipt) -> Result<Look> {
        let mut state = self.open(actor, READ)?;
        if let Some(place) = state.messages.find(receipt.wanted) {
            let size = state.messages.get(place).map_or(0, |(_, text)| text.bytes().len());
            if size > receipt.size && !receipt.cuts {
                return Err(Errno::E2BIG);
            }
            state.last_receiver = actor.process;
            state.received_at = now();
            let message = state.take(place).ok_or(Errno::ENOMSG)?;
            return Ok(Look::Found(message));
        }
        if receipt.no_wait {
            return Err(Errno::ENOMSG);
        }
        state.receivers.make_room(1)?;
        let receiver = Arc::new(Receiver {
            process: actor.process,
            wanted: receipt.wanted,
            size: if receipt.cuts { usize::MAX } else { receipt.size },
            answer: SpinLock::new(None),
            queue: WaitQueue::new(),
        });
        state.receivers.push(receiver.clone());
        Ok(Look::Waits(receiver))
    }

    /// Copies a message into `to` and leaves it in the queue (`MSG_COPY`); returns its type and its
    /// size: `EACCES`, `EIDRM`, `ENOMSG`, `E2BIG`, `EINVAL`.
    pub fn copy(&self, actor: &Actor, receipt: Receipt, to: &mut [u8]) -> Result<(i64, usize)> {
        let state = self.open(actor, READ)?;
        let place = state.messages.find(receipt.wanted).ok_or(Errno::ENOMSG)?;
        let (kind, text) = state.messages.get(place).ok_or(Errno::ENOMSG)?;
        let size = text.bytes().len();
        if size > receipt.size && !receipt.cuts {
            return Err(Errno::E2BIG);
        }
        // `copy_msg`, ipc/msgutil.c: it is not cut.
        to.get_mut(..size).ok_or(Errno::EINVAL)?.copy_from_slice(text.bytes());
        Ok((kind, size))
    }

    /// Removes it from the table that it is in (`IPC_RMID`); those that wait are told: `EPERM`,
    /// `EIDRM`.
    pub fn remove(&self, all: &Queues, actor: &Actor) -> Result<()> {
        let mut table = all.objects.lock();
        let mut state = self.state.lock();
        state.head.own(actor)?;
        state.head.is_there = false;
        let gone = table.remove(self.id);
        state.answer_all(|| Answer::Error(Errno::EIDRM));
        drop(state);
        drop(table);
        self.senders.wake_all();
        drop(gone);
        Ok(())
    }

    /// Changes owner, mode and room (`IPC_SET`); `most` is the room that a new queue gets: `EPERM`,
    /// `EIDRM`.
    pub fn set(&self, actor: &Actor, new: (u32, u32, u32), room: u64, most: usize) -> Result<()> {
        let mut state = self.state.lock();
        actor.owns(&state.head.permission)?;
        if room > most as u64 && !actor.credentials.has(Capability::SysResource) {
            return Err(Errno::EPERM);
        }
        state.head.exists()?;
        state.head.set(new);
        state.room = usize::try_from(room).unwrap_or(usize::MAX);
        // Receivers may be excluded now, and senders may have room.
        state.answer_all(|| Answer::LookAgain);
        drop(state);
        self.senders.wake_all();
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.sums.messages.subtract(state.messages.len());
        state.sums.bytes.subtract(state.bytes);
    }
}
