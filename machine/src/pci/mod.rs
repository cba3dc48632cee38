//! The PCI bus: its functions, their registers and interrupts.
//!
//! Configuration space is accessed through the ports 0xcf8 and 0xcfc. Every machine with a PCI bus
//! that Hayate supports has them (QEMU q35 and i440fx, Cloud Hypervisor), and their 256 bytes
//! contain everything that is used here; a machine without a bus returns all ones. The
//! memory-mapped access (MCFG) would save a VM exit per register at boot, but cost a search through
//! ACPI.
//!
//! A small firmware such as qboot leaves address registers empty; [`Function::enable`] then assigns
//! addresses ([`assign`]).

mod assign;
mod msix;

use alloc::vec::Vec;

use pci_types::capability::PciCapability;
use pci_types::{
    Bar, CommandRegister, ConfigRegionAccess, EndpointHeader, HeaderType, PciAddress, PciHeader,
    PciPciBridgeHeader,
};
use x86_64::instructions::port::Port;

use crate::mmio::Registers;
use crate::sync::SpinLock;

pub use msix::Msix;

/// Serialises the pairs of accesses to the address and the data port.
static PORTS: SpinLock<()> = SpinLock::new(());

/// Access to configuration space.
#[derive(Clone, Copy)]
struct Ports;

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

/// One function of a device on the bus.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    address: PciAddress,
    /// The vendor's number.
    pub vendor: u16,
    /// The device's number, chosen by the vendor.
    pub device: u16,
}

/// Returns all endpoint functions on bus 0 and on the buses behind bridges that the firmware set
/// up.
pub fn functions() -> Vec<Function> {
    let mut found = Vec::new();
    let mut buses = alloc::vec![0u8];
    let mut seen = [false; 256];
    while let Some(bus) = buses.pop() {
        if core::mem::replace(&mut seen[usize::from(bus)], true) {
            continue;
        }
        for device in 0..32 {
            let first = PciHeader::new(PciAddress::new(0, bus, device, 0));
            if first.id(Ports).0 == 0xffff {
                continue;
            }
            let count = if first.has_multiple_functions(Ports) { 8 } else { 1 };
            for function in 0..count {
                let header = PciHeader::new(PciAddress::new(0, bus, device, function));
                let (vendor, device) = header.id(Ports);
                if vendor == 0xffff {
                    continue;
                }
                let address = header.address();
                match header.header_type(Ports) {
                    HeaderType::Endpoint => {
                        assign::note(address);
                        found.push(Function { address, vendor, device });
                    }
                    HeaderType::PciPciBridge => {
                        if let Some(bridge) = PciPciBridgeHeader::from_header(header, Ports) {
                            buses.push(bridge.secondary_bus_number(Ports));
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    found
}

impl Function {
    fn header(&self) -> EndpointHeader {
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
    function: Function,
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

/// Returns address register `slot`, if its type is one of the two that exist.
fn bar(header: &EndpointHeader, slot: u8) -> Option<Bar> {
    // The crate panics at the reserved types.
    // SAFETY: reading configuration space has no effect on memory.
    let raw = unsafe { Ports.read(header.header().address(), 0x10 + u16::from(slot) * 4) };
    match raw & 0b111 {
        0b010 | 0b110 => None,
        _ => header.bar(slot, Ports),
    }
}
