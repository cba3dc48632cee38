//! Devices of a container: the nodes that are made for it, and the rules about which it may use.
//!
//! The rules become a program of bpf(2) of the kind `BPF_PROG_TYPE_CGROUP_DEVICE`, as runc and crun
//! make one: control groups of version 2 have no files for rules. Each right that is asked for
//! (to make a node, to read, to write) is judged by the last rule that names the device and the
//! right; what none names is refused, as by runc.

use std::ffi::c_int;

/// A node is made (`BPF_DEVCG_ACC_MKNOD`).
pub const MAKE: u16 = 1;
/// It is read (`BPF_DEVCG_ACC_READ`).
pub const READ: u16 = 2;
/// It is written (`BPF_DEVCG_ACC_WRITE`).
pub const WRITE: u16 = 4;
/// All of it.
const EVERYTHING: u16 = MAKE | READ | WRITE;
/// The most instructions of a program (`BPF_MAXINSNS`, Linux 6.1).
const MOST: usize = 4096;

/// What kind of device it is, by the numbers of bpf(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// `BPF_DEVCG_DEV_BLOCK`
    Block = 1,
    /// `BPF_DEVCG_DEV_CHAR`
    #[default]
    Character = 2,
}

impl Kind {
    fn of(number: i64) -> Result<Kind, String> {
        match number {
            1 => Ok(Kind::Block),
            2 => Ok(Kind::Character),
            _ => Err(format!("{number} is no kind of devices")),
        }
    }
}

/// A node of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Where it is in the container.
    pub path: Vec<u8>,
    /// The kind of its device.
    pub kind: Kind,
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
    /// Who may do what.
    pub mode: u32,
    /// Its owner.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl Node {
    /// A node at this path, whose device is yet to be set.
    pub(crate) fn at(path: &[u8]) -> Node {
        Node { path: path.to_vec(), ..Node::default() }
    }

    pub(crate) fn numbers(&self) -> String {
        let Node { kind, major, minor, mode, user, group, .. } = self;
        format!("{}:{major}:{minor}:{mode}:{user}:{group}", *kind as u32)
    }

    pub(crate) fn set(&mut self, numbers: [u32; 6]) -> Result<(), String> {
        let [kind, major, minor, mode, user, group] = numbers;
        let kind = Kind::of(kind.into())?;
        let path = std::mem::take(&mut self.path);
        *self = Node { path, kind, major, minor, mode, user, group };
        Ok(())
    }
}

/// A rule: whether devices may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether they may.
    pub allow: bool,
    /// Which kind; `None`: both.
    pub kind: Option<Kind>,
    /// Which major number; `None`: each.
    pub major: Option<u32>,
    /// Which minor number; `None`: each.
    pub minor: Option<u32>,
    /// [`MAKE`], [`READ`] and [`WRITE`].
    pub access: u16,
}

impl Rule {
    /// All of all devices.
    pub const ALL: Rule =
        Rule { allow: true, kind: None, major: None, minor: None, access: EVERYTHING };

    pub(crate) fn numbers(&self) -> String {
        let any = |number: Option<u32>| number.map_or(-1, i64::from);
        let kind = self.kind.map_or(0, |kind| kind as u32);
        let (major, minor) = (any(self.major), any(self.minor));
        format!("{}:{kind}:{major}:{minor}:{}", u8::from(self.allow), self.access)
    }

    pub(crate) fn of([allow, kind, major, minor, access]: [i64; 5]) -> Result<Rule, String> {
        let any = |number: i64| match number {
            -1 => Ok(None),
            _ => u32::try_from(number).map(Some).map_err(|_| format!("{number} is no number")),
        };
        let right = u16::try_from(access).ok().filter(|access| access & !EVERYTHING == 0);
        Ok(Rule {
            allow: allow != 0,
            kind: if kind == 0 { None } else { Some(Kind::of(kind)?) },
            major: any(major)?,
            minor: any(minor)?,
            access: right.ok_or_else(|| format!("{access} is no access"))?,
        })
    }
}

/// The program's registers: its answer, the access that it is asked about, and parts of that.
const ANSWER: u8 = 0;
const ACCESS: u8 = 1;
const WANTED: u8 = 2;
const KIND: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// Operations (RFC 9669): loads of a word, 32-bit arithmetic with a constant, jumps.
const LOAD: u8 = 0x61;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const SET: u8 = 0xb4;
const COPY: u8 = 0xbc;
const JUMP_IF: u8 = 0x15;
const JUMP_UNLESS: u8 = 0x55;
const EXIT: u8 = 0x95;

/// Instructions, each of eight bytes.
#[derive(Default)]
struct Code(Vec<[u8; 8]>);

impl Code {
    fn put(&mut self, operation: u8, to: u8, from: u8, offset: i16, constant: c_int) {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = constant.to_le_bytes();
        self.0.push([operation, from << 4 | to, low, high, a, b, c, d]);
    }

    fn end(&mut self, answer: c_int) {
        self.put(SET, ANSWER, 0, 0, answer);
        self.put(EXIT, 0, 0, 0, 0);
    }

    /// Lets the jumps at these places lead to the next instruction.
    fn land(&mut self, jumps: &[usize]) {
        for &at in jumps {
            // A rule is a few instructions.
            let distance = i16::try_from(self.0.len() - at - 1).unwrap_or(i16::MAX);
            self.0[at][2..4].copy_from_slice(&distance.to_le_bytes());
        }
    }
}

/// Returns the program of rules, as bpf(2) takes it.
///
/// # Errors
/// It would be too long, or a number is none of a device.
pub fn program(rules: &[Rule]) -> Result<Vec<u8>, String> {
    let mut code = Code::default();
    code.put(LOAD, WANTED, ACCESS, 0, 0);
    code.put(COPY, KIND, WANTED, 0, 0);
    code.put(AND, KIND, 0, 0, 0xffff);
    code.put(SHIFT_RIGHT, WANTED, 0, 0, 16);
    code.put(LOAD, MAJOR, ACCESS, 4, 0);
    code.put(LOAD, MINOR, ACCESS, 8, 0);
    for rule in rules.iter().rev() {
        let mut jumps = Vec::new();
        let parts =
            [(KIND, rule.kind.map(|kind| kind as u32)), (MAJOR, rule.major), (MINOR, rule.minor)];
        for (register, wanted) in parts {
            let Some(wanted) = wanted else { continue };
            let wanted = c_int::try_from(wanted);
            let wanted = wanted.map_err(|_| "a number is none of a device".to_string())?;
            jumps.push(code.0.len());
            code.put(JUMP_UNLESS, register, 0, 0, wanted);
        }
        let access = c_int::from(rule.access);
        if rule.allow {
            // The rules before it judge the rights that are left.
            code.put(AND, WANTED, 0, 0, !access);
            jumps.push(code.0.len());
            code.put(JUMP_UNLESS, WANTED, 0, 0, 0);
        } else {
            code.put(COPY, ANSWER, WANTED, 0, 0);
            code.put(AND, ANSWER, 0, 0, access);
            jumps.push(code.0.len());
            code.put(JUMP_IF, ANSWER, 0, 0, 0);
        }
        code.end(c_int::from(rule.allow));
        code.land(&jumps);
    }
    code.end(0);
    if code.0.len() > MOST {
        return Err(format!("{} rules about devices are too many", rules.len()));
    }
    Ok(code.0.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayate_device_programs::{Access, Context, Program};
    use proptest::prelude::*;

    fn checked(rules: &[Rule]) -> Program {
        Program::check(&program(rules).unwrap(), Context::Access).unwrap()
    }

    fn rule() -> impl Strategy<Value = Rule> {
        let kind = prop::option::of(prop_oneof![Just(Kind::Block), Just(Kind::Character)]);
        let number = || prop::option::of(0_u32..3);
        (any::<bool>(), kind, number(), number(), 0_u16..8).prop_map(
            |(allow, kind, major, minor, access)| Rule { allow, kind, major, minor, access },
        )
    }

    /// What the rules say of one right.
    fn may(rules: &[Rule], access: &Access, right: u16) -> bool {
        let counts = |rule: &&Rule| {
            rule.access & right != 0
                && rule.kind.is_none_or(|kind| kind as u16 == access.kind)
                && rule.major.is_none_or(|major| major == access.major)
                && rule.minor.is_none_or(|minor| minor == access.minor)
        };
        rules.iter().rev().find(counts).is_some_and(|rule| rule.allow)
    }

    proptest! {
        #[test]
        fn the_program_says_what_the_rules_say(
            rules in prop::collection::vec(rule(), 0..12),
            kind in 1_u16..3,
            how in 1_u16..8,
            major in 0_u32..4,
            minor in 0_u32..4,
        ) {
            let access = Access { kind, how, major, minor };
            let mut rights = [MAKE, READ, WRITE].into_iter().filter(|right| how & right != 0);
            let wanted = rights.all(|right| may(&rules, &access, right));
            prop_assert_eq!(checked(&rules).allows(access), wanted);
        }
    }

    #[test]
    fn rules_without_end_are_refused() {
        assert!(program(&vec![Rule::ALL; 900]).is_ok());
        assert!(program(&vec![Rule::ALL; 2000]).unwrap_err().contains("2000 rules"));
        assert!(program(&[Rule { major: Some(u32::MAX), ..Rule::ALL }]).is_err());
    }
}
