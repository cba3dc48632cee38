use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A discipline and the bytes that its screen has shown.
struct Bench {
    line: Discipline,
    shown: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        Self { line: Discipline::new(), shown: Vec::new() }
    }

    fn type_in(&mut self, bytes: &[u8]) -> Vec<Effect> {
        let shown = &mut self.shown;
        bytes
            .iter()
            .map(|&byte| self.line.receive(byte, &mut |echo: &[u8]| shown.extend_from_slice(echo)))
            .filter(|effect| *effect != Effect::None)
            .collect()
    }

    fn read(&mut self, most: usize) -> Vec<u8> {
        let mut into = vec![0; most];
        let count = self.line.read(&mut into);
        into.truncate(count);
        into
    }

    fn change(&mut self, change: impl FnOnce(&mut Termios)) {
        let mut termios = *self.line.termios();
        change(&mut termios);
        self.line.set_termios(termios);
    }
}

#[test]
fn a_line_is_readable_only_when_it_is_finished() {
    let mut bench = Bench::new();
    assert_eq!(bench.type_in(b"ab"), []);
    assert!(!bench.line.readable());
    assert_eq!(bench.type_in(b"\r"), [Effect::Readable]);
    assert_eq!(bench.read(100), b"ab\n");
    assert_eq!(bench.shown, b"ab\r\n");
    assert!(!bench.line.readable());
}

#[test]
fn ends_of_file_take_places_and_give_them_back() {
    let mut bench = Bench::new();
    assert_eq!(bench.type_in(&[4; 2 * CAPACITY]).len(), CAPACITY);
    assert_eq!(bench.line.room(), 0);
    assert_eq!(bench.type_in(b"x\n"), []);
    for _ in 0..CAPACITY {
        assert!(bench.line.readable());
        assert_eq!(bench.read(10), b"");
    }
    assert!(!bench.line.readable());
    assert_eq!(bench.line.room(), CAPACITY - 1);
    assert_eq!(bench.type_in(b"ab\x04"), [Effect::Readable]);
    assert_eq!(bench.read(10), b"ab");
    assert_eq!(bench.line.room(), CAPACITY - 1);
}

#[test]
fn one_read_takes_one_line_and_a_short_read_leaves_the_rest() {
    let mut bench = Bench::new();
    bench.type_in(b"hello\nworld\n");
    assert_eq!(bench.line.available(), 12);
    assert_eq!(bench.read(2), b"he");
    assert_eq!(bench.read(100), b"llo\n");
    assert_eq!(bench.read(100), b"world\n");
    assert_eq!(bench.read(100), b"");
}

#[test]
fn an_end_of_file_ends_a_read_and_is_not_read_itself() {
    let mut bench = Bench::new();
    bench.type_in(b"abc\x04");
    assert_eq!(bench.read(100), b"abc");
    assert!(!bench.line.readable());
    bench.type_in(b"\x04");
    assert!(bench.line.readable());
    assert_eq!(bench.read(100), b"");
    assert!(!bench.line.readable());
    bench.type_in(b"abc\x04");
    assert_eq!(bench.read(3), b"abc", "an exact read takes the end of file with it");
    assert!(!bench.line.readable());
}

#[test]
fn erasing_shows_backspaces_and_stops_at_the_line_start() {
    let mut bench = Bench::new();
    bench.type_in(b"old\nx\x7f\x7f\x7fy\n");
    assert_eq!(bench.read(9), b"old\n");
    assert_eq!(bench.read(9), b"y\n");
    assert_eq!(bench.shown, b"old\r\nx\x08 \x08y\r\n");
}

#[test]
fn erasing_takes_whole_characters_tabs_and_control_characters() {
    let mut bench = Bench::new();
    bench.type_in("é\x7f".as_bytes());
    assert_eq!(bench.shown, "é\x08 \x08".as_bytes());
    bench.shown.clear();
    bench.type_in(b"a\t\x7f");
    assert_eq!(bench.shown, [b"a\t".as_slice(), &[8; 7]].concat());
    bench.shown.clear();
    bench.type_in(b"\x01\x7f");
    assert_eq!(bench.shown, b"^A\x08 \x08\x08 \x08");
    bench.type_in(b"\n");
    assert_eq!(bench.read(10), b"a\n");
}

#[test]
fn word_erase_and_kill() {
    let mut bench = Bench::new();
    bench.type_in(b"one two  \x17x\x15y\n");
    assert_eq!(bench.read(20), b"y\n");
    bench.type_in(b"one two.\x17\n");
    assert_eq!(bench.read(20), b"one \n");
}

#[test]
fn signals_flush_unless_told_not_to() {
    let mut bench = Bench::new();
    assert_eq!(bench.type_in(b"ab\x03"), [Effect::Signal(Signal::Interrupt, true)]);
    assert_eq!(bench.shown, b"ab^C");
    bench.change(|termios| termios.lflag |= NOFLSH);
    assert_eq!(bench.type_in(b"ab\x1a"), [Effect::Signal(Signal::Suspend, false)]);
    bench.type_in(b"\n");
    assert_eq!(bench.read(9), b"ab\n");
    bench.change(|termios| termios.lflag &= !ISIG);
    assert_eq!(bench.type_in(b"\x03\n"), [Effect::Readable]);
    assert_eq!(bench.read(9), b"\x03\n");
}

#[test]
fn the_next_character_can_be_taken_literally() {
    let mut bench = Bench::new();
    bench.type_in(b"\x16\x03\x16\x16\n");
    assert_eq!(bench.read(9), b"\x03\x16\n");
    assert_eq!(bench.shown, b"^\x08^C^\x08^V\r\n");
}

#[test]
fn raw_mode_gives_each_byte_at_once() {
    let mut bench = Bench::new();
    bench.change(|termios| {
        termios.lflag &= !(ICANON | ECHO | ISIG | IEXTEN);
        termios.iflag = 0;
        termios.oflag = 0;
    });
    assert_eq!(bench.type_in(b"\x03\r").len(), 2);
    assert_eq!(bench.read(9), b"\x03\r");
    assert_eq!(bench.shown, b"");
}

#[test]
fn a_change_of_mode_makes_what_waits_readable() {
    let mut bench = Bench::new();
    bench.type_in(b"part");
    bench.change(|termios| termios.lflag &= !ICANON);
    assert_eq!(bench.line.available(), 4);
    bench.change(|termios| termios.lflag |= ICANON);
    assert_eq!(bench.read(9), b"part");
}

#[test]
fn flow_control() {
    let mut bench = Bench::new();
    assert_eq!(bench.type_in(b"\x13"), [Effect::Stop]);
    assert!(bench.line.stopped());
    assert_eq!(bench.type_in(b"a\x11"), [Effect::Start]);
    assert!(!bench.line.stopped());
    bench.change(|termios| termios.iflag |= IXANY);
    assert_eq!(bench.type_in(b"\x13b"), [Effect::Stop, Effect::Start]);
    bench.type_in(b"\n");
    assert_eq!(bench.read(9), b"ab\n");
}

#[test]
fn a_full_buffer_can_still_be_ended() {
    let mut bench = Bench::new();
    bench.change(|termios| termios.lflag &= !ECHO);
    bench.type_in(&[b'x'; 2 * CAPACITY]);
    assert_eq!(bench.type_in(b"\n"), [Effect::Readable]);
    let line = bench.read(2 * CAPACITY);
    assert_eq!(line.len(), CAPACITY);
    assert_eq!(line.last(), Some(&b'\n'));
}

#[test]
fn output_processing() {
    let mut line = Discipline::new();
    let mut out = Vec::new();
    line.process_output(b"a\nb\tc\n", &mut |bytes: &[u8]| out.extend_from_slice(bytes));
    assert_eq!(out, b"a\r\nb\tc\r\n");
    let mut termios = *line.termios();
    termios.oflag |= XTABS;
    line.set_termios(termios);
    out.clear();
    line.process_output(b"ab\tc", &mut |bytes: &[u8]| out.extend_from_slice(bytes));
    assert_eq!(out, b"ab      c");
    termios.oflag = 0;
    line.set_termios(termios);
    out.clear();
    line.process_output(b"a\n\t", &mut |bytes: &[u8]| out.extend_from_slice(bytes));
    assert_eq!(out, b"a\n\t");
}

proptest! {
    /// For any input under any settings: no panic, bounded memory, and every byte that was reported
    /// available can be read.
    #[test]
    fn any_input_keeps_the_invariants(
        steps in prop::collection::vec((any::<u8>(), 0u8..20, any::<u32>(), any::<u32>()), 0..600)
    ) {
        let mut line = Discipline::new();
        for (byte, action, iflag, lflag) in steps {
            match action {
                0 => {
                    let termios = Termios { iflag, lflag, oflag: iflag ^ lflag, ..*line.termios() };
                    line.set_termios(termios);
                }
                1 => {
                    let mut into = [0; 7];
                    line.read(&mut into);
                }
                2 => line.flush_input(),
                _ => {
                    line.receive(byte, &mut |_: &[u8]| {});
                }
            }
            prop_assert!(line.pending.len() <= CAPACITY);
            let sum: usize = line.lines.iter().map(|line| usize::from(line.length)).sum();
            prop_assert_eq!(sum, line.finished);
            prop_assert!(line.finished <= line.pending.len());
            let ends = line.lines.iter().filter(|line| line.end_of_file).count();
            prop_assert_eq!(ends, line.ends_of_file);
            prop_assert!(line.used() <= CAPACITY);
        }
        let available = line.available();
        let mut read = 0;
        let mut into = [0; 64];
        while line.readable() {
            read += line.read(&mut into);
        }
        prop_assert_eq!(read, available);
    }
}
