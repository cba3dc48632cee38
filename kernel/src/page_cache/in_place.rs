//! The pages of a file that lie on non-volatile memory (OFF2F), as a part of its page cache.
//! [`crate::in_place::view`] makes this record when it opens a header file.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_machine::frames::Frame;
use hayate_machine::nvm::Extent;

use crate::in_place::store;

/// The pages of a file that lie on non-volatile memory.
pub struct InPlace {
    text: Arc<store::Text>,
    /// Sorted, without overlaps: the first page, and the frames from there on.
    runs: Vec<(u64, Extent)>,
    large: bool,
}

/// A part of a file's pages that lies on non-volatile memory.
pub struct Stretch {
    /// Its first page in the file.
    pub page: u64,
    /// Where it lies.
    pub extent: Extent,
    /// Its first page in the text.
    pub text_page: u32,
}

impl InPlace {
    /// Makes the record of the pages of `text` that `runs` lists: the first page of each run in the
    /// file, and where the run lies. `large` if the text was placed for large pages.
    pub fn new(text: Arc<store::Text>, runs: Vec<(u64, Extent)>, large: bool) -> InPlace {
        InPlace { text, runs, large }
    }

    /// Returns the text.
    pub fn text(&self) -> &Arc<store::Text> {
        &self.text
    }

    /// Whether the text was placed for large pages: then a mapping of the file from its beginning
    /// should begin at a large page.
    pub fn is_large(&self) -> bool {
        self.large
    }

    /// Returns the page at `index`, if it is one of these.
    pub fn frame(&self, index: u64) -> Option<Frame> {
        let after = self.runs.partition_point(|(first, _)| *first <= index);
        let (first, extent) = self.runs.get(after.checked_sub(1)?)?;
        extent.frame(u32::try_from(index - first).ok()?)
    }

    /// Returns the index of the first of these pages at or after `index`.
    pub fn next(&self, index: u64) -> u64 {
        let run =
            self.runs.iter().find(|(first, extent)| first + u64::from(extent.count()) > index);
        run.map_or(u64::MAX, |(first, _)| index.max(*first))
    }

    /// Returns the stretches within `count` pages from `first` on.
    pub fn stretches(&self, first: u64, count: u64) -> impl Iterator<Item = Stretch> + '_ {
        let end = first.saturating_add(count);
        let mut before = 0;
        self.runs.iter().filter_map(move |(start, extent)| {
            let text_page = before;
            before += extent.count();
            let low = first.max(*start);
            let skipped = u32::try_from(low - start).ok()?;
            let part =
                extent.part(skipped, u32::try_from(end.checked_sub(low)?).unwrap_or(u32::MAX))?;
            Some(Stretch { page: low, extent: part, text_page: text_page + skipped })
        })
    }
}
