//! The argument and environment strings of a program, on their way from one space to the next.

use alloc::vec::Vec;

use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};

/// The longest single string, its NUL included (`MAX_ARG_STRLEN`).
const STRING_MAX: usize = 128 << 10;
/// Bytes that are always allowed, whatever the stack limit says (`ARG_MAX`).
const ALWAYS: u64 = 128 << 10;
/// Bytes that are never exceeded: three quarters of the default stack (`_STK_LIM / 4 * 3`).
const NEVER: u64 = 6 << 20;

/// The most bytes that all strings and their pointers may have (`execve(2)`, "Limits on size").
pub fn budget(stack_limit: u64) -> usize {
    (stack_limit / 4).clamp(ALWAYS, NEVER) as usize
}

/// The room for the strings of most vectors, in bytes.
const USUAL: usize = 512;
/// So much room is zeroed first, in bytes, and as much as there is when it does not suffice.
const FIRST_ROOM: usize = 128;
/// With less room than this, in bytes, more is made for the next string.
const LEAST_ROOM: usize = 64;

/// A sequence of strings, each ended by a NUL.
#[derive(Default)]
pub struct Strings {
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// No strings.
    pub fn new() -> Strings {
        Strings::default()
    }

    /// The strings of [`as_bytes`](Self::as_bytes). Fails with `ENOMEM`.
    pub fn of(bytes: &[u8]) -> Result<Strings> {
        let count = bytes.iter().filter(|&&byte| byte == 0).count();
        Ok(Strings { bytes: growth::copy(bytes)?, count })
    }

    /// Adds a string. Fails with `ENOMEM` if memory is exhausted.
    pub fn push(&mut self, text: &[u8]) -> Result<()> {
        growth::relieved(|| self.bytes.make_room(text.len() + 1))?;
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self.count += 1;
        Ok(())
    }

    /// Reads a vector of pointers to strings that ends with a null pointer, as `execve(2)` takes
    /// it; a null vector has no strings.
    ///
    /// * `budget` - the bytes that may still be used; the strings and pointers are subtracted.
    ///
    /// Fails with `EFAULT` for a bad pointer, `E2BIG` beyond the budget.
    pub fn read(vector: usize, budget: &mut usize) -> Result<Strings> {
        if vector == 0 {
            return Ok(Strings::new());
        }
        let mut bytes = Vec::new();
        let (mut used, mut count) = (0, 0);
        loop {
            let pointer: u64 = UserPtr::<u64>::new(vector).at(count).read()?;
            if pointer == 0 {
                break;
            }
            let length = read_one(&mut bytes, used, pointer as usize)?;
            *budget = budget.checked_sub(length + size_of::<u64>()).ok_or(Errno::E2BIG)?;
            used += length;
            count += 1;
        }
        bytes.truncate(used);
        Ok(Strings { bytes, count })
    }

    /// Replaces the first string (which may be missing) by others, as `#!` does.
    pub fn replace_first(&mut self, by: &[&[u8]]) -> Result<()> {
        let mut new = Strings::new();
        for text in by {
            new.push(text)?;
        }
        self.replace_first_with(new)
    }

    /// Like [`replace_first`](Self::replace_first), with a [`Strings`].
    pub fn replace_first_by(&mut self, by: &Strings) -> Result<()> {
        let mut new = Strings::new();
        growth::relieved(|| new.bytes.make_room(by.bytes.len()))?;
        new.bytes.extend_from_slice(&by.bytes);
        new.count = by.count;
        self.replace_first_with(new)
    }

    fn replace_first_with(&mut self, mut new: Strings) -> Result<()> {
        let rest = self.iter().next().map_or(0, |first| first.len() + 1);
        let rest = self.bytes.get(rest..).unwrap_or(&[]);
        growth::relieved(|| new.bytes.make_room(rest.len()))?;
        new.bytes.extend_from_slice(rest);
        new.count += self.count.saturating_sub(1);
        *self = new;
        Ok(())
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All strings with their NULs.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Calls a function with the length of each string, its NUL included, in order.
    #[inline]
    pub fn for_each_length(&self, mut visit: impl FnMut(usize)) {
        let mut rest = self.bytes.as_slice();
        for _ in 0..self.count {
            let Some(length) = nul(rest) else { return };
            visit(length + 1);
            rest = rest.get(length + 1..).unwrap_or(&[]);
        }
    }

    /// The strings without their NULs.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = self.bytes.as_slice();
        core::iter::from_fn(move || {
            let (text, behind) = rest.split_at_checked(nul(rest)?)?;
            rest = behind.get(1..)?;
            Some(text)
        })
    }
}

/// Reads a string to the place `start` of `bytes`, behind which there is room or is made: zeroed
/// once for several strings, since this is on the path of each start. Returns its length with its
/// NUL.
fn read_one(bytes: &mut Vec<u8>, start: usize, address: usize) -> Result<usize> {
    let mut at = start;
    loop {
        if bytes.len() - at < LEAST_ROOM {
            let more = bytes.len().clamp(FIRST_ROOM, 4096);
            growth::relieved(|| bytes.make_room(more.max(USUAL - bytes.len().min(USUAL))))?;
            bytes.resize(bytes.len() + more, 0);
        }
        let to = bytes.get_mut(at..).unwrap_or(&mut []);
        let from = address.checked_add(at - start).ok_or(Errno::EFAULT)?;
        let end = match user::read_cstr(to, from) {
            Ok(length) => Some(at + length + 1),
            // The room is full, and no NUL was found yet.
            Err(Errno::ENAMETOOLONG) => None,
            Err(error) => return Err(error),
        };
        at = end.unwrap_or(bytes.len());
        if at - start > STRING_MAX {
            return Err(Errno::E2BIG);
        }
        if end.is_some() {
            return Ok(at - start);
        }
    }
}

/// The index of the first NUL. It reads eight bytes at a time, since this is on the path of each
/// start.
fn nul(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest byte whose top bit is set here is the first that is zero.
        let zeroes = word.wrapping_sub(ONES) & !word & ONES << 7;
        if zeroes != 0 {
            return Some(index * 8 + zeroes.trailing_zeros() as usize / 8);
        }
    }
    Some(words.len() * 8 + rest.iter().position(|&byte| byte == 0)?)
}
