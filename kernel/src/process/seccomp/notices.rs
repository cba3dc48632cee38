//! The calls about which a filter asks its listener, and the answers (seccomp_unotify(2);
//! kernel/seccomp.c of Linux 6.1).
//!
//! One lock holds all notices of a listener; none is held while a program is asked, while memory of
//! a program is copied or a descriptor is installed. A notice belongs to the thread that waits with
//! it: it is found by its number, and gone when that thread has gone on.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_bpf::seccomp::DATA_SIZE;
use hayate_machine::sync::SpinLock;

use crate::random;
use crate::reclaim::growth;
use crate::schedule::WaitQueue;
use crate::vfs::open_file::OpenFile;
use crate::vfs::poll::Events;

/// How far a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The listener has not received it.
    New,
    /// It has.
    Sent,
    /// It was answered.
    Replied,
}

/// An answer (`struct seccomp_notif_resp`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// The call's result, without an error.
    pub value: i64,
    /// The negated number of an error; 0: none.
    pub error: i32,
    /// The call is carried out (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`).
    pub goes_on: bool,
}

/// A descriptor that the asking thread shall get (`SECCOMP_IOCTL_NOTIF_ADDFD`).
pub struct Gift {
    /// The file.
    pub file: Arc<OpenFile>,
    /// Its number, if the listener chooses it.
    pub number: Option<i32>,
    /// Whether exec closes it.
    pub close_on_exec: bool,
    /// Whether its number is the answer.
    pub answers: bool,
    /// The number, or the error, once it was taken.
    pub outcome: SpinLock<Option<Result<i32>>>,
}

struct Notice {
    id: u64,
    thread: u32,
    data: [u8; DATA_SIZE],
    stage: Stage,
    answer: Answer,
    gifts: Vec<Arc<Gift>>,
}

/// What a thread that waits finds.
pub enum Found {
    /// Nothing yet.
    Nothing,
    /// A descriptor to take.
    Gift(Arc<Gift>),
    /// The answer.
    Answer(Answer),
}

/// What a listener receives.
pub struct Received {
    /// The number of the notice.
    pub id: u64,
    /// The number of the thread.
    pub thread: u32,
    /// The call.
    pub data: [u8; DATA_SIZE],
}

#[derive(Default)]
struct Inner {
    /// The listener's descriptor is closed.
    closed: bool,
    /// No thread has the filter any more.
    abandoned: bool,
    /// How often a listener may try to receive: once for each notice that came, whether its thread
    /// still waits or not (`notif->request`).
    requests: u64,
    next: u64,
    list: Vec<Notice>,
}

impl Inner {
    fn find(&mut self, id: u64) -> Option<&mut Notice> {
        self.list.iter_mut().find(|notice| notice.id == id)
    }
}

/// The notices of a filter with a listener.
pub struct Notices {
    inner: SpinLock<Inner>,
    /// Woken when there is something for the listener.
    pub events: WaitQueue,
    /// Woken when there is something for a thread that waits for an answer, or for a gift to be
    /// taken.
    pub answers: WaitQueue,
    /// Only its end interrupts a thread whose notice was received
    /// (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`).
    pub waits_on: bool,
}

impl Notices {
    /// Makes an empty list.
    pub fn new(waits_on: bool) -> Notices {
        let inner = Inner { next: random::word(), ..Inner::default() };
        Notices {
            inner: SpinLock::new(inner),
            events: WaitQueue::new(),
            answers: WaitQueue::new(),
            waits_on,
        }
    }

    /// Adds a notice; returns its number. `ENOSYS`: there is no listener; `ENOMEM`.
    pub fn add(&self, thread: u32, data: [u8; DATA_SIZE]) -> Result<u64> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Errno::ENOSYS);
        }
        let id = inner.next;
        let (answer, gifts) = (Answer::default(), Vec::new());
        growth::push(
            &mut inner.list,
            Notice { id, thread, data, stage: Stage::New, answer, gifts },
        )?;
        inner.next = id.wrapping_add(1);
        inner.requests += 1;
        drop(inner);
        self.events.wake_events(Events::READABLE.bits());
        Ok(id)
    }

    /// What there is for the thread of a notice.
    pub fn look(&self, id: u64) -> Found {
        let mut inner = self.inner.lock();
        let Some(notice) = inner.find(id) else { return Found::Nothing };
        if !notice.gifts.is_empty() {
            Found::Gift(notice.gifts.remove(0))
        } else if notice.stage == Stage::Replied {
            Found::Answer(notice.answer)
        } else {
            Found::Nothing
        }
    }

    /// Whether the thread of a notice is to wait on in spite of a signal.
    pub fn must_wait(&self, id: u64) -> bool {
        let stage = |notice: &mut Notice| notice.stage;
        self.waits_on && self.inner.lock().find(id).map(stage) == Some(Stage::Sent)
    }

    /// Tells a gift's outcome. Returns the answer, if it is one.
    pub fn took(&self, id: u64, gift: &Gift, outcome: Result<i32>) -> Option<Answer> {
        let mut inner = self.inner.lock();
        let mut answer = None;
        if gift.answers
            && let Some(notice) = inner.find(id)
        {
            match outcome {
                Ok(number) => {
                    notice.answer = Answer { value: number.into(), ..Answer::default() };
                    answer = Some(notice.answer);
                }
                Err(_) => notice.stage = Stage::Sent,
            }
        }
        *gift.outcome.lock() = Some(outcome);
        drop(inner);
        self.answers.wake_all();
        answer
    }

    /// Removes a notice, as its thread goes on. Gifts that were not taken are refused.
    pub fn remove(&self, id: u64) {
        let mut inner = self.inner.lock();
        let at = inner.list.iter().position(|notice| notice.id == id);
        let gone = at.map(|at| inner.list.remove(at));
        drop(inner);
        let gifts = gone.map(|notice| notice.gifts).unwrap_or_default();
        for gift in &gifts {
            *gift.outcome.lock() = Some(Err(Errno::ESRCH));
        }
        if !gifts.is_empty() {
            self.answers.wake_all();
        }
    }

    /// Takes one request. `None` if there is none.
    pub fn request(&self) -> Option<()> {
        let mut inner = self.inner.lock();
        inner.requests = inner.requests.checked_sub(1)?;
        Some(())
    }

    /// Receives the oldest new notice. `ENOENT`: its thread has gone on.
    pub fn receive(&self) -> Result<Received> {
        let mut inner = self.inner.lock();
        let new = |notice: &&mut Notice| notice.stage == Stage::New;
        let notice = inner.list.iter_mut().find(new).ok_or(Errno::ENOENT)?;
        notice.stage = Stage::Sent;
        let received = Received { id: notice.id, thread: notice.thread, data: notice.data };
        drop(inner);
        self.events.wake_events(Events::WRITABLE.bits());
        Ok(received)
    }

    /// Makes a notice new again that the listener could not take.
    pub fn return_back(&self, id: u64) {
        let mut inner = self.inner.lock();
        let Some(notice) = inner.find(id) else { return };
        notice.stage = Stage::New;
        inner.requests += 1;
        drop(inner);
        // One that waits on looks whether it still must.
        self.answers.wake_all();
        self.events.wake_events(Events::READABLE.bits());
    }

    /// Answers a notice. `ENOENT`: there is none; `EINPROGRESS`: it was not received, or was
    /// answered.
    pub fn reply(&self, id: u64, answer: Answer) -> Result<()> {
        let mut inner = self.inner.lock();
        let notice = inner.find(id).ok_or(Errno::ENOENT)?;
        if notice.stage != Stage::Sent {
            return Err(Errno::EINPROGRESS);
        }
        notice.stage = Stage::Replied;
        notice.answer = answer;
        drop(inner);
        self.answers.wake_all();
        Ok(())
    }

    /// Whether a notice was received and waits for its answer.
    pub fn is_sent(&self, id: u64) -> bool {
        self.inner.lock().find(id).is_some_and(|notice| notice.stage == Stage::Sent)
    }

    /// Offers a gift. As [`reply`](Self::reply); `EBUSY`: it is an answer, and others are to be
    /// taken first; `ENOMEM`.
    pub fn offer(&self, id: u64, gift: Arc<Gift>) -> Result<()> {
        let mut inner = self.inner.lock();
        let notice = inner.find(id).ok_or(Errno::ENOENT)?;
        if notice.stage != Stage::Sent {
            return Err(Errno::EINPROGRESS);
        }
        if gift.answers && !notice.gifts.is_empty() {
            return Err(Errno::EBUSY);
        }
        let answers = gift.answers;
        growth::push(&mut notice.gifts, gift)?;
        if answers {
            notice.stage = Stage::Replied;
        }
        drop(inner);
        self.answers.wake_all();
        Ok(())
    }

    /// Takes a gift back that was not taken.
    pub fn withdraw(&self, id: u64, gift: &Arc<Gift>) {
        let mut inner = self.inner.lock();
        let Some(notice) = inner.find(id) else { return };
        let at = notice.gifts.iter().position(|other| Arc::ptr_eq(other, gift));
        let back = at.map(|at| notice.gifts.remove(at));
        drop(inner);
        drop(back);
        self.answers.wake_all();
    }

    /// The listener ends: who waits gets `ENOSYS`.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.closed = true;
        for notice in inner.list.iter_mut().filter(|notice| notice.stage != Stage::Replied) {
            notice.stage = Stage::Replied;
            notice.answer = Answer { error: -Errno::ENOSYS.number(), ..Answer::default() };
        }
        drop(inner);
        self.answers.wake_all();
    }

    /// Whether the listener is there.
    pub fn is_open(&self) -> bool {
        !self.inner.lock().closed
    }

    /// The last thread with the filter has ended.
    pub fn abandon(&self) {
        self.inner.lock().abandoned = true;
        self.events.wake_events(Events::HUP.bits());
    }

    /// The events of the listener's descriptor.
    pub fn poll(&self) -> Events {
        let inner = self.inner.lock();
        let mut events = Events::empty();
        for notice in &inner.list {
            match notice.stage {
                Stage::New => events |= Events::READABLE,
                Stage::Sent => events |= Events::WRITABLE,
                Stage::Replied => {}
            }
        }
        if inner.abandoned {
            events |= Events::HUP;
        }
        events
    }
}
