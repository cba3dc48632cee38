//! An area of non-volatile memory as a store's region.

use hayate_nvm_store::{Fault, Region};
use machine::cpu::interrupt_window;
use machine::nvm::Area;

/// The whole of an area.
pub struct Memory {
    area: &'static Area,
}

impl Memory {
    /// The area as a region.
    pub fn new(area: &'static Area) -> Memory {
        Memory { area }
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
        Ok(())
    }
}
