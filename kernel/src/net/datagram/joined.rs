//! A multicast group that a socket has joined, and the sources that it wants there.
//!
//! Lock: that of the socket's list, which the list of all groups follows.

use hayate_abi::{Errno, Result};
use hayate_ip::Address;
use hayate_ip::source_filter::SourceFilter;

use crate::net::config::Network;
use crate::net::groups;

/// A group that a socket has joined.
pub(super) struct Joined {
    pub(super) group: Address,
    pub(super) interface: u32,
    /// The address of the interface by which the program named it.
    pub(super) local: Address,
    pub(super) filter: SourceFilter,
}

impl Joined {
    /// Whether it is this group, joined on this interface.
    pub(super) fn is(&self, group: Address, interface: u32) -> bool {
        self.group == group && self.interface == interface
    }

    /// Takes another filter.
    ///
    /// # Errors
    /// `ENOBUFS`; it has the old one then.
    pub(super) fn replace(&mut self, network: &Network, filter: SourceFilter) -> Result<()> {
        groups::change(network, self.group, self.interface, Some(&self.filter), &filter)
            .map_err(|_| Errno::ENOBUFS)?;
        self.filter = filter;
        Ok(())
    }
}
