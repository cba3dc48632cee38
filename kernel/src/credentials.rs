//! Credentials: the identity under which a thread acts, and its rights.
//!
//! A leaf module: it handles numbers only, so that file systems can use it. Numbers of users and
//! groups are those of the first user namespace ([`crate::user_namespace`]). A capability counts in
//! the thread's own user namespace and for what belongs to those inside; for the machine
//! ([`Credentials::has`]) it counts in the first alone. A [`Credentials`] is
//! immutable once published; a thread changes its own by making a changed copy and replacing the
//! `Arc` (`credentials(7)`, `capabilities(7)`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::capability::FileCapabilities;
use hayate_abi::{Errno, Result};

use crate::confinement::Confinement;
use crate::namespace::Handle;
pub use crate::user_namespace::Id;
use crate::user_namespace::{self, UserNamespace};

/// "Leave as it is" where a call takes an [`Id`].
pub const KEEP: Id = u32::MAX;

/// A capability, numbered as in `capabilities(7)` (`include/uapi/linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "named as in capabilities(7)")]
pub enum Capability {
    Chown = 0,
    DacOverride = 1,
    DacReadSearch = 2,
    Fowner = 3,
    Fsetid = 4,
    Kill = 5,
    Setgid = 6,
    Setuid = 7,
    Setpcap = 8,
    LinuxImmutable = 9,
    NetBindService = 10,
    NetAdmin = 12,
    NetRaw = 13,
    IpcLock = 14,
    IpcOwner = 15,
    SysRawio = 17,
    SysChroot = 18,
    SysPtrace = 19,
    SysPacct = 20,
    SysAdmin = 21,
    SysBoot = 22,
    SysNice = 23,
    SysResource = 24,
    SysTime = 25,
    SysTtyConfig = 26,
    Mknod = 27,
    Lease = 28,
    Setfcap = 31,
    Syslog = 34,
    WakeAlarm = 35,
    Bpf = 39,
}

/// Number of the last capability of Linux 6.1 (`CAP_CHECKPOINT_RESTORE`).
pub const LAST_CAPABILITY: u32 = 40;

/// A set of capabilities, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySet(pub u64);

impl CapabilitySet {
    /// The empty set.
    pub const EMPTY: CapabilitySet = CapabilitySet(0);
    /// All capabilities.
    pub const ALL: CapabilitySet = CapabilitySet((1 << (LAST_CAPABILITY + 1)) - 1);
    /// Those that only concern files: lost and gained with the file-system user id.
    const FILE: CapabilitySet = CapabilitySet(0b1_1111 | 1 << 27 | 1 << 9 | 1 << 32);

    /// Whether a capability is in the set.
    pub const fn has(self, capability: Capability) -> bool {
        self.0 >> capability as u8 & 1 != 0
    }

    /// Whether every capability of `other` is in the set.
    pub const fn contains(self, other: CapabilitySet) -> bool {
        other.0 & !self.0 == 0
    }
}

/// `securebits`: the rights of root (`prctl(PR_SET_SECUREBITS)`).
pub mod securebits {
    /// Being root gives no capabilities.
    pub const NOROOT: u32 = 1;
    /// Changing user ids leaves the capabilities alone.
    pub const NO_SETUID_FIXUP: u32 = 1 << 2;
    /// Permitted capabilities survive giving up the root user ids.
    pub const KEEP_CAPS: u32 = 1 << 4;
    /// Ambient capabilities cannot be raised.
    pub const NO_CAP_AMBIENT_RAISE: u32 = 1 << 6;
}

/// The identity and rights of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in credentials(7)")]
pub struct Credentials {
    pub uid: Id,
    pub euid: Id,
    pub suid: Id,
    /// Decides about access to files; follows `euid` unless set by `setfsuid(2)`.
    pub fsuid: Id,
    pub gid: Id,
    pub egid: Id,
    pub sgid: Id,
    pub fsgid: Id,
    /// Supplementary groups, sorted.
    pub groups: Arc<Vec<Id>>,
    pub effective: CapabilitySet,
    pub permitted: CapabilitySet,
    pub inheritable: CapabilitySet,
    pub bounding: CapabilitySet,
    pub ambient: CapabilitySet,
    pub securebits: u32,
    /// The user namespace that it is in, in which its capabilities count.
    pub user: Handle<UserNamespace>,
    /// What it has restricted itself to (`landlock(7)`).
    pub confinement: Option<Confinement>,
}

/// Kinds of access to a file; the bits of `access(2)`.
pub mod access {
    /// Execute a file, search a directory.
    pub const EXECUTE: u32 = 1;
    /// Write.
    pub const WRITE: u32 = 2;
    /// Read.
    pub const READ: u32 = 4;
}

impl Credentials {
    /// The superuser with every capability: the credentials of pid 1 at its start, and of the
    /// kernel itself.
    pub fn root() -> Credentials {
        Credentials {
            uid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            gid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            groups: Arc::new(Vec::new()),
            effective: CapabilitySet::ALL,
            permitted: CapabilitySet::ALL,
            inheritable: CapabilitySet::EMPTY,
            bounding: CapabilitySet::ALL,
            ambient: CapabilitySet::EMPTY,
            securebits: 0,
            user: user_namespace::first(),
            confinement: None,
        }
    }

    /// Whether the thread may use a capability for what belongs to the machine (`capable`): never
    /// outside the first user namespace.
    pub fn has(&self, capability: Capability) -> bool {
        self.is_outermost() && self.effective.has(capability)
    }

    /// Fails with `EPERM` unless the thread may use a capability for what belongs to the machine.
    pub fn require(&self, capability: Capability) -> Result<()> {
        if self.has(capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether the thread is in the first user namespace.
    #[inline]
    pub fn is_outermost(&self) -> bool {
        matches!(self.user, Handle::First(_))
    }

    /// Whether the thread may use a capability for what is its own: in its user namespace
    /// (`ns_capable` of `current_user_ns`).
    pub fn has_own(&self, capability: Capability) -> bool {
        self.effective.has(capability)
    }

    /// Fails with `EPERM` unless the thread may use a capability for what is its own.
    pub fn require_own(&self, capability: Capability) -> Result<()> {
        if self.has_own(capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether the thread may use a capability for what belongs to a user namespace: to its own, or
    /// to one inside, of which the owner has all capabilities (`cap_capable`,
    /// security/commoncap.c).
    pub fn has_in(&self, namespace: &UserNamespace, capability: Capability) -> bool {
        if self.user.is(namespace) {
            return self.effective.has(capability);
        }
        let owns = |child: &UserNamespace| child.owner == self.euid;
        let inside = namespace.child_of(&self.user);
        inside.is_some_and(|child| owns(child) || self.effective.has(capability))
    }

    /// Fails with `EPERM` unless the thread may use a capability for what belongs to a user
    /// namespace.
    pub fn require_in(&self, namespace: &UserNamespace, capability: Capability) -> Result<()> {
        if self.has_in(namespace, capability) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether the thread may use a capability for a file of this owner and group: both have
    /// numbers in its user namespace (`capable_wrt_inode_uidgid`).
    pub fn has_over(&self, owner: Id, group: Id, capability: Capability) -> bool {
        self.effective.has(capability) && (self.is_outermost() || self.knows(owner, group))
    }

    /// Whether a user and a group have numbers in the user namespace.
    pub fn knows(&self, owner: Id, group: Id) -> bool {
        self.user.user_number(owner).is_some() && self.user.group_number(group).is_some()
    }

    /// Whether a user is the superuser of the thread's user namespace.
    fn is_root(&self, user: Id) -> bool {
        if self.is_outermost() { user == 0 } else { self.user.user(0) == Some(user) }
    }

    /// Whether a user is the superuser of the thread's user namespace or of one around it
    /// (`rootid_owns_currentns`).
    pub fn has_root_around(&self, user: Id) -> bool {
        let mut here = Some(&self.user);
        while let Some(namespace) = here {
            if namespace.user_number(user) == Some(0) {
                return true;
            }
            here = namespace.parent();
        }
        false
    }

    /// Enters a user namespace, with all capabilities there and no others
    /// (`set_cred_user_ns`, kernel/user_namespace.c).
    pub fn enter(&mut self, user: Handle<UserNamespace>) {
        self.securebits = 0;
        self.inheritable = CapabilitySet::EMPTY;
        self.permitted = CapabilitySet::ALL;
        self.effective = CapabilitySet::ALL;
        self.ambient = CapabilitySet::EMPTY;
        self.bounding = CapabilitySet::ALL;
        self.user = user;
    }

    /// Whether a group is the file-system group or a supplementary one.
    pub fn in_group(&self, group: Id) -> bool {
        group == self.fsgid || self.groups.binary_search(&group).is_ok()
    }

    /// Whether a group is the effective group or a supplementary one.
    pub fn in_effective_group(&self, group: Id) -> bool {
        group == self.egid || self.groups.binary_search(&group).is_ok()
    }

    /// Whether the thread may change what only a file's owner may change.
    pub fn owns(&self, owner: Id) -> bool {
        let is_known = || self.is_outermost() || self.user.user_number(owner).is_some();
        self.fsuid == owner || self.effective.has(Capability::Fowner) && is_known()
    }

    /// Decides access to a file by its mode (`path_resolution(7)`, `generic_permission` in
    /// fs/namei.c).
    ///
    /// * `mode` - the file's type and permission bits (`st_mode`).
    /// * `wanted` - the bits of [`access`], combined by or.
    ///
    /// Fails with `EACCES` where it is refused.
    #[inline(always)]
    pub fn may_access(&self, owner: Id, group: Id, mode: u32, wanted: u32) -> Result<()> {
        let granted = if self.fsuid == owner {
            mode >> 6
        } else if self.in_group(group) {
            mode >> 3
        } else {
            mode
        } & 7;
        // A part of each step of a path walk: no more than this is decided there.
        if wanted & !granted == 0 { Ok(()) } else { self.overrides(owner, group, mode, wanted) }
    }

    /// [`may_access`](Self::may_access) where the bits of the mode do not suffice.
    fn overrides(&self, owner: Id, group: Id, mode: u32, wanted: u32) -> Result<()> {
        let has = |capability| self.has_over(owner, group, capability);
        let is_directory = mode & 0o170_000 == 0o040_000;
        if is_directory {
            if has(Capability::DacOverride)
                || (wanted & access::WRITE == 0 && has(Capability::DacReadSearch))
            {
                return Ok(());
            }
        } else {
            let somebody_may_execute = mode & 0o111 != 0;
            if has(Capability::DacOverride)
                && (wanted & access::EXECUTE == 0 || somebody_may_execute)
            {
                return Ok(());
            }
            if wanted == access::READ && has(Capability::DacReadSearch) {
                return Ok(());
            }
        }
        Err(Errno::EACCES)
    }

    /// The credentials that `access(2)` checks: the real ids instead of the effective ones, and no
    /// capabilities unless the real user is root.
    pub fn with_real_ids(&self) -> Credentials {
        let mut real = self.clone();
        real.fsuid = self.uid;
        real.fsgid = self.gid;
        if self.securebits & securebits::NO_SETUID_FIXUP == 0 {
            let is_root = self.is_root(self.uid);
            real.effective = if is_root { self.permitted } else { CapabilitySet::EMPTY };
        }
        real
    }

    /// Whether `self` may send a signal to a process of `target` (`kill(2)`), apart from the
    /// exception for `SIGCONT` within a session.
    pub fn may_signal(&self, target: &Credentials) -> bool {
        self.euid == target.suid
            || self.euid == target.uid
            || self.uid == target.suid
            || self.uid == target.uid
            || self.has_in(&target.user, Capability::Kill)
    }

    /// Whether a thread with `self` may do what one with `old` could not, or the other way round,
    /// as far as that concerns what others may see of it (`commit_creds`, kernel/cred.c).
    pub fn differs_in_rights(&self, old: &Credentials) -> bool {
        self.euid != old.euid
            || self.egid != old.egid
            || self.fsuid != old.fsuid
            || self.fsgid != old.fsgid
            || !self.is_subset_of(old)
    }

    /// Whether these rights are among those of `other`: fewer in the same user namespace, or any in
    /// one that is its own (`cred_cap_issubset`, kernel/cred.c).
    fn is_subset_of(&self, other: &Credentials) -> bool {
        if self.user.is(&other.user) {
            return other.permitted.contains(self.permitted);
        }
        self.user.child_of(&other.user).is_some_and(|child| child.owner == other.euid)
    }

    /// Adjusts the capability sets after the user ids changed from those of `old`
    /// (`cap_task_fix_setuid` in security/commoncap.c).
    pub fn fix_capabilities_after_setuid(&mut self, old: &Credentials) {
        if self.securebits & securebits::NO_SETUID_FIXUP != 0 {
            return;
        }
        let has_root = |ids: &Credentials| {
            [ids.uid, ids.euid, ids.suid].into_iter().any(|user| self.is_root(user))
        };
        let (was_root, is_root) = (has_root(old), has_root(self));
        let (was_effective, is_effective) = (self.is_root(old.euid), self.is_root(self.euid));
        if was_root && !is_root {
            if self.securebits & securebits::KEEP_CAPS == 0 {
                self.permitted = CapabilitySet::EMPTY;
                self.effective = CapabilitySet::EMPTY;
            }
            self.ambient = CapabilitySet::EMPTY;
        }
        if was_effective && !is_effective {
            self.effective = CapabilitySet::EMPTY;
        }
        if !was_effective && is_effective {
            self.effective = self.permitted;
        }
    }

    /// Sets the file-system user id; file capabilities are lost or gained with root's.
    pub fn set_fsuid(&mut self, user: Id) {
        let (was_root, is_root) = (self.is_root(self.fsuid), self.is_root(user));
        self.fsuid = user;
        if self.securebits & securebits::NO_SETUID_FIXUP == 0 {
            if was_root && !is_root {
                self.effective.0 &= !CapabilitySet::FILE.0;
            }
            if !was_root && is_root {
                self.effective.0 |= self.permitted.0 & CapabilitySet::FILE.0;
            }
        }
    }

    /// The credentials of a new program (`capabilities(7)`, "Transformation of capabilities during
    /// execve()"; `cap_bprm_creds_from_file`).
    ///
    /// * `set_user`, `set_group` - the owner and group of a set-user-id or set-group-id file.
    ///
    /// The second value tells whether the program gained privilege (`AT_SECURE`).
    pub fn for_program(&self, set_user: Option<Id>, set_group: Option<Id>) -> (Credentials, bool) {
        let mut new = self.clone();
        if let Some(user) = set_user {
            new.euid = user;
        }
        if let Some(group) = set_group {
            new.egid = group;
        }
        let ids_changed = new.euid != self.uid || new.egid != self.gid;
        new.suid = new.euid;
        new.fsuid = new.euid;
        new.sgid = new.egid;
        new.fsgid = new.egid;
        let privileged_file = set_user.is_some() || set_group.is_some();
        if privileged_file {
            new.ambient = CapabilitySet::EMPTY;
        }
        let root_counts = self.securebits & securebits::NOROOT == 0;
        let is_effective = self.is_root(new.euid);
        if root_counts && (is_effective || self.is_root(new.uid)) {
            new.permitted = CapabilitySet(self.inheritable.0 | self.bounding.0);
            new.effective = if is_effective { new.permitted } else { CapabilitySet::EMPTY };
        } else {
            new.permitted = new.ambient;
            new.effective = new.ambient;
        }
        new.securebits &= !securebits::KEEP_CAPS;
        (new, ids_changed)
    }

    /// Like [`Credentials::for_program`], for a program whose file has capabilities.
    ///
    /// * `limited` - the program gains no capabilities: `PR_SET_NO_NEW_PRIVS` is set, or another
    ///   process could mislead the program.
    ///
    /// Fails with `EPERM` if capabilities that the bounding set lacks are to be in effect.
    #[cold]
    pub fn for_capable_program(
        &self,
        set_user: Option<Id>,
        set_group: Option<Id>,
        file: &FileCapabilities,
        limited: bool,
    ) -> Result<(Credentials, bool)> {
        let (mut new, ids_changed) = self.for_program(set_user, set_group);
        let wanted = file.permitted & CapabilitySet::ALL.0;
        let granted = self.bounding.0 & wanted | self.inheritable.0 & file.inheritable;
        if file.effective && wanted & !granted != 0 {
            return Err(Errno::EPERM);
        }
        // A file that is set-user-id root, too, gives an ordinary user what it names, and not
        // everything (`handle_privileged_root`).
        let (is_effective, was_root) = (self.is_root(new.euid), self.is_root(new.uid));
        let becomes_root = is_effective && !was_root;
        let is_root = is_effective || was_root;
        let mut effective = file.effective;
        if is_root && !becomes_root && self.securebits & securebits::NOROOT == 0 {
            new.permitted = CapabilitySet(self.inheritable.0 | self.bounding.0);
            effective |= is_effective;
        } else {
            new.permitted = CapabilitySet(granted & CapabilitySet::ALL.0);
        }
        if limited {
            new.permitted.0 &= self.permitted.0;
        }
        new.ambient = CapabilitySet::EMPTY;
        new.effective = if effective { new.permitted } else { CapabilitySet::EMPTY };
        let capable = effective || new.permitted != CapabilitySet::EMPTY;
        Ok((new, ids_changed || capable && !was_root))
    }
}
