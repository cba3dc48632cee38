//! An area of non-volatile memory as a store's region.

use hayate_nvm_store::{Fault, Region};
use machine::cpu::interrupt_window;
use machine::nvm::Area;

use crate::drivers::virtio_pmem::Pmem;

/// An area as a whole.
#[derive(Clone, Copy)]
pub struct Memory {
    area: &'static Area,
    /// The device to flush, if leaving the caches does not make data persistent.
    device: Option<&'static Pmem>,
}

impl Memory {
    /// Makes the region of an area on which data is persistent once it has left the processor's
    /// caches.
    pub fn new(area: &'static Area) -> Memory {
        Memory { area, device: None }
    }

    /// Makes the region of a device's memory.
    pub fn of_device(device: &'static Pmem) -> Memory {
        Memory { area: device.area(), device: Some(device) }
    }

    /// Returns the area.
    pub fn area(&self) -> &'static Area {
        self.area
    }
}

impl Region for Memory {
    fn size(&self) -> u64 {
        self.area.size()
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        interrupt_window();
        if self.area.read(offset, to) { Ok(()) } else { Err(Fault::Device) }
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        interrupt_window();
        if self.area.write(offset, from) { Ok(()) } else { Err(Fault::Device) }
    }

    fn flush(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        self.area.flush(offset, length);
        self.device.map_or(Ok(()), |device| device.flush().map_err(|_| Fault::Device))
    }
}
