//! Mounts and places: which file system covers which directory.
//!
//! A [`Mount`] attaches a file system's tree (or a part of it, for a bind mount) to a directory of
//! another mount. A [`Location`] is a place as a walk sees it: a dentry together with the mount
//! through which it was reached.
//!
//! A mount namespace (mount_namespaces(7)) is a root, and with it all that hangs below: a mount is
//! in one namespace, in a tree that an open file has, or was unmounted. A walk does not know of
//! namespaces, for it begins at a place of its process, and no mount leads from one into another.
//!
//! A namespace may end anywhere, as with the last reference to a file that is bound in another one,
//! while that one is changed. So its end takes no lock: its root goes on a list, and the
//! holder of the [`lock`] takes that list apart before it gives the lock away ([`Changes`]).
//!
//! A namespace belongs to a user namespace. A copy for one with fewer rights has its mounts locked:
//! their flags and places stay, so that nobody in it uncovers what they hide or protect
//! ([`super::mount_locks`]).
//!
//! The table of mounts is one read-write spin lock, which a walk takes only at dentries that carry
//! the [`DentryState::MOUNTED`] mark. Changes (mount, unmount, move) also hold the sleeping
//! [`lock`], which serializes them.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasherDefault;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hashbrown::HashMap;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Lazy, RwSpinLock, SpinLock};
use hayate_mount_groups::Propagation;

use super::dentry::{Dentry, DentryState};
use super::filesystem::FileSystem;
use super::mount_trees::Trees;
use super::users::Counted;
use super::watch;
use crate::hash::IndexHasher;
use crate::namespace::{self, Handle};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::user_namespace::{self, UserNamespace};

/// `mount(2)` flags (`include/uapi/linux/mount.h`).
pub mod flags {
    #![allow(missing_docs, reason = "the names are those of mount(2)")]
    pub const MS_RDONLY: u64 = 1;
    pub const MS_NOSUID: u64 = 2;
    pub const MS_NODEV: u64 = 4;
    pub const MS_NOEXEC: u64 = 8;
    pub const MS_SYNCHRONOUS: u64 = 16;
    pub const MS_REMOUNT: u64 = 32;
    pub const MS_NOSYMFOLLOW: u64 = 256;
    pub const MS_NOATIME: u64 = 1024;
    pub const MS_NODIRATIME: u64 = 2048;
    pub const MS_BIND: u64 = 4096;
    pub const MS_MOVE: u64 = 8192;
    pub const MS_REC: u64 = 16384;
    pub const MS_SILENT: u64 = 32768;
    pub const MS_UNBINDABLE: u64 = 1 << 17;
    pub const MS_PRIVATE: u64 = 1 << 18;
    pub const MS_SLAVE: u64 = 1 << 19;
    pub const MS_SHARED: u64 = 1 << 20;
    pub const MS_RELATIME: u64 = 1 << 21;
    pub const MS_STRICTATIME: u64 = 1 << 24;
    /// The flags that a mount keeps.
    pub const KEPT: u64 = MS_RDONLY
        | MS_NOSUID
        | MS_NODEV
        | MS_NOEXEC
        | MS_NOSYMFOLLOW
        | MS_NOATIME
        | MS_NODIRATIME
        | MS_RELATIME
        | MS_STRICTATIME;
    /// The flags that protect files, or programs from files.
    pub const PROTECTION: u64 = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    /// The flags that decide which reads update the access time.
    pub const ACCESS_TIMES: u64 = MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME;
}

/// States of a mount for `MNT_EXPIRE`: just marked, and walked into once since.
const MARKED: u8 = 2;
const WORN: u8 = 1;

/// Values of [`Mount::mark`] while a tree is taken apart: it hangs below it, and it does not.
const BELOW: u8 = 1;
const ELSEWHERE: u8 = 2;

/// A file system's tree, attached to the tree of files.
pub struct Mount {
    id: u32,
    filesystem: Arc<dyn FileSystem>,
    root: Arc<Dentry>,
    /// The place where it is attached; `None` for the first root, for pseudo mounts and after
    /// unmounting.
    attached: SpinLock<Option<Location>>,
    flags: AtomicU64,
    source: String,
    /// Whether no walk came by since `MNT_EXPIRE` marked it; see [`Mount::expire`].
    expiring: AtomicU8,
    /// Whether it was never attached and may be: see [`Mount::loosen`].
    loose: AtomicBool,
    /// The user namespace in which its file system was mounted (`s_user_ns`).
    user: Handle<UserNamespace>,
    /// The flags that must stay: see [`super::mount_locks`].
    pub(super) locked_flags: AtomicU64,
    /// Whether it hides what is under it: see [`super::mount_locks`].
    pub(super) locked_place: AtomicBool,
    /// Whether a mount that hides something was taken from it.
    pub(super) sealed: AtomicBool,
    /// How it shares what is mounted on it: see [`super::propagation`].
    pub(super) propagation: SpinLock<Propagation>,
    /// The owner of the namespace whose root it is.
    root_for: SpinLock<Option<Handle<UserNamespace>>>,
    /// Used while mounts are detached, under the [`lock`]; 0 otherwise.
    pub(super) mark: AtomicU8,
    /// The next on the list of roots whose namespaces have ended, or of mounts that are detached.
    next: SpinLock<Option<Arc<Mount>>>,
}

/// A place in the tree.
#[derive(Clone)]
pub struct Location {
    /// The mount through which it was reached.
    pub mount: Arc<Mount>,
    /// The name.
    pub dentry: Arc<Dentry>,
}

type Mounts = HashMap<(u32, usize), Arc<Mount>, BuildHasherDefault<IndexHasher>>;

/// The mounts, by where they are attached.
#[derive(Default)]
struct Table {
    mounts: Mounts,
    /// How many are attached to each dentry, which carries the mark as long as there are some.
    points: HashMap<usize, u32, BuildHasherDefault<IndexHasher>>,
}

impl Table {
    /// Attaches a mount. There is room.
    fn hang(&mut self, place: &Location, mount: &Arc<Mount>) -> Option<Arc<Mount>> {
        let at = key(&place.mount, &place.dentry);
        let before = self.mounts.insert(at, Arc::clone(mount));
        if before.is_none() {
            *self.points.entry(at.1).or_insert(0) += 1;
        }
        place.dentry.set_state(DentryState::MOUNTED);
        before
    }

    /// Detaches what is attached there.
    fn unhang(&mut self, place: &Location) -> Option<Arc<Mount>> {
        let at = key(&place.mount, &place.dentry);
        let removed = self.mounts.remove(&at)?;
        // The dentry may still be a mount point in another mount of the same tree.
        if let Some(count) = self.points.get_mut(&at.1) {
            *count -= 1;
            if *count == 0 {
                self.points.remove(&at.1);
                place.dentry.clear_state(DentryState::MOUNTED);
            }
        }
        Some(removed)
    }
}

static TABLE: Lazy<RwSpinLock<Table>> = Lazy::new(|| RwSpinLock::new(Table::default()));
static TREES: SpinLock<Trees<Dentry, Mount>> = SpinLock::new(Trees::new());

static CHANGES: schedule::Mutex<()> = schedule::Mutex::new(());

fn key(mount: &Mount, dentry: &Arc<Dentry>) -> (u32, usize) {
    (mount.id, Arc::as_ptr(dentry).addr())
}

/// The key of a root of another namespace than the first, so that the table has all mounts. No
/// mount has number 0.
fn root_key(mount: &Arc<Mount>) -> (u32, usize) {
    (0, Arc::as_ptr(mount).addr())
}

/// The lock of all mount trees. Namespaces that ended meanwhile are taken apart before it is free.
pub struct Changes {
    guard: Option<schedule::MutexGuard<'static, ()>>,
}

/// Locks the mount trees against changes.
pub fn lock() -> Changes {
    Changes { guard: Some(CHANGES.lock()) }
}

/// The roots of namespaces that have ended and are not taken apart, linked by [`Mount::next`].
static ENDED: SpinLock<Option<Arc<Mount>>> = SpinLock::new(None);

/// Takes the namespaces apart that have ended. The caller holds the lock.
fn take_apart() {
    loop {
        let root = {
            let mut ended = ENDED.lock();
            let Some(root) = ended.take() else { return };
            *ended = root.next.lock().take();
            root
        };
        let listed = TABLE.write().mounts.remove(&root_key(&root));
        drop(listed);
        *root.root_for.lock() = None;
        root.detach_below();
    }
}

/// Takes the namespaces apart that have ended, unless somebody has the lock: then that will.
fn settle() {
    while ENDED.lock().is_some() {
        let Some(guard) = CHANGES.try_lock() else { return };
        take_apart();
        drop(guard);
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        take_apart();
        self.guard = None;
        // One may have ended after the look, when the lock was not free yet.
        settle();
    }
}

/// A mount namespace.
pub struct MountNamespace {
    /// Its number.
    pub number: u64,
    root: SpinLock<Option<Arc<Mount>>>,
    /// The user namespace that it belongs to.
    pub owner: Handle<UserNamespace>,
    /// Its place among those of the user who made it.
    _counted: Option<Counted>,
}

/// The first one. It has no root before the boot gives it one.
pub static FIRST: MountNamespace = MountNamespace {
    number: namespace::first::MNT,
    root: SpinLock::new(None),
    owner: user_namespace::first(),
    _counted: None,
};

impl MountNamespace {
    /// Another one, with a root that is attached nowhere. The caller holds [`lock`], and has made
    /// room in the table ([`reserve`]).
    pub fn with_root(
        root: Arc<Mount>,
        owner: Handle<UserNamespace>,
        counted: Counted,
    ) -> Handle<MountNamespace> {
        TABLE.write().mounts.insert(root_key(&root), Arc::clone(&root));
        *root.root_for.lock() = Some(owner.clone());
        Handle::Other(Arc::new(MountNamespace {
            number: namespace::number(),
            root: SpinLock::new(Some(root)),
            owner,
            _counted: Some(counted),
        }))
    }

    /// The mount that is its root.
    pub fn root_mount(&self) -> Option<Arc<Mount>> {
        self.root.lock().clone()
    }

    /// Its root, with all mounts on it.
    pub fn root(&self) -> Option<Location> {
        Some(self.root_mount()?.root_location().into_topmost())
    }

    /// Makes `mount` its root (at boot and by `pivot_root`). The caller holds [`lock`] after the
    /// boot.
    pub fn set_root(&self, mount: Arc<Mount>) {
        *mount.root_for.lock() = Some(self.owner.clone());
        let old = self.root.lock().replace(Arc::clone(&mount));
        let Some(old) = old else { return };
        *old.root_for.lock() = None;
        let listed = TABLE.write().mounts.remove(&root_key(&old));
        if listed.is_some() {
            // In the place of the old one, so that there is room.
            TABLE.write().mounts.insert(root_key(&mount), mount);
        }
        drop((old, listed));
    }

    /// Whether a mount hangs in it.
    pub fn has(&self, mount: &Arc<Mount>) -> bool {
        let top = mount.top();
        self.root.lock().as_ref().is_some_and(|root| Arc::ptr_eq(root, &top))
    }
}

impl Drop for MountNamespace {
    fn drop(&mut self) {
        let Some(root) = self.root.get_mut().take() else { return };
        let mut ended = ENDED.lock();
        *root.next.lock() = ended.take();
        *ended = Some(root);
        drop(ended);
        settle();
    }
}

/// The most mounts of all namespaces together. Linux has this limit for each (`fs.mount-max`).
const MOST: usize = 100_000;

/// Makes room for `more` mounts in the table, so that [`Mount::attach`] does not fail for want of
/// memory. The caller holds [`lock`] and changes nothing before.
///
/// # Errors
/// `ENOSPC` beyond [`MOST`], `ENOMEM`.
pub fn reserve(more: usize) -> Result<()> {
    if TABLE.read().mounts.len().saturating_add(more) > MOST {
        return Err(Errno::ENOSPC);
    }
    make_room(more)
}

/// The same without a limit, for mounts that change their places.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn make_room(more: usize) -> Result<()> {
    growth::relieved(|| {
        let mut table = TABLE.write();
        table.mounts.make_room(more)?;
        table.points.make_room(more)
    })
}

impl Mount {
    /// Makes a mount of `filesystem`'s tree from `root` on, which belongs to `user`; it is not
    /// attached yet.
    pub(super) fn new(
        filesystem: Arc<dyn FileSystem>,
        root: Arc<Dentry>,
        flags: u64,
        source: String,
        user: Handle<UserNamespace>,
    ) -> Arc<Mount> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mount = Arc::new(Mount {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            filesystem,
            root,
            attached: SpinLock::new(None),
            flags: AtomicU64::new(flags & flags::KEPT),
            source,
            expiring: AtomicU8::new(0),
            loose: AtomicBool::new(false),
            user,
            locked_flags: AtomicU64::new(0),
            locked_place: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
            propagation: SpinLock::new(Propagation::Private),
            root_for: SpinLock::new(None),
            mark: AtomicU8::new(0),
            next: SpinLock::new(None),
        });
        TREES.lock().add(mount.filesystem.device(), &mount.root, mount.id, &mount);
        mount
    }

    /// Makes a mount of a whole file system. If the file system is mounted already, its dentries
    /// are shared.
    pub fn whole(filesystem: Arc<dyn FileSystem>, flags: u64, source: String) -> Arc<Mount> {
        Mount::whole_of(filesystem, flags, source, user_namespace::first())
    }

    /// The same, for a file system that was mounted in the user namespace `user`.
    pub fn whole_of(
        filesystem: Arc<dyn FileSystem>,
        flags: u64,
        source: String,
        user: Handle<UserNamespace>,
    ) -> Arc<Mount> {
        let known = TREES.lock().root(filesystem.device());
        let root = known.unwrap_or_else(|| Dentry::root(Arc::clone(&filesystem)));
        Mount::new(filesystem, root, flags, source, user)
    }

    /// The user namespace in which its file system was mounted.
    pub fn user(&self) -> &Handle<UserNamespace> {
        &self.user
    }

    /// Returns its number (`/proc/PID/mountinfo`, `statx`).
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the file system.
    pub fn filesystem(&self) -> &Arc<dyn FileSystem> {
        &self.filesystem
    }

    /// Returns the root of the mounted tree.
    pub fn root(&self) -> &Arc<Dentry> {
        &self.root
    }

    /// Returns the place where it is attached.
    pub fn attached(&self) -> Option<Location> {
        self.attached.lock().clone()
    }

    /// `MS_*` flags kept.
    pub fn flags(&self) -> u64 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Sets the kept flags (remount). The caller holds [`lock`].
    pub fn set_flags(&self, flags: u64) {
        self.flags.store(flags & flags::KEPT, Ordering::Relaxed);
        watch::mounts_changed();
    }

    /// Whether a read through it updates the access time at all; for a directory if `directory`.
    #[inline]
    pub fn notes_access(&self, directory: bool) -> bool {
        let hinders = if directory { flags::MS_NODIRATIME } else { 0 };
        self.flags() & (flags::MS_NOATIME | flags::MS_RDONLY | hinders) == 0
    }

    /// Whether every read updates the access time, not only the first after a change or in a day.
    #[inline]
    pub fn notes_every_access(&self) -> bool {
        self.flags() & flags::MS_STRICTATIME != 0
    }

    /// `MNT_EXPIRE`: marks the mount. Returns whether it was marked before and no walk came by
    /// since (umount2(2)). The caller's own walk to this mount lowers the mark by one step, which
    /// is accounted for.
    pub fn expire(&self) -> bool {
        self.expiring.swap(MARKED, Ordering::AcqRel) == WORN
    }

    /// A walk enters the mount.
    #[inline]
    pub(super) fn entered(&self) {
        if self.expiring.load(Ordering::Relaxed) != 0 {
            self.wear_mark();
        }
    }

    /// Lowers the mark of `MNT_EXPIRE`.
    #[cold]
    fn wear_mark(&self) {
        let worn = |mark: u8| Some(mark.saturating_sub(1));
        let _ = self.expiring.fetch_update(Ordering::AcqRel, Ordering::Relaxed, worn);
    }

    /// Marks it as one that an open file has and that may be attached (`fsmount(2)`,
    /// `open_tree(2)`).
    pub fn loosen(&self) {
        self.loose.store(true, Ordering::Release);
    }

    /// Whether it was marked by [`loosen`](Self::loosen) and not attached since.
    pub fn is_loose(&self) -> bool {
        self.loose.load(Ordering::Acquire)
    }

    /// Takes the mark of [`loosen`](Self::loosen) away; whether it was there. The caller holds
    /// [`lock`].
    pub fn take_loose(&self) -> bool {
        self.loose.swap(false, Ordering::AcqRel)
    }

    /// The root of the tree that it hangs in: that of a namespace, or one that is loose or was
    /// unmounted.
    pub fn top(self: &Arc<Self>) -> Arc<Mount> {
        let mut here = Arc::clone(self);
        while let Some(place) = here.attached() {
            here = place.mount;
        }
        here
    }

    /// Marks it, and those between, as what it hangs on is marked, or as [`ELSEWHERE`].
    fn mark_as_its_top(self: &Arc<Self>) {
        let above = |mount: &Arc<Mount>| mount.attached().map(|place| place.mount);
        let unmarked = |mount: &Arc<Mount>| mount.mark.load(Ordering::Relaxed) == 0;
        let mut here = Some(Arc::clone(self));
        while let Some(mount) = here.take_if(|mount| unmarked(mount)) {
            here = above(&mount);
        }
        let mark = here.map_or(ELSEWHERE, |mount| mount.mark.load(Ordering::Relaxed));
        // The top itself need not be in the table, where marks are taken away again.
        let mut here = Some(Arc::clone(self));
        while let Some(mount) = here.take_if(|mount| unmarked(mount))
            && let Some(next) = above(&mount)
        {
            mount.mark.store(mark, Ordering::Relaxed);
            here = Some(next);
        }
    }

    /// The owner of the namespace that it hangs in; `None`: it is loose, or was unmounted.
    pub fn owner(self: &Arc<Self>) -> Option<Handle<UserNamespace>> {
        self.top().root_for.lock().clone()
    }

    /// Takes apart what hangs below it, as its own end does. Needs no memory. The caller holds
    /// [`lock`].
    pub fn detach_below(self: &Arc<Self>) {
        // Linked first, with marks, so that each mount is looked at once, however deep they lie.
        let mut list: Option<Arc<Mount>> = None;
        self.mark.store(BELOW, Ordering::Relaxed);
        let table = TABLE.read();
        table.mounts.values().for_each(Mount::mark_as_its_top);
        for mount in table.mounts.values() {
            let is_below = mount.mark.swap(0, Ordering::Relaxed) == BELOW;
            if is_below && !Arc::ptr_eq(mount, self) {
                *mount.next.lock() = list.replace(Arc::clone(mount));
            }
        }
        drop(table);
        self.mark.store(0, Ordering::Relaxed);
        while let Some(mount) = list {
            list = mount.next.lock().take();
            mount.unhang();
        }
        *self.propagation.lock() = Propagation::Private;
    }

    /// Returns the source argument of `mount(2)`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether writing through it is impossible.
    pub fn read_only(&self) -> bool {
        self.flags() & flags::MS_RDONLY != 0 || self.filesystem.read_only()
    }

    /// Returns its root as a place.
    pub fn root_location(self: &Arc<Self>) -> Location {
        Location { mount: Arc::clone(self), dentry: Arc::clone(&self.root) }
    }

    /// Attaches it to `place`. The caller holds [`lock`], has checked that `place` is free, and has
    /// made room in the table ([`reserve`]).
    pub fn attach(self: &Arc<Self>, place: &Location) {
        *self.attached.lock() = Some(place.clone());
        let before = TABLE.write().hang(place, self);
        debug_assert!(before.is_none());
        watch::mounts_changed();
    }

    /// Attaches it to `place` under the mount `there` that is attached to that. Otherwise as
    /// [`attach`](Self::attach), for two entries of the table.
    pub(super) fn attach_under(self: &Arc<Self>, there: &Arc<Mount>, place: &Location) {
        *self.attached.lock() = Some(place.clone());
        *there.attached.lock() = Some(self.root_location());
        let mut table = TABLE.write();
        table.hang(&self.root_location(), there);
        let before = table.hang(place, self);
        drop(table);
        drop(before);
        watch::mounts_changed();
    }

    /// Moves it to `place`, which is free, when the mount goes that it covers. The caller holds
    /// [`lock`].
    pub(super) fn lift(self: &Arc<Self>, place: &Location) {
        let before = self.attached.lock().take();
        let removed = before.and_then(|at| TABLE.write().unhang(&at));
        drop(removed);
        self.attach(place);
    }

    /// Detaches it for good: it gets no mounts any more.
    pub(super) fn unhang(&self) {
        self.detach();
        *self.propagation.lock() = Propagation::Private;
    }

    /// Detaches it. The caller holds [`lock`].
    ///
    /// If it is locked in its place, all above it goes, too, and nobody finds what it hid: places
    /// of that mount at which something is mounted elsewhere lead to nothing from now on
    /// ([`Location::into_topmost`]). (On Linux they still lead to what was mounted there.)
    pub fn detach(&self) {
        let Some(place) = self.attached.lock().take() else { return };
        if self.is_place_locked() {
            place.mount.sealed.store(true, Ordering::Release);
        }
        let removed = TABLE.write().unhang(&place);
        drop(removed);
        watch::mounts_changed();
    }

    /// Returns the mounts that are attached to this one. `ENOMEM`.
    pub fn children(self: &Arc<Self>) -> Result<Vec<Arc<Mount>>> {
        let mut mounts = all()?;
        mounts.retain(|other| other.attached().is_some_and(|at| Arc::ptr_eq(&at.mount, self)));
        Ok(mounts)
    }
}

/// Returns the mount that is attached to this place.
#[inline(always)]
pub(super) fn mounted_at(place: &Location) -> Option<Arc<Mount>> {
    TABLE.read().mounts.get(&key(&place.mount, &place.dentry)).cloned()
}

impl Drop for Mount {
    fn drop(&mut self) {
        let device = self.filesystem.device();
        let last = TREES.lock().remove(device, self.id);
        if let Some(root) = last {
            root.dismantle();
            drop(root);
            self.filesystem.unmounted();
            watch::unmounted(device);
        }
    }
}

/// Returns all mounts of all namespaces and of loose trees, oldest first, but for the first root.
/// `ENOMEM`.
pub fn all() -> Result<Vec<Arc<Mount>>> {
    let mut mounts = growth::collect(TABLE.read().mounts.values().cloned())?;
    mounts.sort_unstable_by_key(|mount| mount.id);
    Ok(mounts)
}

/// Returns the root of the mounted file system with the smallest device number above `device`, and
/// the oldest of its mounts. With it all file systems can be visited where there may be no memory
/// for a list. As long as the caller has the mount, the file system stays mounted.
pub fn filesystem_after(device: u64) -> Option<(Arc<Dentry>, Arc<Mount>)> {
    TREES.lock().after(device)
}

/// Returns all mounts and the first root, for as long as the caller has the [`lock`]: a reference
/// to a mount makes `umount(2)` fail, which looks at it under that lock. `ENOMEM`.
pub fn all_with_root(_lock: &Changes) -> Result<Vec<Arc<Mount>>> {
    let mut mounts = all()?;
    if let Some(root) = FIRST.root_mount()
        && !mounts.iter().any(|mount| Arc::ptr_eq(mount, &root))
    {
        mounts.make_room(1)?;
        mounts.insert(0, root);
    }
    Ok(mounts)
}

/// Makes `mount` the root of the first namespace, at boot.
pub fn set_root(mount: Arc<Mount>) {
    FIRST.set_root(mount);
}

/// Returns the root of the first namespace, with all mounts on it.
pub fn root() -> Option<Location> {
    FIRST.root()
}
