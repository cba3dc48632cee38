//! Sockets that send and receive datagrams: UDP, ICMP echo without privilege, and raw sockets
//! (udp(7), icmp(7), raw(7)).
//!
//! A received datagram is a list of slices of frames in the socket's queue; its bytes are copied
//! once, to the program. SO_RCVBUF counts the bytes of a datagram, and the memory that it takes
//! besides ([`Payload::charge`](super::slice::Payload::charge)).
//!
//! # Locks
//!
//! `setup` may sleep and comes first: names, connection, options that are not plain numbers. Then
//! the locks of the tables of ports. `remote`, `options` and `queue` are leaves; packets that
//! arrive take only these, and `groups` before the list of all groups.

mod control;
mod groups;
mod input;
mod joined;
mod names;
mod options;
mod raw;
mod raw_options;
mod receive;
mod send;

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use hayate_abi::raw::ioctl::{FIONREAD, TIOCOUTQ};
use hayate_abi::{Errno, Result};
use hayate_ip::binding::Binding;
use hayate_ip::socket_address::{INET, INET6};
use hayate_ip::{Address, SocketAddress};
use hayate_machine::sync::SpinLock;
use hayate_machine::user::UserPtr;
use hayate_netlink::diag::{InetDetails, Memory, option};

use super::config::{Network, Path};
use super::filter::Filter;
use super::ip_options::{IpOptions, Wishes};
use super::level::Level;
use super::memory::{self, Charge};
use super::ports::Ports;
use super::slice::Payload;
use super::stamp::Stamp;
use crate::namespace::Handle;
use crate::schedule::{Mutex, WaitQueue};
use crate::vfs::caller;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::signal_owner::Band;
use crate::vfs::socket::{OutgoingMessage, SocketOps};
use crate::vfs::socket_count::{Counted, Kind};
use crate::vfs::socket_options::{Common, RECEIVE_DEFAULT, SEND_DEFAULT, Switches};
use crate::vfs::transfer::{Input, Output};
use joined::Joined;
use raw_options::RawOptions;

pub use input::{Reported, failed, find, receive_echo_reply, receive_udp};
pub use raw::{failed_raw, receive_raw};

/// The protocol of a datagram socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// ICMP or ICMPv6 echo: the port is the identifier.
    Echo,
    /// The IP protocol with this number, which is the port.
    Raw(u8),
}

impl Protocol {
    /// Returns the kind as which such a socket is counted.
    fn kind(self, v6: bool) -> Kind {
        match (self, v6) {
            (Protocol::Udp, false) => Kind::Udp,
            (Protocol::Udp, true) => Kind::UdpV6,
            (Protocol::Echo, false) => Kind::Ping,
            (Protocol::Echo, true) => Kind::PingV6,
            (Protocol::Raw(_), false) => Kind::Raw,
            (Protocol::Raw(_), true) => Kind::RawV6,
        }
    }

    /// Returns the number of a raw socket's protocol.
    fn raw(self) -> Option<u8> {
        if let Protocol::Raw(number) = self { Some(number) } else { None }
    }
}

/// The ports of UDP.
pub static UDP: Ports<Socket> = Ports::new(Binding::conflicts_as_datagram);
/// The identifiers of ICMP echo.
pub static ECHO: Ports<Socket> = Ports::new(Binding::conflicts_as_datagram);
/// The protocols of raw sockets, any number of which have the same.
pub static RAW: Ports<Socket> = Ports::new(|_, _| false);

/// A datagram socket.
pub struct Socket {
    me: Weak<Socket>,
    protocol: Protocol,
    v6: bool,
    /// The user who made it.
    user: u32,
    common: Common,
    level: Level,
    options: SpinLock<IpOptions>,
    setup: Mutex<Setup>,
    /// Multicast groups that it has joined.
    groups: SpinLock<Vec<Joined>>,
    /// UDP_SEGMENT, 0 for none.
    segment: AtomicU16,
    /// UDP_GRO: datagrams that were sent as one arrive as one.
    takes_many: AtomicBool,
    /// Whether the queue tells of a datagram that was too long: a read asks here first.
    has_too_long: AtomicBool,
    raw: RawOptions,
    /// SO_ATTACH_FILTER.
    filter: Filter,
    stamp: Stamp,
    /// The peer of a connected socket: it receives only from there.
    remote: SpinLock<Option<SocketAddress>>,
    queue: SpinLock<Queue>,
    receive_limit: AtomicUsize,
    send_limit: AtomicUsize,
    readers: WaitQueue,
    signals: Signals,
    _counted: Counted,
}

/// The line of a socket in `/proc/net/udp`.
pub struct Shown {
    /// It is a socket of IPv6.
    pub v6: bool,
    /// Its name; the port of a raw socket is its protocol.
    pub local: SocketAddress,
    /// Its peer.
    pub remote: Option<SocketAddress>,
    /// The memory that waiting datagrams count for.
    pub receiving: usize,
    /// The user who made it.
    pub user: u32,
    /// The number of its inode.
    pub inode: u64,
    /// SO_BINDTODEVICE.
    pub interface: u32,
    /// SO_COOKIE.
    pub cookie: u64,
    /// How many datagrams were dropped.
    pub drops: u32,
}

/// The names of a socket.
struct Setup {
    /// The local address and port; port 0 if it is not bound.
    local: SocketAddress,
    /// Where the table of ports has it.
    binding: Option<Binding>,
    /// bind(2) named the address: connect(2) and its end do not change it.
    address_given: bool,
    /// bind(2) named an address that this machine had not.
    is_foreign: bool,
    /// bind(2) named the port: AF_UNSPEC does not give it back.
    port_given: bool,
    /// The way to the peer, and the generation of the configuration that it is from.
    path: Option<(u64, Path)>,
    /// The datagram that UDP_CORK or MSG_MORE gathers.
    corked: Option<Corked>,
    is_corked: bool,
}

/// A datagram that is not sent yet.
struct Corked {
    to: SocketAddress,
    payload: Payload,
    held: Charge,
}

/// A datagram that was received.
pub struct Received {
    payload: Payload,
    from: SocketAddress,
    /// The address that it was sent to.
    to: Address,
    interface: u32,
    hop_limit: u8,
    traffic_class: u8,
    /// When it arrived, in nanoseconds since 1970.
    time: u64,
    /// The size of the datagrams that it is made of (UDP_GRO); 0 if it is one. Of an empty one: 1
    /// if MSG_PEEK has seen it. (With a field for that each copy of this would be longer.)
    segment: u16,
}

/// Who reported an error: this machine, ICMP, ICMPv6 (`SO_EE_ORIGIN_*`).
const ORIGIN_LOCAL: u8 = 1;
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP_V6: u8 = 3;

/// An error for MSG_ERRQUEUE.
struct Failure {
    errno: Errno,
    /// The reporter's protocol, and ICMP's type, code and information.
    origin: u8,
    kind: u8,
    code: u8,
    information: u32,
    /// The host that reported it.
    reporter: Address,
    /// The datagram that it concerns.
    to: SocketAddress,
    payload: Payload,
}

struct Queue {
    datagrams: VecDeque<Received>,
    /// What counts in SO_RCVBUF: datagrams and failures.
    charge: usize,
    /// The memory that they pin.
    pinned: usize,
    held: Charge,
    dropped: u32,
    error: Option<Errno>,
    failures: VecDeque<Failure>,
    /// Where the last datagram was to go that was too long and might not be cut, and the MTU there
    /// (IPV6_RECVPATHMTU).
    too_long: Option<(SocketAddress, u32)>,
    /// shutdown(2) ended a direction.
    no_receive: bool,
    no_send: bool,
}

impl Queue {
    fn new(user: u32) -> Queue {
        Queue {
            datagrams: VecDeque::new(),
            charge: 0,
            pinned: 0,
            held: Charge::new(&memory::UDP, user),
            dropped: 0,
            error: None,
            failures: VecDeque::new(),
            too_long: None,
            no_receive: false,
            no_send: false,
        }
    }

    /// Whether another payload may be put into the queue whose limit is `limit`.
    #[inline]
    fn admits(&self, limit: usize) -> bool {
        self.charge < limit && self.held.admits(self.pinned)
    }

    /// Counts a payload that is put into the queue.
    #[inline]
    fn hold(&mut self, payload: &Payload) {
        self.charge += payload.charge();
        self.pinned += payload.pinned();
        self.held.set(self.pinned);
    }

    /// Counts a payload no more that was taken out of the queue.
    #[inline]
    fn let_go(&mut self, payload: &Payload) {
        self.charge -= payload.charge();
        self.pinned -= payload.pinned();
        self.held.set(self.pinned);
    }

    /// Takes all errors out. The pending error stays (`skb_errqueue_purge`).
    fn take_failures(&mut self) -> VecDeque<Failure> {
        let failures = core::mem::take(&mut self.failures);
        for failure in &failures {
            self.let_go(&failure.payload);
        }
        failures
    }
}

impl Socket {
    /// Makes a socket.
    pub fn new(protocol: Protocol, v6: bool) -> Arc<Socket> {
        let any = if v6 { Address::ANY_V6 } else { Address::ANY_V4 };
        let common = Common::new();
        // Identifiers are shared from the beginning (`ping_init_sock`).
        common.switch(Switches::REUSE_ADDRESS, protocol == Protocol::Echo);
        let user = caller::identity().uid;
        Arc::new_cyclic(|me| Socket {
            me: Weak::clone(me),
            protocol,
            v6,
            user,
            common,
            level: Level::default(),
            options: SpinLock::new(IpOptions::default()),
            setup: Mutex::new(Setup {
                local: SocketAddress::new(any, 0),
                binding: None,
                address_given: false,
                is_foreign: false,
                port_given: false,
                path: None,
                corked: None,
                is_corked: false,
            }),
            groups: SpinLock::new(Vec::new()),
            segment: AtomicU16::new(0),
            takes_many: AtomicBool::new(false),
            has_too_long: AtomicBool::new(false),
            raw: RawOptions::new(protocol.raw(), v6),
            filter: Filter::default(),
            stamp: Stamp::default(),
            remote: SpinLock::new(None),
            queue: SpinLock::new(Queue::new(user)),
            receive_limit: AtomicUsize::new(RECEIVE_DEFAULT),
            send_limit: AtomicUsize::new(SEND_DEFAULT),
            readers: WaitQueue::new(),
            signals: Signals::new(),
            _counted: Counted::new(protocol.kind(v6)),
        })
    }

    /// Its network namespace.
    #[inline]
    fn network(&self) -> &Handle<Network> {
        self.common.network()
    }

    fn ports(&self) -> &'static Ports<Socket> {
        match self.protocol {
            Protocol::Udp => &UDP,
            Protocol::Echo => &ECHO,
            Protocol::Raw(_) => &RAW,
        }
    }

    fn family_number(&self) -> u16 {
        if self.v6 { INET6 } else { INET }
    }

    /// Tells readers that something arrived.
    fn wake(&self, events: Events) {
        self.readers.wake_events(events.bits());
        self.signals.tell(Band::In);
    }

    fn events(&self) -> Events {
        let queue = self.queue.lock();
        let mut events = Events::WRITABLE;
        if !queue.datagrams.is_empty() || queue.no_receive {
            events |= Events::READABLE;
        }
        if queue.error.is_some() || !queue.failures.is_empty() {
            events |= Events::ERR;
        }
        if queue.no_receive {
            events |= Events::RDHUP;
            if queue.no_send {
                events |= Events::HUP;
            }
        }
        events
    }

    /// Takes the pending error.
    fn pending(&self) -> Option<Errno> {
        self.queue.lock().error.take()
    }

    /// Returns what `/proc/net/udp` shows.
    pub fn shown(&self) -> Shown {
        let local = self.setup.lock().local;
        let remote = *self.remote.lock();
        let queue = self.queue.lock();
        Shown {
            v6: self.v6,
            local,
            remote,
            receiving: queue.charge,
            user: self.user,
            inode: self.common.inode(),
            interface: self.level.interface(),
            cookie: self.common.cookie(),
            drops: queue.dropped,
        }
    }

    /// Returns what sock_diag(7) tells of it besides.
    pub fn diagnosed(&self) -> InetDetails {
        let options = *self.options.lock();
        let is_automatic = !self.setup.lock().port_given;
        let limit = |limit: &AtomicUsize| limit.load(Ordering::Relaxed) as u32;
        let header = if self.raw.header_included() { option::HDRINCL } else { 0 };
        let queue = self.queue.lock();
        InetDetails {
            shut_down: u8::from(queue.no_receive) | u8::from(queue.no_send) << 1,
            only_v6: options.wishes.contains(Wishes::ONLY_V6),
            memory: Memory {
                receiving: queue.charge as u32,
                receive_limit: limit(&self.receive_limit),
                send_limit: limit(&self.send_limit),
                spare: queue.held.bytes().saturating_sub(queue.pinned) as u32,
                drops: queue.dropped,
                ..Memory::default()
            },
            tos: options.tos,
            traffic_class: options.traffic_class,
            mark: self.common.mark.load(Ordering::Relaxed),
            priority: self.common.priority.load(Ordering::Relaxed),
            options: options.diagnosed() | header,
            is_automatic,
            algorithm: None,
            information: None,
        }
    }
}

impl FileOps for Socket {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn as_socket(&self) -> Option<&dyn SocketOps> {
        Some(self)
    }

    fn read(&self, file: &OpenFile, _offset: u64, out: &mut Output<'_>) -> Result<usize> {
        Ok(SocketOps::receive(self, out, 0, file.nonblocking())?.count)
    }

    fn write(&self, file: &OpenFile, _offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let nonblocking = file.nonblocking();
        SocketOps::send(self, input, OutgoingMessage { nonblocking, ..OutgoingMessage::default() })
    }

    fn poll(&self, _file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.readers);
        self.events()
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        if let Some(answer) = self.stamp.answer(command, arg) {
            return answer;
        }
        let number = match command {
            // The length of the first datagram (udp(7)).
            FIONREAD => self.queue.lock().datagrams.front().map_or(0, |first| first.payload.len()),
            // Datagrams leave at once.
            TIOCOUTQ => 0,
            _ if self.v6 => {
                return super::ioctl::interface_v6(self.network(), command, arg as usize);
            }
            _ => return super::ioctl::interface(self.network(), command, arg as usize),
        };
        UserPtr::<i32>::new(arg as usize).write(&(number as i32))?;
        Ok(0)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.signals, Interest::BOTH))
    }

    fn release(&self, _file: &OpenFile) {
        let mut setup = self.setup.lock();
        self.unbind(&mut setup);
        self.end_raw();
        setup.corked = None;
        drop(setup);
        self.leave_groups();
        let queue = core::mem::replace(&mut *self.queue.lock(), Queue::new(self.user));
        drop(queue);
        self.receive_limit.store(0, Ordering::Relaxed);
    }
}
