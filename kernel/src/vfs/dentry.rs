//! The tree of names (dentries): the cache between paths and inodes.
//!
//! A [`Dentry`] is a name in a directory together with its target: an inode, or none (a negative
//! dentry: the cached fact that there is no such file). The root of a mounted file system is a
//! dentry without a parent. A parent's table owns its children, and a child owns its parent, so a
//! place in use keeps its way to the root alive. Removal and pruning take the child out of the
//! table and thereby break the reference cycle. Therefore a removed directory has no children: its
//! remaining negative dentries are dropped with it ([`Dentry::remove`]), and names that are looked
//! up in it afterwards are not cached.
//!
//! A file system whose tree others change as well ([`Caching::InUse`]) is asked at every walk, so
//! its dentries are worth keeping only while they are in use: for the directory locks, for what is
//! mounted on them, for the mark that a name was removed. It has a table of its own for them,
//! [`HeldNames`], which owns none; the tables of its directories stay empty. So a walk through
//! other file systems finds out nothing about it: only a name that is not cached leads there.
//!
//! [`Caching::InUse`]: super::filesystem::Caching::InUse
//!
//! # Locks
//!
//! Each dentry has a *directory lock*, which sleeps: it is held over look-ups that ask the file
//! system and over every change of the directory's entries. Order: the global rename lock, then
//! directory locks from the ancestor to the descendant (two unrelated ones: by address), then any
//! lock of the file system. The spin locks (`children`, `link`, `inode`) are leaves, taken one at a
//! time; a walk through cached names takes only them.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashTable;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::filesystem::FileSystem;
use super::inode::Inode;
use crate::hash::{hash_name, word};
use crate::page_cache::hint::LifetimeHint;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule;

/// The longest name of an entry, in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// A name, shared between the dentry and its parent's table.
pub type Name = Arc<[u8]>;

/// The cached children of a directory, by the hash of the name.
type Children = HashTable<(Name, Arc<Dentry>)>;

/// Whether two names are equal. Compares in words, because a call of `memcmp` costs more than
/// comparing the few bytes of most names.
#[inline]
fn same_name(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let (mut one, mut other) = (one, other);
    while one.len() > 8 {
        let ((head, tail), (other_head, other_tail)) = (one.split_at(8), other.split_at(8));
        if word(head) != word(other_head) {
            return false;
        }
        (one, other) = (tail, other_tail);
    }
    word(one) == word(other)
}

/// Room for `more` children in a table. `ENOMEM`.
fn reserve(children: &mut Children, more: usize) -> Result<()> {
    if children.capacity() - children.len() < more && growth::is_refused() {
        return Err(Errno::ENOMEM);
    }
    children.try_reserve(more, |child| hash_name(&child.0)).map_err(|_| Errno::ENOMEM)
}

bitflags::bitflags! {
    /// The state of a dentry besides its name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DentryState: u32 {
        /// Something is mounted here, in at least one mount of this tree.
        const MOUNTED = 1;
        /// The name was removed; only existing references still reach the file.
        const UNLINKED = 2;
        /// It has no name in the tree: a pipe, socket, memfd.
        const ANONYMOUS = 4;
        /// Made without a name on purpose (`O_TMPFILE`); may be given one.
        const LINKABLE = 8;
        /// Its file system has a table of the names in use ([`HeldNames`]).
        const HELD = 16;
    }
}

/// The dentries in use of a file system that is asked at every walk, by the address of their
/// directory's dentry, which each of them keeps alive, and by name. None of them is owned here.
#[derive(Default)]
pub struct HeldNames(SpinLock<BTreeMap<(usize, Name), Weak<Dentry>>>);

impl HeldNames {
    fn key(directory: &Dentry, name: &Name) -> (usize, Name) {
        (core::ptr::from_ref(directory).addr(), Arc::clone(name))
    }

    /// Returns the dentry of a name, if it is in use.
    pub fn find(&self, directory: &Dentry, name: &Name) -> Option<Arc<Dentry>> {
        self.0.lock().get(&Self::key(directory, name)).and_then(Weak::upgrade)
    }

    /// Enters a dentry under its name; one that was there is not found any more.
    fn enter(&self, directory: &Dentry, name: &Name, child: &Arc<Dentry>) {
        self.0.lock().insert(Self::key(directory, name), Arc::downgrade(child));
    }

    /// Enters `child`, unless there is one with the same inode, which is returned.
    fn enter_or_find(&self, directory: &Dentry, name: &Name, child: Arc<Dentry>) -> Arc<Dentry> {
        let key = Self::key(directory, name);
        let mut names = self.0.lock();
        let old = names.get(&key).and_then(Weak::upgrade);
        let new = child.inode();
        let same = old.as_ref().is_some_and(|old| match (&*old.inode.lock(), &new) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        });
        if !same {
            names.insert(key, Arc::downgrade(&child));
        }
        drop(names);
        // Neither is dropped under the lock, which the end of a dentry takes.
        match old {
            Some(old) if same => old,
            _ => child,
        }
    }

    /// Takes a name out.
    fn take(&self, directory: &Dentry, name: &Name) -> Option<Arc<Dentry>> {
        self.0.lock().remove(&Self::key(directory, name))?.upgrade()
    }

    /// Takes out the entry of a dentry that ends, unless another one has its place.
    fn end(&self, directory: &Dentry, name: &Name, ended: *const Dentry) {
        let key = Self::key(directory, name);
        let mut names = self.0.lock();
        if names.get(&key).is_some_and(|held| held.as_ptr() == ended) {
            names.remove(&key);
        }
    }
}

struct Link {
    parent: Option<Arc<Dentry>>,
    name: Name,
}

/// A name in the tree.
pub struct Dentry {
    filesystem: Arc<dyn FileSystem>,
    link: SpinLock<Link>,
    inode: SpinLock<Option<Arc<dyn Inode>>>,
    children: SpinLock<Children>,
    directory: schedule::Mutex<()>,
    state: AtomicU32,
    /// The expected lifetime of data written to it, for a file without a page cache.
    pub hint: LifetimeHint,
}

impl Dentry {
    fn build(
        filesystem: Arc<dyn FileSystem>,
        parent: Option<Arc<Dentry>>,
        name: Name,
        inode: Option<Arc<dyn Inode>>,
        state: DentryState,
    ) -> Arc<Dentry> {
        Arc::new(Dentry {
            filesystem,
            link: SpinLock::new(Link { parent, name }),
            inode: SpinLock::new(inode),
            children: SpinLock::new(Children::new()),
            directory: schedule::Mutex::new(()),
            state: AtomicU32::new(state.bits()),
            hint: LifetimeHint::new(),
        })
    }

    /// Makes the root of a file system.
    pub fn root(filesystem: Arc<dyn FileSystem>) -> Arc<Dentry> {
        let inode = filesystem.root();
        let mut state = DentryState::empty();
        state.set(DentryState::HELD, filesystem.held().is_some());
        Dentry::build(filesystem, None, Name::from(&b"/"[..]), Some(inode), state)
    }

    /// Makes a dentry for an inode without a path, shown as `name` (`pipe:[17]`).
    pub fn anonymous(
        filesystem: Arc<dyn FileSystem>,
        name: &[u8],
        inode: Arc<dyn Inode>,
    ) -> Arc<Dentry> {
        Dentry::build(filesystem, None, Name::from(name), Some(inode), DentryState::ANONYMOUS)
    }

    /// Makes a child that is not (yet) in the table of its parent.
    pub fn child(parent: &Arc<Dentry>, name: Name, inode: Option<Arc<dyn Inode>>) -> Arc<Dentry> {
        Dentry::build(
            Arc::clone(&parent.filesystem),
            Some(Arc::clone(parent)),
            name,
            inode,
            parent.state() & DentryState::HELD,
        )
    }

    /// Returns the dentry in use for `name`, which the file system says leads to `inode`: one that
    /// is in use already, or a new one. For a file system with [`HeldNames`].
    pub fn hold(self: &Arc<Self>, name: &Name, inode: Arc<dyn Inode>) -> Arc<Dentry> {
        let child = Dentry::child(self, Arc::clone(name), Some(inode));
        match self.filesystem.held() {
            Some(held) => held.enter_or_find(self, name, child),
            None => child,
        }
    }

    /// Returns the file system that the name is in.
    pub fn filesystem(&self) -> &Arc<dyn FileSystem> {
        &self.filesystem
    }

    /// Returns the file, or `None` for a negative dentry.
    pub fn inode(&self) -> Option<Arc<dyn Inode>> {
        self.inode.lock().clone()
    }

    /// Gives a negative dentry a file, or takes the file from a removed one.
    pub fn set_inode(&self, inode: Option<Arc<dyn Inode>>) {
        let old = core::mem::replace(&mut *self.inode.lock(), inode);
        drop(old);
    }

    /// Returns the name.
    pub fn name(&self) -> Name {
        self.link.lock().name.clone()
    }

    /// Returns the directory that the name is in; `None` for a root or an anonymous dentry.
    pub fn parent(&self) -> Option<Arc<Dentry>> {
        self.link.lock().parent.clone()
    }

    /// Moves the dentry to another parent and name. The caller holds both directory locks and the
    /// rename lock, and updates the tables.
    pub fn relink(&self, parent: Arc<Dentry>, name: Name) {
        let old = core::mem::replace(&mut *self.link.lock(), Link { parent: Some(parent), name });
        drop(old);
    }

    /// Takes the directory lock.
    pub fn lock_directory(&self) -> schedule::MutexGuard<'_, ()> {
        self.directory.lock()
    }

    /// Returns the cached child of this name.
    #[inline]
    pub fn cached(&self, name: &[u8]) -> Option<Arc<Dentry>> {
        let children = self.children.lock();
        let found = children.find(hash_name(name), |child| same_name(&child.0, name))?;
        Some(Arc::clone(&found.1))
    }

    /// Reserves memory for `more` children, so that [`Dentry::adopt`] cannot fail as long as the
    /// caller holds the directory lock. Called before an operation that changes a file system and
    /// then the table. `ENOMEM`. The caller holds no spin lock.
    pub fn reserve(&self, more: usize) -> Result<()> {
        growth::relieved(|| reserve(&mut self.children.lock(), more))
    }

    /// Marks a name as removed and drops the cached names below it. For a directory the caller
    /// holds its directory lock, so that no name is added to the table at the same time.
    pub fn remove(&self) {
        self.set_state(DentryState::UNLINKED);
        let children = core::mem::take(&mut *self.children.lock());
        drop(children);
    }

    /// Adds a child to the table, replacing one of the same name.
    pub fn adopt(&self, child: &Arc<Dentry>) -> Result<()> {
        let name = child.name();
        if self.state().contains(DentryState::HELD)
            && let Some(held) = self.filesystem.held()
        {
            held.enter(self, &name, child);
            return Ok(());
        }
        let hash = hash_name(&name);
        let mut children = self.children.lock();
        if reserve(&mut children, 1).is_err() {
            drop(children);
            self.reserve(1)?;
            children = self.children.lock();
            reserve(&mut children, 1)?;
        }
        let old = match children.find_mut(hash, |child| same_name(&child.0, &name)) {
            Some(place) => Some(core::mem::replace(place, (name, Arc::clone(child)))),
            None => {
                let new = (name, Arc::clone(child));
                children.insert_unique(hash, new, |child| hash_name(&child.0));
                None
            }
        };
        drop(children);
        drop(old);
        Ok(())
    }

    /// Removes a child from the table.
    pub fn disown(&self, name: &[u8]) -> Option<Arc<Dentry>> {
        if self.state().contains(DentryState::HELD)
            && let Some(held) = self.filesystem.held()
        {
            return held.take(self, &Name::from(name));
        }
        let mut children = self.children.lock();
        let found = children.find_entry(hash_name(name), |child| same_name(&child.0, name));
        let (removed, _) = found.ok()?.remove();
        drop(children);
        Some(removed.1)
    }

    /// Whether `self` is `other` or lies somewhere below it.
    pub fn is_within(self: &Arc<Self>, other: &Arc<Dentry>) -> bool {
        let mut here = Arc::clone(self);
        loop {
            if Arc::ptr_eq(&here, other) {
                return true;
            }
            match here.parent() {
                Some(parent) => here = parent,
                None => return false,
            }
        }
    }

    /// Returns the flags.
    #[inline]
    pub fn state(&self) -> DentryState {
        DentryState::from_bits_retain(self.state.load(Ordering::Acquire))
    }

    /// Sets flags.
    pub fn set_state(&self, flags: DentryState) {
        self.state.fetch_or(flags.bits(), Ordering::AcqRel);
    }

    /// Clears flags.
    pub fn clear_state(&self, flags: DentryState) {
        self.state.fetch_and(!flags.bits(), Ordering::AcqRel);
    }

    /// Drops unused cached names below this dentry; returns how many. The file system can be asked
    /// for them again.
    pub fn prune(self: &Arc<Self>) -> usize {
        let mut pruned = 0;
        // Depth first with an explicit stack: a tree can be deeper than a kernel stack.
        let mut stack: Vec<(Arc<Dentry>, Vec<Arc<Dentry>>)> = Vec::new();
        if stack.make_room(1).is_err() {
            return 0;
        }
        stack.push((Arc::clone(self), self.cached_children()));
        while let Some((directory, waiting)) = stack.last_mut() {
            if let Some(child) = waiting.pop() {
                let below = child.cached_children();
                if !below.is_empty() && stack.make_room(1).is_ok() {
                    stack.push((child, below));
                }
                continue;
            }
            let mut dropped = Vec::new();
            directory.children.lock().retain(|(_, child)| {
                let used =
                    Arc::strong_count(child) > 1 || child.state().contains(DentryState::MOUNTED);
                if !used && dropped.make_room(1).is_ok() {
                    dropped.push(Arc::clone(child));
                    return false;
                }
                true
            });
            pruned += dropped.len();
            stack.pop();
        }
        pruned
    }

    /// Drops the cached name `name` of the directory `inode`, which is this dentry or somewhere
    /// below it: the directory was changed behind the cache (in an overlay's upper layer). Visits
    /// only names that are cached.
    pub fn forget_name(self: &Arc<Self>, inode: &Arc<dyn Inode>, name: &[u8]) {
        let mut waiting = Vec::new();
        let mut next = Some(Arc::clone(self));
        while let Some(dentry) = next {
            let here = dentry.inode.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, inode));
            if here {
                let used = |child: Arc<Dentry>| child.state().contains(DentryState::MOUNTED);
                if !dentry.cached(name).is_some_and(used) {
                    dentry.disown(name);
                }
                return;
            }
            let all = {
                let least = dentry.children.lock().len();
                let _ = growth::relieved(|| waiting.make_room(least));
                let children = dentry.children.lock();
                let room = waiting.make_room(children.len()).is_ok();
                if room {
                    waiting.extend(children.iter().map(|(_, child)| Arc::clone(child)));
                }
                room
            };
            if !all {
                // Without memory for the search, all unused names are dropped.
                self.prune();
                return;
            }
            next = waiting.pop();
        }
    }

    /// Returns the cached children; an empty list if there is no memory for it, because pruning
    /// also happens when memory is exhausted.
    pub fn cached_children(&self) -> Vec<Arc<Dentry>> {
        let mut list = Vec::new();
        let children = self.children.lock();
        if list.make_room_exact(children.len()).is_ok() {
            list.extend(children.iter().map(|(_, child)| Arc::clone(child)));
        }
        list
    }

    /// Drops the whole tree below, because the file system was unmounted. (Children own their
    /// parents, so nothing would be freed otherwise.)
    pub fn dismantle(self: &Arc<Self>) {
        let take = |dentry: &Arc<Dentry>| core::mem::take(&mut *dentry.children.lock());
        let mut waiting = Vec::new();
        waiting.push(take(self).into_iter());
        while let Some(children) = waiting.last_mut() {
            let Some((_, child)) = children.next() else {
                waiting.pop();
                continue;
            };
            if child.children.lock().is_empty() {
                continue;
            }
            if waiting.make_room(1).is_ok() {
                waiting.push(take(&child).into_iter());
            } else {
                child.dismantle_in_place();
            }
        }
    }

    /// Like [`Dentry::dismantle`], but without allocating: goes down to a leaf, and up again by the
    /// parent references.
    #[cold]
    fn dismantle_in_place(self: &Arc<Self>) {
        let mut at = Arc::clone(self);
        loop {
            let child = at.children.lock().extract_if(|_| true).next();
            at = match child {
                Some((_, child)) => child,
                None if Arc::ptr_eq(&at, self) => return,
                None => match at.parent() {
                    Some(parent) => parent,
                    None => return,
                },
            };
        }
    }
}

impl Dentry {
    /// Tells of the end of a removed or held name those that have to know.
    #[cold]
    fn end(&mut self, state: DentryState) {
        if state.contains(DentryState::UNLINKED)
            && let Some(inode) = self.inode.get_mut()
        {
            super::watch::gone(|| inode.metadata());
        }
        self.leave_names(self);
    }

    /// Takes a dentry that ends out of the names in use of its file system, if that has any.
    /// `ended`: where it was as long as others could refer to it.
    fn leave_names(&mut self, ended: *const Dentry) {
        let state = DentryState::from_bits_retain(*self.state.get_mut());
        let link = self.link.get_mut();
        if state.contains(DentryState::HELD)
            && let (Some(held), Some(directory)) = (self.filesystem.held(), &link.parent)
        {
            held.end(directory, &link.name, ended);
        }
    }
}

impl Drop for Dentry {
    /// If the name was removed, tells watchers of the file that it is gone: this was the last
    /// reference to it under the removed name (`dentry_unlink_inode`, fs/dcache.c).
    ///
    /// Releases the ancestors in a loop: a chain of last references can be longer than a kernel
    /// stack is deep.
    fn drop(&mut self) {
        let state = DentryState::from_bits_retain(*self.state.get_mut());
        if state.intersects(DentryState::UNLINKED | DentryState::HELD) {
            self.end(state);
        }
        let mut next = self.link.get_mut().parent.take();
        while let Some(parent) = next {
            let place = Arc::as_ptr(&parent);
            next = Arc::into_inner(parent).and_then(|mut owned| {
                owned.leave_names(place);
                owned.link.get_mut().parent.take()
            });
        }
    }
}
