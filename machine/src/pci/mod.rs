//! The PCI bus: which functions there are, their registers and interrupts.
//!
//! Configuration space is reached through the ports 0xcf8 and 0xcfc, which every machine with a
//! PCI bus that Hayate meets has (QEMU q35 and i440fx, Cloud Hypervisor), and whose 256 bytes hold
//! everything that is used here; a machine without a bus answers all ones. The memory-mapped
//! access (MCFG) would save a vm exit per register at boot and cost a search through ACPI.
//!
//! A firmware as small as qboot leaves address registers empty; [`Function::enable`] then gives
//! them room ([`assign`]).

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
        // SAFETY: the caller answers for what it writes; this module writes address registers,
        // commands and MSI-X control only.
        Self::select(address, offset, |mut data| unsafe { data.write(value) });
    }
}

/// One function of a device on the bus.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    address: PciAddress,
    /// Who made it.
    pub vendor: u16,
    /// What it is among its vendor's.
    pub device: u16,
}

/// All endpoint functions on bus 0 and on the buses behind bridges that the firmware set up.
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
        // `functions` made this from an endpoint, and what a function is does not change.
        EndpointHeader::from_header(PciHeader::new(self.address), Ports)
            .expect("a function stays an endpoint")
    }

    /// Gives address registers that have none an address and lets the function answer at them and
    /// access memory by itself. `None` when there is no room.
    pub fn enable(self) -> Option<Enabled> {
        let mut header = self.header();
        // A register that is being sized or moved must not answer meanwhile. (Each change of what
        // answers where is work for the hypervisor, so it is done once for all registers.)
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

    /// The function's capabilities of its vendor's own: offset in configuration space and length.
    pub(crate) fn vendor_capabilities(&self) -> impl Iterator<Item = u16> {
        self.header().capabilities(Ports).filter_map(|capability| match capability {
            PciCapability::Vendor(place) => Some(place.offset),
            _ => None,
        })
    }

    /// The 32 bits at `offset` of configuration space.
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
    /// Maps `size` bytes from `offset` of memory address register `slot`, all of which must be
    /// registers.
    pub(crate) fn registers(&self, slot: u8, offset: u64, size: u64) -> Option<Registers> {
        let (address, room) = (*self.memory.get(usize::from(slot))?)?;
        if offset.checked_add(size)? > room {
            return None;
        }
        // The range is inside what the function decodes, which is not memory of ours: the address
        // is the firmware's or from `assign`, which stays clear of all memory.
        Registers::map(address + offset, usize::try_from(size).ok()?)
    }
}

impl core::fmt::Display for Function {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.address)
    }
}

/// Address register `slot`, when its type is one of the two that exist.
fn bar(header: &EndpointHeader, slot: u8) -> Option<Bar> {
    // The crate panics at the types that are reserved.
    // SAFETY: reading configuration space has no effect on memory.
    let raw = unsafe { Ports.read(header.header().address(), 0x10 + u16::from(slot) * 4) };
    match raw & 0b111 {
        0b010 | 0b110 => None,
        _ => header.bar(slot, Ports),
    }
}
