//! Frames that are given up together.

use crate::frames::{Frame, give_run};

/// Consecutive frames that are given up together: programs touch neighbouring pages one after the
/// other, and the allocator hands out neighbouring frames, so a table is full of such runs.
#[derive(Default)]
pub(super) struct Run {
    first: u32,
    count: u32,
}

impl Run {
    /// Shorter runs go to the processor's own cache, for the next fault.
    const WORTH: u32 = 16;

    #[inline]
    pub fn give(&mut self, frame: Frame) {
        // `None`: other references exist, and only the count changes.
        let Some(number) = frame.count_down() else { return };
        if number != self.first + self.count {
            self.end();
            self.first = number;
        }
        self.count += 1;
    }

    fn end(&mut self) {
        give_run(self.first, core::mem::take(&mut self.count), Self::WORTH);
    }
}

impl Drop for Run {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}
