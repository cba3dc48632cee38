//! `/proc/PID/uid_map`, `gid_map`, `projid_map` and `setgroups`: the maps of a process's user
//! namespace (user_namespaces(7)).
//!
//! Each map is written once, as a whole. Who may write which map is decided as in Linux 6.1
//! (`map_write` and `new_idmap_permitted`, kernel/user_namespace.c): by who opened the file as well
//! as by who writes, so that nobody gets a program with more rights to write what it was handed.
//!
//! Lock: [`MAPS`] makes the order of writes one of whole writes. A map is read without it.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_id_map::{IdMap, LONGEST, NONE, Refusal};
use hayate_machine::sync::Once;

use super::target::Target;
use super::text::line;
use crate::credentials::{Capability, Credentials, Id};
use crate::namespace::Handle;
use crate::process::thread::current;
use crate::reclaim::growth::{Grow, relieved};
use crate::schedule::Mutex;
use crate::user_namespace::UserNamespace;
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits};
use crate::vfs::transfer::{Input, Output};

/// Held while a map or the word about groups is written.
static MAPS: Mutex<()> = Mutex::new(());

/// The kind of numbers that a map is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Users,
    Groups,
    Projects,
}

impl Which {
    fn map(self, of: &UserNamespace) -> &Once<IdMap> {
        match self {
            Which::Users => &of.users,
            Which::Groups => &of.groups,
            Which::Projects => &of.projects,
        }
    }

    /// The capability that gives any of these numbers; projects need none.
    fn capability(self) -> Option<Capability> {
        match self {
            Which::Users => Some(Capability::Setuid),
            Which::Groups => Some(Capability::Setgid),
            Which::Projects => None,
        }
    }

    /// The first outer number of a range of a namespace's.
    fn lowered(self, of: &UserNamespace, first: Id, count: Id) -> Option<Id> {
        if of.is_first() {
            return Some(first);
        }
        self.map(of).get()?.range_outside(first, count)
    }

    /// The number inside a namespace.
    fn number(self, of: &UserNamespace, id: Id) -> Option<Id> {
        if of.is_first() { Some(id) } else { self.map(of).get()?.inside(id) }
    }
}

fn user_of(target: &Target) -> Result<Handle<UserNamespace>> {
    Ok(target.thread()?.credentials().user.clone())
}

fn open_map(target: &Target, which: Which) -> Result<Arc<dyn FileOps>> {
    let (user, opener) = (user_of(target)?, current().credentials());
    Ok(Arc::new(Map { which, user, opener }))
}

/// Opens `uid_map`.
pub fn users(target: &Target, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    open_map(target, Which::Users)
}

/// Opens `gid_map`.
pub fn groups(target: &Target, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    open_map(target, Which::Groups)
}

/// Opens `projid_map`.
pub fn projects(target: &Target, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    open_map(target, Which::Projects)
}

/// An open map.
struct Map {
    which: Which,
    user: Handle<UserNamespace>,
    opener: Arc<Credentials>,
}

impl Map {
    /// The text: as the opener sees the outer numbers, from its own namespace or, if the map is of
    /// that, from its parent.
    fn text(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        if self.user.is_first() {
            line(&mut out, format_args!("{:10} {:10} {:10}", 0, 0, NONE))?;
            return Ok(out);
        }
        let own = &self.opener.user;
        let seen_from = if own.is(&self.user) { own.parent().unwrap_or(own) } else { own };
        let extents = self.which.map(&self.user).get().map_or(&[][..], IdMap::extents);
        for extent in extents {
            let outside = self.which.number(seen_from, extent.outside).unwrap_or(NONE);
            let (inside, count) = (extent.inside, extent.count);
            line(&mut out, format_args!("{inside:10} {outside:10} {count:10}"))?;
        }
        Ok(out)
    }

    fn store(&self, text: &[u8]) -> Result<()> {
        let parent = self.user.parent().ok_or(Errno::EPERM)?;
        if !self.opener.user.is(&self.user) && !self.opener.user.is(parent) {
            return Err(Errno::EPERM);
        }
        let _lock = MAPS.lock();
        let map = self.which.map(&self.user);
        if map.get().is_some() {
            return Err(Errno::EPERM);
        }
        if self.which.capability().is_some() {
            self.opener.require_in(&self.user, Capability::SysAdmin)?;
        }
        let new = IdMap::parse(text).map_err(error)?;
        if !self.is_permitted(parent, &new) {
            return Err(Errno::EPERM);
        }
        let of_parent = |first, count| self.which.lowered(parent, first, count);
        let new = new.lowered(of_parent).map_err(error)?;
        map.call_once(|| new);
        Ok(())
    }

    /// `new_idmap_permitted`
    fn is_permitted(&self, parent: &UserNamespace, new: &IdMap) -> bool {
        if self.which == Which::Users && !self.may_map_root(parent, new) {
            return false;
        }
        let opener = &self.opener;
        if let Some(outside) = new.single().filter(|_| self.user.owner == opener.euid) {
            let lowered = self.which.lowered(parent, outside, 1);
            let allows_groups = self.user.allows_groups.load(Ordering::Relaxed);
            // One's own number, which gives nothing that one has not got.
            let is_own = match self.which {
                Which::Users => lowered == Some(opener.euid),
                Which::Groups => !allows_groups && lowered == Some(opener.egid),
                Which::Projects => false,
            };
            if is_own {
                return true;
            }
        }
        let Some(capability) = self.which.capability() else { return true };
        current().credentials().has_in(parent, capability) && opener.has_in(parent, capability)
    }

    /// Whether the opener may map the parent's root, if the map does (`verify_root_map`): files
    /// with capabilities of that root count for the namespace.
    fn may_map_root(&self, parent: &UserNamespace, new: &IdMap) -> bool {
        if new.inside(0).is_none() {
            return true;
        }
        if self.opener.user.is(&self.user) {
            return self.user.may_map_root;
        }
        self.opener.has_in(parent, Capability::Setfcap)
    }
}

fn error(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Invalid => Errno::EINVAL,
        Refusal::NoMemory => Errno::ENOMEM,
        Refusal::Unmapped => Errno::EPERM,
    }
}

/// Takes a text of fewer than `room` bytes, written at the beginning of the file: `EINVAL`.
fn taken(offset: u64, input: &mut Input<'_>, room: usize) -> Result<Vec<u8>> {
    let length = input.remaining();
    if offset != 0 || length >= room {
        return Err(Errno::EINVAL);
    }
    let mut text = Vec::new();
    text.make_room_exact(length)?;
    text.resize(length, 0);
    let count = input.take(&mut text)?;
    text.truncate(count);
    Ok(text)
}

/// Gives what of a text lies at `offset`.
fn give(text: &[u8], offset: u64, out: &mut Output<'_>) -> Result<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
    let rest = text.get(start..).unwrap_or_default();
    out.put(rest.get(..out.remaining()).unwrap_or(rest))
}

impl FileOps for Map {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        give(&relieved(|| self.text())?, offset, out)
    }

    fn write(&self, _: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let text = taken(*offset, input, LONGEST)?;
        self.store(&text)?;
        Ok(text.len())
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }
}

/// Opens `setgroups`, for writing only for an administrator of the namespace: `EACCES`.
pub fn set_groups(target: &Target, request: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    let user = user_of(target)?;
    if request.writes() && !request.credentials.has_in(&user, Capability::SysAdmin) {
        return Err(Errno::EACCES);
    }
    Ok(Arc::new(SetGroups(user)))
}

/// Open `setgroups` of a namespace.
struct SetGroups(Handle<UserNamespace>);

impl SetGroups {
    /// Allows or forbids `setgroups(2)`: what is forbidden stays so, and is not forbidden any more
    /// once there are groups: a member could leave one that only takes rights
    /// (`proc_setgroups_write`).
    fn store(&self, text: &[u8]) -> Result<()> {
        let SetGroups(user) = self;
        let word = text.trim_ascii_end();
        let _lock = MAPS.lock();
        match word {
            b"allow" if user.allows_groups.load(Ordering::Relaxed) => Ok(()),
            b"allow" => Err(Errno::EPERM),
            b"deny" if user.is_first() || user.groups.get().is_some() => Err(Errno::EPERM),
            b"deny" => {
                user.allows_groups.store(false, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

impl FileOps for SetGroups {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let allows = self.0.allows_groups.load(Ordering::Relaxed);
        let text = format!("{}\n", if allows { "allow" } else { "deny" });
        give(text.as_bytes(), offset, out)
    }

    fn write(&self, _: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        /// The bytes of Linux' buffer.
        const ROOM: usize = 8;
        let text = taken(*offset, input, ROOM)?;
        self.store(&text)?;
        Ok(text.len())
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }
}
