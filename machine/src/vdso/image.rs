//! The shared object itself: ELF headers, tables for dynamic linkers, five functions.
//!
//! It is written in assembly because compiled code may refer to anything in the kernel, while this
//! code may only refer to its own page and to the one before it, by addresses relative to the
//! instruction. It is linked into the kernel's read-only data and executed only at the address
//! where programs see it.
//!
//! Dynamic linkers find the functions by the symbol table, with a hash table of one bucket and
//! Linux' version `LINUX_2.6` (`vdso(7)`). The `.eh_frame` tells unwinders that no function moves
//! the stack pointer: one description holds for all of the code.
//!
//! The functions do the same as the system calls of the same names (`kernel/src/syscall/time.rs`),
//! and execute these system calls for other clocks. Like the kernel, they take CLOCK_BOOTTIME for
//! CLOCK_MONOTONIC and the coarse clocks for the fine ones. Reading follows `crate::clock`: the
//! line in use must still be in use after the counter was read.

use core::arch::global_asm;
use core::mem::offset_of;

use crate::clock::{Clock, Line};
use crate::cpu::CPU_NUMBER;
use crate::layout::PAGE_SIZE;

/// The hash of a version's name (System V ABI, figure 5-13).
const fn hash(name: &[u8]) -> u32 {
    let (mut hash, mut at) = (0u32, 0);
    while at < name.len() {
        hash = (hash << 4).wrapping_add(name[at] as u32);
        let high = hash & 0xf000_0000;
        hash = (hash ^ high >> 24) & !high;
        at += 1;
    }
    hash
}

global_asm!(
    r#"
.pushsection .rodata.vdso, "a", @progbits
.balign 4096
.globl hayate_vdso
hayate_vdso:
    .byte 0x7f, 'E', 'L', 'F', 2, 1, 1, 0
    .quad 0
    .short 3, 62                        // ET_DYN, EM_X86_64
    .long 1
    .quad 0
    .quad .Lprograms - hayate_vdso
    .quad 0
    .long 0
    .short 64, 56, 3, 64, 0, 0

.Lprograms:
    .long 1, 5                          // PT_LOAD, readable and executable
    .quad 0, 0, 0, .Lend - hayate_vdso, .Lend - hayate_vdso, {page}
    .long 2, 4                          // PT_DYNAMIC
    .quad .Ldynamic - hayate_vdso, .Ldynamic - hayate_vdso, .Ldynamic - hayate_vdso
    .quad .Ldynamic_end - .Ldynamic, .Ldynamic_end - .Ldynamic, 8
    .long 0x6474e550, 4                 // PT_GNU_EH_FRAME
    .quad .Lunwind - hayate_vdso, .Lunwind - hayate_vdso, .Lunwind - hayate_vdso
    .quad .Lunwind_end - .Lunwind, .Lunwind_end - .Lunwind, 4

.balign 8
.Ldynamic:
    .quad 4, .Lhash - hayate_vdso               // DT_HASH
    .quad 5, .Lstrings - hayate_vdso            // DT_STRTAB
    .quad 6, .Lsymbols - hayate_vdso            // DT_SYMTAB
    .quad 10, .Lstrings_end - .Lstrings         // DT_STRSZ
    .quad 11, 24                                // DT_SYMENT
    .quad 14, .Lsoname - .Lstrings              // DT_SONAME
    .quad 0x6ffffff0, .Lversions - hayate_vdso  // DT_VERSYM
    .quad 0x6ffffffc, .Lnames - hayate_vdso     // DT_VERDEF
    .quad 0x6ffffffd, 2                         // DT_VERDEFNUM
    .quad 0, 0
.Ldynamic_end:

// A global function of the object.
.macro vdso_symbol name
    .long .Lname_\name - .Lstrings
    .byte 0x12, 0
    .short 1
    .quad hayate_vdso_\name - hayate_vdso, .Lsize_\name
.endm
.Lsymbols:
    .quad 0, 0, 0
    vdso_symbol clock_gettime
    vdso_symbol gettimeofday
    vdso_symbol time
    vdso_symbol getcpu
    vdso_symbol clock_getres

.Lhash:
    .long 1, 6                          // one bucket, six symbols
    .long 1
    .long 0, 2, 3, 4, 5, 0
.Lversions:
    .short 1, 2, 2, 2, 2, 2

.balign 4
.Lnames:
    .short 1, 1, 1, 1                   // the object's own name
    .long {own_name}
    .long 20, 28
    .long .Lsoname - .Lstrings, 0
    .short 1, 0, 2, 1                   // version 2
    .long {version_name}
    .long 20, 0
    .long .Lversion - .Lstrings, 0

.Lstrings:
    .byte 0
.Lsoname:
    .asciz "linux-vdso.so.1"
.Lversion:
    .asciz "LINUX_2.6"
.Lname_clock_gettime:
    .asciz "__vdso_clock_gettime"
.Lname_gettimeofday:
    .asciz "__vdso_gettimeofday"
.Lname_time:
    .asciz "__vdso_time"
.Lname_getcpu:
    .asciz "__vdso_getcpu"
.Lname_clock_getres:
    .asciz "__vdso_clock_getres"
.Lstrings_end:

.balign 4
.Lunwind:
    .byte 1, 0x1b, 0x03, 0x3b           // pointers relative to themselves, a table to .Lunwind
    .long .Lcommon - .
    .long 1
    .long .Lcode - .Lunwind, .Lfunctions - .Lunwind
.Lunwind_end:
.balign 8
.Lcommon:
    .long .Lcommon_end - . - 4, 0
    .byte 1
    .asciz "zR"
    .byte 1, 0x78, 16                   // factors 1 and -8; column 16 is the return address
    .byte 1, 0x1b
    .byte 0x0c, 7, 8                    // the frame begins at rsp + 8
    .byte 0x90, 1                       // the return address is 8 bytes below
    .balign 8
.Lcommon_end:
.Lfunctions:
    .long .Lfunctions_end - . - 4
    .long . - .Lcommon
    .long .Lcode - .
    .long .Lend - .Lcode
    .byte 0
    .balign 8
.Lfunctions_end:
    .long 0

// Monotonic time in nanoseconds, in rax. Changes rcx, rdx and r8 to r10.
.macro vdso_monotonic
1:  mov r8, [rip + hayate_vdso - {page} + {turn}]
    vdso_raw
    test r8, r8
    jz 2f
    call .Lbend
2:  cmp r8, [rip + hayate_vdso - {page} + {turn}]
    jne 1b
.endm

// Nanoseconds of the counter, in rax. Changes rcx and rdx.
.macro vdso_raw
    // No earlier than the instructions before (Intel SDM vol. 2, RDTSC).
    lfence
    rdtsc
    shl rdx, 32
    or rax, rdx
    xor ecx, ecx
    sub rax, [rip + hayate_vdso - {page} + {origin}]
    cmovb rax, rcx
    mul qword ptr [rip + hayate_vdso - {page} + {scale}]
    shrd rax, rdx, 32
.endm

// Splits the nanoseconds in rax into seconds, in rdx, and the rest, in r9.
.macro vdso_split
    mov r9, rax
    // n / 10^9 = (n / 2^9) * m / 2^75 with m = ceil(2^84 / 10^9), exact for all 64-bit n.
    shr rax, 9
    movabs rdx, 0x44b82fa09b5a53
    mul rdx
    shr rdx, 11
    imul rax, rdx, 1000000000
    sub r9, rax
.endm

.balign 64
.Lcode:
hayate_vdso_clock_gettime:
    cmp edi, 1
    ja 5f
4:  vdso_monotonic
    test edi, edi
    jnz 6f
    add rax, [rip + hayate_vdso - {page} + {real_offset}]
6:  vdso_split
    mov [rsi], rdx
    mov [rsi + 8], r9
    xor eax, eax
    ret
5:  cmp edi, 7
    ja 8f
    cmp edi, 4
    jb 8f
    je 7f
    // 5 is real time, 6 and 7 are monotonic.
    cmp edi, 6
    sbb edi, edi
    inc edi
    jmp 4b
7:  vdso_raw
    mov edi, 1
    jmp 6b
8:  mov eax, 228
    syscall
    ret
.set .Lsize_clock_gettime, . - hayate_vdso_clock_gettime

.balign 16
hayate_vdso_gettimeofday:
    // A time zone is the kernel's business.
    test rsi, rsi
    jnz 5f
    test rdi, rdi
    jz 5f
    vdso_monotonic
    add rax, [rip + hayate_vdso - {page} + {real_offset}]
    vdso_split
    mov [rdi], rdx
    mov eax, r9d
    xor edx, edx
    mov ecx, 1000
    div ecx
    mov [rdi + 8], rax
    xor eax, eax
    ret
5:  mov eax, 96
    syscall
    ret
.set .Lsize_gettimeofday, . - hayate_vdso_gettimeofday

.balign 16
hayate_vdso_time:
    vdso_monotonic
    add rax, [rip + hayate_vdso - {page} + {real_offset}]
    vdso_split
    mov rax, rdx
    test rdi, rdi
    jz 5f
    mov [rdi], rax
5:  ret
.set .Lsize_time, . - hayate_vdso_time

.balign 16
hayate_vdso_getcpu:
    // The limit of a segment: the processor's number; there is one node.
    mov ecx, {cpu_number}
    lsl eax, ecx
    test rdi, rdi
    jz 5f
    mov [rdi], eax
5:  test rsi, rsi
    jz 6f
    mov dword ptr [rsi], 0
6:  xor eax, eax
    ret
.set .Lsize_getcpu, . - hayate_vdso_getcpu

.balign 16
hayate_vdso_clock_getres:
    // Clocks 0, 1 and 4 to 7.
    cmp edi, 7
    ja 6f
    mov eax, 0xf3
    bt eax, edi
    jnc 6f
    test rsi, rsi
    jz 5f
    mov qword ptr [rsi], 0
    mov qword ptr [rsi + 8], 1
5:  xor eax, eax
    ret
6:  mov eax, 229
    syscall
    ret
.set .Lsize_clock_getres, . - hayate_vdso_clock_getres

// The clock was adjusted: the time in rax, of the counter, on the line that turn r8 names. While a
// change is being made there is none: r8 is then no turn, so that the caller begins again.
.balign 16
.Lbend:
    test r8d, 1
    jnz 7f
    mov r9d, r8d
    shr r9d, 1
    and r9d, 1
    imul r9d, r9d, {line}
    lea r10, [rip + hayate_vdso - {page} + {lines}]
    add r10, r9
    sub rax, [r10 + {line_raw}]
    mov r9, rax
    imul qword ptr [r10 + {line_extra}]
    shrd rax, rdx, 32
    add rax, r9
    add rax, [r10 + {line_ns}]
    ret
7:  pause
    mov r8, -1
    ret
.Lend:
.balign 4096
.popsection
"#,
    page = const PAGE_SIZE,
    own_name = const hash(b"linux-vdso.so.1"),
    version_name = const hash(b"LINUX_2.6"),
    turn = const offset_of!(Clock, turn),
    origin = const offset_of!(Clock, origin),
    scale = const offset_of!(Clock, scale),
    real_offset = const offset_of!(Clock, real_offset),
    lines = const offset_of!(Clock, lines),
    line = const size_of::<Line>(),
    line_raw = const offset_of!(Line, raw),
    line_ns = const offset_of!(Line, ns),
    line_extra = const offset_of!(Line, extra),
    cpu_number = const CPU_NUMBER as u32,
);

unsafe extern "C" {
    static hayate_vdso: [u8; PAGE_SIZE];
}

/// Returns the object's address in the kernel's image: a page of its own.
pub(super) fn address() -> usize {
    &raw const hayate_vdso as usize
}
