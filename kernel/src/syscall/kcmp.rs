//! `kcmp(2)`: whether two threads share a part, and an order of the parts that tells nothing of the
//! kernel's addresses (kernel/kcmp.c of Linux 6.1).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;
use hayate_machine::user::UserPtr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ipc::epoll::Epoll;
use crate::ipc::sysv::sem::UndoList;
use crate::memory::Space;
use crate::process::access::{self, Ids};
use crate::process::signal::ActionTable;
use crate::process::{Process, Thread, visible};
use crate::random;
use crate::vfs::context::FsContext;
use crate::vfs::descriptor::FdTable;

/// The kinds of parts (`KCMP_*`).
mod kind {
    pub const FILE: i32 = 0;
    pub const VM: i32 = 1;
    pub const FILES: i32 = 2;
    pub const FS: i32 = 3;
    pub const SIGHAND: i32 = 4;
    pub const IO: i32 = 5;
    pub const SYSVSEM: i32 = 6;
    pub const EPOLL_TFD: i32 = 7;
}
const KINDS: usize = 7;

/// `struct kcmp_epoll_slot`
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct EpollSlot {
    efd: u32,
    tfd: u32,
    toff: u32,
}

/// A part of a thread, held while its address is compared. A thread that has ended has none, and
/// two nothings are equal, as in Linux.
enum Part {
    Nothing,
    Space(Arc<Space>),
    Files(Arc<FdTable>),
    Directories(Arc<FsContext>),
    Actions(Arc<ActionTable>),
    Undo(Arc<UndoList>),
    Io(usize),
}

impl Part {
    fn of(thread: &Thread, kind: i32) -> Part {
        let found = match kind {
            kind::VM => thread.space().map(Part::Space),
            kind::FILES | kind::FILE | kind::EPOLL_TFD => thread.try_files().map(Part::Files),
            kind::FS => thread.directories().ok().map(Part::Directories),
            // A zombie has left its actions (`__exit_signal`) only when it is waited for.
            kind::SIGHAND => Some(Part::Actions(thread.process.actions())),
            kind::IO => thread.execution().map(|execution| Part::Io(execution.io_context())),
            kind::SYSVSEM => thread.traces.known_undo_list().map(Part::Undo),
            _ => None,
        };
        found.unwrap_or(Part::Nothing)
    }

    fn address(&self) -> usize {
        match self {
            Part::Nothing => 0,
            Part::Space(space) => Arc::as_ptr(space).addr(),
            Part::Files(files) => Arc::as_ptr(files).addr(),
            Part::Directories(directories) => Arc::as_ptr(directories).addr(),
            Part::Actions(actions) => Arc::as_ptr(actions).addr(),
            Part::Undo(list) => Arc::as_ptr(list).addr(),
            Part::Io(address) => *address,
        }
    }

    fn files(&self) -> Result<&FdTable> {
        match self {
            Part::Files(files) => Ok(files),
            _ => Err(Errno::EBADF),
        }
    }
}

/// `kcmp(2)`: 0 if the parts are one, 1 if the first comes before the second, 2 if after.
pub fn kcmp(first: i32, second: i32, kind: i32, index: usize, other: usize) -> Result<i32> {
    let find = |pid| u32::try_from(pid).ok().and_then(visible::thread).ok_or(Errno::ESRCH);
    let (first, second) = (find(first)?, find(second)?);
    // Both parts are taken from programs that the caller may look into, even if the processes
    // execute others meanwhile.
    let (own, others) = steady(&first.process, &second.process, || {
        access::check(&first, Ids::Real)?;
        access::check(&second, Ids::Real)?;
        if !(kind::FILE..=kind::EPOLL_TFD).contains(&kind) {
            return Err(Errno::EINVAL);
        }
        Ok((Part::of(&first, kind), Part::of(&second, kind)))
    })?;
    match kind {
        kind::FILE => {
            let own = own.files()?.get(index as i32)?;
            let others = others.files()?.get(other as i32)?;
            Ok(order(Arc::as_ptr(&own).addr(), Arc::as_ptr(&others).addr(), kind))
        }
        kind::EPOLL_TFD => {
            let slot: EpollSlot = UserPtr::new(other).read()?;
            let own = own.files()?.get(index as i32)?;
            let set = others.files()?.get(slot.efd as i32)?;
            let watched = Epoll::of(&set)?.watched(slot.tfd as i32, slot.toff)?;
            Ok(order(Arc::as_ptr(&own).addr(), watched, kind::FILE))
        }
        kind => Ok(order(own.address(), others.address(), kind)),
    }
}

/// Runs `look` while neither process changes its program or its credentials
/// ([`Process::steady`]; `kcmp_lock`).
fn steady<T>(first: &Process, second: &Process, look: impl FnOnce() -> T) -> T {
    let (one, two) = (core::ptr::from_ref(first).addr(), core::ptr::from_ref(second).addr());
    match one.cmp(&two) {
        core::cmp::Ordering::Equal => first.steady(look),
        core::cmp::Ordering::Less => first.steady(|| second.steady(look)),
        core::cmp::Ordering::Greater => second.steady(|| first.steady(look)),
    }
}

/// The order of two addresses, which is another one for each kind and each boot: they are mixed by
/// two secret numbers first, a sum and an odd factor, both of which keep distinct numbers distinct
/// (`kptr_obfuscate`).
fn order(first: usize, second: usize, kind: i32) -> i32 {
    static SECRETS: Once<[[u64; 2]; KINDS]> = Once::new();
    let draw = || [random::quick_word(), random::quick_word() | 1 << 63 | 1];
    let secrets = SECRETS.call_once(|| [(); KINDS].map(|()| draw()));
    let [sum, factor] = secrets.get(kind as usize).copied().unwrap_or([0, 1]);
    let mixed = |address: usize| (address as u64 ^ sum).wrapping_mul(factor);
    match mixed(first).cmp(&mixed(second)) {
        core::cmp::Ordering::Equal => 0,
        core::cmp::Ordering::Less => 1,
        core::cmp::Ordering::Greater => 2,
    }
}
