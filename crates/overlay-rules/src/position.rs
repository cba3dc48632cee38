//! Positions in the enumeration of a merged directory.
//!
//! An enumeration goes through the layers from the lowest up, and through each layer by its own
//! positions; a merged position consists of the layer's turn and the position in the layer. Lower
//! layers never change, and an entry is listed at its *lowest* appearance. So neither a copy-up nor
//! a removal nor a new entry moves another entry: each entry that exists all the time is listed
//! exactly once, without a list kept in memory.

/// Bits of a position within a layer.
const BITS: u32 = 48;

/// The state of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// How many layers are finished.
    pub turn: usize,
    /// Position in the layer, 2 at its beginning.
    pub inner: u64,
}

impl Position {
    /// The beginning of a layer's turn.
    pub fn begin(turn: usize) -> Self {
        Self { turn, inner: 2 }
    }

    /// Decodes a position; every number has a meaning.
    pub fn decode(encoded: u64) -> Self {
        let inner = encoded & ((1 << BITS) - 1);
        Self { turn: (encoded >> BITS) as usize, inner: inner.max(2) }
    }

    /// Returns the position as one number, at most `i64::MAX`; 2 for the very first. `None` when a
    /// part is too large: such layers cannot be enumerated with one number.
    pub fn encode(self) -> Option<u64> {
        let turn = u64::try_from(self.turn).ok().filter(|turn| *turn < 1 << (63 - BITS))?;
        (self.inner < 1 << BITS).then_some(turn << BITS | self.inner)
    }
}
