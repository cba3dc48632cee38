//! Dumps: lists that go to a socket piece by piece.

use alloc::vec::Vec;

use hayate_abi::Errno;
use hayate_netlink::Full;
use hayate_netlink::diag::{Extent, InetSocket, UnixSocket};
use hayate_netlink::message::{Header, Writer};
use hayate_netlink::route::{Address, Link, Neighbour, Route};

/// The list that a dump shows.
pub enum List {
    /// RTM_GETLINK.
    Links(Vec<Link>),
    /// RTM_GETADDR.
    Addresses(Vec<Address>),
    /// RTM_GETROUTE.
    Routes(Vec<Route>),
    /// RTM_GETNEIGH.
    Neighbours(Vec<Neighbour>),
    /// SOCK_DIAG_BY_FAMILY.
    Sockets(Vec<InetSocket>, Extent),
    /// The same, of the Unix domain.
    UnixSockets(Vec<UnixSocket>),
    /// Nothing, because the request was not good: an error ends the dump.
    Refused(Errno),
}

impl List {
    /// Writes an item; `None` at the end of the list.
    fn write(&self, at: usize, to: &mut Writer<'_>, header: Header) -> Option<Result<(), Full>> {
        Some(match self {
            List::Links(links) => links.get(at)?.write(to, header, 0),
            List::Addresses(addresses) => addresses.get(at)?.write(to, header),
            List::Routes(routes) => routes.get(at)?.write(to, header),
            List::Neighbours(neighbours) => neighbours.get(at)?.write(to, header),
            List::Sockets(sockets, extent) => sockets.get(at)?.write(to, header, *extent),
            List::UnixSockets(sockets) => sockets.get(at)?.write(to, header),
            List::Refused(_) => return None,
        })
    }

    /// The number in the end's message: 0 or a negative errno.
    fn outcome(&self) -> i32 {
        match self {
            List::Refused(error) => -error.number(),
            _ => 0,
        }
    }
}

/// A list on its way to a socket.
pub struct Dump {
    list: List,
    /// The header of each of its messages.
    header: Header,
    /// How many items have been written.
    written: usize,
}

impl Dump {
    /// Begins a dump.
    pub fn new(list: List, header: Header) -> Self {
        Self { list, header, written: 0 }
    }

    /// Writes as many messages as fit. Returns the number of bytes, and whether that was the end.
    pub fn fill(&mut self, buffer: &mut [u8]) -> (usize, bool) {
        let mut writer = Writer::new(buffer);
        loop {
            match self.list.write(self.written, &mut writer, self.header) {
                Some(Ok(())) => self.written += 1,
                // An item that does not fit into an empty buffer would never come to its end.
                Some(Err(Full)) if writer.length() == 0 => self.written += 1,
                Some(Err(Full)) => return (writer.length(), false),
                None => {
                    let done = writer.done(self.header, self.list.outcome());
                    return (writer.length(), done.is_ok());
                }
            }
        }
    }
}
