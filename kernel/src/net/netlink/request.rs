//! The requests in what a program sent to the kernel (`netlink_rcv_skb`, net/netlink/af_netlink.c
//! of Linux 6.1), and their acknowledgements.

use hayate_netlink::message::{Requests, flag, kind};

use super::asking::{Asking, Outcome};
use super::options::Options;
use super::{SOCK_DIAG, diag, route};

/// Carries out what a program sent to the kernel.
pub fn receive(asking: &Asking<'_>, bytes: &[u8]) {
    for request in Requests::new(bytes) {
        let is_request = request.header.flags & flag::REQUEST != 0;
        let is_control = request.header.kind < kind::FIRST_OWN;
        let outcome = if is_request && !is_control {
            match asking.endpoint.protocol {
                SOCK_DIAG => diag::handle(asking, &request),
                _ => route::handle(asking, &request),
            }
        } else {
            Ok(Outcome::Done)
        };
        let error = match outcome {
            Ok(Outcome::Dumping) => continue,
            Ok(Outcome::Done) if request.header.flags & flag::ACK == 0 => continue,
            Ok(Outcome::Done) => 0,
            Err(error) => -error.number(),
        };
        let capped = asking.options.contains(Options::CAPPED_ACKS);
        // A header, the number, and all of the request.
        let room = request.bytes.len() + 64;
        let _ =
            asking.answer(room, |writer| writer.acknowledge(&request, asking.port, error, capped));
    }
}
