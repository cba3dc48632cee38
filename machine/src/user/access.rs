//! The instructions that touch the program's memory, each listed in the exception table.
//!
//! SMAP is opened by `stac` right before and closed by `clac` right after. On a processor without
//! SMAP both are invalid; `.smap_sites` lists them and
//! [`patch_out_smap`](super::sites::patch_out_smap) turns them into no-ops there.

use crate::layout::USER_END;
use core::arch::{asm, naked_asm};
use hayate_abi::{Errno, Result};

/// Whether `len` bytes at `address` lie in the program's half (an empty range may be anywhere in
/// it).
#[inline]
pub fn in_user_half(address: usize, len: usize) -> bool {
    len <= USER_END && address <= USER_END - len
}

/// `stac`, listed in `.smap_sites`.
macro_rules! stac {
    () => {
        "980: stac\n.pushsection .smap_sites,\"a\",@progbits\n.quad 980b\n.popsection\n"
    };
}

/// `clac`, listed in `.smap_sites`.
macro_rules! clac {
    () => {
        "981: clac\n.pushsection .smap_sites,\"a\",@progbits\n.quad 981b\n.popsection\n"
    };
}

/// An entry of the exception table: after a fault at the first label execution continues at the
/// second.
macro_rules! on_fault {
    ($at:literal, $then:literal) => {
        concat!(
            ".pushsection .ex_table,\"a\",@progbits\n.quad ",
            $at,
            ", ",
            $then,
            "\n.popsection\n"
        )
    };
}

/// Copies `len` bytes; returns how many were left when an access failed (0: all copied).
///
/// # Safety
/// The side that is the program's must be checked to lie in its half; the other side must be memory
/// of the kernel that may be read or written for `len` bytes.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy(to: usize, from: usize, len: usize) -> usize {
    // rdi = to, rsi = from, rdx = len. The string instructions keep rcx exact at a fault.
    naked_asm!(
        "mov rcx, rdx",
        "and edx, 7",
        "shr rcx, 3",
        stac!(),
        "2: rep movsq",
        "mov ecx, edx",
        "3: rep movsb",
        "4:",
        clac!(),
        "mov rax, rcx",
        "ret",
        // The fault was among the words: rcx words and rdx bytes are left. Continue byte by byte,
        // to copy everything up to the bad page.
        "5: lea rcx, [rdx + rcx * 8]",
        "jmp 3b",
        on_fault!("2b", "5b"),
        on_fault!("3b", "4b"),
    )
}

/// Writes `len` zero bytes; returns how many were left when an access failed.
///
/// # Safety
/// `to` must be checked to lie in the program's half.
#[inline(always)]
pub(super) unsafe fn zero(to: usize, len: usize) -> usize {
    let left: usize;
    // SAFETY: the caller's promise; after a fault execution continues behind the loop with the rest
    // in rcx, as the string instructions keep it. Inlined, so that the caller need not save
    // registers for a call.
    unsafe {
        asm!(stac!(), "2: rep stosq", "mov ecx, {tail:e}", "3: rep stosb", "4:", clac!(),
             ".pushsection .text.fixup,\"ax\",@progbits",
             "5: lea rcx, [{tail} + rcx * 8]", "jmp 3b", ".popsection",
             on_fault!("2b", "5b"), on_fault!("3b", "4b"),
             tail = in(reg) len & 7, in("rax") 0,
             inout("rdi") to => _, inout("rcx") len >> 3 => left, options(nostack));
    }
    left
}

/// [`copy`] for a size known at compile time: four and eight bytes are one move.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
pub(super) unsafe fn copy_value(to: usize, from: usize, len: usize) -> usize {
    let mut left = 0usize;
    match len {
        8 => {
            // SAFETY: the caller's promise; after a fault execution continues at the label behind,
            // with `left` set.
            unsafe {
                asm!(stac!(), "2: mov {word}, [{from}]", "3: mov [{to}], {word}", "4:", clac!(),
                     ".pushsection .text.fixup,\"ax\",@progbits",
                     "5: mov {left:e}, 8", "jmp 4b", ".popsection",
                     on_fault!("2b", "5b"), on_fault!("3b", "5b"),
                     word = out(reg) _, from = in(reg) from, to = in(reg) to,
                     left = inout(reg) left, options(nostack));
            }
            left
        }
        4 => {
            // SAFETY: as above.
            unsafe {
                asm!(stac!(), "2: mov {word:e}, [{from}]", "3: mov [{to}], {word:e}", "4:", clac!(),
                     ".pushsection .text.fixup,\"ax\",@progbits",
                     "5: mov {left:e}, 4", "jmp 4b", ".popsection",
                     on_fault!("2b", "5b"), on_fault!("3b", "5b"),
                     word = out(reg) _, from = in(reg) from, to = in(reg) to,
                     left = inout(reg) left, options(nostack));
            }
            left
        }
        // SAFETY: the caller's promise.
        _ => unsafe { copy(to, from, len) },
    }
}

fn check_word(address: usize) -> Result<()> {
    if in_user_half(address, 4) && address.is_multiple_of(4) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Reads an aligned word of the program's memory atomically (a futex).
///
/// # Errors
/// `EFAULT` for an address that cannot be read or is not aligned; futex callers check the alignment
/// first and fail with `EINVAL`.
pub fn load_u32(address: usize) -> Result<u32> {
    check_word(address)?;
    let (value, bad): (u32, u32);
    // SAFETY: in the program's half; a fault sets `bad`. An aligned four-byte move is atomic.
    unsafe {
        asm!("xor {bad:e}, {bad:e}", stac!(), "2: mov {value:e}, [{at}]", "4:", clac!(),
             ".pushsection .text.fixup,\"ax\",@progbits",
             "5: mov {bad:e}, 1", "xor {value:e}, {value:e}", "jmp 4b", ".popsection",
             on_fault!("2b", "5b"),
             bad = out(reg) bad, value = out(reg) value, at = in(reg) address, options(nostack));
    }
    if bad == 0 { Ok(value) } else { Err(Errno::EFAULT) }
}

/// Writes an aligned word of the program's memory atomically.
pub fn store_u32(address: usize, value: u32) -> Result<()> {
    check_word(address)?;
    let bad: u32;
    // SAFETY: as for `load_u32`.
    unsafe {
        asm!("xor {bad:e}, {bad:e}", stac!(), "2: mov [{at}], {value:e}", "4:", clac!(),
             ".pushsection .text.fixup,\"ax\",@progbits",
             "5: mov {bad:e}, 1", "jmp 4b", ".popsection",
             on_fault!("2b", "5b"),
             bad = out(reg) bad, value = in(reg) value, at = in(reg) address, options(nostack));
    }
    if bad == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Replaces an aligned word by `new` if it is `old`; returns the previous value.
pub fn compare_exchange_u32(address: usize, old: u32, new: u32) -> Result<u32> {
    check_word(address)?;
    let (bad, found): (u32, u32);
    // SAFETY: as for `load_u32`; `lock cmpxchg` is atomic.
    unsafe {
        asm!("xor {bad:e}, {bad:e}", stac!(), "2: lock cmpxchg [{at}], {new:e}", "4:", clac!(),
             ".pushsection .text.fixup,\"ax\",@progbits",
             "5: mov {bad:e}, 1", "jmp 4b", ".popsection",
             on_fault!("2b", "5b"),
             bad = out(reg) bad, new = in(reg) new, at = in(reg) address,
             inout("eax") old => found, options(nostack));
    }
    if bad == 0 { Ok(found) } else { Err(Errno::EFAULT) }
}

/// Replaces an aligned word by the result of `change`, atomically; returns the old value
/// (FUTEX_WAKE_OP).
pub fn fetch_update_u32(address: usize, change: impl Fn(u32) -> u32) -> Result<u32> {
    let mut old = load_u32(address)?;
    loop {
        let found = compare_exchange_u32(address, old, change(old))?;
        if found == old {
            return Ok(old);
        }
        old = found;
    }
}
