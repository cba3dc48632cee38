//! The table of process and thread numbers.
//!
//! Processes and threads draw from one sequence, and the number of a process is that of its first
//! thread. The table is cut into shards by the low bits of the number, each a short list under a
//! lock of its own, so starts on different processors do not contend. Lock order: a shard is a
//! leaf; no lock is taken and no reference dropped under it.
//!
//! A shard has room for [`FEW`] numbers from boot on and gives back what it had beyond: were its
//! first number to bring the room, the kernel would hold more after each of the first 256 starts.
//!
//! Process groups and sessions have no objects here. Their members are found by walking the table,
//! which only `kill(-pgrp)`, job control and procfs do; member lists would have to be changed in
//! every fork and exit. A number that is still in use as a group or session must not be handed out,
//! though. The sequence reaches a number again only after it has wrapped, so at each wrap the
//! numbers in use as groups are collected, to be skipped until the next wrap.
//!
//! These are the numbers of the first PID namespace, by which the kernel knows every process. One
//! of another namespace has numbers there as well ([`super::pid_namespace`]), which come and go
//! with this one; and if it led a group or a session that outlives it, its number is kept until
//! that is over, because the one inside stands for it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};
use hayate_pid_table::Moment;

pub use super::limits::PID_MAX;
use super::pid_namespace::PidNamespace;
use super::record::Process;
use super::thread::Thread;
use crate::reclaim::growth::Grow;

/// Where the sequence starts again after a wrap (`RESERVED_PIDS`).
const RESERVED: u32 = 300;
const SHARDS: usize = 256;
/// The numbers that a shard always has room for.
const FEW: usize = 4;

/// The owner of a number.
enum Bearer {
    /// The number is drawn for a process or thread that is still being made, or is kept for a group
    /// or session.
    Nobody,
    /// A process; its first thread has the same number.
    Process(Arc<Process>),
    /// A thread that is not the first of its process.
    Thread(Arc<Thread>),
}

type Shard = SpinLock<Vec<(u32, Bearer)>>;

static SHARD: [Shard; SHARDS] = [const { SpinLock::new(Vec::new()) }; SHARDS];
static NEXT: AtomicU32 = AtomicU32::new(1);
/// Threads in the whole system.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// How often the sequence has wrapped.
static WRAPS: AtomicU32 = AtomicU32::new(0);
/// Numbers to be skipped because they name a group or a session; sorted.
static GROUPS: SpinLock<Vec<u32>> = SpinLock::new(Vec::new());

/// The first process, once it is started.
pub(super) static INIT: Once<Arc<Process>> = Once::new();

/// Makes room in the shards; at boot. Without memory a shard gets its room with its first number.
pub(super) fn init() {
    for shard in &SHARD {
        let _ = shard.lock().make_room_exact(FEW);
    }
}

fn shard(number: u32) -> &'static Shard {
    &SHARD[number as usize % SHARDS]
}

/// A number that was drawn but has no owner yet; it becomes free again when dropped.
pub struct Number {
    number: u32,
    /// Where it has others.
    inside: Option<Arc<PidNamespace>>,
}

impl Number {
    /// Draws the next free number. Fails with `EAGAIN` if all are taken, `ENOMEM` if memory is
    /// exhausted.
    pub fn draw() -> Result<Number> {
        for _ in 0..PID_MAX {
            let number = next()?;
            let mut entries = shard(number).lock();
            if entries.iter().any(|(taken, _)| *taken == number) {
                continue;
            }
            entries.make_room(1)?;
            entries.push((number, Bearer::Nobody));
            COUNT.fetch_add(1, Ordering::Relaxed);
            return Ok(Number { number, inside: None });
        }
        Err(Errno::EAGAIN)
    }

    /// The number.
    pub fn get(&self) -> u32 {
        self.number
    }

    /// Draws the numbers that its bearer will have in a PID namespace and in those around. Returns
    /// the one there. Errors as [`PidNamespace::draw`].
    #[cold]
    pub(super) fn enter(&mut self, namespace: &Arc<PidNamespace>) -> Result<u32> {
        let own = namespace.draw(self.number)?;
        self.inside = Some(namespace.clone());
        Ok(own)
    }

    /// Gives the number to a process, which can be found by it from now on.
    pub fn to_process(self, process: &Arc<Process>) {
        self.give(Bearer::Process(process.clone()));
    }

    /// Gives the number to a thread, which can be found by it from now on.
    pub fn to_thread(self, thread: &Arc<Thread>) {
        self.give(Bearer::Thread(thread.clone()));
    }

    fn give(mut self, bearer: Bearer) {
        let mut entries = shard(self.number).lock();
        if let Some(entry) = entries.iter_mut().find(|(number, _)| *number == self.number) {
            entry.1 = bearer;
        }
        drop(entries);
        drop(self.inside.take());
        core::mem::forget(self);
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if let Some(inside) = self.inside.take() {
            inside.undo(self.number);
        }
        release(self.number);
    }
}

/// The next number of the sequence that is not a group's.
fn next() -> Result<u32> {
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if number >= PID_MAX {
            wrap()?;
            continue;
        }
        if WRAPS.load(Ordering::Relaxed) == 0 || GROUPS.lock().binary_search(&number).is_err() {
            return Ok(number);
        }
    }
}

fn wrap() -> Result<()> {
    let mut groups = groups_and_sessions(None)?;
    groups.dedup();
    let old = core::mem::replace(&mut *GROUPS.lock(), groups);
    drop(old);
    // The first of several processors restarts the sequence; the others find it small.
    let restarted = NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
        (next >= PID_MAX).then_some(RESERVED)
    });
    if restarted.is_ok() {
        WRAPS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Frees a number.
pub fn release(number: u32) {
    let Some(bearer) = take(number) else { return };
    COUNT.fetch_sub(1, Ordering::Relaxed);
    if let Some(inside) = bearer.inside() {
        inside.release(number, false);
    }
}

/// Frees the number of a process that its parent has waited for.
#[inline]
pub(super) fn bury(process: &Process) {
    match process.own_pid_namespace() {
        // It has no other number: not even its bearer is asked.
        None => {
            if take(process.id()).is_some() {
                COUNT.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Some(inside) => bury_inside(process, inside),
    }
}

/// Undoes [`Number::to_process`]: the process does not begin.
pub(super) fn withdraw(process: &Process) {
    let number = process.id();
    // Those inside first, so that the bearer has none when the number is freed.
    if let Some(inside) = process.own_pid_namespace() {
        inside.undo(number);
    }
    release(number);
}

/// [`bury`] for a process of another PID namespace than the first. If it has led a group or
/// session, it frees the numbers of all leaders whose groups and sessions are over; its own is kept
/// until its own are. Without memory to ask, it is freed.
#[cold]
fn bury_inside(process: &Process, inside: &PidNamespace) {
    let number = process.id();
    if !process.has_led() {
        return release(number);
    }
    let Ok(used) = groups_and_sessions(Some(process)) else { return release(number) };
    let is_used = |number: u32| used.binary_search(&number).is_ok();
    while let Some(over) = inside.take_leader(|leader| !is_used(leader)) {
        inside.release(over, false);
        free(over);
    }
    if !is_used(number) || !inside.keep_leader(number) {
        return release(number);
    }
    let mut entries = shard(number).lock();
    let entry = entries.iter_mut().find(|(taken, _)| *taken == number);
    let bearer = entry.map(|entry| core::mem::replace(&mut entry.1, Bearer::Nobody));
    drop(entries);
    drop(bearer);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    inside.release(number, true);
}

/// The numbers of the groups and sessions of all processes but this one; sorted. `ENOMEM`.
fn groups_and_sessions(but: Option<&Process>) -> Result<Vec<u32>> {
    let mut numbers: Vec<u32> = Vec::new();
    let is_left_out = |process: &Process| but.is_some_and(|but| core::ptr::eq(but, process));
    for process in processes()?.iter().filter(|process| !is_left_out(process)) {
        numbers.make_room(2)?;
        numbers.push(process.group());
        numbers.push(process.session_id());
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Frees a number that is nobody's any more.
pub(super) fn free(number: u32) {
    drop(take(number));
}

fn take(number: u32) -> Option<Bearer> {
    let mut entries = shard(number).lock();
    let index = entries.iter().position(|(taken, _)| *taken == number)?;
    let (_, bearer) = entries.swap_remove(index);
    if entries.len() == FEW / 2 && entries.capacity() > FEW {
        give_room_back(&mut entries);
    }
    Some(bearer)
}

impl Bearer {
    /// The PID namespace of the process, if that is not the first.
    #[inline]
    fn inside(&self) -> Option<&Arc<PidNamespace>> {
        match self {
            Bearer::Nobody => None,
            Bearer::Process(process) => process.own_pid_namespace(),
            Bearer::Thread(thread) => thread.process.own_pid_namespace(),
        }
    }
}

/// Moves the last numbers of a shard that was long to a short list, if there is memory.
#[cold]
fn give_room_back(entries: &mut Vec<(u32, Bearer)>) {
    let mut short = Vec::new();
    if short.make_room_exact(FEW).is_ok() {
        short.append(entries);
        *entries = short;
    }
}

/// The process with this number.
pub fn process(number: u32) -> Option<Arc<Process>> {
    let entries = shard(number).lock();
    match entries.iter().find(|(taken, _)| *taken == number) {
        Some((_, Bearer::Process(process))) => Some(process.clone()),
        _ => None,
    }
}

/// The thread with this number, which may be the first thread of a process.
pub fn thread(number: u32) -> Option<Arc<Thread>> {
    let entries = shard(number).lock();
    let process = match entries.iter().find(|(taken, _)| *taken == number) {
        Some((_, Bearer::Process(process))) => process.clone(),
        Some((_, Bearer::Thread(thread))) => return Some(thread.clone()),
        _ => return None,
    };
    drop(entries);
    process.thread(number)
}

/// The number of threads, zombies included.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// The count of numbers drawn since boot.
pub fn started() -> u64 {
    let wraps = u64::from(WRAPS.load(Ordering::Relaxed));
    u64::from(last()) + wraps * u64::from(PID_MAX - RESERVED)
}

/// The present place in the sequence of numbers.
pub(super) fn moment() -> Moment {
    // A wrap between the two makes the number small and the round old: what is known then is known
    // for longer than it is there, and only until the next look.
    Moment { round: WRAPS.load(Ordering::Relaxed), next: NEXT.load(Ordering::Relaxed) }
}

/// The last number drawn (`/proc/loadavg`).
pub fn last() -> u32 {
    NEXT.load(Ordering::Relaxed).saturating_sub(1).clamp(1, PID_MAX)
}

/// All processes, in the order of their numbers. Fails with `ENOMEM` if memory is exhausted.
pub fn processes() -> Result<Vec<Arc<Process>>> {
    let mut all = Vec::new();
    for shard in &SHARD {
        let mut found = 0;
        loop {
            all.make_room(found)?;
            let entries = shard.lock();
            let bearers = entries.iter().filter_map(|(_, bearer)| match bearer {
                Bearer::Process(process) => Some(process),
                _ => None,
            });
            found = bearers.clone().count();
            if all.capacity() - all.len() >= found {
                all.extend(bearers.cloned());
                break;
            }
        }
    }
    all.sort_unstable_by_key(|process: &Arc<Process>| process.id());
    Ok(all)
}

/// Returns the first process.
///
/// # Panics
/// Before the first process is started: until then no other process exists that could ask.
pub fn init_process() -> Arc<Process> {
    match INIT.get() {
        Some(process) => process.clone(),
        None => panic!("the first process was asked for before it was started"),
    }
}
