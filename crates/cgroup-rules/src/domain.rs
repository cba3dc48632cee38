//! Which group may hold processes, and which may give controllers to its children: the *no internal
//! process* rule, and its exceptions for the root and for threaded controllers.

use crate::controllers::Controllers;

/// What the rules ask of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// It is the root of the hierarchy, which may do both (`cgroup_is_mixable`).
    pub is_root: bool,
    /// It has processes of its own.
    pub has_processes: bool,
    /// There are processes in a child, or below it.
    pub has_populated_children: bool,
    /// The controllers that it gives to its children.
    pub given: Controllers,
}

/// Why a group may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has processes, or gives controllers to its children (`EBUSY`).
    Busy,
    /// It lies below a thread root, or is one (`EOPNOTSUPP`).
    NoDomain,
}

/// What `cgroup.type` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A group as any.
    Domain,
    /// The root of threaded groups, if there were any: it has processes and gives threaded
    /// controllers to its children.
    ThreadRoot,
    /// It lies below a thread root, and may hold nothing.
    Invalid,
}

impl Kind {
    /// As the file shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Domain => "domain",
            Kind::ThreadRoot => "domain threaded",
            Kind::Invalid => "domain invalid",
        }
    }
}

impl Group {
    /// Whether it is the root of threaded groups (`cgroup_is_thread_root`).
    pub fn is_thread_root(&self) -> bool {
        self.has_processes && !self.given.both(Controllers::THREADED).is_none()
    }

    /// Whether it is one or can become one (`cgroup_can_be_thread_root`).
    fn can_be_thread_root(&self) -> bool {
        self.is_root
            || !self.has_populated_children && self.given.without(Controllers::THREADED).is_none()
    }

    /// What it is, with those `around` it (`cgroup_type_show`).
    pub fn kind(&self, mut around: impl Iterator<Item = Group>) -> Kind {
        if around.any(|above| !above.is_root && above.is_thread_root()) {
            Kind::Invalid
        } else if !self.is_root && self.is_thread_root() {
            Kind::ThreadRoot
        } else {
            Kind::Domain
        }
    }

    /// Whether a process may come to it, which lies below `around` (`cgroup_migrate_vet_dst`).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn may_take(&self, around: impl Iterator<Item = Group>) -> Result<(), Refusal> {
        if self.kind(around) == Kind::Invalid {
            return Err(Refusal::NoDomain);
        }
        if self.can_be_thread_root() || self.given.is_none() { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Whether it, which lies below `around`, may give further controllers to its children
    /// (`cgroup_vet_subtree_control_enable`).
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn may_give(
        &self,
        more: Controllers,
        around: impl Iterator<Item = Group>,
    ) -> Result<(), Refusal> {
        if more.is_none() {
            return Ok(());
        }
        if self.kind(around) == Kind::Invalid {
            return Err(Refusal::NoDomain);
        }
        if self.is_root {
            return Ok(());
        }
        if more.without(Controllers::THREADED).is_none() {
            if self.can_be_thread_root() {
                return Ok(());
            }
        } else if self.is_thread_root() {
            return Err(Refusal::NoDomain);
        }
        if self.has_processes { Err(Refusal::Busy) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter;

    const PIDS: Controllers = Controllers::PIDS;
    const ROOT: Group =
        Group { is_root: true, has_processes: true, has_populated_children: true, given: PIDS };

    fn group(has_processes: bool, has_populated_children: bool, given: Controllers) -> Group {
        Group { is_root: false, has_processes, has_populated_children, given }
    }

    #[test]
    fn the_root_does_both() {
        assert_eq!(ROOT.may_take(iter::empty()), Ok(()));
        assert_eq!(ROOT.may_give(PIDS, iter::empty()), Ok(()));
        assert_eq!(ROOT.kind(iter::empty()), Kind::Domain);
    }

    #[test]
    fn processes_and_populated_children_exclude_each_other_under_a_controller() {
        let inner = group(false, true, PIDS);
        assert_eq!(inner.may_take(iter::once(ROOT)), Err(Refusal::Busy));
        let with_processes = group(true, true, Controllers::NONE);
        assert_eq!(with_processes.may_give(PIDS, iter::once(ROOT)), Err(Refusal::Busy));
        for more in [Controllers::MEMORY, Controllers::ALL] {
            let alone = group(true, false, Controllers::NONE);
            assert_eq!(alone.may_give(more, iter::once(ROOT)), Err(Refusal::Busy));
            assert_eq!(group(false, true, PIDS).may_give(more, iter::once(ROOT)), Ok(()));
        }
        assert_eq!(
            group(false, false, Controllers::MEMORY).may_take(iter::once(ROOT)),
            Err(Refusal::Busy)
        );
        // Without a controller they do not compete.
        assert_eq!(with_processes.may_take(iter::once(ROOT)), Ok(()));
        assert_eq!(group(false, true, Controllers::NONE).may_give(PIDS, iter::once(ROOT)), Ok(()));
    }

    #[test]
    fn a_threaded_controller_makes_a_thread_root_below_which_nothing_lives() {
        let leaf = group(true, false, Controllers::NONE);
        assert_eq!(leaf.may_give(PIDS, iter::once(ROOT)), Ok(()));
        let root_of_threads = group(true, false, PIDS);
        assert_eq!(root_of_threads.kind(iter::once(ROOT)), Kind::ThreadRoot);
        assert_eq!(root_of_threads.may_take(iter::once(ROOT)), Ok(()));
        let below = group(false, false, Controllers::NONE);
        let around = [root_of_threads, ROOT];
        assert_eq!(below.kind(around.into_iter()), Kind::Invalid);
        assert_eq!(below.may_take(around.into_iter()), Err(Refusal::NoDomain));
        assert_eq!(below.may_give(PIDS, around.into_iter()), Err(Refusal::NoDomain));
    }

    #[test]
    fn what_is_allowed_never_leads_to_competition() {
        // Every state of a group and its one child, by every allowed step from an empty pair: under
        // a given controller, processes of the parent and of the child never live together.
        let mut seen = alloc::collections::BTreeSet::new();
        let mut next = alloc::vec::Vec::from([(false, false, false)]);
        while let Some(state @ (parent, child, given)) = next.pop() {
            if !seen.insert(state) {
                continue;
            }
            assert!(!(parent && child && given), "{state:?}");
            let control = if given { PIDS } else { Controllers::NONE };
            let upper = group(parent, child, control);
            let lower = group(child, false, Controllers::NONE);
            if upper.may_take(iter::once(ROOT)).is_ok() {
                next.push((true, child, given));
            }
            if lower.may_take([upper, ROOT].into_iter()).is_ok() {
                next.push((parent, true, given));
            }
            if upper.may_give(PIDS, iter::once(ROOT)).is_ok() {
                next.push((parent, child, true));
            }
            next.extend([(false, child, given), (parent, false, given), (parent, child, false)]);
        }
        assert!(seen.len() > 5);
    }
}
