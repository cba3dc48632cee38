//! A message of the kernel whose place in the queue of an endpoint is taken before it is sent
//! (`netlink_attachskb` and `netlink_sendskb`, net/netlink/af_netlink.c): so the sender need not
//! fail, wait or have memory when it is time.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::endpoint::{Datagram, Endpoint};
use crate::vfs::socket::{Attempt, Letter};

/// A message that waits to be sent.
struct Promised {
    endpoint: Arc<Endpoint>,
    /// Nothing when it is sent.
    bytes: Vec<u8>,
}

/// Takes a place for `bytes`; waits until there is one. `ENOBUFS`, or a restart.
pub fn promise(endpoint: &Arc<Endpoint>, bytes: Vec<u8>) -> Result<Box<dyn Letter>> {
    let size = bytes.len();
    let attempt = || match endpoint.promise(size) {
        Ok(Attempt::Wait) => None,
        Ok(Attempt::Done(())) => Some(Ok(())),
        Err(error) => Some(Err(error)),
    };
    endpoint.senders.wait_interruptible(None, attempt).map_err(|_| Errno::ERESTARTSYS)??;
    Ok(Box::new(Promised { endpoint: endpoint.clone(), bytes }))
}

impl Letter for Promised {
    fn send(mut self: Box<Self>, last: u8) {
        let mut bytes = core::mem::take(&mut self.bytes);
        if let Some(byte) = bytes.last_mut() {
            *byte = last;
        }
        self.endpoint.fulfil(Datagram::of_kernel(bytes));
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.endpoint.withdraw(self.bytes.len());
        }
    }
}
