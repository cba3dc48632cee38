//! The endpoints that have a name, by name: nodes of file systems, and the abstract name space.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::address::Name;
use super::endpoint::Endpoint;
use crate::net::config::Network;
use crate::vfs::inode::Inode;

/// Endpoints by the names that they have in a network namespace (unix(7)).
type Abstracts = BTreeMap<Vec<u8>, Weak<Endpoint>>;

struct Table {
    /// By the keys of network namespaces; none is empty.
    abstracts: BTreeMap<u64, Abstracts>,
    /// By the address of the socket's inode, which the entry keeps alive.
    paths: BTreeMap<usize, (Arc<dyn Inode>, Weak<Endpoint>)>,
    next_automatic: u32,
}

static TABLE: SpinLock<Table> =
    SpinLock::new(Table { abstracts: BTreeMap::new(), paths: BTreeMap::new(), next_automatic: 0 });

fn identity(inode: &Arc<dyn Inode>) -> usize {
    Arc::as_ptr(inode).cast::<()>() as usize
}

impl Table {
    fn find(&self, network: u64, name: &[u8]) -> Option<&Weak<Endpoint>> {
        self.abstracts.get(&network)?.get(name)
    }
}

/// Gives an endpoint a name in the abstract name space of its network namespace; EADDRINUSE when it
/// is taken.
pub fn bind_abstract(name: &[u8], endpoint: &Arc<Endpoint>) -> Result<()> {
    let network = endpoint.network.key;
    let mut table = TABLE.lock();
    if table.find(network, name).is_some_and(|held| held.strong_count() > 0) {
        return Err(Errno::EADDRINUSE);
    }
    let abstracts = table.abstracts.entry(network).or_default();
    abstracts.insert(name.to_vec(), Arc::downgrade(endpoint));
    Ok(())
}

/// Picks a free abstract name of five hexadecimal digits ("Autobind feature", unix(7)).
pub fn bind_automatic(endpoint: &Arc<Endpoint>) -> Result<Name> {
    let mut table = TABLE.lock();
    for _ in 0..=0xf_ffffu32 {
        let number = table.next_automatic & 0xf_ffff;
        table.next_automatic = number + 1;
        let name = alloc::format!("{number:05x}").into_bytes();
        if table.find(endpoint.network.key, &name).is_none() {
            let abstracts = table.abstracts.entry(endpoint.network.key).or_default();
            abstracts.insert(name.clone(), Arc::downgrade(endpoint));
            return Ok(Name::Abstract(name));
        }
    }
    Err(Errno::ENOSPC)
}

/// Binds an endpoint to the socket node that bind(2) made for it.
pub fn bind_inode(inode: Arc<dyn Inode>, endpoint: &Arc<Endpoint>) {
    let entry = (inode.clone(), Arc::downgrade(endpoint));
    let old = TABLE.lock().paths.insert(identity(&inode), entry);
    drop(old);
}

/// Returns the endpoint with an abstract name in a network namespace; ECONNREFUSED when there is
/// none.
pub fn find_abstract(network: &Network, name: &[u8]) -> Result<Arc<Endpoint>> {
    let table = TABLE.lock();
    table.find(network.key, name).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)
}

/// Returns the endpoint that is bound to a socket node; ECONNREFUSED when it is gone.
pub fn find_inode(inode: &Arc<dyn Inode>) -> Result<Arc<Endpoint>> {
    let table = TABLE.lock();
    let entry = table.paths.get(&identity(inode));
    entry.and_then(|(_, endpoint)| endpoint.upgrade()).ok_or(Errno::ECONNREFUSED)
}

/// Whether the abstract name belongs to this very endpoint.
pub fn owns(name: &Name, endpoint: &Endpoint) -> bool {
    let Name::Abstract(name) = name else { return false };
    let table = TABLE.lock();
    let held = table.find(endpoint.network.key, name);
    held.is_some_and(|held| core::ptr::eq(held.as_ptr(), endpoint))
}

/// Removes a name of a network namespace from the table when its endpoint is closed. The node in
/// the file system stays, as on Linux.
pub fn release(network: &Network, name: &Name, inode: Option<Arc<dyn Inode>>) {
    let mut held = None;
    {
        let mut table = TABLE.lock();
        match (name, &inode) {
            (Name::Abstract(name), _) => {
                if let Some(abstracts) = table.abstracts.get_mut(&network.key) {
                    abstracts.remove(name);
                    if abstracts.is_empty() {
                        table.abstracts.remove(&network.key);
                    }
                }
            }
            (Name::Path(_), Some(inode)) => held = table.paths.remove(&identity(inode)),
            (Name::Path(_), None) => {}
        }
    }
    drop(held);
}
