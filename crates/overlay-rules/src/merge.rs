//! The meaning of a name, given its entry in each layer.

/// The entry of a name in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A whiteout.
    Whiteout,
    /// A directory; if `opaque`, entries below it are not visible.
    Directory {
        /// Whether it hides everything below.
        opaque: bool,
    },
    /// Anything else.
    Other,
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such name.
    Absent,
    /// The first layer that has it provides all of it.
    Single,
    /// It is a directory merged from all layers that `see` accepted.
    Merged,
}

/// Combines the layers of one name, from the top.
#[derive(Clone, Debug, Default)]
pub struct Merge {
    taken: usize,
    directory: bool,
    ended: bool,
}

impl Merge {
    /// Before the first layer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether further layers can matter.
    pub fn goes_on(&self) -> bool {
        !self.ended
    }

    /// Adds the next layer; returns whether the layer's entry is part of the result.
    pub fn see(&mut self, seen: Seen) -> bool {
        if self.ended {
            return false;
        }
        match seen {
            Seen::Absent => false,
            Seen::Whiteout => {
                self.ended = true;
                false
            }
            Seen::Other => {
                self.ended = true;
                // A file below a directory is hidden.
                let part = !self.directory;
                self.taken += usize::from(part);
                part
            }
            Seen::Directory { opaque } => {
                self.ended = opaque;
                self.directory = true;
                self.taken += 1;
                true
            }
        }
    }

    /// Returns the meaning of the name.
    pub fn outcome(&self) -> Outcome {
        match self.taken {
            0 => Outcome::Absent,
            1 => Outcome::Single,
            _ => Outcome::Merged,
        }
    }
}
