//! Ending: power off, reset, the exit device.

use x86_64::instructions::port::Port;

use crate::{acpi, ipi, log};

/// QEMU's isa-debug-exit: its exit status is `value << 1 | 1`.
pub(crate) const EXIT_DEVICE: u16 = 0xf4;

/// The exit-device value of a kernel that cannot boot on this processor. QEMU's exit status is then
/// 125, which the host command uses for requests that it cannot carry out.
pub(crate) const REFUSED: u8 = 62;

/// Ends the machine: stops the other CPUs and writes `value` to the exit device. Returns if there
/// is no exit device.
pub fn exit_device(value: u8) {
    ipi::stop_others();
    // SAFETY: a port without a device ignores the write.
    unsafe { Port::<u32>::new(EXIT_DEVICE).write(u32::from(value)) };
}

/// Switches the machine off: by exit device, ACPI or reset; if none works, stops the CPU.
pub fn off() -> ! {
    log::write_kept();
    exit_device(0);
    if let Some((port, sleep_type)) = acpi::info().off {
        // SAFETY: this is the port that the FADT named; SLP_EN with S5's type switches off.
        unsafe { Port::<u16>::new(port).write(u16::from(sleep_type) << 10 | 1 << 13) };
    }
    reset()
}

/// Resets the machine.
pub fn reset() -> ! {
    // SAFETY: these are the chipset's reset register and the keyboard controller's reset line;
    // where they do not exist nothing happens.
    unsafe {
        Port::<u8>::new(0xcf9).write(0x06);
        Port::<u8>::new(0x64).write(0xfe);
    }
    // SAFETY: nothing runs after this: an empty interrupt table makes the breakpoint a triple
    // fault.
    unsafe {
        let null = [0u16; 5];
        core::arch::asm!("lidt [{}]", "int3", in(reg) &raw const null, options(noreturn));
    }
}
