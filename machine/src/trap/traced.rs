//! The entry of system calls of programs that are traced (`ptrace(2)`).
//!
//! The usual entry tests nothing before it calls a number's function, so a stop before the call
//! needs an entry of its own. A thread that is traced has the attention bit [`TRACED`], which stays
//! set: each of its returns to user mode goes through `attend`, and that makes this processor's
//! `syscall` go here ([`enter`]). A program without the bit that runs here afterwards comes here
//! once and gives the usual entry back, so that a switch of contexts pays nothing.
//!
//! A thread that is traced and guarded ([`super::guard`]) enters here; the guard looks at a call
//! after the tracer has ([`serve_call`]).
//!
//! A program in supervisor mode is not traced; when a space in that mode is loaded, the mode's own
//! entry takes this one's place.
//!
//! Road not taken: the table of calls, exchanged while anything is traced, as recorded programs do
//! it. Every program would pay for one that is traced, which may be for hours.

use super::calls::serve_by_table;
use super::guard;
use super::handlers::{check_stack, handlers};
use super::regs::UserRegs;
use crate::attention::{self, GUARDED, TRACED};
use crate::cpu;

frame_asm!(
    r#"
.text
.balign 64
.globl hayate_traced_entry
hayate_traced_entry:
"#,
    build_call_frame!("user_ds", "user_cs"),
    r#"
    call {serve}
    jmp hayate_syscall_exit
"#,
    user_ds = const cpu::USER_DS as u64,
    user_cs = const cpu::USER_CS as u64,
    serve = sym serve,
);

unsafe extern "C" {
    fn hayate_traced_entry();
}

/// Serves a system call that came by this entry; the result is in the frame and returned.
extern "C" fn serve(regs: &mut UserRegs) -> i64 {
    check_stack();
    match handlers() {
        Some(handlers) if attention::get() & TRACED != 0 => (handlers.traced_call)(regs),
        _ => {
            guard::release();
            serve_call(regs);
        }
    }
    regs.rax as i64
}

/// Serves a system call as the other entries do: by the function of its number, unless the guard of
/// the execution settles it. The result is in the frame.
pub fn serve_call(regs: &mut UserRegs) {
    if attention::get() & GUARDED == 0 || !guard::settles(regs) {
        regs.rax = serve_by_table(regs) as u64;
    }
}

/// Makes the system calls of the program to which this processor returns now enter here.
pub(super) fn enter() {
    guard::set_entry(hayate_traced_entry as *const () as u64, guard::TRACING);
    if let Some(handlers) = handlers() {
        (handlers.traced_return)();
    }
}
