//! Reassembly of a packet from its fragments (RFC 791, 3.2; RFC 8200, 4.5).
//!
//! Pieces are kept in the order of their offsets. A piece whose bytes all came before is ignored;
//! any other overlap ends the packet, for both versions (RFC 5722; `inet_frag_queue_insert` in
//! net/ipv4/inet_fragment.c of Linux 6.1). So the bytes of a packet never depend on the order in
//! which its fragments arrive.
//!
//! The bytes themselves are the caller's: a piece is any value.

use alloc::vec::Vec;

/// The longest payload of a packet.
const MOST: usize = u16::MAX as usize;

/// A part of a packet's payload.
#[derive(Clone, Debug)]
struct Piece<T> {
    offset: usize,
    length: usize,
    bytes: T,
}

/// The effect of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is kept; others are missing.
    Kept,
    /// It came before.
    Repeated,
    /// The packet is whole.
    Whole,
}

/// Why a packet cannot be put together: it has to be dropped with all its fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Fragments overlap, or do not agree where the packet ends.
    Contradiction,
    /// The packet would be longer than any can be.
    TooLong,
    /// There is no memory for another piece.
    NoMemory,
}

/// The fragments of one packet.
#[derive(Clone, Debug)]
pub struct Reassembly<T> {
    pieces: Vec<Piece<T>>,
    /// The end of the payload, once the last fragment was there.
    end: Option<usize>,
    /// How many bytes of it are there.
    present: usize,
}

impl<T> Default for Reassembly<T> {
    fn default() -> Self {
        Self { pieces: Vec::new(), end: None, present: 0 }
    }
}

impl<T> Reassembly<T> {
    /// Adds a fragment: `length` bytes at `offset` in the payload; `more`: others follow it. The
    /// length of a fragment that others follow is a multiple of eight; the caller has cut it.
    ///
    /// # Errors
    /// The packet has to be dropped.
    pub fn add(
        &mut self,
        offset: usize,
        length: usize,
        more: bool,
        bytes: T,
    ) -> Result<Added, Broken> {
        let end = offset.checked_add(length).filter(|&end| end <= MOST).ok_or(Broken::TooLong)?;
        let last = self.pieces.last().map_or(0, |last| last.offset + last.length);
        let fits = match (self.end, more) {
            (Some(known), true) => end <= known,
            (Some(known), false) => end == known,
            (None, true) => true,
            (None, false) => end >= last,
        };
        if !fits || length == 0 {
            return Err(Broken::Contradiction);
        }
        let at = self.pieces.partition_point(|piece| piece.offset + piece.length <= offset);
        if self.covers(at, offset, end) {
            return Ok(Added::Repeated);
        }
        if self.pieces.get(at).is_some_and(|next| next.offset < end) {
            return Err(Broken::Contradiction);
        }
        self.pieces.try_reserve(1).map_err(|_| Broken::NoMemory)?;
        self.pieces.insert(at, Piece { offset, length, bytes });
        self.present += length;
        if !more {
            self.end = Some(end);
        }
        Ok(if self.end == Some(self.present) { Added::Whole } else { Added::Kept })
    }

    /// Whether the pieces from `at` on hold all bytes from `offset` to `end`.
    fn covers(&self, at: usize, offset: usize, end: usize) -> bool {
        let mut reached = offset;
        for piece in &self.pieces[at..] {
            if piece.offset > reached {
                return false;
            }
            reached = piece.offset + piece.length;
            if reached >= end {
                return true;
            }
        }
        false
    }

    /// Returns the piece that begins the packet, if it is there.
    pub fn first(&self) -> Option<&T> {
        self.pieces.first().filter(|piece| piece.offset == 0).map(|piece| &piece.bytes)
    }

    /// Returns the pieces in order.
    pub fn into_pieces(self) -> impl Iterator<Item = T> {
        self.pieces.into_iter().map(|piece| piece.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn put(
        all: &mut Reassembly<Vec<u8>>,
        from: usize,
        to: usize,
        more: bool,
    ) -> Result<Added, Broken> {
        all.add(from, to - from, more, (from..to).map(|byte| byte as u8).collect())
    }

    #[test]
    fn two_halves_make_a_packet_in_either_order() {
        for order in [[0, 1], [1, 0]] {
            let mut all = Reassembly::default();
            let halves = [(0, 16, true), (16, 20, false)];
            let first = halves[order[0]];
            assert_eq!(put(&mut all, first.0, first.1, first.2), Ok(Added::Kept));
            assert_eq!(put(&mut all, first.0, first.1, first.2), Ok(Added::Repeated));
            let second = halves[order[1]];
            assert_eq!(put(&mut all, second.0, second.1, second.2), Ok(Added::Whole));
            let bytes: Vec<u8> = all.into_pieces().flatten().collect();
            assert_eq!(bytes, (0..20).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn an_overlap_breaks_the_packet() {
        let mut all = Reassembly::default();
        assert_eq!(put(&mut all, 8, 24, true), Ok(Added::Kept));
        assert_eq!(put(&mut all, 0, 16, true), Err(Broken::Contradiction));
        assert_eq!(put(&mut all, 16, 32, true), Err(Broken::Contradiction));
        assert_eq!(put(&mut all, 0, 64, true), Err(Broken::Contradiction));
        // A fragment inside of an earlier one is a repetition.
        assert_eq!(put(&mut all, 8, 16, true), Ok(Added::Repeated));
    }

    #[test]
    fn two_ends_break_the_packet() {
        let mut all = Reassembly::default();
        assert_eq!(put(&mut all, 16, 20, false), Ok(Added::Kept));
        assert_eq!(put(&mut all, 16, 21, false), Err(Broken::Contradiction));
        assert_eq!(put(&mut all, 24, 32, true), Err(Broken::Contradiction));
        assert_eq!(put(&mut all, 0, 0, true), Err(Broken::Contradiction));
        assert_eq!(all.add(65528, 8, false, vec![]), Err(Broken::TooLong));
    }

    proptest! {
        /// Cut anywhere, in any order, with repetitions: the bytes are the same.
        #[test]
        fn any_order_gives_the_packet(
            cuts in proptest::collection::vec(1usize..40, 1..20),
            tail in 1usize..8,
            order in proptest::collection::vec(any::<usize>(), 1..80),
        ) {
            let mut edges = vec![0];
            for cut in &cuts {
                edges.push(edges.last().unwrap() + cut * 8);
            }
            let end = edges.last().unwrap() + tail;
            edges.push(end);
            let count = edges.len() - 1;
            let sequence = order.iter().map(|at| at % count).chain(0..count);
            let mut all = Reassembly::default();
            let mut whole = false;
            for at in sequence {
                let (from, to) = (edges[at], edges[at + 1]);
                match put(&mut all, from, to, to != end) {
                    Ok(Added::Whole) => { whole = true; break; }
                    Ok(_) => {}
                    Err(broken) => prop_assert!(false, "{:?}", broken),
                }
            }
            prop_assert!(whole);
            let bytes: Vec<u8> = all.into_pieces().flatten().collect();
            prop_assert_eq!(bytes, (0..end).map(|byte| byte as u8).collect::<Vec<u8>>());
        }

        /// Fragments from anywhere: a whole packet has each byte once and in its place.
        #[test]
        fn nothing_wrong_becomes_whole(
            fragments in proptest::collection::vec((0usize..12, 1usize..12, any::<bool>()), 1..40),
        ) {
            let mut all = Reassembly::default();
            for (offset, length, more) in fragments {
                match put(&mut all, offset * 8, offset * 8 + length * 8, more) {
                    Ok(Added::Whole) => {
                        let bytes: Vec<u8> = all.into_pieces().flatten().collect();
                        let right: Vec<u8> = (0..bytes.len()).map(|byte| byte as u8).collect();
                        prop_assert_eq!(bytes, right);
                        break;
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }
}
