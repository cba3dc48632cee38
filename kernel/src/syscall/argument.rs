//! Decoding of system-call arguments from registers, and of results into a register.
//!
//! A KIND of the table is a type here that only says how to decode and how to show an argument; the
//! handler itself gets the plain value. Addresses reach the handler as numbers. The handler checks
//! them by making a `UserPtr` of them; nothing can be read through a number.

use core::fmt::{self, Write};

use hayate_abi::{Errno, Result};

/// One kind of argument.
pub trait Argument {
    /// The type that the handler gets.
    type Value;
    /// Decodes a register; a narrow argument ignores its upper half, as in Linux.
    fn decode(raw: u64) -> Self::Value;
    /// Writes the argument as a trace shows it.
    fn show(raw: u64, out: &mut dyn Write) -> fmt::Result;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $value:ty, $format:literal, $shown:ty;)*) => {
        $(
            $(#[$doc])*
            pub struct $kind;

            impl Argument for $kind {
                type Value = $value;
                #[inline(always)]
                fn decode(raw: u64) -> $value {
                    raw as $value
                }
                fn show(raw: u64, out: &mut dyn Write) -> fmt::Result {
                    write!(out, $format, raw as $shown)
                }
            }
        )*
    };
}

kinds! {
    /// A signed 32-bit number.
    Int = i32, "{}", i32;
    /// An unsigned 32-bit number.
    Uint = u32, "{}", i32;
    /// A signed 64-bit number.
    Long = i64, "{}", i64;
    /// A number of bytes.
    Size = usize, "{}", u64;
    /// An offset in a file.
    Offset = i64, "{}", i64;
    /// A word whose meaning depends on other arguments.
    Word = usize, "{:#x}", u64;
    /// The address of data.
    Pointer = usize, "{:#x}", u64;
    /// Bits.
    Flags = u32, "{:#x}", u32;
    /// Permission bits.
    Mode = u32, "{:#o}", u32;
}

/// A file descriptor.
pub struct Fd;

impl Argument for Fd {
    type Value = i32;
    #[inline(always)]
    fn decode(raw: u64) -> i32 {
        raw as i32
    }
    fn show(raw: u64, out: &mut dyn Write) -> fmt::Result {
        match raw as i32 {
            hayate_abi::file::AT_FDCWD => out.write_str("AT_FDCWD"),
            fd => write!(out, "{fd}"),
        }
    }
}

/// The address of a string that ends with a NUL.
pub struct Path;

impl Argument for Path {
    type Value = usize;
    #[inline(always)]
    fn decode(raw: u64) -> usize {
        raw as usize
    }
    fn show(raw: u64, out: &mut dyn Write) -> fmt::Result {
        show_string(raw as usize, out)
    }
}

/// Bytes of a string argument that are shown.
const SHOWN: usize = 64;

/// Writes a program's string argument, or its address if it cannot be read.
fn show_string(address: usize, out: &mut dyn Write) -> fmt::Result {
    let mut bytes = [0u8; SHOWN];
    let Ok(length) = hayate_machine::user::read_cstr(&mut bytes, address) else {
        return write!(out, "{address:#x}");
    };
    let shown = bytes.get(..length).unwrap_or(&bytes);
    write!(out, "\"{}\"{}", shown.escape_ascii(), if length >= SHOWN { "..." } else { "" })
}

/// A result that fits the return register.
pub trait Returned {
    /// The register's value.
    fn to_register(self) -> i64;
}

macro_rules! returned {
    ($($value:ty)*) => {
        $(impl Returned for $value {
            #[inline(always)]
            fn to_register(self) -> i64 {
                self as i64
            }
        })*
    };
}

returned! { i32 u32 i64 u64 usize }

impl Returned for () {
    #[inline(always)]
    fn to_register(self) -> i64 {
        0
    }
}

impl<T: Returned> Returned for Result<T> {
    #[inline(always)]
    fn to_register(self) -> i64 {
        match self {
            Ok(value) => value.to_register(),
            Err(error) => refused(error),
        }
    }
}

/// The register value of a failed call.
///
/// A restart code must meet signal delivery, which replaces it, before the program sees the
/// register. The sender of a signal queues it first and then interrupts this thread, from another
/// processor even by an interrupt. A call that noticed the signal in between returns here before
/// the attention is raised, so it is raised here. (Linux must do the same: `signal_pending` must
/// not be true without `TIF_SIGPENDING`, `recalc_sigpending`, kernel/signal.c.) Only on the error
/// path.
#[cold]
fn refused(error: Errno) -> i64 {
    if error.is_restart() {
        crate::schedule::current().interrupt();
    }
    error.to_return()
}
