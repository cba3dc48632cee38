//! This TCP and that of smoltcp over the same lossy link: bytes a second of simulated time, and
//! nanoseconds of the processor for each byte, both ends together.
//!
//! The link carries 125 MB/s each way with 5 ms of delay. Buffers are 1 MiB on both sides; smoltcp
//! emits and parses headers (checksums off), this crate's segments stay as they are.
//!
//! ```sh
//! cargo run --release -p hayate-tcp --example compare
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Instant as Clock;

use hayate_fuzzing::Random;
use hayate_tcp::{Bytes, Config, Connection, MILLISECOND, Pieces, SECOND, Segment, Seq};
use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const BYTES: u64 = 16 << 20;
const BUFFER: usize = 1 << 20;
const RATE: u64 = 125_000_000;
const DELAY: u64 = 5 * MILLISECOND;

/// A piece of a shared page.
#[derive(Clone)]
struct Page(Rc<[u8; 4096]>, u32, u32);

impl Bytes for Page {
    fn len(&self) -> usize {
        (self.2 - self.1) as usize
    }
    fn slice(&self, from: usize, to: usize) -> Page {
        Page(self.0.clone(), self.1 + from as u32, self.1 + to as u32)
    }
    fn byte(&self, at: usize) -> u8 {
        self.0[self.1 as usize + at]
    }
}

fn ours(loss: usize) -> (u64, u64) {
    let config = Config {
        send_limit: BUFFER,
        send_limit_max: BUFFER,
        receive_limit: BUFFER,
        receive_limit_max: BUFFER,
        ..Config::default()
    };
    let mut random = Random::new(3);
    let page = Page(Rc::new([7; 4096]), 0, 4096);
    let mut ends = [Some(Connection::connect(0, &config, Seq(1))), None];
    let mut wire: BTreeMap<(u64, u64), (usize, Segment<Page>)> = BTreeMap::new();
    let (mut now, mut given, mut got, mut count, mut busy) = (SECOND, 0u64, 0u64, 0u64, [0; 2]);
    let mut sent = Vec::new();
    let start = Clock::now();
    while got < BYTES {
        for (side, end) in ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            let out = &mut |segment| sent.push((side, segment));
            end.on_timer(now, out);
            while side == 0 && given < BYTES && end.send_room() > 0 {
                end.send(page.clone()).unwrap();
                given += 4096;
            }
            end.transmit(now, out);
            let mut pieces = Pieces::new();
            let taken = end.take(usize::MAX >> 1, &mut pieces).unwrap();
            end.after_read(now, taken, out);
            got += taken as u64;
        }
        for (side, segment) in sent.drain(..) {
            let length = 40 + segment.payload_len() + segment.options.wire_len();
            busy[side] = now.max(busy[side]) + length as u64 * SECOND / RATE;
            if random.below(1000) >= loss {
                count += 1;
                wire.insert((busy[side] + DELAY, count), (1 - side, segment));
            }
        }
        let arrival = wire.keys().next().map(|key| key.0);
        let timers = ends.iter().flatten().filter_map(Connection::next_deadline);
        now = timers.chain(arrival).min().unwrap().max(now);
        while let Some(entry) = wire.first_entry()
            && entry.key().0 <= now
        {
            let (side, segment) = entry.remove();
            let out = &mut |segment| sent.push((side, segment));
            match &mut ends[side] {
                Some(end) => {
                    end.on_segment(now, segment, out);
                }
                None => ends[1] = Some(Connection::accept(now, &config, Seq(2), &segment)),
            }
        }
    }
    (now - SECOND, start.elapsed().as_nanos() as u64)
}

#[derive(Default)]
struct Port {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, act: F) -> R {
        act(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, act: F) -> R {
        let mut packet = vec![0; length];
        let result = act(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;
    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((Received(packet), Sent(&mut self.outgoing)))
    }
    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.outgoing))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

struct Host {
    port: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    busy: u64,
}

fn host(last: u8) -> Host {
    let mut port = Port::default();
    let config = InterfaceConfig::new(HardwareAddress::Ip);
    let mut interface = Interface::new(config, &mut port, Instant::ZERO);
    interface.update_ip_addrs(|addresses| {
        addresses.push(IpCidr::new(IpAddress::v4(10, 0, 0, last), 24)).unwrap();
    });
    let buffer = || SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = Socket::new(buffer(), buffer());
    socket.set_congestion_control(CongestionControl::Cubic);
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(socket);
    Host { port, interface, sockets, handle, busy: 0 }
}

fn theirs(loss: usize) -> (u64, u64) {
    let mut hosts = [host(1), host(2)];
    hosts[1].sockets.get_mut::<Socket>(hosts[1].handle).listen(80).unwrap();
    let Host { interface, sockets, handle, .. } = &mut hosts[0];
    let remote = (IpAddress::v4(10, 0, 0, 2), 80);
    sockets.get_mut::<Socket>(*handle).connect(interface.context(), remote, 5000).unwrap();
    let mut random = Random::new(3);
    let mut wire: BTreeMap<(u64, u64), (usize, Vec<u8>)> = BTreeMap::new();
    let (mut now, mut given, mut got, mut count) = (0u64, 0u64, 0u64, 0u64);
    let chunk = vec![7; 16384];
    let start = Clock::now();
    while got < BYTES {
        let time = Instant::from_micros((now / 1000) as i64);
        for (side, host) in hosts.iter_mut().enumerate() {
            host.interface.poll(time, &mut host.port, &mut host.sockets);
            let socket = host.sockets.get_mut::<Socket>(host.handle);
            if side == 0 {
                while given < BYTES && socket.can_send() {
                    let length = chunk.len().min((BYTES - given) as usize);
                    given += socket.send_slice(&chunk[..length]).unwrap() as u64;
                }
            }
            while side == 1 && socket.can_recv() {
                got += socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap() as u64;
            }
            host.interface.poll(time, &mut host.port, &mut host.sockets);
            for packet in std::mem::take(&mut host.port.outgoing) {
                let begin = host.busy.max(now);
                host.busy = begin + packet.len() as u64 * SECOND / RATE;
                if random.below(1000) >= loss {
                    count += 1;
                    wire.insert((host.busy + DELAY, count), (1 - side, packet));
                }
            }
        }
        let arrival = wire.keys().next().map(|key| key.0);
        let timers = hosts.iter_mut().filter_map(|host| {
            let at = host.interface.poll_at(time, &host.sockets)?;
            Some(at.total_micros() as u64 * 1000)
        });
        now = timers.chain(arrival).min().unwrap().max(now + 1000);
        while let Some(entry) = wire.first_entry()
            && entry.key().0 <= now
        {
            let (side, packet) = entry.remove();
            hosts[side].port.incoming.push_back(packet);
        }
    }
    (now, start.elapsed().as_nanos() as u64)
}

fn main() {
    println!("{:>6} {:>10} {:>14} {:>12}", "loss", "stack", "bytes/s", "ns/byte");
    for loss in [0, 10, 50] {
        for (name, (time, took)) in [("hayate", ours(loss)), ("smoltcp", theirs(loss))] {
            let rate = BYTES * SECOND / time.max(1);
            let cost = took as f64 / BYTES as f64;
            println!("{:>5}% {name:>10} {rate:>14} {cost:>12.2}", loss as f64 / 10.0);
        }
    }
}
