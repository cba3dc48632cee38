//! Clearing and copying of frames, by their numbers, through the direct map.
//!
//! A program may write to a frame on another processor while the kernel copies it. So nothing here
//! makes a Rust reference to a frame's bytes; the copies are single instructions in assembly, for
//! which a concurrent write yields torn data and nothing worse.
//!
//! Whole frames are cleared and copied with the processor's widest plain moves (32 bytes with AVX,
//! otherwise `rep stosq` and `rep movsq`). If the processor reports that `rep stosb` and
//! `rep movsb` are fast, and is not an emulator, for which they are the slowest of all, these are
//! used instead. The vector register belongs to the program that runs, so it is saved and restored.
//! QEMU's instruction counter counts every repetition of a string instruction as one instruction:
//! clearing a frame takes 150 instructions with AVX and 512 with `rep stosq`. Miri, which
//! interprets no assembly, gets plain writes.

use crate::cpu::features;
use crate::layout::{PAGE_SHIFT, PAGE_SIZE, direct_map};
use core::arch::asm;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

/// Returns the address of a physical address in the direct map.
#[inline]
pub(crate) fn direct(physical: u64) -> *mut u8 {
    (direct_map() + physical as usize) as *mut u8
}

/// Returns the physical address of a pointer into the direct map.
#[inline]
pub(crate) fn physical(pointer: *const u8) -> u64 {
    (pointer as usize - direct_map()) as u64
}

/// Returns the address of a frame's first byte in the direct map.
#[inline]
pub(super) fn bytes(number: u32) -> *mut u8 {
    direct(u64::from(number) << PAGE_SHIFT)
}

/// How whole frames are cleared and copied.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Way {
    /// `rep stosq`, `rep movsq`.
    Words,
    /// Moves of 32 bytes.
    Wide,
    /// `rep stosb`, `rep movsb`.
    Bytes,
}

static WAY: AtomicU8 = AtomicU8::new(Way::Words as u8);

/// Chooses how frames are cleared and copied, once the processor's features are known and AVX is
/// enabled.
pub(super) fn choose() {
    if cfg!(miri) {
        return;
    }
    let cpu = features();
    let emulated = cpu.hypervisor && {
        let leaf = core::arch::x86_64::__cpuid(0x4000_0000);
        // "TCGTCGTCGTCG"
        (leaf.ebx, leaf.ecx, leaf.edx) == (0x5447_4354, 0x4354_4743, 0x4743_5447)
    };
    const AVX: u64 = 4;
    let way = if cpu.erms && !emulated {
        Way::Bytes
    } else if cpu.xcr0 & AVX != 0 && cpu.xsave {
        Way::Wide
    } else {
        Way::Words
    };
    WAY.store(way as u8, Relaxed);
}

/// Fills a frame with zeroes.
#[inline]
pub(crate) fn zero(number: u32) {
    // SAFETY: frame numbers are those of memory, all of which is in the direct map; there is no
    // Rust reference to a frame's content.
    unsafe { zero_pages(bytes(number), 1) };
}

/// Fills `pages` pages with zeroes.
///
/// # Safety
/// They must be writable memory, page-aligned, to which there is no Rust reference.
#[inline]
pub(super) unsafe fn zero_pages(to: *mut u8, pages: usize) {
    if cfg!(miri) {
        // SAFETY: the caller's promise.
        return unsafe { to.write_bytes(0, pages * PAGE_SIZE) };
    }
    if WAY.load(Relaxed) == Way::Wide as u8 {
        let mut kept = MaybeUninit::<[u64; 4]>::uninit();
        // SAFETY: the caller's promise; the register, which the program may be using, is restored.
        unsafe {
            asm!("vmovdqu [{kept}], ymm0", "vpxor xmm0, xmm0, xmm0",
                 "2:",
                 ".irp at, 0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480",
                 "vmovdqa [{to} + \\at], ymm0",
                 ".endr",
                 "add {to}, 512", "dec {count:e}", "jnz 2b",
                 "vmovdqu ymm0, [{kept}]",
                 kept = in(reg) kept.as_mut_ptr(), to = inout(reg) to => _,
                 count = inout(reg) pages * (PAGE_SIZE / 512) => _, options(nostack));
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { zero_by_strings(to, pages * PAGE_SIZE) };
}

/// # Safety
/// As for [`zero_pages`].
#[cold]
unsafe fn zero_by_strings(to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if WAY.load(Relaxed) == Way::Bytes as u8 {
            asm!("rep stosb", inout("rdi") to => _, inout("rcx") len => _, in("al") 0u8,
                 options(nostack, preserves_flags));
        } else {
            asm!("rep stosq", inout("rdi") to => _, inout("rcx") len / 8 => _,
                 in("rax") 0u64, options(nostack, preserves_flags));
        }
    }
}

/// Copies a frame's whole content to another one, by their numbers.
pub(crate) fn copy_numbered(to: u32, from: u32) {
    copy_frame(bytes(to), bytes(from));
}

/// Copies a whole frame.
#[inline]
pub(super) fn copy_frame(to: *mut u8, from: *const u8) {
    if cfg!(miri) {
        return copy(to, from, PAGE_SIZE);
    }
    if WAY.load(Relaxed) == Way::Wide as u8 {
        let mut kept = MaybeUninit::<[u64; 4]>::uninit();
        // SAFETY: two whole frames of memory; see `zero`.
        unsafe {
            asm!("vmovdqu [{kept}], ymm0",
                 "2:",
                 ".irp at, 0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480",
                 "vmovdqa ymm0, [{from} + \\at]",
                 "vmovdqa [{to} + \\at], ymm0",
                 ".endr",
                 "add {to}, 512", "add {from}, 512", "dec {count:e}", "jnz 2b",
                 "vmovdqu ymm0, [{kept}]",
                 kept = in(reg) kept.as_mut_ptr(), to = inout(reg) to => _,
                 from = inout(reg) from => _, count = inout(reg) PAGE_SIZE / 512 => _,
                 options(nostack));
        }
        return;
    }
    // SAFETY: two whole frames of memory; see `zero`.
    unsafe {
        if WAY.load(Relaxed) == Way::Bytes as u8 {
            asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _,
                 inout("rcx") PAGE_SIZE => _, options(nostack, preserves_flags));
        } else {
            asm!("rep movsq", inout("rdi") to => _, inout("rsi") from => _,
                 inout("rcx") PAGE_SIZE / 8 => _, options(nostack, preserves_flags));
        }
    }
}

/// Copies bytes; the caller gives ranges inside one frame, or inside a slice that it holds.
#[inline]
pub(super) fn copy(to: *mut u8, from: *const u8, len: usize) {
    if cfg!(miri) {
        // SAFETY: the callers below give ranges inside one frame, or inside a slice they hold.
        return unsafe { core::ptr::copy(from, to, len) };
    }
    // SAFETY: the callers below give ranges inside one frame, or inside a slice they hold.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) len & 7,
             inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len / 8 => _,
             options(nostack, preserves_flags));
    }
}

/// Returns the sum of bytes as little-endian words of 64 bits, the last filled up with zeroes, with
/// the carry of each addition added below: the sum of the Internet's checksum (RFC 1071) in wide
/// words. The caller gives a range inside contiguous frames.
pub(super) fn sum(from: *const u8, len: usize) -> u64 {
    let mut last = [0; 8];
    copy(last.as_mut_ptr(), from.wrapping_add(len & !7), len & 7);
    let last = u64::from_le_bytes(last);
    if cfg!(miri) {
        let plus = |sum: u64, word: u64| {
            let (sum, carry) = sum.overflowing_add(word);
            sum + u64::from(carry)
        };
        return (0..len / 8).fold(last, |sum, at| {
            // SAFETY: a word of the caller's range.
            plus(sum, unsafe { from.cast::<u64>().add(at).read_unaligned() })
        });
    }
    let mut sum = last;
    // SAFETY: the loops read `len / 64` times eight words and then the further whole words of the
    // caller's range. `dec` and `lea` leave the carry alone, which each `adc` takes on; `test`
    // clears it.
    unsafe {
        asm!("test {blocks}, {blocks}", "jz 3f",
             "2:",
             ".irp at, 0, 8, 16, 24, 32, 40, 48, 56",
             "adc {sum}, [{from} + \\at]",
             ".endr",
             "lea {from}, [{from} + 64]", "dec {blocks}", "jnz 2b",
             "adc {sum}, 0",
             "3:", "test {words}, {words}", "jz 5f",
             "4:",
             "adc {sum}, [{from}]",
             "lea {from}, [{from} + 8]", "dec {words}", "jnz 4b",
             "adc {sum}, 0",
             "5:",
             sum = inout(reg) sum, from = inout(reg) from => _,
             blocks = inout(reg) len / 64 => _, words = inout(reg) len / 8 % 8 => _,
             options(nostack, readonly));
    }
    sum
}
