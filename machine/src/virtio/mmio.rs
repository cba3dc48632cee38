//! virtio over memory-mapped registers (virtio 1.2, 4.2): microvm and Firecracker.
//!
//! The kernel command line says where the devices are, as
//! `virtio_mmio.device=SIZE@ADDRESS:INTERRUPT[:ID]` (Linux
//! `Documentation/admin-guide/kernel-parameters.txt`): both machines put it there by themselves.
//! QEMU's microvm does so only without ACPI. With ACPI the places are in the DSDT, as byte code,
//! for which there is no interpreter here. But the places are fixed, so all of them are probed.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::device::{Device, Transport};
use super::queue::Bell;
use crate::interrupt::{self, Handler};
use crate::mmio::Registers;
use crate::sync::SpinLock;
use crate::{acpi, ioapic, loader};

const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// QEMU's `VIRTIO_MMIO_BASE` of microvm, and the size of each device's registers there.
const MICROVM: (u64, u64) = (0xfeb0_0000, 512);
/// Registers of a device that is used.
const SIZE: u64 = 0x200;

mod register {
    pub const MAGIC: usize = 0x0;
    pub const VERSION: usize = 0x4;
    pub const DEVICE: usize = 0x8;
    pub const FEATURES: usize = 0x10;
    pub const FEATURES_SELECT: usize = 0x14;
    pub const DRIVER_FEATURES: usize = 0x20;
    pub const DRIVER_FEATURES_SELECT: usize = 0x24;
    pub const QUEUE_SELECT: usize = 0x30;
    pub const QUEUE_SIZE_MAX: usize = 0x34;
    pub const QUEUE_SIZE: usize = 0x38;
    pub const QUEUE_READY: usize = 0x44;
    pub const QUEUE_NOTIFY: usize = 0x50;
    pub const INTERRUPT_STATUS: usize = 0x60;
    pub const INTERRUPT_ACKNOWLEDGE: usize = 0x64;
    pub const STATUS: usize = 0x70;
    pub const QUEUE_DESCRIPTORS: usize = 0x80;
    pub const QUEUE_AVAILABLE: usize = 0x90;
    pub const QUEUE_USED: usize = 0xa0;
    pub const GENERATION: usize = 0xfc;
    pub const CONFIG: usize = 0x100;
}

struct Mmio {
    registers: Registers,
    /// Whether an interrupt was for a change of configuration.
    changed: Arc<AtomicBool>,
    /// The global system interrupt: the I/O APIC's input.
    interrupt: u32,
    /// Makes the selection of a queue or feature word and the access that follows one step.
    select: SpinLock<()>,
}

/// `512@0xfeb00e00:12`, as size, address and interrupt.
fn parse(text: &str) -> Option<(u64, u64, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let (size, rest) = text.split_once('@')?;
    let mut parts = rest.split(':');
    let (address, interrupt) = (number(parts.next()?)?, number(parts.next()?)?);
    let (digits, shift) = match size.char_indices().last()? {
        (end, 'K' | 'k') => (&size[..end], 10),
        (end, 'M' | 'm') => (&size[..end], 20),
        _ => (size, 0),
    };
    Some((number(digits)?.checked_shl(shift)?, address, u32::try_from(interrupt).ok()?))
}

pub(super) fn devices() -> Vec<Device> {
    let mut found = Vec::new();
    let mut named = false;
    for option in loader::options("virtio_mmio.device") {
        named = true;
        match parse(option) {
            Some((size, address, interrupt)) if size >= SIZE && address >= 1 << 20 => {
                found.extend(probe(address, interrupt));
            }
            _ => crate::warn!("virtio_mmio.device={option}: want SIZE@ADDRESS:INTERRUPT; left out"),
        }
    }
    if !named && let Some((count, first)) = microvm_lines() {
        for index in 0..count {
            found.extend(probe(MICROVM.0 + u64::from(index) * MICROVM.1, first + index));
        }
    }
    found
}

/// Returns how many device places a microvm has, and the interrupt line of the first; `None` on any
/// other machine (QEMU `hw/i386/microvm.c`: the places have consecutive lines, on the second I/O
/// APIC if there is one).
fn microvm_lines() -> Option<(u32, u32)> {
    let acpi = acpi::info();
    if acpi.has_ecam {
        return None;
    }
    match acpi.io_apics.get(1) {
        Some(second) => Some((24, second.first_line)),
        None => Some((8, 5)),
    }
}

fn probe(address: u64, interrupt: u32) -> Option<Device> {
    // The magic number is checked before anything is written.
    let registers = Registers::map(address, SIZE as usize)?;
    if registers.read(register::MAGIC) != MAGIC || registers.read(register::DEVICE) == 0 {
        return None;
    }
    if registers.read(register::VERSION) != 2 {
        crate::warn!(
            "virtio: mmio {address:#x}: legacy interface; left out (QEMU: -global virtio-mmio.force-legacy=false)"
        );
        return None;
    }
    let changed = Arc::new(AtomicBool::new(false));
    let transport = Mmio { registers, changed, interrupt, select: SpinLock::new(()) };
    Some(Device::new(Box::new(transport), format!("mmio {address:#x}")))
}

impl Mmio {
    fn write64(&self, offset: usize, value: u64) {
        self.registers.write(offset, value as u32);
        self.registers.write(offset + 4, (value >> 32) as u32);
    }
}

impl Transport for Mmio {
    fn kind(&self) -> u32 {
        self.registers.read(register::DEVICE)
    }

    fn status(&self) -> u8 {
        self.registers.read(register::STATUS) as u8
    }

    fn set_status(&self, status: u8) {
        self.registers.write(register::STATUS, status.into());
    }

    fn features(&self) -> u64 {
        let _guard = self.select.lock();
        let half = |index| {
            self.registers.write(register::FEATURES_SELECT, index);
            u64::from(self.registers.read(register::FEATURES))
        };
        half(0) | half(1) << 32
    }

    fn set_features(&self, features: u64) {
        let _guard = self.select.lock();
        for index in 0..2 {
            self.registers.write(register::DRIVER_FEATURES_SELECT, index);
            self.registers.write(register::DRIVER_FEATURES, (features >> (32 * index)) as u32);
        }
    }

    fn queue_size(&self, queue: u16) -> u16 {
        let _guard = self.select.lock();
        self.registers.write(register::QUEUE_SELECT, queue.into());
        u16::try_from(self.registers.read(register::QUEUE_SIZE_MAX)).unwrap_or(1 << 15)
    }

    fn set_queue(&self, queue: u16, size: u16, descriptors: u64, available: u64, used: u64) {
        let _guard = self.select.lock();
        self.registers.write(register::QUEUE_SELECT, queue.into());
        self.registers.write(register::QUEUE_SIZE, size.into());
        self.write64(register::QUEUE_DESCRIPTORS, descriptors);
        self.write64(register::QUEUE_AVAILABLE, available);
        self.write64(register::QUEUE_USED, used);
        self.registers.write(register::QUEUE_READY, 1);
    }

    fn bell(&self, queue: u16) -> Bell {
        Bell { registers: self.registers, offset: register::QUEUE_NOTIFY, queue, wide: true }
    }

    fn connect(&self, handler: Handler) -> bool {
        /// The bit of the status that stands for a change of configuration.
        const CHANGE: u32 = 2;
        let (registers, changed) = (self.registers, Arc::clone(&self.changed));
        let vector = interrupt::attach(Box::new(move || {
            let status = registers.read(register::INTERRUPT_STATUS);
            if status != 0 {
                // Acknowledged first: completions from here on raise the interrupt again.
                registers.write(register::INTERRUPT_ACKNOWLEDGE, status);
                if status & CHANGE != 0 {
                    changed.store(true, Ordering::Relaxed);
                }
                handler();
            }
        }));
        // The line is edge-triggered here: the acknowledgement lowers it.
        vector.is_some_and(|vector| ioapic::route(self.interrupt, vector, false, false))
    }

    fn may_have_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    fn generation(&self) -> u32 {
        self.registers.read(register::GENERATION)
    }

    fn config8(&self, offset: usize) -> u8 {
        self.registers.read8(register::CONFIG + offset)
    }

    fn config32(&self, offset: usize) -> u32 {
        self.registers.read(register::CONFIG + offset)
    }

    fn set_config32(&self, offset: usize, value: u32) {
        self.registers.write(register::CONFIG + offset, value);
    }
}
