//! Mapping of a planned program into a space.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_program_image::{HEAD, Image, Plan, Position, Segment, flags};

use super::executable::Executable;
pub use crate::memory::origin::Loaded;
use crate::memory::{
    Backing, MapRequest, Placement, Protection, RegionFlags, Space, page_down, page_up,
};
use crate::reclaim::growth::Grow;

/// Reads and plans an ELF file. Fails with `ENOEXEC` for any other file.
pub fn plan(executable: &Executable, head: &[u8]) -> Result<Plan> {
    let Image::Elf(header) = Image::recognise(head)? else { return Err(Errno::ENOEXEC) };
    let table = header.table();
    let length = (table.end - table.start) as usize;
    // The table nearly always follows the file header, in the head.
    if let Some(bytes) = head.get(table.start as usize..table.end as usize) {
        return Plan::new(&header, bytes);
    }
    let mut bytes = Vec::new();
    bytes.make_room_exact(length)?;
    bytes.resize(length, 0);
    if executable.read(table.start, &mut bytes)? < length {
        return Err(Errno::ENOEXEC);
    }
    Plan::new(&header, &bytes)
}

/// Reads the bytes by which a file is recognised; returns them and their number. A kilobyte also
/// holds the program headers of nearly every file.
pub fn head(executable: &Executable) -> Result<([u8; 4 * HEAD], usize)> {
    let mut bytes = [0; 4 * HEAD];
    let length = executable.read(0, &mut bytes)?;
    Ok((bytes, length))
}

/// Reads the path of the interpreter that a plan names. Fails with `ENOEXEC` if it has no NUL.
pub fn interpreter_path(executable: &Executable, plan: &Plan) -> Result<Option<Vec<u8>>> {
    let Some(range) = plan.interpreter.clone() else { return Ok(None) };
    let length = (range.end - range.start) as usize;
    let mut path = Vec::new();
    path.make_room_exact(length)?;
    path.resize(length, 0);
    if executable.read(range.start, &mut path)? < length || path.pop() != Some(0) {
        return Err(Errno::ENOEXEC);
    }
    if let Some(end) = path.iter().position(|&byte| byte == 0) {
        path.truncate(end);
    }
    Ok(Some(path))
}

fn protection(segment: &Segment) -> Protection {
    let mut protection = Protection::empty();
    protection.set(Protection::READ, segment.flags & flags::R != 0);
    protection.set(Protection::WRITE, segment.flags & flags::W != 0);
    protection.set(Protection::EXECUTE, segment.flags & flags::X != 0);
    protection
}

/// The role of a loaded file in its process. Faults on the text of the two roles count separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadRole {
    /// The program.
    Program,
    /// The interpreter that the program names.
    Interpreter,
}

/// Maps all segments of a file.
///
/// * `at` - the address of a position-independent file; `None` lets the space choose.
///
/// The parts of the file's pages that had to be zeroed are added to `cleared`.
///
/// Fails with `ENOMEM` if the file does not fit, `EPERM` if it needs the lowest addresses.
pub fn load(
    space: &Space,
    executable: &Executable,
    plan: &Plan,
    at: Option<usize>,
    role: LoadRole,
    cleared: &mut Vec<Range<usize>>,
) -> Result<Loaded> {
    let bias = match (plan.position, at) {
        (Position::Fixed, _) => 0,
        (Position::Independent, Some(base)) => {
            let alignment = alignment(executable, plan);
            (base & !(alignment - 1)).wrapping_sub(plan.span.start as usize)
        }
        (Position::Independent, None) => choose(space, executable, plan)?,
    };
    let (page_cache, file) = (executable.page_cache().clone(), executable.file().clone());
    let backing = match role {
        LoadRole::Program => Backing::program(page_cache, file)?,
        LoadRole::Interpreter => Backing::file(page_cache, file, false)?,
    };
    for segment in &plan.segments {
        map(space, &backing, segment, bias, cleared)?;
    }
    let place = |address: u64| (address as usize).wrapping_add(bias);
    Ok(Loaded {
        bias,
        entry: place(plan.entry),
        headers: if plan.headers == 0 { 0 } else { place(plan.headers) },
        end: place(plan.end()),
    })
}

/// Maps all segments of a file into a space that is in use. Position-independent files are mapped
/// among the libraries, others at their fixed addresses.
///
/// * `replace` - replaces existing mappings in the file's range.
///
/// Fails as [`load`], and with `EEXIST` if a mapping is in the range and `replace` is not set.
/// After an error nothing of the file stays mapped.
pub fn add(space: &Space, executable: &Executable, plan: &Plan, replace: bool) -> Result<Loaded> {
    let bias = match plan.position {
        Position::Fixed => 0,
        Position::Independent => choose(space, executable, plan)?,
    };
    let start = (plan.span.start as usize).wrapping_add(bias);
    let length = (plan.span.end - plan.span.start) as usize;
    // Map the whole range at once, so that no thread that shares the space can map in between.
    space.map(MapRequest {
        address: start,
        place: if replace { Placement::Fixed } else { Placement::FixedNoReplace },
        protection: Protection::empty(),
        ..MapRequest::anonymous(length)
    })?;
    let role = LoadRole::Program;
    load(space, executable, plan, Some(start), role, &mut Vec::new()).inspect_err(|_| {
        // It was mapped a moment ago, so only memory to split a region may be exhausted; then the
        // range stays mapped and unreadable.
        let _ = space.unmap(start, length);
    })
}

/// The alignment of a position-independent file: its own, or a large page if its text was placed
/// for large pages.
fn alignment(executable: &Executable, plan: &Plan) -> usize {
    let own = plan.alignment as usize;
    let large = executable.page_cache().place().is_some_and(|place| place.is_large());
    if large { own.max(machine::layout::LARGE_PAGE_SIZE) } else { own }
}

/// Finds a gap for the whole range of a file; returns the bias.
fn choose(space: &Space, executable: &Executable, plan: &Plan) -> Result<usize> {
    let alignment = alignment(executable, plan);
    let span = (plan.span.end - plan.span.start) as usize;
    let slack = alignment - 4096;
    let length = span.checked_add(slack).ok_or(Errno::ENOMEM)?;
    let gap = space.gap_for(executable.page_cache(), length)?;
    let base = (gap + slack) & !(alignment - 1);
    Ok(base.wrapping_sub(plan.span.start as usize))
}

fn map(
    space: &Space,
    backing: &Arc<Backing>,
    segment: &Segment,
    bias: usize,
    cleared: &mut Vec<Range<usize>>,
) -> Result<()> {
    let place = |address: u64| (address as usize).wrapping_add(bias);
    let protection = protection(segment);
    let start = page_down(place(segment.address));
    let file_end = place(segment.file_end());
    let end = page_up(place(segment.end())).ok_or(Errno::ENOMEM)?;
    let file_pages_end =
        if segment.file_size > 0 { page_up(file_end).ok_or(Errno::ENOMEM)? } else { start };
    let request = |address, length| MapRequest {
        address,
        place: Placement::Fixed,
        protection,
        ..MapRequest::anonymous(length)
    };
    if file_pages_end > start {
        space.map(MapRequest {
            backing: Some(backing.clone()),
            offset: segment.file_offset - segment.file_offset % 4096,
            ..request(start, file_pages_end - start)
        })?;
        space.recycle_region(start..file_pages_end);
    }
    if end > file_pages_end {
        space.map(request(file_pages_end, end - file_pages_end))?;
        space.recycle_region(file_pages_end..end);
    }
    // The rest of the last file page holds file content and must be zero. Linux does not clear it
    // either where the program cannot write (`padzero`).
    if segment.memory_size > segment.file_size
        && file_end < file_pages_end
        && protection.contains(Protection::WRITE)
    {
        clear(space, file_end, file_pages_end - file_end)?;
        cleared.make_room(1)?;
        cleared.push(file_end..file_pages_end);
    }
    Ok(())
}

/// Zeroes part of a page of the space.
fn clear(space: &Space, address: usize, length: usize) -> Result<()> {
    const ZEROES: [u8; 4096] = [0; 4096];
    let zeroes = ZEROES.get(..length).unwrap_or(&ZEROES);
    // A file that ends before its segment has no such page: then the program is invalid.
    space.fill_foreign(address, zeroes)
}

/// The flags of a first stack.
pub fn stack_flags() -> RegionFlags {
    RegionFlags::STACK | RegionFlags::GROWS_DOWN | RegionFlags::MAY_WRITE | RegionFlags::MAY_EXECUTE
}
