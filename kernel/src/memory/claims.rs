//! The providers of missing pages of a space ([`userfault`](super::userfault)), by address.
//!
//! The flag `PROVIDED` of a region says whether its pages are provided, and the map of claims by
//! whom. Regions join whoever provides them, claims only if it is the same. Unmapping takes
//! claims out. A claim that could not be taken out, for want of memory, has no region with the
//! flag; a new one there brings a claim of its own.

use alloc::boxed::Box;
use core::ops::Range;

use hayate_space_map::{Content, NoMemory, Region, SpaceMap};

/// The number of who provides; 0: nobody any more.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim(u32);

impl Content for Claim {
    fn advance(&mut self, _: usize) {}

    fn continues(&self, _: usize, next: &Self) -> bool {
        self == next
    }
}

/// The claims of a space. Most spaces have none.
#[derive(Default)]
pub struct Claims(Option<Box<SpaceMap<Claim>>>);

impl Claims {
    /// No claims.
    pub const NONE: Claims = Claims(None);

    fn region(&self, address: usize) -> Option<&Region<Claim>> {
        self.0.as_ref()?.find(address)
    }

    /// The number of who provides the page at an address; 0: nobody.
    pub fn at(&self, address: usize) -> u32 {
        self.region(address).map_or(0, |region| region.value.0)
    }

    /// The number of the one who provides all of a range; 0: there is no such one.
    pub fn of_all(&self, range: &Range<usize>) -> u32 {
        let region = self.region(range.start).filter(|region| region.end >= range.end);
        region.map_or(0, |region| region.value.0)
    }

    /// Calls `visit` with the numbers of all who provide something in a range.
    pub fn each(&self, range: Range<usize>, visit: impl FnMut(u32)) {
        let Some(map) = &self.0 else { return };
        let numbers = map.overlapping(range).map(|region| region.value.0);
        numbers.filter(|&number| number != 0).for_each(visit);
    }

    /// Enters who provides a range from now on.
    pub fn enter(&mut self, range: Range<usize>, number: u32) -> Result<(), NoMemory> {
        let map = self.0.get_or_insert_with(|| Box::new(SpaceMap::new()));
        map.remove(range.clone())?;
        map.insert(range, Claim(number))
    }

    /// The range is nobody's: it was unmapped.
    #[inline]
    pub fn remove(&mut self, range: &Range<usize>) {
        if let Some(map) = &mut self.0 {
            let _ = map.remove(range.clone());
        }
    }

    /// The one with this number provides nothing any more.
    pub fn end(&mut self, number: u32) {
        if let Some(map) = &mut self.0 {
            map.change_all(|_, claim| {
                if claim.0 == number {
                    claim.0 = 0;
                }
            });
        }
    }
}
