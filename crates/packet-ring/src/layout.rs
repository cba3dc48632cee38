//! What a program asks for, and whether it can be (`packet_set_ring`).

use super::Arrival;

/// The alignment of headers (`TPACKET_ALIGNMENT`), and of what is in a block (`V3_ALIGNMENT`).
const ALIGNMENT: usize = 16;
const BLOCK_ALIGNMENT: usize = 8;
/// `sizeof(struct sockaddr_ll)`.
const ADDRESS: usize = 20;
/// The least room before the network's header.
const LINK: usize = 16;
/// The header of a block (`struct tpacket_block_desc`).
pub(crate) const BLOCK_HEADER: usize = 48;
const PAGE: usize = 4096;
/// How long a block that is not full waits if the program does not say, in milliseconds
/// (`DEFAULT_PRB_RETIRE_TOV`).
const RETIRE: u32 = 8;

/// The version of a ring (`TPACKET_V*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Frames with a status of eight bytes and microseconds.
    #[default]
    V1,
    /// Frames with nanoseconds.
    V2,
    /// Blocks.
    V3,
}

impl Version {
    /// The version of a number. `None` if there is none.
    pub fn from_number(number: i32) -> Option<Version> {
        [Version::V1, Version::V2, Version::V3].get(usize::try_from(number).ok()?).copied()
    }

    /// Its number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The length of a packet's header without its address (`PACKET_HDRLEN`).
    pub fn header(self) -> usize {
        if self == Version::V3 { 48 } else { 32 }
    }

    /// The length of a packet's header with its address (`TPACKET*_HDRLEN`).
    fn whole_header(self) -> usize {
        self.header() + ADDRESS
    }
}

/// What a program asks for: `struct tpacket_req3`, the beginning of which is `struct tpacket_req`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "named as in packet_mmap.rst")]
pub struct Request {
    pub block_size: u32,
    pub block_count: u32,
    pub frame_size: u32,
    pub frame_count: u32,
    /// Milliseconds.
    pub retire_after: u32,
    pub private_size: u32,
    /// `tp_feature_req_word`. The hash of packets is always 0.
    pub features: u32,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Sizes do not fit each other.
    Invalid,
    /// It is more than the memory that there may be.
    Memory,
}

/// How a ring is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The version.
    pub version: Version,
    /// Bytes before each packet's headers that the program reserved (PACKET_RESERVE).
    pub reserve: usize,
    /// Bytes of a block.
    pub block_size: usize,
    /// How many there are.
    pub blocks: usize,
    /// Bytes of a frame.
    pub frame_size: usize,
    /// Frames of a block.
    pub per_block: usize,
    /// Bytes of a block that are the program's own, as it said.
    pub private: usize,
    /// Nanoseconds after which a block that is not full is handed over.
    pub retire: u64,
}

impl Layout {
    /// Checks a request; `most`: how many bytes there may be.
    ///
    /// # Errors
    /// [`Refused::Invalid`], [`Refused::Memory`].
    pub fn new(
        version: Version,
        reserve: u32,
        asked: Request,
        most: usize,
    ) -> Result<Layout, Refused> {
        let reserve = reserve as usize;
        let least = version.whole_header() + reserve;
        let (block_size, frame_size) = (asked.block_size as usize, asked.frame_size as usize);
        let blocks = asked.block_count as usize;
        if i32::try_from(asked.block_size).is_err() || block_size == 0 || block_size % PAGE != 0 {
            return Err(Refused::Invalid);
        }
        let private = if version == Version::V3 { asked.private_size as usize } else { 0 };
        if version == Version::V3 && block_size < first(private) + least {
            return Err(Refused::Invalid);
        }
        if frame_size < least || frame_size % ALIGNMENT != 0 || frame_size > block_size {
            return Err(Refused::Invalid);
        }
        let per_block = block_size / frame_size;
        if blocks == 0 || per_block.checked_mul(blocks) != Some(asked.frame_count as usize) {
            return Err(Refused::Invalid);
        }
        if block_size.checked_mul(blocks).is_none_or(|size| size > most) {
            return Err(Refused::Memory);
        }
        let milliseconds = if asked.retire_after == 0 { RETIRE } else { asked.retire_after };
        let retire = u64::from(milliseconds) * 1_000_000;
        let shape =
            Layout { version, reserve, block_size, blocks, frame_size, per_block, private, retire };
        Ok(shape)
    }

    /// Returns the bytes of the ring.
    pub fn size(&self) -> usize {
        self.block_size * self.blocks
    }

    /// Returns where the first packet of a block begins.
    pub(crate) fn first(&self) -> usize {
        first(self.private)
    }

    /// Returns where a packet and its network header begin after the packet's place in the ring,
    /// and how many bytes of it fit in `room`. `None`: the offsets are no numbers of 16 bits, so
    /// that it is lost.
    pub(crate) fn place(&self, arrival: &Arrival<'_>, room: usize) -> Option<Place> {
        let header = self.version.whole_header();
        let network = match arrival.link {
            0 => header.next_multiple_of(ALIGNMENT) + LINK,
            link => (header + link.max(LINK)).next_multiple_of(ALIGNMENT),
        } + self.reserve;
        if network > usize::from(u16::MAX) {
            return None;
        }
        let start = network - arrival.link;
        let count = arrival.wanted.min(room.saturating_sub(start));
        // Without room for a byte there may be none for the offset either (`tpacket_rcv`).
        let start = if count == 0 { start.min(room) } else { start };
        Some(Place { start, network, count })
    }

    /// Returns where the address is after the packet's place.
    pub(crate) fn address(&self) -> usize {
        self.version.header().next_multiple_of(ALIGNMENT)
    }
}

fn first(private: usize) -> usize {
    BLOCK_HEADER + private.next_multiple_of(BLOCK_ALIGNMENT)
}

/// Where a packet goes, and how much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub start: usize,
    pub network: usize,
    pub count: usize,
}
