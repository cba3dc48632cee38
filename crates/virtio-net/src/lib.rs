//! virtio's network device (virtio 1.2, 5.1): which features go together, and the header that
//! stands before each frame.
//!
//! The header says which work is left to the other side: a checksum to be completed, a segment to
//! be cut up. Linux uses the same terms beyond virtio (`struct virtio_net_hdr` of tun(4) and
//! packet(7)), and so does Hayate between a driver and the network stack. The device's header is an
//! allegation: [`read`] checks it against the frame's length before it is used.
//!
//! Road not taken: features for UDP segmentation and congestion marks (`UFO`, `ECN`, `USO`).
//! Fragments of UDP are an attack on the receiver's memory that no program here asks for, and a
//! stack sends the few segments with congestion marks one by one.
#![no_std]
#![forbid(unsafe_code)]

/// Bits of the features.
pub mod feature {
    #![allow(missing_docs)]
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const MTU: u64 = 1 << 3;
    pub const MAC: u64 = 1 << 5;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    pub const CTRL_VQ: u64 = 1 << 17;
    pub const CTRL_RX: u64 = 1 << 18;
    pub const MQ: u64 = 1 << 22;
    pub const CTRL_MAC_ADDR: u64 = 1 << 23;
}

/// Returns the features to negotiate out of the offered ones. Those that need others (5.1.3.1) are
/// left out without them, and so are large frames to the guest unless they may lie in several
/// buffers.
pub fn choose(offered: u64) -> u64 {
    use feature::*;
    let base = CSUM | GUEST_CSUM | MTU | MAC | MRG_RXBUF | STATUS | CTRL_VQ;
    let mut chosen = offered & base;
    let mut with = |needed: u64, more: u64| {
        if chosen & needed == needed {
            chosen |= offered & more;
        }
    };
    with(CSUM, HOST_TSO4 | HOST_TSO6);
    with(GUEST_CSUM | MRG_RXBUF, GUEST_TSO4 | GUEST_TSO6);
    with(CTRL_VQ, CTRL_RX | MQ | CTRL_MAC_ADDR);
    chosen
}

/// Bytes of the header. (Devices before version 1 have a shorter one.)
pub const HEADER: usize = 12;

/// The bytes of the largest frame with segments: an IP packet of the largest size, Ethernet's
/// header, a VLAN tag.
pub const LARGEST: usize = 65535 + 14 + 4;

/// A checksum that is yet to be completed: the sum of the bytes from `start` to the frame's end is
/// written at `start + offset`, where the sum of the pseudo-header stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Where the sum begins, from the frame's first byte.
    pub start: u16,
    /// Where it is written, from `start`.
    pub offset: u16,
}

/// The protocols whose segments a device cuts up or joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

/// A frame that stands for several segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// The protocol.
    pub protocol: Protocol,
    /// Bytes of data of each segment; the last may have fewer.
    pub size: u16,
}

/// The state of a received frame's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing: the receiver verifies it.
    Unknown,
    /// The device verified one (the innermost).
    Verified,
    /// The frame never was on a wire: its data is good, its checksum is yet to be completed.
    Partial(Partial),
}

/// The header of a received frame, once checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The state of its checksum.
    pub checksum: Checksum,
    /// The segments that were joined to it, if any.
    pub segments: Option<Segments>,
}

/// A header that no device may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid;

const NEEDS_CHECKSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const NONE: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;

fn word(header: &[u8; HEADER], at: usize) -> u16 {
    u16::from_le_bytes([header[at], header[at + 1]])
}

/// Returns how many buffers hold the frame behind this header.
pub fn buffers(header: &[u8; HEADER], agreed: u64) -> u16 {
    if agreed & feature::MRG_RXBUF == 0 { 1 } else { word(header, 10) }
}

/// Reads the header of a received frame of `length` bytes (the header not among them), from a
/// device with these features. Features that were not negotiated are not believed.
///
/// # Errors
/// [`Invalid`]: segments that were not negotiated or have no size, a checksum outside of the frame.
pub fn read(header: &[u8; HEADER], length: usize, agreed: u64) -> Result<Received, Invalid> {
    let sums = agreed & feature::GUEST_CSUM != 0;
    let partial = Partial { start: word(header, 6), offset: word(header, 8) };
    let checksum = match header[0] {
        flags if sums && flags & NEEDS_CHECKSUM != 0 => {
            if usize::from(partial.start) + usize::from(partial.offset) + 2 > length {
                return Err(Invalid);
            }
            Checksum::Partial(partial)
        }
        flags if sums && flags & DATA_VALID != 0 => Checksum::Verified,
        _ => Checksum::Unknown,
    };
    let (protocol, needed) = match header[1] {
        NONE => return Ok(Received { checksum, segments: None }),
        TCP4 => (Protocol::Tcp4, feature::GUEST_TSO4),
        TCP6 => (Protocol::Tcp6, feature::GUEST_TSO6),
        _ => return Err(Invalid),
    };
    let size = word(header, 4);
    if agreed & needed == 0 || size == 0 {
        return Err(Invalid);
    }
    Ok(Received { checksum, segments: Some(Segments { protocol, size }) })
}

/// The work that the device is to do on a frame that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The checksum to complete.
    pub checksum: Option<Partial>,
    /// The segments to cut it into: with the bytes of all headers, which each segment gets. Needs a
    /// checksum to complete.
    pub segments: Option<(Segments, u16)>,
}

/// Makes the header of a frame of `length` bytes that is sent to a device with these features.
///
/// # Errors
/// [`Invalid`]: the device cannot do that, or it makes no sense with this frame.
pub fn write(sent: &Sent, length: usize, agreed: u64) -> Result<[u8; HEADER], Invalid> {
    let mut header = [0; HEADER];
    let mut put = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    let mut flags = 0;
    if let Some(partial) = sent.checksum {
        let end = usize::from(partial.start) + usize::from(partial.offset) + 2;
        if agreed & feature::CSUM == 0 || end > length {
            return Err(Invalid);
        }
        flags = NEEDS_CHECKSUM;
        put(6, partial.start);
        put(8, partial.offset);
    }
    let mut kind = NONE;
    if let Some((segments, headers)) = sent.segments {
        let needed = match segments.protocol {
            Protocol::Tcp4 => feature::HOST_TSO4,
            Protocol::Tcp6 => feature::HOST_TSO6,
        };
        if agreed & needed == 0
            || sent.checksum.is_none()
            || segments.size == 0
            || usize::from(headers) > length
        {
            return Err(Invalid);
        }
        kind = if segments.protocol == Protocol::Tcp4 { TCP4 } else { TCP6 };
        put(2, headers);
        put(4, segments.size);
    }
    header[0] = flags;
    header[1] = kind;
    Ok(header)
}

#[cfg(test)]
mod tests;
