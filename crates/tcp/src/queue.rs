//! A queue of pieces that stand at positions of a stream.
//!
//! Each piece carries its position, so that a part is found by bisection and the first piece needs
//! no cutting when a part of it is done.

use alloc::collections::VecDeque;

use crate::seq::Position;
use crate::{Bytes, Error, Pieces};

/// An empty queue gives memory for more pieces than this back.
const KEPT: usize = 64;

#[derive(Debug)]
struct Piece<B> {
    at: Position,
    bytes: B,
}

/// Pieces without gaps from `start` to `end`.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    pieces: VecDeque<Piece<B>>,
    start: Position,
    end: Position,
    cost: usize,
}

impl<B: Bytes> Queue<B> {
    pub(crate) fn new(start: Position) -> Queue<B> {
        Queue { pieces: VecDeque::new(), start, end: start, cost: 0 }
    }

    pub(crate) fn start(&self) -> Position {
        self.start
    }

    pub(crate) fn end(&self) -> Position {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Memory that the pieces hold.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Memory that the pieces hold if each pins at least `least` bytes.
    #[inline]
    pub(crate) fn pinned(&self, least: usize) -> usize {
        self.cost.max(self.pieces.len() * least)
    }

    /// Makes room for `count` more pieces.
    #[inline]
    pub(crate) fn reserve(&mut self, count: usize) -> Result<(), Error> {
        if self.pieces.len() + count <= self.pieces.capacity() {
            return Ok(());
        }
        self.enlarge(count)
    }

    #[cold]
    fn enlarge(&mut self, count: usize) -> Result<(), Error> {
        self.pieces.try_reserve(count).map_err(|_| Error::NoMemory)
    }

    /// Makes room for the pieces of `other`; false if there is no memory.
    pub(crate) fn reserve_for(&mut self, other: &Queue<B>) -> bool {
        self.reserve(other.pieces.len()).is_ok()
    }

    /// Appends a piece.
    #[inline]
    pub(crate) fn push(&mut self, bytes: B) -> Result<(), Error> {
        let length = bytes.len();
        if length == 0 {
            return Ok(());
        }
        self.reserve(1)?;
        self.cost += bytes.cost();
        self.pieces.push_back(Piece { at: self.end, bytes });
        self.end += length as u64;
        Ok(())
    }

    /// Appends a piece, as a part of the last one where that is possible.
    #[inline]
    pub(crate) fn push_joined(&mut self, bytes: B) -> Result<(), Error> {
        if let Some(last) = self.pieces.back_mut() {
            let before = last.bytes.cost();
            if last.bytes.extend(&bytes) {
                self.cost = self.cost - before + last.bytes.cost();
                self.end = last.at + last.bytes.len() as u64;
                return Ok(());
            }
        }
        self.push(bytes)
    }

    /// Puts a piece before the others.
    pub(crate) fn push_front(&mut self, bytes: B) -> Result<(), Error> {
        let length = bytes.len();
        if length == 0 {
            return Ok(());
        }
        self.reserve(1)?;
        self.cost += bytes.cost();
        self.start -= length as u64;
        self.pieces.push_front(Piece { at: self.start, bytes });
        Ok(())
    }

    /// Appends the pieces of `other` from this queue's end on; `other` begins at or before it.
    pub(crate) fn append(&mut self, mut other: Queue<B>) -> Result<(), Error> {
        self.reserve(other.pieces.len())?;
        other.advance(self.end);
        if let Some(first) = other.pieces.pop_front() {
            let cut = (self.end - first.at) as usize;
            let whole = cut == 0;
            let bytes = if whole { first.bytes } else { first.bytes.slice(cut, first.bytes.len()) };
            self.push(bytes)?;
        }
        for piece in other.pieces {
            self.push(piece.bytes)?;
        }
        Ok(())
    }

    /// Index of the piece that holds `at`, which is not before `start`.
    fn find(&self, at: Position) -> usize {
        match self.pieces.front() {
            Some(first) if at < first.at + first.bytes.len() as u64 => 0,
            _ => self.pieces.partition_point(|piece| piece.at <= at).saturating_sub(1),
        }
    }

    /// All that the queue has, if that is one piece that begins at `at`.
    #[inline]
    pub(crate) fn only(&self, at: Position) -> Option<B> {
        let piece = self.pieces.front()?;
        (self.pieces.len() == 1 && piece.at == at).then(|| piece.bytes.slice(0, piece.bytes.len()))
    }

    /// Adds slices of `from..to`, as far as the queue has them, to `into`.
    #[inline]
    pub(crate) fn range(
        &self,
        from: Position,
        to: Position,
        into: &mut Pieces<B>,
    ) -> Result<(), Error> {
        if let Some(piece) = self.pieces.front()
            && piece.at == from
            && piece.at + piece.bytes.len() as u64 == to
            && into.is_empty()
        {
            into.push(piece.bytes.slice(0, piece.bytes.len()));
            return Ok(());
        }
        self.slices(from, to, into)
    }

    #[inline(never)]
    fn slices(&self, from: Position, to: Position, into: &mut Pieces<B>) -> Result<(), Error> {
        let (mut from, to) = (from.max(self.start), to.min(self.end));
        if from >= to {
            return Ok(());
        }
        let first = self.find(from);
        for piece in self.pieces.range(first..) {
            let end = piece.at + piece.bytes.len() as u64;
            if into.len() == into.capacity() {
                into.try_reserve(1).map_err(|_| Error::NoMemory)?;
            }
            let (low, high) = ((from - piece.at) as usize, (end.min(to) - piece.at) as usize);
            into.push(piece.bytes.slice(low, high));
            from = end;
            if end >= to {
                break;
            }
        }
        Ok(())
    }

    /// The byte at `at`.
    pub(crate) fn byte(&self, at: Position) -> Option<u8> {
        if at < self.start || at >= self.end {
            return None;
        }
        let piece = self.pieces.get(self.find(at))?;
        Some(piece.bytes.byte((at - piece.at) as usize))
    }

    /// Drops what is before `to`.
    #[inline]
    pub(crate) fn advance(&mut self, to: Position) {
        if to <= self.start {
            return;
        }
        // One piece, all of it.
        if to >= self.end && self.pieces.len() == 1 {
            self.pieces.pop_front();
            (self.start, self.cost) = (self.end, 0);
            return;
        }
        self.drop_before(to);
    }

    #[inline(never)]
    fn drop_before(&mut self, to: Position) {
        self.start = to.min(self.end);
        while let Some(first) = self.pieces.front()
            && first.at + first.bytes.len() as u64 <= self.start
        {
            self.cost = self.cost.saturating_sub(first.bytes.cost());
            self.pieces.pop_front();
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.pieces.is_empty() && self.pieces.capacity() > KEPT {
            self.pieces = VecDeque::new();
        }
    }

    /// Takes pieces up to `to` out of the queue.
    #[inline]
    pub(crate) fn take(&mut self, to: Position, into: &mut Pieces<B>) -> Result<(), Error> {
        let to = to.min(self.end);
        // One piece, all of it.
        if self.pieces.len() == 1
            && to == self.end
            && into.is_empty()
            && self.pieces.front().is_some_and(|first| first.at == self.start)
            && let Some(piece) = self.pieces.pop_front()
        {
            into.push(piece.bytes);
            (self.start, self.cost) = (self.end, 0);
            return Ok(());
        }
        self.take_some(to, into)
    }

    #[inline(never)]
    fn take_some(&mut self, to: Position, into: &mut Pieces<B>) -> Result<(), Error> {
        while self.start < to {
            let Some(first) = self.pieces.front() else { break };
            let end = first.at + first.bytes.len() as u64;
            if into.len() == into.capacity() {
                into.try_reserve(1).map_err(|_| Error::NoMemory)?;
            }
            if first.at == self.start && end <= to {
                self.cost = self.cost.saturating_sub(first.bytes.cost());
                into.extend(self.pieces.pop_front().map(|piece| piece.bytes));
                self.start = end;
            } else {
                let (from, until) = ((self.start - first.at) as usize, end.min(to));
                into.push(first.bytes.slice(from, (until - first.at) as usize));
                self.advance(until);
            }
        }
        self.settle();
        Ok(())
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.pieces = VecDeque::new();
        (self.start, self.cost) = (self.end, 0);
    }
}
