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
mod function;
mod line;
mod msix;
mod ports;

use alloc::vec::Vec;

use pci_types::{HeaderType, PciAddress, PciHeader, PciPciBridgeHeader};

use ports::Ports;

pub(crate) use function::Enabled;
pub use function::Function;
pub use msix::Msix;

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
