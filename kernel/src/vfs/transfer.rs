//! Copying bytes between files and programs.
//!
//! [`Output`] is the destination of a read, [`Input`] the source of a write: one user buffer, a
//! vector of them, or a kernel buffer. File operations are written once against these. A copy from
//! or to user memory may fault and sleep: never copy with a spin lock held.
//!
//! Both count the bytes copied. A copy that hits bad memory stops there and returns how much it
//! copied; it fails with `EFAULT` only if it copied nothing at all. So a file operation copies,
//! stops at the first short count or error, and returns [`done`](Output::done) if that is not zero,
//! otherwise the error ([`Output::finish`]).

use hayate_abi::{Errno, Result};
use hayate_machine::frames::{Frame, Run};
use hayate_machine::user::{self, UserBytes};

/// The most that one call transfers (`MAX_RW_COUNT`).
pub const MAXIMUM: usize = 0x7fff_f000;

/// The memory after the current buffer.
enum Rest<'a, K> {
    /// None: there is only one user buffer.
    User,
    /// More user buffers; the current one ends after this many bytes.
    Vector(usize, &'a [UserBytes]),
    /// A kernel buffer: the part that is left.
    Kernel(K),
}

/// The destination of a read.
pub struct Output<'a> {
    /// The address of the next byte, in user memory.
    address: usize,
    remaining: usize,
    done: usize,
    rest: Rest<'a, &'a mut [u8]>,
}

/// The source of a write.
pub struct Input<'a> {
    /// The address of the next byte, in user memory.
    address: usize,
    remaining: usize,
    done: usize,
    rest: Rest<'a, &'a [u8]>,
}

/// Returns the length of a vector of buffers, at most [`MAXIMUM`].
fn total(pieces: &[UserBytes]) -> usize {
    pieces.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len)).min(MAXIMUM)
}

/// Runs `step` over the buffers of a vector until `length` bytes are done or a step falls short.
#[inline(never)]
fn over_pieces(
    address: &mut usize,
    left: &mut usize,
    rest: &mut &[UserBytes],
    length: usize,
    step: &mut dyn FnMut(usize, UserBytes) -> usize,
) -> usize {
    let mut moved = 0;
    while moved < length {
        if *left == 0 {
            match rest.split_first() {
                Some((first, tail)) => (*address, *left, *rest) = (first.address, first.len, tail),
                None => break,
            }
            continue;
        }
        let piece = UserBytes::new(*address, (*left).min(length - moved));
        let count = step(moved, piece);
        *address = address.wrapping_add(count);
        *left -= count;
        moved += count;
        if count < piece.len {
            break;
        }
    }
    moved
}

#[inline]
fn outcome(moved: usize, length: usize) -> Result<usize> {
    if moved == 0 && length != 0 { Err(Errno::EFAULT) } else { Ok(moved) }
}

impl<'a> Output<'a> {
    /// Makes an output to one user buffer.
    #[inline]
    pub fn user(address: usize, length: usize) -> Output<'static> {
        Output { address, remaining: length.min(MAXIMUM), done: 0, rest: Rest::User }
    }

    /// Like [`Output::user`], for a length that is known to be at most [`MAXIMUM`].
    #[inline(always)]
    pub fn user_within(address: usize, length: usize) -> Output<'static> {
        Output { address, remaining: length, done: 0, rest: Rest::User }
    }

    /// Makes an output to several user buffers, filled in order.
    pub fn vector(pieces: &'a [UserBytes]) -> Output<'a> {
        let rest = Rest::Vector(0, pieces);
        Output { address: 0, remaining: total(pieces), done: 0, rest }
    }

    /// Makes an output to a kernel buffer.
    pub fn kernel(buffer: &'a mut [u8]) -> Output<'a> {
        let remaining = buffer.len();
        Output { address: 0, remaining, done: 0, rest: Rest::Kernel(buffer) }
    }

    /// Returns how many more bytes fit.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Returns how many bytes were written so far.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Returns the result of the operation: the bytes written if there are any, otherwise
    /// `result`'s error or 0.
    pub fn finish<T>(&self, result: Result<T>) -> Result<usize> {
        match result {
            Err(error) if self.done == 0 => Err(error),
            _ => Ok(self.done),
        }
    }

    /// Runs one of three copy functions for at most `length` bytes.
    #[inline]
    fn transfer(
        &mut self,
        length: usize,
        mut to_user: impl FnMut(usize, UserBytes) -> usize,
        to_kernel: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize> {
        let length = length.min(self.remaining);
        let moved = match &mut self.rest {
            Rest::User => {
                let moved = to_user(0, UserBytes::new(self.address, length));
                self.address = self.address.wrapping_add(moved);
                moved
            }
            Rest::Vector(left, rest) => {
                over_pieces(&mut self.address, left, rest, length, &mut to_user)
            }
            Rest::Kernel(buffer) => {
                let (now, later) = core::mem::take(buffer).split_at_mut(length);
                *buffer = later;
                to_kernel(now)
            }
        };
        self.remaining -= moved;
        self.done += moved;
        outcome(moved, length)
    }

    /// Writes `bytes`, as many as fit; returns how many. Fewer although more would fit means bad
    /// memory; none at all is `EFAULT`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize> {
        self.transfer(
            bytes.len(),
            |at, to| {
                let part = bytes.get(at..at + to.len).unwrap_or_default();
                user::copy_out_partly(to.address, part)
            },
            |buffer| {
                let length = buffer.len();
                buffer.copy_from_slice(bytes.get(..length).unwrap_or_default());
                length
            },
        )
    }

    /// Writes `length` bytes of a frame from `offset` on; otherwise like [`Output::put`].
    #[inline]
    pub fn put_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> Result<usize> {
        self.transfer(
            length,
            |at, to| user::copy_frame_out(to.address, frame, offset + at, to.len),
            |buffer| frame.read(offset, buffer),
        )
    }

    /// Writes `length` bytes of a run of frames from `offset` on; otherwise like [`Output::put`].
    #[inline]
    pub fn put_run(&mut self, run: &Run, offset: usize, length: usize) -> Result<usize> {
        self.transfer(
            length,
            |at, to| user::copy_run_out(to.address, run, offset + at, to.len),
            |buffer| run.read(offset, buffer),
        )
    }

    /// Fills all of the output with zeroes if it is one user buffer whose memory is good from
    /// beginning to end; returns how many. `None`: [`Output::zero`] has to do it.
    #[inline(always)]
    pub fn zero_user(&mut self) -> Option<usize> {
        if !matches!(self.rest, Rest::User) {
            return None;
        }
        let length = self.remaining;
        let moved = user::zero_partly(self.address, length);
        if moved == length {
            self.address = self.address.wrapping_add(length);
            self.remaining = 0;
            self.done += length;
            return Some(length);
        }
        self.address = self.address.wrapping_add(moved);
        self.remaining -= moved;
        self.done += moved;
        None
    }

    /// Writes `length` zero bytes; otherwise like [`Output::put`].
    #[inline]
    pub fn zero(&mut self, length: usize) -> Result<usize> {
        self.transfer(
            length,
            |_, to| user::zero_partly(to.address, to.len),
            |buffer| {
                buffer.fill(0);
                buffer.len()
            },
        )
    }
}

impl<'a> Input<'a> {
    /// Makes an input from one user buffer.
    #[inline]
    pub fn user(address: usize, length: usize) -> Input<'static> {
        Input { address, remaining: length.min(MAXIMUM), done: 0, rest: Rest::User }
    }

    /// Like [`Input::user`], for a length that is known to be at most [`MAXIMUM`].
    #[inline(always)]
    pub fn user_within(address: usize, length: usize) -> Input<'static> {
        Input { address, remaining: length, done: 0, rest: Rest::User }
    }

    /// Makes an input from several user buffers, read in order.
    pub fn vector(pieces: &'a [UserBytes]) -> Input<'a> {
        let rest = Rest::Vector(0, pieces);
        Input { address: 0, remaining: total(pieces), done: 0, rest }
    }

    /// Makes an input from a kernel buffer.
    pub fn kernel(buffer: &'a [u8]) -> Input<'a> {
        Input { address: 0, remaining: buffer.len(), done: 0, rest: Rest::Kernel(buffer) }
    }

    /// Returns how many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Returns how many bytes were taken so far.
    #[inline]
    pub fn done(&self) -> usize {
        self.done
    }

    /// Lets `take` have only the next `length` bytes.
    pub fn part<T>(&mut self, length: usize, take: impl FnOnce(&mut Self) -> T) -> T {
        let behind = self.remaining.saturating_sub(length);
        self.remaining -= behind;
        let taken = take(self);
        self.remaining += behind;
        taken
    }

    /// Limits what is left to `length` bytes (for a write that may not take all).
    pub fn limit(&mut self, length: usize) {
        self.remaining = self.remaining.min(length);
    }

    /// Returns the result of the operation: the bytes taken if there are any, otherwise `result`'s
    /// error or 0.
    pub fn finish<T>(&self, result: Result<T>) -> Result<usize> {
        match result {
            Err(error) if self.done == 0 => Err(error),
            _ => Ok(self.done),
        }
    }

    #[inline]
    fn transfer(
        &mut self,
        length: usize,
        mut from_user: impl FnMut(usize, UserBytes) -> usize,
        from_kernel: impl FnOnce(&[u8]) -> usize,
    ) -> Result<usize> {
        let length = length.min(self.remaining);
        let moved = match &mut self.rest {
            Rest::User => {
                let moved = from_user(0, UserBytes::new(self.address, length));
                self.address = self.address.wrapping_add(moved);
                moved
            }
            Rest::Vector(left, rest) => {
                over_pieces(&mut self.address, left, rest, length, &mut from_user)
            }
            Rest::Kernel(buffer) => {
                let (now, later) = buffer.split_at(length);
                *buffer = later;
                from_kernel(now)
            }
        };
        self.remaining -= moved;
        self.done += moved;
        outcome(moved, length)
    }

    /// Takes bytes into `to`, as many as there are and fit; returns how many. Fewer than that means
    /// bad memory; none at all is `EFAULT`.
    #[inline]
    pub fn take(&mut self, to: &mut [u8]) -> Result<usize> {
        let length = to.len();
        // Only one of the two closures runs; the cell lets both refer to the buffer.
        let to = core::cell::RefCell::new(to);
        self.transfer(
            length,
            |at, from| match to.borrow_mut().get_mut(at..at + from.len) {
                Some(part) => user::copy_in_partly(part, from.address),
                None => 0,
            },
            |buffer| match to.borrow_mut().get_mut(..buffer.len()) {
                Some(part) => {
                    part.copy_from_slice(buffer);
                    buffer.len()
                }
                None => 0,
            },
        )
    }

    /// Takes `length` bytes into a frame at `offset`; otherwise like [`Input::take`].
    #[inline]
    pub fn take_frame(&mut self, frame: &Frame, offset: usize, length: usize) -> Result<usize> {
        self.transfer(
            length,
            |at, from| user::copy_frame_in(frame, offset + at, from.address, from.len),
            |buffer| frame.write(offset, buffer),
        )
    }

    /// Takes `length` bytes into a run of frames at `offset`; otherwise like [`Input::take`].
    #[inline]
    pub fn take_run(&mut self, run: &Run, offset: usize, length: usize) -> Result<usize> {
        self.transfer(
            length,
            |at, from| user::copy_run_in(run, offset + at, from.address, from.len),
            |buffer| run.write(offset, buffer),
        )
    }

    /// Counts only the first `done` bytes as taken, for a file that did not keep the rest. Nothing
    /// more is taken afterwards.
    pub fn give_back(&mut self, done: usize) {
        self.done = self.done.min(done);
        self.remaining = 0;
    }

    /// Skips all that is left without reading it (`/dev/null`); returns how much.
    #[inline]
    pub fn discard(&mut self) -> usize {
        let count = self.remaining;
        self.done += count;
        self.remaining = 0;
        count
    }
}
