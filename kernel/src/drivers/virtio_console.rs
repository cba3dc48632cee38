//! The driver of virtio consoles (virtio 1.2, 5.3): ports, each a stream of bytes both ways.
//!
//! The file layer makes a character device of each port (`fs::devfs::port`). The port with the name
//! `hayate.tty`, or the only port of a device without names, becomes the console.
//!
//! # Flow
//!
//! Received frames wait in a list until a reader has taken their bytes; then they go back to the
//! device, so a slow reader slows the host down. Written bytes travel in chains of their own; a
//! writer sleeps while the queue is full.
//!
//! # Locks
//!
//! `receive`, `send`, `host` and those of the control queues are spin locks, which interrupt
//! handlers take too; `host` inside of `send`, otherwise one at a time. `hearing` is taken before
//! all of them: a thread that finds no control message left can rely on every message that came
//! having been acted upon, on whichever processor.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::virtio::{Chain, Device, Error, Piece, Queue};
use hayate_machine::{info, warn};

use crate::schedule::WaitQueue;
use crate::schedule::time::monotonic_ns;

mod feature {
    pub const MULTIPORT: u64 = 1 << 1;
}

/// Events of the control queues: identifier, event, value, each little-endian.
mod event {
    pub const DEVICE_READY: u16 = 0;
    pub const PORT_ADD: u16 = 1;
    pub const PORT_READY: u16 = 3;
    pub const PORT_OPEN: u16 = 6;
    pub const PORT_NAME: u16 = 7;
}

/// The name of the port that is the console.
const CONSOLE: &str = "hayate.tty";
/// Descriptors of each queue.
const QUEUE: u16 = 32;
/// Frames that the device has for the input of one port.
const BUFFERS: usize = 8;
/// The most ports of a device that are used.
const MOST_PORTS: u32 = 16;
const PAGE: usize = 4096;
/// How long the host may take to answer, or to take the last output, in nanoseconds.
const PATIENCE: u64 = 5_000_000_000;

static PORTS: SpinLock<Vec<Arc<Port>>> = SpinLock::new(Vec::new());

/// One device with its ports.
struct Console {
    /// The queues for control messages, receive and send; a device without names has none.
    control: Option<(SpinLock<Queue>, SpinLock<Queue>)>,
    /// Held while control messages are taken and acted upon.
    hearing: SpinLock<()>,
    /// Woken when control messages were taken.
    progress: WaitQueue,
    ports: Vec<Arc<Port>>,
}

/// One port.
pub struct Port {
    /// Its number at its device.
    pub number: u32,
    name: Once<String>,
    /// Whether the device has this port.
    exists: AtomicBool,
    host: SpinLock<Host>,
    /// The device that it belongs to; set when the device is set up.
    console: Once<Arc<Console>>,
    receive: SpinLock<Receive>,
    send: SpinLock<Queue>,
    /// Woken when there is input or the host closes.
    pub readers: WaitQueue,
    /// Woken when there is room for output or the host opens or closes.
    pub writers: WaitQueue,
    /// Whether the host was told that the guest's end is open.
    announced: AtomicBool,
    /// Whether it is the only port of a device without names, and therefore the console.
    only: bool,
}

/// Whether the host has its end of a port open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The host has not told yet.
    Unknown,
    /// It has.
    Open,
    /// It had it open, but closed it.
    Closed,
}

/// Input in a frame.
pub struct Received {
    /// The frame.
    pub frame: Frame,
    /// The first byte that is not yet taken.
    pub from: usize,
    /// End of the bytes.
    pub to: usize,
}

struct Receive {
    queue: Queue,
    /// Oldest first.
    waiting: VecDeque<Received>,
}

/// Returns all ports of all devices, in the order in which they were found.
pub fn ports() -> Vec<Arc<Port>> {
    PORTS.lock().clone()
}

/// Sets the device up with all its ports.
pub fn start(device: Device) -> core::result::Result<(), Error> {
    let named = device.negotiate(feature::MULTIPORT)? & feature::MULTIPORT != 0;
    let slot: Arc<Once<Arc<Console>>> = Arc::new(Once::new());
    let target = Arc::clone(&slot);
    device.connect(Box::new(move || {
        if let Some(console) = target.get() {
            console.interrupt();
        }
    }))?;
    let count = if named { device.config(|config| config.u32(4)).clamp(1, MOST_PORTS) } else { 1 };
    let mut ports = Vec::new();
    for number in 0..count {
        // Port 0 uses the first two queues, control the next two.
        let first = if number == 0 { 0 } else { 2 + 2 * number as u16 };
        let (receive, send) = (device.queue(first, QUEUE)?, device.queue(first + 1, QUEUE)?);
        ports.push(Arc::new(Port::new(number, receive, send, !named)));
    }
    let control = if named {
        Some((SpinLock::new(device.queue(2, QUEUE)?), SpinLock::new(device.queue(3, QUEUE)?)))
    } else {
        None
    };
    let console = Arc::new(Console {
        control,
        hearing: SpinLock::new(()),
        progress: WaitQueue::new(),
        ports,
    });
    for port in &console.ports {
        port.console.call_once(|| Arc::clone(&console));
    }
    slot.call_once(|| Arc::clone(&console));
    device.start();
    if named {
        console.fill_control();
        console.say(0, event::DEVICE_READY, 1);
        console.settle();
        for port in console.ports.iter().filter(|port| port.exists()) {
            port.fill();
            console.say(port.number, event::PORT_READY, 1);
        }
        console.settle();
    } else if let Some(port) = console.ports.first() {
        port.exists.store(true, Ordering::Release);
        *port.host.lock() = Host::Open;
        port.fill();
    }
    for port in console.ports.iter().filter(|port| port.exists()) {
        info!("virtio-console: port {} {}", port.number, port.name().unwrap_or("without a name"));
        PORTS.lock().push(Arc::clone(port));
    }
    // The device is never released.
    core::mem::forget(device);
    Ok(())
}

impl Console {
    /// Handles everything that the device has finished.
    fn interrupt(&self) {
        for port in self.ports.iter().filter(|port| port.exists()) {
            port.interrupt();
        }
        self.take_control();
    }

    /// Gives the device buffers for control messages.
    fn fill_control(&self) {
        let Some((receive, _)) = &self.control else { return };
        let mut queue = receive.lock();
        while queue.room() > 0 {
            let mut chain = Chain::new(0);
            if !chain.writes(Piece::bytes(Box::new([0; 256]))) || queue.give(chain).is_err() {
                break;
            }
        }
        queue.notify();
    }

    /// Sends a control message. It is lost if the queue is full; the queue takes thirty-two, and
    /// the device takes them at once.
    fn say(&self, port: u32, event: u16, value: u16) {
        let Some((_, send)) = &self.control else { return };
        let mut message = [0; 8];
        message[..4].copy_from_slice(&port.to_le_bytes());
        message[4..6].copy_from_slice(&event.to_le_bytes());
        message[6..].copy_from_slice(&value.to_le_bytes());
        let mut chain = Chain::new(0);
        let mut queue = send.lock();
        while queue.take().is_some() {}
        if !chain.reads(Piece::bytes(Box::new(message))) || queue.give(chain).is_err() {
            warn!("virtio-console: a control message was lost");
        }
        queue.notify();
    }

    /// Waits until the device has taken all control messages. It sends its answers to a message
    /// before it returns the message.
    fn settle(&self) {
        let Some((_, send)) = &self.control else { return };
        let idle = || {
            let mut queue = send.lock();
            while queue.take().is_some() {}
            queue.is_idle().then_some(())
        };
        let deadline = monotonic_ns() + PATIENCE;
        if self.progress.wait_interruptible(Some(deadline), idle).is_err() {
            warn!("virtio-console: the host does not answer");
        }
        self.take_control();
    }

    /// Takes control messages and acts on them. On return, messages that another processor took
    /// have been acted upon as well: otherwise a caller might look for a port that was not yet
    /// reported.
    fn take_control(&self) {
        let Some((receive, send)) = &self.control else { return };
        let hearing = self.hearing.lock();
        loop {
            let taken = receive.lock().take();
            let Some((chain, length)) = taken else { break };
            if let Some(Piece::Bytes(bytes)) = chain.pieces().first()
                && let Some(bytes) = bytes.get(..length as usize)
            {
                self.hear(bytes);
            }
            let mut queue = receive.lock();
            // The chain was in the queue before, so there is room.
            let _ = queue.give(chain);
            queue.notify();
        }
        drop(hearing);
        let mut queue = send.lock();
        while queue.take().is_some() {}
        drop(queue);
        self.progress.wake_all();
    }

    /// Handles a control message.
    fn hear(&self, message: &[u8]) {
        let Some((head, rest)) = message.split_first_chunk::<8>() else { return };
        let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let event = u16::from_le_bytes([head[4], head[5]]);
        let value = u16::from_le_bytes([head[6], head[7]]);
        let Some(port) = self.ports.get(number as usize) else { return };
        match event {
            event::PORT_ADD => port.exists.store(true, Ordering::Release),
            event::PORT_NAME => {
                let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
                let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'/';
                if !name.is_empty() && name.iter().all(plain) {
                    port.name.call_once(|| String::from_utf8_lossy(name).into_owned());
                }
            }
            event::PORT_OPEN => port.host_changed(value != 0),
            _ => {}
        }
    }
}

impl Port {
    fn new(number: u32, receive: Queue, send: Queue, only: bool) -> Self {
        Self {
            number,
            name: Once::new(),
            exists: AtomicBool::new(false),
            host: SpinLock::new(Host::Unknown),
            console: Once::new(),
            receive: SpinLock::new(Receive { queue: receive, waiting: VecDeque::new() }),
            send: SpinLock::new(send),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            announced: AtomicBool::new(false),
            only,
        }
    }

    fn exists(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    /// Returns the name that the host gave it.
    pub fn name(&self) -> Option<&str> {
        self.name.get().map(String::as_str)
    }

    /// Whether it is the machine's console.
    pub fn is_console(&self) -> bool {
        self.only || self.name() == Some(CONSOLE)
    }

    /// Returns the state of the host's end.
    pub fn host(&self) -> Host {
        *self.host.lock()
    }

    /// Gives the device frames for input.
    fn fill(&self) {
        let mut receive = self.receive.lock();
        for _ in 0..BUFFERS {
            let Some(frame) = Frame::allocate() else { break };
            receive.give(frame);
        }
        receive.queue.notify();
    }

    /// Tells the host that the guest's end is open; before that the host sends nothing. The host is
    /// never told that it is closed: programs open a port one after the other, and bytes that come
    /// in between belong to the next.
    pub fn announce(&self) {
        if !self.announced.swap(true, Ordering::AcqRel)
            && let Some(console) = self.console.get()
        {
            console.say(self.number, event::PORT_OPEN, 1);
        }
    }

    fn host_changed(&self, open: bool) {
        if !open {
            // Input that the host sent before it closed is in the queue already.
            self.take_input();
        }
        *self.host.lock() = if open { Host::Open } else { Host::Closed };
        self.readers.wake_all();
        self.writers.wake_all();
    }

    fn interrupt(&self) {
        let mut queue = self.send.lock();
        let mut room = false;
        while queue.take().is_some() {
            room = true;
        }
        drop(queue);
        if room {
            self.writers.wake_all();
        }
        self.take_input();
    }

    /// Moves input from the queue to the list.
    fn take_input(&self) {
        let mut receive = self.receive.lock();
        let mut came = false;
        while let Some((chain, length)) = receive.queue.take() {
            if let Some(Piece::Frame { frame, .. }) = chain.into_pieces().pop() {
                match (length as usize).min(PAGE) {
                    0 => receive.give(frame),
                    to => {
                        receive.waiting.push_back(Received { frame, from: 0, to });
                        came = true;
                    }
                }
            }
        }
        drop(receive);
        if came {
            self.readers.wake_all();
        }
    }

    /// Whether there is input.
    pub fn has_input(&self) -> bool {
        !self.receive.lock().waiting.is_empty()
    }

    /// Returns the state of the input: `Some(true)` when there is input, `Some(false)` when there
    /// is none and will never be, `None` when a reader has to wait.
    pub fn input_state(&self) -> Option<bool> {
        let closed = self.host() == Host::Closed;
        // The input is checked after the host's state, because the last input comes before the
        // closing.
        if self.has_input() {
            Some(true)
        } else if closed {
            Some(false)
        } else {
            None
        }
    }

    /// Takes the oldest input. The caller returns it with [`put_back`](Self::put_back). Only one
    /// may be taken at a time, or bytes get out of order.
    pub fn take(&self) -> Option<Received> {
        self.receive.lock().waiting.pop_front()
    }

    /// Returns input that was taken, with `from` advanced by the bytes that were used.
    pub fn put_back(&self, received: Received) {
        let mut receive = self.receive.lock();
        if received.from < received.to {
            receive.waiting.push_front(received);
        } else {
            receive.give(received.frame);
        }
    }

    /// Gives bytes to the device. `None` when the queue is full, or the host's end is not open yet;
    /// `EPIPE` when the host has closed its end.
    pub fn try_send(&self, piece: &mut Option<Piece>) -> Option<Result<()>> {
        let mut queue = self.send.lock();
        while queue.take().is_some() {}
        match self.host() {
            Host::Open => {}
            Host::Unknown => return None,
            Host::Closed => return Some(Err(Errno::EPIPE)),
        }
        if queue.room() == 0 {
            return None;
        }
        let mut chain = Chain::new(0);
        let Some(bytes) = piece.take() else { return Some(Ok(())) };
        if !chain.reads(bytes) {
            return Some(Err(Errno::ENOMEM));
        }
        match queue.give(chain) {
            Ok(()) => {
                queue.notify();
                Some(Ok(()))
            }
            Err(back) => {
                *piece = back.into_pieces().pop();
                None
            }
        }
    }

    /// Whether output would be taken now.
    pub fn can_send(&self) -> bool {
        let mut queue = self.send.lock();
        while queue.take().is_some() {}
        self.host() == Host::Open && queue.room() > 0
    }

    /// Sleeps until the host has taken all output, but not longer than five seconds.
    pub fn drain(&self) {
        let idle = || {
            let mut queue = self.send.lock();
            while queue.take().is_some() {}
            (queue.is_idle() || self.host() != Host::Open).then_some(())
        };
        // A signal or the time limit ends the wait; output that is left then is lost.
        let _ = self.writers.wait_interruptible(Some(monotonic_ns() + PATIENCE), idle);
    }
}

impl Receive {
    /// Gives a frame back to the device. It was in the queue before, so there is room.
    fn give(&mut self, frame: Frame) {
        let mut chain = Chain::new(0);
        if chain.writes(Piece::frame(frame)) {
            let _ = self.queue.give(chain);
            self.queue.notify();
        }
    }
}

/// Sleeps until the host has all output of all ports, but not longer than five seconds for each.
/// Called before the machine is switched off, because output in a queue would be lost.
pub fn drain() {
    for port in ports() {
        port.drain();
    }
}
