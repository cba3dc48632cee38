//! The system calls of threads that are traced: stops before and after, and those of exec and of
//! the end ([`crate::process::tracing`]). The machine calls this instead of the table.

use hayate_machine::trap::{self, UserRegs};

use crate::process;
use crate::process::tracing::stop;
use crate::schedule;

const EXECVE: u64 = 59;
const EXIT: u64 = 60;
const EXIT_GROUP: u64 = 231;
const EXECVEAT: u64 = 322;

/// Handles one system call of a traced thread like the table of calls.
pub fn dispatch(regs: &mut UserRegs) {
    let thread = process::current();
    // With the registers that the tracer has left.
    if stop::call_begins(&thread, regs) {
        let number = regs.orig_rax;
        if matches!(number, EXIT | EXIT_GROUP) {
            let status = (regs.rdi as i32 & 0xff) << 8;
            // The process ends before its tracer hears of it (`do_group_exit`,
            // `synchronize_group_exit`).
            if number == EXIT_GROUP || thread.process.thread_count() == 1 {
                thread.process.begin_exit(status);
                schedule::current().clear_interrupt();
            }
            stop::ending(&thread, regs, status);
        }
        let own = thread.id();
        trap::serve_call(regs);
        if matches!(number, EXECVE | EXECVEAT) && regs.rax as i64 >= 0 {
            stop::executed(&thread, regs, own);
        }
    }
    stop::call_ends(&thread, regs);
}
