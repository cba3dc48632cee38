//! The store: what is where, and every change of it.

use alloc::vec::Vec;
use core::ops::Range;

use hayate_off2f::{Digest, Identity, LARGE_PAGES};

use crate::disk::{ENTRY, Entry, Layout, SUPERBLOCK, VALID};
use crate::{Fault, NAME, PAGE, Region};

/// What is read at once: the kernel's stacks are small.
const PIECE: usize = 1024;

/// A published text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    slot: u64,
    /// What it is known by.
    pub identity: Identity,
    /// Its first page on the region.
    pub first: u64,
    /// Its pages.
    pub pages: u32,
    /// At which page of a large page it begins, if that matters; else [`Text::ANYWHERE`].
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

    /// The pages of the region that it takes.
    pub fn range(&self) -> Range<u64> {
        self.first..self.first + u64::from(self.pages)
    }
}

/// Room for a text that is being written. Nobody else gets it while it lives in
/// [`Store::publish`]'s caller; giving it up needs nothing.
#[derive(Debug, PartialEq, Eq)]
pub struct Grant {
    /// The first page on the region.
    pub first: u64,
    /// How many.
    pub pages: u32,
    phase: u32,
}

/// How full a store is, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// For texts, in all.
    pub total: u64,
    /// In use.
    pub used: u64,
    /// The longest free row.
    pub longest: u64,
    /// Texts.
    pub texts: u64,
    /// Texts that the directory has room for.
    pub entries: u64,
}

/// A store on a region.
pub struct Store<R> {
    region: R,
    layout: Layout,
    /// Sorted by place.
    texts: Vec<Text>,
    /// The same, for [`Store::find`]: the beginning of each identity and the first page, sorted. A
    /// search among all texts would cost a start from cold more than its header.
    index: Vec<(u64, u64)>,
    sequence: u64,
    damaged: usize,
    /// An entry that may be published on the region and is not one of the texts: a flush failed in the
    /// middle of it.
    doubtful: Option<u64>,
}

/// Tells nearly all texts from each other.
fn beginning(identity: &Identity) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = identity.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

impl<R: Region> Store<R> {
    /// Makes an empty store on the region, whatever is on it. `id` is to name this store among all.
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
                match Entry::decode(bytes) {
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

    /// Removes the higher of two equal texts: a compaction was cut between its steps.
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

    /// What the store lies on.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// What the store lies on, to write the pages of a [`Grant`].
    pub fn region_mut(&mut self) -> &mut R {
        &mut self.region
    }

    /// Gives the region back.
    pub fn into_region(self) -> R {
        self.region
    }

    /// Names this store among all.
    pub fn id(&self) -> [u8; 16] {
        self.layout.id
    }

    /// The published texts, by place.
    pub fn texts(&self) -> &[Text] {
        &self.texts
    }

    /// Entries of the directory that were left out because they are damaged.
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

    /// Which of the texts begins at a page.
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

    /// How full it is.
    pub fn usage(&self) -> Usage {
        Usage {
            total: self.layout.pages - self.layout.first(),
            used: self.texts.iter().map(|text| u64::from(text.pages)).sum(),
            longest: self.gaps().map(|gap| gap.end - gap.start).max().unwrap_or(0),
            texts: self.texts.len() as u64,
            entries: self.layout.entries(),
        }
    }

    /// The free rows of pages, by place.
    fn gaps(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let starts = core::iter::once(self.layout.first())
            .chain(self.texts.iter().map(|text| text.range().end));
        let ends = self.texts.iter().map(|text| text.first).chain([self.layout.pages]);
        starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end)
    }

    /// Where `pages` pages fit: the lowest place of the right phase ([`Text::ANYWHERE`]: of any).
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

    /// Finds room for a text of `pages` pages. `phase`: see [`Text::phase`]; what finds no room of
    /// its phase is put anywhere. Write the pages through [`Store::region_mut`], then
    /// [`Store::publish`]; until then nobody may ask for other room.
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
        // A damaged entry's slot is used again when no other is left: it is free on the region.
        let taken = |slot: u64| self.texts.iter().any(|text| text.slot == slot);
        (0..self.layout.entries()).find(|&slot| !taken(slot)).ok_or(Fault::DirectoryFull)
    }

    /// Publishes the text whose pages were written to `grant`. Its content is not read: the caller
    /// worked `identity` out while it wrote.
    ///
    /// `Exists`: a text of this identity is there, and stays.
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
        let entry = Entry {
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
        // A slot that is free on the region but for damage must not come alive half written.
        self.region.write(at, &[0; 8])?;
        self.region.flush(at, 8)?;
        self.region.write(at + 8, &bytes[8..])?;
        self.region.flush(at, ENTRY)?;
        self.doubtful = Some(slot);
        let published = self.region.write(at, &VALID.to_le_bytes());
        if let Err(fault) = published.and_then(|()| self.region.flush(at, 8)) {
            // It may have been published all the same. It must not be when its pages are used again.
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

    /// Removes a text. Nobody may be using its pages.
    pub fn remove(&mut self, identity: &Identity) -> Result<(), Fault> {
        let text = *self.find(identity).ok_or(Fault::Unknown)?;
        self.retire(text.slot)?;
        self.strike(&text);
        Ok(())
    }

    /// Removes what a failed flush may have left published. Until that is done nothing is written that
    /// could lie on the pages of it.
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

    /// Whether a text's content is that of its identity: `Damaged` if not. Reads all of it.
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

    /// Moves texts down into free rows, so that what is free becomes one. Those that `may_move`
    /// refuses stay (somebody uses them), and so do those that fit nowhere below without covering
    /// themselves. Returns how many were moved.
    pub fn compact(&mut self, mut may_move: impl FnMut(&Text) -> bool) -> Result<usize, Fault> {
        self.settle()?;
        let mut moved = 0;
        let mut index = 0;
        while let Some(text) = self.texts.get(index).copied() {
            index += 1;
            let room = self.room(text.pages, text.phase).filter(|room| {
                // Wholly below itself: a copy over itself could be cut in the middle.
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

fn text(slot: u64, entry: &Entry) -> Text {
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
