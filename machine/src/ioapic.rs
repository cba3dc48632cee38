//! The I/O APIC: interrupt lines of the ISA bus and of virtio-mmio devices.

use arrayvec::ArrayVec;

use crate::acpi;
use crate::apic;
use crate::mmio::Registers;
use crate::sync::{Once, SpinLock};

struct Chip {
    first_line: u32,
    lines: u32,
    registers: Registers,
}

static CHIPS: Once<SpinLock<ArrayVec<Chip, 8>>> = Once::new();

fn chips() -> &'static SpinLock<ArrayVec<Chip, 8>> {
    CHIPS.call_once(|| {
        let mut chips = ArrayVec::new();
        for chip in &acpi::info().io_apics {
            if let Some(registers) = Registers::map(chip.address, 0x20) {
                registers.write(0, 1);
                let lines = (registers.read(0x10) >> 16 & 0xff) + 1;
                chips.push(Chip { first_line: chip.first_line, lines, registers });
            }
        }
        SpinLock::new(chips)
    })
}

/// Routes the global interrupt line `line` to `vector` on CPU 0. `level`: level-triggered;
/// `low`: active low. False if no chip has the line.
pub fn route(line: u32, vector: u8, level: bool, low: bool) -> bool {
    write_entry(
        line,
        u32::from(vector) | u32::from(low) << 13 | u32::from(level) << 15,
        apic::id_of(0),
    )
}

/// Writes a line's entry; `target` is the APIC's identifier. False if no chip has the line.
fn write_entry(line: u32, low_word: u32, target: u32) -> bool {
    let chips = chips().lock();
    let Some(chip) = chips.iter().find(|c| line >= c.first_line && line - c.first_line < c.lines)
    else {
        return false;
    };
    let entry = 0x10 + 2 * (line - chip.first_line);
    chip.registers.write(0, entry + 1);
    chip.registers.write(0x10, target << 24);
    chip.registers.write(0, entry);
    chip.registers.write(0x10, low_word);
    true
}

/// Makes each edge of ISA interrupt `irq` raise an NMI on every CPU. False if no chip has the line.
pub fn route_isa_as_nmi(irq: u8) -> bool {
    const NMI: u32 = 4 << 8;
    const EVERY_CPU: u32 = 0xff;
    let found = acpi::info().overrides.iter().find(|o| o.source == irq);
    write_entry(found.map_or(u32::from(irq), |o| o.line), NMI, EVERY_CPU)
}
