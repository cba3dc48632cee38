use crate::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn one(code: u8, to: u8, from: u8, offset: i16, number: i32) -> [u8; 8] {
    let [o0, o1] = offset.to_le_bytes();
    let [n0, n1, n2, n3] = number.to_le_bytes();
    [code, from << 4 | to, o0, o1, n0, n1, n2, n3]
}

const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

fn set(register: u8, number: i32) -> [u8; 8] {
    one(0xb7, register, 0, 0, number)
}

fn check(program: &[[u8; 8]]) -> Result<Program, Refusal> {
    Program::check(program.as_flattened(), Context::Access)
}

fn refusal(program: &[[u8; 8]]) -> Option<Refusal> {
    check(program).err()
}

const NULL: Access = Access { kind: CHARACTER, how: READ | WRITE, major: 1, minor: 3 };

#[test]
fn what_is_not_taken() {
    use Refusal::{Access, Invalid, Size};
    assert_eq!(refusal(&[]), Some(Size));
    assert_eq!(Program::check(&[0x95; 9], Context::Access).err(), Some(Size));
    assert_eq!(refusal(&alloc::vec![EXIT; MOST + 1]), Some(Size));
    assert_eq!(refusal(&[EXIT]), Some(Access), "r0 is not set");
    assert_eq!(refusal(&[set(0, 2), EXIT]), Some(Invalid), "neither yes nor no");
    assert_eq!(refusal(&[set(0, 1)]), Some(Invalid), "no end");
    assert_eq!(refusal(&[set(0, 1), EXIT, EXIT]), Some(Invalid), "no way leads there");
    assert_eq!(refusal(&[set(0, 1), one(0x05, 0, 0, -1, 0), EXIT]), Some(Invalid), "a loop");
    assert_eq!(refusal(&[set(0, 1), one(0x05, 0, 0, 9, 0), EXIT]), Some(Invalid), "far away");
    assert_eq!(refusal(&[one(0xbf, 0, 1, 0, 0), EXIT]), Some(Access), "the address is told");
    assert_eq!(refusal(&[one(0xbf, 0, 10, 0, 0), EXIT]), Some(Access), "that of a stack");
    assert_eq!(refusal(&[set(10, 1), EXIT]), Some(Access), "r10 is not set");
    assert_eq!(refusal(&[set(11, 1), EXIT]), Some(Invalid), "there is no r11");
    assert_eq!(refusal(&[one(0x85, 0, 0, 0, 5), EXIT]), Some(Invalid), "a function");
    assert_eq!(refusal(&[one(0x63, 10, 1, -4, 0), EXIT]), Some(Invalid), "a store");
    assert_eq!(refusal(&[one(0x18, 0, 1, 0, 5), [0; 8], EXIT]), Some(Invalid), "a map");
    assert_eq!(refusal(&[set(0, 1), one(0x37, 0, 0, 0, 0), EXIT]), Some(Invalid), "by zero");
    assert_eq!(refusal(&[set(0, 1), one(0x67, 0, 0, 0, 64), EXIT]), Some(Invalid), "a shift");
    for (offset, code) in [(12, 0x61), (1, 0x61), (4, 0x69), (1, 0x69), (4, 0x71), (0, 0x79)] {
        let program = [one(code, 0, 1, offset, 0), set(0, 1), EXIT];
        assert_eq!(refusal(&program), Some(Access), "{code:#x} at {offset}");
    }
    // r2 is set on one of two ways only.
    let program =
        [set(0, 1), one(0x15, 0, 0, 1, 0), set(2, 1), one(0x0f, 0, 2, 0, 0), set(0, 0), EXIT];
    assert_eq!(refusal(&program), Some(Access));
}

#[test]
fn some_have_nothing_to_read() {
    let check = |program: &[[u8; 8]]| Program::check(program.as_flattened(), Context::Nothing);
    assert!(check(&[set(0, 1), EXIT]).is_ok());
    assert_eq!(check(&[one(0x61, 0, 1, 0, 0), EXIT]).err(), Some(Refusal::Access));
}

#[test]
fn a_number_of_two_instructions() {
    let second = one(0, 0, 0, 0, 1);
    let program = [one(0x18, 2, 0, 0, 7), second, one(0x77, 2, 0, 0, 32), set(0, 0), EXIT];
    assert!(!check(&program).unwrap().allows(NULL));
    let program = [one(0x18, 2, 0, 0, 7), second, one(0xbf, 0, 2, 0, 0)];
    let program = [&program[..], &[one(0x77, 0, 0, 0, 32), EXIT]].concat();
    assert!(check(&program).unwrap().allows(NULL));
    // A way into its middle.
    let program = [set(0, 1), one(0x05, 0, 0, 1, 0), one(0x18, 0, 0, 0, 0), [0; 8], EXIT];
    assert_eq!(refusal(&program), Some(Refusal::Invalid));
}

/// A rule as container runtimes have them: `None` fits all.
#[derive(Clone, Debug)]
struct Rule {
    kind: Option<u16>,
    how: u16,
    major: Option<u32>,
    minor: Option<u32>,
    allows: bool,
}

impl Rule {
    fn fits(&self, access: Access) -> bool {
        self.kind.is_none_or(|kind| kind == access.kind)
            && access.how & !self.how == 0
            && self.major.is_none_or(|major| major == access.major)
            && self.minor.is_none_or(|minor| minor == access.minor)
    }

    /// Its instructions; r2 to r5 are kind, access, major and minor.
    fn translated(&self) -> Vec<[u8; 8]> {
        let mut tests = Vec::new();
        if let Some(kind) = self.kind {
            tests.push(alloc::vec![one(0x55, 2, 0, 0, i32::from(kind))]);
        }
        let how = i32::from(self.how);
        tests.push(alloc::vec![
            one(0xbc, 1, 3, 0, 0),
            one(0x54, 1, 0, 0, how),
            one(0x5d, 1, 3, 0, 0)
        ]);
        for (register, wanted) in [(4, self.major), (5, self.minor)] {
            if let Some(wanted) = wanted {
                tests.push(alloc::vec![one(0x56, register, 0, 0, wanted.cast_signed())]);
            }
        }
        let mut all: Vec<[u8; 8]> = tests.concat();
        let length = all.len() + 2;
        for (at, instruction) in all.iter_mut().enumerate() {
            if matches!(instruction[0], 0x55 | 0x5d | 0x56) {
                let distance = i16::try_from(length - at - 1).unwrap();
                [instruction[2], instruction[3]] = distance.to_le_bytes();
            }
        }
        all.push(one(0xb4, 0, 0, 0, i32::from(self.allows)));
        all.push(EXIT);
        all
    }
}

fn program_of(rules: &[Rule], otherwise: bool) -> Vec<[u8; 8]> {
    let mut all = alloc::vec![
        one(0x61, 2, 1, 0, 0),
        one(0x54, 2, 0, 0, 0xffff),
        one(0x61, 3, 1, 0, 0),
        one(0x74, 3, 0, 0, 16),
        one(0x61, 4, 1, 4, 0),
        one(0x61, 5, 1, 8, 0),
    ];
    all.extend(rules.iter().flat_map(Rule::translated));
    all.push(one(0xb4, 0, 0, 0, i32::from(otherwise)));
    all.push(EXIT);
    all
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![0..3_u32, Just(u32::MAX), Just(1 << 31)]
}

fn rule() -> impl Strategy<Value = Rule> {
    let kind = prop::option::of(1..3_u16);
    let place = (prop::option::of(small()), prop::option::of(small()));
    (kind, 1..8_u16, place, any::<bool>()).prop_map(|(kind, how, (major, minor), allows)| Rule {
        kind,
        how,
        major,
        minor,
        allows,
    })
}

fn access() -> impl Strategy<Value = Access> {
    (1..3_u16, 1..8_u16, small(), small()).prop_map(|(kind, how, major, minor)| Access {
        kind,
        how,
        major,
        minor,
    })
}

proptest! {
    /// The first rule that fits decides.
    #[test]
    fn rules_of_containers(
        rules in prop::collection::vec(rule(), 0..12),
        otherwise: bool,
        asked in prop::collection::vec(access(), 1..20),
    ) {
        let program = check(&program_of(&rules, otherwise)).unwrap();
        for access in asked {
            let wanted = rules.iter().find(|it| it.fits(access)).map_or(otherwise, |it| it.allows);
            prop_assert_eq!(program.allows(access), wanted);
        }
    }

    /// Each program that is taken runs to its end; programs near a good one are tried more than
    /// others.
    #[test]
    fn others(
        rules in prop::collection::vec(rule(), 0..4),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..8),
        raw in prop::collection::vec(any::<[u8; 8]>(), 0..6),
        access in access(),
    ) {
        let mut bytes = program_of(&rules, true).as_flattened().to_vec();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        for bytes in [bytes, [raw.as_flattened(), &EXIT].concat()] {
            if let Ok(program) = Program::check(&bytes, Context::Access) {
                let _ = program.allows(access);
            }
        }
    }

    /// Arithmetic is that of the machine.
    #[test]
    fn arithmetic(to: u64, other: u64, shift in 0..64_u64) {
        let results = [
            (0x0f, to.wrapping_add(other)), (0x1f, to.wrapping_sub(other)),
            (0x2f, to.wrapping_mul(other)), (0x3f, to.checked_div(other).unwrap_or(0)),
            (0x4f, to | other), (0x5f, to & other), (0xaf, to ^ other),
            (0x0c, u64::from((to as u32).wrapping_add(other as u32))),
            (0xbc, u64::from(other as u32)),
            (0x9f, to.checked_rem(other).unwrap_or(to)),
            (0x1c, u64::from((to as u32).wrapping_sub(other as u32))),
            (0x2c, u64::from((to as u32).wrapping_mul(other as u32))),
            (0x3c, u64::from((to as u32).checked_div(other as u32).unwrap_or(0))),
            (0x9c, u64::from((to as u32).checked_rem(other as u32).unwrap_or(to as u32))),
            (0x6c, u64::from((to as u32).wrapping_shl(other as u32))),
            (0x7c, u64::from((to as u32).wrapping_shr(other as u32))),
            (0xcc, u64::from((to as i32).wrapping_shr(other as u32) as u32)),
        ];
        let shifts = [(0x6f, to << shift), (0x7f, to >> shift),
            (0xcf, (to.cast_signed() >> shift).cast_unsigned())];
        let load = |register, value: u64| {
            [one(0x18, register, 0, 0, (value as u32).cast_signed()),
                one(0, 0, 0, 0, ((value >> 32) as u32).cast_signed())]
        };
        let cases = results.map(|(code, result)| (code, other, result)).into_iter();
        for (code, other, result) in cases.chain(shifts.map(|(code, it)| (code, shift, it))) {
            // r0 = whether r2 is the result.
            let program = [
                &load(2, to)[..], &load(3, other), &[one(code, 2, 3, 0, 0)], &load(4, result),
                &[set(0, 1), one(0x1d, 2, 4, 1, 0), set(0, 0), EXIT],
            ].concat();
            prop_assert!(check(&program).unwrap().allows(NULL), "{code:#x}");
        }
    }
}
