//! Requests that wait until a file is ready (`IOCB_CMD_POLL`).
//!
//! A request listens on the file's wait queues. A notification comes with a queue's lock held,
//! where the file cannot be asked; so it puts the request on a list, and a kernel thread asks the
//! file and ends the request. The thread starts with the first request of this kind.
//!
//! The thread, `io_cancel(2)` and the end of a context each end a request: the one that takes it out
//! of its context's list.
//!
//! Locks: `WOKEN` is a leaf, taken under the lock of a file's wait queue.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Lazy, SpinLock};
use intrusive_collections::{LinkedList, LinkedListAtomicLink};

use super::{Begun, Context, Named, Waits};
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::schedule::{Listener, Mutex, WaitQueue};
use crate::vfs::open_file::OpenFile;
use crate::vfs::poll::{Events, Registrar};

mod adapter {
    #![allow(missing_docs, reason = "the macro makes the type")]
    use super::Poll;
    use alloc::sync::Arc;
    use intrusive_collections::{LinkedListAtomicLink, intrusive_adapter};
    intrusive_adapter!(pub Woken = Arc<Poll>: Poll { link => LinkedListAtomicLink });
}

/// Requests whose file may be ready.
static WOKEN: Lazy<SpinLock<LinkedList<adapter::Woken>>> =
    Lazy::new(|| SpinLock::new(LinkedList::new(adapter::Woken::NEW)));
/// Woken when one comes.
static CAME: WaitQueue = WaitQueue::new();
/// Whether the thread was started.
static STARTED: Mutex<bool> = Mutex::new(false);

/// A request.
pub struct Poll {
    me: Weak<Poll>,
    context: Weak<Context>,
    file: Arc<OpenFile>,
    wanted: Events,
    named: Named,
    eventfd: Option<Arc<OpenFile>>,
    /// Whether it is in [`WOKEN`].
    is_woken: AtomicBool,
    link: LinkedListAtomicLink,
}

/// Starts the thread, once. `EAGAIN`: without memory for it.
fn start() -> Result<()> {
    let mut started = STARTED.lock();
    if !*started {
        schedule::start_kernel("aio-poll", work).map_err(|_| Errno::EAGAIN)?;
        *started = true;
    }
    Ok(())
}

fn work() {
    loop {
        let poll = CAME.wait(|| WOKEN.lock().pop_front());
        poll.look();
    }
}

/// Waits until `file` has one of the events, an error or a hang-up; then the request's event
/// comes.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`: it did not come about.
pub fn submit(
    begun: Begun<'_>,
    file: Arc<OpenFile>,
    wanted: Events,
    (named, eventfd): (Named, Option<Arc<OpenFile>>),
) -> Result<()> {
    start()?;
    let context = begun.context;
    let poll = Arc::new_cyclic(|me| Poll {
        me: me.clone(),
        context: context.me.clone(),
        file,
        wanted: wanted | Events::ERR | Events::HUP,
        named,
        eventfd,
        is_woken: AtomicBool::new(false),
        link: LinkedListAtomicLink::new(),
    });
    {
        let mut state = context.state.lock();
        if state.destroyed {
            return Err(Errno::EINVAL);
        }
        state.polls.make_room(1)?;
        state.polls.push(poll.clone());
    }
    // From here on, the place belongs to the one that takes the request out of the list.
    core::mem::forget(begun);
    let listener: Arc<dyn Listener> = poll.clone();
    let mut registrar = Registrar::listen(&listener);
    let found = poll.file.poll(&mut registrar) & poll.wanted;
    let whole = registrar.is_whole();
    if whole.is_ok() && found.is_empty() && context.has(&poll) {
        return Ok(());
    }
    let is_ours = context.forget(&poll);
    // A thread that gave it up meanwhile may have done so before the listener was there.
    poll.unlisten();
    if is_ours {
        match whole {
            Ok(()) => poll.complete(context, found),
            Err(error) => {
                context.end(None);
                return Err(error);
            }
        }
    }
    Ok(())
}

impl Context {
    /// Takes a request out of the list; whether it was there.
    fn forget(&self, poll: &Arc<Poll>) -> bool {
        let mut state = self.state.lock();
        let at = state.polls.iter().position(|one| poll.is(one));
        let gone = at.map(|at| state.polls.swap_remove(at));
        drop(state);
        gone.is_some()
    }

    fn has(&self, poll: &Arc<Poll>) -> bool {
        self.state.lock().polls.iter().any(|one| poll.is(one))
    }
}

impl Poll {
    fn is(self: &Arc<Self>, one: &Arc<dyn Waits>) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(self), Arc::as_ptr(one))
    }

    /// Asks the file, in the thread.
    fn look(self: &Arc<Self>) {
        // A notification from now on puts it on the list again.
        self.is_woken.store(false, Ordering::SeqCst);
        let found = self.file.poll(&mut Registrar::Query) & self.wanted;
        if !found.is_empty()
            && let Some(context) = self.context.upgrade()
            && context.forget(self)
        {
            self.unlisten();
            self.complete(&context, found);
        }
    }

    /// Reports these events. It was taken out of the list.
    fn complete(&self, context: &Context, found: Events) {
        context.complete(self.named, i64::from(found.bits()), self.eventfd.as_deref());
    }

    fn unlisten(&self) {
        // There is one: the caller's.
        if let Some(me) = self.me.upgrade() {
            let listener: Arc<dyn Listener> = me;
            self.file.poll(&mut Registrar::Unlisten(&listener));
        }
    }
}

impl Waits for Poll {
    fn request(&self) -> u64 {
        self.named.request
    }

    fn give_up(&self, context: &Context) {
        self.unlisten();
        self.complete(context, Events::empty());
    }
}

impl Listener for Poll {
    fn notify(&self, events: u32) {
        if events & self.wanted.bits() == 0 || self.is_woken.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(me) = self.me.upgrade() {
            WOKEN.lock().push_back(me);
            CAME.wake_one();
        }
    }
}
