//! The open ends of a pipe: `pipe(2)`, and opening a pipe once more.

use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Lazy;
use hayate_machine::user::UserPtr;

use super::Pipe;
use super::limits::Share;
use crate::credentials::Credentials;
use crate::vfs::anonymous;
use crate::vfs::attributes::{Attributes, Change, FileKind, Metadata, Timestamp};
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::inode::Inode;
use crate::vfs::mount::Mount;
use crate::vfs::open_file::flags::{O_DIRECT, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY};
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::signal_owner::Band;
use crate::vfs::transfer::{Input, Output};

const FIONREAD: u32 = 0x541b;

static PIPEFS: Lazy<Arc<Mount>> = Lazy::new(|| anonymous::pseudo("pipefs", 0x5049_5045));

impl Pipe {
    /// Opens one end, or both for a FIFO opened for both.
    pub fn end(self: &Arc<Self>, reads: bool, writes: bool) -> Arc<PipeEnd> {
        if reads {
            self.readers.fetch_add(1, Ordering::AcqRel);
            self.reader_openings.fetch_add(1, Ordering::AcqRel);
            self.opened.wake_all();
            self.writable.wake_all();
        }
        if writes {
            self.writers.fetch_add(1, Ordering::AcqRel);
            self.writer_openings.fetch_add(1, Ordering::AcqRel);
            self.opened.wake_all();
            self.readable.wake_all();
        }
        Arc::new(PipeEnd { pipe: Arc::clone(self), reads, writes })
    }
}

impl Inode for Pipe {
    fn attributes(&self) -> Attributes {
        self.metadata.lock().attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(*self.metadata.lock())
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        if change.size.is_some() {
            return Err(Errno::EINVAL);
        }
        let mut metadata = self.metadata.lock();
        metadata.mode = change.mode.unwrap_or(metadata.mode);
        metadata.uid = change.uid.unwrap_or(metadata.uid);
        metadata.gid = change.gid.unwrap_or(metadata.gid);
        metadata.accessed = change.accessed.unwrap_or(metadata.accessed);
        metadata.modified = change.modified.unwrap_or(metadata.modified);
        metadata.changed = Timestamp::now();
        Ok(())
    }

    /// Opening `/proc/PID/fd/N` of a pipe opens the pipe again.
    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        open_pipe(&self, request, false)
    }

    fn opens_itself(&self) -> bool {
        true
    }
}

/// The open end or ends of a pipe.
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
}

impl PipeEnd {
    /// Returns the pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }

    /// Counts the end as closed and wakes the waiters.
    pub fn abandon(&self) {
        let pipe = &self.pipe;
        if self.reads {
            pipe.readers.fetch_sub(1, Ordering::AcqRel);
        }
        if self.writes {
            pipe.writers.fetch_sub(1, Ordering::AcqRel);
        }
        pipe.readable.wake_all();
        pipe.writable.wake_all();
        // Only one of the two sides is left: its open files are signalled.
        let left = [&pipe.readers, &pipe.writers].map(|side| side.load(Ordering::Acquire) != 0);
        if left[0] != left[1] {
            pipe.signals.tell(Band::In);
            pipe.signals.tell(Band::Out);
        }
    }
}

impl FileOps for PipeEnd {
    fn signals(&self, _: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.pipe.signals, Interest { reads: self.reads, writes: self.writes }))
    }

    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        self.pipe.read(file.nonblocking(), out)
    }

    fn write(&self, file: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        self.pipe.write(file, input)
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let pipe = &self.pipe;
        let mut events = Events::empty();
        if self.reads {
            registrar.register(&pipe.readable);
            if pipe.bytes.load(Ordering::Acquire) != 0 {
                events |= Events::READABLE;
            }
            // A FIFO that no writer ever opened has not hung up.
            if pipe.writers.load(Ordering::Acquire) == 0
                && pipe.writer_openings.load(Ordering::Acquire) != 0
            {
                events |= Events::HUP;
            }
        }
        if self.writes {
            registrar.register(&pipe.writable);
            if !pipe.is_full() {
                events |= Events::WRITABLE;
            }
            if pipe.readers.load(Ordering::Acquire) == 0 {
                events |= Events::ERR;
            }
        }
        events
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        match command {
            FIONREAD => {
                let bytes = self.pipe.bytes.load(Ordering::Acquire) as i32;
                UserPtr::<i32>::new(arg as usize).write(&bytes)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn release(&self, _: &OpenFile) {
        self.abandon();
    }
}

/// `pipe2(2)`: returns the read end and the write end. `flags`: `O_NONBLOCK`, `O_DIRECT`.
pub fn pair(flags: u32, credentials: &Credentials) -> Result<(Arc<OpenFile>, Arc<OpenFile>)> {
    let device = PIPEFS.filesystem().device();
    let mut metadata = Metadata::anonymous(device, FileKind::Fifo, 0o600);
    metadata.uid = credentials.fsuid;
    metadata.gid = credentials.fsgid;
    let name = format!("pipe:[{}]", metadata.number);
    let share = Share::new(credentials)?.ok_or(Errno::ENFILE)?;
    let pipe = Pipe::new(metadata, share);
    let place = anonymous::location(&PIPEFS, name.as_bytes(), pipe.clone());
    let reader = OpenFile::new(pipe.end(true, false), place.clone(), flags & !O_DIRECT | O_RDONLY)?;
    let writer = OpenFile::new(pipe.end(false, true), place, flags | O_WRONLY)?;
    Ok((reader, writer))
}

/// Returns whether an open with these flags reads and writes.
pub fn ends(request: &OpenRequest<'_>) -> Result<(bool, bool)> {
    match request.flags & O_RDWR.max(3) {
        O_RDONLY => Ok((true, false)),
        O_WRONLY => Ok((false, true)),
        O_RDWR => Ok((true, true)),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the pipe behind an open file, if it is one.
pub fn of(file: &OpenFile) -> Option<&Arc<Pipe>> {
    file.ops_as::<PipeEnd>().map(PipeEnd::pipe)
}

/// Opens a pipe once more. Only a pipe with a name waits for its other side: the ends of a nameless
/// pipe were opened together, and the other may be closed for good (`fifo_open`, fs/pipe.c of
/// Linux).
pub fn open_pipe(
    pipe: &Arc<Pipe>,
    request: &OpenRequest<'_>,
    named: bool,
) -> Result<Arc<dyn FileOps>> {
    let (reads, writes) = ends(request)?;
    let nonblocking = request.flags & O_NONBLOCK != 0;
    if named && writes && !reads && nonblocking && pipe.readers() == 0 {
        return Err(Errno::ENXIO);
    }
    // Taken first: a thread that waits for this end may use and close its own end at once.
    let before = pipe.other_side(writes);
    let end = pipe.end(reads, writes);
    if named && !nonblocking && reads != writes {
        // If the wait fails, the end must count as closed.
        if let Err(error) = pipe.wait_for_other(writes, before) {
            end.abandon();
            return Err(error);
        }
    }
    Ok(end)
}
