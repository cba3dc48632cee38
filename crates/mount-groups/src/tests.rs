use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// The same with a list of slaves and the members spelled out, as Linux does it: a mount that goes
/// gives its slaves away.
#[derive(Clone, Copy, Debug, Default)]
struct Plain {
    here: bool,
    group: u32,
    /// One that it is a slave of; at any time a member of a group.
    master: Option<usize>,
    unbindable: bool,
}

#[derive(Default)]
struct Model {
    mounts: Vec<Plain>,
    next: u32,
}

impl Model {
    fn peer(&self, at: usize) -> Option<usize> {
        let group = self.mounts[at].group;
        (0..self.mounts.len())
            .find(|&other| other != at && group != 0 && self.mounts[other].group == group)
    }

    /// `do_make_slave`
    fn make_slave(&mut self, at: usize) {
        let heir = self.peer(at).or(self.mounts[at].master);
        if self.mounts[at].group != 0 {
            for mount in &mut self.mounts {
                if mount.master == Some(at) {
                    mount.master = heir;
                }
            }
            self.mounts[at].master = heir;
            self.mounts[at].group = 0;
        }
    }

    fn change(&mut self, at: usize, kind: Kind) {
        if kind == Kind::Shared {
            if self.mounts[at].group == 0 {
                self.next += 1;
                self.mounts[at].group = self.next;
            }
            self.mounts[at].unbindable = false;
            return;
        }
        self.make_slave(at);
        if kind != Kind::Slave {
            self.mounts[at].master = None;
            self.mounts[at].unbindable = kind == Kind::Unbindable;
        }
    }

    fn copy(&mut self, at: usize, in_fewer_hands: bool) {
        let mut copy = self.mounts[at];
        if in_fewer_hands && copy.group != 0 {
            copy.group = 0;
            copy.master = Some(at);
        }
        self.mounts.push(copy);
    }

    fn master(&self, at: usize) -> u32 {
        self.mounts[at].master.map_or(0, |master| self.mounts[master].group)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Change(usize, Kind),
    Copy(usize, bool),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        1 => Just(Kind::Private),
        1 => Just(Kind::Unbindable),
        3 => Just(Kind::Slave),
        3 => Just(Kind::Shared),
    ];
    let step = prop_oneof![
        3 => (any::<usize>(), kind).prop_map(|(at, kind)| Step::Change(at, kind)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(at, fewer)| Step::Copy(at, fewer)),
        1 => any::<usize>().prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn as_with_rings_and_lists(steps in steps()) {
        let mut model = Model { mounts: vec![Plain { here: true, ..Plain::default() }], next: 0 };
        let mut mounts = vec![Some(Propagation::default())];
        let mut numbers = 0;
        for step in steps {
            let mut number = || { numbers += 1; numbers };
            match step {
                Step::Change(at, kind) => {
                    let at = at % mounts.len();
                    if let Some(mount) = &mut mounts[at] {
                        mount.change(kind, &mut number);
                        model.change(at, kind);
                    }
                }
                Step::Copy(at, fewer) => {
                    let at = at % mounts.len();
                    if let Some(mount) = &mounts[at] {
                        let copy = mount.copied(fewer);
                        mounts.push(Some(copy));
                        model.copy(at, fewer);
                    }
                }
                Step::End(at) => {
                    let at = at % mounts.len();
                    if mounts[at].take().is_some() {
                        model.change(at, Kind::Private);
                        model.mounts[at].here = false;
                    }
                }
            }
            for (at, mount) in mounts.iter().enumerate() {
                let Some(mount) = mount else { continue };
                let plain = model.mounts[at];
                prop_assert_eq!(mount.group().map_or(0, |group| group.number()), plain.group);
                prop_assert_eq!(mount.master().map_or(0, |group| group.number()), model.master(at));
                prop_assert_eq!(matches!(mount, Propagation::Unbindable), plain.unbindable);
                let members = model.mounts.iter().filter(|other| {
                    other.here && plain.group != 0 && other.group == plain.group
                });
                let known = mount.group().map_or(0, |group| group.members());
                prop_assert_eq!(known, members.count() as u32);
            }
        }
    }
}

/// Each group the master of the next, and then they go, the first first.
#[test]
fn a_long_chain_goes_without_recursion() {
    let mut chain = Vec::new();
    let mut last = Propagation::default();
    for number in 1..200_000 {
        last.change(Kind::Shared, || number);
        let mut next = last.copied(true);
        core::mem::swap(&mut next, &mut last);
        chain.push(next);
    }
    chain.clear();
    assert!(last.master().is_none());
    drop(last);
}
