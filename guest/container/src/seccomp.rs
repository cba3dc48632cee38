//! The filter of system calls of a container's programs.

use crate::{During, Failure};
use hayate_container_plan::filter::Filter;
use std::io::Error;

/// `SECCOMP_SET_MODE_FILTER` (include/uapi/linux/seccomp.h).
const SET_FILTER: libc::c_uint = 1;

/// `struct sock_fprog`
#[repr(C)]
struct Program {
    count: u16,
    instructions: *const u64,
}

/// Installs a filter, which counts for this thread and what it becomes. It has to be allowed to:
/// by the capability `SYS_ADMIN`, or as it has renounced privileges (seccomp(2)).
pub fn install(filter: &Filter) -> Result<(), Failure> {
    let tried = "cannot install the filter of system calls";
    let count = u16::try_from(filter.program.len()).during(tried)?;
    // An instruction is eight bytes, in the order that the number has here.
    let program = Program { count, instructions: filter.program.as_ptr() };
    // SAFETY: the kernel reads the program, whose length it is told, and writes nowhere.
    let result = unsafe {
        let program = std::ptr::from_ref(&program);
        libc::syscall(libc::SYS_seccomp, SET_FILTER, filter.flags, program)
    };
    if result == 0 { Ok(()) } else { Err(Failure::new(tried, Error::last_os_error())) }
}
