//! The processor: its number, features, per-CPU data, and when it takes interrupts.
//!
//! **Interrupts are off in the kernel.** They are taken in user mode, in the idle loop
//! ([`wait_for_interrupt`]) and in [`interrupt_window`]s, which long loops open while they hold no
//! spin lock.

mod breakpoint;
mod descriptors;
mod features;
mod identity;
mod local;
mod place;

pub use breakpoint::{PASS, has_breakpoint, set_breakpoint};
pub(crate) use descriptors::CPU_NUMBER;
pub(crate) use descriptors::{DEBUG_IST, DOUBLE_FAULT_IST, FATAL_IST, SUPERVISOR_IST};
pub use descriptors::{KERNEL_CS, KERNEL_DS, USER_CS, USER_DS};
pub use features::{Features, Flush, allow_tsc, features, forbid_tsc};
pub use identity::{Identity, flags, identity};
pub(crate) use local::{Half, Word};
pub use local::{Here, Kind, Local, OfObject, OfOwner, OfPrincipal, PerCpu, empty_slot, id};
pub(crate) use local::{area_size, prepare_area, set_gs_base, set_slot};
pub use place::{Lent, Place};
pub(crate) use place::{borrows, set_borrows};

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use x86_64::registers::model_specific::Msr;

/// The most CPUs the kernel can use: masks of CPUs are a `u64`.
pub const MAX_CPUS: usize = 64;

static ONLINE: AtomicUsize = AtomicUsize::new(0);

/// How many CPUs run the kernel now; they are numbered from 0.
#[inline]
pub fn count() -> usize {
    ONLINE.load(Ordering::Relaxed)
}

/// Counts CPU `cpu` as online; CPUs come up one after the other.
pub(crate) fn set_online(cpu: usize) {
    ONLINE.fetch_max(cpu + 1, Ordering::Release);
}

/// The mask of all CPUs that run the kernel.
pub fn online_mask() -> u64 {
    u64::MAX >> (MAX_CPUS - count().clamp(1, MAX_CPUS))
}

/// Takes the pending interrupts. For long loops in the kernel; no spin lock may be held.
#[inline]
pub fn interrupt_window() {
    // SAFETY: interrupt handlers keep every register; the caller holds no lock that they take.
    // `sti` delays interrupts by one instruction, hence the `nop`.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) };
}

/// Halts until an interrupt has been taken. Returns with interrupts off again.
#[inline]
pub fn wait_for_interrupt() {
    // SAFETY: as for `interrupt_window`; `sti; hlt` cannot lose an interrupt between the two.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Stops this CPU for ever.
pub fn stop() -> ! {
    loop {
        // SAFETY: with interrupts off, `hlt` waits for ever (or for an NMI).
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// The registers that hold the program's segment bases while the CPU runs the kernel.
const FS_BASE: u32 = 0xc000_0100;
const KERNEL_GS_BASE: u32 = 0xc000_0102;

/// Returns the FS base of the program that runs on this CPU: any number. With FSGSBASE a program
/// can also set it to addresses of the kernel's half and, under QEMU's translation, to
/// non-canonical addresses.
#[inline]
pub fn user_fs_base() -> u64 {
    if features().fsgsbase {
        let base: u64;
        // SAFETY: CR4.FSGSBASE is on where the CPU has it; reading has no effect.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
        base
    } else {
        // SAFETY: every 64-bit CPU has the register.
        unsafe { read_msr(FS_BASE) }
    }
}

/// Returns the GS base of the program that runs on this CPU (the kernel's own is swapped in): any
/// number, as for [`user_fs_base`].
#[inline]
pub fn user_gs_base() -> u64 {
    // SAFETY: every 64-bit CPU has the register.
    unsafe { read_msr(KERNEL_GS_BASE) }
}

/// Sets the program's FS base. Returns false, and changes nothing, for an address outside of the
/// program's half.
#[inline]
pub fn set_user_fs_base(base: u64) -> bool {
    if base >= USER_END {
        return false;
    }
    load_fs_base(base);
    true
}

/// Sets the program's GS base. Returns false, and changes nothing, for an address outside of the
/// program's half.
#[inline]
pub fn set_user_gs_base(base: u64) -> bool {
    if base >= USER_END {
        return false;
    }
    load_base(KERNEL_GS_BASE, base);
    true
}

/// Restores the bases that [`user_fs_base`] and [`user_gs_base`] have read, whatever their values:
/// a base gives no right, because each access is checked at the address that it reaches. A number
/// that this processor refuses (`#GP`) becomes 0; that never happens to a number that was read from
/// this processor.
#[inline]
pub fn restore_user_bases(fs: u64, gs: u64) {
    load_fs_base(fs);
    load_base(KERNEL_GS_BASE, gs);
}

#[inline]
fn load_fs_base(base: u64) {
    if !features().fsgsbase {
        return load_base(FS_BASE, base);
    }
    // SAFETY: CR4.FSGSBASE is on where the CPU has it, and the kernel itself does not use FS. After
    // a fault (the address is not canonical) execution goes on with 0, which never faults.
    unsafe {
        asm!("2: wrfsbase {base}",
             ".pushsection .text.fixup,\"ax\",@progbits",
             "3: xor {base:e}, {base:e}", "jmp 2b", ".popsection",
             ".pushsection .ex_table,\"a\",@progbits", ".quad 2b, 3b", ".popsection",
             base = inout(reg) base => _, options(nomem, nostack));
    }
}

/// Writes `FS_BASE` or `KERNEL_GS_BASE`.
#[inline]
fn load_base(register: u32, base: u64) {
    // SAFETY: every 64-bit CPU has the registers; the kernel does not use FS, and does not use this
    // GS base until it swaps it back. After a fault execution goes on with 0 as above.
    unsafe {
        asm!("2: wrmsr",
             ".pushsection .text.fixup,\"ax\",@progbits",
             "3: xor eax, eax", "xor edx, edx", "jmp 2b", ".popsection",
             ".pushsection .ex_table,\"a\",@progbits", ".quad 2b, 3b", ".popsection",
             in("ecx") register, inout("eax") base as u32 => _,
             inout("edx") (base >> 32) as u32 => _, options(nomem, nostack));
    }
}

/// The first address that is not a user address: the last page of the lower half is never mapped.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;

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

pub(crate) use descriptors::{init as init_descriptors, set_kernel_stack};
pub(crate) use features::init as init_features;
