//! The process that calls, as files see it: its credentials, limits and identity for sockets, and
//! its account of device reads. The process layer is above and registers all.

use alloc::sync::Arc;

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;

use crate::credentials::{Capability, Credentials, Id};
use crate::namespace::Handle;
use crate::net::config::{self, Network};
use crate::user_namespace::UserNamespace;

/// The process layer, as seen from here.
pub struct Caller {
    /// Returns the credentials of the calling process.
    pub credentials: fn() -> Arc<Credentials>,
    /// Returns the process and its effective ids, as sockets report them.
    pub identity: fn() -> Ucred,
    /// Returns the number of the calling process; 0 in the kernel itself.
    pub process: fn() -> u32,
    /// Returns the number of a process as the calling process sees it; 0 if it does not.
    pub shown_process: fn(u32) -> u32,
    /// Returns a resource limit (`RLIMIT_*`) of the calling process.
    pub limit: fn(usize) -> u64,
    /// Charges bytes that were read from a device to the calling thread, if there is one.
    pub read_from_device: fn(usize),
    /// Returns the network namespace of the calling thread.
    pub network: fn() -> Handle<Network>,
    /// Whether the calling process ends: it waits for nothing that it need not wait for.
    pub is_ending: fn() -> bool,
    /// Returns the number of the calling thread, as it sees itself.
    pub thread: fn() -> u32,
    /// Whether the calling thread is to end, or is about to.
    pub must_end: fn() -> bool,
}

static CALLER: Once<Caller> = Once::new();

/// Registers the process layer; at boot.
pub fn register(caller: Caller) {
    CALLER.call_once(|| caller);
}

/// Returns the credentials of the calling process; `None` in the kernel itself.
pub fn credentials() -> Option<Arc<Credentials>> {
    CALLER.get().map(|caller| (caller.credentials)())
}

/// Returns a resource limit of the calling process; 0 in the kernel itself.
pub fn limit(resource: usize) -> u64 {
    CALLER.get().map_or(0, |caller| (caller.limit)(resource))
}

/// Whether the calling process has a capability.
pub fn has(capability: Capability) -> bool {
    CALLER.get().is_some_and(|caller| (caller.credentials)().has(capability))
}

/// Checks that the calling process has a capability: `EPERM`.
pub fn require(capability: Capability) -> Result<()> {
    let caller = CALLER.get().ok_or(Errno::EPERM)?;
    (caller.credentials)().require(capability)
}

/// Checks that the calling process has a capability for what belongs to a user namespace: `EPERM`.
pub fn require_in(namespace: &UserNamespace, capability: Capability) -> Result<()> {
    let caller = CALLER.get().ok_or(Errno::EPERM)?;
    (caller.credentials)().require_in(namespace, capability)
}

/// Whether the caller's group, or one of its supplementary groups, is one from `first` to `last`.
pub fn is_in_groups(first: Id, last: Id) -> bool {
    let Some(caller) = CALLER.get() else { return false };
    let credentials = (caller.credentials)();
    let within = |group: &Id| (first..=last).contains(group);
    within(&credentials.egid) || credentials.groups.iter().any(within)
}

/// Returns the calling process and its effective ids, as sockets report them: those of the kernel
/// if there is none.
pub fn identity() -> Ucred {
    CALLER.get().map_or(Ucred { pid: 0, uid: 0, gid: 0 }, |caller| (caller.identity)())
}

/// Returns the number of the calling process; 0 in the kernel itself.
pub fn process() -> u32 {
    CALLER.get().map_or(0, |caller| (caller.process)())
}

/// Returns the number of a process as the calling process sees it; 0 if it does not.
pub fn shown_process(number: u32) -> u32 {
    CALLER.get().map_or(number, |caller| (caller.shown_process)(number))
}

/// Returns the network namespace of the calling thread; the first in the kernel itself.
pub fn network() -> Handle<Network> {
    CALLER.get().map_or_else(config::first, |caller| (caller.network)())
}

/// Whether the calling process ends; false in the kernel itself.
pub fn is_ending() -> bool {
    CALLER.get().is_some_and(|caller| (caller.is_ending)())
}

/// Returns the number of the calling thread, as it sees itself; 0 in the kernel itself.
pub fn thread() -> u32 {
    CALLER.get().map_or(0, |caller| (caller.thread)())
}

/// Whether the calling thread is to end, alone or with its process, or is about to; false in the
/// kernel itself.
pub fn must_end() -> bool {
    CALLER.get().is_some_and(|caller| (caller.must_end)())
}

/// Charges bytes that were read from a device to the calling thread, if there is one.
pub fn read_from_device(bytes: usize) {
    if let Some(caller) = CALLER.get() {
        (caller.read_from_device)(bytes);
    }
}
