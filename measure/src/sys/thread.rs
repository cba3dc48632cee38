//! Threads of the C library, created and joined with nothing around them.

use std::ffi::c_void;
use std::io;

extern "C" fn nothing(_: *mut c_void) -> *mut c_void {
    std::ptr::null_mut()
}

/// pthread_create(3) of a thread that does nothing, and pthread_join(3).
#[inline(always)]
pub fn create_and_join() -> io::Result<()> {
    // SAFETY: a pthread_t is plain data that pthread_create fills in.
    let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: default attributes; the start routine ignores its argument.
    let error = unsafe {
        libc::pthread_create(&mut thread, std::ptr::null(), nothing, std::ptr::null_mut())
    };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the thread was created just above and is joined once.
    match unsafe { libc::pthread_join(thread, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
