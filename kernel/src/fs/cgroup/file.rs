//! A file of a group: where it is, what it shows, what writing does.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::controllers::Controllers;
use hayate_cgroup_rules::number::Refusal;

use crate::credentials::Credentials;
use crate::namespace::Handle;
use crate::process::cgroup::events::Changes;
use crate::process::cgroup::group::{Group, file};
use crate::process::cgroup::namespace::CgroupNamespace;

/// The first number of files about which nobody is told.
pub const NEXT: u8 = file::OTHERS;

/// Where a file is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In every group.
    Everywhere,
    /// In every group but the root.
    NotInRoot,
    /// In every group but the root that has the controller.
    With(Controllers),
    /// In the root too.
    WithOrRoot(Controllers),
}

/// An open file.
pub struct Opening {
    /// The group whose it is.
    pub group: Arc<Group>,
    /// The rights of the opener.
    pub credentials: Arc<Credentials>,
    /// The cgroup namespace of the opener.
    pub namespace: Handle<CgroupNamespace>,
}

/// Writes what a file shows.
type Show = fn(&Group, &mut Vec<u8>) -> Result<()>;
/// Gets what was written into a file.
type Store = fn(&Opening, &[u8]) -> Result<()>;

/// A file.
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its number in its group, as in [`mod@file`].
    pub number: u8,
    /// Permission bits, unless they were changed.
    pub mode: u16,
    /// Where it is.
    pub place: Where,
    /// Those inside a namespace may write it at the namespace's root (`CFTYPE_NS_DELEGATABLE`).
    pub is_delegated: bool,
    /// Writes what it shows.
    pub show: Option<Show>,
    /// Gets what was written.
    pub store: Option<Store>,
    /// Its changes, of which programs are told.
    pub changes: Option<fn(&Group) -> &Changes>,
}

impl File {
    pub const fn shown(name: &'static str, number: u8, place: Where, show: Show) -> File {
        let (is_delegated, store, changes) = (false, None, None);
        File { name, number, mode: 0o444, place, is_delegated, show: Some(show), store, changes }
    }

    pub const fn set(mut self, store: Store) -> File {
        self.mode = 0o644;
        self.store = Some(store);
        self
    }

    pub const fn delegated(mut self) -> File {
        self.is_delegated = true;
        self
    }

    pub const fn watched(mut self, changes: fn(&Group) -> &Changes) -> File {
        self.changes = Some(changes);
        self
    }

    /// Whether a group has it.
    pub fn is_in(&self, group: &Group) -> bool {
        match self.place {
            Where::Everywhere => true,
            Where::NotInRoot => !group.is_root(),
            Where::WithOrRoot(_) if group.is_root() => true,
            Where::With(controller) | Where::WithOrRoot(controller) => {
                !group.is_root() && group.available().has(controller)
            }
        }
    }
}

/// The error of a number that does not fit.
pub fn number_error(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::NoNumber => Errno::EINVAL,
        Refusal::OutOfRange => Errno::ERANGE,
    }
}
