//! The store: the places of texts, and every change of them.

use alloc::vec::Vec;
use core::ops::Range;

use hayate_off2f::{Digest, Identity, LARGE_PAGES};

use crate::disk::{ENTRY, Layout, SUPERBLOCK, TextEntry, VALID};
use crate::{Fault, NAME, PAGE, Region};

/// How many bytes are read at once: the kernel's stacks are small.
const PIECE: usize = 1024;

/// A published text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    slot: u64,
    /// The identity of its content.
    pub identity: Identity,
    /// Its first page on the region.
    pub first: u64,
    /// Its number of pages.
    pub pages: u32,
    /// The offset within a large page at which it begins, in pages, if that matters; otherwise
    /// [`Text::ANYWHERE`].
    pub phase: u32,
    sequence: u64,
    name: [u8; NAME],
}

impl Text {
    /// The phase of a text that may lie anywhere.
    pub const ANYWHERE: u32 = u32::MAX;

    /// The name, for people.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(NAME);
        &self.name[..end]
    }

    /// Returns the pages of the region that it occupies.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.pages)
    }
}

/// Pages for a text that is being written, between [`Store::reserve`] and [`Store::publish`]. The
/// store does not record a grant, so the caller must not reserve again meanwhile; dropping it needs
/// no action.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// The first page on the region.
    pub first: u64,
    /// How many pages.
    pub pages: u32,
    phase: u32,
}

/// How full a store is, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Pages for texts, in total.
    pub total: u64,
    /// Pages in use.
    pub used: u64,
    /// The longest run of free pages.
    pub longest: u64,
    /// Number of texts.
    pub texts: u64,
    /// The most texts that the directory can hold.
    pub entries: u64,
}

/// A store on a region.
pub struct Store<R> {
    region: R,
    layout: Layout,
    /// Sorted by place.
    texts: Vec<Text>,
    /// An index for [`Store::find`]: the beginning of each identity and the first page, sorted. A
    /// search through all texts would cost a cold start more than reading its header.
    index: Vec<(u64, u64)>,
    sequence: u64,
    damaged: usize,
    /// An entry that is not among the texts but may be published on the region: a flush failed in
    /// the middle of its publication.
    doubtful: Option<u64>,
}

/// Distinguishes nearly all texts from each other.
fn beginning(identity: &Identity) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = identity.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl<R: Region> Store<R> {
    /// Makes an empty store on the region, whatever the region contains. `id` becomes the store's
    /// unique identifier.
    pub fn format(mut region: R, id: [u8; 16]) -> Result<Store<R>, Fault> {
        let layout = Layout::new(region.size() / PAGE, id).ok_or(Fault::TooSmall)?;
        region.write(0, &[0; 8])?;
        region.flush(0, 8)?;
        for page in 0..layout.directory {
            region.write((1 + page) * PAGE, &[0; PAGE as usize])?;
        }
        region.flush(PAGE, layout.directory * PAGE)?;
        let superblock = layout.encode();
        region.write(8, &superblock[8..])?;
        region.flush(8, SUPERBLOCK as u64 - 8)?;
        region.write(0, &superblock[..8])?;
        region.flush(0, 8)?;
        let (texts, index) = (Vec::new(), Vec::new());
        Ok(Store { region, layout, texts, index, sequence: 0, damaged: 0, doubtful: None })
    }

    /// Opens the store on the region.
    pub fn open(region: R) -> Result<Store<R>, Fault> {
        let mut superblock = [0; SUPERBLOCK];
        if region.size() < PAGE {
            return Err(Fault::NotFormatted);
        }
        region.read(0, &mut superblock)?;
        let layout = Layout::decode(&superblock).ok_or(Fault::NotFormatted)?;
        if layout.pages > region.size() / PAGE {
            return Err(Fault::Truncated);
        }
        let (texts, index) = (Vec::new(), Vec::new());
        let mut store =
            Store { region, layout, texts, index, sequence: 0, damaged: 0, doubtful: None };
        store.load()?;
        Ok(store)
    }

    fn load(&mut self) -> Result<(), Fault> {
        let mut page = [0; PAGE as usize];
        for number in 0..self.layout.directory {
            self.region.read((1 + number) * PAGE, &mut page)?;
            let (entries, _) = page.as_chunks::<{ ENTRY as usize }>();
            for (index, bytes) in entries.iter().enumerate() {
                let slot = number * (PAGE / ENTRY) + index as u64;
                match TextEntry::decode(bytes) {
                    None => {}
                    Some(entry) => {
                        let text = entry.map(|entry| text(slot, &entry));
                        match text.filter(|text| self.is_inside(text)) {
                            Some(text) => {
                                self.texts.try_reserve(1).map_err(|_| Fault::Memory)?;
                                self.texts.push(text);
                            }
                            None => self.damaged += 1,
                        }
                    }
                }
            }
        }
        self.texts.sort_unstable_by_key(|text| (text.first, text.slot));
        let mut end = self.layout.first();
        let before = self.texts.len();
        self.texts.retain(|text| {
            let free = text.first >= end;
            end = end.max(text.range().end);
            free
        });
        self.damaged += before - self.texts.len();
        self.sequence = self.texts.iter().map(|text| text.sequence).max().unwrap_or(0);
        self.remove_doubles()?;
        self.index.try_reserve_exact(self.texts.len()).map_err(|_| Fault::Memory)?;
        let entries = self.texts.iter().map(|text| (beginning(&text.identity), text.first));
        self.index.extend(entries);
        self.index.sort_unstable();
        Ok(())
    }

    fn is_inside(&self, text: &Text) -> bool {
        let end = text.first.checked_add(u64::from(text.pages));
        text.pages != 0
            && text.first >= self.layout.first()
            && end.is_some_and(|end| end <= self.layout.pages)
    }

    /// Removes the higher of two equal texts, which a compaction that was interrupted between its
    /// steps left.
    fn remove_doubles(&mut self) -> Result<(), Fault> {
        let mut index = 0;
        while let Some(text) = self.texts.get(index).copied() {
            if self.texts[..index].iter().any(|other| other.identity == text.identity) {
                self.retire(text.slot)?;
                self.texts.remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Returns the store's region.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// Returns the store's region, to write the pages of a [`Grant`].
    pub fn region_mut(&mut self) -> &mut R {
        &mut self.region
    }

    /// Gives the region back.
    pub fn into_region(self) -> R {
        self.region
    }

    /// Returns the store's unique identifier.
    pub fn id(&self) -> [u8; 16] {
        self.layout.id
    }

    /// The published texts, by place.
    pub fn texts(&self) -> &[Text] {
        &self.texts
    }

    /// Returns how many entries of the directory were left out because they are damaged.
    pub fn damaged(&self) -> usize {
        self.damaged
    }

    /// The text of this identity.
    pub fn find(&self, identity: &Identity) -> Option<&Text> {
        let wanted = beginning(identity);
        let at = self.index.partition_point(|(beginning, _)| *beginning < wanted);
        let alike = self.index.iter().skip(at).take_while(|(beginning, _)| *beginning == wanted);
        let mut texts = alike.filter_map(|(_, first)| self.texts.get(self.at(*first)?));
        texts.find(|text| text.identity == *identity)
    }

    /// Returns the index of the text that begins at a page.
    fn at(&self, first: u64) -> Option<usize> {
        self.texts.binary_search_by_key(&first, |text| text.first).ok()
    }

    fn enlist(&mut self, text: Text) {
        let place = self.texts.partition_point(|other| other.first < text.first);
        self.texts.insert(place, text);
        let entry = (beginning(&text.identity), text.first);
        let place = self.index.partition_point(|other| *other < entry);
        self.index.insert(place, entry);
    }

    fn strike(&mut self, text: &Text) {
        self.texts.retain(|other| other.slot != text.slot);
        let entry = (beginning(&text.identity), text.first);
        self.index.retain(|other| *other != entry);
    }

    /// Returns how full the store is.
    pub fn usage(&self) -> Usage {
        Usage {
            total: self.layout.pages - self.layout.first(),
            used: self.texts.iter().map(|text| u64::from(text.pages)).sum(),
            longest: self.gaps().map(|gap| gap.end - gap.start).max().unwrap_or(0),
            texts: self.texts.len() as u64,
            entries: self.layout.entries(),
        }
    }

    /// Returns the runs of free pages, by place.
    fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let starts = core::iter::once(self.layout.first())
            .chain(self.texts.iter().map(|text| text.range().end));
        let ends = self.texts.iter().map(|text| text.first).chain([self.layout.pages]);
        starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end)
    }

    /// Returns where `pages` pages fit: the lowest place of the right phase ([`Text::ANYWHERE`]: of
    /// any phase).
    fn room(&self, pages: u32, phase: u32) -> Option<u64> {
        let large = u64::from(LARGE_PAGES);
        self.gaps().find_map(|gap| {
            let start = if phase == Text::ANYWHERE {
                gap.start
            } else {
                let ahead = (u64::from(phase) % large + large - gap.start % large) % large;
                gap.start.checked_add(ahead)?
            };
            (start.checked_add(u64::from(pages))? <= gap.end).then_some(start)
        })
    }

    /// Reserves pages for a text of `pages` pages. `phase`: see [`Text::phase`]; if no place of its
    /// phase is free, the text is put anywhere. Write the pages through [`Store::region_mut`], then
    /// call [`Store::publish`]; the caller must not reserve other pages until then.
    ///
    /// `Full`; `DirectoryFull`; `Device`.
    pub fn reserve(&mut self, pages: u32, phase: u32) -> Result<Grant, Fault> {
        if pages == 0 {
            return Err(Fault::Full);
        }
        self.settle()?;
        self.free_slot()?;
        let place = self.room(pages, phase).map(|first| (first, phase));
        let anywhere = || self.room(pages, Text::ANYWHERE).map(|first| (first, Text::ANYWHERE));
        let (first, phase) = place.or_else(anywhere).ok_or(Fault::Full)?;
        Ok(Grant { first, pages, phase })
    }

    fn free_slot(&self) -> Result<u64, Fault> {
        // The slot of a damaged entry is reused when no other slot is left: on the region it is
        // free.
        let taken = |slot: u64| self.texts.iter().any(|text| text.slot == slot);
        (0..self.layout.entries()).find(|&slot| !taken(slot)).ok_or(Fault::DirectoryFull)
    }

    /// Publishes the text whose pages were written to `grant`. Its content is not read: the caller
    /// computed `identity` while writing.
    ///
    /// `Exists`: there is already a text of this identity, which stays.
    pub fn publish(
        &mut self,
        grant: Grant,
        identity: Identity,
        name: &[u8],
    ) -> Result<Text, Fault> {
        if self.find(&identity).is_some() {
            return Err(Fault::Exists);
        }
        self.enter(grant, identity, name)
    }

    fn enter(&mut self, grant: Grant, identity: Identity, name: &[u8]) -> Result<Text, Fault> {
        self.texts.try_reserve(1).map_err(|_| Fault::Memory)?;
        self.index.try_reserve(1).map_err(|_| Fault::Memory)?;
        let slot = self.free_slot()?;
        let mut short = [0; NAME];
        let length = name.len().min(NAME);
        short[..length].copy_from_slice(&name[..length]);
        let entry = TextEntry {
            identity,
            first: grant.first,
            pages: grant.pages,
            phase: grant.phase,
            sequence: self.sequence + 1,
            name: short,
        };
        self.region.flush(grant.first * PAGE, u64::from(grant.pages) * PAGE)?;
        let at = PAGE + slot * ENTRY;
        let bytes = entry.encode();
        // The entry of a slot that is free only because it is damaged must not become valid half
        // written.
        self.region.write(at, &[0; 8])?;
        self.region.flush(at, 8)?;
        self.region.write(at + 8, &bytes[8..])?;
        self.region.flush(at, ENTRY)?;
        self.doubtful = Some(slot);
        let published = self.region.write(at, &VALID.to_le_bytes());
        if let Err(fault) = published.and_then(|()| self.region.flush(at, 8)) {
            // It may have been published nevertheless. It must not be when its pages are used
            // again.
            let _ = self.settle();
            return Err(fault);
        }
        self.doubtful = None;
        self.sequence += 1;
        let text = text(slot, &entry);
        self.enlist(text);
        Ok(text)
    }

    /// Writes `content` (padded with zeroes to whole pages) and publishes it under the identity of
    /// those pages.
    pub fn put(&mut self, content: &[u8], phase: u32, name: &[u8]) -> Result<Text, Fault> {
        let pages =
            u32::try_from(content.len().div_ceil(PAGE as usize)).map_err(|_| Fault::Full)?;
        let grant = self.reserve(pages, phase)?;
        let mut digest = Digest::new();
        for (number, part) in (grant.first..).zip(content.chunks(PAGE as usize)) {
            let mut page = [0; PAGE as usize];
            page[..part.len()].copy_from_slice(part);
            self.region.write(number * PAGE, &page)?;
            digest.update(&page);
        }
        self.publish(grant, digest.finish(), name)
    }

    /// Removes a text. Its pages must not be in use.
    pub fn remove(&mut self, identity: &Identity) -> Result<(), Fault> {
        let text = *self.find(identity).ok_or(Fault::Unknown)?;
        self.retire(text.slot)?;
        self.strike(&text);
        Ok(())
    }

    /// Removes an entry that a failed flush may have published. Until that has succeeded, nothing
    /// is written that could lie on its pages.
    fn settle(&mut self) -> Result<(), Fault> {
        if let Some(slot) = self.doubtful {
            self.retire(slot)?;
            self.doubtful = None;
        }
        Ok(())
    }

    fn retire(&mut self, slot: u64) -> Result<(), Fault> {
        let at = PAGE + slot * ENTRY;
        self.region.write(at, &[0; 8])?;
        self.region.flush(at, 8)
    }

    /// Checks whether a text's content matches its identity: `Damaged` if not. Reads all of it.
    pub fn verify(&self, text: &Text) -> Result<(), Fault> {
        let mut digest = Digest::new();
        let mut piece = [0; PIECE];
        let range = text.range();
        for at in (range.start * PAGE..range.end * PAGE).step_by(PIECE) {
            self.region.read(at, &mut piece)?;
            digest.update(&piece);
        }
        if digest.finish() == text.identity { Ok(()) } else { Err(Fault::Damaged) }
    }

    /// Moves texts down into free pages, so that the free pages become one run. A text that
    /// `may_move` refuses stays (it is in use), and so does a text that fits nowhere below without
    /// overlapping itself. Returns how many were moved.
    pub fn compact(&mut self, mut may_move: impl FnMut(&Text) -> bool) -> Result<usize, Fault> {
        self.settle()?;
        let mut moved = 0;
        let mut index = 0;
        while let Some(text) = self.texts.get(index).copied() {
            index += 1;
            let room = self.room(text.pages, text.phase).filter(|room| {
                // Wholly below itself: a copy that overlaps its source could be interrupted in the
                // middle.
                room + u64::from(text.pages) <= text.first
            });
            let Some(first) = room else { continue };
            if !may_move(&text) || self.free_slot().is_err() {
                continue;
            }
            let mut piece = [0; PIECE];
            for at in (0..u64::from(text.pages) * PAGE).step_by(PIECE) {
                self.region.read(text.first * PAGE + at, &mut piece)?;
                self.region.write(first * PAGE + at, &piece)?;
            }
            let grant = Grant { first, pages: text.pages, phase: text.phase };
            self.enter(grant, text.identity, text.name())?;
            self.retire(text.slot)?;
            self.strike(&text);
            moved += 1;
        }
        Ok(moved)
    }
}

fn text(slot: u64, entry: &TextEntry) -> Text {
    Text {
        slot,
        identity: entry.identity,
        first: entry.first,
        pages: entry.pages,
        phase: entry.phase,
        sequence: entry.sequence,
        name: entry.name,
    }
}
