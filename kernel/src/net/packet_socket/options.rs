//! The options of packet sockets (packet(7); `packet_setsockopt`, `packet_getsockopt`).

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames;
use hayate_packet_ring::{Layout, Refused, Request, Version};

use super::endpoint::Endpoint;
use super::membership::Memberships;
use super::shared::SharedRing;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

/// `SOL_PACKET`.
pub const SOL_PACKET: i32 = 263;

const ADD_MEMBERSHIP: i32 = 1;
const DROP_MEMBERSHIP: i32 = 2;
const RX_RING: i32 = 5;
const STATISTICS: i32 = 6;
/// `PACKET_AUXDATA`, the type of the control message too.
pub const AUXDATA: i32 = 8;
const ORIGDEV: i32 = 9;
const VERSION: i32 = 10;
const HDRLEN: i32 = 11;
const RESERVE: i32 = 12;
const TIMESTAMP: i32 = 17;
const QDISC_BYPASS: i32 = 20;
const IGNORE_OUTGOING: i32 = 23;

/// A ring takes at most this part of all memory.
const PART: usize = 4;
const PAGE: usize = 4096;

/// The values of a socket that are switches or numbers.
#[derive(Default)]
pub struct Values {
    /// PACKET_AUXDATA.
    pub auxiliary: AtomicBool,
    /// PACKET_ORIGDEV: no interface stands on another here, so that it changes nothing.
    original_device: AtomicBool,
    /// PACKET_QDISC_BYPASS: no packet waits here, so that it changes nothing.
    bypass: AtomicBool,
    /// PACKET_TIMESTAMP: no device has a clock here, so that all are the kernel's.
    timestamp: AtomicI32,
}

/// What is changed by one call at a time.
#[derive(Default)]
pub struct Setup {
    /// PACKET_ADD_MEMBERSHIP.
    pub memberships: Memberships,
    version: Version,
    reserve: u32,
}

fn switch<'a>(values: &'a Values, endpoint: &'a Endpoint, option: i32) -> Option<&'a AtomicBool> {
    Some(match option {
        AUXDATA => &values.auxiliary,
        ORIGDEV => &values.original_device,
        QDISC_BYPASS => &values.bypass,
        IGNORE_OUTGOING => &endpoint.ignores_outgoing,
        _ => return None,
    })
}

/// Reads a number whose size must be right.
fn exact(value: OptionValue) -> Result<i32> {
    if value.length == size_of::<i32>() { value.number() } else { Err(Errno::EINVAL) }
}

/// Sets an option.
///
/// # Errors
/// `ENOPROTOOPT` if it is not there; `EINVAL`, `EFAULT`, `EBUSY` for what a ring keeps from being
/// changed, `ENOMEM`, `ENODEV`.
pub fn set(
    endpoint: &Endpoint,
    values: &Values,
    setup: &mut Setup,
    option: i32,
    value: OptionValue,
) -> Result<()> {
    if let Some(switch) = switch(values, endpoint, option) {
        let number = value.number()?;
        if option == IGNORE_OUTGOING && !(0..=1).contains(&number) {
            return Err(Errno::EINVAL);
        }
        switch.store(number != 0, Ordering::Relaxed);
        return Ok(());
    }
    let check_free = || match endpoint.with_ring(|_| ()) {
        Some(()) => Err(Errno::EBUSY),
        None => Ok(()),
    };
    match option {
        ADD_MEMBERSHIP => setup.memberships.add(&endpoint.network, value)?,
        DROP_MEMBERSHIP => setup.memberships.drop(value)?,
        RX_RING => set_ring(endpoint, setup, value)?,
        VERSION => {
            let version = Version::from_number(exact(value)?).ok_or(Errno::EINVAL)?;
            check_free()?;
            setup.version = version;
        }
        RESERVE => {
            let reserve = u32::try_from(exact(value)?).map_err(|_| Errno::EINVAL)?;
            check_free()?;
            setup.reserve = reserve;
        }
        TIMESTAMP => values.timestamp.store(exact(value)?, Ordering::Relaxed),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// PACKET_RX_RING: makes a ring, or takes it away if it is to have no blocks.
fn set_ring(endpoint: &Endpoint, setup: &Setup, value: OptionValue) -> Result<()> {
    let mut words = [0; 7];
    let least = if setup.version == Version::V3 { 28 } else { 16 };
    let mut bytes = [0; 28];
    if value.bytes(&mut bytes[..least])?.len() < least {
        return Err(Errno::EINVAL);
    }
    for (word, piece) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = piece.first_chunk().map_or(0, |piece| u32::from_ne_bytes(*piece));
    }
    let [block_size, block_count, frame_size, frame_count, retire_after, private_size, features] =
        words;
    if block_count == 0 {
        return if frame_count == 0 { endpoint.set_ring(None) } else { Err(Errno::EINVAL) };
    }
    if endpoint.with_ring(|_| ()).is_some() {
        return Err(Errno::EBUSY);
    }
    let request = Request {
        block_size,
        block_count,
        frame_size,
        frame_count,
        retire_after,
        private_size,
        features,
    };
    let most = frames::total() / PART * PAGE;
    let layout = Layout::new(setup.version, setup.reserve, request, most);
    let layout = layout.map_err(|refused| match refused {
        Refused::Invalid => Errno::EINVAL,
        Refused::Memory => Errno::ENOMEM,
    })?;
    endpoint.set_ring(Some(SharedRing::new(layout)?))
}

/// Returns an option.
///
/// # Errors
/// `ENOPROTOOPT` if it is not there; `EINVAL`, `EFAULT`.
pub fn get(
    endpoint: &Endpoint,
    values: &Values,
    setup: &Setup,
    option: i32,
    out: OptionOutput,
) -> Result<()> {
    out.room()?;
    if let Some(switch) = switch(values, endpoint, option) {
        return out.put_number(i32::from(switch.load(Ordering::Relaxed)));
    }
    match option {
        STATISTICS => {
            let counts = endpoint.take_counts();
            let words = [counts.kept.wrapping_add(counts.dropped), counts.dropped, counts.froze];
            let mut bytes = [0; 12];
            for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            let length = if setup.version == Version::V3 { 12 } else { 8 };
            out.put(&bytes[..length])
        }
        VERSION => out.put_number(setup.version.number()),
        HDRLEN => {
            let version = Version::from_number(out.read_number()?).ok_or(Errno::EINVAL)?;
            out.put_number(version.header() as i32)
        }
        RESERVE => out.put_number(setup.reserve as i32),
        TIMESTAMP => out.put_number(values.timestamp.load(Ordering::Relaxed)),
        _ => Err(Errno::ENOPROTOOPT),
    }
}
