//! Tests of netlink inside the kernel: dumps that are longer than a message, which no machine of
//! the tests has enough links for.

use alloc::vec::Vec;

use hayate_abi::Errno;
use hayate_netlink::message::{HEADER, Header, Requests, flag, kind as kinds};
use hayate_netlink::route::{Link, kind, link};
use zerocopy::FromBytes;

use crate::net::config;
use crate::net::netlink::dump::{Dump, List};
use crate::net::netlink::endpoint::{Datagram, Endpoint};
use crate::net::netlink::ports;
use crate::vfs::socket::Attempt;
use crate::{check, ktest};

const LINKS: u32 = 1000;

fn dump(links: u32) -> Dump {
    let all: Vec<Link> =
        (1..=links).map(|index| Link { index, queue: "noqueue", ..Link::default() }).collect();
    let header =
        Header { kind: kind::NEWLINK, flags: flag::MULTI, sequence: 7, port: 9, length: 0 };
    Dump::new(List::Links(all), header)
}

ktest! {
    fn a_long_dump_comes_in_pieces() {
        let endpoint = Endpoint::new(0, config::first());
        check!(endpoint.begin(dump(LINKS)).is_ok());
        check!(endpoint.begin(dump(1)) == Err(Errno::EBUSY));
        let (mut expected, mut pieces, mut is_done) = (1, 0, false);
        while let Ok(Attempt::Done((datagram, full))) = endpoint.receive(30_000, false) {
            endpoint.taken();
            check!(!is_done && full == datagram.bytes.len() && datagram.port == 0);
            // The first piece does not know the reader's buffer yet; the others fill it.
            check!(full <= if pieces == 0 { 8192 } else { 30_000 });
            pieces += 1;
            for message in Requests::new(&datagram.bytes) {
                check!(!is_done && message.header.sequence == 7 && message.header.port == 9);
                check!(message.header.flags == flag::MULTI);
                is_done = message.header.kind == kinds::DONE;
                if !is_done {
                    let fixed = link::Fixed::read_from_prefix(&message.bytes[HEADER..]);
                    check!(fixed.is_ok_and(|(fixed, _)| fixed.index == expected));
                    expected += 1;
                }
            }
        }
        check!(is_done && expected == LINKS as i32 + 1);
        check!(pieces > 10);
        check!(endpoint.begin(dump(1)).is_ok());
    }
}

ktest! {
    fn a_full_queue_holds_a_dump_up_and_loses_nothing() {
        let endpoint = Endpoint::new(0, config::first());
        endpoint.receive_size.store(20_000, core::sync::atomic::Ordering::Relaxed);
        while endpoint.deliver(Datagram::of_kernel(Vec::from([0; 1000]))).is_ok() {}
        check!(endpoint.begin(dump(3)).is_ok());
        let mut received = Vec::new();
        while let Ok(Attempt::Done((datagram, _))) = endpoint.receive(4096, false) {
            endpoint.taken();
            received.push(datagram.bytes.len());
        }
        // Those that were there before, and the dump, which began when half of the queue was free.
        let last = received.pop();
        check!(last.is_some_and(|length| length > 1000));
        check!(received.iter().all(|&length| length == 1000));
        check!(endpoint.take_error().is_none());
    }
}

ktest! {
    fn ports_are_found_until_their_endpoint_ends() {
        let (one, other) = (Endpoint::new(0, config::first()), Endpoint::new(0, config::first()));
        let port = 0x7000_0001;
        check!(ports::bind(&one, port) == Ok(port));
        check!(ports::bind(&other, port) == Err(Errno::EADDRINUSE));
        check!(ports::bind_automatic(&other, port).is_ok_and(|port| (port as i32) < -4096));
        check!(ports::find(&config::FIRST, 0, port).is_ok());
        ports::leave(&one);
        check!(ports::find(&config::FIRST, 0, port).err() == Some(Errno::ECONNREFUSED));
        ports::leave(&other);
    }
}
