//! User namespaces (user_namespaces(7)): in each, users and groups have numbers of its own, and
//! capabilities that count for what belongs to it.
//!
//! Inside the kernel a user has one number, that of the first namespace ("kuid" of Linux):
//! credentials, inodes and objects have these, and comparing them asks no namespace. A number is
//! translated where a program tells or is told one ([`UserNamespace::user`],
//! [`UserNamespace::shown_user`]).
//!
//! A namespace keeps its parent, up to the first, of which every other is a descendant. It has no
//! numbers before its maps are written, each once; so a map is read without a lock.
//!
//! A leaf module: it knows [`crate::namespace`] alone. The rules of who may write a map are above,
//! in `fs/proc/user_maps.rs`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_id_map::IdMap;
use hayate_machine::sync::Once;

use crate::namespace::{self, Handle};

/// A number of a user or a group.
pub type Id = u32;

/// The number shown for a user or a group that has none inside (`overflowuid`, `overflowgid`).
pub const OVERFLOW: Id = 65534;

/// The depth below which there is no further namespace (`create_user_ns`).
const DEEPEST: u32 = 32;

/// A user namespace.
pub struct UserNamespace {
    /// Its number.
    pub number: u64,
    parent: Option<Handle<UserNamespace>>,
    level: u32,
    /// The user who made it, to whom it belongs in the parent.
    pub owner: Id,
    /// Its users: inside, and in the first namespace.
    pub users: Once<IdMap>,
    /// Its groups, likewise.
    pub groups: Once<IdMap>,
    /// Its projects, likewise.
    pub projects: Once<IdMap>,
    /// Whether `setgroups(2)` was not forbidden (`/proc/PID/setgroups`).
    pub allows_groups: AtomicBool,
    /// Whether its maker had `CAP_SETFCAP`: may map the parent's root (`verify_root_map`).
    pub may_map_root: bool,
    /// Its place among those of the user who made it, given back at its end.
    _counted: Option<Box<dyn Send + Sync>>,
}

/// The first one.
pub static FIRST: UserNamespace = UserNamespace {
    number: namespace::first::USER,
    parent: None,
    level: 0,
    owner: 0,
    users: Once::new(),
    groups: Once::new(),
    projects: Once::new(),
    allows_groups: AtomicBool::new(true),
    may_map_root: true,
    _counted: None,
};

/// The first one, as a handle.
pub const fn first() -> Handle<UserNamespace> {
    Handle::First(&FIRST)
}

impl UserNamespace {
    /// Whether it is the first.
    pub fn is_first(&self) -> bool {
        self.parent.is_none()
    }

    /// The namespace that it was made in.
    pub fn parent(&self) -> Option<&Handle<UserNamespace>> {
        self.parent.as_ref()
    }

    /// Whether it is `other`.
    pub fn is(&self, other: &UserNamespace) -> bool {
        core::ptr::eq(self, other)
    }

    /// Whether it is `other` or a descendant of it (`in_userns`).
    pub fn is_within(&self, other: &UserNamespace) -> bool {
        let mut here = self;
        while here.level > other.level {
            let Some(parent) = &here.parent else { return false };
            here = parent;
        }
        here.is(other)
    }

    /// The namespace that lies directly in `above` and is this one or has it below; `None` if this
    /// one is not below `above`.
    pub fn child_of<'a>(&'a self, above: &UserNamespace) -> Option<&'a UserNamespace> {
        let mut here = self;
        loop {
            let parent = here.parent.as_ref()?;
            if parent.is(above) {
                return Some(here);
            }
            here = parent;
        }
    }

    /// The user of the first namespace who answers for `user` of this one: the owner of the
    /// outermost namespace around. What is made in here counts for that user, so that nobody gets
    /// more by namespaces.
    pub fn answerable(&self, user: Id) -> Id {
        self.child_of(&FIRST).map_or(user, |outermost| outermost.owner)
    }

    /// The user with this number inside (`make_kuid`).
    pub fn user(&self, number: Id) -> Option<Id> {
        self.outside(&self.users, number)
    }

    /// The group with this number inside (`make_kgid`).
    pub fn group(&self, number: Id) -> Option<Id> {
        self.outside(&self.groups, number)
    }

    /// The number of a user inside (`from_kuid`).
    pub fn user_number(&self, user: Id) -> Option<Id> {
        self.inside(&self.users, user)
    }

    /// The number of a group inside (`from_kgid`).
    pub fn group_number(&self, group: Id) -> Option<Id> {
        self.inside(&self.groups, group)
    }

    /// The number of a user inside, or that of nobody (`from_kuid_munged`).
    pub fn shown_user(&self, user: Id) -> Id {
        self.user_number(user).unwrap_or(OVERFLOW)
    }

    /// The number of a group inside, or that of nobody (`from_kgid_munged`).
    pub fn shown_group(&self, group: Id) -> Id {
        self.group_number(group).unwrap_or(OVERFLOW)
    }

    fn outside(&self, map: &Once<IdMap>, number: Id) -> Option<Id> {
        if self.is_first() { Some(number) } else { map.get()?.outside(number) }
    }

    fn inside(&self, map: &Once<IdMap>, id: Id) -> Option<Id> {
        if self.is_first() { Some(id) } else { map.get()?.inside(id) }
    }

    /// Whether `setgroups(2)` may be called inside (`userns_may_setgroups`).
    pub fn may_set_groups(&self) -> bool {
        let has_map = self.is_first() || self.groups.get().is_some();
        has_map && self.allows_groups.load(Ordering::Relaxed)
    }

    /// Whether there may be no namespace inside: it is too deep.
    pub fn is_deepest(&self) -> bool {
        self.level > DEEPEST
    }
}

/// Makes a namespace in `parent`, which belongs to `owner`.
pub fn another(
    parent: &Handle<UserNamespace>,
    owner: Id,
    may_map_root: bool,
    counted: Box<dyn Send + Sync>,
) -> Handle<UserNamespace> {
    Handle::Other(Arc::new(UserNamespace {
        number: namespace::number(),
        parent: Some(parent.clone()),
        level: parent.level + 1,
        owner,
        users: Once::new(),
        groups: Once::new(),
        projects: Once::new(),
        allows_groups: AtomicBool::new(parent.allows_groups.load(Ordering::Relaxed)),
        may_map_root,
        _counted: Some(counted),
    }))
}
