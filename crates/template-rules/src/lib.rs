//! Which starts of a program its template serves.
//!
//! A template says it in a text of one rule a line:
//!
//! | rule | means |
//! |---|---|
//! | `option -u` | an argument that is passed over |
//! | `last -c` | an option that takes the next argument; all behind that is the program's |
//! | `script` | the first argument that does not begin with `-` ends the options |
//! | `script /PATH` | the same, if it is exactly this path |
//! | `unchanged /PATH` | a file that must be what it was where the template was made |
//! | `same PYTHON*` | variables that must be as they were where the template was made |
//!
//! A start is served if its arguments end in one of the ways that the rules name, and all variables
//! of [`Rules::is_decisive`] are the same. Variables that change how any program is loaded are
//! always decisive ([`ALWAYS`]).
//!
//! The text is read once, when the template is declared. A start asks for each of its variables
//! whether it is decisive: most begin with a letter with which no decisive one does, and cost one
//! look at a bit.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::ops::Range;

/// The longest text, in bytes.
pub const LONGEST: usize = 4096;

/// Variables that decide about every program: of the dynamic linker and the C library, which read
/// them before a program is ready. But for [`NEVER`].
pub const ALWAYS: [&[u8]; 3] = [b"LD_*", b"GLIBC_TUNABLES", b"MALLOC_*"];

/// A variable that decides nothing: with it the dynamic linker looks its symbols up at once instead
/// of one by one (ld.so(8)), which a template has behind it.
pub const NEVER: &[u8] = b"LD_BIND_NOW";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Option,
    Last,
    Script,
    Same,
    Unchanged,
}

/// Reads a line: its kind and its value. `None` if it is no rule.
fn rule(line: &[u8]) -> Option<(Kind, &[u8])> {
    if line == b"script" {
        return Some((Kind::Script, b""));
    }
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (word, value) = (line.get(..space)?, line.get(space + 1..)?);
    if value.is_empty() || value.iter().any(|&byte| byte < b' ' || byte == 0x7f) {
        return None;
    }
    let is_path = value.starts_with(b"/");
    match word {
        b"script" if is_path => return Some((Kind::Script, value)),
        b"unchanged" if is_path => return Some((Kind::Unchanged, value)),
        _ if value.contains(&b' ') => return None,
        _ => {}
    }
    let is_option = value.len() > 1 && value.starts_with(b"-");
    match word {
        b"option" if is_option => Some((Kind::Option, value)),
        b"last" if is_option => Some((Kind::Last, value)),
        b"same" if !value.contains(&b'=') => Some((Kind::Same, value)),
        _ => None,
    }
}

/// Rules that were read.
#[derive(Clone, Debug)]
pub struct Rules {
    text: Vec<u8>,
    /// The kind of each rule, and where its value lies in the text.
    rules: Vec<(Kind, Range<usize>)>,
    /// One bit for each byte with which a decisive variable may begin.
    firsts: [u64; 4],
}

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It is not made of rules, or too long.
    NoRules,
    /// Memory is exhausted.
    NoMemory,
}

impl From<TryReserveError> for ReadError {
    fn from(_: TryReserveError) -> ReadError {
        ReadError::NoMemory
    }
}

impl Rules {
    /// Reads a text of rules.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(text: &[u8]) -> Result<Rules, ReadError> {
        if text.len() > LONGEST {
            return Err(ReadError::NoRules);
        }
        let lines = || text.split_inclusive(|&byte| byte == b'\n');
        let mut read = Rules { text: Vec::new(), rules: Vec::new(), firsts: [0; 4] };
        read.text.try_reserve_exact(text.len())?;
        read.text.extend_from_slice(text);
        read.rules.try_reserve_exact(lines().count())?;
        ALWAYS.iter().for_each(|pattern| read.note_first(pattern));
        let mut start = 0;
        for whole in lines() {
            let line = whole.strip_suffix(b"\n").unwrap_or(whole);
            let end = start + line.len();
            start += whole.len();
            if line.is_empty() {
                continue;
            }
            let (kind, value) = rule(line).ok_or(ReadError::NoRules)?;
            read.rules.push((kind, end - value.len()..end));
            if kind == Kind::Same {
                read.note_first(value);
            }
        }
        Ok(read)
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Notes with which byte a variable of this pattern begins; `*` alone is all of them.
    fn note_first(&mut self, pattern: &[u8]) {
        match pattern.first() {
            Some(b'*') if pattern.len() == 1 => self.firsts = [u64::MAX; 4],
            Some(&byte) => {
                if let Some(bits) = self.firsts.get_mut(usize::from(byte >> 6)) {
                    *bits |= 1 << (byte & 63);
                }
            }
            None => {}
        }
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        let values = self.rules.iter().filter(move |(own, _)| *own == kind);
        values.filter_map(|(_, range)| self.text.get(range.clone()))
    }

    /// Whether they serve any start at all.
    pub fn serve_any(&self) -> bool {
        self.rules.iter().any(|(kind, _)| matches!(kind, Kind::Script | Kind::Last))
    }

    /// Whether a start with these arguments, the program's own name left out, is one that the
    /// template serves.
    pub fn serve<'a>(&self, arguments: impl IntoIterator<Item = &'a [u8]>) -> bool {
        let mut arguments = arguments.into_iter();
        loop {
            let Some(argument) = arguments.next() else { return false };
            if !argument.starts_with(b"-") {
                return self.serve_script(argument);
            }
            if self.of(Kind::Last).any(|option| option == argument) {
                return arguments.next().is_some();
            }
            if !self.of(Kind::Option).any(|option| option == argument) {
                return false;
            }
        }
    }

    /// Whether the options may end with this argument.
    fn serve_script(&self, argument: &[u8]) -> bool {
        self.of(Kind::Script).any(|script| script.is_empty() || script == argument)
    }

    /// Whether they name this path as that of a script.
    pub fn name_script(&self, path: &[u8]) -> bool {
        !path.is_empty() && self.of(Kind::Script).any(|script| script == path)
    }

    /// The files that must be unchanged for a start, by their absolute paths.
    pub fn unchanged(&self) -> impl Iterator<Item = &[u8]> {
        self.of(Kind::Unchanged)
    }

    /// Whether a variable (`NAME=VALUE`) must be the same for a start as it was for the template.
    #[inline]
    pub fn is_decisive(&self, variable: &[u8]) -> bool {
        let first = variable.first().copied().unwrap_or(0);
        let bits = self.firsts.get(usize::from(first >> 6)).copied().unwrap_or(u64::MAX);
        bits >> (first & 63) & 1 != 0 && self.names(variable)
    }

    /// Whether a pattern is that of a variable's name.
    fn names(&self, variable: &[u8]) -> bool {
        let end = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
        let name = variable.get(..end).unwrap_or(variable);
        name != NEVER
            && ALWAYS.into_iter().chain(self.of(Kind::Same)).any(|pattern| matches(pattern, name))
    }

    /// Whether the decisive variables of a start are those of the template, which keeps no others.
    /// Their order does not matter.
    pub fn have_same_environment<'a>(
        &self,
        kept: impl Iterator<Item = &'a [u8]> + Clone,
        variables: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> bool {
        // A variable that is the same as a kept one is decisive.
        variables
            .clone()
            .filter(|variable| self.is_decisive(variable))
            .all(|variable| kept.clone().any(|own| own == variable))
            && kept.clone().all(|own| variables.clone().any(|variable| own == variable))
    }
}

/// Whether a pattern, which may end with `*`, is that of a variable's name.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.strip_suffix(b"*") {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}
