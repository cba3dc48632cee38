//! What a packet socket has received and its program has not read: a queue, or a ring that they
//! share.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

use super::seen::{ADDRESS, ALL, Kind, LINK, Seen};
use super::shared::SharedRing;
use crate::namespace::Handle;
use crate::net::config::{Interface, Network};
use crate::net::filter::Filter;
use crate::net::slice::Payload;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget, WaitQueue};
use crate::vfs::fasync::Signals;
use crate::vfs::poll::Events;
use crate::vfs::signal_owner::Band;
use crate::vfs::socket::Attempt;
use crate::vfs::socket_count::{self, Counted};
use crate::vfs::socket_options::RECEIVE_DEFAULT;

/// What a packet counts for in SO_RCVBUF besides its bytes.
const OVERHEAD: usize = 256;

/// A packet in the queue.
pub struct Received {
    /// Its header.
    pub link: [u8; LINK],
    /// The rest of what is wanted of it.
    pub body: Payload,
    /// Its `struct sockaddr_ll`.
    pub address: [u8; ADDRESS + 8],
    /// How long it was, and is, as the socket sees it.
    pub length: usize,
    /// See [`length`](Self::length).
    pub kept: usize,
    /// The bits of its status that tell of the checksum.
    pub status: u32,
    /// When it passed, in nanoseconds since 1970.
    pub time: u64,
}

/// What PACKET_STATISTICS counts, since it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Packets that were kept.
    pub kept: u32,
    /// Packets that were dropped.
    pub dropped: u32,
    /// How often a ring was closed because the program lagged behind.
    pub froze: u32,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Received>,
    charge: usize,
    ring: Option<SharedRing>,
    counts: Counts,
    /// Packets that were dropped, since the socket was made (SO_RXQ_OVFL).
    dropped: u32,
    error: Option<Errno>,
}

/// The receiving half of a packet socket.
pub struct Endpoint {
    /// SOCK_DGRAM: it does not see the link's header.
    pub cooked: bool,
    /// The user who made it.
    pub user: u32,
    /// Its network namespace.
    pub network: Handle<Network>,
    /// SO_ATTACH_FILTER.
    pub filter: Filter,
    /// SO_RCVBUF.
    pub receive_limit: AtomicUsize,
    /// PACKET_IGNORE_OUTGOING.
    pub ignores_outgoing: AtomicBool,
    /// Sleeping readers.
    pub readers: WaitQueue,
    /// Open files that want signals.
    pub signals: Signals,
    /// The number of its inode.
    pub inode: AtomicU64,
    /// The interface (0 for all) above the protocol.
    hook: AtomicU64,
    closed: AtomicBool,
    state: SpinLock<State>,
    retire: Once<Arc<Timer>>,
    _counted: Counted,
}

impl Endpoint {
    /// Makes one that hears a protocol (0 for none) on every interface.
    pub fn new(cooked: bool, protocol: u16, user: u32, network: Handle<Network>) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            cooked,
            user,
            network,
            filter: Filter::default(),
            receive_limit: AtomicUsize::new(RECEIVE_DEFAULT),
            ignores_outgoing: AtomicBool::new(false),
            readers: WaitQueue::new(),
            signals: Signals::new(),
            inode: AtomicU64::new(0),
            hook: AtomicU64::new(protocol.into()),
            closed: AtomicBool::new(false),
            state: SpinLock::new(State::default()),
            retire: Once::new(),
            _counted: Counted::new(socket_count::Kind::Packet),
        })
    }

    /// Returns the interface (0 for all) and the protocol that it hears.
    pub fn bound(&self) -> (u32, u16) {
        let hook = self.hook.load(Ordering::Relaxed);
        ((hook >> 32) as u32, hook as u16)
    }

    /// Changes them.
    pub fn bind(&self, interface: u32, protocol: u16) {
        let hook = u64::from(interface) << 32 | u64::from(protocol);
        self.hook.store(hook, Ordering::Relaxed);
    }

    /// Whether it wants packets like this one. Those that leave are only for sockets that hear all
    /// protocols (`dev_queue_xmit_nit`).
    pub fn wants(&self, interface: &Interface, protocol: u16, kind: Kind) -> bool {
        let (on, own) = self.bound();
        if self.network.key != interface.key || on != 0 && on != interface.index {
            return false;
        }
        match own {
            ALL => kind != Kind::Outgoing || !self.ignores_outgoing.load(Ordering::Relaxed),
            own => own == protocol && own != 0 && kind != Kind::Outgoing,
        }
    }

    /// Takes a packet, or drops it.
    pub fn deliver(self: &Arc<Self>, seen: &Seen<'_>) {
        let link = if self.cooked { 0 } else { LINK };
        let length = link + seen.body.len();
        let wanted = match self.filter.is_set() {
            true => self.filter.verdict(&seen.view(self.cooked)).min(length),
            false => length,
        };
        if wanted == 0 && self.filter.is_set() {
            return;
        }
        let (wake, begins) = {
            let mut state = self.state.lock();
            match state.ring {
                Some(_) => state.put(seen, self.cooked, wanted),
                None => {
                    let limit = self.receive_limit.load(Ordering::Relaxed);
                    (state.push(seen, link, length, wanted, limit), None)
                }
            }
        };
        if let Some(after) = begins {
            self.retire_after(after);
        }
        if wake {
            self.tell();
        }
    }

    fn tell(&self) {
        self.readers.wake_events(Events::READABLE.bits());
        self.signals.tell(Band::In);
    }

    /// Hands the ring's block over after a time.
    fn retire_after(self: &Arc<Self>, nanos: u64) {
        let timer = self.retire.call_once(|| {
            let target: Weak<dyn TimerTarget> = Arc::<Endpoint>::downgrade(self);
            Timer::new(target)
        });
        timer.arm(monotonic_ns() + nanos);
    }

    /// Notes an error and tells readers.
    pub fn fail(&self, error: Errno) {
        self.state.lock().error = Some(error);
        self.readers.wake_events(Events::all().bits());
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    /// Takes or shows the first packet of the queue, with the number of dropped ones.
    ///
    /// # Errors
    /// The pending error.
    pub fn next(&self, peek: bool) -> Result<Attempt<(Received, u32)>> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let dropped = state.dropped;
        let packet = match peek {
            true => state.queue.front().map(Received::share).transpose()?,
            false => state.queue.pop_front(),
        };
        let Some(packet) = packet else { return Ok(Attempt::Wait) };
        if !peek {
            state.charge -= packet.charge();
        }
        Ok(Attempt::Done((packet, dropped)))
    }

    /// Returns the length of the first packet of the queue, or 0.
    pub fn first_length(&self) -> usize {
        self.state.lock().queue.front().map_or(0, |first| first.kept)
    }

    /// Returns what poll(2) finds.
    pub fn events(&self) -> Events {
        let state = self.state.lock();
        let mut events = Events::WRITABLE;
        let in_ring = state.ring.as_ref().is_some_and(SharedRing::is_readable);
        events.set(Events::READABLE, in_ring || !state.queue.is_empty());
        events.set(Events::ERR, state.error.is_some());
        events
    }

    /// Returns what was counted and begins anew.
    pub fn take_counts(&self) -> Counts {
        core::mem::take(&mut self.state.lock().counts)
    }

    /// Returns the bytes that count for SO_RCVBUF.
    pub fn charge(&self) -> usize {
        self.state.lock().charge
    }

    /// Calls `look` with the ring, if there is one.
    pub fn with_ring<T>(&self, look: impl FnOnce(&SharedRing) -> T) -> Option<T> {
        self.state.lock().ring.as_ref().map(look)
    }

    /// Sets or takes the ring; what is in the queue is dropped.
    ///
    /// # Errors
    /// `EBUSY` if there is one already, or a program has mapped it.
    pub fn set_ring(&self, ring: Option<SharedRing>) -> Result<()> {
        let dropped = {
            let mut state = self.state.lock();
            let busy = state.ring.as_ref().is_some_and(|old| ring.is_some() || old.is_mapped());
            if busy {
                return Err(Errno::EBUSY);
            }
            state.charge = 0;
            (core::mem::replace(&mut state.ring, ring), core::mem::take(&mut state.queue))
        };
        drop(dropped);
        Ok(())
    }

    /// Whether its open file is gone.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The open file is gone: it hears nothing any more.
    pub fn begin_end(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Drops what was received; at the end of the socket.
    pub fn close(&self) {
        self.receive_limit.store(0, Ordering::Relaxed);
        // An armed timer keeps the memory of the endpoint until it expires.
        if let Some(timer) = self.retire.get() {
            timer.cancel();
        }
        let state = core::mem::take(&mut *self.state.lock());
        drop(state);
    }
}

impl State {
    /// Puts a packet into the ring. Returns whether there is something to read, and after how many
    /// nanoseconds its block is due.
    fn put(&mut self, seen: &Seen<'_>, cooked: bool, wanted: usize) -> (bool, Option<u64>) {
        let losing = self.counts.dropped != 0;
        let Some(ring) = &mut self.ring else { return (false, None) };
        let outcome = ring.put(seen, cooked, wanted, losing);
        self.counts.froze += u32::from(outcome.froze);
        self.count(outcome.kept);
        (outcome.wake, outcome.begins)
    }

    /// Puts a packet into the queue, or drops it if that is full. Returns whether it did.
    fn push(
        &mut self,
        seen: &Seen<'_>,
        link: usize,
        length: usize,
        wanted: usize,
        limit: usize,
    ) -> bool {
        let has_room = self.charge < limit && self.queue.make_room(1).is_ok();
        let body = has_room.then(|| seen.body.part(0, wanted.saturating_sub(link)).ok()).flatten();
        let keeps = body.is_some();
        self.count(keeps);
        if let Some(body) = body {
            let packet = Received {
                link: seen.link,
                body,
                address: seen.address(),
                length,
                kept: wanted,
                status: seen.checksum_status(),
                time: seen.time,
            };
            self.charge += packet.charge();
            self.queue.push_back(packet);
        }
        keeps
    }

    fn count(&mut self, kept: bool) {
        if kept {
            self.counts.kept = self.counts.kept.wrapping_add(1);
        } else {
            self.counts.dropped = self.counts.dropped.wrapping_add(1);
            self.dropped = self.dropped.wrapping_add(1);
        }
    }
}

impl Received {
    fn charge(&self) -> usize {
        self.body.charge() + OVERHEAD
    }

    /// Another reference to the same bytes. `ENOMEM`.
    fn share(&self) -> Result<Received> {
        Ok(Received { body: self.body.share()?, ..*self })
    }
}

impl TimerTarget for Endpoint {
    fn expire(&self, now: u64) -> Option<u64> {
        let (wake, again) = {
            let mut state = self.state.lock();
            let losing = state.counts.dropped != 0;
            let ring = state.ring.as_mut()?;
            let (outcome, again) = ring.expire(losing);
            state.counts.froze += u32::from(outcome.froze);
            (outcome.wake, again)
        };
        if wake {
            self.tell();
        }
        again.map(|after| now + after)
    }
}
