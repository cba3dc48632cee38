//! The records of a space's call sites, which lie below memory and are kept in each space.
//! [`super::call_sites`] patches the sites.

use alloc::vec::Vec;

use hayate_call_sites::{self as call_sites, Form, Left};

use crate::reclaim::growth::Grow;

/// Bytes of an area of trampolines. For every address of a site, the area has a place for which the
/// jump's third byte has the required value (256 bytes in each 64 KiB).
pub(super) const AREA: usize = 128 << 10;
/// Distance between trampolines, in bytes.
pub(super) const STEP: usize = call_sites::TRAMPOLINE;
/// The most sites that are remembered, patched or not.
pub(super) const MOST: usize = 4096;

/// A site that was patched at least once.
#[derive(Clone, Copy)]
pub(super) struct Site {
    /// The address of the `syscall`.
    pub(super) at: usize,
    pub(super) form: Form,
    pub(super) jump_at: usize,
    pub(super) jump: [u8; call_sites::JUMP],
    /// The bytes that the jump replaced.
    pub(super) original: [u8; call_sites::JUMP],
    pub(super) trampoline: usize,
    /// The address of the jump's third byte, which is a breakpoint, and where execution continues.
    pub(super) breakpoint: Option<(usize, usize)>,
    /// Whether the jump is in place.
    pub(super) active: bool,
}

/// An area of trampolines, with a bit for each place that is used.
#[derive(Clone)]
pub(super) struct Area {
    pub(super) start: usize,
    pub(super) used: [u64; AREA / STEP / 64],
}

/// The records of a space's call sites.
#[derive(Default)]
pub struct Sites {
    pub(super) patched: Vec<Site>,
    pub(super) left: Vec<(usize, Left)>,
    pub(super) areas: Vec<Area>,
}

/// The numbers for `/proc/PID/mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteCounts {
    /// Sites that are jumps now.
    pub patched: usize,
    /// Sites that were jumps, and have their original bytes back.
    pub restored: usize,
    /// Sites left unchanged, by [`Left::ALL`].
    pub left: [usize; Left::ALL.len()],
}

impl Sites {
    /// Copies the sites for a fork. `None`: memory is exhausted.
    pub fn try_clone(&self) -> Option<Sites> {
        fn copy<T: Clone>(from: &[T]) -> Option<Vec<T>> {
            let mut to = Vec::new();
            to.make_room_exact(from.len()).ok()?;
            to.extend(from.iter().cloned());
            Some(to)
        }
        Some(Sites {
            patched: copy(&self.patched)?,
            left: copy(&self.left)?,
            areas: copy(&self.areas)?,
        })
    }

    /// Remembers a site that is left unchanged.
    pub(super) fn leave(&mut self, site: usize, why: Left) {
        if self.left.len() < MOST && self.left.make_room(1).is_ok() {
            let place = self.left.partition_point(|&(at, _)| at < site);
            self.left.insert(place, (site, why));
        }
    }

    /// Whether a site was examined and left unchanged.
    pub(super) fn is_left(&self, site: usize) -> bool {
        self.left.binary_search_by_key(&site, |&(at, _)| at).is_ok()
    }

    /// The area of trampolines that an address lies in.
    pub(super) fn area_around(&self, address: usize) -> Option<&Area> {
        self.areas.iter().find(|area| (area.start..area.start + AREA).contains(&address))
    }

    /// Takes a free place for a trampoline.
    pub(super) fn take_place(&mut self, form: &Form, site: usize) -> Option<usize> {
        self.areas.iter_mut().find_map(|area| area.take(form, site))
    }

    /// Frees the place of a trampoline.
    pub(super) fn free_place(&mut self, place: usize) {
        if let Some(area) =
            self.areas.iter_mut().find(|a| (a.start..a.start + AREA).contains(&place))
        {
            let index = (place - area.start) / STEP;
            if let Some(word) = area.used.get_mut(index / 64) {
                *word &= !(1 << (index % 64));
            }
        }
    }
}

impl Area {
    fn take(&mut self, form: &Form, site: usize) -> Option<usize> {
        let end = self.start + AREA;
        let mut at = self.start;
        loop {
            let fit = call_sites::first_fit(form, site as u64, at as u64) as usize;
            at = fit.checked_next_multiple_of(STEP)?;
            if at + STEP > end {
                return None;
            }
            let index = (at - self.start) / STEP;
            let word = self.used.get_mut(index / 64)?;
            if *word >> (index % 64) & 1 == 0 && call_sites::fits(form, site as u64, at as u64) {
                *word |= 1 << (index % 64);
                return Some(at);
            }
            at += STEP;
        }
    }
}
