//! Reading, writing and polling the program side of a terminal.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_line_discipline::cc;
use hayate_line_discipline::flags::TOSTOP;

use super::groups::signal;
use super::ioctl;
use super::job;
use super::state::Tty;
use crate::schedule::Woken;
use crate::schedule::time;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::signal_owner::Band;
use crate::vfs::transfer::{Input, Output};

/// Bytes that one step of a read or write moves between program and terminal.
const PIECE: usize = 512;
/// VTIME counts tenths of a second.
const TENTH: u64 = 100_000_000;

/// An open file of a terminal's program side.
pub struct TtyFile {
    tty: Arc<Tty>,
}

impl TtyFile {
    /// Opens the terminal; fails as [`Tty::opened`] does.
    pub fn open(tty: Arc<Tty>, privileged: bool) -> Result<Arc<Self>> {
        tty.opened(privileged)?;
        Ok(Arc::new(Self { tty }))
    }
}

impl Tty {
    /// Sets the default owner of the signals: the foreground group if there is one, otherwise the
    /// caller (`__tty_fasync`, drivers/tty/tty_io.c).
    pub(super) fn own_signals(&self, file: &OpenFile) {
        match self.session_and_foreground().1 {
            Some(group) => file.owner().set_group(group),
            None => file.owner().set_caller(),
        }
    }
}

impl FileOps for TtyFile {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _offset: u64, out: &mut Output<'_>) -> Result<usize> {
        job::check_background(&self.tty, signal::TTIN)?;
        let _turn = if file.nonblocking() {
            self.tty.reading.try_lock().ok_or(Errno::EAGAIN)?
        } else {
            self.tty.reading.lock_interruptible().map_err(|_| Errno::ERESTARTSYS)?
        };
        read_line_or_bytes(&self.tty, file.nonblocking(), out)
    }

    fn write(&self, file: &OpenFile, _offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let tty = &self.tty;
        if tty.termios().lflag & TOSTOP != 0 {
            job::check_background(tty, signal::TTOU)?;
        }
        let _turn = if file.nonblocking() {
            tty.writing.try_lock().ok_or(Errno::EAGAIN)?
        } else {
            tty.writing.lock_interruptible().map_err(|_| Errno::ERESTARTSYS)?
        };
        let mut written = 0;
        let mut piece = [0; PIECE];
        while input.remaining() > 0 {
            let count = match input.take(&mut piece) {
                Ok(count) => count,
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            };
            let piece = &piece[..count];
            let sent = if file.nonblocking() {
                tty.write_now(piece).unwrap_or(Err(Errno::EAGAIN))
            } else {
                tty.writers
                    .wait_interruptible(None, || tty.write_now(piece))
                    .unwrap_or(Err(Errno::ERESTARTSYS))
            };
            match sent {
                Ok(count) => {
                    written += count;
                    tty.master_signals.tell(Band::In);
                }
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn poll(&self, _file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.tty.readers);
        registrar.register(&self.tty.writers);
        self.tty.events()
    }

    fn ioctl(&self, file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        ioctl::program_side(&self.tty, file, command, arg)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.tty.signals, Interest::BOTH))
    }

    fn own_signals(&self, file: &OpenFile) {
        self.tty.own_signals(file);
    }

    fn release(&self, _file: &OpenFile) {
        self.tty.closed();
    }
}

/// Does one read(2): a line in canonical mode; in raw mode as VMIN and VTIME say (termios(3),
/// "Canonical and noncanonical mode").
fn read_line_or_bytes(tty: &Tty, nonblocking: bool, out: &mut Output<'_>) -> Result<usize> {
    let wanted = out.remaining();
    if wanted == 0 {
        return Ok(0);
    }
    let termios = tty.termios();
    let canonical = termios.lflag & hayate_line_discipline::flags::ICANON != 0;
    let (least, timeout) = if canonical {
        (1, None)
    } else {
        let tenths = u64::from(termios.cc[cc::VTIME]);
        (usize::from(termios.cc[cc::VMIN]), (tenths > 0).then_some(tenths * TENTH))
    };
    let mut piece = [0; PIECE];
    let mut total = 0;
    loop {
        let room = (wanted - total).min(PIECE);
        let into = &mut piece[..room];
        // Once it has data, a canonical read only continues the same line, and a raw read no longer
        // waits once it has VMIN bytes.
        let satisfied = canonical && total > 0 || !canonical && total >= least.max(1);
        let taken = if satisfied || nonblocking || (!canonical && least == 0 && timeout.is_none()) {
            tty.read_now(into, 1)
        } else {
            // VTIME limits the whole read if VMIN = 0, and the gaps between bytes if VMIN > 0.
            let armed = timeout.filter(|_| least == 0 || total > 0 || tty.available() > 0);
            let deadline = armed.map(|span| time::monotonic_ns().saturating_add(span));
            match tty.readers.wait_interruptible(deadline, || tty.read_now(into, 1)) {
                Ok(count) => Some(count),
                Err(Woken::TimedOut) => None,
                Err(Woken::Interrupted) if total > 0 => return Ok(total),
                Err(Woken::Interrupted) => return Err(Errno::ERESTARTSYS),
            }
        };
        let Some(count) = taken else {
            return if total > 0 || (!nonblocking && !canonical && (least == 0 || timeout.is_some()))
            {
                Ok(total)
            } else {
                Err(Errno::EAGAIN)
            };
        };
        if count == 0 {
            return Ok(total);
        }
        out.put(&into[..count])?;
        total += count;
        let line_done = canonical && (count < room || ends_line(&termios, into[count - 1]));
        if total == wanted || line_done {
            return Ok(total);
        }
        if satisfied && count < room {
            return Ok(total);
        }
    }
}

/// Whether the byte ends a line in canonical mode: then a read whose piece ended exactly there does
/// not continue into the next line.
fn ends_line(termios: &hayate_line_discipline::Termios, byte: u8) -> bool {
    let is = |index: usize| termios.cc[index] != 0 && termios.cc[index] == byte;
    byte == b'\n' || is(cc::VEOL) || is(cc::VEOL2)
}
