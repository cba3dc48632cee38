//! Segments of shared memory in a space (`shmop(2)`): shmat and shmdt.
//!
//! A region of a segment is an attachment, so a space that ends, or is kept for another program,
//! gives all of them up before its process is waited for: they are regions that the program added
//! ([`crate::recycle::spaces`], [`crate::recycle::heirs`]), or the whole map is dropped
//! ([`crate::recycle::empty_spaces`]).
//! Images and templates are not made of a space with a segment
//! ([`is_its_own`](Space::is_its_own)).
//!
//! Locks: a segment's lock is taken below the space's.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::error::relieved;
use super::map::{MapRequest, Placement};
use super::page::{PAGE, page_up};
use super::region::{Backing, Protection, RegionFlags};
use super::space::{Inner, Space};
use crate::ipc::sysv::shm::Attachment;

/// Where shmat maps a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Free,
    /// At this address, where nothing else may be mapped.
    At(usize),
    /// At this address, instead of what is mapped there (`SHM_REMAP`).
    Instead(usize),
}

impl Space {
    /// Maps a segment (`do_shmat`, ipc/shm.c); returns the address.
    ///
    /// # Errors
    /// `EINVAL` (something else is mapped there), `ENOMEM`, and those of [`map`](Self::map).
    pub fn attach(
        &self,
        attachment: Attachment,
        place: Place,
        protection: Protection,
    ) -> Result<usize> {
        let length = attachment.segment().size() as usize;
        let (address, place) = match place {
            Place::Free => (0, Placement::Hint),
            Place::At(address) if address.checked_add(length).is_none() => {
                return Err(Errno::EINVAL);
            }
            Place::At(address) => (address, Placement::FixedNoReplace),
            Place::Instead(address) => (address, Placement::Fixed),
        };
        let mut flags = RegionFlags::SHARED | RegionFlags::MAY_EXECUTE;
        flags.set(RegionFlags::MAY_WRITE, protection.contains(Protection::WRITE));
        let backing = Backing::segment(attachment)?;
        // Before the region is there: a fork of another thread may copy it at once.
        self.table.lock().has_segments = true;
        let at = self.map(MapRequest {
            address,
            place,
            length,
            protection,
            flags,
            backing: Some(backing.clone()),
            offset: 0,
            populate: false,
        });
        let at = at.map_err(|error| if error == Errno::EEXIST { Errno::EINVAL } else { error })?;
        if let Some(attachment) = backing.attachment() {
            attachment.note_attached();
        }
        Ok(at)
    }

    /// Unmaps the segment that was attached at `address`: each part of it that is still where shmat
    /// put it (`ksys_shmdt`, ipc/shm.c).
    ///
    /// # Errors
    /// `EINVAL`: none was; `ENOMEM`.
    pub fn detach(&self, address: usize) -> Result<()> {
        if !address.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        let mut found: Option<Arc<Backing>> = None;
        loop {
            let part = relieved(|| {
                // Declared first: dropped after the lock.
                let _removed;
                let mut guard = self.table.lock();
                let (inner, mut edit) = guard.parts();
                let Some(range) = inner.next_part(address, found.as_ref()) else {
                    return Ok(None);
                };
                let part = inner.map.find(range.start).and_then(|part| part.value.backing.clone());
                _removed = inner.cut(&mut edit, range)?;
                Ok(part)
            })?;
            match part {
                Some(part) => found = Some(part),
                None => break,
            }
        }
        if found.is_some() { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl Space {
    /// Whether a segment was attached here since the space began.
    pub fn has_segments(&self) -> bool {
        self.table.lock().has_segments
    }

    /// Unmaps every segment, when no program is in the space any more though something else refers
    /// to it for a moment. Without memory for that they go with the space.
    pub fn detach_all(&self) {
        let detach_one = || {
            relieved(|| {
                // Declared first: dropped after the lock.
                let _removed;
                let mut guard = self.table.lock();
                let (inner, mut edit) = guard.parts();
                let mut segments =
                    inner.map.iter().filter(|part| part.value.attachment().is_some());
                let Some(range) = segments.next().map(|part| part.start..part.end) else {
                    return Ok(false);
                };
                _removed = inner.cut(&mut edit, range)?;
                Ok(true)
            })
        };
        while detach_one() == Ok(true) {}
    }
}

impl Inner {
    /// The next region that shmdt of `address` unmaps: of any segment, or of the one that it found.
    fn next_part(
        &self,
        address: usize,
        of: Option<&Arc<Backing>>,
    ) -> Option<core::ops::Range<usize>> {
        let mut at = address;
        let mut end = usize::MAX;
        if let Some(backing) = of {
            let size = page_up(backing.attachment()?.segment().size() as usize)?;
            end = address.saturating_add(size);
        }
        while let Some(region) = self.map.find_from(at).filter(|region| region.end <= end) {
            let mapping = &region.value;
            let is_in_place = region.start >= address
                && (region.start - address) as u64 == mapping.offset
                && mapping.attachment().is_some();
            let is_same = match (of, &mapping.backing) {
                (Some(of), Some(backing)) => Arc::ptr_eq(of, backing),
                _ => true,
            };
            if is_in_place && is_same {
                return Some(region.start..region.end);
            }
            at = region.end;
        }
        None
    }
}
