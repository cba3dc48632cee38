//! The open file of a packet socket, and its operations.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::raw::ioctl::{FIONREAD, TIOCOUTQ};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;
use smallvec::SmallVec;

use super::endpoint::{Endpoint, Received};
use super::options::{self, AUXDATA, SOL_PACKET, Setup, Values};
use super::seen::{self, ADDRESS, FAMILY, LINK};
use super::{send, tap};
use crate::credentials::Capability;
use crate::net::ioctl;
use crate::net::stamp::Stamp;
use crate::reclaim::growth;
use crate::schedule::Mutex;
use crate::vfs::caller;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::socket::{
    AddressBytes, ControlMessage, IncomingMessage, OutgoingMessage, SocketOps, flags, kinds, until,
};
use crate::vfs::socket_family::{self, Family, no_pair};
use crate::vfs::socket_options::{
    Buffer, Common, OptionOutput, OptionValue, SEND_DEFAULT, SOL_SOCKET, Switches,
};
use crate::vfs::transfer::{Input, Output};

const SO_RXQ_OVFL: i32 = 40;
/// The flags of a receive that are known (`packet_recvmsg`).
const KNOWN: u32 = flags::PEEK
    | flags::TRUNC
    | flags::DONTWAIT
    | flags::ERRQUEUE
    | flags::CMSG_CLOEXEC
    | flags::CMSG_COMPAT;
/// `TP_STATUS_USER`.
const USER: u32 = 1;

/// Registers the family; at boot.
pub fn register() {
    socket_family::register(Family { number: FAMILY, create, pair: no_pair });
}

/// socket(2): the protocol is in the order of the network (`packet_create`).
fn create(kind: i32, protocol: i32) -> Result<Arc<dyn FileOps>> {
    let network = caller::network();
    caller::require_in(&network.owner, Capability::NetRaw)?;
    if !matches!(kind, kinds::RAW | kinds::DATAGRAM) {
        return Err(Errno::ESOCKTNOSUPPORT);
    }
    let protocol = u16::from_be(protocol as u16);
    let (cooked, user) = (kind == kinds::DATAGRAM, caller::identity().uid);
    let endpoint = Endpoint::new(cooked, protocol, user, network.clone());
    tap::add(&endpoint)?;
    Ok(Arc::new(Socket {
        endpoint,
        common: Common::of(&network),
        values: Values::default(),
        setup: Mutex::new(Setup::default()),
        send_size: AtomicUsize::new(SEND_DEFAULT),
        stamp: Stamp::default(),
    }))
}

/// An open packet socket.
pub struct Socket {
    endpoint: Arc<Endpoint>,
    common: Common,
    values: Values,
    setup: Mutex<Setup>,
    /// SO_SNDBUF.
    send_size: AtomicUsize,
    stamp: Stamp,
}

impl Socket {
    /// Copies a packet to the program; returns how many bytes.
    fn put(&self, packet: &Received, out: &mut Output<'_>) -> Result<usize> {
        let wanted = packet.kept.min(out.remaining());
        let link: &[u8] = if self.endpoint.cooked { &[] } else { &packet.link };
        let head = &link[..wanted.min(link.len())];
        let rest = wanted - head.len();
        if out.put(head)? < head.len() || packet.body.put(0, rest, out)? < rest {
            return Err(Errno::EFAULT);
        }
        Ok(wanted)
    }

    /// The control messages that come with a packet.
    fn report(&self, packet: &Received, drops: u32) -> Result<Vec<ControlMessage>> {
        let mut list = Vec::new();
        ControlMessage::report_time(&self.common, packet.time, &mut list)?;
        if self.common.has(Switches::LOST) && drops != 0 {
            let data = SmallVec::from_slice(&drops.to_ne_bytes());
            growth::push(&mut list, ControlMessage { level: SOL_SOCKET, kind: SO_RXQ_OVFL, data })?;
        }
        if self.values.auxiliary.load(Ordering::Relaxed) {
            // struct tpacket_auxdata: status, length, what is kept of it, where the headers of link
            // and network are, and a VLAN's tag, of which there is none.
            let network = if self.endpoint.cooked { 0 } else { LINK as u16 };
            let words = [USER | packet.status, packet.length as u32, packet.kept as u32];
            let mut data: SmallVec<[u8; 32]> = SmallVec::new();
            words.iter().for_each(|word| data.extend_from_slice(&word.to_ne_bytes()));
            data.extend_from_slice(&[0; 2]);
            data.extend_from_slice(&network.to_ne_bytes());
            data.extend_from_slice(&[0; 4]);
            growth::push(&mut list, ControlMessage { level: SOL_PACKET, kind: AUXDATA, data })?;
        }
        Ok(list)
    }
}

impl SocketOps for Socket {
    fn family(&self) -> u16 {
        FAMILY
    }

    fn kind(&self) -> i32 {
        if self.endpoint.cooked { kinds::DATAGRAM } else { kinds::RAW }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn opened(&self, inode: u64) {
        self.endpoint.inode.store(inode, Ordering::Relaxed);
    }

    fn bind(&self, address: &[u8]) -> Result<()> {
        let (interface, protocol) = send::parse(address)?;
        let _alone = self.setup.lock();
        let config = self.endpoint.network.current();
        let up = match interface {
            0 => true,
            index => config.interface(index).ok_or(Errno::ENODEV)?.is_up(),
        };
        // Without a protocol it keeps its own (`packet_bind`).
        let protocol = if protocol == 0 { self.endpoint.bound().1 } else { protocol };
        self.endpoint.bind(interface, protocol);
        if !up && protocol != 0 {
            self.endpoint.fail(Errno::ENETDOWN);
        }
        Ok(())
    }

    fn name(&self) -> Result<AddressBytes> {
        let (index, protocol) = self.endpoint.bound();
        let config = self.endpoint.network.current();
        if let Some(interface) = config.interface(index) {
            let bytes = seen::address(interface, protocol, 0, interface.hardware());
            return Ok(bytes[..ADDRESS + interface.hardware().len()].iter().copied().collect());
        }
        let mut bytes = [0; ADDRESS];
        bytes[..2].copy_from_slice(&FAMILY.to_ne_bytes());
        bytes[2..4].copy_from_slice(&protocol.to_be_bytes());
        bytes[4..8].copy_from_slice(&index.to_ne_bytes());
        Ok(bytes.into_iter().collect())
    }

    fn send(&self, input: &mut Input<'_>, message: OutgoingMessage<'_>) -> Result<usize> {
        send::send(&self.endpoint, input, &message)
    }

    fn receive(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        if how & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        if how & flags::ERRQUEUE != 0 {
            // Times of sent packets would be there, which are not reported.
            return Err(Errno::EAGAIN);
        }
        let peek = how & flags::PEEK != 0;
        let attempt = || self.endpoint.next(peek);
        let queue = &self.endpoint.readers;
        let (packet, drops) = until(&self.common, Buffer::Receive, nonblocking, queue, attempt)?;
        let count = self.put(&packet, out)?;
        self.stamp.note(packet.time);
        Ok(IncomingMessage {
            count,
            full: packet.kept,
            flags: if count < packet.kept { flags::TRUNC } else { 0 },
            from: packet.address.into_iter().collect(),
            descriptors: Vec::new(),
            credentials: None,
            control: self.report(&packet, drops)?,
        })
    }

    fn set_option(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        match level {
            SOL_PACKET => {
                let mut setup = self.setup.lock();
                options::set(&self.endpoint, &self.values, &mut setup, option, value)
            }
            SOL_SOCKET => self.endpoint.filter.set(option, value),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, option: i32, out: OptionOutput) -> Result<()> {
        match level {
            SOL_PACKET => {
                let setup = self.setup.lock();
                options::get(&self.endpoint, &self.values, &setup, option, out)
            }
            SOL_SOCKET => self.endpoint.filter.get(option, out),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn take_error(&self) -> Option<Errno> {
        self.endpoint.take_error()
    }

    fn buffer_size(&self, which: Buffer) -> usize {
        match which {
            Buffer::Receive => self.endpoint.receive_limit.load(Ordering::Relaxed),
            Buffer::Send => self.send_size.load(Ordering::Relaxed),
        }
    }

    fn set_buffer_size(&self, which: Buffer, size: usize) {
        match which {
            Buffer::Receive => self.endpoint.receive_limit.store(size, Ordering::Relaxed),
            Buffer::Send => self.send_size.store(size, Ordering::Relaxed),
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
        registrar.register(&self.endpoint.readers);
        self.endpoint.events()
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        if let Some(answer) = self.stamp.answer(command, arg) {
            return answer;
        }
        let number = match command {
            FIONREAD => self.endpoint.first_length(),
            // Frames leave at once.
            TIOCOUTQ => 0,
            _ => return ioctl::interface(&self.endpoint.network, command, arg as usize),
        };
        UserPtr::<i32>::new(arg as usize).write(&(number as i32))?;
        Ok(0)
    }

    /// The ring (`packet_mmap`).
    fn map(&self, _file: &OpenFile) -> Result<MapSource> {
        let mapping = self.endpoint.with_ring(super::shared::SharedRing::mapping);
        mapping.map(MapSource::PageCache).ok_or(Errno::EINVAL)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.endpoint.signals, Interest::BOTH))
    }

    fn release(&self, _file: &OpenFile) {
        self.endpoint.begin_end();
        tap::remove(&self.endpoint);
        self.setup.lock().memberships.drop_all();
        self.endpoint.close();
    }
}
