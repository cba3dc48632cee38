//! Which devices a container may use: a program of bpf(2) at its control group.

use crate::{During, Failure};
use hayate_container_plan::device::{Rule, program};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Commands, kinds and flags (include/uapi/linux/bpf.h).
const LOAD: libc::c_int = 5;
const ATTACH: libc::c_int = 8;
const KIND: u32 = 15;
const PLACE: u32 = 6;
const ALLOW_MULTI: u32 = 2;

/// `union bpf_attr`, for a program that is loaded.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 2],
    log_buffer: u64,
    kernel: u32,
    flags: u32,
}

/// The same, for one that is attached.
#[repr(C)]
struct Attach {
    target: u32,
    program: u32,
    place: u32,
    flags: u32,
}

/// Lets the members of a group use only the devices that the rules allow.
pub fn attach(group: &File, rules: &[Rule]) -> Result<(), Failure> {
    let tried = "cannot limit the use of devices";
    let bytes = program(rules)?;
    // As words, so that they lie where instructions must.
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let load = Load {
        kind: KIND,
        count: u32::try_from(words.len()).during(tried)?,
        instructions: words.as_ptr() as u64,
        license: c"".as_ptr() as u64,
        ..Load::default()
    };
    let loaded = RawFd::try_from(call(LOAD, &load).during(tried)?).during(tried)?;
    // SAFETY: the call has made the descriptor, and nothing else owns it.
    let loaded = unsafe { OwnedFd::from_raw_fd(loaded) };
    let number = |fd: RawFd| u32::try_from(fd).during(tried);
    let attach = Attach {
        target: number(group.as_raw_fd())?,
        program: number(loaded.as_raw_fd())?,
        place: PLACE,
        flags: ALLOW_MULTI,
    };
    call(ATTACH, &attach).map(drop).during(tried)
}

/// Makes the system call; addresses in the argument are of memory that outlives it.
fn call<T>(command: libc::c_int, argument: &T) -> Result<libc::c_long, Error> {
    // SAFETY: the kernel reads the argument, whose size it is told, and memory that this names,
    // and writes nowhere.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(argument), size_of::<T>())
    };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}
