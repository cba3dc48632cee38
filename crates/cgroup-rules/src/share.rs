//! How groups share a processor (`cpu.weight`, `cpu.weight.nice`, `cpu.idle`; kernel/sched/core.c
//! and fair.c of Linux 6.1).
//!
//! A group competes with the processes and groups beside it as one that has its weight, and what is
//! in it shares what it gets in the same way. An execution that is alone in its group has the
//! weight of the group; one of several has its part of that ([`weight_of`]). Only the execution
//! that runs needs to know its weight, because only its time is counted: so a processor finds it
//! out from those that wait there, at its ticks.
//!
//! Road not taken: a queue for each group on each processor, as Linux has it. Each sleep and each
//! wake-up would go through a queue for every level, also of those that are in no group.

use arrayvec::ArrayVec;

/// The weight of a process of nice 0, and of a group with `cpu.weight` 100.
pub const UNIT: u32 = 1024;
/// Weights are counted in so many parts of it.
pub const FINE: u32 = 16;
/// The weight of an idle group (`WEIGHT_IDLEPRIO`).
const IDLE: u32 = 3;
/// `MIN_SHARES`, `MAX_SHARES`.
const LEAST: u32 = 2;
const MOST: u32 = 1 << 18;
/// The values of `cpu.weight` (`CGROUP_WEIGHT_MIN` and so on).
const WEIGHTS: core::ops::RangeInclusive<u64> = 1..=10_000;
const USUAL: u64 = 100;

/// How deep groups are told from each other: those below count for that one around them.
const DEPTH: usize = 16;
/// How many neighbours of different groups are told from each other.
const NEIGHBOURS: usize = 64;

/// The weight of a group as it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    weight: u32,
    is_idle: bool,
}

impl Default for Shares {
    fn default() -> Self {
        Shares::USUAL
    }
}

impl Shares {
    /// That of a new group.
    pub const USUAL: Shares = Shares { weight: UNIT, is_idle: false };

    /// Its weight beside processes, of which one of nice 0 has [`UNIT`].
    pub fn weight(self) -> u32 {
        self.weight
    }

    /// Whether it is idle (`cpu.idle`).
    pub fn is_idle(self) -> bool {
        self.is_idle
    }

    /// The number that `cpu.weight` shows.
    pub fn shown(self) -> u64 {
        (u64::from(self.weight) * USUAL + u64::from(UNIT) / 2) / u64::from(UNIT)
    }

    /// The shares that a write to `cpu.weight` asks for. `None`: no such weight (`ERANGE`).
    pub fn of_weight(weight: u64) -> Option<Shares> {
        let is_one = WEIGHTS.contains(&weight);
        is_one.then(|| Shares::of((weight * u64::from(UNIT) + USUAL / 2) / USUAL))
    }

    /// The weight of a nice value: one of `weights`, in the order of -20 to 19.
    pub fn of_nice(weights: &[u32; 40], nice: i64) -> Option<Shares> {
        let place = usize::try_from(nice.saturating_add(20)).ok()?;
        weights.get(place).map(|&weight| Shares::of(weight.into()))
    }

    /// The nice value that comes nearest, as `cpu.weight.nice` shows it.
    pub fn nice(self, weights: &[u32; 40]) -> i64 {
        let distance = |&(_, &weight): &(usize, &u32)| weight.abs_diff(self.weight);
        // Of two that are equally near the first, as in Linux.
        weights.iter().enumerate().min_by_key(distance).map_or(0, |(place, _)| place as i64 - 20)
    }

    /// The shares that a write to `cpu.idle` asks for.
    pub fn idle(is_idle: bool) -> Shares {
        if is_idle { Shares { weight: IDLE, is_idle } } else { Shares::USUAL }
    }

    fn of(weight: u64) -> Shares {
        let weight = weight.clamp(LEAST.into(), MOST.into()) as u32;
        Shares { weight, is_idle: false }
    }
}

/// An execution that runs or waits on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Competitor {
    /// The innermost group that it is in; 0: none.
    pub group: u32,
    /// The weight of its nice value.
    pub weight: u32,
}

/// The tree of groups.
pub trait Tree {
    /// The group around another one; 0: none.
    fn around(&self, group: u32) -> u32;
    /// The weight of a group.
    fn weight(&self, group: u32) -> u32;
}

/// The weight with which an execution competes on its processor, in parts of [`FINE`]: at least
/// one. `others` wait there.
pub fn weight_of(
    own: Competitor,
    others: impl Iterator<Item = Competitor>,
    tree: &impl Tree,
) -> u32 {
    // Its groups, the innermost first, each with the weights of what competes in it.
    let mut way: ArrayVec<(u32, u64), DEPTH> = ArrayVec::new();
    let mut group = own.group;
    while group != 0 && way.try_push((group, 0)).is_ok() {
        group = tree.around(group);
    }
    let mut seen: ArrayVec<u32, NEIGHBOURS> = ArrayVec::new();
    for one in core::iter::once(own).chain(others) {
        add(one, &mut way, &mut seen, tree);
    }
    let mut part = u128::from(own.weight) * u128::from(FINE);
    for (group, inside) in &way {
        part = part * u128::from(tree.weight(*group)) / u128::from((*inside).max(1));
    }
    u32::try_from(part).unwrap_or(u32::MAX).clamp(1, MOST * FINE)
}

/// Adds an execution, and the groups that it is in, to those in which they compete.
fn add(
    one: Competitor,
    way: &mut ArrayVec<(u32, u64), DEPTH>,
    seen: &mut ArrayVec<u32, NEIGHBOURS>,
    tree: &impl Tree,
) {
    let (mut around, mut weight) = (one.group, one.weight);
    for _ in 0..DEPTH {
        if let Some((_, inside)) = way.iter_mut().find(|(group, _)| *group == around) {
            *inside += u64::from(weight);
        }
        if around == 0 || seen.contains(&around) || seen.try_push(around).is_err() {
            return;
        }
        weight = tree.weight(around);
        around = tree.around(around);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// Groups 1 and 2 in the root, 3 and 4 in 1.
    struct Four([u32; 5]);

    impl Tree for Four {
        fn around(&self, group: u32) -> u32 {
            if group > 2 { 1 } else { 0 }
        }

        fn weight(&self, group: u32) -> u32 {
            self.0[group as usize]
        }
    }

    const EVEN: Four = Four([0, UNIT, UNIT, UNIT, UNIT]);

    fn fine(own: u32, others: &[u32], tree: &Four) -> u32 {
        let one = |group| Competitor { group, weight: UNIT };
        weight_of(one(own), others.iter().copied().map(one), tree)
    }

    #[test]
    fn an_execution_has_its_part_of_its_group() {
        const WHOLE: u32 = UNIT * FINE;
        assert_eq!(fine(0, &[1, 2], &EVEN), WHOLE);
        assert_eq!(fine(1, &[], &EVEN), WHOLE);
        assert_eq!(fine(1, &[2, 2, 0], &EVEN), WHOLE);
        assert_eq!(fine(1, &[1, 1, 1, 0], &EVEN), WHOLE / 4);
        // 3 competes in 1 with 4 as a whole, and with what is in 1 itself.
        assert_eq!(fine(3, &[4, 4, 4, 2], &EVEN), WHOLE / 2);
        assert_eq!(fine(3, &[4, 1, 3], &EVEN), WHOLE / 6);
        assert_eq!(fine(1, &[3, 4, 4], &EVEN), WHOLE / 3);
    }

    #[test]
    fn weights_count() {
        let tree = Four([0, 2 * UNIT, UNIT, 3 * UNIT, UNIT]);
        assert_eq!(fine(1, &[2], &tree), 2 * UNIT * FINE);
        assert_eq!(fine(3, &[4, 2], &tree), 2 * UNIT * FINE * 3 / 4);
        let nice = Competitor { group: 1, weight: 15 };
        let other = Competitor { group: 1, weight: UNIT };
        let part = weight_of(nice, core::iter::once(other), &EVEN);
        assert_eq!(part, UNIT * FINE * 15 / (UNIT + 15));
        // Never nothing, and never more than the heaviest group.
        let many = (0..10_000).map(|_| other);
        assert_eq!(weight_of(Competitor { weight: 1, ..nice }, many, &Four([0, 2, 2, 2, 2])), 1);
    }

    #[test]
    fn weights_are_read_and_shown() {
        for weight in 1..=10_000 {
            assert_eq!(Shares::of_weight(weight).unwrap().shown(), weight);
        }
        assert_eq!((Shares::of_weight(0), Shares::of_weight(10_001)), (None, None));
        assert_eq!(Shares::USUAL.shown(), 100);
        assert_eq!(Shares::idle(true).shown(), 0);
        assert_eq!(Shares::idle(false), Shares::USUAL);
        let weights: Vec<u32> = (0..40).map(|place| 90_000 >> (place / 3)).collect();
        let weights: [u32; 40] = weights.try_into().unwrap();
        assert_eq!(Shares::of_nice(&weights, -20).unwrap().weight(), 90_000);
        assert_eq!(Shares::of_nice(&weights, -20).unwrap().nice(&weights), -20);
        assert_eq!((Shares::of_nice(&weights, -21), Shares::of_nice(&weights, 20)), (None, None));
        assert_eq!(Shares::of_nice(&weights, i64::MAX), None);
    }

    #[test]
    fn a_tree_without_end_ends() {
        struct Loop;
        impl Tree for Loop {
            fn around(&self, group: u32) -> u32 {
                group % 40 + 1
            }
            fn weight(&self, _: u32) -> u32 {
                u32::MAX
            }
        }
        let own = Competitor { group: 1, weight: u32::MAX };
        assert!(weight_of(own, core::iter::repeat_n(own, 1000), &Loop) >= 1);
    }
}
