//! Enumerating directories of several layers; the scheme is that of
//! [`hayate_overlay_rules::Position`].

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_overlay_rules::{Position, Seen};

use super::node::{Node, Overlay, entry, is_whiteout, seen};
use crate::vfs::inode::{DirectorySink, FileKind, Inode};

/// How an entry of a layer shows in the merged directory.
enum Shown {
    /// Not at all: it is hidden, or listed in the turn of a lower layer.
    No,
    /// An entry with this number and kind.
    As(u64, FileKind),
}

impl Node {
    /// Enumerates from `position` on.
    pub fn enumerate(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let upper = self.upper();
        let turns = self.lowers.len() + usize::from(upper.is_some());
        let mut at = Position::decode(*position);
        while at.turn < turns {
            // From the lowest layer up; the upper one comes last.
            let lower = self.lowers.len().checked_sub(at.turn + 1);
            let directory = match lower.and_then(|index| self.lowers.get(index)) {
                Some((_, directory)) => directory,
                None => upper.as_ref().ok_or(Errno::EIO)?,
            };
            let mut filter = Filter {
                node: self,
                upper: upper.as_ref(),
                lower,
                turn: at.turn,
                sink,
                result: Ok(()),
                full: false,
            };
            let mut inner = at.inner;
            let read = directory.read_dir(&mut inner, &mut filter);
            let (result, full) = (filter.result, filter.full);
            at.inner = inner;
            if read.is_ok() && result.is_ok() && !full {
                at = Position::begin(at.turn + 1);
            }
            *position = at.encode().ok_or(Errno::EOVERFLOW)?;
            read?;
            result?;
            if full {
                break;
            }
        }
        Ok(())
    }

    /// Returns how an entry of the lower layer at `index` of the list shows in the merged
    /// directory.
    fn shown_lower(
        &self,
        upper: Option<&Arc<dyn Inode>>,
        index: usize,
        (number, kind): (u64, FileKind),
        name: &[u8],
    ) -> Result<Shown> {
        let own = |index: usize| self.lowers.get(index);
        let Some((layer, directory)) = own(index) else { return Ok(Shown::No) };
        if kind == FileKind::CharDevice
            && let Some(inode) = entry(directory, name)?
            && is_whiteout(&inode)
        {
            return Ok(Shown::No);
        }
        // The lowest layer that has the entry lists it.
        for (_, below) in self.lowers.iter().skip(index + 1) {
            if !matches!(seen(entry(below, name)?.as_ref()), Seen::Absent | Seen::Whiteout) {
                return Ok(Shown::No);
            }
        }
        // The highest layer that has the entry decides how it shows.
        if let Some(upper) = upper
            && let Some(found) = entry(upper, name)?
        {
            let kind = found.attributes().kind;
            return Ok(match seen(Some(&found)) {
                Seen::Whiteout => Shown::No,
                Seen::Directory { opaque: false } if kind == FileKind::Directory => {
                    self.merged(name, number, *layer)?
                }
                _ => Shown::As(self.overlay.upper_number(found.metadata()?.number), kind),
            });
        }
        for (layer, above) in self.lowers.iter().take(index) {
            if let Some(found) = entry(above, name)? {
                return Ok(if is_whiteout(&found) {
                    Shown::No
                } else {
                    let number = Overlay::lower_number(*layer, found.metadata()?.number);
                    Shown::As(number, found.attributes().kind)
                });
            }
        }
        Ok(Shown::As(Overlay::lower_number(*layer, number), kind))
    }

    /// Returns how an upper directory over a lower one shows: with the number of the topmost lower
    /// directory that it merges with.
    fn merged(&self, name: &[u8], number: u64, layer: usize) -> Result<Shown> {
        for (layer, directory) in &self.lowers {
            if let Some(found) = entry(directory, name)? {
                if found.attributes().kind == FileKind::Directory {
                    let number = Overlay::lower_number(*layer, found.metadata()?.number);
                    return Ok(Shown::As(number, FileKind::Directory));
                }
                break;
            }
        }
        Ok(Shown::As(Overlay::lower_number(layer, number), FileKind::Directory))
    }

    /// Returns how an entry of the upper layer shows in the merged directory.
    fn shown_upper(
        &self,
        directory: &Arc<dyn Inode>,
        (number, kind): (u64, FileKind),
        name: &[u8],
    ) -> Result<Shown> {
        if kind == FileKind::CharDevice
            && let Some(inode) = entry(directory, name)?
            && is_whiteout(&inode)
        {
            return Ok(Shown::No);
        }
        for (_, below) in &self.lowers {
            if !matches!(seen(entry(below, name)?.as_ref()), Seen::Absent | Seen::Whiteout) {
                return Ok(Shown::No);
            }
        }
        Ok(Shown::As(self.overlay.upper_number(number), kind))
    }
}

/// Passes on the entries of one layer that are shown.
struct Filter<'a> {
    node: &'a Node,
    upper: Option<&'a Arc<dyn Inode>>,
    /// The layer's index in the list of lower ones; `None` for the upper one.
    lower: Option<usize>,
    turn: usize,
    sink: &'a mut dyn DirectorySink,
    result: Result<()>,
    full: bool,
}

impl DirectorySink for Filter<'_> {
    fn entry(&mut self, number: u64, kind: FileKind, name: &[u8], next: u64) -> bool {
        let shown = match (self.lower, self.upper) {
            (Some(index), upper) => self.node.shown_lower(upper, index, (number, kind), name),
            (None, Some(upper)) => self.node.shown_upper(upper, (number, kind), name),
            (None, None) => Ok(Shown::No),
        };
        match shown {
            Ok(Shown::No) => true,
            Ok(Shown::As(number, kind)) => {
                let Some(next) = (Position { turn: self.turn, inner: next }).encode() else {
                    self.result = Err(Errno::EOVERFLOW);
                    return false;
                };
                let taken = self.sink.entry(number, kind, name, next);
                self.full = !taken;
                taken
            }
            Err(error) => {
                self.result = Err(error);
                false
            }
        }
    }
}
