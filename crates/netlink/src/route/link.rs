//! Links: interfaces of the network (RTM_NEWLINK).

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::family;
use crate::Full;
use crate::message::{Header, Request, Writer};

const IFLA_ADDRESS: u16 = 1;
const IFLA_BROADCAST: u16 = 2;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_STATS: u16 = 7;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKMODE: u16 = 17;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_GROUP: u16 = 27;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_CARRIER: u16 = 33;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
const IFLA_ALT_IFNAME: u16 = 53;

/// `IF_OPER_*`: the state of a link.
pub mod state {
    #![allow(missing_docs, reason = "named as in RFC 2863")]
    pub const UNKNOWN: u8 = 0;
    pub const DOWN: u8 = 2;
    pub const UP: u8 = 6;
}

/// The name of a link; `IFNAMSIZ` with its terminating zero.
pub type Name = ArrayVec<u8, 15>;

/// `struct ifinfomsg`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in rtnetlink(7)")]
pub struct Fixed {
    pub family: u8,
    pub padding: u8,
    pub kind: u16,
    pub index: i32,
    pub flags: u32,
    pub change: u32,
}

/// Counts of packets that passed a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what they count")]
pub struct Statistics {
    pub packets_in: u64,
    pub packets_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub errors_in: u64,
    pub errors_out: u64,
    pub dropped_in: u64,
    pub dropped_out: u64,
    pub multicast_in: u64,
}

impl Statistics {
    /// The fields of `struct rtnl_link_stats64` in their order; those that are not counted are 0.
    fn words(&self) -> [u64; 25] {
        let mut words = [0; 25];
        let known = [
            self.packets_in,
            self.packets_out,
            self.bytes_in,
            self.bytes_out,
            self.errors_in,
            self.errors_out,
            self.dropped_in,
            self.dropped_out,
            self.multicast_in,
        ];
        words[..known.len()].copy_from_slice(&known);
        words
    }
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index, from 1.
    pub index: u32,
    /// Its name.
    pub name: Name,
    /// The type of its hardware (`ARPHRD_*`).
    pub hardware_type: u16,
    /// Its hardware address, and that of all on the link.
    pub hardware: [u8; 6],
    /// See [`hardware`](Self::hardware).
    pub broadcast: [u8; 6],
    /// The largest packet in bytes, and the limits that it may be set to.
    pub mtu: u32,
    /// The least [`mtu`](Self::mtu).
    pub least_mtu: u32,
    /// The largest [`mtu`](Self::mtu); 0 for no limit.
    pub most_mtu: u32,
    /// Its flags (`IFF_*` of netdevice(7)).
    pub flags: u32,
    /// Its [`state`].
    pub state: u8,
    /// The length of its queue of packets to send.
    pub queue_length: u32,
    /// The name of the discipline of that queue.
    pub queue: &'static str,
    /// Counts of packets that passed it.
    pub statistics: Statistics,
}

impl Link {
    /// Writes a message about it. `change`: the flags that are new.
    pub fn write(&self, to: &mut Writer<'_>, header: Header, change: u32) -> Result<(), Full> {
        to.message(header, |body| {
            let fixed = Fixed {
                family: family::UNSPEC,
                padding: 0,
                kind: self.hardware_type,
                index: self.index as i32,
                flags: self.flags,
                change,
            };
            body.put(fixed.as_bytes())?;
            body.text(IFLA_IFNAME, &self.name)?;
            body.number(IFLA_TXQLEN, self.queue_length)?;
            body.attribute(IFLA_OPERSTATE, &[self.state])?;
            body.attribute(IFLA_LINKMODE, &[0])?;
            body.number(IFLA_MTU, self.mtu)?;
            body.number(IFLA_MIN_MTU, self.least_mtu)?;
            body.number(IFLA_MAX_MTU, self.most_mtu)?;
            body.number(IFLA_GROUP, 0)?;
            body.number(IFLA_PROMISCUITY, 0)?;
            body.number(IFLA_NUM_TX_QUEUES, 1)?;
            body.number(IFLA_NUM_RX_QUEUES, 1)?;
            body.attribute(IFLA_CARRIER, &[u8::from(self.state != state::DOWN)])?;
            body.text(IFLA_QDISC, self.queue.as_bytes())?;
            body.attribute(IFLA_ADDRESS, &self.hardware)?;
            body.attribute(IFLA_BROADCAST, &self.broadcast)?;
            let words = self.statistics.words();
            body.attribute(IFLA_STATS64, words.as_bytes())?;
            // The older form: fields of 32 bits, without the last one.
            let halves: [u32; 24] = core::array::from_fn(|at| words[at] as u32);
            body.attribute(IFLA_STATS, halves.as_bytes())
        })
    }
}

/// A request about links.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The fixed part.
    pub fixed: Fixed,
    /// The name of the link that is meant, if it was given.
    pub name: Option<Name>,
    /// The `mtu` to set.
    pub mtu: Option<u32>,
    /// The length of the queue to set.
    pub queue_length: Option<u32>,
    /// The hardware address to set.
    pub hardware: Option<[u8; 6]>,
    /// Only links of this master or this kind are wanted, of which there are none.
    pub is_narrow: bool,
    /// It has an attribute that is none of these: the kind of a link to make, and others.
    pub has_more: bool,
}

impl Asked {
    /// Reads a request. `None` if it is too short or a value is not what it should be.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, attributes) = request.parts::<Fixed>()?;
        let mut asked = Self { fixed, ..Self::default() };
        for attribute in attributes {
            match attribute.kind {
                IFLA_IFNAME | IFLA_ALT_IFNAME => {
                    asked.name = Some(Name::try_from(attribute.text()).ok()?);
                }
                IFLA_MTU => asked.mtu = Some(attribute.number()?),
                IFLA_TXQLEN => asked.queue_length = Some(attribute.number()?),
                IFLA_ADDRESS => asked.hardware = Some(attribute.hardware()?),
                IFLA_EXT_MASK => {}
                IFLA_MASTER => asked.is_narrow |= attribute.number()? != 0,
                IFLA_LINKINFO => asked.is_narrow = true,
                _ => asked.has_more = true,
            }
        }
        Some(asked)
    }
}
