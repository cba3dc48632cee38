//! Device registers: blocks of memory that a device answers for.

use core::ptr::NonNull;

pub use crate::kernel_tables::kept_frames;
use crate::kernel_tables::map_device;
use crate::loader::{self, MemoryKind};
use crate::nvm;

macro_rules! access {
    ($read:ident, $write:ident, $type:ty, $bits:literal) => {
        #[doc = concat!("Reads the ", $bits, "-bit register at `offset`; all ones outside.")]
        #[inline]
        pub fn $read(&self, offset: usize) -> $type {
            match self.place::<$type>(offset) {
                // SAFETY: `place` checked that the access is inside the mapping and aligned.
                Some(place) => unsafe { place.as_ptr().read_volatile() },
                None => <$type>::MAX,
            }
        }

        #[doc = concat!("Writes the ", $bits, "-bit register at `offset`; nothing happens outside.")]
        #[inline]
        pub fn $write(&self, offset: usize, value: $type) {
            if let Some(place) = self.place::<$type>(offset) {
                // SAFETY: `place` checked that the access is inside the mapping and aligned.
                unsafe { place.as_ptr().write_volatile(value) }
            }
        }
    };
}

/// A block of device registers with bounds-checked, volatile access. An access outside of the block
/// does what it does in hardware: reads return all ones, writes do nothing. So a device that claims
/// less than its driver expects is no danger to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: device registers can be used from any CPU; each access is one volatile instruction.
unsafe impl Send for Registers {}
// SAFETY: as for Send.
unsafe impl Sync for Registers {}

impl Registers {
    /// Maps the registers at physical address `start`. `None` as for [`map_device`], and if the
    /// range is memory: the addresses that a device or the command line gives may be wrong.
    pub fn map(start: u64, length: usize) -> Option<Registers> {
        let end = start.checked_add(length as u64)?;
        let ranges =
            loader::info().memory.iter().filter(|range| range.kind != MemoryKind::Reserved);
        let areas = nvm::areas().iter().map(|area| (area.address(), area.address() + area.size()));
        let mut memory = ranges.map(|range| (range.start, range.end)).chain(areas);
        if memory.any(|(first, last)| start < last && first < end) {
            return None;
        }
        map_device(start, length).map(|base| Registers { base, length })
    }

    /// Returns the address of a register; `None` outside the block or if it is misaligned.
    #[inline]
    fn place<T>(&self, offset: usize) -> Option<NonNull<T>> {
        if offset.checked_add(size_of::<T>())? > self.length {
            return None;
        }
        // SAFETY: the offset is inside the mapping, as checked above.
        let place = unsafe { self.base.add(offset) }.cast::<T>();
        place.is_aligned().then_some(place)
    }

    access!(read8, write8, u8, "8");
    access!(read16, write16, u16, "16");
    access!(read, write, u32, "32");
}
