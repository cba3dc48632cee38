//! Frames that the host has until the machine asks for them again: the content of a balloon.

use alloc::vec::Vec;

use super::Frame;

/// The most frames of one [`Lent`], as many as Linux gives at a time
/// (`VIRTIO_BALLOON_ARRAY_PFNS_MAX`).
pub const LENT: usize = 256;

/// Frames that nothing in the machine can access, with the list of their numbers for the device
/// (virtio 1.2, 5.5.6). The host may drop their content. Dropped, they are in the allocator again,
/// with undefined content.
#[derive(Debug)]
pub struct Lent {
    /// Each is the only reference to its frame, and nothing hands it out.
    frames: Vec<Frame>,
    /// Their numbers, 32 bits each.
    numbers: Vec<u8>,
}

impl Lent {
    /// No frames, with room for [`LENT`]. `None`: no memory.
    pub fn new() -> Option<Lent> {
        let (mut frames, mut numbers) = (Vec::new(), Vec::new());
        frames.try_reserve_exact(LENT).ok()?;
        numbers.try_reserve_exact(LENT * size_of::<u32>()).ok()?;
        Some(Lent { frames, numbers })
    }

    /// Adds a frame. Returns it if there is no room, or if somebody else has it too.
    ///
    /// # Errors
    /// The frame.
    pub fn add(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.frames.len() == LENT || !frame.is_unique() {
            return Err(frame);
        }
        self.numbers.extend_from_slice(&frame.number().to_le_bytes());
        self.frames.push(frame);
        Ok(())
    }

    /// Returns how many frames these are.
    pub fn count(&self) -> usize {
        self.frames.len()
    }

    /// The list for the device.
    pub(crate) fn numbers(&self) -> &[u8] {
        &self.numbers
    }
}
