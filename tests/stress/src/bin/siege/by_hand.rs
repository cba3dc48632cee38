//! Attacks by connections whose one end is made by hand: it obeys TCP as far as it likes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::{Duration, Instant};

use hayate_stress::served::Server;
use hayate_stress::{become_nobody, fork, wait_now};

use crate::wire::{ACK, LOCAL, PUSH, RST, SILENT, SYN, Segment, Sight, Way};
use crate::{Attacker, Outcome, Watch};

/// The options that let a connection to a peer that is gone end soon.
const IDLE: i32 = 1;
/// A connection ends when nothing was acknowledged for so many milliseconds.
const USER_TIMEOUT: i32 = 3000;
/// How long all connections may take to begin.
const BEGIN: Duration = Duration::from_secs(20);
/// How long they may take to end.
const END: Duration = Duration::from_secs(40);

fn set(stream: &TcpStream, option: i32, value: i32) {
    let (at, length) = ((&raw const value).cast(), size_of_val(&value) as u32);
    // SAFETY: a live number.
    unsafe { libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, option, at, length) };
}

/// A process of a user without privilege that accepts connections and does something with each. It
/// ends when it had `count` and all are over. Returns it and its port.
fn victim(count: usize, meet: impl FnMut(&mut TcpStream)) -> Outcome<(i32, u16)> {
    let told = |error: std::io::Error| format!("the victim cannot be started: {error}");
    let (mut reader, mut writer) = std::io::pipe().map_err(told)?;
    match fork().map_err(told)? {
        0 => {
            drop(reader);
            let listener = become_nobody().then(|| TcpListener::bind(("127.0.0.1", 0)));
            let Some(Ok(listener)) = listener else { exit(1) };
            let Ok(address) = listener.local_addr() else { exit(1) };
            let is_told = writer.write_all(&address.port().to_ne_bytes()).is_ok();
            drop(writer);
            exit(i32::from(!is_told || suffer(listener, count, meet).is_err()))
        }
        pid => {
            drop(writer);
            let mut port = [0; 2];
            reader.read_exact(&mut port).map_err(told)?;
            Ok((pid, u16::from_ne_bytes(port)))
        }
    }
}

fn suffer(
    listener: TcpListener,
    count: usize,
    mut meet: impl FnMut(&mut TcpStream),
) -> std::io::Result<()> {
    // SAFETY: a plain call with numbers.
    unsafe { libc::listen(listener.as_raw_fd(), 1024) };
    let mut streams = Vec::new();
    while streams.len() < count {
        let (mut stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        meet(&mut stream);
        streams.push(stream);
    }
    drop(listener);
    println!("siege: {} connections are there", streams.len());
    for stream in streams {
        let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: a live structure.
        while unsafe { libc::poll(&raw mut poll, 1, -1) } < 1 {}
    }
    Ok(())
}

/// Waits for the end of the victim while the server is asked.
fn until_over(pid: i32, server: &Server, watch: &mut Watch) -> Outcome<()> {
    let end = Instant::now() + END;
    while wait_now(pid).is_none() {
        watch.look(&[server])?;
        std::thread::sleep(Duration::from_millis(50));
        if Instant::now() > end {
            hayate_stress::kill(pid, libc::SIGKILL);
            hayate_stress::wait(pid);
            return Err("connections to a peer that is gone do not end".into());
        }
    }
    Ok(())
}

/// The ends by hand of `count` connections.
struct Ends {
    way: Way,
    sight: Sight,
    buffer: Vec<u8>,
    victim: u16,
    count: usize,
    window: u16,
}

impl Ends {
    fn open(victim: u16, count: usize, window: u16) -> Outcome<Ends> {
        let told = |error: std::io::Error| format!("sockets of the attacker: {error}");
        let (way, sight) = (Way::open().map_err(told)?, Sight::open().map_err(told)?);
        Ok(Ends { way, sight, buffer: vec![0; 1 << 16], victim, count, window })
    }

    /// The segment of an end, whose number its address and port tell.
    fn segment(&self, number: usize, flags: u8) -> Segment {
        let source = (SILENT + 1 + (number % 250) as u32, 2000 + (number / 250) as u16);
        let destination = (LOCAL, self.victim);
        Segment {
            source,
            destination,
            sequence: 1000,
            flags,
            window: self.window,
            ..Segment::default()
        }
    }

    fn number(&self, segment: &Segment) -> Option<usize> {
        let host = segment.destination.0.checked_sub(SILENT + 1)? as usize;
        let number = usize::from(segment.destination.1.checked_sub(2000)?) * 250 + host;
        (segment.source == (LOCAL, self.victim) && number < self.count).then_some(number)
    }

    /// Answers a segment that came from the victim.
    fn answer(&self, number: usize, got: &Segment) {
        let mut reply = self.segment(number, ACK);
        reply.sequence = 1001;
        // The window is all that is taken, whatever came.
        let taken = (got.length as u32).min(u32::from(self.window));
        reply.acknowledged = got.sequence.wrapping_add(taken + u32::from(got.flags & SYN != 0));
        self.way.send(&reply.packet(0, &[]));
        if got.flags & SYN != 0 {
            reply.flags |= PUSH;
            self.way.send(&reply.packet(0, b"GET"));
        }
    }

    /// Begins all connections.
    fn begin(&mut self) -> Outcome<()> {
        let mut answered = vec![false; self.count];
        let end = Instant::now() + BEGIN;
        while answered.contains(&false) {
            if Instant::now() > end {
                return Err("connections by hand are not answered".into());
            }
            let missing = (0..self.count).filter(|&number| !answered[number]).take(32);
            for number in missing.collect::<Vec<_>>() {
                let mut syn = self.segment(number, SYN);
                syn.window = syn.window.max(1);
                self.way.send(&syn.packet(64, &[]));
            }
            self.serve(100, |number, got| {
                answered[number] |= got.flags & SYN != 0;
            });
        }
        Ok(())
    }

    /// Answers what comes until nothing does for some milliseconds.
    fn serve(&mut self, milliseconds: i32, mut met: impl FnMut(usize, &Segment)) {
        let end = Instant::now() + Duration::from_millis(500);
        let mut buffer = std::mem::take(&mut self.buffer);
        while Instant::now() < end {
            let Some(got) = self.sight.next(milliseconds, &mut buffer) else {
                // What is no segment of an end passes as well.
                if self.sight.is_empty() { break } else { continue }
            };
            let Some(number) = self.number(&got) else { continue };
            if got.flags & RST == 0 {
                self.answer(number, &got);
                met(number, &got);
            }
        }
        self.buffer = buffer;
    }
}

/// Connections whose peer is gone without a word: keepalive finds it out.
pub fn half_open(count: usize, server: &Server, watch: &mut Watch) -> Outcome<u64> {
    let (pid, port) = victim(count, |stream| {
        let on: i32 = 1;
        let (at, length) = ((&raw const on).cast(), size_of_val(&on) as u32);
        // SAFETY: a live number.
        unsafe {
            libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, at, length)
        };
        set(stream, libc::TCP_KEEPIDLE, IDLE);
        set(stream, libc::TCP_KEEPINTVL, IDLE);
        set(stream, libc::TCP_KEEPCNT, 3);
    })?;
    let mut ends = Ends::open(port, count, 1000)?;
    let attacker = Attacker::once(move || ends.begin())?;
    let end = Instant::now() + BEGIN;
    while !attacker.has_ended() && Instant::now() < end {
        watch.look(&[server])?;
    }
    until_over(pid, server, watch)?;
    Ok(24 << 20)
}

/// Connections that get all that their send buffer takes, to peers that take a byte at a time, or
/// nothing, and never say that they are gone.
pub fn windows(
    count: usize,
    window: u16,
    seconds: u64,
    server: &Server,
    watch: &mut Watch,
) -> Outcome<u64> {
    let (pid, port) = victim(count, |stream| {
        set(stream, libc::TCP_USER_TIMEOUT, USER_TIMEOUT);
        let bytes = [0x5a; 16 << 10];
        while stream.write(&bytes).is_ok() {}
    })?;
    let mut ends = Ends::open(port, count, window)?;
    let attacker = Attacker::once(move || {
        ends.begin()?;
        loop {
            ends.serve(100, |_, _| {});
        }
    })?;
    watch.look_for(seconds, &[server])?;
    if attacker.has_ended() {
        return Err("the attack failed".into());
    }
    // From now on nobody answers.
    drop(attacker);
    until_over(pid, server, watch)?;
    Ok(40 << 20)
}
