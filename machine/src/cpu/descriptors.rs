//! Segments and the task state segment of each CPU.
//!
//! `syscall` and `sysret` dictate the order of the selectors: kernel code, kernel data; user data,
//! user code. Faults that may arrive with a bad stack (double fault, NMI, machine check) and debug
//! exceptions (which can hit the first instruction of the system call entry, on the program's
//! stack) have interrupt stacks of their own. A fourth interrupt stack is for every other vector
//! while a space in supervisor mode is loaded (see `trap::supervisor`).

use core::arch::asm;
use core::mem::size_of;

use super::local::{PerCpu, gs_base, id};
use super::word::Word;
use crate::per_cpu;

/// The kernel's code segment.
pub const KERNEL_CS: u16 = 0x08;
/// The kernel's data segment.
pub const KERNEL_DS: u16 = 0x10;
/// The user's data segment. 0x2b and 0x33, as under Linux: some programs check the values.
pub const USER_DS: u16 = 0x28 | 3;
/// The user's 64-bit code segment.
pub const USER_CS: u16 = 0x30 | 3;
const TSS: u16 = 0x38;
/// A segment whose limit is the processor's number, which programs read by `lsl` (Linux'
/// `__CPUNODE_SEG`, with its number).
pub const CPU_NUMBER: u16 = 0x78 | 3;
/// How many descriptors there are.
const DESCRIPTORS_HERE: usize = CPU_NUMBER as usize / 8 + 1;

/// Interrupt stack of double faults.
pub(crate) const DOUBLE_FAULT_IST: u8 = 1;
/// Interrupt stack of NMI and machine check.
pub(crate) const FATAL_IST: u8 = 2;
/// Interrupt stack of debug exceptions.
pub(crate) const DEBUG_IST: u8 = 3;
/// Interrupt stack of every other vector in supervisor mode.
pub(crate) const SUPERVISOR_IST: u8 = 4;

const IST_SIZE: usize = 8 * 1024;
const STACKS: usize = 4;

/// The 64-bit TSS (SDM vol. 3, 8.7), cut into 32-bit words because its fields are not aligned.
#[repr(C, align(64))]
struct Descriptors {
    tss: [u32; 26],
    gdt: [u64; DESCRIPTORS_HERE],
    limit_and_base: [u16; 5],
    stacks: [[u64; IST_SIZE / 8]; STACKS],
}

#[expect(dead_code, reason = "the processor reads it; we reach it by its address")]
struct Holder(core::cell::UnsafeCell<Descriptors>);
// SAFETY: written once by its own CPU before any use; afterwards only by `set_kernel_stack`, on it.
unsafe impl Sync for Holder {}

per_cpu! {
    static DESCRIPTORS: PerCpu<Holder> = PerCpu::new(Holder(core::cell::UnsafeCell::new(Descriptors {
        tss: [0; 26],
        gdt: [0; DESCRIPTORS_HERE],
        limit_and_base: [0; 5],
        stacks: [[0; IST_SIZE / 8]; STACKS],
    })));
}

/// The top of the current thread's kernel stack less one word; the system call entry loads it. The
/// frame of 21 words that is pushed there ends at a multiple of 16, as calls require.
// SAFETY: the per-CPU template; the name is the entry stub's.
#[unsafe(link_section = ".percpu")]
#[unsafe(export_name = "hayate_kernel_stack")]
static KERNEL_STACK: Word = Word::new(0);

/// Makes `top` the kernel stack for entries from user mode on this CPU; 0 if there is none.
#[inline(always)]
pub(crate) fn set_kernel_stack(top: u64) {
    KERNEL_STACK.set(top.wrapping_sub(8));
    let descriptors = DESCRIPTORS.pointer() as *mut Descriptors;
    // SAFETY: RSP0 of this CPU's own TSS, at offset 4; the CPU reads it only at the next entry.
    unsafe { (&raw mut (*descriptors).tss[1]).cast::<u64>().write_unaligned(top) };
}

/// The top of the current thread's kernel stack.
#[cfg(debug_assertions)]
pub(crate) fn kernel_stack() -> u64 {
    KERNEL_STACK.get().wrapping_add(8)
}

/// Loads segments and task register of this CPU.
pub(crate) fn init() {
    let descriptors = DESCRIPTORS.pointer() as *mut Descriptors;
    // SAFETY: this is the per-CPU instance, not in use yet; all addresses written are of memory
    // that is never freed, and the selectors fit the table built here.
    unsafe {
        let tss = &raw mut (*descriptors).tss;
        for i in 0..STACKS {
            let stack = &raw mut (*descriptors).stacks[i];
            // The last word of an interrupt stack holds the GS base, for entries that cannot
            // know whether GS is the kernel's (see trap/entry.rs).
            let top = stack as u64 + IST_SIZE as u64 - 16;
            (top as *mut u64).write(gs_base() as u64);
            (&raw mut (*tss)[9 + 2 * i]).cast::<u64>().write_unaligned(top);
        }
        // No I/O permission map: it begins at the limit.
        (*tss)[25] = (size_of::<[u32; 26]>() as u32) << 16;
        let gdt = &raw mut (*descriptors).gdt;
        gdt.write(segments(tss as u64));
        let pointer = &raw mut (*descriptors).limit_and_base;
        (*pointer)[0] = size_of::<[u64; DESCRIPTORS_HERE]>() as u16 - 1;
        (&raw mut (*pointer)[1]).cast::<u64>().write_unaligned(gdt as u64);
        asm!(
            "lgdt [{pointer}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:x}",
            "mov es, {data:x}",
            "mov ss, {data:x}",
            "mov fs, {null:x}",
            "ltr {tss:x}",
            pointer = in(reg) pointer,
            code = const KERNEL_CS as u64,
            data = in(reg) KERNEL_DS as u32,
            null = in(reg) 0u32,
            tss = in(reg) TSS as u32,
            scratch = out(reg) _,
        );
    }
}

/// Returns the segments of this CPU, whose TSS is at `base`.
fn segments(base: u64) -> [u64; DESCRIPTORS_HERE] {
    let limit = size_of::<[u32; 26]>() as u64 - 1;
    [
        0,
        0x00af_9b00_0000_ffff, // kernel code, 64 bit
        0x00cf_9300_0000_ffff, // kernel data
        0,
        0x00cf_fb00_0000_ffff, // user code, 32 bit (the base of sysret's selectors)
        0x00cf_f300_0000_ffff, // user data
        0x00af_fb00_0000_ffff, // user code, 64 bit
        limit & 0xffff
            | (base & 0xff_ffff) << 16
            | 0x89 << 40
            | (limit >> 16 & 0xf) << 48
            | (base >> 24 & 0xff) << 56,
        base >> 32,
        0,
        0,
        0,
        0,
        0,
        0,
        0x0040_f100_0000_0000 | id() as u64, // user data, read-only
    ]
}
