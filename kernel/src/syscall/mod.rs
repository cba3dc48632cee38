//! The Linux system-call interface: the table, the dispatcher, one file per family.
//!
//! [`table.rs`](../table.rs) declares every call; [`calls`] makes two arrays of it. The first
//! holds a function per number that takes the arguments out of the registers, calls the handler and
//! returns the value for `rax`. The dispatcher is one bounds check and one indirect call around it.
//! Hayate's own calls ([`own`]) have a short array of their own after that check, so Linux' calls
//! pay nothing for them. The second array holds names and argument kinds, and only the trace reads
//! it. `trace=syscalls` on the command line registers another dispatcher at boot, so a kernel that
//! does not trace does not even test for it.
//!
//! The layers, lowest first: [`argument`]; the families, one file or folder each; [`calls`], the
//! arrays and the dispatcher; [`trace`] and `starts`, which stand before it if the command line
//! asks for them; [`traced`], which serves programs that a debugger traces; `recorder`, which stands
//! before the handlers while a program is recorded. Families use each other's helpers in one direction only.
//!
//! Locks: none of its own; handlers copy from and to user memory with none held. Road not taken:
//! one large `match` of numbers, which has no place for names and kinds.
//!
//! Handlers decode arguments and encode results as Linux does; the modules below do the work.

pub mod adjust;
mod arch;
pub mod argument;
mod bpf;
pub mod calls;
mod control;
mod credentials;
mod file;
mod futex;
mod ioprio;
mod ipc;
mod kcmp;
mod landlock;
mod memory;
mod mode;
mod namespaces;
mod own;
mod pidfd;
mod prctl;
mod process;
mod ptrace;
mod recorder;
mod sched;
mod seccomp;
mod signal;
mod socket;
mod starts;
mod syslog;
mod system;
mod templates;
mod time;
mod timer;
pub mod trace;
pub mod traced;

pub use calls::{HANDLERS, PLAIN, dispatch};

use hayate_machine::trap::UserRegs;

/// Prepares the module; boot calls it once.
pub fn init() {
    socket::init();
    recorder::init();
    memory::userfaultfd::init();
}

/// The dispatcher to register with the machine: one that traces or measures if the command line has
/// `trace=syscalls` or `trace=starts`.
pub fn dispatcher() -> extern "C" fn(&mut UserRegs) {
    match hayate_machine::boot::option("trace") {
        Some("syscalls") => trace::dispatch,
        Some("starts") => starts::dispatch,
        _ => dispatch,
    }
}
