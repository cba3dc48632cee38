//! The tree of groups.
//!
//! A group holds the groups around it, and its parent lists it until it is removed. A removed group
//! stays as long as something refers to it: a process that ended in it and was not waited for, an
//! open file, a namespace. It is *dying* then (`cgroup.stat`).
//!
//! A group knows its members by their numbers, so that the tree knows nothing of processes.
//! `populated` counts processes that live in a group and below it; the counts of the controllers
//! are [`Meter`]s of the same kind. They are kept whether or not a controller is given, so that one
//! that is given later has nothing to count; a limit is there only while the controller is.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::controllers::Controllers;
use hayate_cgroup_rules::domain;
use hayate_cgroup_rules::meter::{self, Meter, UNLIMITED};
use hayate_cgroup_rules::share::Shares;
use hayate_machine::sync::{Lazy, SpinLock};

use super::events::Changes;
use super::filters::Attached;
use crate::reclaim::growth;
use crate::schedule::{Mutex, MutexGuard};
use crate::vfs::dentry::Name;
use crate::vfs::entries::Entries;
use crate::vfs::filesystem::anonymous_device;
use crate::vfs::inode::{Owner, Timestamp};

/// The device number of the file system of groups.
pub static DEVICE: Lazy<u64> = Lazy::new(anonymous_device);

/// The root of the hierarchy.
static ROOT: Lazy<Arc<Group>> = Lazy::new(|| Group::new(None, 0, &[], Owner::default(), 0o555));

static CHANGES: Mutex<()> = Mutex::new(());

/// The lock of the tree; see [the module](super).
pub type Lock = MutexGuard<'static, ()>;

/// Locks the tree against changes.
pub fn lock() -> Lock {
    CHANGES.lock()
}

/// The root of the hierarchy.
pub fn root() -> &'static Arc<Group> {
    &ROOT
}

/// Numbers of inodes that each group has, for itself and its files.
const INODES: u64 = 64;

/// The files of a group about which others are told, as numbers among its files.
pub mod file {
    /// `cgroup.events`.
    pub const EVENTS: u8 = 1;
    /// `pids.events`.
    pub const PIDS_EVENTS: u8 = 2;
    /// `memory.events`.
    pub const MEMORY_EVENTS: u8 = 3;
    /// `memory.events.local`.
    pub const MEMORY_EVENTS_LOCAL: u8 = 4;
    /// The first number of the other files.
    pub const OTHERS: u8 = 5;
}

/// Permissions, owner and times of a group or of a file of it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Permission bits.
    pub mode: u16,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access, modification and change.
    pub times: [Timestamp; 3],
}

/// What programs have set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The controllers that the group gives to its children.
    pub given: Controllers,
    /// `cgroup.max.depth`.
    pub most_depth: usize,
    /// `cgroup.max.descendants`.
    pub most_descendants: usize,
    /// `cgroup.freeze`, of this very group.
    pub frozen: bool,
}

/// The members of a group, and what happens to one that comes.
#[derive(Default)]
pub struct Members {
    /// Their numbers.
    pub numbers: BTreeSet<u32>,
    /// This group, or one around it, is being frozen.
    pub freezes: bool,
    /// All members are being ended.
    pub ends: bool,
}

/// What is known of the rest in a group ([`super::frost`]).
#[derive(Default)]
pub(super) struct Frost {
    /// Members of which all threads rest.
    pub processes: usize,
    /// Groups in it that are frozen.
    pub groups: usize,
    /// It is frozen.
    pub is_whole: bool,
}

/// What the controller `memory` has of a group.
#[derive(Default)]
pub struct Memory {
    /// The number of its account ([`crate::reclaim::charge`]); 0: it has none.
    pub account: AtomicU32,
    /// All of it ends if a process of it is killed for memory (`memory.oom.group`).
    pub oom_group: AtomicBool,
    /// Of `memory.events`.
    pub events: Changes,
    /// Of `memory.events.local`.
    pub local_events: Changes,
}

/// What the controller `cpu` has of a group.
#[derive(Default)]
pub struct Cpu {
    /// The number of its group of the scheduler ([`crate::schedule::share`]); 0: it has none.
    pub number: AtomicU32,
    /// Its weight as it was set.
    pub shares: SpinLock<Shares>,
}

/// A group.
pub struct Group {
    this: Weak<Group>,
    id: u64,
    name: Name,
    parent: Option<Arc<Group>>,
    level: usize,
    removed: AtomicBool,
    /// Processes that live here and below.
    populated: Meter,
    /// Processes and threads here and below, also ended ones that were not waited for.
    pub tasks: Meter,
    descendants: AtomicUsize,
    dying: AtomicUsize,
    pub(super) members: SpinLock<Members>,
    pub(super) frost: SpinLock<Frost>,
    settings: SpinLock<Settings>,
    children: SpinLock<Entries<Arc<Group>>>,
    owner: Owner,
    made: Timestamp,
    /// By number of the file; that of the group itself is 0.
    attributes: SpinLock<BTreeMap<u8, Attributes>>,
    /// Of `cgroup.events`.
    pub events: Changes,
    /// Of `pids.events`.
    pub pids_events: Changes,
    /// What the controller `memory` has of it.
    pub memory: Memory,
    /// What the controller `cpu` has of it.
    pub cpu: Cpu,
    /// The programs that say which devices its members may use.
    pub(super) devices: SpinLock<Attached>,
    /// Its handle with the controller `io` ([`crate::drivers::io::groups`]); 0: it has none.
    pub io: AtomicU32,
    /// How often a process or thread was refused for want of `pids.max`.
    pub pids_refused: AtomicUsize,
    /// Nanoseconds that former members have run here, and those of removed groups below.
    pub(super) spent: SpinLock<Spent>,
    /// What was told of that and of what members have run, which never decreases.
    told: SpinLock<Spent>,
}

/// Time on processors, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// In the programs.
    pub user_ns: u64,
    /// In the kernel for them.
    pub system_ns: u64,
}

impl Spent {
    /// Adds.
    pub fn add(&mut self, more: Spent) {
        self.user_ns += more.user_ns;
        self.system_ns += more.system_ns;
    }

    /// What it is more than `before`.
    pub fn since(self, before: Spent) -> Spent {
        Spent {
            user_ns: self.user_ns.saturating_sub(before.user_ns),
            system_ns: self.system_ns.saturating_sub(before.system_ns),
        }
    }
}

impl Group {
    fn new(
        parent: Option<Arc<Group>>,
        id: u64,
        name: &[u8],
        owner: Owner,
        mode: u16,
    ) -> Arc<Group> {
        let made = Timestamp::now();
        let freezes = parent.as_ref().is_some_and(|parent| parent.members.lock().freezes);
        let Owner { uid, gid } = owner;
        let own = Attributes { mode, uid, gid, times: [made; 3] };
        Arc::new_cyclic(|this| Group {
            this: this.clone(),
            id,
            name: Name::from(name),
            level: parent.as_ref().map_or(0, |parent| parent.level + 1),
            parent,
            removed: AtomicBool::new(false),
            populated: Meter::new(),
            tasks: Meter::new(),
            descendants: AtomicUsize::new(0),
            dying: AtomicUsize::new(0),
            members: SpinLock::new(Members { freezes, ..Members::default() }),
            frost: SpinLock::new(Frost::default()),
            settings: SpinLock::new(Settings {
                given: Controllers::NONE,
                most_depth: UNLIMITED,
                most_descendants: UNLIMITED,
                frozen: false,
            }),
            children: SpinLock::new(Entries::default()),
            owner,
            made,
            attributes: SpinLock::new(BTreeMap::from([(0, own)])),
            events: Changes::default(),
            pids_events: Changes::default(),
            memory: Memory::default(),
            cpu: Cpu::default(),
            devices: SpinLock::new(Attached::default()),
            io: AtomicU32::new(0),
            pids_refused: AtomicUsize::new(0),
            spent: SpinLock::new(Spent::default()),
            told: SpinLock::new(Spent::default()),
        })
    }

    /// Makes a group here (`cgroup_mkdir`).
    ///
    /// # Errors
    /// `EINVAL` (a line feed in the name), `ENOENT` (it was removed), `EEXIST`, `EAGAIN` (too many,
    /// or too deep), `ENOMEM`.
    pub fn make(&self, name: &[u8], owner: Owner, mode: u16, lock: &Lock) -> Result<Arc<Group>> {
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        let own = self.live(lock)?;
        if self.children.lock().get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        for (depth, around) in own.levels().enumerate() {
            let Settings { most_depth, most_descendants, .. } = around.settings();
            let many = around.descendants.load(Ordering::Relaxed) >= most_descendants;
            if many || depth + 1 > most_depth {
                return Err(Errno::EAGAIN);
            }
        }
        growth::relieved(|| self.children.lock().make_room(1))?;
        let group = Group::new(Some(own.clone()), Group::next_id(lock), name, owner, mode);
        self.children.lock().insert(name, group.clone())?;
        for around in own.levels() {
            around.descendants.fetch_add(1, Ordering::Relaxed);
        }
        self.touch();
        group.begin_frost(lock).tell();
        Ok(group)
    }

    fn next_id(_: &Lock) -> u64 {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed) as u64
    }

    /// Removes a group that lies here (`cgroup_destroy_locked`).
    ///
    /// # Errors
    /// `EBUSY` if it has members or groups; `ENOENT`.
    pub fn remove(&self, group: &Group, lock: &Lock) -> Result<()> {
        if group.is_removed() {
            return Err(Errno::ENOENT);
        }
        if group.is_populated() || !group.children.lock().is_empty() {
            return Err(Errno::EBUSY);
        }
        group.removed.store(true, Ordering::SeqCst);
        let removed = self.children.lock().remove(&group.name);
        let attached = core::mem::take(&mut *group.devices.lock());
        for around in group.around() {
            around.descendants.fetch_sub(1, Ordering::Relaxed);
            around.dying.fetch_add(1, Ordering::Relaxed);
        }
        group.leave_frost(lock).tell();
        let spent = *group.spent.lock();
        self.spent.lock().add(spent);
        self.touch();
        drop((removed, attached));
        Ok(())
    }

    /// Notes that its names have changed.
    fn touch(&self) {
        let now = Timestamp::now();
        if let Some(own) = self.attributes.lock().get_mut(&0) {
            own.times[1] = now;
            own.times[2] = now;
        }
    }

    /// A counted reference, unless it was removed. The caller holds the lock, so that it stays.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn live(&self, _: &Lock) -> Result<Arc<Group>> {
        self.this.upgrade().filter(|own| !own.is_removed()).ok_or(Errno::ENOENT)
    }

    /// A counted reference. `None` only while it ends.
    pub fn arc(&self) -> Option<Arc<Group>> {
        self.this.upgrade()
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The number of its inode, or of that of a file of it. (The root's is 1.)
    pub fn inode_number(&self, file: u8) -> u64 {
        self.id * INODES + 1 + u64::from(file)
    }

    /// Whose inode has a number: the group's own number, and that of its file, or 0.
    pub fn parts(inode: u64) -> Option<(u64, u8)> {
        let number = inode.checked_sub(1)?;
        Some((number / INODES, (number % INODES) as u8))
    }

    /// Device and inode number of itself or of a file of it.
    pub fn identity(&self, file: u8) -> (u64, u64) {
        (*DEVICE, self.inode_number(file))
    }

    /// The group that it lies in.
    pub fn parent(&self) -> Option<&Arc<Group>> {
        self.parent.as_ref()
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Whether it was removed.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    /// Whether it is `other`.
    pub fn is(&self, other: &Group) -> bool {
        core::ptr::eq(self, other)
    }

    /// Itself and the groups around it, the root last.
    pub fn levels(&self) -> impl Iterator<Item = &Group> + Clone {
        core::iter::successors(Some(self), |here| here.parent.as_deref())
    }

    /// The groups around it.
    pub fn around(&self) -> impl Iterator<Item = &Group> + Clone {
        self.levels().skip(1)
    }

    /// Itself and the groups around it, without the root.
    pub(super) fn counted_levels(&self) -> impl Iterator<Item = &Group> + Clone {
        self.levels().filter(|level| !level.is_root())
    }

    /// Whether it is `other` or lies below it.
    pub fn is_within(&self, other: &Group) -> bool {
        self.levels().any(|level| level.is(other))
    }

    /// The innermost group in which both lie.
    pub fn common<'a>(&'a self, other: &Group) -> &'a Group {
        self.levels().find(|level| other.is_within(level)).unwrap_or(&ROOT)
    }

    /// The child of this name.
    pub fn child(&self, name: &[u8]) -> Option<Arc<Group>> {
        self.children.lock().get(name).cloned()
    }

    /// Up to `most` children, from a position of the directory on, each with its position.
    pub fn children_from(&self, position: u64, most: usize) -> Vec<(u64, Name, Arc<Group>)> {
        let children = self.children.lock();
        let copy = |(cookie, name, group): (u64, &Name, &Arc<Group>)| {
            (cookie, name.clone(), group.clone())
        };
        children.from(position).take(most).map(copy).collect()
    }

    /// How many children it has.
    pub fn child_count(&self) -> usize {
        self.children.lock().len()
    }

    /// Calls `visit` for each child until that fails. The caller holds the lock.
    pub fn try_each_child(
        &self,
        _: &Lock,
        mut visit: impl FnMut(&Group) -> Result<()>,
    ) -> Result<()> {
        let children = self.children.lock();
        children.from(0).try_for_each(|(_, _, child)| visit(child))
    }

    /// Itself and all groups below it, a group before those in it. The caller holds the lock.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn subtree(&self, lock: &Lock) -> Result<Vec<Arc<Group>>> {
        let mut all = Vec::new();
        growth::push(&mut all, self.arc().ok_or(Errno::ENOENT)?)?;
        let mut next = 0;
        while let Some(group) = all.get(next).cloned() {
            next += 1;
            group.try_each_child(lock, |child| {
                growth::push(&mut all, child.arc().ok_or(Errno::ENOENT)?)
            })?;
        }
        Ok(all)
    }

    /// How many groups there are below it, and how many removed ones that are still referred to.
    pub fn counts(&self) -> (usize, usize) {
        (self.descendants.load(Ordering::Relaxed), self.dying.load(Ordering::Relaxed))
    }

    /// What programs have set.
    pub fn settings(&self) -> Settings {
        *self.settings.lock()
    }

    /// Changes that. The caller holds the lock.
    pub fn set(&self, _: &Lock, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings.lock());
    }

    /// The controllers that it has (`cgroup_control`).
    pub fn available(&self) -> Controllers {
        match &self.parent {
            Some(parent) => parent.settings().given,
            None => Controllers::ALL,
        }
    }

    /// The account that its members charge: its own, or that of the nearest group around it that
    /// has one; 0: none.
    pub fn charged(&self) -> u32 {
        let accounts = self.levels().map(|level| level.memory.account.load(Ordering::SeqCst));
        accounts.into_iter().find(|&account| account != 0).unwrap_or(0)
    }

    /// What the rules of [`domain`] ask.
    pub fn as_domain(&self) -> domain::Group {
        let has_members = !self.members.lock().numbers.is_empty();
        let has_populated_children = {
            let children = self.children.lock();
            children.from(0).any(|(_, _, child)| child.is_populated())
        };
        domain::Group {
            is_root: self.is_root(),
            has_processes: self.is_root() || has_members,
            has_populated_children,
            given: self.settings().given,
        }
    }

    /// The same of the groups around it.
    pub fn domains_around(&self) -> impl Iterator<Item = domain::Group> + '_ {
        self.around().map(Group::as_domain)
    }

    /// Whether a process lives here or below.
    pub fn is_populated(&self) -> bool {
        self.populated.count() != 0
    }

    /// The numbers of its members. Not for the root. `ENOMEM`.
    pub fn member_numbers(&self) -> Result<Vec<u32>> {
        growth::collect(self.members.lock().numbers.iter().copied())
    }

    /// Counts `more` processes and threads, here and around.
    ///
    /// # Errors
    /// `EAGAIN` if a limit does not allow it.
    pub(super) fn charge(&self, more: usize) -> Result<()> {
        meter::charge(self.counted_levels().map(|level| &level.tasks), more).map_err(|_| {
            // Of the group whose controller counts the maker (`pids_can_fork`).
            let has = |level: &&Group| level.available().has(Controllers::PIDS);
            if let Some(told) = self.counted_levels().find(has) {
                told.pids_refused.fetch_add(1, Ordering::Relaxed);
            }
            Errno::EAGAIN
        })
    }

    /// Tells that a start was refused.
    pub(super) fn tell_refused(&self) {
        let has = |level: &&Group| level.available().has(Controllers::PIDS);
        if let Some(told) = self.counted_levels().find(has) {
            let (own, file) = (told.identity(0), told.identity(file::PIDS_EVENTS));
            told.pids_events.tell(own, file, "pids.events");
        }
    }

    /// Counts `more`, whatever the limits: a move is not refused.
    pub(super) fn charge_freely(&self, more: usize) {
        for level in self.counted_levels() {
            level.tasks.add(more);
        }
    }

    /// Counts `less` fewer.
    pub(super) fn uncharge(&self, less: usize) {
        for level in self.counted_levels() {
            level.tasks.give(less);
        }
    }

    /// A process lives here from now on. What is to be told when no spin lock is held.
    pub(super) fn gains_process(&self) -> News {
        let mut first = 0;
        for level in self.counted_levels() {
            first += usize::from(level.populated.add(1));
        }
        News::of(self, first)
    }

    /// A process does not live here any more.
    pub(super) fn loses_process(&self) -> News {
        let mut last = 0;
        for level in self.counted_levels() {
            last += usize::from(level.populated.give(1));
        }
        News::of(self, last)
    }

    /// What former members have run here, and those of removed groups below.
    pub fn spent_by_former(&self) -> Spent {
        *self.spent.lock()
    }

    /// What is to be told if members and former members have run `spent`: a member that leaves
    /// meanwhile may be missing there.
    pub fn tell_spent(&self, spent: Spent) -> Spent {
        let mut told = self.told.lock();
        told.user_ns = told.user_ns.max(spent.user_ns);
        told.system_ns = told.system_ns.max(spent.system_ns);
        *told
    }

    /// Permissions, owner and times of a file, whose permissions are `mode` unless they were
    /// changed; those of the group itself if `file` is 0.
    pub fn attributes(&self, file: u8, mode: u16) -> Attributes {
        let Owner { uid, gid } = self.owner;
        let unchanged = Attributes { mode, uid, gid, times: [self.made; 3] };
        self.attributes.lock().get(&file).copied().unwrap_or(unchanged)
    }

    /// Changes them.
    pub fn set_attributes(&self, file: u8, new: Attributes) {
        self.attributes.lock().insert(file, new);
    }

    /// Its path from the root of the hierarchy. `ENOMEM`.
    pub fn path(&self) -> Result<Vec<u8>> {
        self.path_from(&ROOT)
    }

    /// Its path from `from`, with `/..` for each group that leads out of that (`cgroup_path_ns`).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn path_from(&self, from: &Group) -> Result<Vec<u8>> {
        let common = self.common(from);
        let mut names = Vec::new();
        for level in self.levels().take_while(|level| !level.is(common)) {
            growth::push(&mut names, &level.name)?;
        }
        let mut path = Vec::new();
        for _ in common.level..from.level {
            growth::append(&mut path, b"/..")?;
        }
        for name in names.iter().rev() {
            growth::append(&mut path, b"/")?;
            growth::append(&mut path, name)?;
        }
        if path.is_empty() {
            growth::append(&mut path, b"/")?;
        }
        Ok(path)
    }

    /// Nothing refers to it any more.
    fn stops_dying(&self) {
        if self.is_removed() {
            for around in self.around() {
                around.dying.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// The names that lead to it from the root. `ENOMEM`.
    pub fn names(&self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        for level in self.counted_levels() {
            growth::push(&mut names, level.name.clone())?;
        }
        names.reverse();
        Ok(names)
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "group {}", self.id)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.stops_dying();
        // A chain of removed groups may be longer than the kernel's stack.
        let mut next = self.parent.take();
        while let Some(mut group) = next.and_then(Arc::into_inner) {
            group.stops_dying();
            next = group.parent.take();
        }
    }
}

/// That groups have become populated, empty, frozen or thawed: a group and those around it, as many
/// as are named. It is told when no spin lock is held.
#[must_use]
#[derive(Default)]
pub struct News(Option<(Arc<Group>, usize)>);

impl News {
    /// Of so many levels, from `group` on.
    pub(super) fn of(group: &Group, levels: usize) -> News {
        // A group that ends has nobody to tell.
        News(group.arc().filter(|_| levels != 0).map(|group| (group, levels)))
    }

    /// Tells whoever waits for it.
    pub fn tell(self) {
        let Some((group, levels)) = self.0 else { return };
        for level in group.counted_levels().take(levels) {
            level.events.tell(level.identity(0), level.identity(file::EVENTS), "cgroup.events");
        }
    }
}
