//! Options of the level `SOL_NETLINK` (netlink(7)).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};

use super::endpoint::{Endpoint, GROUPS};
use super::ports;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

/// The level.
pub const SOL_NETLINK: i32 = 270;

const NETLINK_ADD_MEMBERSHIP: i32 = 1;
const NETLINK_DROP_MEMBERSHIP: i32 = 2;
/// Also the type of the control message.
pub const NETLINK_PKTINFO: i32 = 3;
const NETLINK_BROADCAST_ERROR: i32 = 4;
const NETLINK_NO_ENOBUFS: i32 = 5;
const NETLINK_LIST_MEMBERSHIPS: i32 = 9;
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_EXT_ACK: i32 = 11;
const NETLINK_GET_STRICT_CHK: i32 = 12;

bitflags::bitflags! {
    /// Options that are switched on and off.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Options: u32 {
        /// NETLINK_PKTINFO: messages are reported with their group.
        const PACKET_INFO = 1;
        /// NETLINK_BROADCAST_ERROR: only a sender to a group would see it, which is never told of
        /// messages that others lost.
        const BROADCAST_ERROR = 2;
        /// NETLINK_NO_ENOBUFS: lost messages are not reported.
        const NO_ENOBUFS = 4;
        /// NETLINK_CAP_ACK: an error shows only the header of the request.
        const CAPPED_ACKS = 8;
        /// NETLINK_EXT_ACK: errors may be explained, which they never are here.
        const EXPLAINED_ACKS = 16;
        /// NETLINK_GET_STRICT_CHK: requests for dumps are checked, and select by their fields.
        const STRICT = 32;
    }
}

/// The options of a socket.
#[derive(Default)]
pub struct KeptOptions(AtomicU32);

fn option_of(option: i32) -> Option<Options> {
    Some(match option {
        NETLINK_PKTINFO => Options::PACKET_INFO,
        NETLINK_BROADCAST_ERROR => Options::BROADCAST_ERROR,
        NETLINK_NO_ENOBUFS => Options::NO_ENOBUFS,
        NETLINK_CAP_ACK => Options::CAPPED_ACKS,
        NETLINK_EXT_ACK => Options::EXPLAINED_ACKS,
        NETLINK_GET_STRICT_CHK => Options::STRICT,
        _ => return None,
    })
}

impl KeptOptions {
    /// Returns the options that are on.
    pub fn now(&self) -> Options {
        Options::from_bits_truncate(self.0.load(Ordering::Relaxed))
    }

    /// setsockopt(2).
    pub fn set(&self, endpoint: &Arc<Endpoint>, option: i32, value: OptionValue) -> Result<()> {
        // A value that is too short is 0 (`netlink_setsockopt`).
        let number = if value.length < size_of::<i32>() { 0 } else { value.number()? };
        match option {
            NETLINK_ADD_MEMBERSHIP | NETLINK_DROP_MEMBERSHIP => {
                let group = number as u32;
                if !(1..=GROUPS).contains(&group) {
                    return Err(Errno::EINVAL);
                }
                let bit = 1 << (group - 1);
                let joins = option == NETLINK_ADD_MEMBERSHIP;
                endpoint.set_groups(bit, if joins { bit } else { 0 });
                if joins {
                    ports::note_groups(bit);
                }
            }
            _ => {
                let option = option_of(option).ok_or(Errno::ENOPROTOOPT)?;
                if number != 0 {
                    self.0.fetch_or(option.bits(), Ordering::Relaxed);
                } else {
                    self.0.fetch_and(!option.bits(), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// getsockopt(2).
    pub fn get(&self, endpoint: &Endpoint, option: i32, out: OptionOutput) -> Result<()> {
        let room = out.room()?;
        if option == NETLINK_LIST_MEMBERSHIPS {
            // As many whole words as there is room for, and the length of all (`ngroups` bits).
            let words = endpoint.groups().to_ne_bytes();
            out.put(&words[..(room / 4 * 4).min(words.len())])?;
            return out.put_length(words.len());
        }
        let option = option_of(option).ok_or(Errno::ENOPROTOOPT)?;
        if room < size_of::<i32>() {
            return Err(Errno::EINVAL);
        }
        out.put_number(i32::from(self.now().contains(option)))
    }
}
