//! The content of a core file: the notes, and the choice of memory.

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::signal::Siginfo;
use hayate_abi::{Errno, Result};
use hayate_core_file::notes::{self, Files, Identity, MOST_OF_ARGUMENTS};
use hayate_core_file::{OutOfMemory, image};
use hayate_machine::cpu;
use hayate_machine::fpu::{self, FpuState};
use hayate_machine::trap::UserRegs;
use hayate_machine::vdso;
use zerocopy::IntoBytes;

use super::filter;
use crate::memory::{PAGE, Protection, RegionFlags, ShownRegion, Space};
use crate::process::record::Process;
use crate::process::thread::Thread;
use crate::process::user_registers::user_registers;
use crate::process::visible;
use crate::reclaim::growth::Grow;
use crate::vfs::attributes::FileKind;
use crate::vfs::mount::Location;

/// A piece of memory.
pub struct Piece {
    /// The first address.
    pub start: usize,
    /// The first address behind.
    pub end: usize,
    /// How many bytes of it the file holds.
    pub stored: usize,
    /// The rights of the program, as flags of a program header.
    pub rights: u32,
}

/// All of a core file but the memory itself.
pub struct CoreContent {
    /// The notes, one behind the other.
    pub notes: Vec<u8>,
    /// The memory, in order.
    pub pieces: Vec<Piece>,
}

/// Collects the content for the process of the current thread. All other threads have stopped.
pub fn of(thread: &Thread, info: &Siginfo, regs: &UserRegs) -> Result<CoreContent> {
    let process = &thread.process;
    let space = thread.space().ok_or(Errno::ESRCH)?;
    let signal = info.si_signo as u32;
    let mut list = Vec::new();
    status(thread, regs, signal).put(&mut list).map_err(lack)?;

    let vectors = process.vectors();
    let mut arguments = [0; MOST_OF_ARGUMENTS];
    let length = vectors.arguments_end.saturating_sub(vectors.arguments).min(arguments.len());
    let shown = space.read_foreign(vectors.arguments, &mut arguments[..length]);
    let credentials = thread.credentials();
    let about = notes::Process {
        nice: thread.execution().map_or(0, |execution| execution.nice()),
        user: credentials.uid,
        group: credentials.gid,
        identity: identity(process, thread.own_process_id()),
        name: &thread.shown_name(),
        arguments: &arguments[..shown],
    };
    about.put(&mut list).map_err(lack)?;
    notes::signal(&mut list, info.as_bytes()).map_err(lack)?;

    let mut auxiliary = Vec::new();
    let length = vectors.auxiliary_end.saturating_sub(vectors.auxiliary).min(PAGE);
    auxiliary.make_room_exact(length)?;
    auxiliary.resize(length, 0);
    let shown = space.read_foreign(vectors.auxiliary, &mut auxiliary);
    auxiliary.truncate(shown);
    notes::auxiliary(&mut list, &auxiliary).map_err(lack)?;

    let regions = space.shown(true)?;
    let root = thread.directories()?.root();
    files(&regions, &root)?.put(&mut list).map_err(lack)?;
    extended(&mut list)?;
    let pieces = pieces(&space, &regions, process.dump_filter.load(Ordering::Relaxed))?;
    Ok(CoreContent { notes: list, pieces })
}

/// The notes of the current thread, which another one's core file tells.
pub fn of_thread(thread: &Thread, regs: &UserRegs, signal: u32) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    status(thread, regs, signal).put(&mut list).map_err(lack)?;
    extended(&mut list)?;
    Ok(list)
}

fn lack(_: OutOfMemory) -> Errno {
    Errno::ENOMEM
}

fn identity(process: &Process, number: u32) -> Identity {
    Identity {
        number,
        parent: visible::shown(process.parent_id()),
        group: visible::shown(process.group()),
        session: visible::shown(process.session_id()),
    }
}

/// The current thread. The first one has the times of all (`fill_prstatus`).
fn status(thread: &Thread, regs: &UserRegs, signal: u32) -> notes::Status {
    let process = &thread.process;
    let is_first = thread.id() == process.id();
    let usage = if is_first { process.usage() } else { thread.usage() };
    let children = process.children_usage();
    notes::Status {
        signal,
        pending: thread.queue.mask(),
        blocked: thread.blocked(),
        identity: identity(process, thread.own_id()),
        times: [usage.user_ns, usage.system_ns, children.user_ns, children.system_ns],
        registers: user_registers(regs, [cpu::user_fs_base(), cpu::user_gs_base()]),
    }
}

/// The floating-point and vector registers of the current thread.
fn extended(list: &mut Vec<u8>) -> Result<()> {
    let mut state = Vec::new();
    state.make_room_exact(FpuState::core_size())?;
    state.resize(FpuState::core_size(), 0);
    match fpu::to_core_bytes(&mut state) {
        Some(enabled) => notes::extended(list, &mut state, enabled).map_err(lack),
        None => Ok(()),
    }
}

/// The mapped files, with the paths that `root` shows.
fn files(regions: &[ShownRegion], root: &Location) -> Result<Files> {
    let mut files = Files::default();
    for region in regions {
        let Some(backing) = &region.backing else { continue };
        let name = match (backing.location(), backing.attachment()) {
            (Some(location), _) => location.display(root)?,
            (None, Some(attachment)) => {
                let key = attachment.name().1;
                crate::reclaim::growth::copy(format!("/SYSV{key:08x} (deleted)").as_bytes())?
            }
            (None, None) => crate::reclaim::growth::copy(backing.name().as_bytes())?,
        };
        let (start, end) = (region.start as u64, region.end as u64);
        files.add(start, end, region.offset, &name).map_err(lack)?;
    }
    Ok(files)
}

fn pieces(space: &Space, regions: &[ShownRegion], filter: u32) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    pieces.make_room_exact(regions.len() + 1)?;
    for region in regions {
        let right = |right, flag| if region.protection.contains(right) { flag } else { 0 };
        pieces.push(Piece {
            start: region.start,
            end: region.end,
            stored: stored(space, region, filter),
            rights: right(Protection::READ, image::READ)
                | right(Protection::WRITE, image::WRITE)
                | right(Protection::EXECUTE, image::EXECUTE),
        });
    }
    // A debugger unwinds through it; it always goes in (`always_dump_vma`).
    if let Some(start) = vdso::object() {
        let rights = image::READ | image::EXECUTE;
        pieces.push(Piece { start, end: start + PAGE, stored: PAGE, rights });
    }
    Ok(pieces)
}

/// How many bytes of a region go into the file (`vma_dump_size`).
fn stored(space: &Space, region: &ShownRegion, filter: u32) -> usize {
    let whole = region.end - region.start;
    let all_if = |bit| if filter & bit != 0 { whole } else { 0 };
    if region.flags.contains(RegionFlags::NO_DUMP) {
        return 0;
    }
    let location = region.backing.as_ref().and_then(|backing| backing.location());
    if region.flags.contains(RegionFlags::SHARED) {
        let named = location
            .is_some_and(|location| location.metadata().is_ok_and(|metadata| metadata.links != 0));
        return all_if(if named { filter::FILE_SHARED } else { filter::SHARED });
    }
    if region.pages.anonymous != 0 && filter & filter::PRIVATE != 0 {
        return whole;
    }
    if region.backing.is_none() {
        return 0;
    }
    if filter & filter::FILE_PRIVATE != 0 {
        return whole;
    }
    let is_beginning = region.offset == 0 && region.protection.contains(Protection::READ);
    if filter & filter::HEADERS != 0 && is_beginning {
        let runs = location.and_then(|location| location.inode().ok()).is_some_and(|inode| {
            let attributes = inode.attributes();
            attributes.kind == FileKind::Regular && attributes.mode & 0o111 != 0
        });
        let mut magic = [0; 4];
        if runs || space.read_foreign(region.start, &mut magic) == 4 && magic == *b"\x7fELF" {
            return PAGE;
        }
    }
    0
}
