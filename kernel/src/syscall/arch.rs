//! Calls that exist on x86-64 only: arch_prctl(2).

use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::user::UserPtr;

use crate::process;

const ARCH_SET_GS: i32 = 0x1001;
const ARCH_SET_FS: i32 = 0x1002;
const ARCH_GET_FS: i32 = 0x1003;
const ARCH_GET_GS: i32 = 0x1004;

/// arch_prctl(2): the bases of the FS and GS segments. EPERM for an address outside the user half.
/// CPUID faulting and the permission of AMX state are not implemented (EINVAL, as on a processor
/// without them).
pub fn arch_prctl(code: i32, address: usize) -> Result<()> {
    let thread = process::current();
    match code {
        ARCH_SET_FS => thread.set_fs_base(address as u64),
        ARCH_SET_GS => thread.set_gs_base(address as u64),
        ARCH_GET_FS => UserPtr::new(address).write(&cpu::user_fs_base()),
        ARCH_GET_GS => UserPtr::new(address).write(&cpu::user_gs_base()),
        _ => Err(Errno::EINVAL),
    }
}
