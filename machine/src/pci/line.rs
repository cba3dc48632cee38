//! The interrupt line of a function without messages (PCI 3.0, 6.2.4): on the chip set whose wiring
//! is fixed.
//!
//! Where the four pins of a slot lead is described in ACPI's machine code, which is not read here.
//! On QEMU's q35, the board with ICH9, slots 0 to 24 of the first bus have fixed wires: pin and
//! slot together choose one of the lines PIRQE to PIRQH, which are the lines 20 to 23 of the I/O
//! APIC (QEMU `hw/isa/lpc_ich9.c`: `ich9_cc_reset`, `ich9_gsi_handler`). On another board a
//! function has no line.
//!
//! Only one function may have a line: an interrupt counts by its edge (see `interrupt::attach`),
//! and a line that another function holds has none.

use core::sync::atomic::{AtomicU32, Ordering};

use pci_types::{CommandRegister, ConfigRegionAccess, PciAddress};

use super::function::Enabled;
use super::ports::Ports;
use crate::interrupt::{self, Handler};
use crate::ioapic;

/// Vendor and device of ICH9's bridge to the ISA bus, and where it is.
const ICH9: u32 = 0x2918_8086;
const ICH9_SLOT: (u8, u8) = (31, 0);
/// The first of the lines.
const PIRQE: u32 = 20;
/// The slots with fixed wires.
const WIRED: u8 = 25;
/// Pin (1 to 4; 0: none) in the second byte.
const INTERRUPT: u16 = 0x3c;

/// The lines that functions have, a bit each.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Returns the line of a pin of a slot.
fn line(slot: u8, pin: u8) -> Option<u32> {
    let wired = slot < WIRED && (1..=4).contains(&pin);
    wired.then(|| PIRQE + (u32::from(slot) + u32::from(pin) - 1) % 4)
}

impl Enabled {
    /// Lets the function interrupt by its line, and calls `handler` at each such interrupt. False
    /// if it has no line of its own.
    pub(crate) fn connect_line(&self, handler: Handler) -> bool {
        let function = self.function;
        let (slot, part) = ICH9_SLOT;
        // SAFETY: reading configuration space has no effect on memory.
        let chip = unsafe { Ports.read(PciAddress::new(0, 0, slot, part), 0) };
        let pin = (function.read(INTERRUPT) >> 8) as u8;
        if chip != ICH9 || function.address.bus() != 0 {
            return false;
        }
        let Some(line) = line(function.address.device(), pin) else { return false };
        if TAKEN.fetch_or(1 << line, Ordering::Relaxed) & 1 << line != 0 {
            return false;
        }
        let Some(vector) = interrupt::attach(handler) else { return false };
        if !ioapic::route(line, vector, false, false) {
            return false;
        }
        function
            .header()
            .update_command(Ports, |command| command - CommandRegister::INTERRUPT_DISABLE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn slots_and_pins_have_the_lines_of_qemus_board() {
        assert_eq!(line(2, 1), Some(22));
        assert_eq!(line(4, 1), Some(20));
        assert_eq!(line(4, 4), Some(23));
        assert_eq!((line(25, 1), line(3, 0), line(3, 5)), (None, None, None));
    }
}
