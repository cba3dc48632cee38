//! `trace=syscalls`: each call and its result on the kernel log, in the manner of strace.

use alloc::string::String;
use core::fmt::{self, Write};

use hayate_abi::Errno;
use hayate_machine::trap::UserRegs;

use super::calls;

/// Handles one system call like [`calls::dispatch`], and logs it.
///
/// The line comes after the call. A call that does not return (`exit`, a successful `execve` of
/// another thread's group) is logged before.
pub extern "C" fn dispatch(regs: &mut UserRegs) {
    let number = regs.orig_rax;
    let arguments = regs.arguments();
    let mut line = String::new();
    let _ = match calls::row(number) {
        Some(row) => show_call(row, &arguments, &mut line),
        None => write!(line, "syscall_{number}()"),
    };
    let id = crate::process::current().id();
    if matches!(number, 60 | 231 | 15) {
        hayate_machine::info!("[{id}] {line}");
    }
    calls::dispatch(regs);
    let result = regs.rax as i64;
    match Errno::from_number(result.checked_neg().and_then(|n| i32::try_from(n).ok()).unwrap_or(0))
    {
        Some(error) => hayate_machine::info!("[{id}] {line} = -1 {error:?} ({error})"),
        None if result > 0xffff => hayate_machine::info!("[{id}] {line} = {result:#x}"),
        None => hayate_machine::info!("[{id}] {line} = {result}"),
    }
}

fn show_call(row: &calls::Row, arguments: &[u64; 6], line: &mut String) -> fmt::Result {
    write!(line, "{}(", row.name)?;
    for (index, ((name, show), raw)) in row.arguments.iter().zip(arguments).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(line, "{comma}{name}=")?;
        show(*raw, line)?;
    }
    line.write_char(')')
}
