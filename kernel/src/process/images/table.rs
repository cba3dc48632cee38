//! The commands that were started, and what is known of each.
//!
//! A table of sets: the hash of a start names a set of a few entries, each set has a lock of its
//! own, and the entry that was used longest ago makes room for a new one. So a start takes one lock
//! that other commands seldom want, and the table is bounded.
//!
//! A command goes through these states:
//!
//! | state | the next start |
//! |---|---|
//! | noted | is recorded |
//! | being recorded, being compared | runs as always |
//! | recorded once | is recorded with another time, and compared |
//! | ready | begins at the image |
//! | refused | runs as always |
//!
//! A change of something that the image depends on makes the next start be recorded, when it finds
//! the mark spoiled.
//!
//! Most commands are started once. So the first start of one notes a hash and nothing else
//! ([`was_noted`]), and pays for no key and no entry. Another command of the same hash, or one that
//! was forgotten, is recorded one start too soon or too late.
//!
//! Lock order: a set, then an entry's state. Images are dropped with neither held.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use hayate_abi::Result;
use hayate_machine::sync::SpinLock;
use hayate_start_account::Image as Told;

use super::depend::Dependency;
use super::image;
use super::image::Image;
use super::key::{Asked, Key};
use crate::reclaim::growth::Grow;
use crate::schedule::time;

/// A command.
pub struct Entry {
    /// What it is.
    pub key: Key,
    /// A number that no other entry has.
    pub serial: u64,
    state: SpinLock<State>,
    /// When it was last started, on the monotonic clock in nanoseconds.
    used: AtomicU64,
}

/// The files whose changes are counted for a command.
const CAUSES: usize = 8;

/// Files whose changes spoil images of a command again and again.
pub type Causes = ArrayVec<Dependency, CAUSES>;

/// What is known of a command.
struct State {
    stage: Stage,
    /// Files whose change spoiled an image, and how often.
    causes: ArrayVec<(Dependency, u32), CAUSES>,
    /// How many recordings came to nothing in a row, and why the last one did.
    failures: u32,
    why: &'static str,
    /// How often two recordings did not agree.
    disagreed: u32,
    /// The number of system calls at which recordings end.
    most: u32,
    /// How many starts in a row could not use the image, because an answer was another one.
    misses: u32,
}

enum Stage {
    Seen,
    Recording,
    Recorded(Arc<Image>),
    Comparing(Arc<Image>),
    Ready(Arc<Image>),
    Refused(&'static str, u64),
}

/// How long a command that was refused is not recorded again, in nanoseconds.
const PAUSE: u64 = 3600 * 1_000_000_000;

/// What a start is to do.
pub enum Next {
    /// Run as always.
    Nothing,
    /// Be recorded; with the image of the first recording to be compared with.
    Record(Arc<Entry>, Option<Arc<Image>>),
    /// Begin at this image.
    Begin(Arc<Entry>, Arc<Image>),
}

/// How far ahead the clocks of a second recording are, in seconds: another day, hour, minute and
/// second; if the images do not agree, another hour, minute and second.
///
/// A program may keep something that follows from the time: the C library keeps which year it is.
/// If that is the same at two times it is the same between them, since time only grows; so an image
/// serves starts between the times of its two recordings, and no others. The shorter distance is
/// for the day on which a year begins.
pub const SHIFTS: [u64; 2] = [(26 * 60 + 17) * 60 + 13, (60 + 17) * 60 + 13];

/// How often a file must spoil images of a command until its recordings end before the file is
/// touched.
const OFTEN: u32 = 2;
/// How many recordings may come to nothing before the command is refused.
const PATIENCE: u32 = 8;

const SETS: usize = 64;
const WAYS: usize = 4;

type Set = ArrayVec<Arc<Entry>, WAYS>;

static TABLE: [SpinLock<Set>; SETS] = [const { SpinLock::new(Set::new_const()) }; SETS];
/// For each set a bit of the hash of each entry: most starts that find nothing take no lock.
static BITS: [AtomicU64; SETS] = [const { AtomicU64::new(0) }; SETS];
static SERIALS: AtomicU64 = AtomicU64::new(1);
/// The most memory that images may keep, in bytes.
pub static LIMIT: AtomicUsize = AtomicUsize::new(0);

fn set(hash: u64) -> &'static SpinLock<Set> {
    TABLE.get((hash >> 58) as usize).unwrap_or(&TABLE[0])
}

fn bit(hash: u64) -> u64 {
    1 << (hash >> 52 & 63)
}

/// Whether a set may have an entry with this hash.
fn may_be_entered(hash: u64) -> bool {
    BITS.get((hash >> 58) as usize).is_none_or(|bits| bits.load(Ordering::Relaxed) & bit(hash) != 0)
}

fn is_entered(hash: u64) -> bool {
    set(hash).lock().iter().any(|entry| entry.key.hash() == hash)
}

/// The commands whose starts are noted.
const NOTES: usize = 1024;

static NOTED: [AtomicU64; NOTES] = [const { AtomicU64::new(0) }; NOTES];

/// Notes a start of a command with this hash, if that is all that is known of it. Returns false if
/// none was noted before. `note` is a hash of more than the command.
pub fn was_noted(hash: u64, note: u64) -> bool {
    let Some(noted) = NOTED.get(note as usize % NOTES) else { return true };
    if noted.load(Ordering::Relaxed) == note || may_be_entered(hash) && is_entered(hash) {
        return true;
    }
    noted.store(note, Ordering::Relaxed);
    false
}

fn find(asked: &Asked<'_>) -> Option<Arc<Entry>> {
    set(asked.hash).lock().iter().find(|entry| entry.key.matches(asked)).cloned()
}

/// Finds out what a start is to do whose command was noted.
pub fn next(asked: &Asked<'_>) -> Next {
    let found = find(asked);
    match found {
        Some(entry) => entry.next(),
        // If memory is exhausted, it stays noted.
        None => enter(asked).map_or(Next::Nothing, Entry::next),
    }
}

/// What is known of the image of a start that [`next`] was asked about, for a measurement.
pub fn told(asked: &Asked<'_>) -> Told {
    const NOTED: &str = "the command was noted, and is recorded at its next start";
    let found = find(asked);
    match found.map(|entry| entry.describe()) {
        Some(("ready", _, Some(image))) => Told::Taken(image.horizon.clone()),
        Some(("refused", why, _)) => Told::Refused(why.into()),
        Some((_, why, _)) if !why.is_empty() => Told::Awaited(why.into()),
        Some(("recording", ..)) => Told::Awaited("it is recorded for the first time".into()),
        Some(("recorded" | "comparing", ..)) => {
            Told::Awaited("it is recorded again, to be compared".into())
        }
        _ => Told::Awaited(NOTED.into()),
    }
}

/// Enters a command that is to be recorded. `ENOMEM`.
fn enter(asked: &Asked<'_>) -> Result<Arc<Entry>> {
    let state = State {
        stage: Stage::Seen,
        causes: ArrayVec::new(),
        failures: 0,
        why: "",
        disagreed: 0,
        most: u32::MAX,
        misses: 0,
    };
    let entry = Arc::new(Entry {
        key: asked.keep()?,
        serial: SERIALS.fetch_add(1, Ordering::Relaxed),
        state: SpinLock::new(state),
        used: AtomicU64::new(time::monotonic_ns()),
    });
    let mut set = set(asked.hash).lock();
    let mut gone = None;
    let there = set.iter().find(|there| there.key.matches(asked)).cloned();
    if let Some(there) = there {
        // Another processor was faster.
        drop(set);
        return Ok(there);
    }
    if set.is_full() {
        let oldest = set.iter().enumerate().min_by_key(|(_, entry)| entry.used());
        gone = oldest.map(|(at, _)| at).map(|at| set.swap_remove(at));
    }
    let _ = set.try_push(Arc::clone(&entry));
    // Entries that are dropped leave their bits until here.
    let bits = set.iter().fold(0, |bits, entry| bits | bit(entry.key.hash()));
    if let Some(place) = BITS.get((asked.hash >> 58) as usize) {
        place.store(bits, Ordering::Relaxed);
    }
    drop(set);
    drop(gone);
    Ok(entry)
}

impl Entry {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn next(self: Arc<Entry>) -> Next {
        self.used.store(time::monotonic_ns(), Ordering::Relaxed);
        let mut state = self.state.lock();
        let spoiled = match &state.stage {
            Stage::Recorded(image) | Stage::Ready(image) => image.mark.is_spoiled(),
            _ => false,
        };
        let gone = spoiled.then(|| state.spoil());
        let next = match &state.stage {
            Stage::Seen => {
                state.stage = Stage::Recording;
                Some(None)
            }
            Stage::Recorded(image) => {
                let image = Arc::clone(image);
                state.stage = Stage::Comparing(Arc::clone(&image));
                Some(Some(image))
            }
            Stage::Ready(image) => {
                let image = Arc::clone(image);
                drop(state);
                drop(gone);
                return Next::Begin(self, image);
            }
            Stage::Refused(_, since) if time::monotonic_ns().saturating_sub(*since) > PAUSE => {
                state.failures = 0;
                state.stage = Stage::Recording;
                Some(None)
            }
            Stage::Recording | Stage::Comparing(_) | Stage::Refused(..) => None,
        };
        drop(state);
        drop(gone);
        match next {
            Some(first) => Next::Record(self, first),
            None => Next::Nothing,
        }
    }

    /// The files that recordings of the command end before; they do not change while there is one.
    pub fn volatile(&self) -> Causes {
        let state = self.state.lock();
        let often = state.causes.iter().filter(|(_, times)| *times >= OFTEN);
        often.map(|(cause, _)| *cause).collect()
    }

    /// Makes recordings of the command end after so many system calls, from now on.
    pub fn end_at(&self, calls: u32) {
        let mut state = self.state.lock();
        state.most = state.most.min(calls);
    }

    /// How far ahead the clocks of the next second recording are, in seconds.
    pub fn shift(&self) -> u64 {
        let disagreed = self.state.lock().disagreed as usize;
        SHIFTS.get(disagreed % SHIFTS.len()).copied().unwrap_or(SHIFTS[0])
    }

    /// Notes that the two recordings do not agree. If they do not at any distance in time, each
    /// tried twice, later ones end before the system call that was the last one before something
    /// that varies was seen: what the program made of it cannot be filled in.
    pub fn disagree(&self, varies: Option<u32>) {
        let mut state = self.state.lock();
        state.disagreed += 1;
        if state.disagreed as usize >= 2 * SHIFTS.len()
            && let Some(calls) = varies
        {
            state.most = state.most.min(calls.saturating_sub(1));
            state.disagreed = 0;
        }
    }

    /// Notes that the two recordings do not agree, of which each had other random bytes, drawn by
    /// these calls: what the program made of them cannot be filled in. Later recordings end before
    /// the last of the calls; if there are many, before one of the middle. Returns false if none
    /// drew any.
    pub fn disagree_by_chance(&self, draws: &[u32]) -> bool {
        let call = draws.get(draws.len() / 2);
        call.inspect(|call| self.end_at(**call)).is_some()
    }

    /// The number of system calls at which recordings end.
    pub fn most_calls(&self) -> u32 {
        self.state.lock().most
    }

    /// Drops an image that holds no longer, because time has passed.
    pub fn expire(&self) {
        let mut state = self.state.lock();
        let ready = matches!(state.stage, Stage::Ready(_));
        let gone = ready.then(|| core::mem::replace(&mut state.stage, Stage::Seen));
        drop(state);
        drop(gone);
    }

    /// Takes the result of a recording: an image to be compared, or one that was.
    pub fn take(&self, image: Arc<Image>, compared: bool) {
        let mut state = self.state.lock();
        if compared {
            (state.failures, state.why) = (0, "");
        }
        let stage = if compared { Stage::Ready(image) } else { Stage::Recorded(image) };
        let gone = core::mem::replace(&mut state.stage, stage);
        drop(state);
        drop(gone);
    }

    /// Notes that a recording came to nothing, and why.
    pub fn fail(&self, why: &'static str) {
        let mut state = self.state.lock();
        state.failures += 1;
        state.why = why;
        let patient = state.failures < PATIENCE;
        let stage = if patient { Stage::Seen } else { Stage::Refused(why, time::monotonic_ns()) };
        let gone = core::mem::replace(&mut state.stage, stage);
        drop(state);
        drop(gone);
    }

    /// Does not record the command again for some time.
    pub fn refuse(&self, why: &'static str) {
        let stage = Stage::Refused(why, time::monotonic_ns());
        let gone = core::mem::replace(&mut self.state.lock().stage, stage);
        drop(gone);
    }

    /// Notes that a start could not begin at the image. If that happens again and again, the image
    /// is of no use and is made anew.
    pub fn miss(&self) {
        const TOO_OFTEN: u32 = 4;
        let mut state = self.state.lock();
        state.misses += 1;
        let mut gone = None;
        if state.misses >= TOO_OFTEN && matches!(state.stage, Stage::Ready(_)) {
            state.misses = 0;
            gone = Some(core::mem::replace(&mut state.stage, Stage::Seen));
        }
        drop(state);
        drop(gone);
    }

    /// Notes that a start began at the image.
    pub fn hit(&self) {
        let mut state = self.state.lock();
        state.misses = 0;
    }

    /// A word for the state, why it is refused or why the last recording came to nothing, and the
    /// image if there is one.
    fn describe(&self) -> (&'static str, &'static str, Option<Arc<Image>>) {
        let state = self.state.lock();
        match &state.stage {
            Stage::Seen => ("seen", state.why, None),
            Stage::Recording => ("recording", state.why, None),
            Stage::Recorded(image) => ("recorded", state.why, Some(Arc::clone(image))),
            Stage::Comparing(image) => ("comparing", state.why, Some(Arc::clone(image))),
            Stage::Ready(image) => ("ready", "", Some(Arc::clone(image))),
            Stage::Refused(why, _) => ("refused", why, None),
        }
    }

    fn bytes(&self) -> usize {
        self.describe().2.map_or(0, |image| image.bytes)
    }

    /// Drops the image, if there is one that is not being compared.
    fn drop_image(&self) {
        let mut state = self.state.lock();
        let idle = matches!(state.stage, Stage::Recorded(_) | Stage::Ready(_));
        let gone = idle.then(|| core::mem::replace(&mut state.stage, Stage::Seen));
        drop(state);
        drop(gone);
    }
}

impl State {
    /// Drops a spoiled image, and blames what spoiled it.
    fn spoil(&mut self) -> Stage {
        let gone = core::mem::replace(&mut self.stage, Stage::Seen);
        if let Stage::Recorded(image) | Stage::Ready(image) = &gone
            && let Some(cause) = image.mark.cause()
        {
            self.blame(cause);
        }
        gone
    }

    fn blame(&mut self, cause: Dependency) {
        match self.causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, count)) => *count += 1,
            None => {
                if self.causes.is_full() {
                    self.causes.remove(0);
                }
                let _ = self.causes.try_push((cause, 1));
            }
        }
    }
}

/// An entry as it is shown.
pub struct Shown {
    /// The entry.
    pub entry: Arc<Entry>,
    /// The state, as one word.
    pub state: &'static str,
    /// Why it is refused.
    pub why: &'static str,
    /// The image.
    pub image: Option<Arc<Image>>,
}

/// All entries. `ENOMEM`.
pub fn all() -> Result<Vec<Shown>> {
    let mut shown = Vec::new();
    for set in &TABLE {
        let entries = set.lock().clone();
        for entry in entries {
            let (state, why, image) = entry.describe();
            shown.make_room(1)?;
            shown.push(Shown { entry, state, why, image });
        }
    }
    Ok(shown)
}

/// Drops the oldest commands until the images of all together keep no more than the limit.
pub fn keep_limit() {
    while image::bytes() > LIMIT.load(Ordering::Relaxed) && drop_oldest().is_some() {}
}

/// When the command was last started that was started longest ago, on the monotonic clock in
/// nanoseconds.
pub fn oldest() -> Option<u64> {
    let oldest = |set: &SpinLock<Set>| set.lock().iter().map(|entry| entry.used()).min();
    TABLE.iter().filter_map(oldest).min()
}

/// Drops the command that was started longest ago, with its image, and with the directories that
/// its key holds; returns the bytes of the image. `None`: there is none.
pub fn drop_oldest() -> Option<usize> {
    let oldest = |set: &'static SpinLock<Set>| {
        let least = set.lock().iter().map(|entry| entry.used()).min()?;
        Some((least, set))
    };
    let (used, set) = TABLE.iter().filter_map(oldest).min_by_key(|(used, _)| *used)?;
    let mut set = set.lock();
    let at = set.iter().position(|entry| entry.used() == used);
    let gone = at.map(|at| set.swap_remove(at));
    drop(set);
    // Another processor may have used or dropped it meanwhile: that is progress too.
    let bytes = gone.as_ref().map_or(0, |entry| entry.bytes());
    drop(gone);
    Some(bytes)
}

/// Drops images that show the page cache with this number, which is going away.
pub fn forget_content(page_cache: u64) {
    for set in &TABLE {
        let entries = set.lock().clone();
        for entry in entries {
            let shows = |image: &Arc<Image>| image.space.shows(page_cache);
            if entry.describe().2.is_some_and(|image| shows(&image)) {
                entry.drop_image();
            }
        }
    }
}
