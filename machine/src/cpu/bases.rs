//! The segment bases of the program that runs.

use core::arch::asm;

use super::features::features;
use super::registers::read_msr;
use crate::layout;

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
pub const USER_END: u64 = layout::USER_END as u64;
