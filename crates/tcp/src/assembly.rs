//! Data that arrived before what precedes them: blocks with gaps between them.

use alloc::vec::Vec;
use arrayvec::ArrayVec;

use crate::queue::Queue;
use crate::seq::Position;
use crate::{Bytes, Error, Pieces};

/// Blocks in order, which neither overlap nor touch.
#[derive(Debug)]
pub(crate) struct Assembly<B> {
    blocks: Vec<Queue<B>>,
    /// Positions in the blocks that grew last, the last first (RFC 2018, 4).
    recent: ArrayVec<Position, 4>,
    cost: usize,
}

impl<B: Bytes> Assembly<B> {
    pub(crate) const fn new() -> Assembly<B> {
        Assembly { blocks: Vec::new(), recent: ArrayVec::new_const(), cost: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Memory that the pieces hold.
    pub(crate) fn cost(&self) -> usize {
        self.cost
    }

    /// Drops everything (a receiver may: RFC 2018, 8).
    pub(crate) fn clear(&mut self) {
        *self = Assembly::new();
    }

    /// Index of the first block that ends behind `at`.
    fn find(&self, at: Position) -> usize {
        self.blocks.partition_point(|block| block.end() <= at)
    }

    /// The block that holds `at`.
    pub(crate) fn cover(&self, at: Position) -> Option<(Position, Position)> {
        let block = self.blocks.get(self.find(at))?;
        (block.start() <= at).then(|| (block.start(), block.end()))
    }

    /// Adds data that begin at `start`. Returns the first part that was there already.
    pub(crate) fn insert(
        &mut self,
        start: Position,
        payload: Pieces<B>,
    ) -> Result<Option<(Position, Position)>, Error> {
        let mut data = Queue::new(start);
        data.reserve(payload.len())?;
        for piece in payload {
            data.push(piece)?;
        }
        let (mut at, end) = (start, data.end());
        let mut duplicate = None;
        while at < end {
            let index = self.find(at);
            let next = self.blocks.get(index).map(|block| (block.start(), block.end()));
            match next {
                Some((from, to)) if from <= at => {
                    duplicate = duplicate.or(Some((at, to.min(end))));
                    at = to;
                }
                _ => {
                    let to = next.map_or(end, |(from, _)| from.min(end));
                    self.fill(index, &data, at, to)?;
                    at = to;
                }
            }
        }
        self.recent.retain(|recent| *recent < start || *recent >= end);
        if self.recent.is_full() {
            self.recent.pop();
        }
        self.recent.insert(0, start);
        Ok(duplicate)
    }

    /// Fills a gap before block `index` with `from..to` of `data`.
    fn fill(
        &mut self,
        index: usize,
        data: &Queue<B>,
        from: Position,
        to: Position,
    ) -> Result<(), Error> {
        let mut pieces = Pieces::new();
        data.range(from, to, &mut pieces)?;
        let cost: usize = pieces.iter().map(Bytes::cost).sum();
        let joins = |block: Option<&Queue<B>>, edge: fn(&Queue<B>) -> Position, at: Position| {
            block.is_some_and(|block| edge(block) == at)
        };
        let after = joins(index.checked_sub(1).and_then(|i| self.blocks.get(i)), Queue::end, from);
        let before = joins(self.blocks.get(index), Queue::start, to);
        if after {
            let block = &mut self.blocks[index - 1];
            block.reserve(pieces.len())?;
            for piece in pieces {
                block.push(piece)?;
            }
            self.cost += cost;
            if before {
                // The two blocks stay apart if there is no memory: nothing needs them to be one.
                let (low, high) = self.blocks.split_at_mut(index);
                if low[index - 1].reserve_for(&high[0]) {
                    let other = self.blocks.remove(index);
                    self.blocks[index - 1].append(other)?;
                }
            }
        } else if before {
            let block = &mut self.blocks[index];
            block.reserve(pieces.len())?;
            for piece in pieces.into_iter().rev() {
                block.push_front(piece)?;
            }
            self.cost += cost;
        } else {
            self.blocks.try_reserve(1).map_err(|_| Error::NoMemory)?;
            let mut block = Queue::new(from);
            block.reserve(pieces.len())?;
            for piece in pieces {
                block.push(piece)?;
            }
            self.blocks.insert(index, block);
            self.cost += cost;
        }
        Ok(())
    }

    /// Moves what continues `queue` behind it. On an error the data stay or are lost: the peer
    /// sends what was not acknowledged again.
    pub(crate) fn deliver(&mut self, queue: &mut Queue<B>) {
        while let Some(first) = self.blocks.first()
            && first.start() <= queue.end()
        {
            let block = self.blocks.remove(0);
            self.cost = self.cost.saturating_sub(block.cost());
            if queue.append(block).is_err() {
                break;
            }
        }
        let end = queue.end();
        self.recent.retain(|recent| *recent >= end);
        if self.blocks.is_empty() {
            self.recent.clear();
            if self.blocks.capacity() > 64 {
                self.blocks = Vec::new();
            }
        }
    }

    /// The blocks to report, that of the newest segment first.
    pub(crate) fn report(&self, mut each: impl FnMut(Position, Position)) {
        let mut told: ArrayVec<Position, 4> = ArrayVec::new();
        for (start, end) in self.recent.iter().filter_map(|at| self.cover(*at)) {
            if !told.contains(&start) {
                told.push(start);
                each(start, end);
            }
        }
    }

    /// The end of the highest block.
    pub(crate) fn end(&self) -> Option<Position> {
        self.blocks.last().map(Queue::end)
    }
}
