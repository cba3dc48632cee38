//! What images depend on: names in directories, lists of directories, and files themselves.
//!
//! Everything that a program looked up, found absent, read or examined while it was recorded is
//! entered here *before* it is looked at, with the [`Mark`] of the recording. A change spoils the
//! marks of all that depend on what changed, when it happens; a start checks one flag. A file that
//! is open for writing is never depended on, and opening one for writing is a change, so writing
//! itself is not watched ([`crate::vfs::watch::Watchers::opened_to_write`]).
//!
//! Lock order: the lock of a part of the index is a leaf.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::Result;
use hayate_machine::sync::{Once, SpinLock};

use crate::hash::hash_name;
use crate::reclaim::growth::Grow;
use crate::vfs::watch::{Event, Mask, Watchers};

/// A file: its device and inode number.
pub type FileId = (u64, u64);

/// A part of a file that may change by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its content and attributes.
    Itself,
    /// All names in the directory.
    Entries,
    /// One name in the directory, by its hash. Two names with one hash only make more images
    /// depend on a change.
    Name(u64),
}

/// Something that an image depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The file.
    pub file: FileId,
    /// The part of it.
    pub part: Part,
}

impl Dependency {
    /// A number that equal ones share, all bits of which count.
    pub fn hash(self) -> u64 {
        let part = match self.part {
            Part::Itself => 0,
            Part::Entries => 1,
            Part::Name(name) => name,
        };
        let product = (spread(self.file) ^ part).wrapping_mul(SPREAD);
        product ^ product >> 32
    }
}

/// Whether something changed that a recording, and the image that it became, depends on.
#[derive(Default)]
pub struct Mark {
    spoiled: AtomicBool,
    cause: Once<Option<Dependency>>,
}

impl Mark {
    /// Whether anything changed.
    #[inline]
    pub fn is_spoiled(&self) -> bool {
        self.spoiled.load(Ordering::Acquire)
    }

    /// The first change, if it was of one file.
    pub fn cause(&self) -> Option<Dependency> {
        self.cause.get().copied().flatten()
    }

    /// Notes a change; `None`: more than one file changed.
    pub fn spoil(&self, cause: Option<Dependency>) {
        self.cause.call_once(|| cause);
        self.spoiled.store(true, Ordering::Release);
    }
}

struct Row {
    on: Dependency,
    mark: Arc<Mark>,
}

const PARTS: usize = 64;

static INDEX: [SpinLock<Vec<Row>>; PARTS] = [const { SpinLock::new(Vec::new()) }; PARTS];

/// An odd number with bits all over.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

fn spread(file: FileId) -> u64 {
    (file.1 ^ file.0 << 32).wrapping_mul(SPREAD)
}

fn part(file: FileId) -> &'static SpinLock<Vec<Row>> {
    INDEX.get((spread(file) >> 58) as usize).unwrap_or(&INDEX[0])
}

/// Notes that the recording or image with this mark depends on something. Each is noted once: a
/// recording knows what it has noted.
///
/// # Errors
/// `ENOMEM`.
pub fn note(mark: &Arc<Mark>, on: Dependency) -> Result<()> {
    let mut rows = part(on.file).lock();
    rows.make_room(1)?;
    rows.push(Row { on, mark: Arc::clone(mark) });
    Ok(())
}

/// Removes what [`note`] entered for a mark, the last first: a recording that comes to nothing has
/// its rows at the end.
pub fn forget(mark: &Arc<Mark>, all: &[Dependency]) {
    for on in all.iter().rev() {
        let mut rows = part(on.file).lock();
        let at = rows.iter().rposition(|row| row.on == *on && Arc::ptr_eq(&row.mark, mark));
        let gone = at.map(|at| rows.swap_remove(at));
        drop(rows);
        drop(gone);
    }
}

/// Spoils the marks of all that depend on a part of a file for which `changed` is true.
fn spoil(file: FileId, changed: impl Fn(Part) -> bool) {
    for row in part(file).lock().iter() {
        if row.on.file == file && changed(row.on.part) {
            row.mark.spoil(Some(row.on));
        }
    }
}

/// Spoils all marks: the tree of mounts changes.
fn spoil_all() {
    for rows in &INDEX {
        rows.lock().iter().for_each(|row| row.mark.spoil(None));
    }
}

/// What reports changes to the index.
pub struct Reports;

impl Watchers for Reports {
    fn tell(&self, file: FileId, event: Event<'_>) {
        const OF_ENTRIES: Mask =
            Mask::CREATE.union(Mask::DELETE).union(Mask::MOVED_FROM).union(Mask::MOVED_TO);
        if event.mask.intersects(OF_ENTRIES) {
            let name = hash_name(event.name);
            spoil(file, |part| part == Part::Entries || part == Part::Name(name));
        } else if event.name.is_empty() && event.mask.intersects(Mask::CHANGES) {
            spoil(file, |part| part == Part::Itself);
        }
    }

    fn tell_renamed(&self, directory: FileId) {
        spoil(directory, |part| part == Part::Entries);
    }

    fn end(&self, file: FileId) {
        spoil(file, |_| true);
    }

    fn opened_to_write(&self, file: FileId) {
        spoil(file, |part| part == Part::Itself);
    }

    fn mounts_changed(&self) {
        spoil_all();
    }
}
