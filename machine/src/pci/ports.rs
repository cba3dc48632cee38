//! Configuration space, through the ports 0xcf8 and 0xcfc.

use pci_types::{Bar, ConfigRegionAccess, EndpointHeader, PciAddress};
use x86_64::instructions::port::Port;

use crate::sync::SpinLock;

/// Serialises the pairs of accesses to the address and the data port.
static PORTS: SpinLock<()> = SpinLock::new(());

/// Access to configuration space.
#[derive(Clone, Copy)]
pub(super) struct Ports;

impl Ports {
    /// Runs `access` with the data port set to the register at `offset`.
    fn select<T>(address: PciAddress, offset: u16, access: impl FnOnce(Port<u32>) -> T) -> T {
        let _guard = PORTS.lock();
        let word = 1 << 31
            | u32::from(address.bus()) << 16
            | u32::from(address.device()) << 11
            | u32::from(address.function()) << 8
            | u32::from(offset & 0xfc);
        // SAFETY: these ports are the PCI host bridge's on every machine that has one, and nothing
        // elsewhere; the lock keeps address and data together.
        unsafe { Port::<u32>::new(0xcf8).write(word) };
        access(Port::new(0xcfc))
    }
}

impl ConfigRegionAccess for Ports {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        // SAFETY: reading configuration space has no effect on memory.
        Self::select(address, offset, |mut data| unsafe { data.read() })
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        // SAFETY: the caller is responsible for the value; this module writes only address
        // registers, commands and MSI-X control.
        Self::select(address, offset, |mut data| unsafe { data.write(value) });
    }
}

/// Returns address register `slot`, if its type is one of the two that exist.
pub(super) fn bar(header: &EndpointHeader, slot: u8) -> Option<Bar> {
    // The crate panics at the reserved types.
    // SAFETY: reading configuration space has no effect on memory.
    let raw = unsafe { Ports.read(header.header().address(), 0x10 + u16::from(slot) * 4) };
    match raw & 0b111 {
        0b010 | 0b110 => None,
        _ => header.bar(slot, Ports),
    }
}
