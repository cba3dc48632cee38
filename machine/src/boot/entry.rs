//! The first instructions: from PVH's 32-bit protected mode to Rust in the higher half.
//!
//! The boot tables map the first 4 GiB with 2 MiB pages twice, at 0 (needed to turn paging on;
//! other CPUs start through it too) and in the direct map, and the first GiB at `KERNEL_BASE`.
//! `super::tables` builds the final tables.
//!
//! A processor without a feature that the tables, the kernel and every program of x86-64 need is
//! refused before the feature is used: later it would be a triple fault, which reports nothing. The
//! refusal is one line on the first serial port, `cannot boot: this processor lacks NAME...`, and
//! the exit device. `super::start` checks for `syscall`, `crate::cpu::features` finds the others.

use core::arch::global_asm;

use crate::layout::KERNEL;

/// Bits of CPUID.1:EDX that are required, named in `boot_names` below: the baseline of
/// the x86-64 psABI (fpu, cx8, cmov, mmx, fxsr, sse, sse2), and what the kernel itself uses.
const REQUIRED_BASIC: u32 = 1
    | 1 << 4
    | 1 << 5
    | 1 << 6
    | 1 << 8
    | 1 << 9
    | 1 << 13
    | 1 << 15
    | 1 << 23
    | 1 << 24
    | 1 << 25
    | 1 << 26;
/// Bits of CPUID.80000001H:EDX: no-execute pages and 64-bit mode. `syscall` is not among them:
/// Intel's processors show it in 64-bit mode only (Intel SDM volume 2A, CPUID); see
/// `cpu::features`.
const REQUIRED_EXTENDED: u32 = 1 << 20 | 1 << 29;

/// Bytes of the stack the first CPU boots on; it becomes its idle loop's.
pub(super) const BOOT_STACK: usize = 64 * 1024;

global_asm!(
    r#"
.pushsection .note.pvh, "a", @note
.balign 4
    .long 4, 4, 18
    .asciz "Xen"
    .long hayate_pvh_start
.popsection

.pushsection .bss.boot, "aw", @nobits
.balign 4096
.globl hayate_boot_pml4
hayate_boot_pml4: .skip 4096
boot_pdpt_low: .skip 4096
boot_pdpt_high: .skip 4096
boot_pd: .skip 4 * 4096
hayate_boot_stack: .skip {stack}
.globl hayate_boot_stack_top
hayate_boot_stack_top:
.popsection

.pushsection .data.boot, "aw", @progbits
.balign 8
.globl hayate_first_tsc
hayate_first_tsc: .quad 0
.globl hayate_start_info
hayate_start_info: .quad 0
.popsection

.pushsection .boot, "awx", @progbits
.code32
.globl hayate_pvh_start
hayate_pvh_start:
    cli
    cld
    rdtsc
    mov dword ptr [hayate_first_tsc - {base}], eax
    mov dword ptr [hayate_first_tsc - {base} + 4], edx
    mov dword ptr [hayate_start_info - {base}], ebx

    // esi, edi: the required bits that the processor has not.
    mov eax, 1
    cpuid
    mov esi, edx
    xor edi, edi
    mov eax, 0x80000000
    cpuid
    cmp eax, 0x80000001
    jb 2f
    mov eax, 0x80000001
    cpuid
    mov edi, edx
2:  not esi
    not edi
    and esi, {basic}
    and edi, {extended}
    mov eax, esi
    or eax, edi
    jnz boot_refuse

    // Four page directories of 2 MiB pages.
    mov edi, offset boot_pd - {base}
    mov eax, 0x83
    mov ecx, 2048
2:  mov [edi], eax
    mov dword ptr [edi + 4], 0
    add edi, 8
    add eax, 0x200000
    dec ecx
    jnz 2b
    mov edi, offset boot_pdpt_low - {base}
    mov eax, offset boot_pd - {base} + 3
    mov ecx, 4
3:  mov [edi], eax
    add edi, 8
    add eax, 4096
    dec ecx
    jnz 3b
    mov eax, offset boot_pd - {base} + 3
    mov dword ptr [boot_pdpt_high - {base} + 510 * 8], eax
    mov eax, offset boot_pdpt_low - {base} + 3
    mov dword ptr [hayate_boot_pml4 - {base}], eax
    mov dword ptr [hayate_boot_pml4 - {base} + 273 * 8], eax
    mov eax, offset boot_pdpt_high - {base} + 3
    mov dword ptr [hayate_boot_pml4 - {base} + 511 * 8], eax

    mov eax, cr4
    or eax, 0x20            // PAE
    mov cr4, eax
    mov eax, offset hayate_boot_pml4 - {base}
    mov cr3, eax
    mov ecx, 0xc0000080     // EFER
    rdmsr
    or eax, 0x900           // LME, NXE
    wrmsr
    mov eax, cr0
    or eax, 0x80010001      // PG, WP, PE
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    // ljmp 8:4f
    .byte 0xea
    .long 4f
    .word 8
.code64
4:  mov eax, 16
    mov ds, eax
    mov es, eax
    mov ss, eax
    movabs rax, offset hayate_high_start
    jmp rax

.code32
boot_refuse:
    mov esp, offset hayate_boot_stack_top - {base}
    mov ebx, offset boot_refusal
    call boot_print
    mov ecx, offset boot_names
2:  movzx eax, byte ptr [ecx]
    cmp al, 0xff
    je 5f
    mov edx, esi
    test al, 0x20
    jz 3f
    mov edx, edi
3:  bt edx, eax             // of the low five bits
    jnc 4f
    lea ebx, [ecx + 1]
    call boot_print
4:  add ecx, 8
    jmp 2b
5:  lea ebx, [ecx + 1]      // the end of the line
    call boot_print
    mov al, {refused}
    out {exit_device}, al
6:  hlt
    jmp 6b

// Writes the text at ebx, up to a zero, to COM1. An absent port reads as ready.
boot_print:
    mov ah, [ebx]
    inc ebx
    test ah, ah
    jz 3f
    mov dx, 0x3fd
2:  in al, dx
    test al, 0x20
    jz 2b
    mov dx, 0x3f8
    mov al, ah
    out dx, al
    jmp boot_print
3:  ret

boot_refusal:
    .asciz "cannot boot: this processor lacks"
// Each in 8 bytes: the bit, with 0x20 for one of the extended leaf, and its name.
.balign 8
boot_names:
    .byte 0;           .asciz " fpu";  .balign 8
    .byte 4;           .asciz " tsc";  .balign 8
    .byte 5;           .asciz " msr";  .balign 8
    .byte 6;           .asciz " pae";  .balign 8
    .byte 8;           .asciz " cx8";  .balign 8
    .byte 9;           .asciz " apic"; .balign 8
    .byte 13;          .asciz " pge";  .balign 8
    .byte 15;          .asciz " cmov"; .balign 8
    .byte 23;          .asciz " mmx";  .balign 8
    .byte 24;          .asciz " fxsr"; .balign 8
    .byte 25;          .asciz " sse";  .balign 8
    .byte 26;          .asciz " sse2"; .balign 8
    .byte 0x20 + 20;   .asciz " nx";   .balign 8
    .byte 0x20 + 29;   .asciz " lm";   .balign 8
    .byte 0xff;        .asciz "\r\n"
.code64
.balign 8
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff
    .quad 0x00cf93000000ffff
boot_gdt_pointer:
    .word 23
    .long boot_gdt
.popsection

.text
hayate_high_start:
    movabs rsp, offset hayate_boot_stack_top
    xor ebp, ebp
    call {start}
    ud2
"#,
    base = const KERNEL,
    stack = const BOOT_STACK,
    basic = const REQUIRED_BASIC,
    extended = const REQUIRED_EXTENDED,
    refused = const crate::power::REFUSED,
    exit_device = const crate::power::EXIT_DEVICE,
    start = sym super::start,
);
