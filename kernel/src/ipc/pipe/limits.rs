//! Limits on the size of pipes: of each pipe, and of all pipes of a user together (pipe(7)).
//!
//! Pages are counted only for users without privilege, because only they are limited. A pipe counts
//! for the user who made it, whichever user writes to it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames;

use crate::credentials::{Capability, Credentials};
use crate::page_cache::cache::PAGE;
use crate::vfs::users;
use crate::vfs::users::{Holdings, Limit};

/// Slots of a new pipe: 64 KiB.
pub const DEFAULT_SLOTS: usize = 16;
/// Slots of a new pipe for a user who already has many pages (`PIPE_MIN_DEF_BUFFERS`).
const FEW_SLOTS: usize = 2;
/// The largest size that can be asked for, in bytes.
const LARGEST: usize = 1 << 31;

/// The most that an unprivileged program can ask for, in bytes (`/proc/sys/fs/pipe-max-size`).
pub static MAX_SIZE: Limit = Limit::new(|| 1 << 20);
/// Pages beyond which a user's new pipes are small and none grows; 0: no limit. At first as on
/// Linux, but no more than an eighth of memory.
pub static USER_PAGES_SOFT: Limit = Limit::new(|| (1024 * DEFAULT_SLOTS).min(frames::total() / 8));
/// Pages beyond which a user gets no new pipe; 0: no limit. At first a quarter of memory. On Linux
/// there is no limit at first, so that one user's pipes can take all memory, which belongs to no
/// process that could be ended for it.
pub static USER_PAGES_HARD: Limit = Limit::new(|| frames::total() / 4);

/// Rounds a requested size up to a power of two, at least a page. `EINVAL` beyond the maximum
/// (`round_pipe_size`, fs/pipe.c).
pub fn round(bytes: usize) -> Result<usize> {
    if bytes > LARGEST { Err(Errno::EINVAL) } else { Ok(bytes.max(PAGE).next_power_of_two()) }
}

/// Changes [`MAX_SIZE`].
pub fn set_max_size(bytes: usize) -> Result<()> {
    MAX_SIZE.set(round(bytes)?);
    Ok(())
}

fn is_privileged(credentials: &Credentials) -> bool {
    credentials.has(Capability::SysResource) || credentials.has(Capability::SysAdmin)
}

fn is_beyond(limit: &Limit, pages: usize) -> bool {
    let limit = limit.get();
    limit != 0 && pages > limit
}

/// The pages that a pipe counts for; uncounted when dropped.
pub struct Share {
    /// `None` if the user who made the pipe is not limited.
    holdings: Option<Arc<Holdings>>,
    slots: AtomicUsize,
}

impl Share {
    /// Counts the pages of a new pipe. `None` when the user has too many already.
    pub fn new(credentials: &Credentials) -> Result<Option<Share>> {
        if is_privileged(credentials) {
            let slots = if credentials.has(Capability::SysResource) {
                DEFAULT_SLOTS
            } else {
                DEFAULT_SLOTS.min(MAX_SIZE.get() / PAGE)
            };
            return Ok(Some(Share { holdings: None, slots: AtomicUsize::new(slots) }));
        }
        let holdings = users::of(credentials.uid)?;
        let mut slots = DEFAULT_SLOTS.min(MAX_SIZE.get() / PAGE);
        let mut total = holdings.pipe_pages.add(slots);
        if is_beyond(&USER_PAGES_SOFT, total) && slots > FEW_SLOTS {
            holdings.pipe_pages.give(slots - FEW_SLOTS);
            total -= slots - FEW_SLOTS;
            slots = FEW_SLOTS;
        }
        let share = Share { holdings: Some(holdings), slots: AtomicUsize::new(slots) };
        Ok((!is_beyond(&USER_PAGES_HARD, total)).then_some(share))
    }

    /// Returns the number of slots that it counts for.
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    /// Changes the count to `slots`, and undoes that when `change` fails. `EPERM` if the caller may
    /// not have so many. A pipe can always become smaller. The caller holds the pipe's lock.
    pub fn resize(
        &self,
        slots: usize,
        credentials: &Credentials,
        change: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let old = self.slots();
        let grows = slots > old;
        if grows && slots * PAGE > MAX_SIZE.get() && !credentials.has(Capability::SysResource) {
            return Err(Errno::EPERM);
        }
        let total = self.holdings.as_ref().map_or(0, |holdings| {
            let total = holdings.pipe_pages.add(slots);
            holdings.pipe_pages.give(old);
            total - old
        });
        let refused = grows
            && (is_beyond(&USER_PAGES_SOFT, total) || is_beyond(&USER_PAGES_HARD, total))
            && !is_privileged(credentials);
        let outcome = if refused { Err(Errno::EPERM) } else { change() };
        match (&outcome, &self.holdings) {
            (Ok(()), _) => self.slots.store(slots, Ordering::Relaxed),
            (Err(_), Some(holdings)) => {
                holdings.pipe_pages.add(old);
                holdings.pipe_pages.give(slots);
            }
            (Err(_), None) => {}
        }
        outcome
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(holdings) = &self.holdings {
            holdings.pipe_pages.give(self.slots());
        }
    }
}
