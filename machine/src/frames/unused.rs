//! Unused memory, while the host is told of it.
//!
//! What is told of is out of the allocator meanwhile: nobody takes it before the host has dropped
//! its content. [`hayate_frames`] says which memory that is.

use core::ops::Range;

use super::allocator;
use crate::layout::{PAGE_SHIFT, PAGE_SIZE};

/// Free frames in a row that are out of the allocator. Dropped, they are in it again.
#[derive(Debug)]
pub struct Unused {
    frames: Range<u32>,
    told: bool,
}

impl Unused {
    /// Takes the next unused memory from the frame `from` on, which is then where to go on: at most
    /// `most` frames. `None`: no more is to be told of.
    ///
    /// Memory that was not looked at before is only noted as looked at, so that a second look
    /// finds what was unused in between.
    pub fn take(from: &mut u32, most: u32) -> Option<Unused> {
        let frames = allocator::offer(from, most)?;
        Some(Unused { frames, told: false })
    }

    /// Gives the memory back to the allocator, of which the host was told: its content is
    /// undefined, and it is not taken here again before it was in use.
    pub fn told(mut self) {
        self.told = true;
    }

    /// Returns the physical address of the first byte.
    pub fn address(&self) -> u64 {
        u64::from(self.frames.start) << PAGE_SHIFT
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.frames.len() * PAGE_SIZE
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        allocator::restore(self.frames.clone(), self.told);
    }
}
