//! First numbers (RFC 6528), timestamp offsets, and SYN cookies: a SYN is answered and forgotten.
//!
//! A cookie is the number of the SYN-ACK, as in Linux (`net/ipv4/syncookies.c`): a keyed hash of
//! the addresses and ports, plus the peer's number, plus a count of minutes in the upper eight
//! bits, plus, in the lower 24 bits, the index of the MSS under a second hash that contains the
//! minute. With timestamps, the low six bits of ours carry the window scale (15: none) and whether
//! SACK is permitted. The hash is SipHash-2-4.

use core::hash::Hasher;
use siphasher::sip::SipHasher24;

use crate::{Flags, MILLISECOND, Nanos, Options, SECOND, Segment, Seq};

/// The sizes that a cookie can tell, for IPv4 and IPv6 (`msstab`).
const SIZES: [[u16; 4]; 2] = [[536, 1300, 1440, 1460], [1220, 1420, 1440, 8940]];
/// A cookie's unit of time: `TCP_SYNCOOKIE_PERIOD`.
const PERIOD: Nanos = 60 * SECOND;
/// Periods that a cookie lives: `MAX_SYNCOOKIE_AGE`.
const AGE: u32 = 2;
const LOW: u32 = 0x00ff_ffff;
/// Bits of a timestamp that carry options: four of scale, one of SACK, one unused (ECN).
const STAMP_BITS: u32 = 6;
const STAMP_SACK: u32 = 0x10;
const NO_SCALE: u32 = 0xf;

/// A secret, drawn at boot.
#[derive(Clone, Copy)]
pub struct Key([u64; 2]);

/// The content of a valid cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Our first number.
    pub initial: Seq,
    /// The peer's MSS, rounded down to one that a cookie can tell.
    pub mss: u16,
    /// The peer's window shift, if it sent one and timestamps carried it.
    pub window_scale: Option<u8>,
    /// SACK is permitted.
    pub sack: bool,
}

impl Key {
    /// A key of two random words.
    pub fn new(words: [u64; 2]) -> Key {
        Key(words)
    }

    fn hash(&self, purpose: u32, tuple: &[u8], count: u32) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        hasher.write_u32(purpose);
        hasher.write_u32(count);
        hasher.write(tuple);
        hasher.finish()
    }

    /// A connection's first number: a hash of `tuple` (addresses and ports, in whatever fixed
    /// layout) plus a clock of 64 ns (RFC 6528; Linux: `secure_tcp_seq`).
    pub fn isn(&self, now: Nanos, tuple: &[u8]) -> Seq {
        Seq((self.hash(2, tuple, 0) as u32).wrapping_add((now >> 6) as u32))
    }

    /// The offset of a connection's timestamps; `addresses` without ports, so that the values of
    /// successive connections grow (Linux: `secure_tcp_ts_off`; RFC 7323, 5.4).
    pub fn timestamp_offset(&self, addresses: &[u8]) -> u32 {
        self.hash(3, addresses, 0) as u32
    }

    /// The hash of the whole number, and the one under which the lower 24 bits are.
    fn whole(&self, tuple: &[u8]) -> u32 {
        self.hash(0, tuple, 0) as u32
    }

    fn low(&self, tuple: &[u8], count: u32) -> u32 {
        self.hash(1, tuple, count) as u32
    }
}

fn minutes(now: Nanos) -> u32 {
    (now / PERIOD) as u32
}

/// Makes the SYN-ACK that answers `syn`. `tuple` are the addresses and ports as this host sees
/// them, in whatever fixed layout; `v6` chooses the table of sizes; `config` is that of the later
/// connection. SACK and scaling are granted only if timestamps can carry them.
pub fn answer<B: crate::Bytes>(
    key: &Key,
    now: Nanos,
    tuple: &[u8],
    v6: bool,
    config: &crate::Config,
    syn: &Segment<B>,
) -> Segment<B> {
    let offered = syn.options.mss.unwrap_or(crate::config::DEFAULT_MSS as u16);
    let path = u16::try_from(config.mss).unwrap_or(u16::MAX);
    let sizes = &SIZES[usize::from(v6)];
    let index = sizes.iter().rposition(|size| *size <= offered.min(path)).unwrap_or(0) as u32;
    let count = minutes(now);
    let low = key.low(tuple, count).wrapping_add(index) & LOW;
    let cookie =
        key.whole(tuple).wrapping_add(syn.seq.0).wrapping_add(count << 24).wrapping_add(low);
    let mut answer = Segment::new(Seq(cookie), Some(syn.seq + 1), Flags::SYN);
    answer.window = config.receive_limit.min(0xffff) as u16;
    answer.options.mss = Some(config.announced_mss());
    if let Some((value, _)) = syn.options.timestamp
        && config.timestamps
    {
        let scale = syn.options.window_scale.filter(|_| config.window_scaling);
        let sack = syn.options.sack_permitted && config.sack;
        let bits = scale.map_or(NO_SCALE, |shift| u32::from(shift.min(14)))
            | if sack { STAMP_SACK } else { 0 };
        answer.options.timestamp = Some((stamp(now, config.timestamp_offset, bits), value));
        answer.options.sack_permitted = sack;
        answer.options.window_scale = scale.map(|_| config.window_shift());
    }
    answer
}

/// The newest value not above the clock whose low bits are `bits` (`cookie_init_timestamp`). The
/// offset is added after that, so that the bits come back when it is taken away.
fn stamp(now: Nanos, offset: u32, bits: u32) -> u32 {
    let clock = (now / MILLISECOND) as u32;
    let mut value = clock >> STAMP_BITS << STAMP_BITS | bits;
    if value > clock {
        value = value.wrapping_sub(1 << STAMP_BITS);
    }
    value.wrapping_add(offset)
}

/// Checks the acknowledgement of a cookie. `None`: it is none, or too old, or it carries options
/// that this host would not have granted. The arguments are those of [`answer`].
pub fn check<B: crate::Bytes>(
    key: &Key,
    now: Nanos,
    tuple: &[u8],
    v6: bool,
    config: &crate::Config,
    ack: &Segment<B>,
) -> Option<Accepted> {
    if ack.flags.intersects(Flags::SYN | Flags::RST) {
        return None;
    }
    let initial = ack.ack? - 1;
    let sum = initial.0.wrapping_sub(key.whole(tuple)).wrapping_sub((ack.seq - 1).0);
    let count = minutes(now);
    let age = count.wrapping_sub(sum >> 24) & 0xff;
    if age >= AGE {
        return None;
    }
    let index = (sum & LOW).wrapping_sub(key.low(tuple, count.wrapping_sub(age))) & LOW;
    let mss = *SIZES[usize::from(v6)].get(index as usize)?;
    let mut accepted = Accepted { initial, mss, window_scale: None, sack: false };
    let Options { timestamp, .. } = &ack.options;
    if let Some((_, echo)) = timestamp
        && config.timestamps
        && *echo != 0
    {
        let bits = echo.wrapping_sub(config.timestamp_offset) & ((1 << STAMP_BITS) - 1);
        accepted.sack = bits & STAMP_SACK != 0;
        if accepted.sack && !config.sack {
            return None;
        }
        if bits & NO_SCALE != NO_SCALE {
            if !config.window_scaling {
                return None;
            }
            accepted.window_scale = Some((bits & NO_SCALE) as u8);
        }
    }
    Some(accepted)
}
