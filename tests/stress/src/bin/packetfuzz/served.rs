//! The server that has to go on while packets are thrown at the kernel, and its client.
//!
//! Both are processes of their own. The server sends back what it gets, over TCP and UDP. The
//! client compares what comes back, over a connection that stays and over new ones; it may be slow,
//! but no byte may be wrong and no connection may break.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use hayate_stress::Random;

use crate::Shared;
use crate::packets;

/// An exchange that takes longer than this is one that is not served.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sockets that listen, for IPv4 and IPv6.
pub struct Doors {
    /// TCP.
    pub streams: [TcpListener; 2],
    /// UDP.
    pub datagrams: [UdpSocket; 2],
}

impl Doors {
    pub fn open() -> io::Result<Doors> {
        Ok(Doors {
            streams: [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("[::1]:0")?],
            datagrams: [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("[::1]:0")?],
        })
    }

    /// Returns all ports.
    pub fn ports(&self) -> Vec<u16> {
        let streams = self.streams.iter().map(TcpListener::local_addr);
        let all = streams.chain(self.datagrams.iter().map(UdpSocket::local_addr));
        all.flatten().map(|address| address.port()).collect()
    }
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Serves until the process is killed.
pub fn serve(doors: &Doors) -> ! {
    thread::scope(|scope| {
        for listener in &doors.streams {
            scope.spawn(|| {
                for stream in listener.incoming().flatten() {
                    // A connection that cannot have a thread is closed.
                    let _ = thread::Builder::new().stack_size(1 << 16).spawn(|| echo(stream));
                }
            });
        }
        for socket in &doors.datagrams {
            scope.spawn(|| {
                let mut buffer = vec![0; 1 << 16];
                loop {
                    // Errors that others cause are not the server's affair.
                    if let Ok((count, from)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(&buffer[..count], from);
                    }
                }
            });
        }
    });
    unreachable!("the threads of the server do not end")
}

fn connect(to: SocketAddr) -> Result<TcpStream, String> {
    let failed = |error| format!("connect to {to}: {error}");
    let stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    Ok(stream)
}

fn call(random: &mut Random, mut stream: &TcpStream) -> Result<(), String> {
    let sent = packets::some_bytes(random, 3000);
    stream.write_all(&sent).map_err(|error| format!("write: {error}"))?;
    let mut back = vec![0; sent.len()];
    stream.read_exact(&mut back).map_err(|error| format!("read: {error}"))?;
    if back == sent { Ok(()) } else { Err("other bytes came back over TCP".into()) }
}

/// A datagram may be lost where buffers are full, but not again and again.
fn ask(random: &mut Random, to: SocketAddr) -> Result<(), String> {
    let failed = |error| format!("UDP to {to}: {error}");
    let socket = UdpSocket::bind((to.ip(), 0)).map_err(failed)?;
    socket.connect(to).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(failed)?;
    let sent = packets::some_bytes(random, 1400);
    let mut back = vec![0; 1 << 16];
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        socket.send(&sent).map_err(failed)?;
        match socket.recv(&mut back) {
            Ok(count) if back[..count] == sent => return Ok(()),
            Ok(_) => return Err("other bytes came back over UDP".into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(format!("no answer over UDP from {to}"))
}

/// Uses the server until it is told to stop, once at least.
pub fn use_server(doors: &Doors, seed: u64, shared: &Shared) -> Result<(), String> {
    let mut random = Random::new(seed);
    let address = |result: io::Result<SocketAddr>| result.map_err(|error| error.to_string());
    let mut old = Vec::new();
    for door in &doors.streams {
        let to = address(door.local_addr())?;
        old.push((to, connect(to)?));
    }
    loop {
        let is_last = shared.stop.load(Ordering::Relaxed);
        for (to, stream) in &old {
            let told = |what: &str, why: String| format!("{what} to {to}: {why}");
            call(&mut random, stream).map_err(|why| told("the old connection", why))?;
            let new = connect(*to)?;
            call(&mut random, &new).map_err(|why| told("a new connection", why))?;
            let _ = new.shutdown(Shutdown::Both);
        }
        for door in &doors.datagrams {
            ask(&mut random, address(door.local_addr())?)?;
        }
        shared.served.fetch_add(1, Ordering::Relaxed);
        if is_last {
            return Ok(());
        }
        // Closed connections keep their ports for a minute.
        thread::sleep(Duration::from_millis(20));
    }
}
