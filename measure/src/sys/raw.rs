//! System calls without a library in between, to time only the kernel.
//!
//! Every function returns the kernel's `rax`: a result, or a negated errno.

use std::arch::asm;
use std::ffi::CStr;

/// Executes system call `number`.
///
/// # Safety
/// The arguments must be such that the call does not break memory that Rust relies on.
#[inline(always)]
pub unsafe fn syscall(number: usize, a: [usize; 6]) -> isize {
    let result;
    // SAFETY: `syscall` clobbers rcx and r11 and returns in rax (System V ABI, A.2.1); its effect
    // on memory is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Hayate's numbers (guest/interface/include/hayate.h).
const SWITCH_SUPERVISOR: usize = 1010;
const SWITCH_USER: usize = 1011;

/// Hayate's switch_supervisor: process `pid` (0: this one) continues in ring 0.
pub fn switch_supervisor(pid: usize, flags: usize) -> isize {
    // SAFETY: it takes numbers and changes no memory; the program continues where it was.
    unsafe { syscall(SWITCH_SUPERVISOR, [pid, flags, 0, 0, 0, 0]) }
}

/// Hayate's switch_user: back to ring 3.
pub fn switch_user(pid: usize) -> isize {
    // SAFETY: as above.
    unsafe { syscall(SWITCH_USER, [pid, 0, 0, 0, 0, 0]) }
}

/// Whether this program runs in ring 0.
pub fn in_ring_0() -> bool {
    let segment: u16;
    // SAFETY: reading a segment register has no effect.
    unsafe { asm!("mov {:x}, cs", out(reg) segment, options(nomem, nostack, preserves_flags)) };
    segment & 3 == 0
}

macro_rules! plain_calls {
    ($($(#[$doc:meta])* $name:ident = $number:ident ($($arg:ident),*);)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($($arg: usize),*) -> isize {
            #[allow(unused_mut, reason = "calls without arguments leave the list as it is")]
            let mut a = [0; 6];
            let mut _i = 0;
            $(a[_i] = $arg; _i += 1;)*
            // SAFETY: this call takes no pointers and changes no memory of the process.
            unsafe { syscall(libc::$number as usize, a) }
        }
    )*};
}

plain_calls! {
    /// getppid(2)
    getppid = SYS_getppid();
    /// getpid(2)
    getpid = SYS_getpid();
    /// sched_yield(2)
    sched_yield = SYS_sched_yield();
    /// close(2) of a descriptor number
    close = SYS_close(fd);
    /// dup(2)
    dup = SYS_dup(fd);
    /// lseek(2)
    lseek = SYS_lseek(fd, offset, whence);
    /// kill(2)
    kill = SYS_kill(pid, signal);
}

/// Makes a system call that does not exist in any kernel: entry, refusal and return, the cheapest
/// way in and out.
#[inline(always)]
pub fn nothing() -> isize {
    // SAFETY: the kernel fails with ENOSYS for an unknown number and touches nothing.
    unsafe { syscall(0xffff, [0; 6]) }
}

/// read(2)
#[inline(always)]
pub fn read(fd: i32, buffer: &mut [u8]) -> isize {
    let a = [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the kernel writes at most the buffer's length into it.
    unsafe { syscall(libc::SYS_read as usize, a) }
}

/// write(2)
#[inline(always)]
pub fn write(fd: i32, buffer: &[u8]) -> isize {
    let a = [fd as usize, buffer.as_ptr() as usize, buffer.len(), 0, 0, 0];
    // SAFETY: the kernel only reads the buffer.
    unsafe { syscall(libc::SYS_write as usize, a) }
}

/// pread64(2)
#[inline(always)]
pub fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> isize {
    let a = [fd as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0];
    // SAFETY: the kernel writes at most the buffer's length into it.
    unsafe { syscall(libc::SYS_pread64 as usize, a) }
}

/// pwrite64(2)
#[inline(always)]
pub fn pwrite(fd: i32, buffer: &[u8], offset: u64) -> isize {
    let a = [fd as usize, buffer.as_ptr() as usize, buffer.len(), offset as usize, 0, 0];
    // SAFETY: the kernel only reads the buffer.
    unsafe { syscall(libc::SYS_pwrite64 as usize, a) }
}

/// Room for a `struct stat`.
pub type StatBuffer = [u64; 18];

/// stat(2)
#[inline(always)]
pub fn stat(path: &CStr, buffer: &mut StatBuffer) -> isize {
    let a = [path.as_ptr() as usize, buffer.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the path ends in a zero byte; struct stat has 144 bytes, as has the buffer.
    unsafe { syscall(libc::SYS_stat as usize, a) }
}

/// fstat(2)
#[inline(always)]
pub fn fstat(fd: i32, buffer: &mut StatBuffer) -> isize {
    let a = [fd as usize, buffer.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: struct stat has 144 bytes, as has the buffer.
    unsafe { syscall(libc::SYS_fstat as usize, a) }
}

/// open(2) with mode 0600
#[inline(always)]
pub fn open(path: &CStr, flags: i32) -> isize {
    let a = [path.as_ptr() as usize, flags as usize, 0o600, 0, 0, 0];
    // SAFETY: the path ends in a zero byte.
    unsafe { syscall(libc::SYS_open as usize, a) }
}

/// unlink(2)
#[inline(always)]
pub fn unlink(path: &CStr) -> isize {
    // SAFETY: the path ends in a zero byte.
    unsafe { syscall(libc::SYS_unlink as usize, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) }
}

/// rename(2)
#[inline(always)]
pub fn rename(from: &CStr, to: &CStr) -> isize {
    let a = [from.as_ptr() as usize, to.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: both paths end in a zero byte.
    unsafe { syscall(libc::SYS_rename as usize, a) }
}

/// Calls brk(2): returns the break after the call; `at` 0 returns the present one.
///
/// # Safety
/// Nothing may use memory between the old and the new break; the C library must not be growing its
/// heap by brk at the same time.
#[inline(always)]
pub unsafe fn brk(at: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_brk as usize, [at, 0, 0, 0, 0, 0]) }
}

/// futex(2), FUTEX_WAIT: sleeps while the word is `expected`.
#[inline(always)]
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, expected: u32) -> isize {
    let a = [word.as_ptr() as usize, libc::FUTEX_WAIT as usize, expected as usize, 0, 0, 0];
    // SAFETY: the word lives at least as long as the call; the kernel only reads it.
    unsafe { syscall(libc::SYS_futex as usize, a) }
}

/// futex(2), FUTEX_WAKE of one waiter.
#[inline(always)]
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) -> isize {
    let a = [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
    // SAFETY: the kernel uses the address as a key.
    unsafe { syscall(libc::SYS_futex as usize, a) }
}

/// Calls clock_gettime(2) as a real system call, without the vDSO; seconds and nanoseconds.
#[inline(always)]
pub fn clock_gettime_by_call(clock: i32, into: &mut [i64; 2]) -> isize {
    let a = [clock as usize, into.as_mut_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: struct timespec is two 64-bit integers, as is the buffer.
    unsafe { syscall(libc::SYS_clock_gettime as usize, a) }
}

/// Turns the result of a call into one that carries the system's message.
pub fn checked(result: isize) -> std::io::Result<usize> {
    usize::try_from(result).map_err(|_| std::io::Error::from_raw_os_error(-result as i32))
}
