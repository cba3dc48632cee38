//! Filters of the sources of a group: from which hosts a socket wants what is sent to a group that
//! it has joined (RFC 3376, 3.1; RFC 3810, 4.1; RFC 3678).
//!
//! The rules of a change are those of Linux (`ip_mc_source` of net/ipv4/igmp.c, `ip6_mc_source` of
//! net/ipv6/mcast.c, 6.1): a filter that has, or had, sources keeps its mode, and sources stay in
//! the order in which they came. A filter is not changed: a change makes another, so that its owner
//! can tell the difference to others first and keep the old one if that fails.

use alloc::vec::Vec;

use crate::Address;

/// The meaning of a filter's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// These sources and no others are wanted (MCAST_INCLUDE).
    Include,
    /// All sources but these are wanted (MCAST_EXCLUDE).
    Exclude,
}

/// Why a filter is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It has, or had, sources, and is of the other mode.
    OtherMode,
    /// A source that is to come is there, or one that is to go is not.
    Source,
    /// It has as many sources as it may.
    Full,
    /// There was no memory.
    NoMemory,
}

/// A filter of sources.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFilter {
    mode: Mode,
    /// `None` until a source is named: so long the mode may change.
    sources: Option<Vec<Address>>,
}

impl SourceFilter {
    /// A filter without sources: it wants all, or none.
    pub const fn empty(mode: Mode) -> Self {
        Self { mode, sources: None }
    }

    /// A filter with these sources.
    pub fn new(mode: Mode, sources: Vec<Address>) -> Self {
        Self { mode, sources: (!sources.is_empty()).then_some(sources) }
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its sources.
    pub fn sources(&self) -> &[Address] {
        self.sources.as_deref().unwrap_or_default()
    }

    /// Whether what this host sends is wanted.
    pub fn allows(&self, source: Address) -> bool {
        self.sources().contains(&source) == (self.mode == Mode::Include)
    }

    /// Whether it has to change its mode before a source of this mode comes or goes.
    ///
    /// # Errors
    /// [`Refused::OtherMode`].
    pub fn has_to_turn(&self, mode: Mode) -> Result<bool, Refused> {
        match &self.sources {
            _ if self.mode == mode => Ok(false),
            None => Ok(true),
            Some(_) => Err(Refused::OtherMode),
        }
    }

    /// The same filter with one more source; it may have `most`.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::NoMemory`], [`Refused::Source`].
    pub fn with(&self, source: Address, most: usize) -> Result<Self, Refused> {
        // As on Linux, before it is looked at whether the source is there, and not for the first.
        if self.sources.as_ref().is_some_and(|sources| sources.len() >= most) {
            return Err(Refused::Full);
        }
        let mut sources = self.copy(1)?;
        if sources.contains(&source) {
            return Err(Refused::Source);
        }
        sources.push(source);
        Ok(Self { mode: self.mode, sources: Some(sources) })
    }

    /// The same filter without a source; `None` if no source were wanted then: the group is left.
    ///
    /// # Errors
    /// [`Refused::Source`], [`Refused::NoMemory`].
    pub fn without(&self, source: Address) -> Result<Option<Self>, Refused> {
        let at = self.sources().iter().position(|own| *own == source).ok_or(Refused::Source)?;
        if self.mode == Mode::Include && self.sources().len() == 1 {
            return Ok(None);
        }
        let mut sources = self.copy(0)?;
        sources.remove(at);
        Ok(Some(Self { mode: self.mode, sources: Some(sources) }))
    }

    /// A copy of the sources, with room for `more`.
    fn copy(&self, more: usize) -> Result<Vec<Address>, Refused> {
        let mut copy = Vec::new();
        copy.try_reserve(self.sources().len() + more).map_err(|_| Refused::NoMemory)?;
        copy.extend_from_slice(self.sources());
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const A: Address = Address::v4(0x0a00_0001);
    const B: Address = Address::v4(0x0a00_0002);
    const C: Address = Address::v4(0x0a00_0003);

    #[test]
    fn sources_come_and_go() {
        let all = SourceFilter::empty(Mode::Exclude);
        assert!(all.allows(A));
        let blocks = all.with(A, 10).unwrap().with(B, 10).unwrap();
        assert!(!blocks.allows(A) && !blocks.allows(B) && blocks.allows(C));
        assert_eq!(blocks.with(B, 10), Err(Refused::Source));
        assert_eq!(blocks.with(B, 2), Err(Refused::Full));
        assert!(all.with(A, 0).is_ok());
        assert_eq!(blocks.without(C), Err(Refused::Source));
        let fewer = blocks.without(A).unwrap().unwrap();
        assert_eq!(fewer.sources(), [B]);
        // One that has had sources keeps its mode.
        let none = fewer.without(B).unwrap().unwrap();
        assert!(none.allows(A) && none.sources().is_empty());
        assert_eq!(none.has_to_turn(Mode::Include), Err(Refused::OtherMode));
        assert_eq!(none.has_to_turn(Mode::Exclude), Ok(false));
        assert_eq!(all.has_to_turn(Mode::Include), Ok(true));
    }

    #[test]
    fn the_last_source_that_is_wanted_does_not_go_alone() {
        let none = SourceFilter::empty(Mode::Include);
        assert!(!none.allows(A));
        let some = none.with(A, 10).unwrap();
        assert!(some.allows(A) && !some.allows(B));
        assert_eq!(some.without(A), Ok(None));
        let more = some.with(B, 10).unwrap();
        assert_eq!(more.without(A).unwrap().unwrap().sources(), [B]);
    }

    #[test]
    fn a_whole_list_is_taken_as_it_is() {
        let filter = SourceFilter::new(Mode::Exclude, vec![B, A, B]);
        assert_eq!(filter.sources(), [B, A, B]);
        assert!(!filter.allows(B) && filter.allows(C));
        let empty = SourceFilter::new(Mode::Exclude, vec![]);
        assert_eq!(empty, SourceFilter::empty(Mode::Exclude));
    }
}
