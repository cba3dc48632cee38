//! Pages that are provided (mm/userfaultfd.c of Linux 6.1).

use alloc::sync::Arc;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::memory::Use;
use machine::frames::Frame;
use machine::paging::PageKind;
use machine::user;

use crate::memory::error::{Failure, relieved};
use crate::memory::page::PAGE;
use crate::memory::region::{Backing, Protection, RegionFlags};
use crate::memory::space::{Inner, Space};
use crate::reclaim::charge;
use crate::schedule;
use crate::vfs::caller;

/// What pages are filled with.
#[derive(Clone, Copy)]
pub enum Content {
    /// The bytes at this address of the caller.
    Copy(usize),
    /// Nothing but zeroes.
    Zeroes,
}

/// Where a page goes.
enum Target {
    /// Into the page table alone, where the program has these rights.
    Own(Protection),
    /// Into this content, at this index.
    Shared(Arc<Backing>, u64),
}

/// Where the page goes that is one of a range. `ENOENT`: the range is not in one region with one
/// provider; `EFAULT`: the content ends before it.
fn target(inner: &Inner, page: usize, range: &Range<usize>) -> Result<Target> {
    let region = inner.map.find(range.start).filter(|region| region.end >= range.end);
    let region = region.filter(|region| region.value.flags.contains(RegionFlags::PROVIDED));
    let region = region.filter(|_| inner.claims.of_all(range) != 0).ok_or(Errno::ENOENT)?;
    let mapping = &region.value;
    let Some(backing) = &mapping.backing else { return Ok(Target::Own(mapping.protection)) };
    let index = mapping.index(region.start, page);
    if index >= backing.page_cache.page_count() {
        Err(Errno::EFAULT)
    } else if mapping.is_shared() {
        Ok(Target::Shared(backing.clone(), index))
    } else {
        Ok(Target::Own(mapping.protection))
    }
}

impl Space {
    /// Fills missing pages, one after the other. Returns how many bytes, and why these were not
    /// all. It takes no lock that sleeps, and copies with no lock held.
    ///
    /// # Errors
    /// `ENOENT` (not one region with a provider), `EEXIST` (there is a page), `EFAULT` (the source,
    /// or beyond the content), `ENOMEM`, `EINTR` (the caller is to end).
    pub fn fill(&self, range: &Range<usize>, content: Content) -> (usize, Result<()>) {
        let mut done = 0;
        while done < range.len() {
            let content = match content {
                Content::Copy(from) => Content::Copy(from.wrapping_add(done)),
                Content::Zeroes => Content::Zeroes,
            };
            let page = range.start + done;
            if let Err(error) = relieved(|| self.fill_page(page, range, content)) {
                return (done, Err(error));
            }
            done += PAGE;
            schedule::breathe();
            if done < range.len() && caller::must_end() {
                return (done, Err(Errno::EINTR));
            }
        }
        (done, Ok(()))
    }

    fn fill_page(
        &self,
        page: usize,
        range: &Range<usize>,
        content: Content,
    ) -> Result<(), Failure> {
        let target = target(&self.table.lock(), page, range)?;
        let frame = match (content, &target) {
            (Content::Copy(from), _) => {
                let frame = Frame::allocate().ok_or(Failure::NoMemory)?;
                if user::copy_frame_in(&frame, 0, from, PAGE) < PAGE {
                    return Err(Errno::EFAULT.into());
                }
                Some(frame)
            }
            (Content::Zeroes, Target::Own(protection)) if !protection.is_empty() => None,
            (Content::Zeroes, _) => Some(Frame::allocate_zeroed().ok_or(Failure::NoMemory)?),
        };
        match (target, frame) {
            (Target::Shared(backing, index), Some(frame)) => {
                // As long as it is held here, the content cannot be sealed against writing.
                match backing.page_cache.put_into_hole(self.table.owner(), index, frame) {
                    Err(Errno::ENOMEM) => Err(Failure::NoMemory),
                    Err(Errno::ENOSPC) => Err(Errno::ENOMEM.into()),
                    other => Ok(other?),
                }
            }
            (_, frame) => self.enter_own(page, range, frame),
        }
    }

    /// Enters a page into the page table; `None`: the page of zeroes.
    fn enter_own(
        &self,
        page: usize,
        range: &Range<usize>,
        frame: Option<Frame>,
    ) -> Result<(), Failure> {
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        // The region that was found before the copy may be gone.
        let Target::Own(protection) = target(inner, page, range)? else {
            return Err(Errno::ENOENT.into());
        };
        let access = protection.access();
        let slot = edit.slot(page).ok_or(Failure::NoMemory)?;
        if slot.page().is_some() {
            return Err(Errno::EEXIST.into());
        }
        match frame {
            Some(frame) => {
                let frame = charge::frame(slot.owner(), Use::Anonymous, frame);
                // The slot is empty, since the lock is held.
                let _ = slot.fill(frame.ok_or(Failure::NoMemory)?, PageKind::Private, access);
            }
            // The rights were taken away since: as if the page had been given up.
            None if protection.is_empty() => {}
            None => slot.fill_zero(access.execute),
        }
        Ok(())
    }
}
