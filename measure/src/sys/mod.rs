//! The C ABI boundary: every unsafe block that makes system calls, behind safe functions.
//!
//! Experiments use these wrappers and not the C library where the library would add work of its own
//! to the measurement; the operations are the plain system calls of the manual pages (section 2).

pub mod memory;
pub mod priority;
pub mod process;
pub mod raw;
pub mod signal;
pub mod thread;

/// The size of a base page on x86-64.
pub const PAGE: usize = 4096;

/// Online processors that this process may run on, at least 1.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Returns the numbers of the processors that this process may run on; empty if the kernel does not
/// say.
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: cpu_set_t is plain data, for which all bytes zero is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer and the size describe `set`, which the kernel fills in.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) };
    if got != 0 {
        return Vec::new();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below CPU_SETSIZE.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect()
}

/// Pins the calling thread (and its future children) to `cpus`.
pub fn pin(cpus: &[usize]) -> std::io::Result<()> {
    // SAFETY: as in `allowed_cpus`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus.iter().filter(|c| **c < libc::CPU_SETSIZE as usize) {
        // SAFETY: the index was checked against CPU_SETSIZE.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: the pointer and the size describe `set`, which the kernel only reads.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
