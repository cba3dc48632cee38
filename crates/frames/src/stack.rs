//! A fixed stack of frame numbers: one processor's private stock.

/// At most `N` frame numbers, last in first out (the last one freed is the one still in the
/// caches).
pub struct Stack<const N: usize> {
    count: usize,
    frames: [u32; N],
}

impl<const N: usize> Default for Stack<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Stack<N> {
    /// An empty stack.
    pub const fn new() -> Self {
        Stack { count: 0, frames: [0; N] }
    }

    /// How many frames it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Takes the frame that was put last.
    #[inline]
    pub fn pop(&mut self) -> Option<u32> {
        let count = self.count.checked_sub(1)?;
        let frame = *self.frames.get(count)?;
        self.count = count;
        Some(frame)
    }

    /// Puts a frame; `false` when there is no room.
    #[inline]
    pub fn push(&mut self, frame: u32) -> bool {
        match self.frames.get_mut(self.count) {
            Some(slot) => {
                *slot = frame;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Fills an empty half: `fill` writes frames to the slice and says how many.
    pub fn refill(&mut self, fill: impl FnOnce(&mut [u32]) -> usize) -> usize {
        let end = (self.count + N / 2).min(N);
        let taken = fill(&mut self.frames[self.count..end]).min(end - self.count);
        // What the allocator gave first is taken first.
        self.frames[self.count..self.count + taken].reverse();
        self.count += taken;
        taken
    }

    /// Takes out the older half (or all, when `all`): the frames that were put first.
    pub fn spill(&mut self, all: bool, mut take: impl FnMut(u32)) {
        let out = if all { self.count } else { self.count / 2 };
        for &frame in &self.frames[..out] {
            take(frame);
        }
        self.frames.copy_within(out..self.count, 0);
        self.count -= out;
    }
}
