//! MSI-X: interrupts as memory writes, one message for each entry of a table in the function.

use pci_types::capability::PciCapability;

use super::function::Enabled;
use super::ports::Ports;
use crate::mmio::Registers;

/// A function's table of messages.
#[derive(Debug)]
pub struct Msix {
    table: Registers,
    /// The number of entries.
    size: u16,
    /// The first entry that was not given to a part of the device ([`Msix::take`]).
    free: u16,
}

impl Enabled {
    /// Maps the table of messages and turns it on with all entries masked. `None` when the function
    /// has no such table.
    pub(crate) fn msix(&self) -> Option<Msix> {
        let mut capability =
            self.function.header().capabilities(Ports).find_map(|capability| match capability {
                PciCapability::MsiX(capability) => Some(capability),
                _ => None,
            })?;
        let size = u64::from(capability.table_size()) * 16;
        let table =
            self.registers(capability.table_bar(), capability.table_offset().into(), size)?;
        for entry in 0..usize::from(capability.table_size()) {
            table.write(entry * 16 + 12, 1);
        }
        capability.set_enabled(true, Ports);
        capability.set_function_mask(false, Ports);
        Some(Msix { table, size: capability.table_size(), free: 1 })
    }
}

impl Msix {
    /// Returns an entry that no other part of the device has; `None` when there is none left. Entry
    /// 0 is for what has no entry of its own.
    pub(crate) fn take(&mut self) -> Option<u16> {
        let entry = self.free;
        (entry < self.size).then(|| {
            self.free += 1;
            entry
        })
    }

    /// Makes `entry` raise `vector` on processor `cpu` from now on. An entry that does not exist is
    /// ignored.
    pub(crate) fn route(&mut self, entry: u16, vector: u8, cpu: usize) {
        let (address, data) = crate::apic::message(cpu, vector);
        let base = usize::from(entry) * 16;
        self.table.write(base + 12, 1);
        self.table.write(base, address as u32);
        self.table.write(base + 4, (address >> 32) as u32);
        self.table.write(base + 8, data);
        self.table.write(base + 12, 0);
    }
}
