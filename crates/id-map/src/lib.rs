//! The maps of a user namespace: which number of a user or a group inside it is which outside
//! (user_namespaces(7), "User and group ID mappings").
//!
//! A map is a few extents, each of consecutive numbers. Its text comes from a program, and is an
//! allegation: [`IdMap::parse`] takes what Linux 6.1 takes (`map_write`,
//! kernel/user_namespace.c), with its limits.
//!
//! Inside a map, the outer numbers are those of the first user namespace, as in Linux: a
//! number is translated once, however deep the namespace lies. [`IdMap::lowered`] makes such a
//! map of one whose outer numbers are those of the parent.
//!
//! A look-up takes the extents one after the other. Linux has a sorted array for more than five;
//! here maps are short, and who writes a long one waits for it alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

/// A number of a user, a group or a project.
pub type Id = u32;

/// No number: it is never mapped.
pub const NONE: Id = Id::MAX;

/// The most extents of a map (`UID_GID_MAP_MAX_EXTENTS`).
pub const MOST: usize = 340;

/// The longest text is shorter than this: a page.
pub const LONGEST: usize = 4096;

/// Consecutive numbers inside, and where they begin outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first number inside.
    pub inside: Id,
    /// The first number outside.
    pub outside: Id,
    /// How many there are.
    pub count: Id,
}

/// Why a map is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The text is none of a map (`EINVAL`).
    Invalid,
    /// Memory is exhausted (`ENOMEM`).
    NoMemory,
    /// An outer number is not mapped in the parent (`EPERM`).
    Unmapped,
}

/// A map.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    extents: Vec<Extent>,
}

/// Whether two ranges of numbers, of which none passes the end, have one in common.
fn meet(one: Id, other: Id, counts: (Id, Id)) -> bool {
    one < other + counts.1 && other < one + counts.0
}

impl Extent {
    /// Reads a line: three numbers with white space between them.
    fn parse(line: &[u8]) -> Option<Extent> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut number = || words.next().and_then(number);
        let extent = Extent { inside: number()?, outside: number()?, count: number()? };
        let ends = |first: Id| first.checked_add(extent.count).is_some_and(|end| end > first);
        let is_right = words.next().is_none() && ends(extent.inside) && ends(extent.outside);
        is_right.then_some(extent)
    }

    /// Where the number lies in a range of this extent's length.
    fn offset(&self, first: Id, id: Id) -> Option<Id> {
        id.checked_sub(first).filter(|&offset| offset < self.count)
    }
}

/// Reads a number in decimal. Like `simple_strtoul`, whose result is cut to 32 bits.
fn number(word: &[u8]) -> Option<Id> {
    word.iter()
        .try_fold(0u64, |value, &byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            Some(value.wrapping_mul(10).wrapping_add(digit))
        })
        .map(|value| value as Id)
}

impl IdMap {
    /// Reads a map: an extent on each line.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] for a text that has no line, more than [`MOST`], or [`LONGEST`] bytes;
    /// for a line that is not three numbers, has a count of 0, or passes the last number; for
    /// extents that have a number in common. [`Refusal::NoMemory`].
    pub fn parse(text: &[u8]) -> Result<IdMap, Refusal> {
        if text.len() >= LONGEST {
            return Err(Refusal::Invalid);
        }
        // A text ends at its first zero.
        let text = text.split(|&byte| byte == 0).next().unwrap_or(text);
        let lines = text.strip_suffix(b"\n").unwrap_or(text);
        let mut extents: Vec<Extent> = Vec::new();
        for line in lines.split(|&byte| byte == b'\n') {
            let new = Extent::parse(line).ok_or(Refusal::Invalid)?;
            let clashes = |old: &Extent| {
                let counts = (old.count, new.count);
                meet(old.inside, new.inside, counts) || meet(old.outside, new.outside, counts)
            };
            if extents.len() >= MOST || extents.iter().any(clashes) {
                return Err(Refusal::Invalid);
            }
            extents.try_reserve(1).map_err(|_| Refusal::NoMemory)?;
            extents.push(new);
        }
        Ok(IdMap { extents })
    }

    /// The extents, in the order in which they were written.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The only number of the map outside, if there is one alone.
    pub fn single(&self) -> Option<Id> {
        match self.extents[..] {
            [Extent { outside, count: 1, .. }] => Some(outside),
            _ => None,
        }
    }

    /// Makes the outer numbers of this map those of the parent's outer numbers. `of_parent` gives
    /// the first outer number for that many consecutive numbers of the parent
    /// ([`IdMap::range_outside`]).
    ///
    /// # Errors
    /// [`Refusal::Unmapped`] if an extent is not in one extent of the parent's.
    pub fn lowered(mut self, of_parent: impl Fn(Id, Id) -> Option<Id>) -> Result<IdMap, Refusal> {
        for extent in &mut self.extents {
            extent.outside = of_parent(extent.outside, extent.count).ok_or(Refusal::Unmapped)?;
        }
        Ok(self)
    }

    /// The outer number of one inside.
    pub fn outside(&self, id: Id) -> Option<Id> {
        let found = |one: &Extent| Some(one.outside + one.offset(one.inside, id)?);
        self.extents.iter().find_map(found)
    }

    /// The inner number of one outside.
    pub fn inside(&self, id: Id) -> Option<Id> {
        let found = |one: &Extent| Some(one.inside + one.offset(one.outside, id)?);
        self.extents.iter().find_map(found)
    }

    /// The outer number of the first of `count` consecutive ones inside, if one extent has all.
    pub fn range_outside(&self, first: Id, count: Id) -> Option<Id> {
        self.extents.iter().find_map(|one| {
            let offset = one.offset(one.inside, first)?;
            (count <= one.count - offset).then_some(one.outside + offset)
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{IdMap, LONGEST, MOST, Refusal};
    use std::format;
    use std::string::String;

    fn parse(text: &str) -> Result<IdMap, Refusal> {
        IdMap::parse(text.as_bytes())
    }

    #[test]
    fn numbers_go_in_and_out() {
        let map = parse("0 1000 1\n  1\t100000   65536 \n").unwrap();
        assert_eq!(map.outside(0), Some(1000));
        assert_eq!(map.outside(1), Some(100_000));
        assert_eq!(map.outside(65_536), Some(165_535));
        assert_eq!(map.outside(65_537), None);
        assert_eq!(map.inside(1000), Some(0));
        assert_eq!(map.inside(165_535), Some(65_536));
        assert_eq!(map.inside(0), None);
        assert_eq!(map.inside(u32::MAX), None);
        assert_eq!(map.extents().len(), 2);
        assert_eq!(map.single(), None);
        assert_eq!(parse("5 6 1").unwrap().single(), Some(6));
    }

    #[test]
    fn texts_that_are_no_maps_are_refused() {
        for text in [
            "",
            "\n",
            "0",
            "0 0",
            "0 0 0",
            "0 0 1 1",
            "a 0 1",
            "0 b 1",
            "0 0 c",
            "-1 0 1",
            "0 0 1\n\n",
            "4294967295 0 1",
            "0 4294967295 1",
            "4294967290 0 6",
            "0 0 4294967295x",
            "0 0 2\n1 5 1",
            "0 0 2\n5 1 1",
            "0x0 0 1",
        ] {
            assert_eq!(parse(text), Err(Refusal::Invalid), "{text:?}");
        }
        assert!(parse("0 0 4294967295").is_ok());
        // Only 32 bits of a number count.
        assert_eq!(parse("4294967296 0 1"), parse("0 0 1"));
        assert_eq!(parse("0 0 1\0junk"), parse("0 0 1"));
    }

    #[test]
    fn there_are_no_more_extents_than_on_linux() {
        let lines =
            |count: usize| -> String { (0..count).map(|n| format!("{n} {n} 1\n")).collect() };
        assert_eq!(parse(&lines(MOST)).unwrap().extents().len(), MOST);
        assert_eq!(parse(&lines(MOST + 1)), Err(Refusal::Invalid));
        let long = format!("0 0 1{}", " ".repeat(LONGEST - 5));
        assert_eq!(parse(&long), Err(Refusal::Invalid));
        assert!(parse(&long[..LONGEST - 1]).is_ok());
    }

    #[test]
    fn a_map_is_lowered_through_its_parent() {
        let parent = parse("0 1000 10\n10 5000 10").unwrap();
        let lowered =
            |text| parse(text)?.lowered(|first, count| parent.range_outside(first, count));
        assert_eq!(lowered("0 2 3"), parse("0 1002 3"));
        assert_eq!(lowered("7 19 1"), parse("7 5009 1"));
        // Over the border of two extents, and out of the map.
        assert_eq!(lowered("0 9 2"), Err(Refusal::Unmapped));
        assert_eq!(lowered("0 20 1"), Err(Refusal::Unmapped));
    }
}
