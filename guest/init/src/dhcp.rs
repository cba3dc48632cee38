//! A client of DHCP (RFC 2131) for one device: asks the network for an address when the job says
//! so, and keeps it as long as the machine runs.
//!
//! One UDP socket on port 68, bound to the device. As long as the device has no address, servers
//! are asked to answer to everybody (the BROADCAST flag, RFC 2131, section 4.1), for the kernel
//! accepts nothing else. The wire format is smoltcp's. An answer counts only if it repeats the
//! number and the hardware address of the question; an address that no device can have is none.
//!
//! Road not taken: a packet socket, with which a client writes IP headers of its own. Linux sends a
//! broadcast without an address if a device is named (`ip_route_output_key_hash_rcu`), and so does
//! Hayate.

use crate::Failure;
use smoltcp::wire::{
    DHCP_CLIENT_PORT, DHCP_SERVER_PORT, DhcpMessageType as Kind, DhcpPacket, DhcpRepr,
    EthernetAddress,
};
use std::io::{Error, ErrorKind};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long an answer is waited for, in seconds, before the question is repeated.
const WAITS: [u64; 4] = [2, 4, 8, 16];
/// The options that servers are asked for: netmask, routers, name servers, the three times of a
/// lease (RFC 2132, sections 3.3, 3.5, 3.8, 9.2, 9.11, 9.12).
const WANTED: [u8; 6] = [1, 3, 6, 51, 58, 59];
const ROUTERS: u8 = 3;
/// The largest message that is read.
const MOST: usize = 1500;
/// A renewal is not repeated sooner (RFC 2131, section 4.4.5).
const LEAST_PAUSE: Duration = Duration::from_secs(60);
/// The lease time that means forever (RFC 2131, section 3.3).
const FOREVER: u32 = u32::MAX;

/// An address that a server has lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The length of its network's prefix.
    pub prefix: u8,
    /// The router.
    pub gateway: Option<Ipv4Addr>,
    /// The name servers.
    pub name_servers: Vec<Ipv4Addr>,
    server: Ipv4Addr,
    /// When to ask the server again, when to ask all, and when the address is lost, each after the
    /// lease; `None`: never.
    times: Option<[Duration; 3]>,
}

/// The client of a device.
pub struct Client {
    socket: UdpSocket,
    hardware: EthernetAddress,
}

impl Client {
    /// The client of a device that is up and has this hardware address.
    pub fn new(device: &str, hardware: [u8; 6]) -> Result<Client, Error> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DHCP_CLIENT_PORT))?;
        socket.set_broadcast(true)?;
        // SAFETY: the name and its length describe memory that lives as long as the call.
        let bound = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                device.as_ptr().cast(),
                device.len() as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(Error::last_os_error());
        }
        Ok(Client { socket, hardware: EthernetAddress(hardware) })
    }

    /// Asks for an address: DISCOVER, OFFER, REQUEST, ACK (RFC 2131, section 3.1).
    ///
    /// # Errors
    /// That no server answered, after half a minute; errors of the socket.
    pub fn lease(&self) -> Result<Lease, Failure> {
        let said = |error: Error| Failure::new(format!("cannot ask for an address: {error}"));
        for wait in WAITS {
            let wait = Duration::from_secs(wait);
            let discover = self.question(Kind::Discover).map_err(said)?;
            let Some((_, offer)) = self.ask(&discover, Ipv4Addr::BROADCAST, wait).map_err(said)?
            else {
                continue;
            };
            let mut request = self.question(Kind::Request).map_err(said)?;
            request.transaction_id = discover.transaction_id;
            request.requested_ip = Some(offer.address);
            request.server_identifier = Some(offer.server);
            match self.ask(&request, Ipv4Addr::BROADCAST, wait).map_err(said)? {
                Some((Kind::Ack, lease)) => return Ok(lease),
                // The server has changed its mind, or is gone: from the beginning.
                _ => continue,
            }
        }
        let seconds: u64 = WAITS.iter().sum();
        Err(Failure::new(format!(
            "no DHCP server gave this machine an address within {seconds} s; \
             name one: --ip ADDR/PREFIX"
        )))
    }

    /// Keeps a lease: renews it in time, asks for another when it is lost, and calls `changed` with
    /// each that differs from the last, or with `None` when there is none. Returns only if the
    /// lease is for ever.
    pub fn keep(&self, mut lease: Lease, mut changed: impl FnMut(Option<&Lease>)) {
        while let Some(times) = lease.times {
            let next = match self.renewed(&lease, times) {
                Some(next) => next,
                None => {
                    changed(None);
                    loop {
                        if let Ok(next) = self.lease() {
                            break next;
                        }
                    }
                }
            };
            let same = Lease { times: lease.times, ..next.clone() } == lease;
            if !same {
                changed(Some(&next));
            }
            lease = next;
        }
    }

    /// Waits until a lease has to be renewed, and renews it; `None` if it is lost.
    fn renewed(&self, lease: &Lease, [renew, rebind, lost]: [Duration; 3]) -> Option<Lease> {
        let began = Instant::now();
        std::thread::sleep(renew);
        while began.elapsed() < lost {
            let (to, until) = match began.elapsed() < rebind {
                true => (lease.server, rebind),
                false => (Ipv4Addr::BROADCAST, lost),
            };
            let mut request = self.question(Kind::Request).ok()?;
            request.client_ip = lease.address;
            request.broadcast = false;
            let left = until.saturating_sub(began.elapsed());
            match self.ask(&request, to, left.min(LEAST_PAUSE)) {
                Ok(Some((Kind::Ack, next))) => return Some(next),
                Ok(Some(_)) => return None,
                // At half of what is left, but not all the time.
                Ok(None) => {
                    let left = until.saturating_sub(began.elapsed());
                    std::thread::sleep((left / 2).max(LEAST_PAUSE).min(left));
                }
                Err(_) => std::thread::sleep(LEAST_PAUSE),
            }
        }
        None
    }

    /// A message of this kind with a number of its own.
    fn question(&self, kind: Kind) -> Result<DhcpRepr<'static>, Error> {
        let mut number = [0; 4];
        rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())?;
        Ok(DhcpRepr {
            message_type: kind,
            transaction_id: u32::from_ne_bytes(number),
            secs: 0,
            client_hardware_address: self.hardware,
            client_ip: Ipv4Addr::UNSPECIFIED,
            your_ip: Ipv4Addr::UNSPECIFIED,
            server_ip: Ipv4Addr::UNSPECIFIED,
            router: None,
            subnet_mask: None,
            relay_agent_ip: Ipv4Addr::UNSPECIFIED,
            broadcast: true,
            requested_ip: None,
            client_identifier: Some(self.hardware),
            server_identifier: None,
            parameter_request_list: Some(&WANTED),
            dns_servers: None,
            max_size: Some(MOST as u16),
            lease_duration: None,
            renew_duration: None,
            rebind_duration: None,
            additional_options: &[],
        })
    }

    /// Sends a question and waits for its answer: an offer for DISCOVER, else an acknowledgement or
    /// a refusal. `None` if none came in time.
    fn ask(
        &self,
        question: &DhcpRepr,
        to: Ipv4Addr,
        wait: Duration,
    ) -> Result<Option<(Kind, Lease)>, Error> {
        let mut bytes = vec![0; question.buffer_len()];
        let mut packet = DhcpPacket::new_unchecked(&mut bytes[..]);
        question.emit(&mut packet).map_err(|_| ErrorKind::InvalidData)?;
        self.socket.send_to(&bytes, (to, DHCP_SERVER_PORT))?;
        let began = Instant::now();
        let mut answer = [0; MOST];
        loop {
            let left = wait.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv(&mut answer) {
                Ok(length) => {
                    if let Some(answer) = understood(&answer[..length], question) {
                        return Ok(Some(answer));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads an answer; `None` if it is none to this question, or names no usable address. The lease of
/// a refusal (NAK) says nothing.
fn understood(bytes: &[u8], question: &DhcpRepr) -> Option<(Kind, Lease)> {
    let packet = DhcpPacket::new_checked(bytes).ok()?;
    let answer = DhcpRepr::parse(&packet).ok()?;
    let is_wanted = match question.message_type {
        Kind::Discover => answer.message_type == Kind::Offer,
        _ => matches!(answer.message_type, Kind::Ack | Kind::Nak),
    };
    let of_it = answer.transaction_id == question.transaction_id
        && answer.client_hardware_address == question.client_hardware_address;
    if !is_wanted || !of_it {
        return None;
    }
    let refused = answer.message_type == Kind::Nak;
    let address = answer.your_ip;
    let usable = |address: Ipv4Addr| {
        let strange = address.is_unspecified() || address.is_loopback() || address.is_multicast();
        !strange && !address.is_broadcast()
    };
    if !refused && !usable(address) {
        return None;
    }
    let mask = u32::from(answer.subnet_mask.unwrap_or(Ipv4Addr::new(255, 255, 255, 0)));
    // A mask with gaps is none; neither is that of everything.
    let prefix = mask.leading_ones();
    if mask.count_ones() != prefix || prefix == 0 {
        return None;
    }
    let router = packet.options().find(|option| option.kind == ROUTERS);
    let router = router.and_then(|option| option.data.first_chunk::<4>().copied());
    let lease = Lease {
        address,
        prefix: prefix as u8,
        gateway: router.map(Ipv4Addr::from).filter(|&router| usable(router)),
        name_servers: answer
            .dns_servers
            .iter()
            .flatten()
            .copied()
            .filter(|&server| usable(server))
            .collect(),
        server: answer.server_identifier.unwrap_or(answer.server_ip),
        times: times(&answer),
    };
    Some((answer.message_type, lease))
}

/// The times of a lease, in order and none of them zero; by default half of it and seven eighths
/// (RFC 2131, section 4.4.5).
fn times(answer: &DhcpRepr) -> Option<[Duration; 3]> {
    let lost = answer.lease_duration.filter(|&seconds| seconds != FOREVER)?.max(2);
    let rebind = answer.rebind_duration.filter(|&seconds| seconds < lost);
    let rebind = rebind.unwrap_or((u64::from(lost) * 7 / 8) as u32).max(1);
    let renew = answer.renew_duration.filter(|&seconds| seconds <= rebind);
    let renew = renew.unwrap_or(lost / 2).clamp(1, rebind);
    Some([renew, rebind, lost].map(|seconds| Duration::from_secs(seconds.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayate_fuzzing::{Random, rounds, seed};
    use smoltcp::wire::DhcpOption;

    const HARDWARE: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);

    fn question(kind: Kind) -> DhcpRepr<'static> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Client { socket, hardware: HARDWARE }.question(kind).unwrap()
    }

    fn bytes(answer: &DhcpRepr) -> Vec<u8> {
        let mut bytes = vec![0; answer.buffer_len()];
        answer.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
        bytes
    }

    fn answer(question: &DhcpRepr, kind: Kind) -> DhcpRepr<'static> {
        DhcpRepr {
            message_type: kind,
            transaction_id: question.transaction_id,
            your_ip: Ipv4Addr::new(10, 1, 2, 3),
            subnet_mask: Some(Ipv4Addr::new(255, 255, 0, 0)),
            router: Some(Ipv4Addr::new(10, 1, 0, 1)),
            server_identifier: Some(Ipv4Addr::new(10, 1, 0, 2)),
            client_identifier: None,
            parameter_request_list: None,
            max_size: None,
            lease_duration: Some(3600),
            ..self::question(Kind::Offer)
        }
    }

    #[test]
    fn a_lease_is_read() {
        let request = question(Kind::Request);
        let (kind, lease) = understood(&bytes(&answer(&request, Kind::Ack)), &request).unwrap();
        assert_eq!(kind, Kind::Ack);
        assert_eq!((lease.address, lease.prefix), (Ipv4Addr::new(10, 1, 2, 3), 16));
        assert_eq!(lease.gateway, Some(Ipv4Addr::new(10, 1, 0, 1)));
        assert_eq!(lease.server, Ipv4Addr::new(10, 1, 0, 2));
        assert_eq!(lease.times, Some([1800, 3150, 3600].map(Duration::from_secs)));
    }

    #[test]
    fn the_first_of_several_routers_is_taken() {
        let request = question(Kind::Request);
        let routers = [DhcpOption { kind: ROUTERS, data: &[10, 1, 0, 7, 10, 1, 0, 8] }];
        let answer =
            DhcpRepr { router: None, additional_options: &routers, ..answer(&request, Kind::Ack) };
        let (_, lease) = understood(&bytes(&answer), &request).unwrap();
        assert_eq!(lease.gateway, Some(Ipv4Addr::new(10, 1, 0, 7)));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let discover = question(Kind::Discover);
        let offer = answer(&discover, Kind::Offer);
        assert!(understood(&bytes(&offer), &discover).is_some());
        let is_none = |answer: DhcpRepr| {
            assert_eq!(understood(&bytes(&answer), &discover), None);
        };
        is_none(answer(&discover, Kind::Ack));
        is_none(DhcpRepr { transaction_id: !discover.transaction_id, ..offer.clone() });
        let other = EthernetAddress([2, 0, 0, 0, 0, 8]);
        is_none(DhcpRepr { client_hardware_address: other, ..offer.clone() });
        for address in [[0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            is_none(DhcpRepr { your_ip: address.into(), ..offer.clone() });
        }
        for mask in [[0; 4], [255, 0, 255, 0]] {
            is_none(DhcpRepr { subnet_mask: Some(mask.into()), ..offer.clone() });
        }
        let whole = bytes(&offer);
        for length in 0..whole.len() {
            let _ = understood(&whole[..length], &discover);
        }
        for place in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[place] = value;
                let _ = understood(&damaged, &discover);
            }
        }
    }

    /// Answers with any options, mutated: none panics, and a lease that is read can be used.
    #[test]
    fn any_bytes() {
        let mut random = Random::new(seed());
        let questions = [question(Kind::Discover), question(Kind::Request)];
        let (count, mut leases) = (rounds(100_000), 0);
        for _ in 0..count {
            let question = &questions[random.below(2)];
            let kinds = [Kind::Offer, Kind::Ack, Kind::Nak];
            let mut message = bytes(&answer(question, kinds[random.below(3)]));
            // The end of the options makes room for others.
            while message.last().is_some_and(|&last| matches!(last, 0 | 255)) {
                message.pop();
            }
            for _ in 0..random.below(6) {
                let kind = [0, 1, 3, 6, 51, 52, 53, 54, 58, 59, 61, random.word() as u8];
                let length = [0, 4, 4, 4, 6, 8, 255][random.below(7)];
                message.extend([kind[random.below(12)], length]);
                message.extend((0..length).map(|_| random.word() as u8));
            }
            message.push(255);
            for _ in 0..random.below(4) {
                let place = random.below(message.len());
                match random.below(3) {
                    0 => message[place] ^= 1 << random.below(8),
                    1 => message[place] = random.word() as u8,
                    _ if random.one_in(4) => message.truncate(place.max(1)),
                    _ => message.insert(place, random.word() as u8),
                }
            }
            message.truncate(MOST);
            let Some((kind, lease)) = understood(&message, question) else { continue };
            if kind == Kind::Nak {
                continue;
            }
            leases += 1;
            let strange = |address: &Ipv4Addr| {
                address.is_unspecified() || address.is_loopback() || address.is_multicast()
            };
            assert!(!strange(&lease.address) && (1..=32).contains(&lease.prefix));
            assert!(lease.gateway.iter().chain(&lease.name_servers).all(|one| !strange(one)));
            if let Some([renew, rebind, lost]) = lease.times {
                assert!(Duration::ZERO < renew && renew <= rebind && rebind < lost);
            }
        }
        assert!(leases * 20 > count, "only {leases} of {count} answers were leases");
    }

    #[test]
    fn times_are_in_order() {
        let request = question(Kind::Request);
        let of = |lease, renew, rebind| {
            let given = DhcpRepr {
                lease_duration: lease,
                renew_duration: renew,
                rebind_duration: rebind,
                ..answer(&request, Kind::Ack)
            };
            times(&given).map(|times| times.map(|time| time.as_secs()))
        };
        assert_eq!(of(None, None, None), None);
        assert_eq!(of(Some(FOREVER), Some(1), Some(2)), None);
        assert_eq!(of(Some(100), Some(10), Some(20)), Some([10, 20, 100]));
        assert_eq!(of(Some(100), Some(90), Some(20)), Some([20, 20, 100]));
        assert_eq!(of(Some(0), Some(0), Some(0)), Some([1, 1, 2]));
        assert_eq!(of(Some(FOREVER - 1), None, None).unwrap()[2], u64::from(FOREVER - 1));
    }
}
