//! How the register frame lies on the stack, for the assembly stubs: written once.
//!
//! `general_registers` lists the general registers in the order of their addresses. The pushes and
//! pops of all entries and exits are made from this list, and [`UserRegs`] is checked against it.
//! `frame_asm` is `global_asm!` with the offset of each register as an operand.
//!
//! Road not taken: macros of the assembler. Each block of assembly would need a definition of its
//! own, because the compiler decides which blocks it assembles together.

use core::mem::offset_of;

use super::regs::UserRegs;

/// Calls a macro with the general registers of the frame, from the lowest address up. Above them
/// lie the number of the system call or the error code, and what the processor pushes at an
/// interrupt.
macro_rules! general_registers {
    ($then:ident $($first:tt)*) => {
        $then! { $($first)* [r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi] }
    };
}

/// The text that pops the general registers.
macro_rules! pop_general {
    () => {
        general_registers!(pop_general)
    };
    ([$($register:ident)*]) => {
        concat!($("    pop ", stringify!($register), "\n"),*)
    };
}

/// The text that pushes the general registers, the highest first: `call` for a system call, which
/// puts the result -ENOSYS in the place of rax; `trap` for a stub that has pushed rdi already.
macro_rules! push_general {
    ($entry:ident) => {
        general_registers!(push_general $entry)
    };
    ($entry:ident [$first:ident $($rest:ident)*] $($text:tt)*) => {
        push_general!($entry [$($rest)*] push_one!($entry $first) $($text)*)
    };
    ($entry:ident [] $($name:ident ! $arguments:tt)*) => {
        concat!($($name! $arguments),*)
    };
}

macro_rules! push_one {
    (call rax) => {
        "    push -38\n"
    };
    (trap rdi) => {
        ""
    };
    ($entry:ident $register:ident) => {
        concat!("    push ", stringify!($register), "\n")
    };
}

/// The text that builds the frame of a system call, with these segments, on the thread's kernel
/// stack: rcx holds the address to go back to, r11 the flags. Leaves the frame's address in rdi.
macro_rules! build_call_frame {
    ($data_segment:literal, $code_segment:literal) => {
        concat!(
            "    swapgs\n",
            "    mov gs:[hayate_user_stack], rsp\n",
            "    mov rsp, gs:[hayate_kernel_stack]\n",
            "    push {",
            $data_segment,
            "}\n",
            "    push gs:[hayate_user_stack]\n",
            "    push r11\n",
            "    push {",
            $code_segment,
            "}\n",
            "    push rcx\n",
            "    push rax\n",
            push_general!(call),
            "    xor ebp, ebp\n",
            "    mov rdi, rsp\n",
        )
    };
}

/// The text that completes the frame of a trap: the processor or the stub has pushed everything
/// down to rdi. Leaves the frame's address in rsi and the error code in rdx; the number of the
/// system call is -1.
macro_rules! build_trap_frame {
    () => {
        concat!(
            push_general!(trap),
            "    mov rsi, rsp\n",
            "    mov rdx, [rsp + {at_orig_rax}]\n",
            "    mov qword ptr [rsp + {at_orig_rax}], -1\n",
            "    cld\n",
        )
    };
}

/// The text of the stubs of all vectors: each pushes an error code where the processor does not,
/// pushes rdi, and jumps to `$common` with the vector in edi.
macro_rules! vector_stubs {
    ($common:literal) => {
        concat!(
            ".set vector, 0\n",
            ".rept 256\n",
            "    .balign 16\n",
            "    .byte 0x0f, 0x01, 0xca      // clac; patched to a nop where SMAP is missing\n",
            "    .if !(vector == 8 || (vector >= 10 && vector <= 14) || vector == 17 || vector == 21)\n",
            "    push 0\n",
            "    .endif\n",
            "    push rdi\n",
            "    mov edi, vector\n",
            "    jmp ", $common, "\n",
            "    .set vector, vector + 1\n",
            ".endr\n",
        )
    };
}

/// `global_asm!` with the offset of each register in the frame as an operand: `{at_rip}`.
macro_rules! frame_asm {
    ($($text_and_operands:tt)*) => {
        core::arch::global_asm!(
            // Every operand must occur in the text, be it in a comment.
            "// {at_r15} {at_r14} {at_r13} {at_r12} {at_rbp} {at_rbx} {at_r11} {at_r10} {at_r9}
             // {at_r8} {at_rax} {at_rcx} {at_rdx} {at_rsi} {at_rdi} {at_orig_rax} {at_rip} {at_cs}
             // {at_rflags} {at_rsp} {at_ss}",
            $($text_and_operands)*
            at_r15 = const core::mem::offset_of!(UserRegs, r15),
            at_r14 = const core::mem::offset_of!(UserRegs, r14),
            at_r13 = const core::mem::offset_of!(UserRegs, r13),
            at_r12 = const core::mem::offset_of!(UserRegs, r12),
            at_rbp = const core::mem::offset_of!(UserRegs, rbp),
            at_rbx = const core::mem::offset_of!(UserRegs, rbx),
            at_r11 = const core::mem::offset_of!(UserRegs, r11),
            at_r10 = const core::mem::offset_of!(UserRegs, r10),
            at_r9 = const core::mem::offset_of!(UserRegs, r9),
            at_r8 = const core::mem::offset_of!(UserRegs, r8),
            at_rax = const core::mem::offset_of!(UserRegs, rax),
            at_rcx = const core::mem::offset_of!(UserRegs, rcx),
            at_rdx = const core::mem::offset_of!(UserRegs, rdx),
            at_rsi = const core::mem::offset_of!(UserRegs, rsi),
            at_rdi = const core::mem::offset_of!(UserRegs, rdi),
            at_orig_rax = const core::mem::offset_of!(UserRegs, orig_rax),
            at_rip = const core::mem::offset_of!(UserRegs, rip),
            at_cs = const core::mem::offset_of!(UserRegs, cs),
            at_rflags = const core::mem::offset_of!(UserRegs, rflags),
            at_rsp = const core::mem::offset_of!(UserRegs, rsp),
            at_ss = const core::mem::offset_of!(UserRegs, ss),
        );
    };
}

/// Checks that these fields of [`UserRegs`] follow one another from the frame's beginning.
macro_rules! check_order {
    ([$($field:ident)*]) => {
        check_order! { @all $($field)* orig_rax rip cs rflags rsp ss }
    };
    (@all $($field:ident)*) => {
        const _: () = {
            let offsets = [$(offset_of!(UserRegs, $field)),*];
            let mut index = 0;
            while index < offsets.len() {
                assert!(offsets[index] == index * 8, "the frame is not as the stubs build it");
                index += 1;
            }
            assert!(size_of::<UserRegs>() == offsets.len() * 8);
        };
    };
}

general_registers!(check_order);
