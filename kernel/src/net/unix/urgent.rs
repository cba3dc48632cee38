//! Out-of-band data of a stream (`MSG_OOB`): what of the queue a reader gets.
//!
//! # Design
//!
//! The byte waits in the queue among the others, as a message of its own that is marked
//! [`urgent`](Message::urgent); at most one is, because a second one makes the first ordinary data.
//! Read by `MSG_OOB`, the message stays as an empty one: the *mark*. Ordinary messages of a stream
//! are never empty. There are no two marks side by side.
//!
//! A read ends before an urgent byte and, unless another urgent byte is queued, before a mark. One
//! that begins there takes the mark away and goes on behind it. An urgent byte that it begins at is
//! lost unless the reader asked for it inline (`SO_OOBINLINE`). `MSG_PEEK` sees what a read would
//! get, and takes nothing away.
//!
//! This is what Linux does since 6.11 (`manage_oob` and `unix_stream_recv_urg` in
//! net/unix/af_unix.c). 6.1 differs where the byte was read: SIOCATMARK does not tell of its mark,
//! a look goes past it, and a read that begins there may find nothing although data follows.
//!
//! Everything here works on a queue whose lock the caller holds. Messages that go without being
//! read are handed back, because they may carry descriptors.

use alloc::collections::VecDeque;

use super::message::Message;

/// How far a reader is, and what it wants.
#[derive(Clone, Copy)]
pub struct Reader {
    /// It has got something in this call.
    pub has_some: bool,
    /// SO_OOBINLINE.
    pub inline: bool,
}

/// What comes next for a reader.
pub enum Next {
    /// The message at this place.
    Message(usize),
    /// Nothing within this call, as something was read already.
    Stop,
    /// Nothing, as if the queue were empty.
    Nothing,
}

/// Where the urgent byte is.
pub fn find(queue: &VecDeque<Message>) -> Option<usize> {
    queue.iter().rposition(|message| message.urgent)
}

/// Makes the urgent byte ordinary data: another one comes.
pub fn make_ordinary(queue: &mut VecDeque<Message>) {
    if let Some(at) = find(queue) {
        queue[at].urgent = false;
    }
}

/// Takes the urgent byte at `at`, and leaves its mark.
pub fn leave_mark(queue: &mut VecDeque<Message>, at: usize, unread: &mut VecDeque<Message>) {
    let message = &mut queue[at];
    message.urgent = false;
    message.taken = message.bytes.len();
    if at > 0 && is_mark(&queue[at - 1]) {
        unread.extend(queue.remove(at - 1));
    }
}

/// SIOCATMARK: the head is urgent, or a mark that is the last, or one right before the urgent byte.
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

/// What a read gets next. It is at the head: whatever was before it has gone, to `unread`.
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

/// What a look (MSG_PEEK) gets next that is at `at` in the queue.
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
