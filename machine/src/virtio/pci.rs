//! virtio over PCI (virtio 1.2, 4.1).

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use super::device::{Device, Transport};
use super::queue::Bell;
use crate::interrupt::{self, Handler};
use crate::mmio::Registers;
use crate::pci::{Enabled, Function, Msix, functions};
use crate::sync::SpinLock;

const VENDOR: u16 = 0x1af4;
/// Device numbers: transitional ones, whose kind is the subsystem's number, and modern ones.
const TRANSITIONAL: core::ops::Range<u16> = 0x1000..0x1040;
const MODERN: core::ops::Range<u16> = 0x1040..0x1080;

/// The vector entry of a queue without an interrupt.
const NO_VECTOR: u16 = 0xffff;

/// Offsets in the common configuration.
mod common {
    pub const FEATURE_SELECT: usize = 0x0;
    pub const FEATURE: usize = 0x4;
    pub const DRIVER_FEATURE_SELECT: usize = 0x8;
    pub const DRIVER_FEATURE: usize = 0xc;
    pub const CONFIG_VECTOR: usize = 0x10;
    pub const STATUS: usize = 0x14;
    pub const GENERATION: usize = 0x15;
    pub const QUEUE_SELECT: usize = 0x16;
    pub const QUEUE_SIZE: usize = 0x18;
    pub const QUEUE_VECTOR: usize = 0x1a;
    pub const QUEUE_ENABLE: usize = 0x1c;
    pub const QUEUE_NOTIFY_OFFSET: usize = 0x1e;
    pub const QUEUE_DESCRIPTORS: usize = 0x20;
    pub const QUEUE_AVAILABLE: usize = 0x28;
    pub const QUEUE_USED: usize = 0x30;
    pub const SIZE: u32 = 0x38;
}

struct Pci {
    kind: u32,
    common: Registers,
    notify: Registers,
    notify_multiplier: u32,
    /// The device's own configuration; a device may have none.
    device: Option<Registers>,
    /// A device without MSI-X has an interrupt line, or is polled if its driver can do that.
    msix: Option<SpinLock<Msix>>,
    /// The function, for its line, and the status of its interrupt, which is cleared by reading it.
    line: (Enabled, Option<Registers>),
    /// Whether there was an interrupt for a change of configuration; at a line only, elsewhere any
    /// interrupt may be for one.
    changed: Option<Arc<AtomicBool>>,
    /// Makes the selection of a queue or feature word and the access that follows one step.
    select: SpinLock<()>,
}

pub(super) fn devices() -> Vec<Device> {
    let mut found = Vec::new();
    for function in functions() {
        if function.vendor != VENDOR {
            continue;
        }
        let kind = if MODERN.contains(&function.device) {
            u32::from(function.device - MODERN.start)
        } else if TRANSITIONAL.contains(&function.device) {
            function.read(0x2c) >> 16
        } else {
            continue;
        };
        match Pci::new(&function, kind) {
            Some(transport) => {
                found.push(Device::new(Box::new(transport), format!("pci {function}")));
            }
            None => crate::warn!("virtio: pci {function}: no modern interface; device left out"),
        }
    }
    found
}

impl Pci {
    fn new(function: &Function, kind: u32) -> Option<Self> {
        let enabled = function.enable()?;
        let (mut common, mut notify, mut device, mut status) = (None, None, None, None);
        let mut notify_multiplier = 0;
        for at in function.vendor_capabilities() {
            let slot = function.read(at + 4) as u8;
            let (offset, size) = (function.read(at + 8), function.read(at + 12));
            let map = || enabled.registers(slot, offset.into(), size.into());
            // The first of each type is the one to use (4.1.4.1).
            match (function.read(at) >> 24) as u8 {
                1 if common.is_none() && size >= common::SIZE => common = map(),
                2 if notify.is_none() => {
                    notify = map();
                    notify_multiplier = function.read(at + 16);
                }
                3 if status.is_none() => status = map(),
                4 if device.is_none() => device = map(),
                _ => {}
            }
        }
        let msix = enabled.msix().map(SpinLock::new);
        let changed = msix.is_none().then(|| Arc::new(AtomicBool::new(false)));
        Some(Self {
            kind,
            common: common?,
            notify: notify?,
            notify_multiplier,
            device,
            msix,
            line: (enabled, status),
            changed,
            select: SpinLock::new(()),
        })
    }
}

impl Pci {
    /// Calls `handler` at the interrupts of the function's line (4.1.4.5).
    fn connect_line(&self, handler: Handler) -> bool {
        /// The bit of the status that stands for a change of configuration.
        const CHANGE: u8 = 2;
        let (Some(status), Some(changed)) = (self.line.1, &self.changed) else { return false };
        let changed = Arc::clone(changed);
        self.line.0.connect_line(Box::new(move || {
            // Reading it lowers the line.
            let status = status.read8(0);
            if status & CHANGE != 0 {
                changed.store(true, Ordering::Relaxed);
            }
            if status != 0 {
                handler();
            }
        }))
    }
}

impl Transport for Pci {
    fn kind(&self) -> u32 {
        self.kind
    }

    fn status(&self) -> u8 {
        self.common.read8(common::STATUS)
    }

    fn set_status(&self, status: u8) {
        self.common.write8(common::STATUS, status);
    }

    fn features(&self) -> u64 {
        let _guard = self.select.lock();
        let half = |index| {
            self.common.write(common::FEATURE_SELECT, index);
            u64::from(self.common.read(common::FEATURE))
        };
        half(0) | half(1) << 32
    }

    fn set_features(&self, features: u64) {
        let _guard = self.select.lock();
        for index in 0..2 {
            self.common.write(common::DRIVER_FEATURE_SELECT, index);
            self.common.write(common::DRIVER_FEATURE, (features >> (32 * index)) as u32);
        }
    }

    fn queue_size(&self, queue: u16) -> u16 {
        let _guard = self.select.lock();
        self.common.write16(common::QUEUE_SELECT, queue);
        if self.common.read16(common::QUEUE_SELECT) != queue {
            return 0;
        }
        self.common.read16(common::QUEUE_SIZE)
    }

    fn set_queue(&self, queue: u16, size: u16, descriptors: u64, available: u64, used: u64) {
        let _guard = self.select.lock();
        let write64 = |offset, value: u64| {
            self.common.write(offset, value as u32);
            self.common.write(offset + 4, (value >> 32) as u32);
        };
        self.common.write16(common::QUEUE_SELECT, queue);
        self.common.write16(common::QUEUE_SIZE, size);
        write64(common::QUEUE_DESCRIPTORS, descriptors);
        write64(common::QUEUE_AVAILABLE, available);
        write64(common::QUEUE_USED, used);
        self.common.write16(common::QUEUE_VECTOR, if self.msix.is_some() { 0 } else { NO_VECTOR });
        self.common.write16(common::QUEUE_ENABLE, 1);
    }

    fn bell(&self, queue: u16) -> Bell {
        let _guard = self.select.lock();
        self.common.write16(common::QUEUE_SELECT, queue);
        let index = u32::from(self.common.read16(common::QUEUE_NOTIFY_OFFSET));
        let offset = index.saturating_mul(self.notify_multiplier) as usize;
        Bell { registers: self.notify, offset, queue, wide: false }
    }

    fn connect(&self, handler: Handler) -> bool {
        let Some(msix) = &self.msix else { return self.connect_line(handler) };
        let Some(vector) = interrupt::attach(handler) else { return false };
        msix.lock().route(0, vector, 0);
        let _guard = self.select.lock();
        self.common.write16(common::CONFIG_VECTOR, 0);
        self.common.read16(common::CONFIG_VECTOR) == 0
    }

    fn connect_queues(&self, queues: &[u16], cpu: usize, handler: Handler) -> bool {
        let Some(msix) = &self.msix else { return false };
        let mut messages = msix.lock();
        let Some(entry) = messages.take() else { return false };
        let Some(vector) = interrupt::attach(handler) else { return false };
        messages.route(entry, vector, cpu);
        let _guard = self.select.lock();
        let set = |queue: u16, entry: u16| {
            self.common.write16(common::QUEUE_SELECT, queue);
            self.common.write16(common::QUEUE_VECTOR, entry);
            // A device without the means for it answers with another number (4.1.5.1.2.1).
            self.common.read16(common::QUEUE_VECTOR) == entry
        };
        let done = queues.iter().all(|&queue| set(queue, entry));
        if !done {
            queues.iter().for_each(|&queue| _ = set(queue, 0));
        }
        done
    }

    fn may_have_changed(&self) -> bool {
        self.changed.as_ref().is_none_or(|changed| changed.swap(false, Ordering::Relaxed))
    }

    fn generation(&self) -> u32 {
        self.common.read8(common::GENERATION).into()
    }

    fn config8(&self, offset: usize) -> u8 {
        self.device.map_or(u8::MAX, |device| device.read8(offset))
    }

    fn config32(&self, offset: usize) -> u32 {
        self.device.map_or(u32::MAX, |device| device.read(offset))
    }

    fn set_config32(&self, offset: usize, value: u32) {
        if let Some(device) = &self.device {
            device.write(offset, value);
        }
    }
}
