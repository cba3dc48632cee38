//! How the registers of a system call become arguments, and a handler's result a register.
//!
//! A KIND of the table is a type here that only carries how to decode and how to show; the
//! handler itself takes the plain value. Addresses reach the handler as numbers: it checks
//! them by making a `UserPtr` of them, and nothing can be read through a number.

use core::fmt::{self, Write};

use hayate_abi::{Errno, Result};

/// One kind of argument.
pub trait Argument {
    /// What the handler gets.
    type Value;
    /// Decodes a register, whose upper half a narrow argument ignores, as Linux does.
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
    /// A number.
    Int = i32, "{}", i32;
    /// A number without sign.
    Uint = u32, "{}", i32;
    /// A 64-bit number.
    Long = i64, "{}", i64;
    /// A number of bytes.
    Size = usize, "{}", u64;
    /// A place in a file.
    Offset = i64, "{}", i64;
    /// A word whose meaning depends on others.
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
        super::trace::show_string(raw as usize, out)
    }
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

/// A failed call's value in the register.
///
/// A restart code must meet signal delivery, which puts something else in its place, before the
/// program sees the register. Whoever sent the signal queues it first and interrupts us then, from
/// another processor even by way of an interrupt: a call that noticed the signal in between is
/// back here before the attention is raised, so we raise it ourselves. (Linux has the same duty:
/// `signal_pending` must not be true without `TIF_SIGPENDING`, `recalc_sigpending`,
/// kernel/signal.c.) On the way of errors only.
#[cold]
fn refused(error: Errno) -> i64 {
    if error.is_restart() {
        crate::schedule::current().interrupt();
    }
    error.to_return()
}
