//! Finds gaps in the address space.

use super::SpaceMap;
use core::ops::Range;

impl<V> SpaceMap<V> {
    /// Returns the highest address inside `within` with `size` free bytes, at a multiple of `align`
    /// (a power of two). `gap(region's value)` bytes below a region stay free (the guard of a
    /// stack).
    pub fn room_from_top(
        &self,
        size: usize,
        align: usize,
        within: Range<usize>,
        gap: impl Fn(&V) -> usize,
    ) -> Option<usize> {
        let place = |low: usize, high: usize| -> Option<usize> {
            let at = high.min(within.end).checked_sub(size)? & !(align - 1);
            (at >= low.max(within.start)).then_some(at)
        };
        if size == 0 || within.start >= within.end {
            return None;
        }
        let mut high = within.end;
        // The region above the range extends into it by its gap.
        let first = self.regions.partition_point(|region| region.start >= within.end);
        if let Some(above) = first.checked_sub(1).and_then(|above| self.regions.get(above)) {
            high = high.min(above.start.saturating_sub(gap(&above.value)));
        }
        for region in &self.regions[first..] {
            if let Some(at) = place(region.end, high) {
                return Some(at);
            }
            if region.start <= within.start {
                return None;
            }
            high = high.min(region.start.saturating_sub(gap(&region.value)));
        }
        place(within.start, high)
    }

    /// Returns the lowest such address.
    pub fn room_from_bottom(
        &self,
        size: usize,
        align: usize,
        within: Range<usize>,
        gap: impl Fn(&V) -> usize,
    ) -> Option<usize> {
        if size == 0 || within.start >= within.end {
            return None;
        }
        let fits = |low: usize, high: usize| -> Option<usize> {
            let at = low.max(within.start).checked_next_multiple_of(align)?;
            (at.checked_add(size)? <= high.min(within.end)).then_some(at)
        };
        let mut low = within.start;
        for region in self.iter() {
            if region.end <= low {
                continue;
            }
            if let Some(at) = fits(low, region.start.saturating_sub(gap(&region.value))) {
                return Some(at);
            }
            low = low.max(region.end);
            if low >= within.end {
                return None;
            }
        }
        fits(low, within.end)
    }
}
