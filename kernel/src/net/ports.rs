//! The ports of a transport protocol: which are bound, how, and by which sockets. Each network
//! namespace has all numbers for itself; the functions take its key ([`Network::key`]).
//!
//! [`Network::key`]: super::config::Network::key
//!
//! Sockets that are bound alike share an entry. So a server's ten thousand connections, which all
//! have its port, are one number in one entry. Only sockets that are found by their port (those
//! that listen, and datagram sockets) are in the entry themselves.
//!
//! Locks: one for each of [`BUCKETS`] parts of the ports; no two are held at once. A bucket's lock
//! comes before the lock of a part of the table of connections; no socket's lock is taken under it,
//! and a socket may be locked when it is taken.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ip::Address;
use hayate_ip::binding::Binding;
use hayate_machine::sync::SpinLock;
use smallvec::SmallVec;

use crate::random;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

const BUCKETS: usize = 256;

/// Whether a binding conflicts with another that exists.
pub type Conflict = fn(&Binding, &Binding) -> bool;

struct BoundPort<S> {
    /// The namespace, and the number in it.
    place: (u64, u16),
    binding: Binding,
    /// How many sockets are bound so.
    users: usize,
    /// Those that are found by the port.
    sockets: Vec<Arc<S>>,
}

/// The ports of a protocol.
pub struct Ports<S> {
    buckets: [SpinLock<Vec<BoundPort<S>>>; BUCKETS],
    conflicts: Conflict,
}

impl<S> Ports<S> {
    /// Ports of which none is bound.
    pub const fn new(conflicts: Conflict) -> Self {
        Self { buckets: [const { SpinLock::new(Vec::new()) }; BUCKETS], conflicts }
    }

    /// The part of a port. That of a number differs from namespace to namespace: servers of many
    /// namespaces have the same few numbers.
    fn bucket(&self, (network, port): (u64, u16)) -> &SpinLock<Vec<BoundPort<S>>> {
        let other = (network.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16;
        &self.buckets[usize::from(port ^ other) % BUCKETS]
    }

    /// Binds a socket to a port. It is found by the port if `socket` is given.
    ///
    /// # Errors
    /// `EADDRINUSE`, `ENOMEM`.
    pub fn bind(
        &self,
        network: u64,
        port: u16,
        binding: Binding,
        socket: Option<Arc<S>>,
    ) -> Result<()> {
        let place = (network, port);
        let mut bucket = self.bucket(place).lock();
        let taken = |entry: &BoundPort<S>| {
            entry.place == place && (self.conflicts)(&binding, &entry.binding)
        };
        if bucket.iter().any(taken) {
            return Err(Errno::EADDRINUSE);
        }
        enter(&mut bucket, place, binding, socket)
    }

    /// Binds a socket to a free port of the range, chosen at random, and returns it.
    ///
    /// # Errors
    /// `EADDRINUSE` if none is free, `ENOMEM`.
    pub fn bind_any(
        &self,
        network: u64,
        (low, high): (u16, u16),
        binding: Binding,
        socket: Option<&Arc<S>>,
    ) -> Result<u16> {
        // A port that the program did not ask for is shared with no other socket.
        let alone = Binding { reuse_address: false, reuse_port: false, ..binding };
        let count = u32::from(high.saturating_sub(low)) + 1;
        let start = (random::word() % u64::from(count)) as u32;
        for step in 0..count {
            let port = low + ((start + step) % count) as u16;
            let place = (network, port);
            let mut bucket = self.bucket(place).lock();
            let taken = |entry: &BoundPort<S>| {
                entry.place == place && (self.conflicts)(&alone, &entry.binding)
            };
            if !bucket.iter().any(taken) {
                enter(&mut bucket, place, binding, socket.cloned())?;
                return Ok(port);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Binds a socket that is about to be connected to a port of the range for which `take` returns
    /// true. Such ports are shared with others that were bound so, and with no others
    /// (`__inet_hash_connect`). `take` is called with the lock of the port's bucket held.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if there is none, `ENOMEM`, those of `take`.
    pub fn bind_with(
        &self,
        network: u64,
        (low, high): (u16, u16),
        binding: Binding,
        mut take: impl FnMut(u16) -> Result<bool>,
    ) -> Result<u16> {
        let count = u32::from(high.saturating_sub(low)) + 1;
        let start = (random::word() % u64::from(count)) as u32;
        for step in 0..count {
            let port = low + ((start + step) % count) as u16;
            let place = (network, port);
            let mut bucket = self.bucket(place).lock();
            if bucket.iter().any(|entry| entry.place == place && !entry.binding.automatic) {
                continue;
            }
            // Room first, because the work of `take` is not undone.
            bucket.make_room(1)?;
            let taken = take(port);
            if matches!(taken, Ok(true)) {
                enter(&mut bucket, place, binding, None)?;
                return Ok(port);
            }
            give_back(&mut bucket);
            taken?;
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// Counts a further socket with a binding that exists, such as an accepted connection.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn share(&self, network: u64, port: u16, binding: Binding) -> Result<()> {
        let place = (network, port);
        enter(&mut self.bucket(place).lock(), place, binding, None)
    }

    /// Undoes [`bind`](Self::bind), with the same binding and socket.
    pub fn unbind(&self, network: u64, port: u16, binding: &Binding, socket: Option<&Arc<S>>) {
        let removed = {
            let place = (network, port);
            let mut bucket = self.bucket(place).lock();
            leave(&mut bucket, place, binding, socket)
        };
        // Outside of the lock: this may be the last reference.
        drop(removed);
    }

    /// Replaces a socket's binding, for instance when it begins to listen or is connected.
    ///
    /// # Errors
    /// `EADDRINUSE`, `ENOMEM`; then the old binding stays.
    pub fn rebind(
        &self,
        network: u64,
        port: u16,
        (old, was_found): (&Binding, bool),
        (new, is_found): (Binding, bool),
        socket: &Arc<S>,
    ) -> Result<()> {
        let place = (network, port);
        let mut bucket = self.bucket(place).lock();
        let taken = |entry: &BoundPort<S>| {
            let others = entry.users - usize::from(entry.binding == *old);
            entry.place == place && others > 0 && (self.conflicts)(&new, &entry.binding)
        };
        if bucket.iter().any(taken) {
            return Err(Errno::EADDRINUSE);
        }
        enter(&mut bucket, place, new, is_found.then(|| Arc::clone(socket)))?;
        let removed = leave(&mut bucket, place, old, was_found.then_some(socket));
        drop(bucket);
        drop(removed);
        Ok(())
    }

    /// Replaces a socket's binding after an option was set that it tells of. Linux asks no socket
    /// whether it minds: conflicts are looked for when a socket is bound, and when it listens.
    ///
    /// # Errors
    /// `ENOMEM`; then the old binding stays.
    pub fn change(
        &self,
        network: u64,
        port: u16,
        old: &Binding,
        new: Binding,
        found: Option<&Arc<S>>,
    ) -> Result<()> {
        let place = (network, port);
        let mut bucket = self.bucket(place).lock();
        enter(&mut bucket, place, new, found.cloned())?;
        let removed = leave(&mut bucket, place, old, found);
        drop(bucket);
        drop(removed);
        Ok(())
    }

    /// Finds the socket that matches best a packet for `to` at `port` that arrived on `interface`.
    /// `more` adds to the score of a socket, or excludes it; among equals, `choice` decides.
    pub fn find(
        &self,
        network: u64,
        port: u16,
        to: Address,
        interface: u32,
        choice: u32,
        more: impl Fn(&S) -> Option<u32>,
    ) -> Option<Arc<S>> {
        let place = (network, port);
        let bucket = self.bucket(place).lock();
        let mut best: Option<(u32, &Arc<S>, u32)> = None;
        for entry in bucket.iter().filter(|entry| entry.place == place) {
            let Some(score) = entry.binding.score(to, interface) else { continue };
            for socket in &entry.sockets {
                let Some(more) = more(socket) else { continue };
                let score = score + more;
                best = match best {
                    Some((most, other, equals)) if most == score && entry.binding.reuse_port => {
                        let equals = equals + 1;
                        // The n-th of n equals replaces the choice in one of n cases.
                        let replaces = choice.wrapping_mul(equals.wrapping_mul(0x9e37_79b1)) >> 8;
                        let socket = if replaces % equals == 0 { socket } else { other };
                        Some((score, socket, equals))
                    }
                    Some((most, other, equals)) if most >= score => Some((most, other, equals)),
                    _ => Some((score, socket, 1)),
                };
            }
        }
        best.map(|(_, socket, _)| Arc::clone(socket))
    }

    /// Returns the sockets at a port that a packet for `to` matches at all: all get a multicast or
    /// broadcast packet. `ENOMEM`.
    pub fn find_all(
        &self,
        network: u64,
        port: u16,
        to: Address,
        interface: u32,
    ) -> Result<SmallVec<[Arc<S>; 2]>> {
        let place = (network, port);
        let bucket = self.bucket(place).lock();
        let mut found = SmallVec::new();
        for entry in bucket.iter().filter(|entry| entry.place == place) {
            if entry.binding.score(to, interface).is_some() {
                found.make_room(entry.sockets.len())?;
                found.extend(entry.sockets.iter().cloned());
            }
        }
        Ok(found)
    }

    /// Calls `visit` with every socket of a namespace that is found by its port; without a lock.
    ///
    /// # Errors
    /// `ENOMEM`, those of `visit`.
    pub fn for_each(
        &self,
        network: u64,
        mut visit: impl FnMut(&Arc<S>) -> Result<()>,
    ) -> Result<()> {
        let mut found = Vec::new();
        for bucket in &self.buckets {
            for entry in bucket.lock().iter().filter(|entry| entry.place.0 == network) {
                found.make_room(entry.sockets.len())?;
                found.extend(entry.sockets.iter().cloned());
            }
            for socket in found.drain(..) {
                visit(&socket)?;
            }
        }
        Ok(())
    }
}

fn enter<S>(
    bucket: &mut Vec<BoundPort<S>>,
    place: (u64, u16),
    binding: Binding,
    socket: Option<Arc<S>>,
) -> Result<()> {
    let same = |entry: &&mut BoundPort<S>| entry.place == place && entry.binding == binding;
    if let Some(entry) = bucket.iter_mut().find(same) {
        if let Some(socket) = socket {
            growth::push(&mut entry.sockets, socket)?;
        }
        entry.users += 1;
        return Ok(());
    }
    let mut sockets = Vec::new();
    if let Some(socket) = socket {
        growth::push(&mut sockets, socket)?;
    }
    bucket.make_room(1)?;
    bucket.push(BoundPort { place, binding, users: 1, sockets });
    Ok(())
}

fn leave<S>(
    bucket: &mut Vec<BoundPort<S>>,
    place: (u64, u16),
    binding: &Binding,
    socket: Option<&Arc<S>>,
) -> Option<Arc<S>> {
    let at = bucket.iter().position(|entry| entry.place == place && entry.binding == *binding)?;
    let entry = &mut bucket[at];
    let place =
        socket.and_then(|socket| entry.sockets.iter().position(|other| Arc::ptr_eq(other, socket)));
    let removed = place.map(|place| entry.sockets.swap_remove(place));
    entry.users -= 1;
    if entry.users == 0 {
        bucket.swap_remove(at);
        give_back(bucket);
    }
    removed
}

/// Frees the memory of a bucket that is empty: programs decide how many buckets were once used.
fn give_back<S>(bucket: &mut Vec<BoundPort<S>>) {
    if bucket.is_empty() {
        *bucket = Vec::new();
    }
}
