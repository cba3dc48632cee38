//! The table of connections: found by the four numbers that name them.
//!
//! Locks: one for each of [`PARTS`] parts, a leaf. It is held for a look-up.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{BuildHasher, BuildHasherDefault};

use hashbrown::HashMap;
use hayate_abi::{Errno, Result};
use hayate_ip::binding::Binding;
use hayate_machine::sync::SpinLock;
use hayate_tcp::TimeWait;

use super::Socket;
use super::route::{Ends, Route};
use crate::hash::IndexHasher;
use crate::reclaim::growth::Grow;

const PARTS: usize = 256;

/// The remnant of a connection: TIME-WAIT.
pub struct Remnant {
    /// The connection was one of a socket of IPv6.
    pub v6: bool,
    /// Its name.
    pub ends: Ends,
    /// The state that answers late segments.
    pub state: SpinLock<TimeWait>,
    /// The way for answers.
    pub route: Arc<Route>,
    /// The port that it holds.
    pub binding: Option<Binding>,
}

/// The holder of a name.
#[derive(Clone)]
pub enum ConnectionEntry {
    /// A connection.
    Socket(Arc<Socket>),
    /// The remnant of one (TIME-WAIT).
    Remnant(Arc<Remnant>),
}

type Connections = HashMap<Ends, ConnectionEntry, BuildHasherDefault<IndexHasher>>;

static TABLE: [SpinLock<Connections>; PARTS] =
    [const { SpinLock::new(HashMap::with_hasher(BuildHasherDefault::new())) }; PARTS];

fn part(ends: &Ends) -> &'static SpinLock<Connections> {
    let hash = BuildHasherDefault::<IndexHasher>::default().hash_one(ends);
    &TABLE[(hash >> 40) as usize % PARTS]
}

/// Enters a connection.
///
/// # Errors
/// `EADDRINUSE` if there is one with this name, `ENOMEM`.
pub fn enter(ends: Ends, socket: &Arc<Socket>) -> Result<()> {
    let mut part = part(&ends).lock();
    if part.contains_key(&ends) {
        return Err(Errno::EADDRINUSE);
    }
    part.make_room(1)?;
    part.insert(ends, ConnectionEntry::Socket(Arc::clone(socket)));
    Ok(())
}

/// Finds a connection or its remnant.
#[inline]
pub fn find(ends: &Ends) -> Option<ConnectionEntry> {
    part(ends).lock().get(ends).cloned()
}

/// Puts what is left of a connection in its place.
pub fn replace(ends: &Ends, remnant: Arc<Remnant>) {
    let old = match part(ends).lock().get_mut(ends) {
        Some(entry) => Some(core::mem::replace(entry, ConnectionEntry::Remnant(remnant))),
        None => None,
    };
    // Outside of the lock: it may be the last reference.
    drop(old);
}

/// Removes a connection or its remnant, if `is_it` is true of it.
pub fn remove(ends: &Ends, is_it: impl Fn(&ConnectionEntry) -> bool) -> Option<ConnectionEntry> {
    let mut part = part(ends).lock();
    if !part.get(ends).is_some_and(is_it) {
        return None;
    }
    let removed = part.remove(ends);
    if part.is_empty() {
        // Programs decide how many parts were once used.
        *part = HashMap::default();
    }
    removed
}

/// Finds a remnant of a namespace in part `at` of the table or a later one, whose number `at`
/// becomes.
pub fn next_remnant(at: &mut usize, network: u64) -> Option<Arc<Remnant>> {
    while let Some(part) = TABLE.get(*at) {
        let found = part.lock().values().find_map(|entry| match entry {
            ConnectionEntry::Remnant(it) if it.ends.network == network => Some(Arc::clone(it)),
            _ => None,
        });
        if found.is_some() {
            return found;
        }
        *at += 1;
    }
    None
}

/// Calls `visit` with every entry of all namespaces; without a lock.
///
/// # Errors
/// `ENOMEM`, those of `visit`.
pub fn for_each(mut visit: impl FnMut(&ConnectionEntry) -> Result<()>) -> Result<()> {
    let mut found = Vec::new();
    for part in &TABLE {
        {
            let part = part.lock();
            found.make_room(part.len())?;
            found.extend(part.values().cloned());
        }
        for entry in found.drain(..) {
            visit(&entry)?;
        }
    }
    Ok(())
}
