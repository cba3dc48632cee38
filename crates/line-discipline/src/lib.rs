//! The line discipline of a terminal: it processes the bytes from a keyboard before a program reads
//! them, and the bytes that a program writes before the screen gets them.
//!
//! # Design
//!
//! [`Discipline`] is a state machine without locks, waiting or input and output of its own. It
//! takes one received byte at a time ([`Discipline::receive`]), may append echo to a [`Screen`],
//! and may return an [`Effect`] that only the kernel can carry out (a signal to the foreground
//! process group, a change of flow control). Programs take bytes out with [`Discipline::read`] and
//! send bytes through [`Discipline::process_output`]. Blocking, VMIN and VTIME, job control and
//! hang-up belong to the kernel's terminal, which owns a `Discipline`.
//!
//! The meaning of every flag is that of termios(3). Where POSIX leaves a choice, Linux 6.1's
//! `drivers/tty/n_tty.c` decides: the order in which special characters are checked, the effect of
//! a switch between canonical and raw mode on waiting bytes, and that an end of file that directly
//! follows data is read together with it.
//!
//! # Invariants
//!
//! * `pending` never holds more than [`CAPACITY`] bytes, whatever is received, less one for each
//!   end of file that waits: Linux keeps these in the same buffer.
//! * In canonical mode the lengths in `lines` add up to at most `pending.len()`; the bytes beyond
//!   them are the line being edited, and only that line can be erased.
//! * In raw mode `lines` is empty and every byte of `pending` can be read.
//!
//! A received byte for which there is no memory is lost, like one for which there is no place.
//!
//! # Not here
//!
//! ECHOPRT (a printing terminal's erase) acts like ECHOE; delays (NLDLY and friends) other than
//! XTABS do nothing, as on Linux's pseudo terminals.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod output;
mod termios;

pub use output::Screen;
pub use termios::{Termios, cc, flags};

use alloc::collections::VecDeque;
use flags::*;

/// The most bytes that may wait: N_TTY_BUF_SIZE of Linux (`drivers/tty/n_tty.c`).
pub const CAPACITY: usize = 4096;

/// A signal that a special character requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// VINTR, SIGINT.
    Interrupt,
    /// VQUIT, SIGQUIT.
    Quit,
    /// VSUSP, SIGTSTP.
    Suspend,
}

/// The terminal's task after a byte was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing has changed for a reader.
    None,
    /// A reader may find something now.
    Readable,
    /// Send the signal to the foreground process group; `flush` says that waiting input and output
    /// must be discarded (NOFLSH is not set); the input is discarded already.
    Signal(Signal, bool),
    /// VSTOP: hold output.
    Stop,
    /// VSTART, or any character under IXANY: let output go on.
    Start,
}

/// A finished line of canonical input that still waits to be read.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Bytes of it in `pending`, with its terminator unless that was VEOF.
    length: u16,
    /// Its terminator was VEOF.
    end_of_file: bool,
}

const _: () = assert!(CAPACITY <= u16::MAX as usize);

/// The state of one terminal's line discipline.
#[derive(Debug)]
pub struct Discipline {
    termios: Termios,
    pending: VecDeque<u8>,
    lines: VecDeque<Line>,
    /// Bytes of `pending` that belong to finished lines: the sum of `lines`.
    finished: usize,
    /// How many of `lines` ended with VEOF.
    ends_of_file: usize,
    /// The next byte is taken literally (after VLNEXT).
    literal: bool,
    /// Output is held by VSTOP.
    stopped: bool,
    /// Column of the screen at which the line being edited began, for erasing tabs.
    line_column: usize,
    screen: Screen,
}

impl Default for Discipline {
    fn default() -> Self {
        Self::new()
    }
}

impl Discipline {
    /// Returns a terminal in the state in which Linux opens it: canonical, echoing, with the usual
    /// control characters.
    pub fn new() -> Self {
        Self {
            termios: Termios::default(),
            pending: VecDeque::new(),
            lines: VecDeque::new(),
            finished: 0,
            ends_of_file: 0,
            literal: false,
            stopped: false,
            line_column: 0,
            screen: Screen::default(),
        }
    }

    /// The settings in force.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Replaces the settings. A change between canonical and raw mode makes all waiting bytes
    /// readable: unchanged in raw mode, as one line in canonical mode (`n_tty_set_termios`).
    /// Returns true when that may have made bytes readable.
    pub fn set_termios(&mut self, new: Termios) -> bool {
        let was_canonical = self.canonical();
        self.termios = new;
        if !self.has_local(IEXTEN) {
            self.literal = false;
        }
        if self.termios.iflag & IXON == 0 {
            self.stopped = false;
        }
        if was_canonical == self.canonical() {
            return false;
        }
        self.forget_lines();
        if self.canonical() && !self.pending.is_empty() {
            self.finish_line(false);
        }
        !self.pending.is_empty()
    }

    /// True while VSTOP holds output.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Holds output or lets it go on, as tcflow(3) asks.
    pub fn set_stopped(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    /// Discards received bytes that were not read yet, as tcflush(3) asks.
    pub fn flush_input(&mut self) {
        self.pending.clear();
        self.forget_lines();
        self.literal = false;
    }

    /// Makes what waits one line that is being edited.
    fn forget_lines(&mut self) {
        self.lines.clear();
        self.finished = 0;
        self.ends_of_file = 0;
    }

    /// How many bytes a read could take now: FIONREAD.
    pub fn available(&self) -> usize {
        if self.canonical() { self.finished } else { self.pending.len() }
    }

    /// True when a read would not have to wait, ignoring VMIN and VTIME: a finished line (an end of
    /// file counts) in canonical mode, a byte in raw mode.
    pub fn readable(&self) -> bool {
        if self.canonical() { !self.lines.is_empty() } else { !self.pending.is_empty() }
    }

    /// Returns the free places in the buffer. The sender of a pseudo terminal waits while there is
    /// none and bytes are readable (otherwise no read could ever free places).
    pub fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.used() + 1)
    }

    /// Returns how many places of the buffer are taken.
    fn used(&self) -> usize {
        self.pending.len() + self.ends_of_file
    }

    /// True in canonical mode (ICANON).
    pub fn canonical(&self) -> bool {
        self.has_local(ICANON)
    }

    /// Takes bytes for a reader: at most one line in canonical mode. Returns how many were put
    /// into `into`; 0 means an end of file in canonical mode, or that nothing waits.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        let most = if self.canonical() {
            let Some(line) = self.lines.front() else { return 0 };
            usize::from(line.length).min(into.len())
        } else {
            self.pending.len().min(into.len())
        };
        for (slot, byte) in into.iter_mut().zip(self.pending.drain(..most)) {
            *slot = byte;
        }
        if self.canonical() {
            self.finished -= most;
            if let Some(line) = self.lines.front_mut() {
                line.length -= most as u16;
                if line.length == 0 && (most > 0 || !into.is_empty()) {
                    self.ends_of_file -= usize::from(line.end_of_file);
                    self.lines.pop_front();
                }
            }
        }
        most
    }

    /// Takes one received byte. `echo` gets the bytes that the screen must show for it.
    pub fn receive(&mut self, mut byte: u8, echo: &mut impl FnMut(&[u8])) -> Effect {
        if self.termios.iflag & ISTRIP != 0 {
            byte &= 0x7f;
        }
        if self.termios.iflag & IUCLC != 0 && self.has_local(IEXTEN) {
            byte = byte.to_ascii_lowercase();
        }
        if self.literal {
            self.literal = false;
            return self.accept(byte, true, echo);
        }
        let mut restarted = false;
        if self.termios.iflag & IXON != 0 {
            if self.is(byte, cc::VSTART) {
                self.stopped = false;
                return Effect::Start;
            }
            if self.is(byte, cc::VSTOP) {
                self.stopped = true;
                return Effect::Stop;
            }
            if self.stopped && self.termios.iflag & IXANY != 0 {
                self.stopped = false;
                restarted = true;
            }
        }
        let effect = self.receive_unstopped(byte, echo);
        if restarted && matches!(effect, Effect::None) { Effect::Start } else { effect }
    }

    /// The part of [`Self::receive`] after flow control.
    fn receive_unstopped(&mut self, mut byte: u8, echo: &mut impl FnMut(&[u8])) -> Effect {
        if self.has_local(ISIG) {
            let signal = if self.is(byte, cc::VINTR) {
                Some(Signal::Interrupt)
            } else if self.is(byte, cc::VQUIT) {
                Some(Signal::Quit)
            } else if self.is(byte, cc::VSUSP) {
                Some(Signal::Suspend)
            } else {
                None
            };
            if let Some(signal) = signal {
                let flush = !self.has_local(NOFLSH);
                if flush {
                    self.flush_input();
                }
                if self.has_local(ECHO) {
                    self.echo_byte(byte, echo);
                }
                self.line_column = self.screen.column();
                return Effect::Signal(signal, flush);
            }
        }
        if byte == b'\r' {
            if self.termios.iflag & IGNCR != 0 {
                return Effect::None;
            }
            if self.termios.iflag & ICRNL != 0 {
                byte = b'\n';
            }
        } else if byte == b'\n' && self.termios.iflag & INLCR != 0 {
            byte = b'\r';
        }
        if self.canonical()
            && let Some(effect) = self.receive_editing(byte, echo)
        {
            return effect;
        }
        self.accept(byte, false, echo)
    }

    /// Handles the characters that are special in canonical mode only; `None` for all others.
    fn receive_editing(&mut self, byte: u8, echo: &mut impl FnMut(&[u8])) -> Option<Effect> {
        let extended = self.has_local(IEXTEN);
        if self.is(byte, cc::VERASE) {
            self.erase_character(echo);
            return Some(Effect::None);
        }
        if extended && self.is(byte, cc::VWERASE) {
            self.erase_word(echo);
            return Some(Effect::None);
        }
        if self.is(byte, cc::VKILL) {
            self.kill_line(byte, echo);
            return Some(Effect::None);
        }
        if extended && self.is(byte, cc::VLNEXT) {
            self.literal = true;
            if self.has_local(ECHO) && self.has_local(ECHOCTL) {
                self.emit(b"^\x08", echo);
            }
            return Some(Effect::None);
        }
        if extended && self.has_local(ECHO) && self.is(byte, cc::VREPRINT) {
            self.reprint(byte, echo);
            return Some(Effect::None);
        }
        if byte == b'\n' {
            if self.has_local(ECHO) || self.has_local(ECHONL) {
                self.emit(b"\n", echo);
            }
            return Some(self.end_line(Some(b'\n')));
        }
        if self.is(byte, cc::VEOF) {
            return Some(self.end_line(None));
        }
        if self.is(byte, cc::VEOL) || (extended && self.is(byte, cc::VEOL2)) {
            if self.has_local(ECHO) {
                self.echo_byte(byte, echo);
            }
            return Some(self.end_line(Some(byte)));
        }
        None
    }

    /// Ends the line being edited, with its terminator unless that is an end of file.
    fn end_line(&mut self, terminator: Option<u8>) -> Effect {
        if self.used() >= CAPACITY
            || self.lines.try_reserve(1).is_err()
            || self.pending.try_reserve(1).is_err()
        {
            return Effect::None;
        }
        self.pending.extend(terminator);
        self.finish_line(terminator.is_none());
        self.line_column = self.screen.column();
        Effect::Readable
    }

    fn finish_line(&mut self, end_of_file: bool) {
        let length = self.pending.len() - self.finished;
        self.finished += length;
        self.ends_of_file += usize::from(end_of_file);
        self.lines.push_back(Line { length: length as u16, end_of_file });
    }

    /// Stores an ordinary byte and echoes it.
    fn accept(&mut self, byte: u8, literal: bool, echo: &mut impl FnMut(&[u8])) -> Effect {
        // One place stays free in canonical mode so that the line can still be ended.
        if self.room() == 0 || self.pending.try_reserve(2).is_err() {
            if self.termios.iflag & IMAXBEL != 0 {
                self.emit(b"\x07", echo);
            }
            return Effect::None;
        }
        if self.has_local(ECHO) {
            if self.editing_length() == 0 {
                self.line_column = self.screen.column();
            }
            if byte == b'\n' && !literal {
                self.emit(b"\n", echo);
            } else {
                self.echo_byte(byte, echo);
            }
        }
        // PARMRK makes 0xff ambiguous; it is doubled (termios(3)).
        if byte == 0xff && self.termios.iflag & PARMRK != 0 && self.room() > 1 {
            self.pending.push_back(byte);
        }
        self.pending.push_back(byte);
        if self.canonical() { Effect::None } else { Effect::Readable }
    }

    /// Returns how many bytes the line being edited has.
    fn editing_length(&self) -> usize {
        self.pending.len() - self.finished
    }

    fn erase_character(&mut self, echo: &mut impl FnMut(&[u8])) {
        let utf8 = self.termios.iflag & IUTF8 != 0;
        if self.editing_length() == 0 {
            return;
        }
        let mut removed = self.pending.pop_back().unwrap_or(0);
        // A multi-byte character goes as one: its continuation bytes are 10xxxxxx.
        while utf8 && removed & 0xc0 == 0x80 && self.editing_length() > 0 {
            removed = self.pending.pop_back().unwrap_or(0);
        }
        if !self.has_local(ECHO) {
            return;
        }
        if !self.has_local(ECHOE) {
            let erase = self.termios.cc[cc::VERASE];
            self.echo_byte(erase, echo);
            return;
        }
        self.rub_out(removed, echo);
    }

    /// Takes one character that was `byte` (or began with it) off the screen.
    fn rub_out(&mut self, byte: u8, echo: &mut impl FnMut(&[u8])) {
        if byte == b'\t' {
            let now = self.screen.column();
            let target = self.editing_column();
            for _ in 0..now.saturating_sub(target).min(8) {
                self.emit(b"\x08", echo);
            }
            return;
        }
        let columns =
            if is_control(byte) { if self.has_local(ECHOCTL) { 2 } else { 0 } } else { 1 };
        for _ in 0..columns {
            self.emit(b"\x08 \x08", echo);
        }
    }

    /// Returns the screen column behind the line being edited, computed from the line's beginning.
    fn editing_column(&self) -> usize {
        let mut column = self.line_column;
        let utf8 = self.termios.iflag & IUTF8 != 0;
        for &byte in self.pending.range(self.finished..) {
            if byte == b'\t' {
                column = (column | 7) + 1;
            } else if is_control(byte) {
                column += if self.has_local(ECHOCTL) { 2 } else { 0 };
            } else if !(utf8 && byte & 0xc0 == 0x80) {
                column += 1;
            }
        }
        column
    }

    fn erase_word(&mut self, echo: &mut impl FnMut(&[u8])) {
        let mut seen = false;
        while self.editing_length() > 0 {
            let last = self.pending.back().copied().unwrap_or(b' ');
            let word = last.is_ascii_alphanumeric() || last == b'_' || last >= 0x80;
            if !word && seen {
                break;
            }
            seen |= word;
            self.erase_character(echo);
        }
    }

    fn kill_line(&mut self, byte: u8, echo: &mut impl FnMut(&[u8])) {
        if self.has_local(ECHO)
            && self.has_local(ECHOK)
            && self.has_local(ECHOKE)
            && self.has_local(ECHOE)
        {
            while self.editing_length() > 0 {
                self.erase_character(echo);
            }
            return;
        }
        self.pending.truncate(self.finished);
        if self.has_local(ECHO) {
            self.echo_byte(byte, echo);
            if self.has_local(ECHOK) {
                self.emit(b"\n", echo);
            }
        }
    }

    fn reprint(&mut self, byte: u8, echo: &mut impl FnMut(&[u8])) {
        self.echo_byte(byte, echo);
        self.emit(b"\n", echo);
        self.line_column = self.screen.column();
        for index in self.finished..self.pending.len() {
            let byte = self.pending[index];
            self.echo_byte(byte, echo);
        }
    }

    /// Echoes one byte, control characters as `^X` under ECHOCTL.
    fn echo_byte(&mut self, byte: u8, echo: &mut impl FnMut(&[u8])) {
        if self.has_local(ECHOCTL) && is_control(byte) && byte != b'\t' {
            self.emit(&[b'^', byte ^ 0x40], echo);
        } else {
            self.emit(&[byte], echo);
        }
    }

    fn emit(&mut self, bytes: &[u8], echo: &mut impl FnMut(&[u8])) {
        self.screen.process(&self.termios, bytes, echo);
    }

    /// Passes what a program writes on to the screen, with output processing (OPOST).
    pub fn process_output(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) {
        self.screen.process(&self.termios, bytes, out);
        if self.editing_length() == 0 {
            self.line_column = self.screen.column();
        }
    }

    fn has_local(&self, flag: u32) -> bool {
        self.termios.lflag & flag != 0
    }

    /// True when `byte` is the control character at `index`; 0 is _POSIX_VDISABLE.
    fn is(&self, byte: u8, index: usize) -> bool {
        let character = self.termios.cc[index];
        character != 0 && character == byte
    }
}

/// True for the bytes that ECHOCTL shows as `^X`.
fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

#[cfg(test)]
mod tests;
