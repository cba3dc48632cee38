//! The supervisor's middle between one channel and any number of clients.
//!
//! One thread polls the guest's end, the socket for clients and every client, and waits for none of
//! them: all are non-blocking. What waits is bounded. For a client these are its windows
//! ([`hayate_channel::relay`] holds the guest to them); for the guest [`ROOM`], beyond which
//! clients are not read. The guest's init always reads, so the two cannot wait for each other.

use super::directory::Owned;
use super::journal::Journal;
use crate::guest::session::Event;
use hayate_channel::frame::{Decoder, Frame, Message, Side, Stream};
use hayate_channel::relay::{Delivery, Relay};
use hayate_channel::window::Receipts;
use hayate_channel::{FIRST, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::SIGKILL;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// With so many bytes waiting for the guest, clients are not read.
const ROOM: usize = 256 << 10;
/// How often the folder is looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// How long a machine may take to end, beyond what it was given.
const GRACE: Duration = Duration::from_secs(5);
/// What processes get where nobody says how long.
const USUAL_SECONDS: u32 = 10;

/// What the hub tells its supervisor.
pub enum News {
    /// Programs may be started.
    Ready,
    /// The first program was not started, for this reason and with this status.
    Refused(u8, String),
    /// The machine is being stopped, for this reason.
    Stopping(&'static str),
}

/// Bytes that wait for their reader.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    sent: usize,
}

impl Pending {
    fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Writes what is taken without waiting. False: the reader is gone.
    fn flush(&mut self, mut socket: &UnixStream) -> bool {
        while self.left() > 0 {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        self.bytes.drain(..self.sent);
        self.sent = 0;
        true
    }
}

/// A client.
struct Client {
    socket: UnixStream,
    decoder: Decoder,
    out: Pending,
    /// Whether the last message to it is among what waits.
    over: bool,
}

/// The hub, before its guest is there.
pub struct Hub {
    /// Clients connect here.
    pub listener: UnixListener,
    /// The machine's folder.
    pub owned: std::sync::Arc<Owned>,
    /// The output of the first program.
    pub output: Journal,
    /// Whether there is a first program.
    pub has_first: bool,
    /// What a guest is told first, of a machine that was restored.
    pub greeting: Vec<u8>,
    /// The process with which the machine ends.
    pub owner: Option<OwnedFd>,
    /// The session of the machine.
    pub events: Sender<Event>,
    /// Takes news; false ends the machine.
    pub news: Box<dyn FnMut(News) -> bool + Send>,
}

impl Hub {
    /// Serves each guest that comes, until no other one can come.
    pub fn serve(mut self, guests: &Receiver<UnixStream>) {
        while let Ok(guest) = guests.recv() {
            if guest.set_nonblocking(true).is_ok() {
                Service::new(&mut self, guest).run();
            }
        }
    }
}

/// The hub with its guest.
struct Service<'a> {
    hub: &'a mut Hub,
    guest: UnixStream,
    decoder: Decoder,
    to_guest: Pending,
    relay: Relay,
    receipts: [Receipts; 2],
    clients: BTreeMap<u32, Client>,
    next: u32,
    greeted: bool,
    refused: bool,
    /// When QEMU is killed.
    deadline: Option<Instant>,
    /// No descriptor was free for another client.
    full: bool,
    buffer: Vec<u8>,
}

/// What can be read.
struct Readable {
    guest: bool,
    listener: bool,
    owner: bool,
    clients: Vec<u32>,
}

impl<'a> Service<'a> {
    fn new(hub: &'a mut Hub, guest: UnixStream) -> Service<'a> {
        let mut relay = Relay::default();
        if hub.has_first {
            relay.open(FIRST);
        }
        let to_guest = Pending { bytes: hub.greeting.clone(), sent: 0 };
        Service {
            hub,
            guest,
            decoder: Decoder::new(Side::Guest),
            to_guest,
            relay,
            receipts: Default::default(),
            clients: BTreeMap::new(),
            next: FIRST,
            greeted: false,
            refused: false,
            deadline: None,
            full: false,
            buffer: vec![0; 64 << 10],
        }
    }

    /// Serves until the guest is gone.
    fn run(&mut self) {
        loop {
            if !self.to_guest.flush(&self.guest) {
                return;
            }
            let gone: Vec<u32> = self
                .clients
                .iter_mut()
                .filter_map(|(&number, client)| {
                    let there = client.out.flush(&client.socket);
                    (!there || client.over && client.out.left() == 0).then_some(number)
                })
                .collect();
            gone.into_iter().for_each(|number| self.drop_client(number));
            if self.to_guest.left() > 0 && !self.to_guest.flush(&self.guest) {
                return;
            }
            let readable = self.wait();
            if readable.guest && !self.hear_guest() {
                return;
            }
            for number in readable.clients {
                self.hear_client(number);
            }
            if readable.listener {
                self.accept();
            }
            self.keep_house(readable.owner);
        }
    }

    /// Waits until something can be done.
    fn wait(&self) -> Readable {
        let out = |pending: &Pending| {
            if pending.left() > 0 { PollFlags::OUT } else { PollFlags::empty() }
        };
        let hears = self.greeted && self.to_guest.left() < ROOM;
        let mut polled = vec![PollFd::new(&self.guest, PollFlags::IN | out(&self.to_guest))];
        let listens = self.greeted && !self.full;
        let listening = if listens { PollFlags::IN } else { PollFlags::empty() };
        polled.push(PollFd::new(&self.hub.listener, listening));
        for client in self.clients.values() {
            let reads = if hears && !client.over { PollFlags::IN } else { PollFlags::empty() };
            polled.push(PollFd::new(&client.socket, reads | out(&client.out)));
        }
        let clients = polled.len();
        if let Some(owner) = self.hub.owner.as_ref().filter(|_| self.deadline.is_none()) {
            polled.push(PollFd::new(owner, PollFlags::IN));
        }
        let wait = self.deadline.map_or(HOUSEKEEPING, |deadline| {
            deadline.saturating_duration_since(Instant::now()).min(HOUSEKEEPING)
        });
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(1),
            tv_nsec: wait.subsec_nanos().into(),
        };
        let count = poll(&mut polled, Some(&wait)).unwrap_or(0);
        // A writer that hung up is noticed by reading.
        let ended = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let readable = |at: usize| {
            count > 0 && polled.get(at).is_some_and(|entry| entry.revents().intersects(ended))
        };
        Readable {
            guest: readable(0),
            listener: readable(1),
            owner: readable(clients),
            clients: self
                .clients
                .keys()
                .zip(2..)
                .filter_map(|(&number, at)| readable(at).then_some(number))
                .collect(),
        }
    }

    /// Takes what the guest sent. False: it is gone, or speaks another language.
    fn hear_guest(&mut self) -> bool {
        match self.guest.read(&mut self.buffer) {
            Ok(0) => return false,
            Ok(count) => self.decoder.push(&self.buffer[..count]),
            Err(error) => {
                return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
            }
        }
        loop {
            match self.decoder.frame() {
                Ok(Some(Frame { message: Message::Hello(_), .. })) => {
                    self.greeted = true;
                    let _ = self.hub.events.send(Event::Ready);
                    if !self.refused && !(self.hub.news)(News::Ready) {
                        self.stop(USUAL_SECONDS, "its start was given up");
                    }
                }
                Ok(Some(frame)) => self.deliver(frame),
                Ok(None) => return true,
                // Nothing that follows can be understood, so nobody can be served.
                Err(_) => {
                    self.kill("its init sent something that makes no sense");
                    return false;
                }
            }
        }
    }

    fn deliver(&mut self, frame: Frame) {
        let (frame, last) = match self.relay.from_guest(frame) {
            Delivery::Drop => return,
            Delivery::Pass(frame) => (frame, false),
            Delivery::Last(frame) => (frame, true),
        };
        if frame.session == FIRST {
            self.journal(frame.message);
        } else if let Some(client) = self.clients.get_mut(&frame.session) {
            frame.encode_to(&mut client.out.bytes);
            client.over = last;
        }
    }

    /// Keeps what the first program printed.
    fn journal(&mut self, message: Message) {
        match message {
            Message::Data(stream, bytes) => {
                // A full disk must not stop the program.
                let _ = self.hub.output.write_all(&bytes);
                let receipts = &mut self.receipts[usize::from(stream == Stream::Error)];
                if let Some(credit) = receipts.passed_on(bytes.len()) {
                    let credit = Message::Credit(stream, credit);
                    if let Ok(frame) = self.relay.from_client(FIRST, credit) {
                        frame.encode_to(&mut self.to_guest.bytes);
                    }
                }
            }
            Message::Exit(_) => {
                (self.hub.news)(News::Stopping("its first program ended"));
            }
            Message::Failed(status, text) => {
                self.refused = true;
                (self.hub.news)(News::Refused(status, text));
            }
            _ => {}
        }
    }

    fn accept(&mut self) {
        let socket = match self.hub.listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                self.full = error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error());
                return;
            }
        };
        if socket.set_nonblocking(true).is_err() {
            return;
        }
        // Numbers are not used again, so that a late frame reaches nobody else.
        let Some(next) = self.next.checked_add(1) else { return };
        self.next = next;
        let mut out = Pending::default();
        Frame::new(next, Message::Hello(VERSION)).encode_to(&mut out.bytes);
        let client = Client { socket, decoder: Decoder::new(Side::Host), out, over: false };
        self.clients.insert(next, client);
        // Its request is mostly there already.
        self.hear_client(next);
    }

    /// Takes what a client sent.
    fn hear_client(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match client.socket.read(&mut self.buffer) {
            Ok(0) => return self.drop_client(number),
            Ok(count) => client.decoder.push(&self.buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return;
            }
            Err(_) => return self.drop_client(number),
        }
        while let Some(client) = self.clients.get_mut(&number) {
            let Ok(next) = client.decoder.frame() else { return self.drop_client(number) };
            match next {
                None => return,
                Some(_) if client.over => {}
                Some(Frame { message: Message::Shutdown(seconds), .. }) => {
                    self.stop(seconds, "it was stopped");
                }
                Some(Frame { message, .. }) => match self.relay.from_client(number, message) {
                    Ok(frame) => frame.encode_to(&mut self.to_guest.bytes),
                    // Credit and data may be on the way when the program ends.
                    Err(_) if client.over => {}
                    Err(_) => return self.drop_client(number),
                },
            }
        }
    }

    fn drop_client(&mut self, number: u32) {
        self.clients.remove(&number);
        self.full = false;
        if let Some(frame) = self.relay.client_left(number) {
            frame.encode_to(&mut self.to_guest.bytes);
        }
    }

    /// Ends the machine: the guest has so many seconds, and QEMU a few more.
    fn stop(&mut self, seconds: u32, why: &'static str) {
        (self.hub.news)(News::Stopping(why));
        Frame::new(FIRST, Message::Shutdown(seconds)).encode_to(&mut self.to_guest.bytes);
        let deadline = Instant::now() + Duration::from_secs(seconds.into()) + GRACE;
        self.deadline = Some(self.deadline.map_or(deadline, |known| known.min(deadline)));
    }

    fn kill(&mut self, why: &'static str) {
        (self.hub.news)(News::Stopping(why));
        // The first is passed on to the guest, the second ends QEMU.
        for _ in 0..2 {
            let _ = self.hub.events.send(Event::Signal(SIGKILL));
        }
    }

    /// Ends the machine where nobody can use it any more, or it does not end by itself.
    fn keep_house(&mut self, owner_ended: bool) {
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => {
                self.deadline = Some(Instant::now() + Duration::from_secs(3600));
                self.kill("it did not end when it was stopped, and was killed");
            }
            Some(_) => {}
            None if owner_ended => self.stop(USUAL_SECONDS, "its owner ended"),
            None if !self.hub.owned.is_there() => {
                self.stop(USUAL_SECONDS, "its folder was removed");
            }
            None => {}
        }
    }
}
