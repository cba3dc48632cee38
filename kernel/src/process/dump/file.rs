//! The file: where it is made, and how it is written.
//!
//! It is made with the rights of the thread, new: a file of that name is removed before, so nothing
//! that others opened, linked or led elsewhere is written to, and one that the file system gave
//! another owner or other rights is left empty.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::process::{RLIMIT_CORE, RLIMIT_FSIZE};
use hayate_abi::{Errno, Result};
use hayate_core_file::image;
use hayate_core_file::name::{self, CoreTarget, Facts};
use hayate_machine::{time, vdso};

use super::content::CoreContent;
use super::pattern;
use crate::memory::{PAGE, Space};
use crate::process::record::{Process, notice};
use crate::process::thread::Thread;
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::vfs::attributes::FileKind;
use crate::vfs::dentry::DentryState;
use crate::vfs::notify;
use crate::vfs::open_file::OpenFile;
use crate::vfs::open_file::flags::{O_CREAT, O_EXCL, O_LARGEFILE, O_NOFOLLOW, O_RDWR};
use crate::vfs::path::{Resolver, WalkFlags};
use crate::vfs::transfer::Input;
use crate::vfs::watch::Mask;
use crate::vfs::{directory, open};

/// Writes the core file of the current thread's process, whose other threads have stopped. A limit
/// or a full disk cuts the file; the part that is there is a core file all the same
/// (`elf_core_dump`).
///
/// Fails if there is no file.
pub fn write(thread: &Thread, signal: u32, content: &CoreContent) -> Result<()> {
    let process = &thread.process;
    let CoreTarget::File(name) = place(thread, signal)? else { return Err(Errno::EINVAL) };
    let file = create(thread, &name)?;
    let mut writer = Writer {
        process,
        file: &file,
        limit: process.limit(RLIMIT_CORE),
        size_limit: process.limit(RLIMIT_FSIZE),
        emitted: 0,
        at: 0,
        buffer: Vec::new(),
        in_hole: false,
    };
    writer.buffer.make_room_exact(PAGE)?;
    let space = thread.space().ok_or(Errno::ESRCH)?;
    let outcome = writer.everything(content, &space);
    if let Err(error) = writer.flush().and(outcome) {
        hayate_machine::debug!("the core file of process {} is cut: {error:?}", process.id());
    }
    notify::file(&file, Mask::MODIFY);
    Ok(())
}

/// Where the pattern leads.
fn place(thread: &Thread, signal: u32) -> Result<CoreTarget> {
    let process = &thread.process;
    let root = thread.directories()?.root();
    let path = match process.executable() {
        Some(executable) => executable.location().display(&root)?,
        None => Vec::new(),
    };
    let credentials = thread.credentials();
    let host = thread.uts().host();
    let facts = Facts {
        process: thread.own_process_id(),
        thread: thread.own_id(),
        first_process: process.id(),
        first_thread: thread.id(),
        user: credentials.uid,
        group: credentials.gid,
        dumpable: process.dumpable.load(Ordering::Relaxed),
        signal,
        time: time::realtime_ns() / 1_000_000_000,
        host: host.as_bytes(),
        name: &thread.shown_name(),
        path: &path,
        limit: process.limit(RLIMIT_CORE),
        processor: hayate_machine::cpu::id(),
    };
    let uses_pid = pattern::uses_pid() != 0;
    name::place(&pattern::pattern(), uses_pid, &facts).map_err(|_| Errno::ENOMEM)
}

/// Makes the file; refuses one that is not new, not regular, or not the thread's alone.
fn create(thread: &Thread, name: &[u8]) -> Result<Arc<OpenFile>> {
    const FLAGS: u32 = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_LARGEFILE;
    let context = thread.directories()?;
    let credentials = thread.credentials();
    let resolver = || Resolver { context: &context, credentials: &credentials, start: None };
    // There may be none, or it may have to stay: then the open below fails.
    let _ = directory::unlink(&resolver(), name);
    let file = open::open(&resolver(), name, FLAGS, 0o600, WalkFlags::empty())?;
    let metadata = file.metadata()?;
    let is_gone = file.location().dentry.state().contains(DentryState::UNLINKED);
    let is_ours = metadata.uid == credentials.fsuid && metadata.mode & 0o677 == 0o600;
    if metadata.links > 1 || is_gone || metadata.kind != FileKind::Regular || !is_ours {
        return Err(Errno::EPERM);
    }
    Ok(file)
}

/// Where the bytes go.
struct Writer<'a> {
    process: &'a Process,
    file: &'a OpenFile,
    /// The most bytes that are written, holes not counted (`RLIMIT_CORE`).
    limit: u64,
    /// `RLIMIT_FSIZE`
    size_limit: u64,
    emitted: u64,
    /// Where the buffer's bytes go.
    at: u64,
    /// At most a page.
    buffer: Vec<u8>,
    /// The position is behind a hole, which becomes part of the file with the next byte.
    in_hole: bool,
}

impl Writer<'_> {
    fn everything(&mut self, content: &CoreContent, space: &Space) -> Result<()> {
        let segments = content.pieces.len() + 1;
        let notes_at = image::HEADER + segments * image::PROGRAM_HEADER;
        let memory_at = (notes_at + content.notes.len()).next_multiple_of(PAGE) as u64;
        let stored: u64 = content.pieces.iter().map(|piece| piece.stored as u64).sum();
        self.emit(&image::header(segments, memory_at + stored))?;
        self.emit(&image::notes_header(notes_at as u64, content.notes.len() as u64))?;
        let mut offset = memory_at;
        for piece in &content.pieces {
            let (start, end, stored) = (piece.start as u64, piece.end as u64, piece.stored as u64);
            self.emit(&image::memory_header(offset, start, stored, end - start, piece.rights))?;
            offset += stored;
        }
        self.emit(&content.notes)?;
        self.skip_to(memory_at)?;
        let mut page = [0; PAGE];
        let mut offset = memory_at;
        for piece in &content.pieces {
            for address in (piece.start..piece.start + piece.stored).step_by(PAGE) {
                schedule::breathe();
                settle(self.process)?;
                if Some(address) == vdso::object() {
                    self.skip_to(offset)?;
                    self.emit(vdso::content())?;
                } else if space.read_for_dump(address, &mut page) {
                    self.skip_to(offset)?;
                    self.emit(&page)?;
                }
                offset += PAGE as u64;
            }
        }
        self.skip_to(offset)?;
        if image::wants_section(segments) {
            self.emit(&image::section_header(segments))?;
        } else if self.in_hole {
            // The last byte makes the file as long as the headers say.
            self.at -= 1;
            self.emit(&[0])?;
        }
        Ok(())
    }

    /// Writes `bytes`. `EFBIG` if they exceed the limit: then none of them.
    fn emit(&mut self, bytes: &[u8]) -> Result<()> {
        for part in bytes.chunks(PAGE) {
            if self.emitted + part.len() as u64 > self.limit {
                return Err(Errno::EFBIG);
            }
            if self.buffer.len() + part.len() > PAGE {
                self.flush()?;
            }
            self.in_hole = false;
            self.emitted += part.len() as u64;
            self.buffer.extend_from_slice(part);
        }
        Ok(())
    }

    /// Goes on at `offset`, at or behind the end.
    fn skip_to(&mut self, offset: u64) -> Result<()> {
        if self.at + self.buffer.len() as u64 != offset {
            self.flush()?;
            self.at = offset;
            self.in_hole = true;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let mut done = 0;
        while let Some(rest) = self.buffer.get(done..).filter(|rest| !rest.is_empty()) {
            let room = self.size_limit.saturating_sub(self.at);
            if room == 0 {
                return Err(Errno::EFBIG);
            }
            let mut input = Input::kernel(rest);
            input.limit(usize::try_from(room).unwrap_or(usize::MAX));
            let count = self.file.write_at(self.at, &mut input)?;
            if count == 0 {
                return Err(Errno::EIO);
            }
            self.at += count as u64;
            done += count;
        }
        self.buffer.clear();
        Ok(())
    }
}

/// The end of a sleep, or of a part of a long work, of the thread that writes: no signal but
/// SIGKILL is taken any more. `EINTR` if that came.
pub(super) fn settle(process: &Process) -> Result<()> {
    schedule::current().clear_interrupt();
    if process.notice() & notice::CUT != 0 { Err(Errno::EINTR) } else { Ok(()) }
}
