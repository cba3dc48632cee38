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
//! Lock order: a part's lock is a leaf; pages are filled, entered and dropped outside of it. Each
//! processor has a part of its own, and `take` looks into the others only when its own has no
//! match.

use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};

use hayate_abi::{Errno, Result};
use hayate_recycler::{Keep, Kept, Kind, Pool, RegionKey, Role};
use hayate_space_map::Region;
use machine::cpu::{self, MAX_CPUS};
use machine::frames::{self, Frame};
use machine::paging::{Edit, Fate, Found, PageKind, Slot};
use machine::sync::SpinLock;

use super::registry;
use super::registry::{Attributes, Entry, Serial, Source};
use super::{policy, pools, statistics};
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
struct Idle {
    pages: Vec<(u32, Frame)>,
    content: Option<Content>,
    since: u64,
    serial: u64,
}

type Part = SpinLock<Pool<RegionKey, Idle>>;

static PARTS: [Part; MAX_CPUS] = [const { SpinLock::new(Pool::new(0)) }; MAX_CPUS];
/// What all parts together may hold, in bytes.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static SERIALS: AtomicU64 = AtomicU64::new(1);

/// The pools of kept regions, for [`pools`] and the [`registry`].
struct Regions;

/// Sets the limit (an eighth of memory) and registers the pools; boot calls it once.
pub fn init() {
    pools::Keeper::set_limit(&Regions, frames::total() / 8 * PAGE);
    pools::register(&Regions);
    registry::register(&Regions);
}

/// Whether regions are to be kept by themselves and not in their spaces.
pub fn are_wanted() -> bool {
    policy::keeps(Keep::REGION) && !policy::keeps_whole_spaces()
}

/// The role of a region in its program; `None` if such regions are not kept.
fn role(mapping: &Mapping) -> Option<Role> {
    let Mapping { protection, flags, backing, .. } = mapping;
    if flags.intersects(RegionFlags::SHARED | RegionFlags::HEAP) {
        return None;
    }
    let writable = protection.contains(Protection::WRITE);
    match backing {
        None if flags.contains(RegionFlags::STACK) => Some(Role::Stack),
        None => writable.then_some(Role::Bss),
        Some(_) if writable => Some(Role::Data),
        // Text on non-volatile memory is entered in the page table when it is mapped.
        Some(backing) if backing.page_cache.place().is_some() => None,
        Some(_) => Some(Role::Text),
    }
}

/// The role of a region in its program, if keeping the region is worthwhile.
fn worthy(region: &Region<Mapping>) -> Option<Role> {
    if region.size() < WORTH {
        return None;
    }
    role(&region.value).filter(|role| *role != Role::Text || policy::keeps(Keep::TEXT))
}

/// Whether a program that begins with these `regions` has one worth keeping, besides its stack.
pub fn are_worthy<'a>(mut regions: impl Iterator<Item = &'a Region<Mapping>>) -> bool {
    regions.any(|region| worthy(region).is_some_and(|role| role != Role::Stack))
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Text => "text",
        Role::Data => "data",
        Role::Bss => "bss",
        Role::Stack => "stack",
    }
}

fn key(role: Role, size: usize) -> RegionKey {
    RegionKey { role, bytes: if role == Role::Stack { STACK } else { size } }
}

/// Takes the regions of an ended program out of its space, which has no other user. Call it without
/// locks.
pub fn keep(space: &Space) {
    let found = space.take_regions();
    if !found.is_empty() {
        let since = time::monotonic_ns();
        for (key, mut idle) in found {
            idle.since = since;
            store(key, idle);
        }
    }
}

fn store(key: RegionKey, idle: Idle) {
    let bytes = idle.pages.len() * PAGE;
    let part = &PARTS[cpu::id()];
    // A refused region is dropped after the lock is released.
    let kept = part.lock().keep(key, idle, bytes);
    if kept.is_ok() {
        statistics::stored(Kind::Region, bytes);
        drop_excess(part);
    }
}

fn drop_excess(part: &Part) {
    loop {
        // The lock is not held while the pages are dropped.
        let gone = part.lock().excess();
        let Some(gone) = gone else { return };
        statistics::dropped(Kind::Region, gone.bytes);
    }
}

fn take(key: &RegionKey, content: Option<Content>) -> Option<Kept<RegionKey, Idle>> {
    let fits = |idle: &Idle| key.role != Role::Text || idle.content == content;
    let own = cpu::id();
    let kept = PARTS[own].lock().take_if(key, fits);
    kept.or_else(|| {
        let others = (0..cpu::count()).filter(|&other| other != own);
        others.filter_map(|other| PARTS[other].try_lock()?.take_if(key, fits)).next()
    })
}

/// Takes the pages of a region of the origin out of the page table, as far as the same content is
/// still mapped there.
fn lift(
    inner: &Inner,
    edit: &mut Edit<'_>,
    region: &Region<Mapping>,
    found: &mut Vec<(RegionKey, Idle)>,
) {
    let Some(role) = worthy(region) else { return };
    let range = match role {
        Role::Stack => region.end.saturating_sub(STACK).max(region.start)..region.end,
        _ => region.start..region.end,
    };
    let mut pages: Vec<(u32, Frame)> = Vec::new();
    let mut visit = |page: &Found| {
        let fits = match role {
            Role::Text => page.kind == PageKind::File,
            _ => page.kind == PageKind::Private && page.frame().references() == 1,
        };
        if fits && pages.make_room(1).is_ok() {
            let bytes = match role {
                Role::Stack => region.end - PAGE - page.address,
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
    let idle = Idle { pages, content, since: 0, serial };
    found.push((key(role, region.size()), idle));
}

impl Space {
    /// Takes all regions that can be kept, if a program began here. (None did in a fork's child.)
    fn take_regions(&self) -> Vec<(RegionKey, Idle)> {
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
        if range.len() >= WORTH && are_wanted() {
            self.enter_kept(range);
        }
    }

    #[cold]
    fn enter_kept(&self, range: Range<usize>) {
        let Some(mapping) = self.mapping_of(&range) else { return };
        let Some(role) = role(&mapping) else { return };
        let content = Content::of(&mapping);
        let kept = take(&key(role, range.len()), content);
        let Some(Kept { value, bytes, .. }) = kept else {
            statistics::made(Kind::Region);
            return;
        };
        if let Some(backing) = &mapping.backing {
            backing.page_cache.remember();
        }
        let place = |index: u32| match role {
            Role::Stack => (range.end - PAGE).checked_sub(index as usize * PAGE),
            _ => range.start.checked_add(index as usize * PAGE),
        };
        let mut pages = value.pages;
        pages.retain(|(index, frame)| {
            let Some(at) = place(*index).filter(|at| range.contains(at)) else { return false };
            match role {
                Role::Text => true,
                Role::Bss | Role::Stack => {
                    frame.zero();
                    true
                }
                Role::Data => {
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
        statistics::reused(Kind::Region, bytes);
        let kind = if role == Role::Text { PageKind::File } else { PageKind::Private };
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

impl pools::Keeper for Regions {
    fn kind(&self) -> Kind {
        Kind::Region
    }

    fn is_wanted(&self) -> bool {
        are_wanted()
    }

    fn limit(&self) -> usize {
        LIMIT.load(Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        LIMIT.store(bytes, Relaxed);
        for part in &PARTS {
            part.lock().set_limit(bytes / cpu::count().max(1));
            drop_excess(part);
        }
    }

    fn oldest(&self) -> Option<u64> {
        PARTS.iter().filter_map(|part| Some(part.lock().iter().next()?.value.since)).min()
    }

    fn drop_oldest(&self) -> Option<usize> {
        let ages =
            PARTS.iter().filter_map(|part| Some((part.lock().iter().next()?.value.since, part)));
        let (_, part) = ages.min_by_key(|(since, _)| *since)?;
        let gone = part.lock().take_oldest()?;
        statistics::dropped(Kind::Region, gone.bytes);
        Some(gone.bytes)
    }

    fn forget_page_cache(&self, id: u64) {
        for part in &PARTS {
            loop {
                let gone = part.lock().take_where(|_, idle| {
                    idle.content.is_some_and(|content| content.page_cache == id)
                });
                let Some(gone) = gone else { break };
                statistics::dropped(Kind::Region, gone.bytes);
            }
        }
    }
}

impl Source for Regions {
    fn kind(&self) -> Kind {
        Kind::Region
    }

    fn visit(&self, show: &mut dyn FnMut(Entry)) -> Result<()> {
        for part in &PARTS {
            let mut entries: Vec<Entry> = Vec::new();
            {
                let part = part.lock();
                entries.make_room(part.len())?;
                entries.extend(part.iter().map(|kept| Entry {
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

    fn describe(&self, serial: Serial, to: &mut Attributes) -> Result<()> {
        let find = |part: &Part| {
            let part = part.lock();
            let kept = part.iter().find(|kept| Serial::of(kept.value.serial) == serial)?;
            Some((kept.key, kept.value.pages.len()))
        };
        let (key, pages) = PARTS.iter().find_map(find).ok_or(Errno::ENOENT)?;
        to.add("role", format_args!("{}", name(key.role)))?;
        to.add("size", format_args!("{}", key.bytes))?;
        to.add("resident-pages", format_args!("{pages}"))
    }
}
