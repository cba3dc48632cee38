//! Numbers of users and groups at the edges of the kernel, where a program tells or is told one,
//! and what names a process together with its user: identities and signals.
//!
//! Inside the kernel they are those of the first user namespace; the current thread has those of
//! its own ([`crate::user_namespace`]). Those of processes are [`super::visible`]'s. A thread of
//! the first namespaces finds out with one look that nothing is translated ([`Thread::is_apart`]).
//!
//! [`Thread::is_apart`]: super::thread::Thread::is_apart

use hayate_abi::signal::{SI_MESGQ, SI_QUEUE, SI_TKILL, SI_USER, SIGCHLD, Siginfo};
use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};

use super::thread::{Thread, current, try_current};
use super::visible;
use crate::credentials::{Id, KEEP};
use crate::user_namespace::{OVERFLOW, UserNamespace};

/// The number of a user as the current thread sees it; that of nobody if it has none there.
#[inline]
pub fn shown_user(user: Id) -> Id {
    if current().is_apart() { shown_inside(UserNamespace::shown_user, user) } else { user }
}

/// The number of a group, likewise.
#[inline]
pub fn shown_group(group: Id) -> Id {
    if current().is_apart() { shown_inside(UserNamespace::shown_group, group) } else { group }
}

/// Both numbers of a file's owner, found out with one look.
#[inline]
pub fn shown_owner(user: Id, group: Id) -> (Id, Id) {
    match current().is_apart() {
        true => (shown_user(user), shown_group(group)),
        false => (user, group),
    }
}

#[cold]
fn shown_inside(show: fn(&UserNamespace, Id) -> Id, id: Id) -> Id {
    show(&current().credentials().user, id)
}

/// The user that the current thread gives this number.
///
/// # Errors
/// `EINVAL` if there is none.
#[inline]
pub fn user(number: Id) -> Result<Id> {
    if current().is_apart() { meant(UserNamespace::user, number) } else { Ok(number) }
}

/// The group that the current thread gives this number.
///
/// # Errors
/// `EINVAL` if there is none.
#[inline]
pub fn group(number: Id) -> Result<Id> {
    if current().is_apart() { meant(UserNamespace::group, number) } else { Ok(number) }
}

/// Like [`user`], but [`KEEP`] is nobody's number and stays as it is.
pub fn user_or_keep(number: Id) -> Result<Id> {
    if number == KEEP { Ok(KEEP) } else { user(number) }
}

/// Like [`group`], but [`KEEP`] is nobody's number and stays as it is.
pub fn group_or_keep(number: Id) -> Result<Id> {
    if number == KEEP { Ok(KEEP) } else { group(number) }
}

#[cold]
fn meant(find: fn(&UserNamespace, Id) -> Option<Id>, number: Id) -> Result<Id> {
    find(&current().credentials().user, number).ok_or(Errno::EINVAL)
}

/// An identity, as the current thread sees it (`cred_to_ucred`, net/core/sock.c).
pub fn shown_identity(of: Ucred) -> Ucred {
    if of.uid == KEEP {
        return of;
    }
    let pid = visible::shown_signed(of.pid);
    Ucred { pid, uid: shown_user(of.uid), gid: shown_group(of.gid) }
}

/// Whether the information of a signal names a process and its user (`has_si_pid_and_uid`).
pub(super) fn names_a_sender(info: &Siginfo) -> bool {
    matches!(info.si_code, SI_USER | SI_TKILL | SI_QUEUE | SI_MESGQ)
        || info.si_signo == SIGCHLD as i32 && info.si_code > 0
}

/// The information with another process and another user.
fn with_sender(info: &Siginfo, process: impl Fn(u32) -> u32, user: impl Fn(Id) -> Id) -> Siginfo {
    let mut info = *info;
    let first = info.fields[0];
    let (process, user) = (process(first as u32), user((first >> 32) as Id));
    info.fields[0] = u64::from(process) | u64::from(user) << 32;
    info
}

/// The information of a signal that the current thread gives, with the numbers of process and user
/// inside the kernel (`send_signal_locked`, kernel/signal.c). A process that the thread does not
/// see is none.
pub fn told_by_current(info: Siginfo) -> Siginfo {
    if names_a_sender(&info) && try_current().is_some_and(|thread| thread.is_apart()) {
        let process = |number| match visible::meant(number) {
            visible::NOBODY => 0,
            found => found,
        };
        with_sender(&info, process, |number| user(number).unwrap_or(OVERFLOW))
    } else {
        info
    }
}

/// The information of a signal, as `receiver` sees it.
#[inline]
pub fn told_to(receiver: &Thread, info: Siginfo) -> Siginfo {
    if receiver.is_apart() { seen_inside(receiver, &info) } else { info }
}

#[cold]
fn seen_inside(receiver: &Thread, info: &Siginfo) -> Siginfo {
    if !names_a_sender(info) {
        return *info;
    }
    let credentials = receiver.credentials();
    let process = |kernel| visible::shown_to(&receiver.process, kernel);
    with_sender(info, process, |user| credentials.user.shown_user(user))
}
