//! The channel to a guest (`hayate-channel`), shared by the programs of a pod.
//!
//! One task reads frames and hands each to its session; another writes. What waits is bounded by
//! the windows of the streams: [`Relay`] holds the guest to them, and [`crate::program`] this side.
//! When the machine is gone every session hears the end of its frames.

use hayate_channel::FIRST;
use hayate_channel::command::Command;
use hayate_channel::frame::{Decoder, Frame, Message, Side};
use hayate_channel::relay::{Delivery, Relay};
use std::collections::HashMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// The guest's messages about a session.
pub type Frames = UnboundedReceiver<Message>;

/// A request to the task of the channel.
enum Order {
    Open(Command, UnboundedSender<Message>, oneshot::Sender<u32>),
    Send(u32, Message),
}

/// The channel.
#[derive(Clone)]
pub struct Link {
    orders: UnboundedSender<Order>,
}

/// The channel's far end, before there is a guest.
pub struct Waiting {
    orders: UnboundedReceiver<Order>,
}

/// Makes a channel; what is asked of it waits until it is served.
pub fn link() -> (Link, Waiting) {
    let (sender, orders) = unbounded_channel();
    (Link { orders: sender }, Waiting { orders })
}

impl Link {
    /// Starts a program in the guest, as a session. `None`: the machine is gone.
    pub async fn open(&self, command: Command) -> Option<(u32, Frames)> {
        let (sender, frames) = unbounded_channel();
        let (number, answer) = oneshot::channel();
        self.orders.send(Order::Open(command, sender, number)).ok()?;
        Some((answer.await.ok()?, frames))
    }

    /// Sends a message of a session; if the machine is gone, or the session over, it is dropped.
    pub fn send(&self, session: u32, message: Message) {
        let _ = self.orders.send(Order::Send(session, message));
    }
}

impl Waiting {
    /// Serves until the guest is gone. `greeting` is the first that it hears, as it stands; `ready`
    /// is called when it takes programs.
    pub async fn serve(mut self, stream: UnixStream, greeting: Vec<u8>, ready: impl FnOnce()) {
        let (mut input, output) = stream.into_split();
        let (frames, written) = unbounded_channel();
        // The queue is new, so its other end is there.
        let _ = frames.send(greeting);
        tokio::spawn(write(output, written));
        let mut service = Service {
            relay: Relay::default(),
            sessions: HashMap::new(),
            next: FIRST,
            frames,
            ready: Some(ready),
        };
        let mut decoder = Decoder::new(Side::Guest);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let greeted = service.ready.is_none();
            tokio::select! {
                count = input.read(&mut buffer) => match count {
                    Ok(count @ 1..) => decoder.push(&buffer[..count]),
                    _ => return,
                },
                order = self.orders.recv(), if greeted => match order {
                    Some(order) => service.obey(order),
                    None => return,
                },
            }
            loop {
                match decoder.frame() {
                    Ok(Some(frame)) => service.hear(frame),
                    Ok(None) => break,
                    Err(error) => {
                        log::error!("the guest sent {error}");
                        return;
                    }
                }
            }
        }
    }
}

/// The state of a channel that is served.
struct Service<F> {
    relay: Relay,
    sessions: HashMap<u32, UnboundedSender<Message>>,
    next: u32,
    frames: UnboundedSender<Vec<u8>>,
    ready: Option<F>,
}

impl<F: FnOnce()> Service<F> {
    fn obey(&mut self, order: Order) {
        let (number, message) = match order {
            Order::Open(command, session, number) => {
                // Never used again, so that a late frame reaches nobody else.
                self.next += 1;
                if number.send(self.next).is_err() {
                    return;
                }
                self.sessions.insert(self.next, session);
                (self.next, Message::Open(Box::new(command)))
            }
            Order::Send(number, message) => (number, message),
        };
        // Credit and data may be on the way when a program ends.
        if let Ok(frame) = self.relay.from_client(number, message) {
            let _ = self.frames.send(frame.encode());
        }
    }

    fn hear(&mut self, frame: Frame) {
        if let Message::Hello(_) = frame.message {
            if let Some(ready) = self.ready.take() {
                ready();
            }
            return;
        }
        let (frame, last) = match self.relay.from_guest(frame) {
            Delivery::Drop => return,
            Delivery::Pass(frame) => (frame, false),
            Delivery::Last(frame) => (frame, true),
        };
        if let Some(session) = self.sessions.get(&frame.session) {
            let _ = session.send(frame.message);
        }
        if last {
            self.sessions.remove(&frame.session);
        }
    }
}

async fn write(mut output: OwnedWriteHalf, mut frames: UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if output.write_all(&frame).await.is_err() {
            return;
        }
    }
}
