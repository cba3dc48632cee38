//! A packet between the layers.
//!
//! Between two sockets of this machine a packet is never bytes: its header is a structure, its body
//! what the transport protocol gave. Only a device, a raw socket or a packet socket sees bytes
//! (`wire`).

use hayate_ip::header::{self, Header, TCP, UDP};

use super::slice::{Payload, Slice};

/// An IP packet.
#[derive(Debug)]
pub struct Packet {
    /// The IP header. The protocol of a [`Body::Bytes`] is its own; that of others is known.
    pub header: Header,
    /// Its content.
    pub body: Body,
    /// The interface that it arrived on.
    pub interface: u32,
    /// Its payload is datagrams of this size and a rest, which UDP_SEGMENT lets pass the loopback
    /// interface as one; 0 for a packet that is one datagram.
    pub segment: u16,
}

/// The ports of a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The sender's.
    pub source: u16,
    /// The receiver's.
    pub destination: u16,
}

/// The content of a packet.
#[derive(Debug)]
pub enum Body {
    /// A TCP segment.
    Tcp(Ports, hayate_tcp::Segment<Slice>),
    /// A UDP datagram.
    Udp(Ports, Payload),
    /// Another protocol: everything after the IP header.
    Bytes(Payload),
}

impl Packet {
    /// Returns the bytes of memory that it may keep from being freed.
    pub fn pinned(&self) -> usize {
        match &self.body {
            Body::Tcp(_, segment) => segment.payload.iter().map(Slice::pinned).sum(),
            Body::Udp(_, payload) | Body::Bytes(payload) => payload.pinned(),
        }
    }

    /// Returns its length in bytes, with its headers.
    pub fn length(&self) -> usize {
        let body = match &self.body {
            Body::Tcp(_, segment) => {
                header::LENGTH_TCP + segment.options.wire_len() + segment.payload_len()
            }
            Body::Udp(_, payload) => header::LENGTH_UDP + payload.len(),
            Body::Bytes(payload) => payload.len(),
        };
        header::length(&self.header) + body
    }

    /// Whether it is a segment of TCP to which what follows may be joined.
    #[inline]
    pub fn may_grow(&self) -> bool {
        matches!(&self.body, Body::Tcp(_, segment) if segment.may_grow())
    }

    /// Takes the data of the packet that follows, if the two are parts of one segment of TCP, which
    /// has `length` bytes of data before and after. Returns whether it did; `next` is as before if
    /// not.
    #[inline]
    pub fn join(&mut self, length: &mut usize, next: &mut Packet) -> bool {
        // So that it is no longer than a packet can be, whatever its headers.
        const MOST: usize = u16::MAX as usize - header::LENGTH_V6 - header::LENGTH_TCP - 40;
        let is_same_way = self.header == next.header && self.interface == next.interface;
        match (&mut self.body, &mut next.body) {
            (Body::Tcp(ports, segment), Body::Tcp(others, next)) => {
                is_same_way && ports == others && segment.join(length, next, MOST)
            }
            _ => false,
        }
    }

    /// Gives `take` the packets that a segment of TCP stands for, or the packet itself.
    pub fn cut(self, mut take: impl FnMut(Packet)) {
        let Packet { header, body: Body::Tcp(ports, segment), interface, .. } = self else {
            return take(self);
        };
        segment.cut(|piece| {
            take(Packet { header, body: Body::Tcp(ports, piece), interface, segment: 0 });
        });
    }

    /// Returns the number of the protocol that it carries.
    pub fn protocol(&self) -> u8 {
        match self.body {
            Body::Tcp(..) => TCP,
            Body::Udp(..) => UDP,
            Body::Bytes(_) => self.header.protocol,
        }
    }
}
