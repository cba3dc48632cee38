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
    /// The most data that a segment on the wire may carry, if this one is to be cut or was joined
    /// of several ([`Segment::cut`]); 0 for a segment that stands for itself.
    pub cut_at: u16,
    /// Data.
    pub payload: Pieces<B>,
}

impl<B: Bytes> Segment<B> {
    /// A segment without data.
    pub fn new(seq: Seq, ack: Option<Seq>, flags: Flags) -> Segment<B> {
        let (options, payload) = (Options::default(), Pieces::new());
        Segment { seq, ack, flags, window: 0, urgent: 0, options, cut_at: 0, payload }
    }

    /// Bytes of data.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }

    /// Drops the data behind the first `length` bytes, and nothing else.
    pub fn truncate(&mut self, length: usize) {
        let mut left = length;
        let mut kept = 0;
        for piece in &mut self.payload {
            if left == 0 {
                break;
            }
            if piece.len() > left {
                *piece = piece.slice(0, left);
            }
            left -= piece.len();
            kept += 1;
        }
        self.payload.truncate(kept);
    }

    /// How many sequence numbers it takes: data, SYN and FIN (RFC 9293: SEG.LEN).
    pub fn sequence_len(&self) -> u32 {
        self.payload_len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// How many segments on the wire it stands for.
    #[inline]
    pub fn count(&self) -> u64 {
        match usize::from(self.cut_at) {
            0 => 1,
            size => self.payload_len().div_ceil(size).max(1) as u64,
        }
    }

    /// Cuts it into the segments that it stands for, in order: each has the same header but for its
    /// number, and only the last one pushes and ends the stream (Linux: `tcp_gso_segment`). One for
    /// which there is no memory is left out, as if the network had lost it.
    pub fn cut(mut self, mut take: impl FnMut(Segment<B>)) {
        let size = usize::from(self.cut_at);
        let total = self.payload_len();
        self.cut_at = 0;
        if size == 0 || total <= size {
            return take(self);
        }
        let mut pieces = core::mem::take(&mut self.payload).into_iter();
        let mut rest = None;
        let mut at = 0;
        while at < total {
            let end = total.min(at + size);
            let payload = front(&mut pieces, &mut rest, end - at);
            let mut segment = Segment::new(self.seq + at as u32, self.ack, self.flags);
            segment.window = self.window;
            segment.options = self.options.clone();
            if end < total {
                segment.flags -= Flags::FIN | Flags::PSH;
            }
            // The mark is as far from here as from the first byte, less what lies between.
            match usize::from(self.urgent).checked_sub(at) {
                Some(urgent) if urgent > 0 => segment.urgent = urgent as u16,
                _ => segment.flags -= Flags::URG,
            }
            if let Some(payload) = payload {
                segment.payload = payload;
                take(segment);
            }
            at = end;
        }
    }

    /// Whether what follows may be joined to it: it has data and says nothing else but an
    /// acknowledgement, and its sender did not end a write with it.
    #[inline]
    pub fn may_grow(&self) -> bool {
        !self.payload.is_empty()
            && self.ack.is_some()
            && self.flags.is_empty()
            && self.options.sack.is_empty()
    }

    /// Takes the data of `next` if the two are parts of one segment that was cut: `next` follows,
    /// its header is the same but for its number and that it may push, and this one [may
    /// grow](Self::may_grow); no longer than `most` (Linux: `tcp_gro_receive`). Returns whether it
    /// did; `next` is as before if not. `has`: the bytes of its data, which the caller keeps, so
    /// that nobody counts them for each segment that joins.
    #[inline]
    pub fn join(&mut self, has: &mut usize, next: &mut Segment<B>, most: usize) -> bool {
        let (length, more) = (*has, next.payload_len());
        let size = if self.cut_at == 0 { length } else { self.cut_at.into() };
        let follows = next.seq == self.seq + length as u32
            && next.ack == self.ack
            && (next.flags | Flags::PSH) == Flags::PSH
            && next.window == self.window
            && next.cut_at == 0
            && next.options == self.options
            && more > 0
            && more <= size
            && length.is_multiple_of(size)
            && length + more <= most;
        let (Ok(size), true) = (u16::try_from(size), follows) else { return false };
        if self.payload.try_reserve(next.payload.len()).is_err() {
            return false;
        }
        match next.payload.pop() {
            Some(only) if next.payload.is_empty() => self.payload.push(only),
            last => self.payload.extend(next.payload.drain(..).chain(last)),
        }
        self.flags |= next.flags;
        self.cut_at = size;
        *has = length + more;
        true
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

/// Takes the first `length` bytes of what was left of a piece and of further pieces. `None`: there
/// is no memory for the list, and they are dropped.
fn front<B: Bytes>(
    pieces: &mut impl Iterator<Item = B>,
    rest: &mut Option<B>,
    length: usize,
) -> Option<Pieces<B>> {
    let mut taken = Pieces::new();
    let mut is_whole = true;
    let mut left = length;
    while left > 0 {
        let mut piece = rest.take().or_else(|| pieces.next())?;
        if piece.len() > left {
            *rest = Some(piece.slice(left, piece.len()));
            piece = piece.slice(0, left);
        }
        left -= piece.len();
        if taken.try_reserve(1).is_ok() {
            taken.push(piece);
        } else {
            is_whole = false;
        }
    }
    is_whole.then_some(taken)
}
