//! Starts and ends of processes and threads outside the root: what the steps of `clone.rs`,
//! `exit.rs` and `family.rs` call if [`Process::is_grouped`].
//!
//! A process that is moved for the first time while a thread of it begins or ends is counted under
//! the lock of its threads ([`super::moves`]), which these steps hold; one that ends has raised its
//! notice before it looks whether it is a member, and a mover marks it before it looks at the
//! notice.

use alloc::boxed::Box;
use alloc::sync::Arc;

use hayate_abi::signal::SIGKILL;
use hayate_abi::{Errno, Result};

use super::freezer::tell_notice;
use super::group::{Group, News, Spent};
use super::member::Member;
use super::{accounts, group};
use crate::process::record::Process;

/// A start that the limit of a group refuses.
#[must_use]
pub struct Refused(Arc<Group>);

impl Refused {
    /// Tells whoever watches the limit. Returns `EAGAIN`. Call it without spin locks.
    pub fn tell(self) -> Errno {
        self.0.tell_refused();
        Errno::EAGAIN
    }
}

impl Process {
    /// The group that it is in, or was in when it ended.
    pub fn cgroup(&self) -> Arc<Group> {
        match self.member.get() {
            Some(member) => member.group(),
            None => group::root().clone(),
        }
    }

    /// Whether it is in another group than the root.
    #[inline]
    pub fn is_outside_root(&self) -> bool {
        self.is_grouped() && self.member.get().is_some_and(|member| !member.is_in_root())
    }

    /// Its place in the tree, which it has from now on.
    pub(super) fn own_member(&self) -> &Member {
        self.member.call_once(|| Box::new(Member::default()))
    }

    /// What its threads have consumed.
    pub fn spent(&self) -> Spent {
        let usage = self.usage();
        Spent { user_ns: usage.user_ns, system_ns: usage.system_ns }
    }

    /// What its threads have consumed in the group in which it is now.
    pub fn spent_in_group(&self) -> Spent {
        match self.member.get() {
            Some(member) => self.spent().since(member.consumed_before()),
            None => Spent::default(),
        }
    }
}

/// A thread is about to begin in a process; the caller holds the lock of its threads.
///
/// # Errors
/// [`Refused`], which is told when that lock is given back.
#[cold]
pub fn thread_begins(process: &Process) -> Result<(), Refused> {
    let Some(member) = process.member.get() else { return Ok(()) };
    let mut place = member.place.lock();
    if place.is_tracked {
        if let Some(group) = &place.group
            && group.charge(1).is_err()
        {
            return Err(Refused(group.clone()));
        }
        place.threads += 1;
        place.charged += 1;
    }
    Ok(())
}

/// A thread has ended, and others of the process have not; the caller holds the lock of its
/// threads. `is_first`: it has the number of the process, which stays taken.
#[cold]
pub fn thread_ends(process: &Process, is_first: bool) -> News {
    let Some(member) = process.member.get() else { return News::default() };
    let mut place = member.place.lock();
    if !place.is_tracked {
        return News::default();
    }
    place.threads -= 1;
    if !is_first {
        place.charged -= 1;
        if let Some(group) = &place.group {
            group.uncharge(1);
        }
    }
    place.review()
}

/// A process begins, which `maker` makes: in its group, or in `into`.
///
/// # Errors
/// `EAGAIN` (a limit), `ENODEV` (`into` was removed). Then it is in no group's list.
#[cold]
pub fn process_begins(
    maker: &Process,
    process: &Arc<Process>,
    into: Option<&Arc<Group>>,
) -> Result<()> {
    let begun = match into {
        Some(group) => {
            let lock = group::lock();
            let group = group.live(&lock).map_err(|_| Errno::ENODEV)?;
            begin_in(process, group)
        }
        None => {
            let Some(member) = maker.member.get() else { return Ok(()) };
            // Held, so that the maker is not moved before its child is in the list.
            let place = member.place.lock();
            match place.group.clone() {
                Some(group) => begin_in(process, group),
                // Its space may charge a group that its maker has left.
                None => Ok(Begun::default()),
            }
        }
    };
    let (news, ends) = begun.map_err(Refused::tell)?;
    accounts::settle(process);
    news.into_iter().for_each(News::tell);
    if ends {
        process.begin_exit(SIGKILL as i32);
    }
    Ok(())
}

/// The news of a process that has begun, and whether it is to end.
type Begun = ([News; 2], bool);

fn begin_in(process: &Arc<Process>, group: Arc<Group>) -> Result<Begun, Refused> {
    if group.is_root() {
        return Ok(Begun::default());
    }
    process.mark_grouped();
    let mut place = process.own_member().place.lock();
    if place.is_tracked {
        // It could be found already, and somebody has moved it.
        return Ok(Begun::default());
    }
    if group.charge(1).is_err() {
        return Err(Refused(group));
    }
    place.is_tracked = true;
    place.threads = 1;
    place.charged = 1;
    let receive = |freezes| tell_notice(process, freezes);
    Ok(place.enter_list(group, process.id(), Spent::default(), receive))
}

/// The last thread of a process has ended, which has raised its notice. `is_first`: that has the
/// number of the process.
#[cold]
pub fn process_ends(process: &Process, is_first: bool) {
    let spent = process.spent();
    let news = {
        let mut place = process.own_member().place.lock();
        place.has_ended = true;
        if place.is_tracked && !is_first {
            place.charged -= 1;
            if let Some(group) = &place.group {
                group.uncharge(1);
            }
        }
        place.threads = 0;
        place.leave_list(process.id(), spent)
    };
    news.into_iter().for_each(News::tell);
}

/// An ended process was waited for.
#[cold]
pub fn process_gone(process: &Process) {
    let Some(member) = process.member.get() else { return };
    let group = {
        let mut place = member.place.lock();
        let group = place.group.take();
        if let Some(group) = &group {
            group.uncharge(place.charged);
        }
        group
    };
    drop(group);
}
