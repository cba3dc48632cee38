//! Filters of system calls (`seccomp(2)`, `PR_SET_SECCOMP`).

use hayate_abi::{Errno, Result};
use hayate_bpf::seccomp::{Action, DATA_SIZE, Filter};
use hayate_bpf::{MOST, Refused};
use hayate_machine::user::UserPtr;

use crate::credentials::Capability;
use crate::net::filter;
use crate::process;
use crate::process::seccomp;
use crate::process::seccomp::{ANSWER_SIZE, How, MODE_FILTER, NOTICE_SIZE};

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;
const GET_NOTIF_SIZES: u32 = 3;

bitflags::bitflags! {
    /// `SECCOMP_FILTER_FLAG_*`
    #[derive(Clone, Copy)]
    struct Flags: u32 {
        const TSYNC = 1;
        const LOG = 2;
        /// Programs may speculate: here they may in any case.
        const SPEC_ALLOW = 4;
        const NEW_LISTENER = 8;
        const TSYNC_ESRCH = 16;
        const WAIT_KILLABLE_RECV = 32;
    }
}

/// `seccomp(2)`
pub fn seccomp(operation: u32, flags: u32, arguments: usize) -> Result<i64> {
    match operation {
        SET_MODE_STRICT if flags == 0 && arguments == 0 => seccomp::be_strict().map(|()| 0),
        SET_MODE_FILTER => add_filter(flags, arguments),
        GET_ACTION_AVAIL if flags == 0 => {
            let action: u32 = UserPtr::new(arguments).read()?;
            Action::of(action).map(|_| 0).ok_or(Errno::EOPNOTSUPP)
        }
        GET_NOTIF_SIZES if flags == 0 => {
            let sizes = [NOTICE_SIZE, ANSWER_SIZE, DATA_SIZE].map(|size| size as u16);
            UserPtr::new(arguments).write(&sizes)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_SET_SECCOMP`
pub fn set_mode(mode: usize, filter: usize) -> Result<i64> {
    const MODE_STRICT: usize = 1;
    match mode {
        MODE_STRICT => seccomp(SET_MODE_STRICT, 0, 0),
        _ if mode == usize::from(MODE_FILTER) => seccomp(SET_MODE_FILTER, 0, filter),
        _ => Err(Errno::EINVAL),
    }
}

fn add_filter(flags: u32, program: usize) -> Result<i64> {
    let flags = Flags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let has = |flag| flags.contains(flag);
    // A number of a thread and a descriptor could not be told apart; and nobody receives without a
    // listener.
    if has(Flags::TSYNC | Flags::NEW_LISTENER) && !has(Flags::TSYNC_ESRCH)
        || has(Flags::WAIT_KILLABLE_RECV) && !has(Flags::NEW_LISTENER)
    {
        return Err(Errno::EINVAL);
    }
    let how = How {
        all_threads: has(Flags::TSYNC),
        fails_by_error: has(Flags::TSYNC_ESRCH),
        logs: has(Flags::LOG),
        listens: has(Flags::NEW_LISTENER),
        waits_on: has(Flags::WAIT_KILLABLE_RECV),
    };
    seccomp::add(read_filter(program)?, how)
}

/// Reads a `struct sock_fprog` and the program that it points to (`seccomp_prepare_filter`).
fn read_filter(from: usize) -> Result<Filter> {
    let fields: [u64; 2] = UserPtr::new(from).read()?;
    let (count, at) = (usize::from(fields[0] as u16), fields[1] as usize);
    if count == 0 || count > MOST {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    let is_bound = thread.no_new_privileges.load(core::sync::atomic::Ordering::Relaxed);
    if !is_bound && !thread.credentials().has_own(Capability::SysAdmin) {
        return Err(Errno::EACCES);
    }
    if at == 0 {
        return Err(Errno::EINVAL);
    }
    let instructions = filter::copy_in(at, count)?;
    Filter::check(&instructions).map_err(|refused| match refused {
        Refused::Invalid => Errno::EINVAL,
        Refused::Memory => Errno::ENOMEM,
    })
}
