//! A message of a queue.

use crate::ipc::message::Text;

/// A message.
pub struct Message {
    /// The priority.
    pub priority: u32,
    /// The text.
    pub text: Text,
}
