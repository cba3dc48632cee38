//! Model-specific registers.

use x86_64::registers::model_specific::Msr;

/// Reads a model-specific register.
///
/// # Safety
/// The register must exist on this CPU, else it raises a general protection fault.
pub(crate) unsafe fn read_msr(register: u32) -> u64 {
    // SAFETY: the caller vouches for the register.
    unsafe { Msr::new(register).read() }
}

/// Writes a model-specific register.
///
/// # Safety
/// The register must exist and the value must keep the kernel's assumptions true.
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller vouches for register and value.
    unsafe { Msr::new(register).write(value) };
}
