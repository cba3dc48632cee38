//! The requests of a queue: memory that the device reads, then memory that it writes.
//!
//! A box asserts each time that it is moved that nothing else accesses its bytes; a device does
//! access them. So [`Bytes`] keeps the parts of a list instead, and lends the bytes only to the
//! owner of the chain.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::frames::{self, Frame, Lent, Run, Unused};
use crate::layout::PAGE_SIZE;
use smallvec::SmallVec;

/// A contiguous range of memory that a device reads or writes.
#[derive(Debug)]
pub enum Piece {
    /// Bytes of the heap. A device can use them only if they are physically contiguous, which is
    /// certain only up to a page.
    Bytes(Bytes),
    /// A part of a frame.
    Frame {
        /// The frame.
        frame: Frame,
        /// Where in it.
        offset: usize,
        /// How many bytes.
        length: usize,
    },
    /// A part of a run of frames.
    Run {
        /// The run.
        run: Run,
        /// Where in it.
        offset: usize,
        /// How many bytes.
        length: usize,
    },
    /// Memory that is not in use, all of it: for a device that takes it away.
    Unused(Unused),
    /// The list of frames that the host gets, or gives back.
    Lent(Lent),
}

/// Bytes of the heap that a device may read or write while they are with it.
///
/// Invariant: the three fields are those of a list of bytes that nothing else owns.
#[derive(Debug)]
pub struct Bytes {
    memory: NonNull<u8>,
    length: usize,
    capacity: usize,
}

// SAFETY: it owns its memory, like the list that it was made from.
unsafe impl Send for Bytes {}
// SAFETY: bytes behind a shared reference are only read.
unsafe impl Sync for Bytes {}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this is initialised memory of a list. Bytes that a device has are lent to no
        // code: the queue keeps the chain until the device has answered.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: the parts of a list (invariant), and not in use by a device: a queue does not
        // drop chains that are.
        drop(unsafe { Vec::from_raw_parts(self.memory.as_ptr(), self.length, self.capacity) });
    }
}

impl Piece {
    /// Bytes of the heap.
    pub fn bytes(bytes: Box<[u8]>) -> Self {
        Self::list(bytes.into_vec())
    }

    /// Bytes of the heap, as a list that may have room for more; no byte moves.
    pub fn list(list: Vec<u8>) -> Self {
        let mut list = ManuallyDrop::new(list);
        Self::Bytes(Bytes {
            // A list's pointer is never null, not even without memory.
            memory: NonNull::new(list.as_mut_ptr()).unwrap_or(NonNull::dangling()),
            length: list.len(),
            capacity: list.capacity(),
        })
    }

    /// All of a frame.
    pub fn frame(frame: Frame) -> Self {
        Self::Frame { frame, offset: 0, length: PAGE_SIZE }
    }

    /// Whether a device can reach it: large heap memory may be scattered.
    fn is_usable(&self) -> bool {
        match self {
            Self::Bytes(bytes) => !crate::scattered::holds(bytes.memory.addr().get()),
            Self::Lent(lent) => !crate::scattered::holds(lent.numbers().as_ptr().addr()),
            Self::Frame { .. } | Self::Run { .. } | Self::Unused(_) => true,
        }
    }

    /// Returns the physical address and the length.
    fn place(&self) -> (u64, usize) {
        match self {
            // An empty list may have no memory.
            Self::Bytes(bytes) if bytes.length == 0 => (0, 0),
            // In the direct map: `is_usable`.
            Self::Bytes(bytes) => (frames::physical(bytes.memory.as_ptr()), bytes.length),
            Self::Frame { frame, offset, length } => {
                let offset = (*offset).min(PAGE_SIZE);
                (frame.address() + offset as u64, (*length).min(PAGE_SIZE - offset))
            }
            Self::Run { run, offset, length } => {
                let offset = (*offset).min(run.size());
                (run.address() + offset as u64, (*length).min(run.size() - offset))
            }
            Self::Unused(memory) => (memory.address(), memory.size()),
            // An empty list may have no memory.
            Self::Lent(lent) if lent.count() == 0 => (0, 0),
            // In the direct map: `is_usable`.
            Self::Lent(lent) => (frames::physical(lent.numbers().as_ptr()), lent.numbers().len()),
        }
    }
}

/// The pieces of a request. Most have one or two, which need no memory of their own: the buffer of
/// a packet to come, the headers and the data of one that goes.
pub type Pieces = SmallVec<[Piece; 2]>;

/// A request: pieces for the device to read, then pieces for it to write.
#[derive(Debug, Default)]
pub struct Chain {
    /// Identifies the request to the driver when it comes back.
    pub token: u64,
    pieces: Pieces,
    readable: usize,
}

impl Chain {
    /// An empty chain with a token.
    pub fn new(token: u64) -> Self {
        Self { token, ..Self::default() }
    }

    /// Makes room for `more` pieces. Returns `false` when memory for the list is exhausted; after
    /// `true`, so many pieces are not refused for want of memory.
    #[must_use]
    pub fn make_room(&mut self, more: usize) -> bool {
        self.pieces.try_reserve(more).is_ok()
    }

    /// Appends memory that the device reads; it must precede memory that the device writes. Returns
    /// `false`, and changes nothing, when memory for the list is exhausted, the order is wrong, or
    /// the device cannot reach the piece.
    #[must_use]
    pub fn reads(&mut self, piece: Piece) -> bool {
        if self.readable != self.pieces.len()
            || !piece.is_usable()
            || self.pieces.try_reserve(1).is_err()
        {
            return false;
        }
        self.pieces.push(piece);
        self.readable += 1;
        true
    }

    /// Appends memory that the device writes. Returns `false`, and changes nothing, when memory for
    /// the list is exhausted or the device cannot reach the piece.
    #[must_use]
    pub fn writes(&mut self, piece: Piece) -> bool {
        if !piece.is_usable() || self.pieces.try_reserve(1).is_err() {
            return false;
        }
        self.pieces.push(piece);
        true
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Takes the pieces out.
    pub fn into_pieces(self) -> Pieces {
        self.pieces
    }

    /// Returns the ranges of physical memory as the device sees them: address, length, whether it
    /// writes. Contiguous pieces become one range.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (u64, u32, bool)> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let (mut stretch, mut following) = (None, self.pieces.get(at));
            while let Some(piece) = following {
                let (address, length) = piece.place();
                let (length, writes) = (length as u32, at >= self.readable);
                match stretch {
                    _ if length == 0 => {}
                    None => stretch = Some((address, length, writes)),
                    Some((first, before, same)) => {
                        let sum = before.checked_add(length);
                        let joins = address == first + u64::from(before) && writes == same;
                        let Some(sum) = sum.filter(|_| joins) else { break };
                        stretch = Some((first, sum, writes));
                    }
                }
                at += 1;
                following = self.pieces.get(at);
            }
            stretch
        })
    }
}
