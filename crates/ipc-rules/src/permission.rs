//! Which user may do what with a System V object (`ipcperms`, ipc/util.c of Linux 6.1).

/// Owner, creator and mode of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The owner, whom `IPC_SET` can change.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// The creator, who keeps its rights for good.
    pub cuid: u32,
    /// The creator's group.
    pub cgid: u32,
    /// Nine bits of access, and flags of the kind of object above them.
    pub mode: u32,
}

/// The bits of access in a mode.
pub const ACCESS: u32 = 0o777;

impl Permission {
    /// The permission of an object that such a user makes.
    pub fn new(user: u32, group: u32, mode: u32) -> Permission {
        Permission { uid: user, gid: group, cuid: user, cgid: group, mode: mode & ACCESS }
    }

    /// Whether a user owns the object or made it.
    pub fn is_owner(&self, user: u32) -> bool {
        user == self.uid || user == self.cuid
    }

    /// Whether a user without privilege has every access of `wanted`: bits of a mode, where each of
    /// the three classes asks for the same. `is_member`: whether the user is in a group.
    pub fn allows(&self, user: u32, is_member: impl Fn(u32) -> bool, wanted: u32) -> bool {
        let wanted = wanted >> 6 | wanted >> 3 | wanted;
        let granted = if self.is_owner(user) {
            self.mode >> 6
        } else if is_member(self.cgid) || is_member(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        wanted & !granted & 0o7 == 0
    }

    /// Takes over what `IPC_SET` can change: owner, group and access.
    pub fn set(&mut self, uid: u32, gid: u32, mode: u32) {
        self.uid = uid;
        self.gid = gid;
        self.mode = self.mode & !ACCESS | mode & ACCESS;
    }
}
