//! Filters of system calls: which are refused, what they say, and that what is said of all calls of
//! a number is said of each.

use hayate_bpf::seccomp::{ARCH_X86_64, Action, Actions, Data, Filter, MOST_TOGETHER, Verdict};
use hayate_bpf::{Instruction, MOST, Refused};
use hayate_fuzzing::{Random, rounds, seed};

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL: u32 = 0x8000_0000;

fn i(code: u16, when_true: u8, when_false: u8, k: u32) -> Instruction {
    Instruction { code, when_true, when_false, k }
}
fn load(at: u32) -> Instruction {
    i(0x20, 0, 0, at)
}
fn equal(k: u32, when_true: u8, when_false: u8) -> Instruction {
    i(0x15, when_true, when_false, k)
}
fn ret(k: u32) -> Instruction {
    i(6, 0, 0, k)
}

fn call(number: u32, arguments: [u64; 6]) -> Data {
    Data::new(number, ARCH_X86_64, 0x1234_5678_9abc, arguments)
}

fn run(code: &[Instruction], data: &Data) -> u32 {
    Filter::check(code).expect("a good filter").run(data).0
}

#[test]
fn the_call_lies_as_in_linux() {
    let data = Data::new(7, ARCH_X86_64, 0x1_0000_0002, [0x3_0000_0004, 5, 6, 7, 8, 9 << 32]);
    let bytes = data.to_bytes();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let expected = [7, ARCH_X86_64, 2, 1, 4, 3, 5, 0, 6, 0, 7, 0, 8, 0, 0, 9];
    for (index, expected) in expected.into_iter().enumerate() {
        assert_eq!(word(index * 4), expected);
        // `ret a` behind a load of it.
        assert_eq!(run(&[load(index as u32 * 4), i(0x16, 0, 0, 0)], &data), expected);
    }
    assert_eq!(run(&[i(0x80, 0, 0, 0), i(0x16, 0, 0, 0)], &data), 64);
    assert_eq!(run(&[i(0x81, 0, 0, 0), i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)], &data), 64);
}

#[test]
fn what_linux_refuses_is_refused() {
    let refused = |code: &[Instruction]| matches!(Filter::check(code), Err(Refused::Invalid));
    assert!(refused(&[]));
    assert!(refused(&[load(0)]), "no end");
    assert!(refused(&vec![ret(0); MOST + 1]));
    for at in [1, 2, 3, 5, 64, 68, 0x7fff_fffc, 0xffff_f000, 0xffff_f024] {
        assert!(refused(&[load(at), ret(0)]), "{at:#x}");
    }
    for code in [0x28, 0x30, 0x40, 0x48, 0x50, 0xb1, 0x94, 0x9c, 0xffff, 0x70] {
        assert!(refused(&[i(code, 0, 0, 4), ret(0)]), "{code:#x}");
    }
    assert!(refused(&[i(0x60, 0, 0, 0), ret(0)]), "a cell that was not written");
    assert!(refused(&[equal(0, 0, 1), ret(0)]), "beyond the end");
}

#[test]
fn lengths_are_those_of_the_converted_program() {
    let length = |code: &[Instruction]| Filter::check(code).expect("a good filter").length();
    assert_eq!(length(&[ret(0)]), 5);
    assert_eq!(length(&[i(0x16, 0, 0, 0)]), 4);
    assert_eq!(length(&[load(0), ret(0)]), 6);
    // Jumps on both sides need a second one, unless the condition can be turned round.
    assert_eq!(length(&[equal(1, 0, 1), ret(0), ret(0)]), 8);
    assert_eq!(length(&[equal(1, 1, 0), ret(0), ret(0)]), 8);
    assert_eq!(length(&[equal(1, 1, 1), ret(0), ret(0)]), 9);
    assert_eq!(length(&[i(0x45, 0, 1, 1), ret(0), ret(0)]), 9);
    assert_eq!(length(&[equal(0x8000_0000, 0, 1), ret(0), ret(0)]), 9);
    assert_eq!(length(&[i(0x3c, 0, 0, 0), ret(0)]), 10);
    assert_eq!(MOST_TOGETHER, 32768);
}

#[test]
fn actions_and_their_order() {
    let ordered = Action::ALL.map(|(_, number, _)| Verdict(number | 0x1234));
    for (index, verdict) in ordered.iter().enumerate() {
        assert_eq!(verdict.action(), Action::ALL[index].0);
        assert_eq!(verdict.data(), 0x1234);
        for (other, less) in ordered.iter().enumerate() {
            assert_eq!(verdict.outranks(*less), index < other);
        }
    }
    assert_eq!(Verdict(0x1111_0000).action(), Action::KillProcess);
    assert_eq!(Action::of(0x7fff_0001), None);
}

#[test]
fn names_of_actions() {
    let all: Vec<_> = Actions(u8::MAX).names().collect();
    assert_eq!(all.join(" "), "kill_process kill_thread trap errno user_notif trace log allow");
    assert_eq!(Actions::parse("log kill_thread"), Some(Actions(0b100_0010)));
    assert_eq!(Actions::parse(""), Some(Actions(0)));
    for bad in ["allow", "log allow", "errno nonsense", "log,errno"] {
        assert_eq!(Actions::parse(bad), None, "{bad}");
    }
}

/// The usual kind of filter: some numbers are allowed, one only with an argument.
fn usual() -> Vec<Instruction> {
    vec![
        load(4),
        equal(ARCH_X86_64, 1, 0),
        ret(KILL),
        load(0),
        i(0x35, 0, 1, 0x4000_0000), // x32
        ret(KILL),
        equal(1, 5, 0),
        i(0x25, 3, 0, 200), // greater than 200
        equal(16, 0, 3),
        load(24),
        equal(0x5401, 1, 0),
        ret(ERRNO | 1),
        ret(ALLOW),
    ]
}

#[test]
fn what_is_said_whatever_the_arguments() {
    let filter = Filter::check(&usual()).expect("a good filter");
    assert_eq!(filter.constant(1, ARCH_X86_64), Some(Verdict(ALLOW)));
    assert_eq!(filter.constant(16, ARCH_X86_64), None);
    assert_eq!(filter.constant(201, ARCH_X86_64), Some(Verdict(ERRNO | 1)));
    assert_eq!(filter.constant(0x4000_0000, ARCH_X86_64), Some(Verdict(KILL)));
    assert_eq!(filter.constant(1, 1), Some(Verdict(KILL)));
    assert_eq!(filter.allowed(0, ARCH_X86_64), !(1 << 16));
    assert_eq!(filter.allowed(192, ARCH_X86_64), (1 << 9) - 1);
    assert_eq!(filter.run(&call(16, [0, 0x5401, 0, 0, 0, 0])), Verdict(ALLOW));
    assert_eq!(filter.run(&call(16, [0, 0x5402, 0, 0, 0, 0])), Verdict(ERRNO | 1));
}

/// A program of mostly good instructions, many of which look at the number.
fn random_program(random: &mut Random) -> Vec<Instruction> {
    let length = 2 + random.below(30);
    let mut code: Vec<_> = (0..length)
        .map(|at| {
            let left = (length - at).min(12);
            let jump = |random: &mut Random| random.below(left.saturating_sub(1)) as u8;
            let small = random.below(512) as u32;
            let k = if random.one_in(8) { random.word() as u32 } else { small };
            match random.below(16) {
                0..=2 => load(random.below(2) as u32 * 4),
                3 => load(random.below(17) as u32 * 4),
                4..=7 => {
                    let code =
                        0x15 + 0x10 * random.below(4) as u16 + 8 * u16::from(random.one_in(6));
                    i(code, jump(random), jump(random), k)
                }
                8 => i(0x05, 0, 0, jump(random).into()),
                9 | 10 => i(0x04 + 0x10 * random.below(11) as u16, 0, 0, k % 33),
                11 => i(0x0c + 0x10 * random.below(11) as u16, 0, 0, k),
                12 => i(*random.pick(&[&2, &3, &0x60, &0x61]), 0, 0, random.below(3) as u32),
                13 => i(*random.pick(&[&0u16, &1, &7, &0x87, &0x84, &0x80, &0x81]), 0, 0, k),
                14 => ret(*random.pick(&[&ALLOW, &ALLOW, &ERRNO, &KILL, &0])),
                _ => i(0x16, 0, 0, 0),
            }
        })
        .collect();
    code.push(ret(if random.one_in(3) { ERRNO } else { ALLOW }));
    code
}

/// The property on which the words of allowed calls rest.
#[test]
fn constants_agree_with_every_run() {
    let mut random = Random::new(seed());
    let (mut good, mut constants, mut allowed) = (0, 0, 0);
    for _ in 0..rounds(3000) {
        let Ok(filter) = Filter::check(&random_program(&mut random)) else { continue };
        good += 1;
        for first in (0..512).step_by(64) {
            let word = filter.allowed(first, ARCH_X86_64);
            for number in first..first + 64 {
                let constant = filter.constant(number, ARCH_X86_64);
                let bit = word >> (number - first) & 1 != 0;
                assert_eq!(bit, constant == Some(Verdict(ALLOW)));
                constants += usize::from(constant.is_some());
                allowed += usize::from(bit);
                for _ in 0..2 {
                    let arguments = [(); 6].map(|()| random.word() >> random.below(64));
                    let verdict =
                        filter.run(&Data::new(number, ARCH_X86_64, random.word(), arguments));
                    assert!(constant.is_none_or(|constant| constant == verdict), "{filter:?}");
                }
            }
        }
    }
    assert!(good > 300 || rounds(3000) < 3000, "{good} good programs");
    assert!(constants > good * 100 && allowed > good * 20, "{constants}, {allowed} of {good}");
}

/// Bytes that a program may offer: no panic, and whatever is accepted ends.
#[test]
fn no_bytes_harm() {
    let mut random = Random::new(seed() ^ 0x5ecc);
    let mut accepted = 0;
    for _ in 0..rounds(20000) {
        let mut code = random_program(&mut random);
        for _ in 0..random.below(4) {
            let at = random.below(code.len());
            let mut bytes = code[at].to_bytes();
            bytes[random.below(8)] = random.word() as u8;
            code[at] = Instruction::from_bytes(bytes);
        }
        if let Ok(filter) = Filter::check(&code) {
            accepted += 1;
            assert!(filter.length() > code.len());
            let number = random.word() as u32;
            filter.run(&call(number, [(); 6].map(|()| random.word())));
            filter.constant(number, random.word() as u32);
        }
    }
    assert!(accepted > 100 || rounds(20000) < 20000, "{accepted} programs are good");
}
