//! The place of a process in the tree of groups: only of one that is, or was, outside the root.

use alloc::sync::Arc;

use hayate_machine::sync::SpinLock;

use super::frost;
use super::group::{self, Group, News, Spent};

/// See the module.
#[derive(Default)]
pub struct Member {
    pub(super) place: SpinLock<Place>,
}

/// The place of a process, and what is counted there for it.
#[derive(Default)]
pub(super) struct Place {
    /// The group; `None`: the root.
    pub group: Option<Arc<Group>>,
    /// The numbers below are kept.
    pub is_tracked: bool,
    /// Its threads.
    pub threads: usize,
    /// What it is charged for: its threads, and its first one until it was waited for.
    pub charged: usize,
    /// Threads that rest ([`super::freezer`]).
    pub resting: usize,
    /// The group counts it among the processes that rest.
    pub counts_as_resting: bool,
    /// Its last thread has ended.
    pub has_ended: bool,
    /// What it had consumed when it came.
    pub before: Spent,
}

impl Place {
    /// Leaves the group's list as process `number`, which has consumed `spent` by now. Stays
    /// charged.
    pub fn leave_list(&mut self, number: u32, spent: Spent) -> [News; 2] {
        let Some(group) = &self.group else { return Default::default() };
        group.spent.lock().add(spent.since(self.before));
        group.members.lock().numbers.remove(&number);
        let rested = core::mem::take(&mut self.counts_as_resting);
        let thaws = frost::changes(group, -isize::from(rested));
        [thaws, group.loses_process()]
    }

    /// Enters the list of `group`, where it is charged, as process `number`, which has consumed
    /// `spent`. `receive` is told whether it is to rest there. Returns also whether it is to end.
    pub fn enter_list(
        &mut self,
        group: Arc<Group>,
        number: u32,
        spent: Spent,
        receive: impl FnOnce(bool),
    ) -> ([News; 2], bool) {
        let ends = {
            let mut members = group.members.lock();
            members.numbers.insert(number);
            // Under the lock: who thaws the group finds the process in the list, and has not
            // looked.
            receive(members.freezes);
            members.ends
        };
        self.before = spent;
        self.counts_as_resting = self.rests();
        let freezes = frost::changes(&group, isize::from(self.counts_as_resting));
        let populated = group.gains_process();
        self.group = Some(group);
        ([freezes, populated], ends)
    }

    /// Whether all its threads rest.
    fn rests(&self) -> bool {
        self.threads != 0 && self.resting >= self.threads
    }

    /// Counts it anew among the processes of the group that rest.
    pub fn review(&mut self) -> News {
        let Some(group) = &self.group else { return News::default() };
        let rests = self.rests() && !self.has_ended;
        if rests == self.counts_as_resting {
            return News::default();
        }
        self.counts_as_resting = rests;
        frost::changes(group, if rests { 1 } else { -1 })
    }
}

impl Member {
    /// The group that it is in.
    pub fn group(&self) -> Arc<Group> {
        self.place.lock().group.clone().unwrap_or_else(|| group::root().clone())
    }

    /// Whether that is the root.
    pub fn is_in_root(&self) -> bool {
        self.place.lock().group.is_none()
    }

    /// What it had consumed when it came to its group.
    pub fn consumed_before(&self) -> Spent {
        self.place.lock().before
    }
}
