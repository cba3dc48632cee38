//! Templates (docs/templates.md): a program that is ready is kept, and later starts begin there.
//!
//! ```no_run
//! use hayate_guest::template::{Made, Start, Template, make};
//!
//! // ... whatever takes long ...
//! let start = Box::leak(Box::new(Start::default()));
//! let ready = Template { name: c"mine", start, serves: Some(c"script\n"), files: None };
//! // SAFETY: this program has one thread.
//! match unsafe { make(ready)? } {
//!     Made::Kept => std::process::exit(0),
//!     Made::Started(start) => println!("{} arguments", start.argument_count),
//! }
//! # Ok::<(), std::io::Error>(())
//! ```

use super::{call, number};
use std::ffi::{CStr, CString, c_char};
use std::io::{Error, Result};
use std::ptr;

/// What a start was started with: `struct hayate_start`. The strings may be written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The arguments; a null pointer follows the last.
    pub arguments: *mut *mut c_char,
    /// Their number.
    pub argument_count: u64,
    /// The environment; a null pointer follows the last variable.
    pub environment: *mut *mut c_char,
    /// The number of its variables.
    pub environment_count: u64,
    /// The strings of the arguments, each with its NUL; those of the environment follow.
    pub strings: *mut c_char,
    /// The bytes of the arguments.
    pub arguments_size: u64,
    /// The bytes of the environment.
    pub environment_size: u64,
    /// The path or the name that was started.
    pub path: *mut c_char,
    /// Random bytes, other ones in each start.
    pub random: [u64; 2],
}

impl Default for Start {
    fn default() -> Start {
        Start {
            arguments: ptr::null_mut(),
            argument_count: 0,
            environment: ptr::null_mut(),
            environment_count: 0,
            strings: ptr::null_mut(),
            arguments_size: 0,
            environment_size: 0,
            path: ptr::null_mut(),
            random: [0; 2],
        }
    }
}

/// What a program says of the template that it is to be.
#[derive(Debug)]
pub struct Template<'a> {
    /// The name: letters, digits, `.`, `_`, `-`; at most 64.
    pub name: &'a CStr,
    /// Filled in at each start.
    pub start: &'static mut Start,
    /// Which starts it serves, a rule a line; without it, only those by name.
    pub serves: Option<&'a CStr>,
    /// The files that it was made of, one a line.
    pub files: Option<&'a CStr>,
}

/// `struct hayate_template`.
#[repr(C)]
pub(super) struct RawTemplate {
    name: u64,
    start: u64,
    serves: u64,
    files: u64,
    /// Not used here: the C library's variable, and the environment as pairs.
    environment: u64,
    variables: u64,
}

/// Where [`make`] returns.
#[derive(Debug)]
pub enum Made {
    /// Where it was called: the template is kept.
    Kept,
    /// In a start.
    Started(&'static Start),
}

fn address(text: Option<&CStr>) -> u64 {
    text.map_or(0, |text| text.as_ptr().addr() as u64)
}

/// Makes the calling program a template: the child of a fork, kept before its first instruction.
///
/// `EBUSY` (other threads, or children), `EMFILE` (descriptors above 2), `EINVAL` (the name, the
/// rules, writable shared memory), `EPERM` (set-user-id, changed ids, supervisor mode), `ENOSPC`.
///
/// # Safety
/// As for fork(2): no other thread of the program may run.
pub unsafe fn make(ready: Template<'_>) -> Result<Made> {
    let place = ptr::from_mut(ready.start);
    let raw = RawTemplate {
        name: address(Some(ready.name)),
        start: place.addr() as u64,
        serves: address(ready.serves),
        files: address(ready.files),
        environment: 0,
        variables: 0,
    };
    let from = (&raw const raw).addr();
    // SAFETY: `raw` has the layout that the call reads, and the place lives for ever.
    unsafe { call(number::TEMPLATE_READY, from, size_of::<RawTemplate>(), 0)? };
    // SAFETY: as the caller promises.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(Error::last_os_error()),
        0 => {
            // SAFETY: the kernel wrote it before this process ran, and no one else does.
            let start: &'static Start =
                unsafe { &*ptr::with_exposed_provenance(place.expose_provenance()) };
            if start.arguments.is_null() {
                // SAFETY: the child has nothing to do.
                unsafe { libc::_exit(0) }
            }
            Ok(Made::Started(start))
        }
        child => {
            // SAFETY: the child is this program's, and a null pointer asks for no status.
            while unsafe { libc::waitpid(child, ptr::null_mut(), 0) } == -1
                && Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
            Ok(Made::Kept)
        }
    }
}

/// Replaces the program by a start of the user's template, as `execve(2)` does by another program.
/// Returns only with an error: `ENOENT`, `EPERM` (of other rights than the caller's), `ENOMEM`.
pub fn start(name: &CStr, arguments: &[CString], environment: &[CString]) -> Error {
    let vector = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (vector(arguments), vector(environment));
    let (first, second) = (arguments.as_ptr().addr(), environment.as_ptr().addr());
    // SAFETY: the vectors end with null pointers and their strings with NULs; all outlive the call.
    match unsafe { call(number::TEMPLATE_START, name.as_ptr().addr(), first, second) } {
        Err(error) => error,
        Ok(_) => Error::from_raw_os_error(libc::ENOSYS),
    }
}

/// Removes a template and what is bound to it: one of the caller's, or of another user.
///
/// `ENOENT`, `EPERM`.
pub fn remove(name: &CStr, owner: Option<u32>) -> Result<()> {
    let owner = owner.map_or(usize::MAX, |owner| owner as usize);
    // SAFETY: the name ends with a NUL and outlives the call.
    unsafe { call(number::TEMPLATE_REMOVE, name.as_ptr().addr(), owner, 0) }.map(drop)
}

/// Binds a path to a template: programs executed by it begin there, if the template serves the
/// start. Without a template, they no longer do.
///
/// `EINVAL` (not absolute, or another program's path), `EOPNOTSUPP` (it serves no path), `ENOENT`,
/// `ENOSPC`.
pub fn bind(path: &CStr, name: Option<&CStr>) -> Result<()> {
    let name = address(name) as usize;
    // SAFETY: both texts end with NULs and outlive the call.
    unsafe { call(number::TEMPLATE_BIND, path.as_ptr().addr(), name, 0) }.map(drop)
}

/// Makes all descriptors above 2 close when a program is executed: they keep a program from being a
/// template.
pub fn close_all_but_streams() -> Result<()> {
    const CLOSE_RANGE_CLOEXEC: usize = 4;
    // SAFETY: the call takes numbers and touches no memory.
    unsafe { call(libc::SYS_close_range, 3, u32::MAX as usize, CLOSE_RANGE_CLOEXEC) }.map(drop)
}
