//! Moving a process to another group (`cgroup_attach_task`), and ending all of a group
//! (`__cgroup_kill`). Whether the caller may is decided before, by the owners of files
//! (`fs::cgroup`).

use alloc::sync::Arc;

use hayate_abi::signal::{SI_USER, SIGKILL, Siginfo};
use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::domain;

use super::accounts;
use super::freezer::{look_again, tell_notice};
use super::group::{Group, Lock, News};
use super::list::each_member;
use crate::drivers::io;
use crate::process::record::Process;
use crate::process::signal::send;
use crate::process::thread::current;

/// The error of a refusal.
pub fn error(refusal: domain::Refusal) -> Errno {
    match refusal {
        domain::Refusal::Busy => Errno::EBUSY,
        domain::Refusal::NoDomain => Errno::EOPNOTSUPP,
    }
}

/// Whether a process may come to `to` by what the group is.
///
/// # Errors
/// `EBUSY` (it gives controllers to its children), `EOPNOTSUPP` (it lies below a group with
/// processes that does).
pub fn vet(to: &Group) -> Result<()> {
    to.as_domain().may_take(to.domains_around()).map_err(error)
}

/// Moves a process to the group `to`. One that ends stays where it is.
pub fn join(process: &Arc<Process>, to: &Arc<Group>, _: &Lock) {
    if to.is_root() && !process.is_grouped() {
        return;
    }
    process.mark_grouped();
    if process.is_exiting() {
        return;
    }
    let member = process.own_member();
    let spent = process.spent();
    let threads = process.threads.lock();
    let mut place = member.place.lock();
    if place.has_ended {
        return;
    }
    if !place.is_tracked {
        place.is_tracked = true;
        place.threads = threads.len();
        let has_first = threads.iter().any(|thread| thread.id() == process.id());
        place.charged = place.threads + usize::from(!has_first);
    }
    if place.group.as_ref().map_or(to.is_root(), |own| Arc::ptr_eq(own, to)) {
        return;
    }
    let charged = place.charged;
    let left = place.leave_list(process.id(), spent);
    let old = place.group.take();
    if let Some(old) = &old {
        old.uncharge(charged);
    }
    let receive = |freezes| tell_notice(process, freezes);
    let entered = if to.is_root() {
        receive(false);
        <[News; 2]>::default()
    } else {
        to.charge_freely(charged);
        place.enter_list(to.clone(), process.id(), spent, receive).0
    };
    drop(place);
    drop(threads);
    drop(old);
    accounts::settle(process);
    // A thread of it may rest for the group that it has left.
    io::wake();
    look_again(process);
    left.into_iter().chain(entered).for_each(News::tell);
}

/// Ends all members of a group and of those in it (`cgroup.kill`).
///
/// A process that is in no list yet ends by what its list says when it comes there. If it comes
/// there after that was taken back, its maker was told to end before that, and a maker looks for
/// this when its child is in the list (`clone.rs`, `begin_inside`).
///
/// # Errors
/// `ENOMEM`.
pub fn end_all(group: &Group, lock: &Lock) -> Result<()> {
    let caller = current();
    let uid = caller.credentials().uid;
    let info = Siginfo::from_sender(SIGKILL, SI_USER, caller.process.id(), uid);
    let subtree = group.subtree(lock)?;
    let set = |ends| subtree.iter().for_each(|below| below.members.lock().ends = ends);
    // A process that comes to a list from now on ends by itself.
    set(true);
    for below in &subtree {
        each_member(below, |process| {
            // No failure: a standard signal of this kind is not limited.
            let _ = send::to_process(process, info);
        });
    }
    set(false);
    Ok(())
}
