//! Filters of sockets: SO_ATTACH_FILTER and its relatives (socket(7); net/core/filter.c of Linux).
//!
//! The program is checked and executed by `hayate_bpf`, over the packet where it lies ([`View`]). A
//! socket without a filter pays one relaxed load for each packet. Programs of the extended BPF
//! (SO_ATTACH_BPF) are not there.
//!
//! Lock: the program's is a leaf, held while a reference is taken.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_bpf::{Ancillary, Base, Instruction, Program, Refused};
use hayate_ip::Address;
use hayate_machine::cpu;
use hayate_machine::sync::SpinLock;
use hayate_machine::user;

use super::config;
use super::packet::Packet;
use super::slice::Payload;
use crate::random;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

const SO_ATTACH_FILTER: i32 = 26;
const SO_DETACH_FILTER: i32 = 27;
const SO_LOCK_FILTER: i32 = 44;
const SO_BPF_EXTENSIONS: i32 = 48;

/// Copies the instructions of a filter from the program: of a socket, or of its system calls. Their
/// number is bounded by the caller. `EFAULT`, `ENOMEM`.
pub fn copy_in(at: usize, count: usize) -> Result<Vec<Instruction>> {
    let (mut bytes, mut instructions) = (Vec::new(), Vec::new());
    growth::relieved(|| bytes.make_room_exact(count * Instruction::SIZE))?;
    growth::relieved(|| instructions.make_room_exact(count))?;
    bytes.resize(count * Instruction::SIZE, 0);
    user::copy_in(&mut bytes, at)?;
    let pieces = bytes.chunks_exact(Instruction::SIZE).filter_map(<[u8]>::first_chunk);
    instructions.extend(pieces.map(|piece| Instruction::from_bytes(*piece)));
    Ok(instructions)
}

/// The filter of a socket.
#[derive(Default)]
pub struct Filter {
    is_set: AtomicBool,
    is_locked: AtomicBool,
    program: SpinLock<Option<Arc<Program>>>,
}

impl Filter {
    /// Whether there is one.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of a packet are wanted, from where the socket sees it; 0 if it is not
    /// wanted.
    pub fn verdict(&self, view: &View<'_>) -> usize {
        let program = self.program.lock().clone();
        program.map_or(usize::MAX, |program| program.run(view) as usize)
    }

    fn replace(&self, program: Option<Arc<Program>>) -> Option<Arc<Program>> {
        let mut own = self.program.lock();
        self.is_set.store(program.is_some(), Ordering::Relaxed);
        core::mem::replace(&mut *own, program)
    }

    /// Takes the filter of a listener for a connection that begins there.
    pub fn inherit(&self, listener: &Filter) {
        let is_locked = listener.is_locked.load(Ordering::Relaxed);
        self.is_locked.store(is_locked, Ordering::Relaxed);
        if listener.is_set() {
            let program = listener.program.lock().clone();
            self.replace(program);
        }
    }

    fn check_unlocked(&self) -> Result<()> {
        if self.is_locked.load(Ordering::Relaxed) { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Sets an option of the level `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if it is none of these; `EPERM` if the filter is locked, `EINVAL`, `EFAULT`,
    /// `ENOMEM`; `ENOENT` if there is none to detach.
    pub fn set(&self, option: i32, value: OptionValue) -> Result<()> {
        match option {
            SO_ATTACH_FILTER => {
                let program = self.read(value)?;
                let old = self.replace(Some(Arc::new(program)));
                drop(old);
            }
            SO_DETACH_FILTER => {
                value.number()?;
                self.check_unlocked()?;
                self.replace(None).ok_or(Errno::ENOENT)?;
            }
            SO_LOCK_FILTER => {
                let lock = value.number()? != 0;
                if !lock {
                    self.check_unlocked()?;
                }
                self.is_locked.store(lock, Ordering::Relaxed);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// Reads a `struct sock_fprog` and the program that it points to.
    fn read(&self, value: OptionValue) -> Result<Program> {
        let fields: [u64; 2] = value.read()?;
        // `copy_bpf_fprog_from_user` takes no other size.
        if value.length != size_of_val(&fields) {
            return Err(Errno::EINVAL);
        }
        self.check_unlocked()?;
        let (count, at) = (usize::from(fields[0] as u16), fields[1] as usize);
        if at == 0 || count == 0 || count > hayate_bpf::MOST {
            return Err(Errno::EINVAL);
        }
        let instructions = copy_in(at, count)?;
        Program::check(instructions).map_err(|refused| match refused {
            Refused::Invalid => Errno::EINVAL,
            Refused::Memory => Errno::ENOMEM,
        })
    }

    /// Returns an option of the level `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if it is none of these; `EINVAL`, `EFAULT`.
    pub fn get(&self, option: i32, out: OptionOutput) -> Result<()> {
        match option {
            // SO_GET_FILTER: its length, and with room for as many instructions the program.
            SO_ATTACH_FILTER => {
                let program = self.program.lock().clone();
                let Some(program) = program else { return out.put_length(0) };
                let code = program.instructions();
                match out.room()? {
                    0 => {}
                    room if room < code.len() => return Err(Errno::EINVAL),
                    _ => {
                        for (index, instruction) in code.iter().enumerate() {
                            out.put_at(index * Instruction::SIZE, &instruction.to_bytes())?;
                        }
                    }
                }
                out.put_length(code.len())
            }
            SO_LOCK_FILTER => out.put_number(i32::from(self.is_locked.load(Ordering::Relaxed))),
            SO_BPF_EXTENSIONS => out.put_number(hayate_bpf::EXTENSIONS),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

/// A packet as a filter sees it: bytes of headers, then the rest.
pub struct View<'a> {
    /// The first bytes.
    pub head: &'a [u8],
    /// The bytes after them.
    pub body: &'a Payload,
    /// Where the socket begins to see it.
    pub data: usize,
    /// Where the header of the network layer is.
    pub network: usize,
    /// Where the header of the link layer is, if there is one.
    pub link: Option<usize>,
    /// The number of the protocol above the link (`ETH_P_*`).
    pub protocol: u16,
    /// `PACKET_HOST` and so on.
    pub kind: u8,
    /// The index of the interface.
    pub interface: u32,
    /// Its hardware type (`ARPHRD_*`).
    pub hardware: u16,
}

/// Returns the number of the protocol of packets to an address.
pub fn protocol_of(address: Address) -> u16 {
    if address.is_v4() { 0x0800 } else { 0x86dd }
}

impl<'a> View<'a> {
    /// A packet as a socket sees it that begins behind the link's header, from `data` on; `head`
    /// and `body` are its bytes.
    pub fn of_packet(packet: &Packet, head: &'a [u8], body: &'a Payload, data: usize) -> Self {
        // An interface with a device is in the first network namespace; loopback interfaces are
        // alike.
        let config = config::FIRST.current();
        let interface = config.interface(packet.interface);
        View {
            head,
            body,
            data,
            network: 0,
            link: None,
            protocol: protocol_of(packet.header.destination),
            kind: 0,
            interface: packet.interface,
            hardware: interface.map_or(0, |interface| interface.hardware_type()),
        }
    }

    fn whole(&self) -> usize {
        self.head.len() + self.body.len()
    }

    fn bytes(&self, from: usize, to: &mut [u8]) -> bool {
        if from.checked_add(to.len()).is_none_or(|end| end > self.whole()) {
            return false;
        }
        let head = self.head.get(from..).unwrap_or_default();
        let count = head.len().min(to.len());
        to[..count].copy_from_slice(&head[..count]);
        self.body.read((from + count).saturating_sub(self.head.len()), &mut to[count..]);
        true
    }

    /// Returns where the payload of the transport protocol begins, counted from where the socket
    /// sees the packet (`skb_get_poff`); 0 if that is not known.
    fn payload_offset(&self) -> usize {
        let mut head = [0; hayate_ip::header::MOST];
        let most = head.len().min(self.whole().saturating_sub(self.network));
        if !self.bytes(self.network, &mut head[..most]) {
            return 0;
        }
        let rest = self.whole().saturating_sub(self.network);
        let Some((header, extent)) = hayate_ip::header::parse(&head[..most], rest) else {
            return 0;
        };
        let at = self.network + extent.offset;
        let transport = match header.protocol {
            _ if header.fragment.is_some_and(|fragment| fragment.offset != 0) => 0,
            hayate_ip::header::TCP => {
                let mut word = [0];
                let known = self.bytes(at + 12, &mut word);
                if known { (usize::from(word[0] >> 4) * 4).max(20) } else { 0 }
            }
            hayate_ip::header::UDP | hayate_ip::header::ICMP | hayate_ip::header::ICMP_V6 => 8,
            _ => 0,
        };
        (at + transport).saturating_sub(self.data)
    }
}

impl hayate_bpf::Packet for View<'_> {
    fn length(&self) -> u32 {
        (self.whole() - self.data.min(self.whole())) as u32
    }

    fn read(&self, base: Base, offset: u32, to: &mut [u8]) -> bool {
        let start = match base {
            Base::Data => Some(self.data),
            Base::Network => Some(self.network),
            Base::Link => self.link,
        };
        start.is_some_and(|start| self.bytes(start + offset as usize, to))
    }

    fn ancillary(&self, what: Ancillary) -> Option<u32> {
        Some(match what {
            Ancillary::Protocol => self.protocol.into(),
            Ancillary::PacketType => self.kind.into(),
            Ancillary::InterfaceIndex => self.interface,
            Ancillary::HardwareType => self.hardware.into(),
            Ancillary::Processor => cpu::id() as u32,
            Ancillary::PayloadOffset => self.payload_offset() as u32,
            Ancillary::Random => random::word() as u32,
            // No packet has these marks here.
            Ancillary::Mark
            | Ancillary::Queue
            | Ancillary::ReceiveHash
            | Ancillary::VlanTag
            | Ancillary::VlanTagPresent
            | Ancillary::VlanProtocol => 0,
        })
    }
}
