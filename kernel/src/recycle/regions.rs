//! Regions kept without their space: the pages of text, data, bss and stack, for a region of the
//! same role and size in whatever space comes next.
//!
//! Spaces that are kept whole ([`super::spaces`]) contain their regions, and this module does
//! nothing. If the policy keeps regions but not spaces (`recycle=region`, a row of the Tender
//! papers), the pages are taken out of the space of a program that ends. They are entered all at
//! once where exec maps a region like theirs, which saves the faults that would have brought them
//! one by one.
//!
//! | role | matches | its pages |
//! |---|---|---|
//! | text | the same size, and the same part of the same content | unchanged: the file's own pages; only with `text` in the policy |
//! | data | the same size | overwritten with the content of the new file |
//! | bss | the same size | zeroed |
//! | stack | always, as many pages as fit | zeroed |
//!
//! Small regions are not kept, because a few faults cost less. A program without a region of
//! [`WORTH`] bytes runs as if nothing were kept.
//!
//! Every private page is overwritten as a whole before it is entered again. The dirty bit is not
//! trusted here, because the next program may be another program of another user. Private pages of
//! read-only regions are not kept, nor are pages that another process still shares.
//!
//! The regions are in a [`PerCpuPool`]; their pages are filled, entered and dropped outside of its
//! locks.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use hayate_abi::{Errno, Result};
use hayate_recycler::{KeptKinds, RegionKey, RegionRole, ResourceKind, Stored};
use hayate_space_map::Region;
use machine::frames::{self, Frame};
use machine::paging::{Edit, Fate, Found, PageKind, Slot};

use super::per_cpu_pool::{PerCpuPool, Resource};
use super::registry;
use super::registry::{ResourceAttributes, ResourceRow, ResourceSource, Serial};
use super::{policy, statistics};
use crate::memory::page::PAGE;
use crate::memory::region::{Mapping, Protection, RegionFlags};
use crate::memory::space::{Inner, Space};
use crate::reclaim::growth::Grow;
use crate::schedule::time;

/// How much of a stack is kept, in bytes: as much as a program uses at its beginning.
const STACK: usize = 128 * 1024;

/// The least size of a region that is kept, in bytes. The faults of a smaller one cost less than
/// taking its pages out and entering them again.
const WORTH: usize = 8 * PAGE;

/// The least number of pages in memory of a region that is kept. (A stack is large, but hardly
/// used.)
const WORTH_PAGES: usize = 4;

/// The part of a file that a region shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Content {
    page_cache: u64,
    version: u64,
    offset: u64,
}

impl Content {
    fn of(mapping: &Mapping) -> Option<Content> {
        let page_cache = &mapping.backing.as_ref()?.page_cache;
        Some(Content {
            page_cache: page_cache.id(),
            version: page_cache.version(),
            offset: mapping.offset,
        })
    }
}

/// A kept region: its pages, each with its index. A stack's pages are counted from its top.
struct KeptRegion {
    pages: Vec<(u32, Frame)>,
    content: Option<Content>,
    since: u64,
    serial: u64,
}

impl Resource for KeptRegion {
    type Key = RegionKey;

    const KIND: ResourceKind = ResourceKind::Region;

    fn is_wanted() -> bool {
        are_wanted()
    }

    fn since(&self) -> u64 {
        self.since
    }

    fn refers_to(&self, _: &RegionKey, page_cache: u64) -> bool {
        self.content.is_some_and(|content| content.page_cache == page_cache)
    }
}

static POOL: PerCpuPool<KeptRegion> = PerCpuPool::new();
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// The kept regions, for the [`registry`].
struct Regions;

/// Sets the limit (an eighth of memory) and registers the pool; boot calls it once.
pub fn init() {
    POOL.init(frames::total() / 8 * PAGE);
    registry::register(&Regions);
}

/// Whether regions are to be kept by themselves and not in their spaces.
pub fn are_wanted() -> bool {
    policy::keeps(KeptKinds::REGION) && !policy::keeps_whole_spaces()
}

/// The role of a region in its program; `None` if such regions are not kept.
fn role(mapping: &Mapping) -> Option<RegionRole> {
    let Mapping { protection, flags, backing, .. } = mapping;
    if flags.intersects(RegionFlags::SHARED | RegionFlags::HEAP) {
        return None;
    }
    let writable = protection.contains(Protection::WRITE);
    match backing {
        None if flags.contains(RegionFlags::STACK) => Some(RegionRole::Stack),
        None => writable.then_some(RegionRole::Bss),
        Some(_) if writable => Some(RegionRole::Data),
        // Text on non-volatile memory is entered in the page table when it is mapped.
        Some(backing) if backing.page_cache.place().is_some() => None,
        Some(_) => Some(RegionRole::Text),
    }
}

/// The role of a region in its program, if keeping the region is worthwhile.
fn worthy(region: &Region<Mapping>) -> Option<RegionRole> {
    if region.size() < WORTH {
        return None;
    }
    role(&region.value).filter(|role| *role != RegionRole::Text || policy::keeps(KeptKinds::TEXT))
}

/// Whether a program that begins with these `regions` has one worth keeping, besides its stack.
pub fn are_worthy<'a>(mut regions: impl Iterator<Item = &'a Region<Mapping>>) -> bool {
    regions.any(|region| worthy(region).is_some_and(|role| role != RegionRole::Stack))
}

fn name(role: RegionRole) -> &'static str {
    match role {
        RegionRole::Text => "text",
        RegionRole::Data => "data",
        RegionRole::Bss => "bss",
        RegionRole::Stack => "stack",
    }
}

fn key(role: RegionRole, size: usize) -> RegionKey {
    RegionKey { role, bytes: if role == RegionRole::Stack { STACK } else { size } }
}

/// Takes the regions of an ended program out of its space, which has no other user. Call it without
/// locks.
pub fn keep(space: &Space) {
    let found = space.take_regions();
    if !found.is_empty() {
        let since = time::monotonic_ns();
        for (key, mut region) in found {
            region.since = since;
            let bytes = region.pages.len() * PAGE;
            POOL.store(key, region, bytes);
        }
    }
}

/// Takes the pages of a region of the origin out of the page table, as far as the same content is
/// still mapped there.
fn lift(
    inner: &Inner,
    edit: &mut Edit<'_>,
    region: &Region<Mapping>,
    found: &mut Vec<(RegionKey, KeptRegion)>,
) {
    let Some(role) = worthy(region) else { return };
    let range = match role {
        RegionRole::Stack => region.end.saturating_sub(STACK).max(region.start)..region.end,
        _ => region.start..region.end,
    };
    let mut pages: Vec<(u32, Frame)> = Vec::new();
    let mut visit = |page: &Found| {
        let fits = match role {
            RegionRole::Text => page.kind == PageKind::File,
            _ => page.kind == PageKind::Private && page.frame().references() == 1,
        };
        if fits && pages.make_room(1).is_ok() {
            let bytes = match role {
                RegionRole::Stack => region.end - PAGE - page.address,
                _ => page.address - region.start,
            };
            pages.push(((bytes / PAGE) as u32, page.frame().clone()));
        }
        Fate::Drop
    };
    for now in inner.map.overlapping(range.clone()) {
        let common = now.start.max(range.start)..now.end.min(range.end);
        if region.value.shows_same(region.start, &now.value, now.start, common.start) {
            // If memory to split a table is exhausted, some pages stay and are freed with the
            // space.
            let _ = edit.restore(common, &mut visit);
        }
    }
    if pages.len() < WORTH_PAGES || found.make_room(1).is_err() {
        return;
    }
    let serial = SERIALS.fetch_add(1, Relaxed);
    let content = Content::of(&region.value);
    let kept = KeptRegion { pages, content, since: 0, serial };
    found.push((key(role, region.size()), kept));
}

impl Space {
    /// Takes all regions that can be kept, if a program began here. (None did in a fork's child.)
    fn take_regions(&self) -> Vec<(RegionKey, KeptRegion)> {
        let mut found = Vec::new();
        let mut guard = self.table.lock();
        let (inner, mut edit) = guard.parts();
        let Some(origin) = inner.origin.take() else { return found };
        for region in origin.regions() {
            lift(inner, &mut edit, region, &mut found);
        }
        // A stack at a random address is not part of the origin.
        let stack = inner.map.find(inner.layout.stack_top - 1);
        if let Some(stack) = stack.filter(|_| origin.is_randomised()) {
            lift(inner, &mut edit, stack, &mut found);
        }
        found
    }

    /// Enters the pages of a kept region where a region like it has just been mapped, in a space in
    /// which no thread runs yet. Faults bring the pages if none is kept or memory is exhausted.
    #[inline]
    pub fn recycle_region(&self, range: Range<usize>) {
        if range.len() >= WORTH && are_wanted() && self.table.owner() == 0 {
            self.enter_kept(range);
        }
    }

    #[cold]
    fn enter_kept(&self, range: Range<usize>) {
        let Some(mapping) = self.mapping_of(&range) else { return };
        let Some(role) = role(&mapping) else { return };
        let content = Content::of(&mapping);
        let fits = |region: &KeptRegion| role != RegionRole::Text || region.content == content;
        let Some(Stored { value, bytes, .. }) = POOL.take(&key(role, range.len()), fits) else {
            statistics::made(ResourceKind::Region);
            return;
        };
        if let Some(backing) = &mapping.backing {
            backing.page_cache.remember();
        }
        let place = |index: u32| match role {
            RegionRole::Stack => (range.end - PAGE).checked_sub(index as usize * PAGE),
            _ => range.start.checked_add(index as usize * PAGE),
        };
        let mut pages = value.pages;
        pages.retain(|(index, frame)| {
            let Some(at) = place(*index).filter(|at| range.contains(at)) else { return false };
            match role {
                RegionRole::Text => true,
                RegionRole::Bss | RegionRole::Stack => {
                    frame.zero();
                    true
                }
                RegionRole::Data => {
                    let backing = mapping.backing.as_ref();
                    let pristine = backing
                        .and_then(|file| file.page_cache.peek(mapping.index(range.start, at)));
                    pristine.is_some_and(|pristine| {
                        frame.copy_from(&pristine);
                        true
                    })
                }
            }
        });
        statistics::reused(ResourceKind::Region, bytes);
        let kind = if role == RegionRole::Text { PageKind::File } else { PageKind::Private };
        let mut access = mapping.protection.access();
        access.write &= kind == PageKind::Private;
        let mut guard = self.table.lock();
        let (_, mut edit) = guard.parts();
        let mut last: Option<(usize, Slot<'_, '_>)> = None;
        for (index, frame) in pages {
            let Some(at) = place(index) else { continue };
            // Most pages follow the page before them.
            let next = last.filter(|(before, _)| before + PAGE == at);
            let next = next.and_then(|(_, slot)| slot.next());
            let Some(slot) = (match next {
                Some(slot) => Some(slot),
                None => edit.slot(at),
            }) else {
                return;
            };
            // A page that is present already stays.
            let _ = slot.fill(frame, kind, access);
            last = Some((at, slot));
        }
    }

    /// The mapping that contains `range`, seen from the start of `range`.
    fn mapping_of(&self, range: &Range<usize>) -> Option<Mapping> {
        let mut guard = self.table.lock();
        let (inner, ..) = guard.parts();
        let region = inner.map.find(range.start).filter(|region| region.end >= range.end)?;
        let mut mapping = region.value.clone();
        mapping.offset += (range.start - region.start) as u64;
        Some(mapping)
    }
}

impl ResourceSource for Regions {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Region
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        for part in POOL.parts() {
            let mut entries: Vec<ResourceRow> = Vec::new();
            {
                let part = part.lock();
                entries.make_room(part.len())?;
                entries.extend(part.iter().map(|kept| ResourceRow {
                    serial: Serial::of(kept.value.serial),
                    name: name(kept.key.role).into(),
                    owner: 0,
                    bytes: kept.bytes as u64,
                    kept: true,
                }));
            }
            entries.into_iter().for_each(&mut *show);
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let found = POOL.parts().find_map(|part| {
            let part = part.lock();
            let kept = part.iter().find(|kept| Serial::of(kept.value.serial) == serial)?;
            Some((kept.key, kept.value.pages.len()))
        });
        let (key, pages) = found.ok_or(Errno::ENOENT)?;
        to.add("role", format_args!("{}", name(key.role)))?;
        to.add("size", format_args!("{}", key.bytes))?;
        to.add("resident-pages", format_args!("{pages}"))
    }
}
