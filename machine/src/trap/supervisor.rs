//! Traps of programs that run in ring 0.
//!
//! A program in supervisor mode executes its own code, in its own half, on its own stack, with its
//! own GS base, but in ring 0. Two things follow. The processor does not change stacks when a trap
//! arrives, and the code segment no longer tells program from kernel. So while a space in
//! supervisor mode is loaded ([`crate::mode`]) this processor uses
//!
//! * **another interrupt table**, in which every vector has an interrupt stack. Its stubs test the
//!   interrupted RIP. Inside the kernel's text, the kernel was interrupted, and its frame is moved
//!   back to where it would have been. Anywhere else, the program was interrupted: its frame is
//!   moved to the thread's kernel stack, and GS is swapped. The stub runs with interrupts off and
//!   touches the kernel's own memory only, so that one interrupt stack is enough; NMI, double
//!   fault, machine check and debug exceptions keep theirs. The one fault that can hit the stub is
//!   that of a full kernel stack. It overwrites the first frame, as the interrupt stack begins
//!   anew, and would do so for ever: a stub that finds itself interrupted ends the machine.
//! * **another entry for `syscall`**, which works in ring 0 as well (it loads the kernel's segments
//!   and goes to LSTAR) but must not return by `sysret`.
//!
//! A space in user mode uses neither, and pays not one instruction.
//!
//! **Frames in the wrong mode.** The mode of a space changes while threads have frames of the old
//! mode on their kernel stacks. The change does not search for these frames. A thread that returns
//! to ring 3 in a space in supervisor mode faults at its first fetch, and the stub, finding ring 3
//! in the frame, moves it to ring 0. A frame made here leaves through `hayate_supervisor_exit`,
//! which sets the segments to what the mode is *now*.
//!
//! **The gate** is the entry for patched call sites. `rcx` is the address to come back to, `rax`
//! the number. Interrupts are off from the trampoline's last instruction but one until it turns
//! them on again; everything else is as `syscall` found it. A table by number says where the gate
//! goes:
//!
//! * [`Gate::Full`] builds the same frame as the trap and calls the same handler;
//! * [`Gate::Direct`] calls the number's function with a frame that holds the arguments and the
//!   registers that the handler may destroy; the rest is filled in if the thread has to attend to
//!   something before it goes on;
//! * [`Gate::Own`] is for a call that only reads a word ([`word_call!`](crate::word_call)): it
//!   changes neither stack nor any register that must survive.
//!
//! The arithmetic flags are undefined after a patched call site; the code that patches sites makes
//! sure that no following instruction reads them. A debug exception on a gate's first instruction
//! (a program that single-steps itself) becomes the system call by `syscall` that the site stood
//! for.
//!
//! A program is always resumed with interrupts on: the effect of its `cli` lasts until its next
//! trap. If the program makes no trap, the watchdog's NMI is the next one
//! ([`crate::trap::watch_programs`]).
//!
//! Road not taken: a code segment of its own for programs in ring 0. A near call or jump does not
//! change CS, so the gate would need far jumps; the RIP tells as much.

use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::regs::UserRegs;
use crate::cpu;
use crate::mode::GATED;
use crate::paging::Usage;

frame_asm!(
    r#"
.text
.balign 64
.globl hayate_supervisor_syscall
hayate_supervisor_syscall:
"#,
    build_call_frame!("kernel_ds", "kernel_cs"),
    r#"
    mov rax, gs:[hayate_loaded]
    inc qword ptr [rax + {traps}]
    call [hayate_supervisor_handler]
    jmp hayate_supervisor_exit

.balign 64
.globl hayate_gates_start
hayate_gates_start:

.globl hayate_gate_any
hayate_gate_any:
    cmp rax, {gates}
    jae hayate_gate_full
    jmp [hayate_gates + rax*8]

.balign 16
.globl hayate_gate_full
hayate_gate_full:
    cld
    // The flags that a program can have here and that matter to it: none but IF.
    mov r11d, 0x202
    add rcx, {behind}
"#,
    build_call_frame!("kernel_ds", "kernel_cs"),
    r#"
    inc qword ptr gs:[{gated}]
    call [hayate_syscall_handler]
    jmp hayate_supervisor_exit

.balign 64
.globl hayate_gate_direct
hayate_gate_direct:
    swapgs
    mov r11, rsp
    mov rsp, gs:[hayate_kernel_stack]
    sub rsp, {frame}
    mov [rsp + {at_rsp}], r11
    mov [rsp + {at_rip}], rcx
    mov [rsp + {at_orig_rax}], rax
    mov [rsp + {at_rdi}], rdi
    mov [rsp + {at_rsi}], rsi
    mov [rsp + {at_rdx}], rdx
    mov [rsp + {at_r8}], r8
    mov [rsp + {at_r9}], r9
    mov [rsp + {at_r10}], r10
    inc qword ptr gs:[{gated}]
    cld
    mov rdi, rsp
    call [hayate_calls + rax*8]
    // Attention and mode, both.
    cmp qword ptr gs:[hayate_attention], 0
    jne 2f
    mov rcx, [rsp + {at_rip}]
    mov rdi, [rsp + {at_rdi}]
    mov rsi, [rsp + {at_rsi}]
    mov rdx, [rsp + {at_rdx}]
    mov r8, [rsp + {at_r8}]
    mov r9, [rsp + {at_r9}]
    mov r10, [rsp + {at_r10}]
    mov rsp, [rsp + {at_rsp}]
    swapgs
    jmp rcx
.globl hayate_gates_end
hayate_gates_end:
2:  // The handler has kept the other registers: the frame can be completed now.
    mov rcx, [rsp + {at_rip}]
    add rcx, {behind}
    mov [rsp + {at_rip}], rcx
    mov qword ptr [rsp + {at_rflags}], 0x202
    mov [rsp + {at_rcx}], rcx
    mov [rsp + {at_rax}], rax
    mov qword ptr [rsp + {at_r11}], 0x202
    mov [rsp + {at_rbx}], rbx
    mov [rsp + {at_rbp}], rbp
    mov [rsp + {at_r12}], r12
    mov [rsp + {at_r13}], r13
    mov [rsp + {at_r14}], r14
    mov [rsp + {at_r15}], r15

.globl hayate_supervisor_exit
hayate_supervisor_exit:
    cmp dword ptr gs:[hayate_attention], 0
    jne 3f
2:  mov eax, {kernel_cs}
    mov ecx, {kernel_ds}
    cmp dword ptr gs:[hayate_attention + 4], 0
    je 4f
    mov eax, {user_cs}
    mov ecx, {user_ds}
4:  mov [rsp + {at_cs}], rax
    mov [rsp + {at_ss}], rcx
    or dword ptr [rsp + {at_rflags}], 0x200
    jmp hayate_iret_exit
3:  xor ebp, ebp
    mov rdi, rsp
    call {attend}
    jmp 2b

// The start of a new thread whose frame is in ring 0.
.globl hayate_supervisor_start
hayate_supervisor_start:
    call rbx
    jmp hayate_supervisor_exit

.balign 64
hayate_supervisor_trap:
    push rax
    // On the interrupt stack: rax, rdi, error code, rip, cs, rflags, rsp, ss; the vector in edi.
    test byte ptr [rsp + 4*8], 3
    jnz 5f
    mov rax, [rsp + 3*8]
    cmp rax, offset __text_start
    jb 5f
    cmp rax, offset __text_end
    jae 5f
    cmp rax, offset hayate_supervisor_trap
    jb 4f
    cmp rax, offset hayate_supervisor_moved
    jb 8f
    // The kernel was interrupted: go on, on its stack, as if there were no interrupt stack.
4:  mov rax, rsp
    mov rsp, [rax + 6*8]
    push [rax + 7*8]
    push [rax + 6*8]
    push [rax + 5*8]
    push [rax + 4*8]
    push [rax + 3*8]
    push [rax + 2*8]
    push [rax + 1*8]
    mov rax, [rax]
    jmp hayate_trap
    // The moving itself faulted: the stack is full. In user mode this would be a double fault.
8:  add rsp, 3*8
    push 8
    jmp hayate_fatal_inside
5:  swapgs
    mov rax, rsp
    mov rsp, gs:[hayate_kernel_stack]
    push {kernel_ds}
    push [rax + 6*8]
    push [rax + 5*8]
    push {kernel_cs}
    push [rax + 3*8]
    push [rax + 2*8]
    push [rax + 1*8]
    mov rax, [rax]
hayate_supervisor_moved:
"#,
    build_trap_frame!(),
    r#"
    xor ebp, ebp
    call {trap_from_program}
    jmp hayate_supervisor_exit

// A program's trap that came on an interrupt stack, with rax saved there: goes on like any other.
.macro leave_interrupt_stack vector
    swapgs
    mov rax, rsp
    mov rsp, gs:[hayate_kernel_stack]
    push {kernel_ds}
    push [rax + 4*8]
    push [rax + 3*8]
    push {kernel_cs}
    push [rax + 1*8]
    push 0
    push rdi
    mov rax, [rax]
    mov edi, \vector
    jmp hayate_supervisor_moved
.endm

// Debug exceptions, on their own interrupt stack: rip, cs, rflags, rsp, ss.
.balign 16
.globl hayate_supervisor_debug
hayate_supervisor_debug:
    test byte ptr [rsp + 8], 3
    jnz hayate_debug
    push rax
    mov rax, [rsp + 8]
    cmp rax, offset __text_start
    jb 7f
    cmp rax, offset __text_end
    jae 7f
    cmp rax, offset hayate_gates_start
    jb 6f
    cmp rax, offset hayate_gates_end
    jb 5f
    // A gate of its own, for the number in the interrupted rax?
6:  push rcx
    mov rcx, [rsp + 8]
    cmp rcx, {gates}
    jae 6f
    cmp rax, [hayate_gates + rcx*8]
    jne 6f
    pop rcx
5:  // Single-stepped to a gate's first instruction: make it the `syscall` that it stands for. (A
    // step that begins there ends there: TF is cleared with this very trap.)
    lea r11, [rip + hayate_supervisor_syscall]
    mov [rsp + 8], r11
    mov r11, [rsp + 24]
    or r11, 0x200
    add rcx, {behind}
    and qword ptr [rsp + 24], ~0x300
    pop rax
    iretq
6:  pop rcx
    pop rax
    jmp hayate_debug
7:  // The program. With interrupts off it is between a trampoline's `cli` and its jump: step on.
    test dword ptr [rsp + 24], 0x200
    jnz 8f
    pop rax
    iretq
8:  leave_interrupt_stack 1

// NMI, on its own interrupt stack: rip, cs, rflags, rsp, ss. A program in ring 0 that has turned
// interrupts off is made to attend to what waits; everything else goes on.
.balign 16
.globl hayate_supervisor_nmi
hayate_supervisor_nmi:
    cmp byte ptr [hayate_stopping], 0
    jne hayate_nmi
    test byte ptr [rsp + 8], 3
    jnz 9f
    test dword ptr [rsp + 16], 0x200
    jnz 9f
    push rax
    mov rax, [rsp + 8]
    cmp rax, offset __text_start
    jb 10f
    cmp rax, offset __text_end
    jae 10f
    pop rax
9:  iretq
10: leave_interrupt_stack 2

.balign 16
.globl hayate_supervisor_vectors
hayate_supervisor_vectors:
"#,
    vector_stubs!("hayate_supervisor_trap"),
    r#"

.pushsection .data.gates, "aw", @progbits
.balign 64
.globl hayate_gates
hayate_gates:
.rept {gates}
    .quad hayate_gate_full
.endr
.globl hayate_gate_slot
hayate_gate_slot:
    .quad hayate_gate_any
.popsection
"#,
    kernel_cs = const cpu::KERNEL_CS as u64,
    kernel_ds = const cpu::KERNEL_DS as u64,
    user_cs = const cpu::USER_CS as u64,
    user_ds = const cpu::USER_DS as u64,
    gates = const GATES,
    behind = const BEHIND,
    gated = sym GATED,
    traps = const offset_of!(Usage, traps),
    frame = const size_of::<UserRegs>(),
    attend = sym super::exception::attend,
    trap_from_program = sym super::exception::trap_from_program,
);

/// How far the end of the trampoline's own `syscall`, where a full frame goes on, lies behind the
/// address in `rcx`, where the gate returns with interrupts off.
pub const BEHIND: u64 = 18;

/// Number of entries in the gate's table; higher numbers take the full way.
const GATES: usize = super::calls::CALLS;

/// How the gate serves a number.
#[derive(Clone, Copy, Debug)]
pub enum Gate {
    /// With a full frame, by the handler of system calls.
    Full,
    /// By the number's function ([`set_call`](super::set_call)), which needs and changes nothing of
    /// the frame but the arguments.
    Direct,
    /// By an entry of its own, which [`word_call!`](crate::word_call) made.
    Own(OwnGate),
}

/// A special entry in the gate's table. Only [`word_call!`](crate::word_call) makes one.
#[derive(Clone, Copy, Debug)]
pub struct OwnGate(unsafe extern "C" fn());

impl OwnGate {
    /// Returns the entry at `code`.
    ///
    /// # Safety
    /// The code keeps the gate's contract: it is entered with interrupts off and the program's
    /// stack and GS, leaves by `jmp rcx` with both unchanged, and changes no register but rax.
    #[doc(hidden)]
    pub const unsafe fn new(code: unsafe extern "C" fn()) -> OwnGate {
        OwnGate(code)
    }
}

unsafe extern "C" {
    fn hayate_supervisor_syscall();
    fn hayate_supervisor_start();
    fn hayate_gate_full();
    fn hayate_gate_direct();
    static hayate_supervisor_vectors: [[u8; 16]; 256];
    static hayate_gates: [AtomicU64; GATES];
    static hayate_gate_slot: u64;
}

/// The function that `syscall` in ring 0 calls. It does the same as the handler of system calls,
/// but is separate so that it can examine the call site first.
// SAFETY: the name is the stub's; no other symbol has it.
#[unsafe(export_name = "hayate_supervisor_handler")]
static SUPERVISOR_HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Registers the function that `syscall` in ring 0 calls. Must be called before the first space
/// changes to supervisor mode.
pub fn set_supervisor_handler(handler: extern "C" fn(&mut UserRegs)) {
    SUPERVISOR_HANDLER.store(handler as *mut (), Ordering::Release);
}

/// Sets how the gate serves system call `number`. Numbers above the table's end are ignored: the
/// gate serves them the full way.
pub fn set_gate(number: usize, gate: Gate) {
    // SAFETY: the table consists of words in the kernel's data, written and read atomically.
    let Some(entry) = unsafe { &hayate_gates }.get(number) else { return };
    let target = match gate {
        Gate::Full => hayate_gate_full as *const () as u64,
        Gate::Direct => hayate_gate_direct as *const () as u64,
        Gate::Own(OwnGate(code)) => code as usize as u64,
    };
    entry.store(target, Ordering::Release);
}

/// Returns the address of the word that a trampoline jumps through, for a call of this number or of
/// any number. It lies in the top 2 GiB, so that an absolute 32-bit displacement reaches it from
/// anywhere.
pub fn gate_address(number: Option<usize>) -> u64 {
    // SAFETY: only the address is taken.
    let gates = unsafe { &hayate_gates };
    if let Some(gate) = number.and_then(|number| gates.get(number)) {
        return &raw const *gate as u64;
    }
    &raw const hayate_gate_slot as u64
}

/// Returns the address of the entry of `syscall` in ring 0.
pub(super) fn syscall_address() -> u64 {
    hayate_supervisor_syscall as *const () as u64
}

/// Returns the address of the stub of vector `vector` in supervisor mode.
pub(super) fn vector_address(vector: u8) -> u64 {
    // SAFETY: only the address is taken.
    unsafe { &raw const hayate_supervisor_vectors[usize::from(vector)] as u64 }
}

/// Returns where a new thread's context starts if its frame is in ring 0.
pub(crate) fn start_address() -> u64 {
    hayate_supervisor_start as *const () as u64
}
