//! Addresses for address registers that the firmware left empty.
//!
//! Registers get a place in the window that q35, i440fx and Cloud Hypervisor keep free of memory
//! below 4 GiB, from its top downwards; addresses that the firmware assigned are kept and skipped.
//! Large registers (memory of devices, over 16 MiB) go above all memory instead.

use pci_types::{Bar, ConfigRegionAccess, EndpointHeader, PciAddress};

use super::ports::{Ports, bar};
use crate::sync::SpinLock;

/// The window: above q35's configuration space and below the I/O APIC.
const LOW: core::ops::Range<u64> = 0xe000_0000..0xfe80_0000;
/// The window for large registers: above all memory that a machine here has (512 GiB), and below
/// 2^39, where the narrowest processors' physical addresses end.
const HIGH: core::ops::Range<u64> = 0x60_0000_0000..0x80_0000_0000;
/// A 64-bit register of at least this size goes to the high window.
const LARGE: u64 = 16 << 20;

/// The next free addresses: the low window is filled downwards, the high one upwards.
static FREE: SpinLock<(u64, u64)> = SpinLock::new((LOW.end, HIGH.start));

/// Notes the addresses that the firmware gave to a function's registers, so that no new address
/// overlaps them. Must be called for all functions before the first [`assign`].
pub fn note(address: PciAddress) {
    for slot in 0..6 {
        // SAFETY: reading configuration space has no effect on memory.
        let raw = unsafe { Ports.read(address, 0x10 + slot * 4) };
        let place = u64::from(raw & !0xf);
        if raw & 1 == 0 && LOW.contains(&place) {
            let mut free = FREE.lock();
            free.0 = free.0.min(place);
        }
    }
}

/// Assigns addresses to all empty memory address registers of a function, and returns address and
/// size of all its registers. `None` when a window is full.
pub fn assign(header: &mut EndpointHeader) -> Option<[Option<(u64, u64)>; 6]> {
    let mut places = [None; 6];
    let mut slot = 0;
    while slot < 6 {
        let bar = bar(header, slot);
        let wide = matches!(bar, Some(Bar::Memory64 { .. }));
        let (mut address, size) = match bar {
            Some(Bar::Memory32 { address, size, .. }) => (u64::from(address), u64::from(size)),
            Some(Bar::Memory64 { address, size, .. }) => (address, size),
            _ => (0, 0),
        };
        if size != 0 {
            if address == 0 {
                address = place(size, wide)?;
                // SAFETY: the place is in a window that holds no memory, and no other register has
                // it.
                unsafe { header.write_bar(slot, Ports, address as usize) }.ok()?;
            }
            places[usize::from(slot)] = Some((address, size));
        }
        slot += if wide { 2 } else { 1 };
    }
    Some(places)
}

/// Takes `size` bytes, a power of two, from a window.
fn place(size: u64, wide: bool) -> Option<u64> {
    let mut free = FREE.lock();
    if wide && size >= LARGE {
        let place = free.1.checked_next_multiple_of(size)?;
        let end = place.checked_add(size).filter(|end| *end <= HIGH.end)?;
        free.1 = end;
        Some(place)
    } else {
        let size = size.max(4096);
        let place = free.0.checked_sub(size)? & !(size - 1);
        (place >= LOW.start).then(|| {
            free.0 = place;
            place
        })
    }
}
