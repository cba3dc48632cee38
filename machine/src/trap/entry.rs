//! The assembly stubs.
//!
//! **System call** (Intel SDM vol. 3, 5.8.8): `syscall` leaves the program's stack pointer in
//! place, RIP in rcx and RFLAGS in r11, with the flags of SFMASK cleared (IF among them). The stub
//! changes to the kernel stack, builds the frame, and calls the function that
//! [`set_call`](super::set_call) has registered for the number, or the handler of system calls. If
//! no attention is wanted, the way out is `sysretq`; the check for a canonical RIP guards against
//! `sysret`'s known trap (a fault in ring 0 with the program's stack). The way out reloads only the
//! registers that the handler does not preserve, so a handler that rewrites rbx, r12 to r15 or
//! segments in the frame raises `FULL_RETURN`.
//!
//! **Exceptions and interrupts**: 256 stubs of 16 bytes push an error code where the CPU did not,
//! put the vector's number in rdi, then join the common path, which builds the same frame. Entry
//! from user mode changes GS; the CPU has already changed to the kernel stack (RSP0). `clac` comes
//! first everywhere: an interrupted user copy had AC set, and `iretq` sets it again. An entry from
//! user mode leaves SS empty where `syscall` loads a segment. Both are good, but an emulator that
//! translates code (QEMU's TCG) distinguishes them and would translate the kernel twice, and a
//! `sysret` on AMD's processors after a thread with an empty SS was switched away from gives the
//! program a broken one (Linux, `X86_BUG_SYSRET_SS_ATTRS`). So SS is loaded.
//!
//! **Interrupt stacks** (double fault, NMI, machine check, debug): these exceptions may arrive
//! between the entry and `swapgs`, so their stubs take the GS base from the word above their stack;
//! only debug exceptions from user mode and NMIs return.
//!
//! **The stack at a call** is a multiple of 16, as compiled code may assume (System V ABI for
//! AMD64, 3.2.2). The frame has 21 words. A system call pushes it from one word below the stack's
//! top, which costs nothing. A trap, whose first words the CPU pushes from the top itself, leaves
//! one word free below the frame. Development kernels check the alignment
//! ([`check_stack`](super::check_stack)).

use super::calls::CALLS;
use super::guard::LSTAR;
use super::regs::UserRegs;
use crate::cpu;
use crate::layout::PAGE_SIZE;

frame_asm!(
    r#"
.pushsection .percpu, "aw", @progbits
.balign 8
.globl hayate_user_stack
hayate_user_stack: .quad 0
.popsection

.text
.balign 64
.globl hayate_syscall_entry
hayate_syscall_entry:
"#,
    build_call_frame!("user_ds", "user_cs"),
    r#"
.globl hayate_unguarded_call
hayate_unguarded_call:
    cmp rax, {calls}
    jae 7f
    call [hayate_calls + rax*8]
    mov [rsp + {at_rax}], rax
.globl hayate_syscall_exit
hayate_syscall_exit:
    // The result is in the frame and in rax.
    cmp dword ptr gs:[hayate_attention], 0
    jne hayate_slow_exit
.globl hayate_fast_exit
hayate_fast_exit:
    mov rcx, [rsp + {at_rip}]
    mov r11, rcx
    shr r11, 47
    jnz hayate_iret_exit
    // rbx and r12 to r15 have been kept by the handler.
    mov rbp, [rsp + {at_rbp}]
    mov r10, [rsp + {at_r10}]
    mov r9, [rsp + {at_r9}]
    mov r8, [rsp + {at_r8}]
    mov rdx, [rsp + {at_rdx}]
    mov rsi, [rsp + {at_rsi}]
    mov rdi, [rsp + {at_rdi}]
    mov r11, [rsp + {at_rflags}]
    mov rsp, [rsp + {at_rsp}]
    swapgs
    sysretq
7:  call hayate_call_any
    jmp hayate_syscall_exit

// Every number's entry until it is set: the handler of system calls, which leaves the result in the
// frame.
.globl hayate_call_any
hayate_call_any:
    push rdi
    call [hayate_syscall_handler]
    pop rdi
    mov rax, [rdi + {at_rax}]
    ret

.pushsection .data.calls, "aw", @progbits
.balign 64
.globl hayate_calls
hayate_calls:
.rept {calls}
    .quad hayate_call_any
.endr
.popsection

// The way out when attention is wanted, and the start of a new user thread.
.globl hayate_user_start
hayate_user_start:
    call rbx
hayate_user_exit:
    cmp dword ptr gs:[hayate_attention], 0
    je hayate_iret_exit
.globl hayate_slow_exit
hayate_slow_exit:
    xor ebp, ebp
    mov rdi, rsp
    // Below a trap's frame the stack is not aligned. The way out reloads rbx.
    mov rbx, rsp
    and rsp, -16
    call {attend}
    mov rsp, rbx
.globl hayate_iret_exit
hayate_iret_exit:
    // An iretq to a non-canonical address would fault here: the program shall fault instead.
    mov rcx, [rsp + {at_rip}]
    shr rcx, 47
    jnz 6f
5:
"#,
    pop_general!(),
    r#"
    add rsp, 8
    swapgs
.globl hayate_iret
hayate_iret:
    iretq
6:  // In the object that programs see it is fine.
    mov rcx, [rsp + {at_rip}]
    sub rcx, [hayate_vdso_at]
    sub rcx, {page}
    cmp rcx, {page}
    jb 5b
    mov rcx, {user_end}
    mov [rsp + {at_rip}], rcx
    jmp 5b

// All exceptions and interrupts: on the stack are ss, rsp, rflags, cs, rip, error code, rdi;
// the vector is in rdi.
.balign 64
.globl hayate_trap
hayate_trap:
"#,
    build_trap_frame!(),
    r#"
    test byte ptr [rsp + {at_cs}], 3
    jz 2f
    swapgs
    mov eax, {kernel_ds}
    mov ss, eax
    xor ebp, ebp
    sub rsp, 8
    call {trap_from_user}
    add rsp, 8
    jmp hayate_user_exit
2:
    mov rbp, rsp
    and rsp, -16
    // A frame that the backtrace can follow: the interrupted rbp and rip.
    push [rbp + {at_rip}]
    push [rbp + {at_rbp}]
    mov rbx, rbp
    mov rbp, rsp
    call {trap_from_kernel}
    mov rsp, rbx
"#,
    pop_general!(),
    r#"
    add rsp, 8
    iretq

// Double fault and machine check: never return. The word above the stack is the GS base.
.balign 16
.globl hayate_double_fault
hayate_double_fault:
    add rsp, 8
    push 8
    jmp hayate_fatal
.balign 16
.globl hayate_machine_check
hayate_machine_check:
    push 18
hayate_fatal:
    mov rax, [rsp + 6*8]
    mov rdx, rax
    shr rdx, 32
    mov ecx, 0xc0000101
    wrmsr
// The same with the kernel's GS base loaded.
.globl hayate_fatal_inside
hayate_fatal_inside:
    mov rdi, [rsp]
    lea rsi, [rsp + 8]
    // A frame that the backtrace can follow: the interrupted rip and rbp.
    mov rdx, rbp
    mov rbp, rsp
    and rsp, -16
    push [rbp + 8]
    push rdx
    mov rbp, rsp
    call {fatal}
    ud2

// NMI: only `smp::stop_others` sends one on purpose, which sets the flag first, and the watchdog of
// programs in ring 0, which does not mean us.
.balign 16
.globl hayate_nmi
hayate_nmi:
    cmp byte ptr [hayate_stopping], 0
    jne 3f
    iretq
3:  cli
    hlt
    jmp 3b

// Debug exception: from the kernel (a breakpoint on the entry stub's first instruction) it is
// ignored; from user mode the frame is moved to the thread's own stack.
.balign 16
.globl hayate_debug
hayate_debug:
    test byte ptr [rsp + 8], 3
    jnz 4f
    push rax
    mov rax, dr7
    xor eax, eax
    mov dr7, rax
    pop rax
    and qword ptr [rsp + 16], ~0x100
    iretq
4:
    swapgs
    push rax
    mov rax, rsp
    mov rsp, gs:[hayate_kernel_stack]
    // The top itself, where the CPU would have put a trap's frame.
    add rsp, 8
    push [rax + 5*8]
    push [rax + 4*8]
    push [rax + 3*8]
    push [rax + 2*8]
    push [rax + 1*8]
    mov rax, [rax]
    swapgs
    push 0
    push rdi
    mov edi, 1
    jmp hayate_trap

.balign 16
.globl hayate_vectors
hayate_vectors:
"#,
    vector_stubs!("hayate_trap"),
    calls = const CALLS,
    user_end = const cpu::USER_END,
    page = const PAGE_SIZE,
    user_ds = const cpu::USER_DS as u64,
    user_cs = const cpu::USER_CS as u64,
    kernel_ds = const cpu::KERNEL_DS,
    attend = sym super::exception::attend,
    trap_from_user = sym super::exception::trap_from_user,
    trap_from_kernel = sym super::exception::trap_from_kernel,
    fatal = sym super::exception::fatal,
);

unsafe extern "C" {
    fn hayate_syscall_entry();
    fn hayate_user_start();
    static hayate_vectors: [[u8; 16]; 256];
}

/// Returns where a new user thread's context starts: it calls the function in rbx, then goes to
/// user mode.
pub(crate) fn user_start_address() -> u64 {
    hayate_user_start as *const () as u64
}

/// Returns the address of the stub of vector `vector`.
pub(super) fn vector_address(vector: u8) -> u64 {
    // SAFETY: only the address is taken.
    unsafe { &raw const hayate_vectors[usize::from(vector)] as u64 }
}

/// Returns the address of the entry of system calls from user mode.
pub(super) fn syscall_address() -> u64 {
    hayate_syscall_entry as *const () as u64
}

/// Sets this CPU's system call registers.
pub(crate) fn init_syscalls() {
    const STAR: u32 = 0xc000_0081;
    const SFMASK: u32 = 0xc000_0084;
    // Cleared on entry: TF, IF, DF, NT, AC (and RF, IOPL for good measure).
    const MASK: u64 = 1 << 8 | 1 << 9 | 1 << 10 | 3 << 12 | 1 << 14 | 1 << 16 | 1 << 18;
    // SAFETY: every 64-bit CPU has these registers; the selectors are the GDT's, in the order that
    // `syscall` and `sysret` require.
    unsafe {
        cpu::write_msr(STAR, (0x23u64 << 48) | u64::from(cpu::KERNEL_CS) << 32);
        cpu::write_msr(LSTAR, syscall_address());
        cpu::write_msr(SFMASK, MASK);
    }
}
