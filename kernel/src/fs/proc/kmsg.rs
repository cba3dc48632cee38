//! `/proc/kmsg`, by which a daemon reads the kernel's log as with `syslog(2)` (proc(5)). Its
//! settings are in `/proc/sys/kernel`.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use crate::kernel_log;
use crate::vfs::caller;
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::Output;

/// Opens the file; the right to read is asked for here and not later.
pub fn open(_: &(), _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    kernel_log::check(&*caller::credentials().ok_or(Errno::EPERM)?, true)?;
    Ok(Arc::new(Messages))
}

struct Messages;

impl FileOps for Messages {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        if file.nonblocking() && kernel_log::unread() == 0 {
            return Err(Errno::EAGAIN);
        }
        match out.remaining() {
            0 => Ok(0),
            size => kernel_log::take(size, &mut |_, piece| match out.put(piece)? {
                count if count == piece.len() => Ok(()),
                _ => Err(Errno::EFAULT),
            }),
        }
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&kernel_log::WAITING);
        if kernel_log::unread() == 0 { Events::empty() } else { Events::READABLE }
    }
}
