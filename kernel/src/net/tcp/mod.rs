//! Stream sockets: TCP (tcp(7)).
//!
//! The state machine is `hayate_tcp`. A [`Socket`] is a connection of it, a listener, or neither
//! yet; it outlives its open file until its connection has ended. The table of connections finds it
//! by its four numbers ([`table`]), the table of ports as a listener ([`PORTS`]).
//!
//! # The way of a segment
//!
//! A call of a program, a segment that arrives, or a timer locks the socket, lets the state machine
//! act, gathers the segments that it makes, sets the timer, and unlocks. Then the segments are sent
//! and waiting threads are woken. So no socket's lock is held while a segment is on its way, and on
//! the loopback interface the peer may be locked.
//!
//! Segments for a device leave in the order in which they were made: while one thread sends, an
//! interrupt handler or another processor leaves to it what it has ([`State::behind`]). A peer that
//! gets segments out of order takes those that are late for lost.
//!
//! # Locks
//!
//! A socket's `state`; then [`KEY`], a leaf, or a part of the table of ports, then one of the
//! table of connections, or a timer's. Two sockets are never locked at once. A copy from or to a
//! program is made without a lock; readers take turns by `reader`, which may sleep and comes
//! first.
//!
//! # Devices
//!
//! What a connection has given to a device that has not sent it is bounded, so that no queue below
//! overflows, and little waits in front of other connections ([`Route`]; Linux:
//! `tcp_small_queue_check`). The connection goes on when the device has sent half of it
//! ([`resume`]).

mod choices;
mod close;
mod connect;
mod data;
mod ends;
mod input;
mod listen;
mod options;
mod resume;
mod route;
mod shown;
mod socket_ops;
mod table;
mod time_wait;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::binding::Binding;
use hayate_ip::{Address, SocketAddress};
use hayate_machine::sync::{Once, SpinLock};
use hayate_tcp::cookie::Key;
use hayate_tcp::{Bytes, Connection, Error, Events, Noted, Segment, Sink};
use smallvec::SmallVec;

use self::choices::Choices;
use self::route::Route;
use super::config::Network;
use super::filter::Filter;
use super::ip_options::IpOptions;
use super::level::Level;
use super::memory::{self, Charge};
use super::ports::Ports;
use super::slice::Slice;
use super::statistics::TcpCounter;
use crate::namespace::Handle;
use crate::random;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Mutex, Timer, TimerTarget, WaitQueue};
use crate::vfs::caller;
use crate::vfs::fasync::Signals;
use crate::vfs::poll;
use crate::vfs::signal_owner::{Band, SignalOwner};
use crate::vfs::socket_count::{Counted, Kind};
use crate::vfs::socket_options::{Common, Switches};
use crate::vfs::unaccepted::Unaccepted;
use crate::vfs::users::Holdings;

pub use close::renew;
pub use ends::Ends;
pub use input::{failed, receive};
pub use options::SEND_DEFAULT;
pub use shown::{Counts, Details, Shown, counts, find_shown, for_each_shown};
pub use time_wait::forget;

/// Starts what lets connections go on that waited for a device; at boot.
///
/// # Errors
/// `ENOMEM`.
pub fn init() -> Result<()> {
    resume::init(|ends| {
        if let Some(table::ConnectionEntry::Socket(socket)) = table::find(ends) {
            socket.act(|connection, now, out| {
                connection.transmit(now, out);
                ((), Events::empty())
            });
        }
    })
}

/// The ports of TCP.
pub static PORTS: Ports<Socket> = Ports::new(Binding::conflicts_as_stream);

/// The secret of first numbers and SYN cookies; drawn at its first use.
static KEY: SpinLock<Option<Key>> = SpinLock::new(None);

fn key() -> Key {
    *KEY.lock().get_or_insert_with(|| Key::new([random::word(), random::word()]))
}

/// A stream socket.
pub struct Socket {
    me: Weak<Socket>,
    v6: bool,
    /// The user who made it.
    user: u32,
    common: Common,
    level: Level,
    options: SpinLock<IpOptions>,
    choices: SpinLock<Choices>,
    /// SO_ATTACH_FILTER.
    filter: Filter,
    state: SpinLock<State>,
    reader: Mutex<()>,
    readers: WaitQueue,
    writers: WaitQueue,
    signals: Signals,
    /// The owner that gets SIGURG; set once the socket has one.
    owner: Once<Arc<SignalOwner>>,
    timer: Arc<Timer>,
    /// When the timer expires (`u64::MAX`: never); changed under the state's lock.
    armed: AtomicU64,
    /// SO_RCVBUF and SO_SNDBUF; 0 if the program has not set them.
    receive_size: AtomicUsize,
    send_size: AtomicUsize,
    /// TCP_NOTSENT_LOWAT: with so many bytes that were never sent it takes no more; 0: no bound.
    not_sent: AtomicUsize,
    _counted: Counted,
}

/// The state of a socket.
struct State {
    /// The local address and port; port 0 if it is not bound.
    local: SocketAddress,
    /// How the table of ports has it.
    binding: Option<Binding>,
    /// bind(2) named the address.
    address_given: bool,
    /// bind(2) named the port.
    port_given: bool,
    phase: Phase,
    /// connect(2) began and has not yet told how it ended.
    connecting: bool,
    /// The error that the next call reports.
    error: Option<Errno>,
    /// The open file is gone.
    released: bool,
    /// shutdown(2) ended a direction, or the connection is over.
    no_receive: bool,
    no_send: bool,
    /// A thread sends segments to a device, and those that it sends next.
    sends: bool,
    behind: Vec<Segment<Slice>>,
}

enum Phase {
    /// Neither connected nor listening.
    Idle,
    Listening(Listener),
    Connected(Box<Flow>),
}

/// A listening socket's connections.
struct Listener {
    /// The most connections that wait to be accepted, less one.
    backlog: usize,
    /// Established connections.
    ready: VecDeque<Arc<Socket>>,
    /// The number of connections that have begun.
    begun: usize,
    /// When the last cookie was sent.
    cookie_sent: Option<u64>,
    /// The counts of its user, if that is not the superuser.
    user: Option<Arc<Holdings>>,
}

/// The memory of the two ends of a connection in this machine.
const BOTH_ENDS: usize = 2 * (size_of::<Socket>() + size_of::<Flow>() + size_of::<Route>());

impl Listener {
    /// How many connections wait to be accepted.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Takes all of them.
    pub(super) fn into_ready(self) -> VecDeque<Arc<Socket>> {
        self.ready
    }

    fn is_full(&self) -> bool {
        self.ready.len() > self.backlog
    }

    /// Counts a connection that begins; `None` if its user has too many that wait.
    fn count_waiting(&self) -> Option<Unaccepted> {
        Unaccepted::count(self.user.as_ref(), BOTH_ENDS)
    }
}

/// A connection and its way.
struct Flow {
    connection: Connection<Slice>,
    route: Arc<Route>,
    /// The listener that a passive connection belongs to until it is established.
    parent: Option<Arc<Socket>>,
    /// The table of connections has it.
    is_entered: bool,
    /// TCP_DEFER_ACCEPT: the listener is told of the connection when data come, or at this time.
    deferred: Option<u64>,
    /// The memory of its queues.
    held: Charge,
    /// It counts for the listener's user until it is accepted.
    unaccepted: Option<Unaccepted>,
}

/// The least memory that a piece in a queue pins: a small slice shares its frame with one more of
/// its size.
const PIECE_LEAST: usize = 2048;

impl Flow {
    /// Makes what a socket of this user has of a connection.
    // Not part of its callers: `connection` is made on the stack first, and they go on to send,
    // which may be to receive, on the same stack.
    #[inline(never)]
    fn new(
        connection: impl FnOnce() -> Connection<Slice>,
        route: Arc<Route>,
        parent: Option<Arc<Socket>>,
        user: u32,
    ) -> Box<Flow> {
        Box::new(Flow {
            connection: connection(),
            route,
            parent,
            is_entered: true,
            deferred: None,
            held: Charge::new(&memory::TCP, user),
            unaccepted: None,
        })
    }

    /// Before the connection acts: how much it may hold.
    #[inline]
    fn press(&mut self) -> Events {
        if self.connection.has_bursts() {
            self.connection.set_below(self.route.below());
        }
        let relieved = self.connection.set_pressure(self.held.pressure());
        if relieved { Events::WRITABLE } else { Events::empty() }
    }
}

/// Segments and events that the state machine has made.
struct Outbox {
    /// Segments that wait until the socket is unlocked.
    segments: SmallVec<[Segment<Slice>; 2]>,
    /// Events to be counted.
    noted: Vec<Noted>,
}

impl Sink<Slice> for Outbox {
    fn send(&mut self, segment: Segment<Slice>) {
        // Without memory it is lost, and sent again later.
        if self.segments.try_reserve(1).is_ok() {
            self.segments.push(segment);
        }
    }

    #[cold]
    fn note(&mut self, event: Noted) {
        if self.noted.try_reserve(1).is_ok() {
            self.noted.push(event);
        }
    }
}

impl Bytes for Slice {
    #[inline]
    fn len(&self) -> usize {
        Slice::len(self)
    }

    #[inline]
    fn slice(&self, from: usize, to: usize) -> Slice {
        Slice::slice(self, from, to)
    }

    fn byte(&self, at: usize) -> u8 {
        let mut byte = [0];
        self.read(at, &mut byte);
        byte[0]
    }

    #[inline]
    fn cost(&self) -> usize {
        self.charge()
    }

    #[inline]
    fn extend(&mut self, next: &Slice) -> bool {
        self.join(next)
    }
}

/// The error number of a connection's error.
fn errno(error: Error) -> Errno {
    match error {
        Error::Reset => Errno::ECONNRESET,
        Error::Refused => Errno::ECONNREFUSED,
        Error::TimedOut => Errno::ETIMEDOUT,
        Error::HostUnreachable => Errno::EHOSTUNREACH,
        Error::NetworkUnreachable => Errno::ENETUNREACH,
        Error::NoProtocol => Errno::ENOPROTOOPT,
        Error::Pipe => Errno::EPIPE,
        Error::NotConnected => Errno::ENOTCONN,
        Error::Invalid => Errno::EINVAL,
        Error::Again => Errno::EAGAIN,
        Error::NoMemory => Errno::ENOBUFS,
    }
}

/// Decides who sends the segments of `out` to a device: the caller (true), or the thread that sends
/// others now, which gets them.
#[inline]
fn lead(sends: &mut bool, behind: &mut Vec<Segment<Slice>>, out: &mut Outbox) -> bool {
    if !core::mem::replace(sends, true) {
        return true;
    }
    // Without memory they are lost, and sent again later.
    if behind.make_room(out.segments.len()).is_ok() {
        behind.extend(out.segments.drain(..));
    }
    out.segments.clear();
    false
}

/// The work that has to be done after a socket was unlocked. It is large, and is built where it is
/// used.
#[must_use]
struct After {
    out: Outbox,
    route: Option<Arc<Route>>,
    events: Events,
    /// The listener that is told that a connection is established (true) or has failed.
    parent: Option<(Arc<Socket>, bool)>,
    /// Further segments may come meanwhile, which are sent as well.
    leads: bool,
}

impl After {
    #[inline(always)]
    fn new() -> After {
        let out = Outbox { segments: SmallVec::new(), noted: Vec::new() };
        After { out, route: None, events: Events::empty(), parent: None, leads: false }
    }
}

impl Socket {
    /// Makes a socket.
    ///
    /// # Errors
    /// None today.
    pub fn new(v6: bool) -> Result<Arc<Socket>> {
        Ok(Socket::make(v6, caller::identity().uid, Common::new()))
    }

    fn make(v6: bool, user: u32, common: Common) -> Arc<Socket> {
        let any = if v6 { Address::ANY_V6 } else { Address::ANY_V4 };
        let choices = Choices::new(&common.network().settings);
        Arc::new_cyclic(|me: &Weak<Socket>| {
            let target: Weak<dyn TimerTarget> = Weak::<Socket>::clone(me);
            Socket {
                me: Weak::clone(me),
                v6,
                user,
                common,
                level: Level::default(),
                options: SpinLock::new(IpOptions::default()),
                choices: SpinLock::new(choices),
                filter: Filter::default(),
                state: SpinLock::new(State {
                    local: SocketAddress::new(any, 0),
                    binding: None,
                    address_given: false,
                    port_given: false,
                    phase: Phase::Idle,
                    connecting: false,
                    error: None,
                    released: false,
                    no_receive: false,
                    no_send: false,
                    sends: false,
                    behind: Vec::new(),
                }),
                reader: Mutex::new(()),
                readers: WaitQueue::new(),
                writers: WaitQueue::new(),
                signals: Signals::new(),
                owner: Once::new(),
                timer: Timer::new(target),
                armed: AtomicU64::new(u64::MAX),
                receive_size: AtomicUsize::new(0),
                send_size: AtomicUsize::new(0),
                not_sent: AtomicUsize::new(0),
                _counted: Counted::new(if v6 { Kind::TcpV6 } else { Kind::Tcp }),
            }
        })
    }

    /// Its network namespace.
    #[inline]
    fn network(&self) -> &Handle<Network> {
        self.common.network()
    }

    fn arc(&self) -> Result<Arc<Socket>> {
        self.me.upgrade().ok_or(Errno::EBADF)
    }

    /// Lets the state machine act on the socket's connection and does what follows from it. Returns
    /// the result of `act`, or `None` if there is no connection.
    #[inline]
    fn act<T>(
        &self,
        act: impl FnOnce(&mut Connection<Slice>, u64, &mut Outbox) -> (T, Events),
    ) -> Option<T> {
        let mut after = After::new();
        let value = {
            let mut state = self.state.lock();
            let Phase::Connected(flow) = &mut state.phase else { return None };
            let relieved = flow.press();
            let (value, events) = act(&mut flow.connection, monotonic_ns(), &mut after.out);
            after.events = events | relieved;
            self.settle(&mut state, &mut after);
            value
        };
        self.finish(after);
        Some(value)
    }

    /// After the state machine has acted, under the lock: the timer, the end of a connection, and
    /// the work for later, in which the segments and events are already.
    #[inline]
    fn settle(&self, state: &mut State, after: &mut After) {
        let events = after.events;
        for &event in &after.out.noted {
            self.network().count_tcp(event.into());
        }
        let Phase::Connected(flow) = &mut state.phase else { return };
        flow.held.set(flow.connection.memory(PIECE_LEAST));
        if let Some(deadline) = flow.connection.next_deadline()
            && deadline < self.armed.load(Ordering::Relaxed)
        {
            self.armed.store(deadline, Ordering::Relaxed);
            self.timer.arm(deadline);
        }
        let waits = flow.connection.take_wait();
        if !after.out.segments.is_empty() || waits.is_some() {
            self.refresh(flow);
            if let Some(bound) = waits {
                flow.route.wait(bound);
            }
            after.route = Some(Arc::clone(&flow.route));
            if flow.connection.has_bursts() {
                after.leads = lead(&mut state.sends, &mut state.behind, &mut after.out);
            }
        }
        let bound = self.not_sent.load(Ordering::Relaxed);
        if bound != 0 && flow.connection.unsent() * 2 < bound {
            after.events |= Events::WRITABLE;
        }
        if flow.parent.is_some() {
            self.introduce(flow, after);
        }
        if events.intersects(Events::FAILED | Events::CLOSED | Events::TIME_WAIT) {
            self.conclude(state, after);
        }
    }

    /// Tells the listener of a connection that is established; later if the listener wants data
    /// first (TCP_DEFER_ACCEPT).
    #[cold]
    fn introduce(&self, flow: &mut Flow, after: &mut After) {
        let now = monotonic_ns();
        if after.events.contains(Events::CONNECTED) {
            self.network().count_tcp(TcpCounter::Taken);
            let deferral = self.deferral();
            flow.deferred = Some(now.saturating_add(deferral));
            if deferral != 0 {
                self.armed.store(now, Ordering::Relaxed);
                self.timer.arm(now.saturating_add(deferral));
            }
        }
        let Some(until) = flow.deferred else { return };
        let connection = &flow.connection;
        if now >= until || connection.readable() > 0 || connection.is_peer_closed() {
            after.parent = flow.parent.take().map(|parent| (parent, true));
        }
    }

    /// Finds a connection's way again if the configuration has changed.
    fn refresh(&self, flow: &mut Flow) {
        if flow.route.is_stale(self.network()) {
            let (ends, marks) = (flow.route.ends, self.marks(flow.route.ends.remote.address));
            // Without a way now, the old one is tried: TCP gives up by itself.
            let interface = self.level.interface();
            if let Ok(route) = Route::find(self.network(), ends, interface, marks) {
                flow.route = route;
            }
        }
    }

    fn marks(&self, to: Address) -> (u8, u8) {
        self.options.lock().marks(&self.network().settings, to.is_v4(), false)
    }

    /// Sends the segments, tells the listener, and wakes the threads that wait.
    #[inline]
    fn finish(&self, mut after: After) {
        if let Some(route) = &after.route {
            for segment in after.out.segments.drain(..) {
                route.send(segment);
            }
            if after.leads {
                self.send_behind(route);
            }
            if route.waits() {
                route.hasten();
            }
        }
        if let Some((parent, established)) = after.parent {
            self.report_to(&parent, established);
        }
        if !after.events.is_empty() {
            self.wake(after.events);
        }
    }

    /// Sends the segments that came while others were sent.
    #[inline(never)]
    fn send_behind(&self, route: &Arc<Route>) {
        loop {
            let behind = {
                let mut state = self.state.lock();
                state.sends = !state.behind.is_empty();
                core::mem::take(&mut state.behind)
            };
            if behind.is_empty() {
                return;
            }
            for segment in behind {
                route.send(segment);
            }
        }
    }

    fn wake(&self, events: Events) {
        const OVER: Events = Events::FAILED.union(Events::CLOSED).union(Events::CONNECTED);
        if events.intersects(OVER | Events::READABLE | Events::PEER_CLOSED | Events::URGENT) {
            let mut bits = poll::Events::READABLE;
            if events.intersects(Events::PEER_CLOSED | OVER) {
                bits |= poll::Events::RDHUP | poll::Events::HUP | poll::Events::ERR;
            }
            if events.contains(Events::URGENT) {
                bits |= poll::Events::PRI;
                if let Some(owner) = self.owner.get() {
                    owner.tell_urgent();
                }
            }
            self.readers.wake_events(bits.bits());
            self.signals.tell(Band::In);
        }
        if events.intersects(OVER | Events::WRITABLE | Events::DRAINED | Events::TIME_WAIT) {
            let bits = poll::Events::WRITABLE | poll::Events::HUP | poll::Events::ERR;
            self.writers.wake_events(bits.bits());
            self.signals.tell(Band::Out);
        }
    }

    fn is_listening(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Listening(_))
    }

    /// Whether SO_KEEPALIVE is on.
    fn keeps_alive(&self) -> bool {
        self.common.has(Switches::KEEP_ALIVE)
    }
}

/// Linux' number of the state LISTEN.
pub const LISTEN: u8 = 10;

impl TimerTarget for Socket {
    fn expire(&self, now: u64) -> Option<u64> {
        let parent = {
            let state = self.state.lock();
            self.armed.store(u64::MAX, Ordering::Relaxed);
            match &state.phase {
                Phase::Connected(flow) => flow.parent.clone(),
                _ => None,
            }
        };
        // A connection that began goes with its listener, at its next timer
        // (`reqsk_timer_handler`).
        if parent.is_some_and(|parent| !parent.is_listening()) {
            self.give_up();
        } else {
            self.act(|connection, _, out| ((), connection.on_timer(now, out)));
        }
        None
    }
}
