//! One function of a device: its registers and capabilities.

use pci_types::capability::PciCapability;
use pci_types::{CommandRegister, ConfigRegionAccess, EndpointHeader, PciAddress, PciHeader};

use super::assign;
use super::ports::Ports;
use crate::mmio::Registers;

/// One function of a device on the bus.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub(super) address: PciAddress,
    /// The vendor's number.
    pub vendor: u16,
    /// The device's number, chosen by the vendor.
    pub device: u16,
}

impl Function {
    pub(super) fn header(&self) -> EndpointHeader {
        // `functions` made this from an endpoint, and a function's type does not change.
        EndpointHeader::from_header(PciHeader::new(self.address), Ports)
            .expect("a function stays an endpoint")
    }

    /// Assigns addresses to empty address registers, enables the function's memory decoding and bus
    /// mastering. `None` when a window is full.
    pub fn enable(self) -> Option<Enabled> {
        let mut header = self.header();
        // A register that is being sized or moved must not decode meanwhile. (Each change of
        // decoding is work for the hypervisor, so it is done once for all registers.)
        header.update_command(Ports, |command| command - CommandRegister::MEMORY_ENABLE);
        let memory = assign::assign(&mut header)?;
        header.update_command(Ports, |command| {
            command
                | CommandRegister::MEMORY_ENABLE
                | CommandRegister::BUS_MASTER_ENABLE
                | CommandRegister::INTERRUPT_DISABLE
        });
        Some(Enabled { function: self, memory })
    }

    /// Returns the offsets in configuration space of the function's vendor-specific capabilities.
    pub(crate) fn vendor_capabilities(&self) -> impl Iterator<Item = u16> {
        self.header().capabilities(Ports).filter_map(|capability| match capability {
            PciCapability::Vendor(place) => Some(place.offset),
            _ => None,
        })
    }

    /// Reads the 32 bits at `offset` of configuration space.
    pub(crate) fn read(&self, offset: u16) -> u32 {
        // SAFETY: reading configuration space has no effect on memory.
        unsafe { Ports.read(self.address, offset) }
    }
}

/// A function that answers, with the places of its registers.
#[derive(Clone, Copy, Debug)]
pub struct Enabled {
    pub(super) function: Function,
    /// Address and size of each memory address register.
    memory: [Option<(u64, u64)>; 6],
}

impl Enabled {
    /// Maps `size` bytes from `offset` of memory address register `slot`; the whole range must be
    /// inside the register's.
    pub(crate) fn registers(&self, slot: u8, offset: u64, size: u64) -> Option<Registers> {
        let (address, room) = (*self.memory.get(usize::from(slot))?)?;
        if offset.checked_add(size)? > room {
            return None;
        }
        // The range is inside the addresses that the function decodes, which are not memory: the
        // firmware assigned them, or `assign`, which avoids all memory.
        Registers::map(address + offset, usize::try_from(size).ok()?)
    }
}

impl core::fmt::Display for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.address)
    }
}
