//! Fills as many sockets as programs without privilege may have, while others use the network.
//!
//! Each hoarder opens sockets until it gets no more, or has `--most`: connections to itself over
//! TCP, filled in both directions and never read; UDP sockets, filled with small and large
//! datagrams, and some that gather a datagram for ever (MSG_MORE). What the kernel then refuses is
//! its affair, but the program that is served must be: bytes over a new connection arrive as they
//! were sent, a datagram of every few comes through, and a process starts. When the hoarders are
//! killed, the kernel must hold what it held before.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::{Duration, Instant};

use hayate_stress::balance::balanced;
use hayate_stress::{Ended, Options, fork, wait};

const USAGE: &str = "sockets [--procs P] [--most N] [--runs R]
  --procs P   hoarders at the same time (2)
  --most N    sockets of each hoarder, at most (4000)
  --runs R    do it all so often, at least twice (2)
Example: sockets --procs 2 --runs 3";

/// The user of the hoarders.
const NOBODY: u32 = 65534;
/// How long the program that is served waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// The bytes that it sends over a connection.
const SERVED: usize = 256 << 10;
/// The datagrams that it sends at most until one comes through.
const DATAGRAMS: usize = 64;

/// The number of descriptors that this process may have, after raising it as far as it may.
fn descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure lives.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    limit.rlim_max
}

/// Ends a connection by a reset when it is closed, so that nothing of it is left (SO_LINGER).
fn reset_at_end(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = size_of_val(&linger) as u32;
    let (at, fd) = ((&raw const linger).cast(), stream.as_raw_fd());
    // SAFETY: the structure lives.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, at, length) };
}

/// Writes until nothing more is taken.
fn fill(stream: &mut TcpStream, piece: usize) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    let bytes = vec![0x5a; piece];
    for _ in 0..1000 {
        if stream.write(&bytes).is_err() {
            break;
        }
    }
    Ok(())
}

/// A pair of connected sockets, both full.
fn full_connection(listener: &TcpListener, piece: usize) -> std::io::Result<[TcpStream; 2]> {
    let address = listener.local_addr()?;
    let mut one = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    reset_at_end(&one);
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    let mut other = loop {
        match listener.accept() {
            Ok((other, _)) => break other,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if start.elapsed() > Duration::from_secs(2) {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    };
    reset_at_end(&other);
    fill(&mut one, piece)?;
    fill(&mut other, piece)?;
    Ok([one, other])
}

/// A full UDP socket; one in four gathers a datagram as well.
fn full_datagram_socket(turn: usize) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    socket.connect(socket.local_addr()?)?;
    socket.set_nonblocking(true)?;
    let bytes = vec![0xa5; [1, 100, 3000, 60_000][turn % 4]];
    for _ in 0..400 {
        if socket.send(&bytes).is_err() {
            break;
        }
    }
    if turn % 4 == 3 {
        let flags = libc::MSG_MORE | libc::MSG_DONTWAIT;
        // SAFETY: the bytes live.
        unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    }
    Ok(socket)
}

/// Opens and fills sockets; returns those of both kinds.
fn hoard(most: usize) -> (Vec<TcpStream>, Vec<UdpSocket>) {
    let (mut streams, mut datagrams) = (Vec::new(), Vec::new());
    let Ok(listener) = TcpListener::bind(("127.0.0.1", 0)) else { return (streams, datagrams) };
    let most = most.min(descriptors().saturating_sub(16) as usize);
    let (mut more_streams, mut more_datagrams) = (true, true);
    while (more_streams || more_datagrams) && streams.len() + datagrams.len() + 3 <= most {
        if more_streams {
            let piece = [100, 5000, 100_000][streams.len() / 2 % 3];
            match full_connection(&listener, piece) {
                Ok(pair) => streams.extend(pair),
                Err(_) => more_streams = false,
            }
        }
        if more_datagrams {
            match full_datagram_socket(datagrams.len()) {
                Ok(socket) => datagrams.push(socket),
                Err(_) => more_datagrams = false,
            }
        }
    }
    (streams, datagrams)
}

/// Starts a hoarder; returns its process and the numbers of its sockets once it has them.
fn start_hoarder(most: usize) -> Result<(i32, String), String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    match fork() {
        Ok(0) => {
            drop(reader);
            // SAFETY: no pointers.
            if unsafe { libc::setgid(NOBODY) != 0 || libc::setuid(NOBODY) != 0 } {
                exit(3);
            }
            let (streams, datagrams) = hoard(most);
            let _ = write!(writer, "{} and {}", streams.len(), datagrams.len());
            drop(writer);
            std::thread::sleep(Duration::from_secs(3600));
            exit(0)
        }
        Ok(pid) => {
            drop(writer);
            let mut said = String::new();
            let read = reader.read_to_string(&mut said);
            read.map(|_| (pid, said)).map_err(|error| format!("pipe of a hoarder: {error}"))
        }
        Err(error) => Err(format!("fork of a hoarder: {error}")),
    }
}

/// Sends bytes to another process over a new connection, which come back.
fn served_by_stream() -> Result<(), String> {
    let told = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(told("bind"))?;
    let address = listener.local_addr().map_err(told("getsockname"))?;
    let child = fork().map_err(told("fork"))?;
    if child == 0 {
        let echo = || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = vec![0; 8192];
            loop {
                match stream.read(&mut bytes)? {
                    0 => return Ok(()),
                    count => stream.write_all(&bytes[..count])?,
                }
            }
        };
        exit(i32::from(echo().is_err()));
    }
    let exchange = || -> Result<(), String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(told("connect"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(told("SO_RCVTIMEO"))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(told("SO_SNDTIMEO"))?;
        let sent: Vec<u8> = (0..SERVED).map(|at| (at % 251) as u8).collect();
        for piece in sent.chunks(4000) {
            stream.write_all(piece).map_err(told("send"))?;
            let mut back = vec![0; piece.len()];
            stream.read_exact(&mut back).map_err(told("receive"))?;
            if back != piece {
                return Err("other bytes came back than were sent".into());
            }
        }
        reset_at_end(&stream);
        Ok(())
    };
    let outcome = exchange();
    // SAFETY: no pointers.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait(child);
    outcome
}

/// Sends datagrams until one arrives.
fn served_by_datagram() -> Result<(), String> {
    let told = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let receiver = UdpSocket::bind(("127.0.0.1", 0)).map_err(told("bind"))?;
    receiver.set_read_timeout(Some(Duration::from_millis(100))).map_err(told("SO_RCVTIMEO"))?;
    let sender = UdpSocket::bind(("127.0.0.1", 0)).map_err(told("bind"))?;
    let address = receiver.local_addr().map_err(told("getsockname"))?;
    let mut bytes = [0; 64];
    for _ in 0..DATAGRAMS {
        let _ = sender.send_to(b"served", address);
        if receiver.recv(&mut bytes).is_ok_and(|count| &bytes[..count] == b"served") {
            return Ok(());
        }
    }
    Err(format!("none of {DATAGRAMS} datagrams arrived"))
}

/// One run: returns the number of its hoarders.
fn strain(procs: u64, most: usize) -> Result<u64, String> {
    let mut hoarders = Vec::new();
    let mut outcome = Ok(());
    for _ in 0..procs {
        match start_hoarder(most) {
            Ok((pid, said)) => {
                println!("    {said} sockets (TCP and UDP)");
                hoarders.push(pid);
            }
            Err(why) => outcome = Err(why),
        }
    }
    let outcome = outcome
        .and_then(|()| served_by_stream().map_err(|why| format!("not served by TCP: {why}")))
        .and_then(|()| served_by_datagram().map_err(|why| format!("not served by UDP: {why}")));
    for pid in &hoarders {
        // SAFETY: no pointers.
        unsafe { libc::kill(*pid, libc::SIGKILL) };
    }
    for pid in hoarders {
        match wait(pid) {
            Some((_, Ended::Killed(libc::SIGKILL))) => {}
            other => return Err(format!("a hoarder ended as {other:?}")),
        }
    }
    outcome.map(|()| procs)
}

fn main() {
    let options = Options::parse(USAGE, &["procs", "most", "runs"], &[]);
    let (procs, most) = (options.get("procs", 2), options.get("most", 4000));
    if let Err(why) = balanced(options.get("runs", 2), 6, |_| strain(procs, most)) {
        println!("sockets: FAILED: {why}");
        exit(1);
    }
    println!("sockets: ok");
}
