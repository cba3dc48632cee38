//! The guest's end of the channel: frames in, and those that wait to go out.

use crate::Failure;
use crate::port::{self, Mode};
use hayate_channel::VERSION;
use hayate_channel::frame::{Decoder, Frame, Message, Side};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;

/// With so many bytes waiting, programs' output is not read.
const ROOM: usize = 256 << 10;

/// Frames that wait to go to the host.
#[derive(Default)]
pub struct Outbox {
    waiting: Vec<u8>,
    sent: usize,
}

impl Outbox {
    /// Puts a message at the end.
    pub fn send(&mut self, session: u32, message: Message) {
        Frame::new(session, message).encode_to(&mut self.waiting);
    }

    /// Whether output of programs may be added.
    pub fn has_room(&self) -> bool {
        self.waiting.len() - self.sent < ROOM
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.sent == self.waiting.len()
    }
}

/// The open port.
pub struct Channel {
    port: File,
    decoder: Decoder,
    /// What waits to go out.
    pub out: Outbox,
}

impl Channel {
    /// Opens the port, and greets the host.
    pub fn open() -> Result<Channel, Failure> {
        let port = port::open(hayate_job::port::CHANNEL, Mode::Both)?;
        port::await_host(&port);
        Ok(Channel { port, decoder: Decoder::new(Side::Host), out: Outbox::default() })
    }

    /// Tells the host that programs may come.
    pub fn greet(&mut self) {
        self.out.send(hayate_channel::FIRST, Message::Hello(VERSION));
    }

    /// What to wait for.
    pub fn interests(&self) -> libc::pollfd {
        let out = if self.out.is_empty() { 0 } else { libc::POLLOUT };
        libc::pollfd { fd: self.port.as_raw_fd(), events: libc::POLLIN | out, revents: 0 }
    }

    /// Reads what has arrived. `None`: the host hung up, or speaks another language.
    pub fn frames(&mut self, buffer: &mut [u8]) -> Option<Vec<Frame>> {
        match rustix::io::read(&self.port, &mut *buffer) {
            Ok(0) => return None,
            Ok(count) => self.decoder.push(&buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => return Some(Vec::new()),
            Err(_) => return None,
        }
        let mut frames = Vec::new();
        while let Some(frame) = self.decoder.frame().ok()? {
            frames.push(frame);
        }
        Some(frames)
    }

    /// Writes what the port takes without waiting. False: the host hung up.
    pub fn flush(&mut self) -> bool {
        let out = &mut self.out;
        while out.sent < out.waiting.len() {
            match rustix::io::write(&self.port, &out.waiting[out.sent..]) {
                Ok(count) => out.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return false,
            }
        }
        out.waiting.drain(..out.sent);
        out.sent = 0;
        true
    }
}
