//! What instructions do, which programs are refused, and that no program harms.

use hayate_bpf::{Ancillary, Base, Instruction, MOST, Packet, Program, Refused};
use hayate_fuzzing::{Random, rounds, seed};
use proptest::prelude::*;

/// A frame of Ethernet that a socket sees from `data` on.
struct Frame<'a> {
    bytes: &'a [u8],
    data: usize,
}

impl Packet for Frame<'_> {
    fn length(&self) -> u32 {
        (self.bytes.len() - self.data) as u32
    }

    fn read(&self, base: Base, offset: u32, to: &mut [u8]) -> bool {
        let start = match base {
            Base::Data => self.data,
            Base::Network => 14,
            Base::Link => 0,
        };
        let from = start + offset as usize;
        match self.bytes.get(from..from + to.len()) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => return false,
        }
        true
    }

    fn ancillary(&self, what: Ancillary) -> Option<u32> {
        (what != Ancillary::HardwareType).then_some(100 + what as u32)
    }
}

fn i(code: u16, when_true: u8, when_false: u8, k: u32) -> Instruction {
    Instruction { code, when_true, when_false, k }
}

fn checked(code: &[Instruction]) -> Result<Program, Refused> {
    Program::check(code.to_vec())
}

const BYTES: [u8; 40] = {
    let mut bytes = [0; 40];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = at as u8;
        at += 1;
    }
    bytes
};

/// Executes a program over [`BYTES`] as a packet socket sees it without the frame's header.
fn run(code: &[Instruction]) -> u32 {
    checked(code).expect("a good program").run(&Frame { bytes: &BYTES, data: 14 })
}

/// Gives what an instruction makes of A = 100 and X = 7.
fn result(instruction: Instruction) -> u32 {
    run(&[i(0, 0, 0, 100), i(1, 0, 0, 7), instruction, i(0x16, 0, 0, 0)])
}

#[test]
fn calculations() {
    let by_k = [103, 97, 300, 33, 103, 0, 800, 12, 1, 103];
    let by_x = [107, 93, 700, 14, 103, 4, 12800, 0, 2, 99];
    let codes = [0x04, 0x14, 0x24, 0x34, 0x44, 0x54, 0x64, 0x74, 0x94, 0xa4];
    for (at, code) in codes.into_iter().enumerate() {
        assert_eq!(result(i(code, 0, 0, 3)), by_k[at], "{code:#x}");
        assert_eq!(result(i(code | 8, 0, 0, 3)), by_x[at], "{code:#x} with X");
    }
    assert_eq!(result(i(0x84, 0, 0, 0)), 100u32.wrapping_neg());
    assert_eq!(result(i(0x87, 0, 0, 0)), 7);
    // By an X of 0 the packet is not wanted.
    for code in [0x3c, 0x9c] {
        assert_eq!(run(&[i(0, 0, 0, 9), i(code, 0, 0, 0), i(6, 0, 0, 5)]), 0);
    }
    // A shift by X takes its last five bits.
    assert_eq!(run(&[i(0, 0, 0, 1), i(1, 0, 0, 33), i(0x6c, 0, 0, 0), i(0x16, 0, 0, 0)]), 2);
}

#[test]
fn loads() {
    assert_eq!(result(i(0x20, 0, 0, 0)), 0x0e0f_1011);
    assert_eq!(result(i(0x28, 0, 0, 1)), 0x0f10);
    assert_eq!(result(i(0x30, 0, 0, 25)), 39);
    assert_eq!(result(i(0x30, 0, 0, 26)), 0, "beyond the end");
    assert_eq!(result(i(0x20, 0, 0, 23)), 0, "across the end");
    assert_eq!(result(i(0x50, 0, 0, 3)), 24);
    assert_eq!(result(i(0x50, 0, 0, -6_i32 as u32)), 15, "an offset that X makes positive");
    assert_eq!(result(i(0x80, 0, 0, 0)), 26);
    assert_eq!(result(i(0x30, 0, 0, -0x10_0000_i32 as u32 + 2)), 16, "from the network's header");
    assert_eq!(result(i(0x30, 0, 0, -0x20_0000_i32 as u32 + 2)), 2, "from the link's header");
    assert_eq!(result(i(0x30, 0, 0, 0x8000_0000)), 0);
    // X becomes four times the low half of a byte, or the length.
    assert_eq!(run(&[i(0xb1, 0, 0, 1), i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)]), 60);
    assert_eq!(run(&[i(0x81, 0, 0, 0), i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)]), 26);
}

#[test]
fn questions() {
    let of = |number: u32| result(i(0x20, 0, 0, -0x1000_i32 as u32 + number));
    assert_eq!(of(0), 100 + Ancillary::Protocol as u32);
    assert_eq!(of(4), 100 + Ancillary::PacketType as u32);
    assert_eq!(of(8), 100 + Ancillary::InterfaceIndex as u32);
    assert_eq!(of(28), 0, "what has no answer ends the program");
    assert_eq!(of(40), 100 ^ 7);
    for number in (0..64).step_by(4) {
        assert!(checked(&[i(0x28, 0, 0, -0x1000_i32 as u32 + number), i(6, 0, 0, 1)]).is_ok());
    }
    for number in [1, 2, 63, 64, 0xfff] {
        let code = [i(0x20, 0, 0, -0x1000_i32 as u32 + number), i(6, 0, 0, 1)];
        assert_eq!(checked(&code).err(), Some(Refused::Invalid), "{number}");
    }
}

#[test]
fn attributes() {
    // Of type 1, four bytes; of type 2, which has one of type 5 in it.
    let mut bytes = vec![0; 14];
    for word in [8u16, 1, 0xffff, 0xffff, 12, 2, 8, 5, 1, 1] {
        bytes.extend(word.to_ne_bytes());
    }
    let find = |at: u32, kind: u32, number: u32| {
        let code = [
            i(0, 0, 0, at),
            i(1, 0, 0, kind),
            i(0x20, 0, 0, -0x1000_i32 as u32 + number),
            i(0x16, 0, 0, 0),
        ];
        checked(&code).expect("a good program").run(&Frame { bytes: &bytes, data: 14 })
    };
    assert_eq!(find(0, 2, 12), 8);
    assert_eq!(find(0, 5, 12), 0);
    assert_eq!(find(8, 5, 16), 12);
    assert_eq!(find(8, 1, 16), 0);
    assert_eq!(find(u32::MAX, 1, 12), 0);
    assert_eq!(find(u32::MAX, 1, 16), 0);
}

#[test]
fn jumps() {
    let taken = |code: u16, k: u32| {
        run(&[i(0, 0, 0, 5), i(1, 0, 0, 5), i(code, 1, 0, k), i(6, 0, 0, 1), i(6, 0, 0, 2)]) == 2
    };
    assert!(taken(0x15, 5) && !taken(0x15, 6) && taken(0x1d, 0));
    assert!(taken(0x25, 4) && !taken(0x25, 5) && !taken(0x2d, 0));
    assert!(taken(0x35, 5) && !taken(0x35, 6) && taken(0x3d, 0));
    assert!(taken(0x45, 4) && !taken(0x45, 2) && taken(0x4d, 0));
    assert_eq!(run(&[i(5, 0, 0, 1), i(6, 0, 0, 1), i(6, 0, 0, 2)]), 2);
}

#[test]
fn cells_are_written_before_they_are_read() {
    let end = i(6, 0, 0, 1);
    assert!(checked(&[i(0x60, 0, 0, 3), end]).is_err());
    assert!(checked(&[i(2, 0, 0, 3), i(0x60, 0, 0, 3), end]).is_ok());
    assert!(checked(&[i(2, 0, 0, 3), i(0x61, 0, 0, 2), end]).is_err());
    // On one of two ways only.
    let one = [i(0x15, 0, 1, 0), i(2, 0, 0, 0), i(0x60, 0, 0, 0), end];
    assert!(checked(&one).is_err());
    let both =
        [i(0x15, 0, 2, 0), i(2, 0, 0, 0), i(5, 0, 0, 1), i(3, 0, 0, 0), i(0x60, 0, 0, 0), end];
    assert!(checked(&both).is_ok());
    assert_eq!(
        run(&[
            i(0, 0, 0, 77),
            i(2, 0, 0, 15),
            i(0, 0, 0, 1),
            i(0x61, 0, 0, 15),
            i(0x87, 0, 0, 0),
            i(0x16, 0, 0, 0)
        ]),
        77
    );
}

#[test]
fn what_is_no_program_is_refused() {
    let end = i(6, 0, 0, 1);
    assert!(checked(&[]).is_err());
    assert!(checked(&vec![end; MOST]).is_ok());
    assert!(checked(&vec![end; MOST + 1]).is_err());
    assert!(checked(&[i(0, 0, 0, 0)]).is_err(), "no end");
    for bad in [
        i(0x34, 0, 0, 0),
        i(0x94, 0, 0, 0),
        i(0x64, 0, 0, 32),
        i(0x74, 0, 0, 32),
        i(2, 0, 0, 16),
        i(3, 0, 0, 16),
        i(5, 0, 0, 1),
        i(5, 0, 0, u32::MAX),
        i(0x15, 1, 0, 0),
        i(0x15, 0, 1, 0),
        i(0x8c, 0, 0, 0),
        i(0x0e, 0, 0, 0),
        i(0x55, 0, 0, 0),
        i(0x0d, 0, 0, 0),
        i(0x115, 0, 0, 0),
        i(0x21, 0, 0, 0),
    ] {
        assert!(checked(&[bad, end]).is_err(), "{bad:?}");
    }
}

fn random_program(random: &mut Random) -> Vec<Instruction> {
    const CODES: [u16; 48] = [
        0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03,
        0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87, 0x84, 0x04,
        0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c,
        0x9c, 0xa4, 0xac,
    ];
    let length = 1 + random.below(12);
    let mut code: Vec<Instruction> = (0..length)
        .map(|_| {
            let code = if random.one_in(100) {
                random.word() as u16
            } else {
                CODES[random.below(CODES.len())]
            };
            let k = match random.below(8) {
                0 => random.word() as u32,
                1 => (-0x1000_i32 as u32).wrapping_add(random.below(70) as u32),
                2 => (-0x10_0000_i32 as u32).wrapping_add(random.below(70) as u32),
                3 => (-0x20_0000_i32 as u32).wrapping_add(random.below(70) as u32),
                _ => random.below(18) as u32,
            };
            i(code, random.below(4) as u8, random.below(4) as u8, k)
        })
        .collect();
    code.push(i(if random.one_in(2) { 6 } else { 0x16 }, 0, 0, random.below(64) as u32));
    code
}

#[test]
fn random_programs_end() {
    let mut random = Random::new(seed());
    let mut accepted = 0;
    for _ in 0..rounds(50_000) {
        let code = random_program(&mut random);
        let Ok(program) = Program::check(code.clone()) else { continue };
        accepted += 1;
        let bytes = &BYTES[..14 + random.below(26)];
        let _ = program.run(&Frame { bytes, data: if random.one_in(2) { 0 } else { 14 } });
        // One bit of a good program is another: still refused or harmless.
        let mut mutant = code;
        let at = random.below(mutant.len());
        let mut raw = mutant[at].to_bytes();
        raw[random.below(8)] ^= 1 << random.below(8);
        mutant[at] = Instruction::from_bytes(raw);
        if let Ok(program) = Program::check(mutant) {
            let _ = program.run(&Frame { bytes, data: 14 });
        }
    }
    assert!(accepted > 1000, "the fuzzer makes no good programs");
}

proptest! {
    #[test]
    fn bytes_and_back(bytes: [u8; 8]) {
        prop_assert_eq!(Instruction::from_bytes(bytes).to_bytes(), bytes);
    }

    /// Bytes of any content are refused or executed to an end.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<[u8; 8]>(), 1..64)) {
        let code: Vec<_> = bytes.into_iter().map(Instruction::from_bytes).collect();
        if let Ok(program) = Program::check(code) {
            let _ = program.run(&Frame { bytes: &BYTES, data: 14 });
        }
    }
}

#[cfg(target_os = "linux")]
mod oracle {
    //! The same programs in this machine's Linux, attached to a socket of the Unix domain.

    use super::*;
    use socket2::{Domain, SockFilter, Socket, Type};
    use std::cell::Cell;
    use std::io::Read;

    /// The message, and whether a program asked for what depends on more than its bytes.
    #[derive(Default)]
    struct Message(Cell<bool>);

    impl Packet for Message {
        fn length(&self) -> u32 {
            BYTES.len() as u32
        }

        fn read(&self, base: Base, offset: u32, to: &mut [u8]) -> bool {
            // Where the headers of such a message are is not said.
            self.0.set(self.0.get() || base != Base::Data);
            Frame { bytes: &BYTES, data: 0 }.read(Base::Data, offset, to)
        }

        fn ancillary(&self, _what: Ancillary) -> Option<u32> {
            self.0.set(true);
            None
        }
    }

    /// What Linux says of a program: how many bytes of [`BYTES`] it wants, or `None` if it refuses
    /// it.
    fn linux(code: &[Instruction]) -> Option<usize> {
        let (from, mut to) = Socket::pair(Domain::UNIX, Type::DGRAM, None).expect("a pair");
        to.set_nonblocking(true).expect("nonblocking");
        let code: Vec<_> = code
            .iter()
            .map(|one| SockFilter::new(one.code, one.when_true, one.when_false, one.k))
            .collect();
        to.attach_filter(&code).ok()?;
        from.send(&BYTES).expect("sent");
        Some(to.read(&mut [0; 64]).unwrap_or(0))
    }

    #[test]
    fn linux_agrees() {
        if linux(&[i(6, 0, 0, 9)]) != Some(9) {
            eprintln!("this system has no filters of sockets: nothing to compare with");
            return;
        }
        let mut random = Random::new(seed());
        let (mut good, mut wanted) = (0, 0);
        for _ in 0..rounds(4000) {
            let code = random_program(&mut random);
            let ours = Program::check(code.clone());
            let theirs = linux(&code);
            assert_eq!(ours.is_ok(), theirs.is_some(), "accepted? {code:x?}");
            let (Ok(program), Some(theirs)) = (ours, theirs) else { continue };
            let message = Message::default();
            let ours = (program.run(&message) as usize).min(BYTES.len());
            if !message.0.get() {
                good += 1;
                wanted += usize::from(theirs > 0);
                assert_eq!(ours, theirs, "{code:x?}");
            }
        }
        assert!(good > 100 && wanted > 30, "{good} good programs, {wanted} want the message");
    }
}
