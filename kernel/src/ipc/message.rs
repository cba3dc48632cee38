//! The text of a message in a queue of System V or POSIX.

use alloc::vec::Vec;

use hayate_abi::Result;

use super::account;
use super::account::Share;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// The text of a message.
pub struct Text {
    bytes: Vec<u8>,
    _charge: Share,
}

impl Text {
    /// Room for a text of so many bytes. `ENOMEM`.
    pub fn new(size: usize) -> Result<Text> {
        let charge = account::charge(size)?;
        let mut bytes = Vec::new();
        growth::relieved(|| bytes.make_room_exact(size))?;
        bytes.resize(size, 0);
        Ok(Text { bytes, _charge: charge })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
