//! Access to a space that is not loaded: for exec's first stack, `/proc/PID/cmdline` and `mem`,
//! `process_vm_readv`.

use hayate_abi::{Errno, Result};
use machine::frames::Frame;
use machine::paging::{Access, Edit, PageKind};
use machine::vdso;

use super::fault::{fresh, zeroed};
use super::outcome::{Cause, FaultResult, Touch};
use super::page::PAGE;
use super::region::{Mapping, Protection, RegionFlags};
use super::space::Space;
use super::userfault;
use crate::reclaim;

/// The identity of a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexPlace {
    /// Identified by its address: no other space sees it.
    Private,
    /// Identified by its place in content that several spaces may map.
    Shared {
        /// The number of the content's page cache.
        content: u64,
        /// The offset in the content in bytes.
        offset: u64,
    },
}

/// The outcome of one try of [`Space::force`].
enum Forced {
    /// The page.
    Frame(Frame),
    /// It is shared.
    Refused,
    /// Memory must be found first.
    Memory,
    /// The page of the file must be found first.
    Content,
}

/// Makes the page its space's own, without giving the program more rights. `content`: the page of
/// the file that is mapped there, if it was looked up.
fn force_write(
    edit: &mut Edit<'_>,
    mapping: &Mapping,
    page: usize,
    content: Option<&Frame>,
) -> Forced {
    if mapping.is_shared() || !mapping.flags.contains(RegionFlags::MAY_WRITE) {
        return Forced::Refused;
    }
    let access = Access { write: false, ..mapping.protection.access() };
    let Some(slot) = edit.slot(page) else { return Forced::Memory };
    let Ok(mut slot) = slot.split() else { return Forced::Memory };
    let there = slot.page();
    if there.is_some_and(|there| there.kind == PageKind::Private) && slot.is_sole_owner() {
        return slot.frame().map_or(Forced::Memory, Forced::Frame);
    }
    let copy = match (there, &mapping.backing, content) {
        (Some(there), ..) if there.kind != PageKind::Zero => {
            fresh(slot.owner()).inspect(|copy| slot.copy_to(copy))
        }
        (None, Some(_), None) => return Forced::Content,
        (None, Some(_), Some(content)) => {
            fresh(slot.owner()).inspect(|copy| copy.copy_from(content))
        }
        _ => zeroed(slot.owner()),
    };
    let Some(copy) = copy else { return Forced::Memory };
    // The place is as it was found: the lock is held.
    let _ = match there {
        Some(_) => slot.replace(copy, PageKind::Private, access),
        None => slot.fill(copy, PageKind::Private, access),
    };
    slot.frame().map_or(Forced::Memory, Forced::Frame)
}

impl Space {
    /// Returns the identity of the futex at `address`. `EFAULT` if nothing is mapped there.
    pub fn futex_place(&self, address: usize) -> Result<FutexPlace> {
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        let region = inner.map.find(address).ok_or(Errno::EFAULT)?;
        let mapping = &region.value;
        match &mapping.backing {
            Some(backing) if mapping.is_shared() => Ok(FutexPlace::Shared {
                content: backing.page_cache.id(),
                offset: mapping.offset + (address - region.start) as u64,
            }),
            _ => Ok(FutexPlace::Private),
        }
    }

    /// Returns the aligned word at `address`, if its page is in memory and readable. Takes the
    /// space's lock and never sleeps.
    pub fn peek_word(&self, address: usize) -> Option<u32> {
        let mut guard = self.table.lock();
        let (_, edit) = guard.parts();
        let (frame, page) = edit.frame(address)?;
        page.access.read.then(|| frame.load_u32(address % PAGE))?
    }

    /// Copies from `address` of this space to `to`. Returns the number of bytes copied, which is
    /// smaller than asked for if a page is absent or not readable. Sleeps if a page must be read:
    /// hold no lock.
    pub fn read_foreign(&self, address: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done) else { break };
            let Ok(frame) = self.bring(at, Touch::Read, Cause::Debugger) else { break };
            let part = (PAGE - at % PAGE).min(to.len() - done);
            done += frame.read(at % PAGE, &mut to[done..done + part]);
        }
        done
    }

    /// Copies `from` to `address` of this space. Returns the number of bytes copied, as
    /// [`read_foreign`](Self::read_foreign) does.
    pub fn write_foreign(&self, address: usize, from: &[u8]) -> usize {
        let mut done = 0;
        while done < from.len() {
            let Some(at) = address.checked_add(done) else { break };
            let Ok(frame) = self.bring(at, Touch::Write, Cause::Debugger) else { break };
            let part = (PAGE - at % PAGE).min(from.len() - done);
            done += frame.write(at % PAGE, &from[done..done + part]);
            // A page of a file may have been written to its disk in between, and is dirty again.
            let _ = self.handle_for(at, Touch::Write, || Cause::Debugger);
        }
        done
    }

    /// As [`read_foreign`](Self::read_foreign), also where the program itself may not read
    /// (`FOLL_FORCE`).
    pub fn read_forced(&self, address: usize, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(at) = address.checked_add(done) else { break };
            let part = (PAGE - at % PAGE).min(to.len() - done);
            let to = &mut to[done..done + part];
            match self.forced_frame(at, Touch::Read) {
                Some(frame) => done += frame.read(at % PAGE, to),
                // The object that every program sees is in no space's map.
                None if vdso::object() == Some(at - at % PAGE) => {
                    to.copy_from_slice(&vdso::content()[at % PAGE..][..part]);
                    done += part;
                }
                None => break,
            }
        }
        done
    }

    /// Copies all of `from` to `address` of this space, also where the program itself may not
    /// write.
    ///
    /// # Errors
    /// `ENOMEM` if memory is exhausted or nothing private is mapped there.
    pub fn fill_forced(&self, address: usize, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            let at = address.checked_add(done).ok_or(Errno::EFAULT)?;
            let frame = self.forced_frame(at, Touch::Write).ok_or(Errno::ENOMEM)?;
            let part = (PAGE - at % PAGE).min(from.len() - done);
            done += frame.write(at % PAGE, &from[done..done + part]);
        }
        Ok(())
    }

    /// The frame of the page around `address` for a debugger, which may read everything and write
    /// to all that is private: where the program itself may not write, the page becomes its own
    /// copy, as read-only as before (`FOLL_FORCE`; `check_vma_flags`, mm/gup.c).
    pub fn forced_frame(&self, address: usize, touch: Touch) -> Option<Frame> {
        match self.bring(address, touch, Cause::Debugger) {
            Ok(frame) => Some(frame),
            Err(FaultResult::NotAllowed) => self.force(address, touch),
            Err(_) => None,
        }
    }

    /// The same where the rights of the region forbid it.
    #[cold]
    fn force(&self, address: usize, touch: Touch) -> Option<Frame> {
        // A page of a file that had to be read, kept until it is used.
        let mut held: Option<Frame> = None;
        loop {
            let wanted = {
                let mut guard = self.table.lock();
                let (inner, mut edit) = guard.parts();
                let region = inner.map.find(address)?;
                if userfault::missing(region, &inner.claims, address & !(PAGE - 1), &edit).is_some()
                {
                    return None;
                }
                let mapping = region.value.clone();
                let content = mapping
                    .backing
                    .as_ref()
                    .map(|backing| (backing.clone(), mapping.index(region.start, address)));
                let outcome = if touch == Touch::Write {
                    let page = address & !(PAGE - 1);
                    inner.note_altered(&(page..page + PAGE));
                    force_write(&mut edit, &mapping, page, held.as_ref())
                } else {
                    match edit.frame(address) {
                        Some((frame, _)) => Forced::Frame(frame),
                        None if content.is_none() => {
                            Frame::allocate_zeroed().map_or(Forced::Memory, Forced::Frame)
                        }
                        None => held.take().map_or(Forced::Content, Forced::Frame),
                    }
                };
                match outcome {
                    Forced::Frame(frame) => {
                        if touch == Touch::Write {
                            edit.note_written(address);
                        }
                        return Some(frame);
                    }
                    Forced::Refused => return None,
                    Forced::Memory => None,
                    Forced::Content => Some(content?),
                }
            };
            match wanted {
                Some((backing, index)) => held = Some(backing.page_cache.page(index).ok()?),
                None if reclaim::relieve() => {}
                None => return None,
            }
        }
    }

    /// Copies all of `from` to `address` of this space.
    ///
    /// # Errors
    /// `ENOMEM` if memory is exhausted, `EFAULT` if a page is absent or not writable. The bytes
    /// before that page have been written.
    pub fn fill_foreign(&self, address: usize, from: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < from.len() {
            let at = address.checked_add(done).ok_or(Errno::EFAULT)?;
            let frame = self.bring(at, Touch::Write, Cause::Kernel).map_err(|why| match why {
                FaultResult::OutOfMemory | FaultResult::Limited => Errno::ENOMEM,
                _ => Errno::EFAULT,
            })?;
            let part = (PAGE - at % PAGE).min(from.len() - done);
            done += frame.write(at % PAGE, &from[done..done + part]);
        }
        Ok(())
    }

    /// Reads the page at `address` for a core file, also where the program may not; false if it is
    /// a hole: untouched memory, or nothing that can be read (`get_dump_page`, mm/gup.c). Sleeps if
    /// a page must be read. Hold no lock.
    pub fn read_for_dump(&self, address: usize, to: &mut [u8; PAGE]) -> bool {
        let there = {
            let mut guard = self.table.lock();
            let (inner, edit) = guard.parts();
            let Some(region) = inner.map.find(address) else { return false };
            match edit.frame(address) {
                Some((_, page)) if page.kind == PageKind::Zero => return false,
                Some((frame, _)) => Ok(frame),
                None => match &region.value.backing {
                    Some(backing) => {
                        Err((backing.clone(), region.value.index(region.start, address)))
                    }
                    None => return false,
                },
            }
        };
        // Not touched yet: read past the table, and where there is nothing to read nothing is made.
        let frame = there.or_else(|(backing, index)| {
            if backing.page_cache.is_memory() {
                backing.page_cache.peek(index).ok_or(Errno::ENXIO)
            } else {
                backing.page_cache.page(index)
            }
        });
        frame.is_ok_and(|frame| frame.read(0, to) == PAGE)
    }

    /// Returns the frame of the page around `address`, brought in for `touch`.
    pub fn foreign_frame(&self, address: usize, touch: Touch) -> Option<Frame> {
        self.bring(address, touch, Cause::Kernel).ok()
    }

    /// Like [`foreign_frame`](Self::foreign_frame), with the reason of a failure.
    fn bring(
        &self,
        address: usize,
        touch: Touch,
        cause: Cause,
    ) -> core::result::Result<Frame, FaultResult> {
        loop {
            {
                let mut guard = self.table.lock();
                let (inner, edit) = guard.parts();
                if let Some(region) = inner.map.find(address) {
                    let needed = match touch {
                        Touch::Read => Protection::all(),
                        Touch::Write => Protection::WRITE,
                        Touch::Execute => Protection::EXECUTE,
                    };
                    if !region.value.protection.intersects(needed) {
                        return Err(FaultResult::NotAllowed);
                    }
                    if let Some((frame, page)) = edit.frame(address)
                        && page.access.read
                        && (touch != Touch::Write || edit.is_writable(address))
                    {
                        if touch == Touch::Write {
                            edit.note_written(address);
                        }
                        return Ok(frame);
                    }
                }
            }
            match self.handle_for(address, touch, || cause) {
                FaultResult::Done => {}
                failed => return Err(failed),
            }
        }
    }
}
