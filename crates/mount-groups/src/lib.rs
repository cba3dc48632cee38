//! How mounts share what is mounted on them (mount_namespaces(7), "Shared subtrees"; fs/pnode.c of
//! Linux 6.1), without mounts.
//!
//! The members of a *peer group* get everything that is mounted on one of them. A *slave* of a
//! group gets what is mounted on a member of it, and gives nothing back. A group may be a slave of
//! another one as a whole: a mount that became a slave and was shared after that begins such a
//! group, and every later member is a copy of it.
//!
//! So the state of a mount is one [`Propagation`], and the master of a shared mount is its group's,
//! for as long as the group lives. That is all: the members of a group are found by asking mounts.
//! A group knows how many members it has. When the last one has left, its slaves are slaves of its
//! own master: [`Group::living`] finds that out when somebody asks, so nobody has to be found and
//! changed when a mount goes, and no memory is needed then.
//!
//! The road not taken: rings of peers and lists of slaves through the mounts, as Linux has them. A
//! mount then has to be taken out of both, with its slaves, wherever it ends.
//!
//! The caller serializes changes; a member may end at any time.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

/// Mounts that get whatever is mounted on one of them.
#[derive(Debug)]
pub struct Group {
    number: u32,
    members: AtomicU32,
    master: Option<Arc<Group>>,
}

impl Group {
    /// A group without members, all of which are to be slaves of `master`.
    pub fn new(number: u32, master: Option<Arc<Group>>) -> Arc<Group> {
        Arc::new(Group { number, members: AtomicU32::new(0), master })
    }

    /// The number that programs see (`shared:N` in `/proc/PID/mountinfo`).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// How many members it has.
    pub fn members(&self) -> u32 {
        self.members.load(Ordering::Acquire)
    }

    /// The group whose slaves its members are.
    pub fn master(&self) -> Option<Arc<Group>> {
        self.master.as_ref().and_then(Group::living)
    }

    /// The group, or, if it has no members any more, the closest one above it that has some.
    pub fn living(self: &Arc<Group>) -> Option<Arc<Group>> {
        let mut group = self;
        while group.members() == 0 {
            group = group.master.as_ref()?;
        }
        Some(Arc::clone(group))
    }
}

impl Drop for Group {
    /// Without recursion: a program can make each group the master of the next.
    fn drop(&mut self) {
        let mut next = self.master.take();
        while let Some(mut group) = next.and_then(Arc::into_inner) {
            next = group.master.take();
        }
    }
}

/// A place among the members of a group.
#[derive(Debug)]
pub struct Member(Arc<Group>);

impl Member {
    /// One more.
    pub fn of(group: Arc<Group>) -> Member {
        group.members.fetch_add(1, Ordering::Relaxed);
        Member(group)
    }

    /// Its group.
    pub fn group(&self) -> &Arc<Group> {
        &self.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.members.fetch_sub(1, Ordering::Release);
    }
}

/// What a program asks for (`mount(2)`, "Changing the propagation type of an existing mount").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `MS_PRIVATE`
    Private,
    /// `MS_UNBINDABLE`
    Unbindable,
    /// `MS_SLAVE`
    Slave,
    /// `MS_SHARED`
    Shared,
}

/// How a mount shares what is mounted on it.
#[derive(Debug, Default)]
pub enum Propagation {
    /// It does not.
    #[default]
    Private,
    /// It does not, and no other place shows it, either.
    Unbindable,
    /// It gets what is mounted on members of the group.
    Slave(Arc<Group>),
    /// It is a member.
    Shared(Member),
}

impl Propagation {
    /// A copy: a mount of the same files elsewhere. `in_fewer_hands`: it is for a namespace with
    /// fewer rights, so a copy of a member is a slave (`CL_SHARED_TO_SLAVE`).
    pub fn copied(&self, in_fewer_hands: bool) -> Propagation {
        match self {
            Propagation::Private => Propagation::Private,
            Propagation::Unbindable => Propagation::Unbindable,
            Propagation::Slave(master) => Propagation::Slave(Arc::clone(master)),
            Propagation::Shared(member) if in_fewer_hands => {
                Propagation::Slave(Arc::clone(member.group()))
            }
            Propagation::Shared(member) => {
                Propagation::Shared(Member::of(Arc::clone(member.group())))
            }
        }
    }

    /// Its group, if it is shared.
    pub fn group(&self) -> Option<&Arc<Group>> {
        match self {
            Propagation::Shared(member) => Some(member.group()),
            _ => None,
        }
    }

    /// The group from which it gets mounts, whether or not it is shared itself.
    pub fn master(&self) -> Option<Arc<Group>> {
        match self {
            Propagation::Slave(master) => master.living(),
            Propagation::Shared(member) => member.group().master(),
            Propagation::Private | Propagation::Unbindable => None,
        }
    }

    /// The group that it is in, or the one that it is to begin, without members so far.
    pub fn group_to_be(&self, number: impl FnOnce() -> u32) -> Arc<Group> {
        self.group().map_or_else(|| Group::new(number(), self.master()), Arc::clone)
    }

    /// Changes it (`change_mnt_propagation`); a group that begins gets the number.
    pub fn change(&mut self, kind: Kind, number: impl FnOnce() -> u32) {
        *self = match kind {
            Kind::Private => Propagation::Private,
            Kind::Unbindable => Propagation::Unbindable,
            Kind::Shared => Propagation::Shared(Member::of(self.group_to_be(number))),
            Kind::Slave => match self {
                Propagation::Unbindable => Propagation::Unbindable,
                // Of those that were its peers.
                Propagation::Shared(member) if member.group().members() > 1 => {
                    Propagation::Slave(Arc::clone(member.group()))
                }
                _ => self.master().map_or(Propagation::Private, Propagation::Slave),
            },
        };
    }
}

#[cfg(test)]
mod tests;
