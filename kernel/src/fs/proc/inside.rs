//! `/proc/PID/mem`, `pagemap`, `maps`, `smaps` and `statm`: the memory of a process by byte, by
//! page, by region, and as sums.
//!
//! All but the last expose the contents of a process, so the opener's rights are checked. An open
//! file is valid only as long as the process executes the same program: after an exec, and when the
//! process has ended, a reader gets the end of the file. The space itself is not held: a program
//! that keeps `/proc/PID/mem` open keeps no memory of another one.
//!
//! By `mem` the opener reads what the process itself may not, and writes to what is private: into a
//! copy of the process's own (`FOLL_FORCE`, as `mem_rw` of fs/proc/base.c has it). To shared memory
//! that the process may not write to it answers EIO.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::target::Target;
use super::text::{bytes, line, put};
use crate::credentials::Capability;
use crate::memory::{
    PAGE, Protection, RegionFlags, ShownPages, ShownRegion, Space, Touch, USER_END,
};
use crate::process;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::DeviceNumber;
use crate::vfs::mount::Location;
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits, Whence};
use crate::vfs::transfer::{Input, Output};

/// Bytes that are moved at a time.
const PIECE: usize = 512;

/// The view of an opener: one program, as long as the process executes it.
struct Inside {
    target: Target,
    serial: u64,
}

impl Inside {
    /// Fails with EACCES unless the caller may look into the process.
    fn open(target: &Target) -> Result<Inside> {
        // Take the serial first, so that it cannot be that of a program started after the check.
        let serial = target.space().map_or(0, |space| space.serial());
        target.check_access()?;
        Ok(Inside { target: target.clone(), serial })
    }

    /// The space, if it is still the same.
    fn space(&self) -> Option<Arc<Space>> {
        self.target.space().filter(|space| space.serial() == self.serial)
    }
}

/// Seeks in a file whose positions are addresses. The result may be any 64-bit number, and there is
/// no end to seek from (`mem_lseek`, fs/proc/base.c).
fn seek(position: u64, offset: i64, whence: Whence) -> Result<u64> {
    match whence {
        Whence::Set => Ok(offset as u64),
        Whence::Current => Ok(position.wrapping_add(offset as u64)),
        _ => Err(Errno::EINVAL),
    }
}

/// `/proc/PID/mem`.
struct Memory(Inside);

/// Opens `/proc/PID/mem`.
pub fn open_memory(target: &Target, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    Ok(Arc::new(Memory(Inside::open(target)?)))
}

impl FileOps for Memory {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let Some(space) = self.0.space() else { return Ok(0) };
        let mut piece = [0; PIECE];
        let mut done = 0;
        while out.remaining() > 0 {
            let Some(at) = address(offset, done) else { break };
            let wanted = out.remaining().min(PIECE - at % PIECE);
            let count = space.read_forced(at, &mut piece[..wanted]);
            let given = out.put(&piece[..count])?;
            done += given;
            if given < wanted {
                break;
            }
        }
        if done == 0 && out.remaining() > 0 { Err(Errno::EIO) } else { Ok(done) }
    }

    fn write(&self, _: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let Some(space) = self.0.space() else { return Ok(0) };
        space.note_outside();
        let mut piece = [0; PIECE];
        let mut done = 0;
        while input.remaining() > 0 {
            let Some(at) = address(*offset, done) else { break };
            let wanted = input.remaining().min(PIECE - at % PIECE);
            // Not taken from the caller before it can be put there, and not into a page that was
            // looked up before: the caller's memory may be what is written.
            if space.forced_frame(at, Touch::Write).is_none() {
                break;
            }
            let taken = input.take(&mut piece[..wanted])?;
            let Some(frame) = space.forced_frame(at, Touch::Write) else { break };
            let given = frame.write(at % PAGE, &piece[..taken]);
            done += given;
            if given < wanted {
                break;
            }
        }
        if done == 0 && input.remaining() > 0 { Err(Errno::EIO) } else { Ok(done) }
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }

    fn seek(&self, _: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        seek(position, offset, whence)
    }
}

/// The address `done` bytes after `offset`, if it is in the user half.
fn address(offset: u64, done: usize) -> Option<usize> {
    let at = usize::try_from(offset).ok()?.checked_add(done)?;
    (at < USER_END).then_some(at)
}

/// `/proc/PID/pagemap` (Documentation/admin-guide/mm/pagemap.rst): a word for each page.
struct PageMap(Inside);

/// Bytes of a word.
const WORD: usize = 8;
const PRESENT: u64 = 1 << 63;
/// A page of a file, or of shared memory.
const FILE: u64 = 1 << 61;
/// No other space maps the page.
const EXCLUSIVE: u64 = 1 << 56;
/// The frame's number.
const FRAME: u64 = (1 << 55) - 1;

/// Opens `/proc/PID/pagemap`.
pub fn open_page_map(target: &Target, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
    Ok(Arc::new(PageMap(Inside::open(target)?)))
}

impl FileOps for PageMap {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        if !offset.is_multiple_of(WORD as u64) || !out.remaining().is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let Some(space) = self.0.space() else { return Ok(0) };
        // Only the superuser sees the frame numbers, since they help to attack the hardware.
        let shows_frames = process::current().credentials().has(Capability::SysAdmin);
        let mut done = 0;
        while out.remaining() > 0 {
            let first = offset / WORD as u64 + (done / WORD) as u64;
            let Some(start) = usize::try_from(first).ok().and_then(|page| page.checked_mul(PAGE))
            else {
                break;
            };
            if start >= USER_END {
                break;
            }
            let mut words = [0u64; PIECE / WORD];
            let count = words.len().min(out.remaining() / WORD).min((USER_END - start) / PAGE);
            space.visit_pages(start..start + count * PAGE, |at, page, is_file| {
                let frame = if shows_frames { u64::from(page.frame()) & FRAME } else { 0 };
                let kind = if is_file { FILE } else { 0 };
                let alone = if page.is_shared() { 0 } else { EXCLUSIVE };
                if let Some(word) = words.get_mut((at - start) / PAGE) {
                    *word = PRESENT | kind | alone | frame;
                }
            });
            let mut bytes = [0; PIECE];
            for (place, word) in bytes.chunks_exact_mut(WORD).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            let given = out.put(&bytes[..count * WORD])?;
            done += given;
            if given < count * WORD {
                break;
            }
        }
        Ok(done)
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }

    fn seek(&self, _: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        seek(position, offset, whence)
    }
}

/// The regions of a space, followed by the vDSO and the page of its data, which every program has.
fn regions(space: &Space, count: bool) -> Result<Vec<ShownRegion>> {
    let mut regions = space.shown(count)?;
    let clocks = hayate_machine::vdso::clocks().into_iter();
    for start in clocks {
        regions.make_room(2)?;
        let page = |start, protection, name| ShownRegion {
            start,
            end: start + PAGE,
            protection,
            flags: RegionFlags::empty(),
            offset: 0,
            backing: None,
            name,
            pages: ShownPages::default(),
        };
        regions.push(page(start, Protection::READ, "[vvar]"));
        regions.push(page(start + PAGE, Protection::READ | Protection::EXECUTE, "[vdso]"));
    }
    Ok(regions)
}

/// `/proc/PID/maps`: a line for each region.
pub fn maps(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let Some(space) = target.space() else { return Ok(()) };
    let own_root = process::current().directories()?.root();
    for view in regions(&space, false)? {
        region_line(&view, &own_root, out)?;
    }
    Ok(())
}

/// A region as a line of `maps`, with the paths that `own_root` shows.
fn region_line(view: &ShownRegion, own_root: &Location, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let letter = |set: bool, letter: char| if set { letter } else { '-' };
    put(
        out,
        format_args!(
            "{:08x}-{:08x} {}{}{}{} {:08x} ",
            view.start,
            view.end,
            letter(view.protection.contains(Protection::READ), 'r'),
            letter(view.protection.contains(Protection::WRITE), 'w'),
            letter(view.protection.contains(Protection::EXECUTE), 'x'),
            if view.flags.contains(RegionFlags::SHARED) { 's' } else { 'p' },
            view.offset
        ),
    )?;
    let location = view.backing.as_ref().and_then(|backing| backing.location());
    let (device, number) = match location {
        Some(location) => location.metadata().map_or((0, 0), |data| data.identity()),
        None => (0, 0),
    };
    let device = DeviceNumber::decode(device);
    let segment = view.backing.as_ref().and_then(|backing| backing.attachment());
    if let Some((id, key)) = segment.map(|attachment| attachment.name()) {
        // The device is that of Linux' first file system without one, which has the segments.
        put(out, format_args!("00:01 {id} "))?;
        while out.len() - start < 73 {
            bytes(out, b" ")?;
        }
        return line(out, format_args!("/SYSV{key:08x} (deleted)"));
    }
    put(out, format_args!("{:02x}:{:02x} {number} ", device.major, device.minor))?;
    let name = match location {
        Some(location) => location.display(own_root)?,
        None => view.name.as_bytes().to_vec(),
    };
    if !name.is_empty() {
        // Names start in column 74 (show_map_vma of Linux).
        while out.len() - start < 73 {
            bytes(out, b" ")?;
        }
        bytes(out, &name)?;
    }
    bytes(out, b"\n")
}

/// `/proc/PID/statm`: sums in pages.
pub fn statm(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let space = target.thread().ok().and_then(|thread| thread.space());
    let sizes = space.map(|space| space.totals()).unwrap_or_default();
    line(
        out,
        format_args!(
            "{} {} {} {} 0 {} 0",
            sizes.size, sizes.resident, sizes.shared, sizes.text, sizes.data
        ),
    )
}

/// `/proc/PID/smaps`: the lines of `maps`, each with the memory of the region that is present.
///
/// Left out is what Hayate does not count: how many spaces map a page (`Pss`, `Shared_*`,
/// `Private_*`), and which pages were touched recently (`Referenced`).
pub fn smaps(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let Some(space) = target.space() else { return Ok(()) };
    let own_root = process::current().directories()?.root();
    for view in regions(&space, true)? {
        region_line(&view, &own_root, out)?;
        let pages = view.pages;
        let size = (view.end - view.start) / PAGE;
        let locked = if view.flags.contains(RegionFlags::LOCKED) { pages.resident } else { 0 };
        for (name, count) in [
            ("Size", size),
            ("KernelPageSize", 1),
            ("MMUPageSize", 1),
            ("Rss", pages.resident),
            ("Anonymous", pages.anonymous),
            ("AnonHugePages", pages.large.min(pages.anonymous)),
            ("Swap", 0),
            ("Locked", locked),
        ] {
            line(out, format_args!("{:<16}{:>8} kB", Colon(name), count * (PAGE / 1024)))?;
        }
        put(out, format_args!("VmFlags:"))?;
        let has = |right| view.protection.contains(right);
        for (is_set, letters) in [
            (has(Protection::READ), "rd"),
            (has(Protection::WRITE), "wr"),
            (has(Protection::EXECUTE), "ex"),
            (view.flags.contains(RegionFlags::SHARED), "sh"),
            (view.flags.contains(RegionFlags::GROWS_DOWN), "gd"),
            (view.flags.contains(RegionFlags::LOCKED), "lo"),
            (view.flags.contains(RegionFlags::PROVIDED), "um"),
        ] {
            if is_set {
                put(out, format_args!(" {letters}"))?;
            }
        }
        line(out, format_args!(" "))?;
    }
    Ok(())
}

/// A name with a colon appended, padded as one.
struct Colon(&'static str);

impl core::fmt::Display for Colon {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let width = f.width().unwrap_or_default().saturating_sub(self.0.len() + 1);
        write!(f, "{}:{:width$}", self.0, "")
    }
}
