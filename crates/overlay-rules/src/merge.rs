//! What a name means, given what each layer has.

/// What one layer has under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A whiteout.
    Whiteout,
    /// A directory; `opaque` if nothing below shows through.
    Directory {
        /// Whether it hides all below.
        opaque: bool,
    },
    /// Anything else.
    Other,
}

/// What a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no such name.
    Absent,
    /// The first layer that has it has all of it.
    Single,
    /// It is a directory of all layers that were taken.
    Merged,
}

/// Goes through the layers of one name, from the top.
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

    /// Takes notice of the next layer; gives whether the layer's own thing is part of the result.
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
                // Below a directory a file is only hidden.
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

    /// What the name means.
    pub fn outcome(&self) -> Outcome {
        match self.taken {
            0 => Outcome::Absent,
            1 => Outcome::Single,
            _ => Outcome::Merged,
        }
    }
}
