//! The host's middle: which frames of clients go to the guest, and which of the guest's to clients.
//!
//! Each client has one session, and both have one number, which is never used again. A session is
//! open from its [`Message::Open`] to its end, which is [`Message::Exit`], [`Message::Failed`], the
//! client's leaving or a fault of one side. What the guest says about a session that is not open is
//! dropped: it may be about one whose client has left.

use crate::frame::{Frame, Message, Stream};
use crate::window::Allowance;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// What is to be done with a message of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Nobody wants it.
    Drop,
    /// Pass it on to the client of its session.
    Pass(Frame),
    /// Pass it on; it is the last one, and the client is forgotten.
    Last(Frame),
}

/// A client said something that no client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);

#[derive(Default)]
struct Session {
    input: Allowance,
    output: Allowance,
    error: Allowance,
}

impl Session {
    fn allowance(&mut self, stream: Stream) -> &mut Allowance {
        match stream {
            Stream::Input => &mut self.input,
            Stream::Output => &mut self.output,
            Stream::Error => &mut self.error,
        }
    }
}

/// The sessions that are open.
#[derive(Default)]
pub struct Relay {
    sessions: BTreeMap<u32, Session>,
}

impl Relay {
    /// Opens a session that the guest opens by itself.
    pub fn open(&mut self, session: u32) {
        self.sessions.insert(session, Session::default());
    }

    /// Returns how many sessions are open.
    pub fn open_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Takes a message of a client. Returns the frame for the guest.
    ///
    /// # Errors
    /// The message has no place here; the session is closed, and the client is to be dropped.
    pub fn from_client(&mut self, client: u32, message: Message) -> Result<Frame, Fault> {
        let taken = self.take_from_client(client, &message);
        if taken.is_err() {
            self.sessions.remove(&client);
        }
        taken.map(|()| Frame::new(client, message))
    }

    fn take_from_client(&mut self, client: u32, message: &Message) -> Result<(), Fault> {
        match message {
            Message::Shutdown(_) => return Ok(()),
            // They are about the machine, and its supervisor's.
            Message::Settle(_) | Message::Fresh(_) => {
                return Err(Fault("a message about the machine"));
            }
            Message::Open(_) if self.sessions.contains_key(&client) => {
                return Err(Fault("a second program"));
            }
            Message::Open(_) => {
                self.open(client);
                return Ok(());
            }
            _ => {}
        }
        let session = self.sessions.get_mut(&client).ok_or(Fault("there is no program"))?;
        match message {
            Message::Data(stream, bytes) => session.allowance(*stream).spend(bytes.len()),
            Message::Credit(stream, bytes) => session.allowance(*stream).grant(*bytes),
            _ => Ok(()),
        }
        .map_err(|_| Fault("more than its window"))
    }

    /// Takes a frame of the guest.
    pub fn from_guest(&mut self, frame: Frame) -> Delivery {
        let Frame { session: number, message } = frame;
        let Some(session) = self.sessions.get_mut(&number) else { return Delivery::Drop };
        let fair = match &message {
            Message::Data(stream, bytes) => session.allowance(*stream).spend(bytes.len()),
            Message::Credit(stream, bytes) => session.allowance(*stream).grant(*bytes),
            Message::Exit(_) | Message::Failed(..) => {
                self.sessions.remove(&number);
                return Delivery::Last(Frame::new(number, message));
            }
            _ => Ok(()),
        };
        if fair.is_err() {
            self.sessions.remove(&number);
            let text = String::from("the guest sent more than it may");
            return Delivery::Last(Frame::new(number, Message::Failed(125, text)));
        }
        Delivery::Pass(Frame::new(number, message))
    }

    /// A client has left. Returns the frame that tells the guest, if its session was open.
    pub fn client_left(&mut self, client: u32) -> Option<Frame> {
        self.sessions.remove(&client).map(|_| Frame::new(client, Message::Hangup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WINDOW;
    use alloc::boxed::Box;
    use alloc::vec;
    use proptest::prelude::*;

    fn open() -> Message {
        Message::Open(Box::default())
    }

    #[test]
    fn a_session_goes_from_open_to_exit() {
        let mut relay = Relay::default();
        assert_eq!(relay.from_client(3, Message::Hangup), Err(Fault("there is no program")));
        assert_eq!(relay.from_client(3, open()), Ok(Frame::new(3, open())));
        let data = Frame::new(3, Message::Data(Stream::Output, vec![1]));
        assert_eq!(relay.from_guest(data.clone()), Delivery::Pass(data.clone()));
        let exit = Frame::new(3, Message::Exit(7));
        assert_eq!(relay.from_guest(exit.clone()), Delivery::Last(exit.clone()));
        assert_eq!(relay.from_guest(exit), Delivery::Drop);
        assert_eq!(relay.from_guest(data), Delivery::Drop);
        assert_eq!((relay.client_left(3), relay.open_sessions()), (None, 0));
    }

    #[test]
    fn a_client_that_left_is_told_to_the_guest_once() {
        let mut relay = Relay::default();
        relay.from_client(3, open()).unwrap();
        assert_eq!(relay.from_client(3, open()), Err(Fault("a second program")));
        relay.from_client(4, open()).unwrap();
        assert_eq!(relay.client_left(4), Some(Frame::new(4, Message::Hangup)));
        assert_eq!(relay.client_left(4), None);
    }

    #[test]
    fn a_client_says_nothing_about_the_machine() {
        let mut relay = Relay::default();
        for message in [Message::Settle(1), Message::Fresh(vec![1])] {
            relay.from_client(3, open()).unwrap();
            assert_eq!(relay.from_client(3, message), Err(Fault("a message about the machine")));
            assert_eq!(relay.open_sessions(), 0);
        }
    }

    #[test]
    fn nobody_overdraws() {
        let mut relay = Relay::default();
        for client in [1, 2] {
            relay.from_client(client, open()).unwrap();
        }
        let piece = || vec![0; WINDOW as usize / 4];
        for _ in 0..4 {
            let data = Frame::new(1, Message::Data(Stream::Output, piece()));
            assert!(matches!(relay.from_guest(data), Delivery::Pass(_)));
            relay.from_client(2, Message::Data(Stream::Input, piece())).unwrap();
        }
        let more = Frame::new(1, Message::Data(Stream::Output, vec![0]));
        assert!(matches!(
            relay.from_guest(more),
            Delivery::Last(Frame { session: 1, message: Message::Failed(125, _) })
        ));
        let more = Message::Data(Stream::Input, vec![0]);
        assert_eq!(relay.from_client(2, more), Err(Fault("more than its window")));
        assert_eq!(relay.open_sessions(), 0);
    }

    proptest! {
        /// Whatever the guest says, a client gets at most a window for each stream as long as it
        /// gives no credit, and nothing behind its last message.
        #[test]
        fn what_a_client_gets_is_bounded(
            lengths in prop::collection::vec((0_u32..3, 0_u8..3, 1_usize..MOST), 0..60),
        ) {
            let mut relay = Relay::default();
            relay.from_client(1, open()).unwrap();
            let (mut got, mut over) = (0, false);
            for (session, stream, length) in lengths {
                let message = match stream {
                    0 => Message::Data(Stream::Output, vec![0; length]),
                    1 => Message::Data(Stream::Error, vec![0; length]),
                    _ => Message::Credit(Stream::Input, 0),
                };
                match relay.from_guest(Frame::new(session, message)) {
                    Delivery::Drop => {}
                    Delivery::Pass(frame) => {
                        prop_assert!(!over && frame.session == 1);
                        if let Message::Data(_, bytes) = frame.message {
                            got += bytes.len();
                        }
                    }
                    Delivery::Last(frame) => {
                        prop_assert!(!over && frame.session == 1);
                        over = true;
                    }
                }
            }
            prop_assert!(got <= 2 * WINDOW as usize);
        }
    }

    const MOST: usize = crate::frame::MOST_DATA;
}
