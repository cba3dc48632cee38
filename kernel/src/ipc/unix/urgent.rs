//! Out-of-band data of a stream (`MSG_OOB`): which part of the queue a reader gets.
//!
//! # Design
//!
//! The byte waits in the queue among the others, as a message of its own with the flag
//! [`urgent`](Message::urgent). At most one message has the flag, because a second one turns the
//! first into ordinary data. When the byte is read with `MSG_OOB`, its message stays in the queue
//! as an empty one: the *mark*. Ordinary messages of a stream are never empty. There are never two
//! marks side by side.
//!
//! A read ends before an urgent byte and, unless another urgent byte is queued, before a mark. A
//! read that begins at a mark removes the mark and continues after it. An urgent byte at which a
//! read begins is lost unless the reader asked for it inline (`SO_OOBINLINE`). `MSG_PEEK` sees what
//! a read would get, and removes nothing.
//!
//! This is what Linux does since 6.11 (`manage_oob` and `unix_stream_recv_urg` in
//! net/unix/af_unix.c). 6.1 differs after the byte was read: SIOCATMARK does not report its mark,
//! `MSG_PEEK` goes past it, and a read that begins there may find nothing although data follows.
//!
//! The functions here work on a queue whose lock the caller holds. Messages that are removed
//! without being read are returned in `unread`, because they may carry descriptors.

use alloc::collections::VecDeque;

use super::message::Message;

/// The state and the options of a reader.
#[derive(Clone, Copy)]
pub struct Reader {
    /// This call has already read something.
    pub has_some: bool,
    /// SO_OOBINLINE.
    pub inline: bool,
}

/// The piece that a reader gets next.
pub enum Next {
    /// The message at this index.
    Message(usize),
    /// Nothing more in this call, which has already read something.
    Stop,
    /// Nothing, as if the queue were empty.
    Nothing,
}

/// Returns the index of the urgent byte.
pub fn find(queue: &VecDeque<Message>) -> Option<usize> {
    queue.iter().rposition(|message| message.urgent)
}

/// Turns the urgent byte into ordinary data, because another one comes.
pub fn make_ordinary(queue: &mut VecDeque<Message>) {
    if let Some(at) = find(queue) {
        queue[at].urgent = false;
    }
}

/// Takes the urgent byte at `at` and leaves its mark.
pub fn leave_mark(queue: &mut VecDeque<Message>, at: usize, unread: &mut VecDeque<Message>) {
    let message = &mut queue[at];
    message.urgent = false;
    message.taken = message.bytes.len();
    if at > 0 && is_mark(&queue[at - 1]) {
        unread.extend(queue.remove(at - 1));
    }
}

/// SIOCATMARK: whether the head is urgent, or a mark with either no urgent byte queued or the
/// urgent byte right after it.
pub fn is_at_mark(queue: &VecDeque<Message>) -> bool {
    let Some(head) = queue.front() else { return false };
    let before_urgent = || match find(queue) {
        Some(at) => at == 1,
        None => true,
    };
    head.urgent || is_mark(head) && before_urgent()
}

fn is_mark(message: &Message) -> bool {
    message.rest().is_empty()
}

/// Returns what a read gets next, which is then at the head: messages removed before it go to
/// `unread`.
pub fn next(queue: &mut VecDeque<Message>, reader: Reader, unread: &mut VecDeque<Message>) -> Next {
    let none = if reader.has_some { Next::Stop } else { Next::Nothing };
    let Some(head) = queue.front() else { return Next::Nothing };
    if is_mark(head) {
        if reader.has_some && find(queue).is_none() {
            return Next::Stop;
        }
        unread.extend(queue.pop_front());
    }
    match queue.front_mut() {
        None => none,
        Some(head) if !head.urgent => Next::Message(0),
        Some(_) if reader.has_some => Next::Stop,
        Some(head) if reader.inline => {
            head.urgent = false;
            Next::Message(0)
        }
        Some(_) => {
            unread.extend(queue.pop_front());
            if queue.is_empty() { Next::Nothing } else { Next::Message(0) }
        }
    }
}

/// Returns what a peek (MSG_PEEK) gets next, from index `at` on.
pub fn peek(queue: &VecDeque<Message>, mut at: usize, reader: Reader) -> Next {
    let none = if reader.has_some { Next::Stop } else { Next::Nothing };
    let Some(message) = queue.get(at) else { return Next::Nothing };
    if is_mark(message) {
        if reader.has_some && find(queue).is_none() {
            return Next::Stop;
        }
        at += 1;
    }
    match queue.get(at) {
        None => none,
        Some(message) if !message.urgent => Next::Message(at),
        Some(_) if reader.has_some => Next::Stop,
        Some(_) if reader.inline => Next::Message(at),
        Some(_) if at + 1 < queue.len() => Next::Message(at + 1),
        Some(_) => none,
    }
}
