//! A stream socket as a file and as a socket.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::raw::ioctl::{FIONREAD, SIOCATMARK, TIOCOUTQ};
use hayate_abi::{Errno, Result};
use hayate_ip::SocketAddress;
use hayate_ip::socket_address::{INET, INET6};
use hayate_machine::user::UserPtr;

use super::options::{RECEIVE_DEFAULT, SEND_DEFAULT, SOL_TCP};
use super::{Phase, Socket};
use crate::net::ioctl;
use crate::net::ip_options::{self, SOL_IP, SOL_IPV6, ip, ipv6};
use crate::net::path_mtu;
use crate::net::stamp::Stamp;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::socket::{
    Accepted, AddressBytes, Directions, IncomingMessage, OutgoingMessage, SocketOps, kinds,
};
use crate::vfs::socket_options::{Buffer, Common, OptionOutput, OptionValue, SOL_SOCKET, Switches};
use crate::vfs::transfer::{Input, Output};

/// SIOCOUTQNSD: bytes that were never sent.
const SIOCOUTQNSD: u32 = 0x894b;

impl Socket {
    fn address_bytes(&self, address: SocketAddress) -> AddressBytes {
        let mut bytes = AddressBytes::new();
        // An address of a socket is shorter than the longest.
        let _ = bytes.try_extend_from_slice(&address.to_bytes(self.v6));
        bytes
    }

    fn set_ip(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        // A connection has no groups (`do_ip_setsockopt`).
        match (level, option) {
            (SOL_IP, ip::ADD_MEMBERSHIP | ip::DROP_MEMBERSHIP) => return Err(Errno::EPROTO),
            (SOL_IPV6, ipv6::ADD_MEMBERSHIP | ipv6::DROP_MEMBERSHIP) => return Err(Errno::EPROTO),
            _ => {}
        }
        let mut number = ip_options::read(self.network(), level, option, value)?;
        if (level, option) == (SOL_IP, ip::TOS) {
            // The two bits of ECN are the connection's own (`do_ip_setsockopt`).
            const ECN: i32 = 3;
            number = number & !ECN | i32::from(self.options.lock().tos) & ECN;
            let priority = ip_options::priority_of_service(number);
            self.common.priority.store(priority, Ordering::Relaxed);
        }
        if (level, option) == (SOL_IPV6, ipv6::V6ONLY) && self.state.lock().local.port != 0 {
            return Err(Errno::EINVAL);
        }
        if !self.options.lock().set(self.network(), level, option, number)? {
            return Err(Errno::ENOPROTOOPT);
        }
        // Segments that follow bear the new marks.
        if let Phase::Connected(flow) = &mut self.state.lock().phase {
            flow.route = flow.route.marked(self.marks(flow.route.ends.remote.address));
        }
        Ok(())
    }

    /// The MTU of the path: that of the interface, or a lower one that a router told of.
    fn path_mtu(&self) -> Result<u32> {
        let state = self.state.lock();
        let Phase::Connected(flow) = &state.phase else { return Err(Errno::ENOTCONN) };
        let (told, route) = (flow.connection.info().path_mss, &flow.route);
        if told < route.mss() {
            return Ok(told + route.headers());
        }
        Ok(path_mtu::of_interface(&route.path, route.ends.remote.address).bytes)
    }
}

impl SocketOps for Socket {
    fn family(&self) -> u16 {
        if self.v6 { INET6 } else { INET }
    }

    fn kind(&self) -> i32 {
        kinds::STREAM
    }

    fn protocol(&self) -> i32 {
        SOL_TCP
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, address: &[u8]) -> Result<()> {
        self.bind_to(address)
    }

    fn listen(&self, backlog: usize) -> Result<()> {
        self.begin_listening(backlog)
    }

    fn connect(&self, address: &[u8], nonblocking: bool) -> Result<()> {
        self.connect_to(address, nonblocking)
    }

    fn accept(&self, nonblocking: bool) -> Result<Accepted> {
        let (child, peer) = self.accept_one(nonblocking)?;
        Ok(Accepted { peer: self.address_bytes(peer), ops: child })
    }

    fn name(&self) -> Result<AddressBytes> {
        let local = self.state.lock().local;
        Ok(self.address_bytes(local))
    }

    fn peer_name(&self) -> Result<AddressBytes> {
        use hayate_tcp::State as S;
        let remote = match &self.state.lock().phase {
            Phase::Connected(flow) => match flow.connection.state() {
                S::Closed | S::SynSent => None,
                _ => Some(flow.route.ends.remote),
            },
            _ => None,
        };
        remote.map(|remote| self.address_bytes(remote)).ok_or(Errno::ENOTCONN)
    }

    fn send(&self, input: &mut Input<'_>, message: OutgoingMessage<'_>) -> Result<usize> {
        self.send_bytes(input, &message)
    }

    fn receive(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        self.receive_bytes(out, how, nonblocking)
    }

    fn shut_down(&self, which: Directions) -> Result<()> {
        self.end_directions(which)
    }

    fn switched(&self, which: Switches) -> Result<()> {
        if which.contains(Switches::REUSE_ADDRESS) {
            self.binding_changed()?;
        }
        if which.intersects(Switches::KEEP_ALIVE | Switches::URGENT_INLINE) {
            Socket::switched(self);
        }
        Ok(())
    }

    fn set_option(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        match level {
            SOL_SOCKET => match self.filter.set(option, value) {
                Err(Errno::ENOPROTOOPT) => {
                    let changed = || self.binding_changed();
                    self.level.set_with(self.network(), option, value, changed)
                }
                outcome => outcome,
            },
            SOL_TCP => self.set_tcp(option, value),
            SOL_IP => self.set_ip(level, option, value),
            SOL_IPV6 if self.v6 => self.set_ip(level, option, value),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, option: i32, out: OptionOutput) -> Result<()> {
        match level {
            SOL_SOCKET => match self.filter.get(option, out) {
                Err(Errno::ENOPROTOOPT) => self.level.get(self.network(), option, out),
                outcome => outcome,
            },
            SOL_TCP => self.get_tcp(option, out),
            SOL_IPV6 if !self.v6 => Err(Errno::EOPNOTSUPP),
            SOL_IP | SOL_IPV6 if ip_options::is_mtu(level, option) => {
                ip_options::write_mtu(level, option, self.path_mtu()?, out)
            }
            SOL_IP | SOL_IPV6 => {
                let settings = &self.network().settings;
                let value = self.options.lock().get(settings, level, option);
                let value = value.ok_or(Errno::ENOPROTOOPT)?;
                ip_options::write(level, value, out)
            }
            _ if self.v6 => Err(Errno::ENOPROTOOPT),
            // `do_ip_getsockopt`.
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    fn listens(&self) -> bool {
        self.is_listening()
    }

    fn buffer_size(&self, which: Buffer) -> usize {
        let (send, receive) = self.sizes();
        let (set, default) = match which {
            Buffer::Send => (send, SEND_DEFAULT),
            Buffer::Receive => (receive, RECEIVE_DEFAULT),
        };
        if set != 0 {
            return set;
        }
        match &self.state.lock().phase {
            Phase::Connected(flow) if which == Buffer::Send => flow.connection.send_limit(),
            Phase::Connected(flow) => flow.connection.receive_limit() * 2,
            _ => default,
        }
    }

    fn set_buffer_size(&self, which: Buffer, size: usize) {
        match which {
            Buffer::Send => {
                self.send_size.store(size, Ordering::Relaxed);
                self.apply(|connection, _, _| connection.set_send_limit(size));
            }
            Buffer::Receive => {
                self.receive_size.store(size, Ordering::Relaxed);
                self.apply(|connection, _, _| connection.set_receive_limit(size / 2));
            }
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
        if out.remaining() == 0 {
            return Ok(0);
        }
        Ok(self.receive_bytes(out, 0, file.nonblocking())?.count)
    }

    fn write(&self, file: &OpenFile, _offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let nonblocking = file.nonblocking();
        self.send_bytes(input, &OutgoingMessage { nonblocking, ..OutgoingMessage::default() })
    }

    fn poll(&self, _file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.readers);
        registrar.register(&self.writers);
        self.events()
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let number = {
            let state = self.state.lock();
            let flow = match &state.phase {
                Phase::Connected(flow) => Some(flow),
                _ => None,
            };
            let listens = matches!(state.phase, Phase::Listening(_));
            match command {
                FIONREAD | TIOCOUTQ | SIOCOUTQNSD if listens => return Err(Errno::EINVAL),
                FIONREAD => flow.map_or(0, |flow| flow.connection.available()),
                TIOCOUTQ => flow.map_or(0, |flow| flow.connection.unacknowledged()),
                SIOCOUTQNSD => flow.map_or(0, |flow| flow.connection.unsent()),
                SIOCATMARK => usize::from(flow.is_some_and(|flow| flow.connection.at_mark())),
                _ => {
                    drop(state);
                    // Reads leave no time for SIOCGSTAMP.
                    if let Some(answer) = Stamp::default().answer(command, arg) {
                        return answer;
                    }
                    let answer = if self.v6 { ioctl::interface_v6 } else { ioctl::interface };
                    return answer(self.network(), command, arg as usize);
                }
            }
        };
        UserPtr::<i32>::new(arg as usize).write(&(number.min(i32::MAX as usize) as i32))?;
        Ok(0)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.signals, Interest::BOTH))
    }

    fn owned(&self, file: &OpenFile) {
        self.owner.call_once(|| Arc::clone(file.owner()));
    }

    fn release(&self, _file: &OpenFile) {
        self.close();
    }
}
