//! Recordings that are going on.
//!
//! A few programs are recorded at once. While there is one, every system call of every program
//! passes through a handler that looks whether its process is recorded; otherwise the table of
//! calls has the handlers themselves, and no program pays for recordings. So a recording belongs to
//! a slot here, not to the record of its process.
//!
//! A slot changes its number under both its lock and [`COUNT`], together with its recording: so a
//! processor that holds the slot's lock sees both of one process. A program whose recording another
//! processor took for that of an ended process would go on unwatched, with its time stamp counter
//! refused.
//!
//! Lock order: [`COUNT`] before a slot's lock. Neither is held while a recording is dropped.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayVec;
use hashbrown::HashTable;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

use super::depend;
use super::depend::{Dependency, Mark};
use super::held::{OWN, Own, OwnFile};
use super::image::Image;
use super::patch::{Moment, STEP, Window};
use super::question::Answer;
use super::table::{Causes, Entry};
use crate::process::record::Vectors;
use crate::program::Addresses;
use crate::reclaim::growth::Grow;
use crate::vfs::dentry::Dentry;
use crate::vfs::mount::{Location, Mount};

/// The calls that draw random bytes that are remembered.
const DRAWS: usize = 32;

/// The directories that are remembered.
const REACHED: usize = 4;

/// The longest path of a directory that is remembered.
const LONGEST: usize = 64;

/// A directory that the program has come to on its way to a file. It holds nothing: the directory
/// may be removed, and its file system unmounted, as if the program were not recorded.
pub struct Reached {
    path: ArrayVec<u8, LONGEST>,
    place: Result<(Weak<Mount>, Weak<Dentry>)>,
}

/// A program while it is recorded.
pub struct Recording {
    /// The command.
    pub entry: Arc<Entry>,
    /// The image of the first recording, if this is the second.
    pub first: Option<Arc<Image>>,
    /// The serial of the process.
    pub process: u64,
    /// What spoils it.
    pub mark: Arc<Mark>,
    /// What it depends on so far, each once.
    pub dependencies: Vec<Dependency>,
    /// The places of these in the list, by their hashes.
    pub places: HashTable<usize>,
    /// Directories to which all ways are noted: it opens many files of one directory.
    pub reached: ArrayVec<Reached, REACHED>,
    /// The files that it must not touch.
    pub volatile: Causes,
    /// The answers that it saw.
    pub answers: Vec<Answer>,
    /// The random bytes that it drew.
    pub drawn: Vec<u8>,
    /// How many system calls it had made before each call that drew some; the last ones.
    pub draws: ArrayVec<u32, DRAWS>,
    /// The random bytes of its auxiliary vector.
    pub auxiliary_random: [u64; 2],
    /// Its addresses.
    pub addresses: Addresses,
    /// Where its strings lie.
    pub vectors: Vectors,
    /// The descriptors that it opened itself.
    pub own: ArrayVec<Own, OWN>,
    /// The system calls that it has made.
    pub calls: u32,
    /// The number of them at which it ends.
    pub most_calls: u32,
    /// When it began, as its program sees it.
    pub from: Moment,
    /// How far ahead that is of the kernel's time, in seconds.
    pub shift: u64,
    /// How often its program has read the counter.
    pub readings: u32,
    /// How many system calls it had made when it first saw something that varies.
    pub varies: Option<u32>,
    /// The processor time that its thread had used when it began, in nanoseconds.
    pub run: u64,
    /// Whether its dependencies belong to an image by now.
    pub done: bool,
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.done {
            depend::forget(&self.mark, &self.dependencies);
            self.entry.fail("the program ended first");
        }
    }
}

impl Recording {
    /// Notes something that the program depends on, before it looks at it. `ENOMEM`.
    pub fn depend(&mut self, on: Dependency) -> Result<()> {
        let list = &self.dependencies;
        let is_known = |&place: &usize| list.get(place) == Some(&on);
        if self.places.find(on.hash(), is_known).is_some() {
            return Ok(());
        }
        let hash = |&place: &usize| list.get(place).map_or(0, |on| on.hash());
        self.places.try_reserve(1, hash).map_err(|_| Errno::ENOMEM)?;
        let place = list.len();
        self.dependencies.make_room(1)?;
        depend::note(&self.mark, on)?;
        self.dependencies.push(on);
        // There is room, so no place is hashed anew.
        self.places.insert_unique(on.hash(), place, |_| 0);
        Ok(())
    }

    /// Forgets what was noted behind the first `count` dependencies.
    pub fn forget_from(&mut self, count: usize) {
        if let Some(gone) = self.dependencies.get(count..) {
            depend::forget(&self.mark, gone);
        }
        self.dependencies.truncate(count);
        self.places.retain(|place| *place < count);
        self.reached.clear();
    }

    /// Where the directory with this path from the root was found, or why not. `None`: that is not
    /// known, or something has changed since.
    pub fn reached(&self, path: &[u8]) -> Option<Result<Location>> {
        let known = self.reached.iter().find(|known| known.path.as_slice() == path)?;
        if self.mark.is_spoiled() {
            return None;
        }
        Some(match &known.place {
            Ok((mount, dentry)) => {
                Ok(Location { mount: mount.upgrade()?, dentry: dentry.upgrade()? })
            }
            Err(error) => Err(*error),
        })
    }

    /// Remembers where a directory was found, or why not; all that its path leads by was noted.
    pub fn note_reached(&mut self, path: &[u8], place: &Result<Location>) {
        let Ok(path) = ArrayVec::try_from(path) else { return };
        let weak = |place: &Location| (Arc::downgrade(&place.mount), Arc::downgrade(&place.dentry));
        if self.reached.is_full() {
            self.reached.remove(0);
        }
        let _ = self
            .reached
            .try_push(Reached { path, place: place.as_ref().map(weak).map_err(|e| *e) });
    }

    /// Whether recordings of the command end before this is touched.
    pub fn is_volatile(&self, on: Dependency) -> bool {
        self.volatile.contains(&on)
    }

    /// The time in which its program has lived.
    pub fn window(&self) -> Window {
        /// How long the kernel takes to read its clocks one after the other, at most, in ticks and
        /// nanoseconds.
        const SLACK: u64 = 10_000;
        let ticks = u64::from(self.readings) * STEP;
        Window {
            from: self.from.later(SLACK.wrapping_neg(), SLACK.wrapping_neg()),
            to: self.from.later(ticks + SLACK, 4 * ticks + SLACK),
        }
    }

    /// Whether its program lives in another time, of which it must not keep anything.
    pub fn is_shifted(&self) -> bool {
        self.first.is_some()
    }

    /// Notes that the program is about to see something that varies from start to start.
    pub fn note_varying(&mut self) {
        self.varies.get_or_insert(self.calls);
    }

    /// The counter as its program reads it next: it goes on by [`STEP`] with each reading, so that
    /// the time between two readings is the same in both recordings. `None`: it reads too often.
    ///
    /// * `clock` - it reads a clock of the vDSO.
    pub fn read_counter(&mut self, clock: bool) -> Option<u64> {
        const MOST: u32 = 4096;
        if clock {
            self.note_varying();
        }
        self.readings += 1;
        let ticks = u64::from(self.readings) * STEP;
        (self.readings < MOST).then(|| self.from.counter.wrapping_add(ticks))
    }

    /// Whether a descriptor is one that the program opened.
    pub fn owns(&self, fd: i32) -> bool {
        self.owned(fd).is_some()
    }

    /// The file behind a descriptor that the program opened.
    pub fn owned(&self, fd: i32) -> Option<OwnFile> {
        self.own.iter().find(|own| own.fd == fd).map(|own| own.file)
    }

    /// Notes that the call before the next drew random bytes.
    pub fn note_draw(&mut self) {
        if self.draws.is_full() {
            self.draws.remove(0);
        }
        let _ = self.draws.try_push(self.calls.saturating_sub(1));
    }

    /// Notes that a descriptor is another one for the file of `from`, which the program opened.
    pub fn copied(&mut self, from: i32, to: i32) {
        let Some(own) = self.own.iter().find(|own| own.fd == from).copied() else { return };
        if from != to {
            self.own.retain(|own| own.fd != to);
            // There was a place before the call.
            let _ = self.own.try_push(Own { fd: to, ..own });
        }
    }
}

struct Slot {
    /// The number of the process; 0: none. Changed under the lock of `recording`.
    number: AtomicU32,
    recording: SpinLock<Option<Box<Recording>>>,
}

const SLOTS: usize = 4;

static RUNNING: [Slot; SLOTS] =
    [const { Slot { number: AtomicU32::new(0), recording: SpinLock::new(None) } }; SLOTS];

/// The slots in use; the table of calls follows it.
static COUNT: SpinLock<usize> = SpinLock::new(0);

/// What makes the table of calls watch, or not.
static WATCH: Once<fn(bool)> = Once::new();

/// Registers what makes the table of calls watch recorded programs; boot calls it once, unless
/// something watches all calls that takes no notice of recordings.
pub fn watch_by(watch: fn(bool)) {
    WATCH.call_once(|| watch);
}

/// Whether programs can be recorded: nothing else watches all calls.
pub fn can_begin() -> bool {
    WATCH.get().is_some()
}

/// Begins a recording of the process with this number. If too many run already, it is dropped and
/// the result is false.
pub fn begin(number: u32, recording: Box<Recording>) -> bool {
    let Some(watch) = WATCH.get() else { return false };
    let mut count = COUNT.lock();
    let free = RUNNING.iter().find(|slot| slot.number.load(Ordering::Relaxed) == 0);
    let Some(slot) = free else {
        drop(count);
        drop(recording);
        return false;
    };
    let mut place = slot.recording.lock();
    let old = place.replace(recording);
    slot.number.store(number, Ordering::Release);
    drop(place);
    *count += 1;
    if *count == 1 {
        watch(true);
    }
    drop(count);
    drop(old);
    true
}

fn slot(number: u32) -> Option<&'static Slot> {
    RUNNING.iter().find(|slot| slot.number.load(Ordering::Acquire) == number)
}

/// Takes the recording of a process out of its slot, to be put back or ended.
#[inline]
pub fn take(number: u32, process: u64) -> Option<Box<Recording>> {
    let slot = slot(number)?;
    let mut recording = slot.recording.lock();
    recording.take_if(|recording| recording.process == process)
}

/// Puts a recording back.
pub fn put_back(number: u32, recording: Box<Recording>) {
    let Some(slot) = slot(number) else { return };
    let old = slot.recording.lock().replace(recording);
    drop(old);
}

/// Frees the slot of the current process, whose recording was taken.
pub fn end(number: u32) {
    free(number, |_| true);
}

/// Gives up the recording of a process that has ended. Its number may belong to another process by
/// now, and the slot to a recording of that.
pub fn give_up(number: u32, process: u64) {
    free(number, |recording| recording.as_ref().is_some_and(|there| there.process == process));
}

/// Frees the slot of a process if it holds what is meant.
fn free(number: u32, is_meant: impl FnOnce(&Option<Box<Recording>>) -> bool) {
    let mut count = COUNT.lock();
    let Some(slot) = slot(number) else { return };
    let mut place = slot.recording.lock();
    if !is_meant(&place) {
        return;
    }
    let old = place.take();
    slot.number.store(0, Ordering::Release);
    drop(place);
    *count -= 1;
    if *count == 0
        && let Some(watch) = WATCH.get()
    {
        watch(false);
    }
    drop(count);
    drop(old);
}

/// Whether any program is recorded.
#[inline]
pub fn is_any() -> bool {
    RUNNING.iter().any(|slot| slot.number.load(Ordering::Relaxed) != 0)
}

/// The processes whose recordings are in their slots: number and serial.
pub fn processes() -> ArrayVec<(u32, u64), SLOTS> {
    let slots = RUNNING.iter().filter_map(|slot| {
        let place = slot.recording.lock();
        let serial = place.as_ref()?.process;
        Some((slot.number.load(Ordering::Relaxed), serial))
    });
    slots.collect()
}
