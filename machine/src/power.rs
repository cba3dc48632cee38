//! Ending: power off, reset, the exit device.

use core::sync::atomic::{AtomicU32, Ordering};

use x86_64::instructions::port::Port;

/// QEMU's isa-debug-exit: its exit status is `value << 1 | 1`.
pub(crate) const EXIT_DEVICE: u16 = 0xf4;

/// The exit-device value of a kernel that cannot boot on this processor. QEMU's exit status is then
/// 125, which the host command uses for requests that it cannot carry out.
pub(crate) const REFUSED: u8 = 62;

/// ACPI's PM1a control port and sleep type for S5, if known: `port << 16 | type`.
static PM1A: AtomicU32 = AtomicU32::new(0);

pub(crate) fn set_pm1a(port: u16, sleep_type: u8) {
    PM1A.store(u32::from(port) << 16 | u32::from(sleep_type), Ordering::Relaxed);
}

/// Ends the machine: stops the other CPUs and writes `value` to the exit device. Returns if there
/// is no exit device.
pub fn exit_device(value: u8) {
    crate::smp::stop_others();
    // SAFETY: a port without a device ignores the write.
    unsafe { Port::<u32>::new(EXIT_DEVICE).write(u32::from(value)) };
}

/// Switches the machine off: by exit device, ACPI or reset; if none works, stops the CPU.
pub fn off() -> ! {
    crate::log::write_kept();
    exit_device(0);
    let pm1a = PM1A.load(Ordering::Relaxed);
    if pm1a != 0 {
        // SAFETY: this is the port that the FADT named; SLP_EN with S5's type switches off.
        unsafe { Port::<u16>::new((pm1a >> 16) as u16).write(((pm1a & 7) << 10 | 1 << 13) as u16) };
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
