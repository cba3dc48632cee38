//! `syslog(2)`: the kernel's log as text (`do_syslog`, kernel/printk/printk.c of Linux 6.1).
//!
//! [`crate::kernel_log`] has the records, and the place up to which all who call this have read.

use hayate_abi::{Errno, Result};
use hayate_machine::log;
use hayate_machine::user;

use crate::kernel_log::{self, READER, Room};
use crate::process;

/// What is asked (`SYSLOG_ACTION_*`, include/linux/syslog.h).
mod action {
    pub const CLOSE: i32 = 0;
    pub const OPEN: i32 = 1;
    pub const READ: i32 = 2;
    pub const READ_ALL: i32 = 3;
    pub const READ_CLEAR: i32 = 4;
    pub const CLEAR: i32 = 5;
    pub const CONSOLE_OFF: i32 = 6;
    pub const CONSOLE_ON: i32 = 7;
    pub const CONSOLE_LEVEL: i32 = 8;
    pub const SIZE_UNREAD: i32 = 9;
    pub const SIZE_BUFFER: i32 = 10;
}

/// `syslog(2)`
pub fn syslog(kind: i32, buffer: usize, length: i32) -> Result<usize> {
    let harmless = matches!(kind, action::READ_ALL | action::SIZE_BUFFER);
    kernel_log::check(&process::current().credentials(), !harmless)?;
    match kind {
        action::CLOSE | action::OPEN => Ok(0),
        action::READ | action::READ_ALL | action::READ_CLEAR => {
            let size = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
            match (buffer, size) {
                (0, _) => Err(Errno::EINVAL),
                (_, 0) => Ok(0),
                _ if kind == action::READ => kernel_log::take(size, &mut |done, piece| {
                    user::copy_out(buffer.wrapping_add(done), piece)
                }),
                _ => read_all(buffer, size, kind == action::READ_CLEAR),
            }
        }
        action::CLEAR => {
            log::write_kept();
            READER.lock().cleared = log::end();
            Ok(0)
        }
        action::CONSOLE_OFF => {
            kernel_log::silence();
            Ok(0)
        }
        action::CONSOLE_ON => {
            kernel_log::unsilence();
            Ok(0)
        }
        action::CONSOLE_LEVEL if (1..=8).contains(&length) => {
            kernel_log::set_console(length);
            Ok(0)
        }
        action::SIZE_UNREAD => Ok(kernel_log::unread()),
        action::SIZE_BUFFER => Ok(log::SIZE),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads the newest records that fit, of those since the log was cleared (`syslog_print_all`).
fn read_all(buffer: usize, size: usize, clear: bool) -> Result<usize> {
    let mut room = Room::new();
    log::write_kept();
    let end = log::end();
    let from = READER.lock().cleared;
    let mut total = 0;
    kernel_log::walk(&mut room, from, end, |_, length| {
        total += length;
        true
    });
    let mut done = 0;
    let mut failed = None;
    kernel_log::walk(&mut room, from, end, |room, length| {
        if total > size {
            // This one is too old to fit.
            total -= length.min(total);
            return true;
        }
        if done + length > size {
            return false;
        }
        let form = room.form.get(..length).unwrap_or_default();
        failed = user::copy_out(buffer.wrapping_add(done), form).err();
        done += length;
        failed.is_none()
    });
    if clear {
        READER.lock().cleared = end;
    }
    failed.map_or(Ok(done), Err)
}
