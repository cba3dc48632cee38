//! A segment as the caller parses and emits it.

use smallvec::SmallVec;

use crate::{Bytes, Options, Seq};

/// Pieces of data in order.
pub type Pieces<B> = SmallVec<[B; 2]>;

bitflags::bitflags! {
    /// The bits of the header. ACK is [`Segment::ack`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Flags: u8 {
        /// No more data will come.
        const FIN = 1;
        /// The connection begins.
        const SYN = 2;
        /// The connection is aborted.
        const RST = 4;
        /// The program's write ends here.
        const PSH = 8;
        /// The urgent pointer counts.
        const URG = 32;
    }
}

/// One TCP segment, without ports and checksum.
#[derive(Clone, Debug)]
pub struct Segment<B> {
    /// The number of the first byte, or of the SYN.
    pub seq: Seq,
    /// The next number that the sender expects; `None` when the ACK bit is not set.
    pub ack: Option<Seq>,
    /// The other bits.
    pub flags: Flags,
    /// The window as on the wire: shifted, unless in a SYN.
    pub window: u16,
    /// Distance from `seq` to the byte behind the urgent one (as Linux reads RFC 793).
    pub urgent: u16,
    /// Options.
    pub options: Options,
    /// Data.
    pub payload: Pieces<B>,
}

impl<B: Bytes> Segment<B> {
    /// A segment without data.
    pub fn new(seq: Seq, ack: Option<Seq>, flags: Flags) -> Segment<B> {
        let (options, payload) = (Options::default(), Pieces::new());
        Segment { seq, ack, flags, window: 0, urgent: 0, options, payload }
    }

    /// Bytes of data.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }

    /// How many sequence numbers it takes: data, SYN and FIN (RFC 9293: SEG.LEN).
    pub fn sequence_len(&self) -> u32 {
        self.payload_len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// The reset that answers a segment that belongs to no connection (RFC 9293, 3.10.7.1); `None`
    /// for a reset.
    pub fn refusal(&self) -> Option<Segment<B>> {
        if self.flags.contains(Flags::RST) {
            return None;
        }
        Some(match self.ack {
            Some(ack) => Segment::new(ack, None, Flags::RST),
            None => Segment::new(Seq(0), Some(self.seq + self.sequence_len()), Flags::RST),
        })
    }
}
