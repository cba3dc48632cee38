//! Sends much data over a network that loses, repeats, reorders, damages and delays packets, and
//! compares every byte.
//!
//! Over TCP, IPv4 and then IPv6: one long stream in each direction at once, then connections that
//! are opened, ask, get an answer and are closed. Over UDP: datagrams of every size, each with its
//! number and bytes that follow from it; one that arrives is right to the bit, because checksums
//! have to find what is damaged.
//!
//! In Hayate `--fault` sets the faults (docs/testing.md). On Linux the network is as it is; tc(8)
//! makes it bad: `tc qdisc add dev lo root netem loss 5% duplicate 1% delay 1ms`.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

use hayate_stress::{Options, Random};

const USAGE: &str = "lossy [--mib N] [--calls N] [--datagrams N] [--mtu BYTES] [--fault TEXT]
  --mib N        MiB in each direction of a stream (16)
  --calls N      short connections (40)
  --datagrams N  datagrams (2000)
  --mtu BYTES    the loopback interface's MTU while this runs (unchanged): needs root
  --fault TEXT   the faults of Hayate's network while this runs: needs root
Example: lossy --mib 16 --mtu 1500 --fault loss:5,repeat:1,reorder:2,corrupt:1,delay:500us";

const FAULTS: &str = "/proc/hayate/net_fault";
/// A call that waits longer than this for the other end is stuck.
const PATIENCE: Duration = Duration::from_secs(120);
const PIECE: usize = 1 << 16;
/// The longest datagram: with a usual MTU it is cut into six fragments.
const LONGEST: u64 = 8000;

type Outcome<T = ()> = Result<T, String>;

/// Says which call failed.
fn told<T>(what: &str, result: io::Result<T>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Fills the buffer with the next bytes of a stream.
fn fill(random: &mut Random, buffer: &mut [u8]) {
    for part in buffer.chunks_mut(8) {
        part.copy_from_slice(&random.bits().to_ne_bytes()[..part.len()]);
    }
}

fn patient(stream: &TcpStream) -> Outcome {
    told("SO_RCVTIMEO", stream.set_read_timeout(Some(PATIENCE)))?;
    told("SO_SNDTIMEO", stream.set_write_timeout(Some(PATIENCE)))
}

fn send(mut stream: &TcpStream, seed: u64, size: u64) -> Outcome {
    let mut random = Random::new(seed);
    let mut buffer = vec![0; PIECE];
    for at in (0..size).step_by(PIECE) {
        let count = (size - at).min(PIECE as u64) as usize;
        fill(&mut random, &mut buffer[..count]);
        told(&format!("write at byte {at}"), stream.write_all(&buffer[..count]))?;
    }
    told("shutdown", stream.shutdown(Shutdown::Write))
}

fn receive(mut stream: &TcpStream, seed: u64, size: u64) -> Outcome {
    let mut random = Random::new(seed);
    let (mut got, mut wanted) = (vec![0; PIECE], vec![0; PIECE]);
    for at in (0..size).step_by(PIECE) {
        let count = (size - at).min(PIECE as u64) as usize;
        told(&format!("read at byte {at}"), stream.read_exact(&mut got[..count]))?;
        fill(&mut random, &mut wanted[..count]);
        if let Some(wrong) = (0..count).find(|&i| got[i] != wanted[i]) {
            return Err(format!("byte {} is not what was sent", at + wrong as u64));
        }
    }
    match told("read at the end", stream.read(&mut got))? {
        0 => Ok(()),
        more => Err(format!("{more} bytes behind the end")),
    }
}

/// Waits for a connection, but not for ever: the end that makes it may have failed.
fn accept(listener: &TcpListener) -> Outcome<TcpStream> {
    let mut entry = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live entry.
    if unsafe { libc::poll(&mut entry, 1, PATIENCE.as_millis() as i32) } != 1 {
        return Err("no connection came".into());
    }
    let (stream, _) = told("accept", listener.accept())?;
    patient(&stream)?;
    Ok(stream)
}

/// Sends and receives at once.
fn exchange(stream: &TcpStream, out: u64, back: u64, size: u64) -> Outcome {
    patient(stream)?;
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(stream, out, size));
        let received = receive(stream, back, size);
        let sent = sender.join().unwrap_or_else(|_| Err("the sender panicked".into()));
        received.and(sent)
    })
}

/// Both directions of one connection at once.
fn streams(host: IpAddr, size: u64) -> Outcome {
    let listener = told("listen", TcpListener::bind((host, 0)))?;
    let address = told("getsockname", listener.local_addr())?;
    let from = Instant::now();
    thread::scope(|scope| {
        let server = scope.spawn(|| exchange(&accept(&listener)?, 1, 2, size));
        let stream = told("connect", TcpStream::connect_timeout(&address, PATIENCE))?;
        let here = exchange(&stream, 2, 1, size);
        here.and(server.join().unwrap_or_else(|_| Err("the server panicked".into())))
    })?;
    let seconds = from.elapsed().as_secs_f64();
    println!("lossy: {host}: {} MiB each way in {seconds:.1} s", size >> 20);
    Ok(())
}

/// Connections one after the other, each with a request and an answer.
fn calls(host: IpAddr, count: u64) -> Outcome {
    let listener = told("listen", TcpListener::bind((host, 0)))?;
    let address = told("getsockname", listener.local_addr())?;
    let from = Instant::now();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            (0..count).try_for_each(|call| {
                let stream = accept(&listener)?;
                receive(&stream, call, 100 + call)?;
                send(&stream, !call, 5000)
            })
        });
        let here = (0..count).try_for_each(|call| {
            let stream = told("connect", TcpStream::connect_timeout(&address, PATIENCE))?;
            patient(&stream)?;
            send(&stream, call, 100 + call)?;
            receive(&stream, !call, 5000).map_err(|why| format!("call {call}: {why}"))
        });
        here.and(server.join().unwrap_or_else(|_| Err("the server panicked".into())))
    })?;
    println!("lossy: {host}: {count} calls in {:.1} s", from.elapsed().as_secs_f64());
    Ok(())
}

/// The datagram of a number: the number, and bytes that follow from it.
fn datagram(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    let mut bytes = vec![0; 8 + random.below(LONGEST) as usize];
    fill(&mut random, &mut bytes[8..]);
    bytes[..8].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// Reads datagrams until none has come for a while. Returns which came.
fn collect(socket: &UdpSocket, from: SocketAddr, count: u64) -> Outcome<Vec<u32>> {
    let mut came = vec![0; count as usize];
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, sender) = match socket.recv_from(&mut buffer) {
            Ok(got) => got,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(came);
            }
            Err(error) => return Err(format!("recvfrom: {error}")),
        };
        let number = buffer[..length].first_chunk().map_or(u64::MAX, |n| u64::from_ne_bytes(*n));
        if number >= count || sender != from || buffer[..length] != datagram(number) {
            return Err(format!("a damaged datagram of {length} bytes from {sender} was shown"));
        }
        came[number as usize] += 1;
    }
}

fn datagrams(host: IpAddr, count: u64, is_bad: bool) -> Outcome {
    let (here, there) =
        (told("bind", UdpSocket::bind((host, 0)))?, told("bind", UdpSocket::bind((host, 0)))?);
    let address = |socket: &UdpSocket| told("getsockname", socket.local_addr());
    let (from, to) = (address(&here)?, address(&there)?);
    told("SO_RCVTIMEO", there.set_read_timeout(Some(Duration::from_secs(2))))?;
    let came = thread::scope(|scope| {
        let receiver = scope.spawn(|| collect(&there, from, count));
        for number in 0..count {
            told("sendto", here.send_to(&datagram(number), to))?;
            // Faults of the network are looked for, not a full buffer.
            if number % 8 == 7 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        receiver.join().unwrap_or_else(|_| Err("the receiver panicked".into()))
    })?;
    let once = came.iter().filter(|&&times| times > 0).count() as u64;
    let again = came.iter().filter(|&&times| times > 1).count();
    println!("lossy: {host}: {once} of {count} datagrams came, {again} of them again");
    match once {
        _ if once * 2 < count => Err(format!("only {once} of {count} datagrams came")),
        _ if is_bad && once == count => Err("no datagram was lost: are there faults?".into()),
        _ => Ok(()),
    }
}

/// Sets the loopback interface's MTU; returns the one before.
fn set_mtu(mtu: i32) -> Outcome<i32> {
    let socket = told("socket", UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)))?;
    // SAFETY: a request of zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as _, b'o' as _]);
    let mut call = |number: libc::c_int| {
        let fd = socket.as_raw_fd();
        // SAFETY: `request` is a live structure of the type that these requests take.
        let result = unsafe { libc::ioctl(fd, number as _, &mut request) };
        if result == -1 {
            return Err(format!("the MTU of lo: {}", io::Error::last_os_error()));
        }
        // SAFETY: both requests are about the MTU, and every integer is one.
        let before = unsafe { request.ifr_ifru.ifru_mtu };
        request.ifr_ifru.ifru_mtu = mtu;
        Ok(before)
    };
    let before = call(libc::SIOCGIFMTU as _)?;
    call(libc::SIOCSIFMTU as _)?;
    Ok(before)
}

fn set_faults(text: &str) -> Outcome {
    told(&format!("{FAULTS} (only Hayate has it; is this root?)"), fs::write(FAULTS, text))
}

/// Whether the network has faults that lose packets.
fn loses() -> bool {
    let text = fs::read_to_string(FAULTS).unwrap_or_default();
    text.split(',').any(|word| word.starts_with("loss:") && word != "loss:0")
}

fn all(options: &Options) -> Outcome {
    let is_bad = loses();
    for host in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let place = |why| format!("{host}: {why}");
        streams(host, options.get::<u64>("mib", 16) << 20).map_err(place)?;
        calls(host, options.get("calls", 40)).map_err(place)?;
        datagrams(host, options.get("datagrams", 2000), is_bad).map_err(place)?;
    }
    Ok(())
}

fn run(options: &Options) -> Outcome {
    let mtu = options.has("mtu").then(|| set_mtu(options.get("mtu", 1500))).transpose()?;
    let fault: String = options.get("fault", String::new());
    let result = if fault.is_empty() { Ok(()) } else { set_faults(&fault) };
    let result = result.and_then(|()| all(options));
    if !fault.is_empty() {
        let _ = set_faults("off");
    }
    let back = mtu.map(set_mtu).transpose();
    result.and(back.map(drop))
}

fn main() {
    let options = Options::parse(USAGE, &["mib", "calls", "datagrams", "mtu", "fault"], &[]);
    match run(&options) {
        Ok(()) => println!("lossy: all bytes are right"),
        Err(why) => {
            println!("lossy: FAILED: {why}");
            exit(1)
        }
    }
}
