//! Which groups are frozen (kernel/cgroup/freezer.c of Linux 6.1).
//!
//! A group that is being frozen is *frozen* when all threads of its members rest
//! ([`super::freezer`]) and all groups in it are frozen, as an empty one is at once.
//!
//! All groups have one lock for this state. It is taken by what happens in a group that is being
//! frozen, and by nothing else.

use hayate_machine::sync::SpinLock;

use super::group::{Group, Lock, News};

static FROST: SpinLock<()> = SpinLock::new(());

/// Counts so many more members of `group` that rest, and finds out which groups are frozen now. To
/// be called, with 0, also when anything else has changed by which that is decided.
pub(super) fn changes(group: &Group, more: isize) -> News {
    if more == 0 && !group.members.lock().freezes && !group.is_frozen() {
        return News::default();
    }
    let _lock = FROST.lock();
    {
        let mut frost = group.frost.lock();
        frost.processes = frost.processes.saturating_add_signed(more);
    }
    let mut changed = 0;
    let mut levels = group.counted_levels().peekable();
    while let Some(level) = levels.next() {
        let (freezes, members) = {
            let members = level.members.lock();
            (members.freezes, members.numbers.len())
        };
        let children = level.child_count();
        let is_whole = {
            let mut frost = level.frost.lock();
            let is_whole = freezes && frost.processes == members && frost.groups == children;
            if is_whole == frost.is_whole {
                break;
            }
            frost.is_whole = is_whole;
            is_whole
        };
        changed += 1;
        if let Some(above) = levels.peek() {
            let mut above = above.frost.lock();
            above.groups = above.groups.saturating_add_signed(if is_whole { 1 } else { -1 });
        }
    }
    News::of(group, changed)
}

impl Group {
    /// Whether it is frozen.
    pub fn is_frozen(&self) -> bool {
        self.frost.lock().is_whole
    }

    /// A new group is frozen from the beginning if its parent is being frozen. The caller holds the
    /// lock of the tree.
    pub(super) fn begin_frost(&self, _: &Lock) -> News {
        changes(self, 0)
    }

    /// A group that is removed counts no more. The caller holds the lock of the tree.
    pub(super) fn leave_frost(&self, _: &Lock) -> News {
        let Some(parent) = self.parent().filter(|parent| !parent.is_root()) else {
            return News::default();
        };
        {
            let _lock = FROST.lock();
            let was_whole = core::mem::take(&mut self.frost.lock().is_whole);
            let mut above = parent.frost.lock();
            above.groups = above.groups.saturating_sub(usize::from(was_whole));
        }
        changes(parent, 0)
    }
}
