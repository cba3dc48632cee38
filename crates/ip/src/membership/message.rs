//! Messages of IGMP and MLD: what routers ask is read, what a host says is written.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use super::{Dialect, Due, Query, SECOND, Saying};
use crate::Address;
use crate::checksum::Checksum;
use crate::header::{ICMP_V6, IGMP};

const MILLISECOND: u64 = 1_000_000;

/// The most sources of a query that are read; one that names more is taken as about all. A packet
/// of the usual length has no more of IPv4.
pub const MOST_ASKED: usize = 366;

/// The length of the longest query that is read whole.
pub const QUERY: usize = 28 + 4 * MOST_ASKED;

/// The most sources of a report: it is no longer than the 1280 bytes that every link of IPv6 takes.
pub(super) fn room(is_v4: bool) -> usize {
    if is_v4 { 300 } else { 70 }
}

/// Reads a query: the payload of IGMP, or a message of ICMPv6, of which `message` has at least the
/// first [`QUERY`] bytes and which is `length` bytes long. `None` if it is none. The checksum, and
/// that a neighbour sent it, is for the caller to look at.
pub fn query(is_v4: bool, message: &[u8], length: usize) -> Option<Query> {
    if is_v4 { query_v4(message, length) } else { query_v6(message, length) }
}

/// A time that is a number below `limit` or has an exponent above it (RFC 3376, 4.1.1; RFC 3810,
/// 5.1.3): three bits, then `bits` of a mantissa with a one before it.
fn floating(code: u32, limit: u32, bits: u32) -> u64 {
    if code < limit {
        return code.into();
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    u64::from(mantissa) << ((code >> bits & 7) + 3)
}

fn query_v4(message: &[u8], length: usize) -> Option<Query> {
    let [0x11, code, _, _, rest @ ..] = message else { return None };
    let (group, rest) = rest.split_first_chunk()?;
    let group = Address::v4(u32::from_be_bytes(*group));
    let (dialect, patience) = match (length, *code) {
        (8, 0) => (Dialect::First, 10 * SECOND),
        (8, code) => (Dialect::Second, u64::from(code) * 100 * MILLISECOND),
        (12.., code) => (Dialect::Third, floating(code.into(), 128, 4) * 100 * MILLISECOND),
        _ => return None,
    };
    let sources = match dialect {
        Dialect::Third => sources(rest, |bytes: &[u8; 4]| Address::v4(u32::from_be_bytes(*bytes)))?,
        _ => None,
    };
    finish(dialect, group, patience, sources)
}

fn query_v6(message: &[u8], length: usize) -> Option<Query> {
    let [130, _, _, _, high, low, _, _, rest @ ..] = message else { return None };
    let code = u32::from(u16::from_be_bytes([*high, *low]));
    let (group, rest) = rest.split_first_chunk()?;
    let group = Address::v6(u128::from_be_bytes(*group));
    let (dialect, patience) = match length {
        24 => (Dialect::Second, u64::from(code)),
        28.. => (Dialect::Third, floating(code, 32768, 12)),
        _ => return None,
    };
    let sources = match dialect {
        Dialect::Third => {
            sources(rest, |bytes: &[u8; 16]| Address::v6(u128::from_be_bytes(*bytes)))?
        }
        _ => None,
    };
    finish(dialect, group, patience * MILLISECOND, sources)
}

/// Reads the sources of a query, from the flags before their number on. `Some(None)`: it names
/// none, or more than are read. `None`: they are not there.
#[allow(clippy::option_option, reason = "three outcomes, as described")]
fn sources<const N: usize>(
    rest: &[u8],
    address: impl Fn(&[u8; N]) -> Address,
) -> Option<Option<Vec<Address>>> {
    let [_, _, high, low, rest @ ..] = rest else { return None };
    let count = usize::from(u16::from_be_bytes([*high, *low]));
    if count == 0 || count * N > QUERY - 28 {
        return Some(None);
    }
    let (named, _) = rest.get(..count * N)?.as_chunks::<N>();
    let mut sources = Vec::new();
    // Without memory it is a question about all.
    if sources.try_reserve(count).is_err() {
        return Some(None);
    }
    sources.extend(named.iter().map(address));
    Some(Some(sources))
}

fn finish(
    dialect: Dialect,
    group: Address,
    patience: u64,
    sources: Option<Vec<Address>>,
) -> Option<Query> {
    match group.is_any() {
        true => Some(Query { dialect, group: None, patience, sources: None }),
        false if group.is_multicast() => {
            Some(Query { dialect, group: Some(group), patience, sources })
        }
        false => None,
    }
}

/// Reads the report of another host in an older dialect: the group.
pub fn heard_report(is_v4: bool, message: &[u8]) -> Option<Address> {
    let group = match (is_v4, message) {
        (true, [0x12 | 0x16, _, _, _, group @ ..]) => {
            Address::v4(u32::from_be_bytes(*group.first_chunk()?))
        }
        (false, [131, _, _, _, _, _, _, _, group @ ..]) => {
            Address::v6(u128::from_be_bytes(*group.first_chunk()?))
        }
        _ => return None,
    };
    group.is_multicast().then_some(group)
}

/// Writes what a host at `source` says about a group, as a whole packet with the Router Alert
/// option (RFC 2113, RFC 2711). `None` if the dialect has no word for it, or without memory.
pub fn report(due: &Due, source: Address) -> Option<(Address, Vec<u8>)> {
    let group = due.group;
    let is_v4 = group.is_v4();
    let to = |v4: u32, v6: u128| if is_v4 { Address::v4(v4) } else { Address::v6(v6) };
    const LINK: u128 = 0xff02 << 112;
    let (destination, kind) = match (due.dialect, &due.saying) {
        (Dialect::First, Saying::Left) => return None,
        (Dialect::First, _) => (group, 0x12),
        (Dialect::Second, Saying::Left) => {
            (to(0xe000_0002, LINK | 2), if is_v4 { 0x17 } else { 132 })
        }
        (Dialect::Second, _) => (group, if is_v4 { 0x16 } else { 131 }),
        (Dialect::Third, _) => (to(0xe000_0016, LINK | 0x16), if is_v4 { 0x22 } else { 143 }),
    };
    let octets = |address: Address| -> ArrayVec<u8, 16> {
        address.octets().into_iter().skip(if is_v4 { 12 } else { 0 }).collect()
    };
    let head = if is_v4 { 24 } else { 48 };
    let mut message = Vec::new();
    let named: usize = due.saying.records().iter().map(|record| record.sources.len()).sum();
    message.try_reserve(head + 48 + named * 16).ok()?;
    message.resize(head, 0);
    message.extend([kind, 0, 0, 0]);
    if let Saying::Records(records) = &due.saying {
        message.extend([0, 0, 0, records.len() as u8]);
        for record in records {
            let [high, low] = (record.sources.len() as u16).to_be_bytes();
            message.extend([record.kind as u8, 0, high, low]);
            message.extend(octets(group));
            message.extend(record.sources.iter().flat_map(|source| octets(*source)));
        }
    } else {
        if !is_v4 {
            message.extend([0; 4]);
        }
        message.extend(octets(group));
    }
    let (head, body) = message.split_at_mut(head);
    let mut sum = Checksum::new();
    if !is_v4 {
        sum.add_pseudo(source, destination, ICMP_V6, body.len());
    }
    sum.add(body);
    body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    if is_v4 {
        head_v4(head, &octets(source), &octets(destination), body.len());
    } else {
        head_v6(head, &octets(source), &octets(destination), body.len());
    }
    Some((destination, message))
}

/// Writes a header of IPv4 with Router Alert.
fn head_v4(to: &mut [u8], source: &[u8], destination: &[u8], length: usize) {
    let [high, low] = ((24 + length) as u16).to_be_bytes();
    to[..12].copy_from_slice(&[0x46, 0xc0, high, low, 0, 0, 0x40, 0, 1, IGMP, 0, 0]);
    to[12..16].copy_from_slice(source);
    to[16..20].copy_from_slice(destination);
    to[20..24].copy_from_slice(&[0x94, 4, 0, 0]);
    let mut sum = Checksum::new();
    sum.add(to);
    to[10..12].copy_from_slice(&sum.finish().to_be_bytes());
}

/// Writes a header of IPv6, and that of the options of each hop with Router Alert.
fn head_v6(to: &mut [u8], source: &[u8], destination: &[u8], length: usize) {
    let [high, low] = ((8 + length) as u16).to_be_bytes();
    to[..8].copy_from_slice(&[0x60, 0, 0, 0, high, low, 0, 1]);
    to[8..24].copy_from_slice(source);
    to[24..40].copy_from_slice(destination);
    to[40..48].copy_from_slice(&[ICMP_V6, 0, 5, 2, 0, 0, 1, 0]);
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Record};
    use super::*;

    const GROUP: Address = Address::v4(0xefff_0102);
    const HOST: Address = Address::v4(0x0a00_020f);

    fn due(dialect: Dialect, saying: Saying, group: Address) -> Due {
        Due { interface: 2, dialect, saying, group }
    }

    fn record(kind: Kind, sources: &[Address]) -> Saying {
        let records = [Record { kind, sources: sources.to_vec() }];
        Saying::Records(records.into_iter().collect())
    }

    #[test]
    fn queries_of_all_dialects_are_read() {
        let read = |bytes: &[u8]| query(true, bytes, bytes.len());
        let v1 = read(&[0x11, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!((v1.dialect, v1.group, v1.patience), (Dialect::First, None, 10 * SECOND));
        let v2 = read(&[0x11, 20, 0, 0, 239, 255, 1, 2]).unwrap();
        assert_eq!((v2.dialect, v2.group), (Dialect::Second, Some(GROUP)));
        assert_eq!(v2.patience, 2 * SECOND);
        let v3 = read(&[0x11, 0x8f, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]).unwrap();
        // Mantissa 15, exponent 0: 31 << 3 tenths of a second.
        assert_eq!((v3.dialect, v3.patience), (Dialect::Third, 248 * SECOND / 10));
        assert_eq!(read(&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(read(&[0x11, 1, 0, 0, 10, 0, 0, 1]), None);
        assert_eq!(read(&[0x16, 1, 0, 0, 239, 0, 0, 1]), None);
        assert_eq!(read(&[0x11, 1, 0]), None);
        let mut mld = [0; 28];
        (mld[0], mld[4], mld[5]) = (130, 0x27, 0x10);
        assert_eq!(query(false, &mld[..24], 24).unwrap().patience, 10 * SECOND);
        assert_eq!(query(false, &mld, 28).unwrap().dialect, Dialect::Third);
        assert_eq!(query(false, &mld[..26], 26), None);
        (mld[8], mld[9], mld[23]) = (0xff, 5, 1);
        assert!(query(false, &mld, 28).unwrap().group.is_some());
    }

    #[test]
    fn the_sources_of_a_query_are_read() {
        let mut bytes = [0x11, 10, 0, 0, 239, 255, 1, 2, 2, 125, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2];
        let read = query(true, &bytes, bytes.len()).unwrap();
        let hosts = [Address::v4(0x0a00_0001), Address::v4(0x0a00_0002)];
        assert_eq!(read.sources.as_deref(), Some(&hosts[..]));
        // More than there are; more than are read.
        bytes[11] = 3;
        assert_eq!(query(true, &bytes, bytes.len()), None);
        bytes[10] = 200;
        assert_eq!(query(true, &bytes, bytes.len()).unwrap().sources, None);
        // A query about all groups has none.
        (bytes[10], bytes[11]) = (0, 2);
        bytes[4..8].fill(0);
        assert_eq!(query(true, &bytes, bytes.len()).unwrap().sources, None);
        let mut mld = [0; 44];
        (mld[0], mld[8], mld[9], mld[27], mld[43]) = (130, 0xff, 5, 1, 9);
        let read = query(false, &mld, mld.len()).unwrap();
        assert_eq!(read.sources.as_deref(), Some(&[Address::v6(9)][..]));
    }

    #[test]
    fn random_messages_are_read_within_their_bounds() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        for _ in 0..100_000 {
            let length = usize::from(byte()) % 60;
            let mut message: Vec<u8> = (0..length).map(|_| byte()).collect();
            if let Some(first) = message.first_mut() {
                *first = [0x11, 0x12, 0x16, 130, 131, *first][usize::from(byte()) % 6];
            }
            for count in [10, 26] {
                if let Some(high) = message.get_mut(count) {
                    *high = 0;
                }
            }
            for is_v4 in [true, false] {
                if let Some(query) = query(is_v4, &message, length) {
                    assert!(query.group.is_none_or(Address::is_multicast));
                    assert!(query.patience <= 9_000 * SECOND);
                    assert!(query.sources.is_none_or(|sources| sources.len() <= MOST_ASKED));
                }
                assert!(heard_report(is_v4, &message).is_none_or(Address::is_multicast));
            }
        }
    }

    #[test]
    fn reports_are_good_packets() {
        for (dialect, saying, to, kind) in [
            (Dialect::First, Saying::Joined, GROUP, 0x12),
            (Dialect::Second, Saying::IsMember, GROUP, 0x16),
            (Dialect::Second, Saying::Left, Address::v4(0xe000_0002), 0x17),
            (Dialect::Third, record(Kind::ToExclude, &[]), Address::v4(0xe000_0016), 0x22),
        ] {
            let (destination, message) = report(&due(dialect, saying, GROUP), HOST).unwrap();
            assert_eq!(destination, to);
            let (header, extent) = crate::header::parse(&message, message.len()).unwrap();
            assert_eq!((header.source, header.destination, header.hop_limit), (HOST, to, 1));
            assert_eq!((header.protocol, extent.offset), (IGMP, 24));
            let body = &message[24..];
            assert_eq!(body.len(), extent.length);
            let mut sum = Checksum::new();
            sum.add(body);
            assert!(sum.is_good());
            assert_eq!(body[0], kind);
            assert_eq!(body[body.len() - 4..], [239, 255, 1, 2]);
        }
        assert_eq!(report(&due(Dialect::First, Saying::Left, GROUP), HOST), None);
        let left = due(Dialect::Third, record(Kind::ToInclude, &[]), GROUP);
        let (_, message) = report(&left, HOST).unwrap();
        assert_eq!(message[24 + 8], 3);
    }

    #[test]
    fn reports_name_sources() {
        let hosts: Vec<_> = (0..room(true) as u32).map(|last| Address::v4(last + 1)).collect();
        let [first, second] =
            [Kind::Allow, Kind::Block].map(|kind| Record { kind, sources: hosts[..150].to_vec() });
        let saying = Saying::Records([first, second].into_iter().collect());
        let (_, message) = report(&due(Dialect::Third, saying, GROUP), HOST).unwrap();
        assert!(message.len() <= 1280);
        let (_, extent) = crate::header::parse(&message, message.len()).unwrap();
        assert_eq!(24 + extent.length, message.len());
        let body = &message[24..];
        assert_eq!(body[..12], [0x22, 0, body[2], body[3], 0, 0, 0, 2, 5, 0, 0, 150]);
        assert_eq!(body[16..20], [0, 0, 0, 1]);
        assert_eq!(body[16 + 600..][..4], [6, 0, 0, 150]);
        let mut sum = Checksum::new();
        sum.add(body);
        assert!(sum.is_good());
        let group = Address::v6(0xff05 << 112 | 7);
        let hosts: Vec<_> = (0..room(false) as u128).map(|last| Address::v6(last + 1)).collect();
        let saying = record(Kind::IsInclude, &hosts);
        let (_, message) = report(&due(Dialect::Third, saying, group), Address::v6(1)).unwrap();
        assert!(message.len() <= 1280);
        assert_eq!(message[48 + 8..][..4], [1, 0, 0, 70]);
        assert_eq!(message.len(), 48 + 8 + 20 + 70 * 16);
    }

    #[test]
    fn reports_of_ipv6_are_good_packets() {
        let group: Address = Address::v6(0xff05 << 112 | 7);
        for (dialect, saying, kind) in [
            (Dialect::Second, Saying::Joined, 131),
            (Dialect::Second, Saying::Left, 132),
            (Dialect::Third, record(Kind::IsExclude, &[]), 143),
        ] {
            let source = Address::v6(0xfe80 << 112 | 1);
            let (destination, message) = report(&due(dialect, saying, group), source).unwrap();
            let (header, extent) = crate::header::parse(&message, message.len()).unwrap();
            assert_eq!((header.destination, header.protocol), (destination, ICMP_V6));
            assert_eq!((header.hop_limit, extent.offset), (1, 48));
            let body = &message[48..];
            let mut sum = Checksum::new();
            sum.add_pseudo(source, destination, ICMP_V6, body.len());
            sum.add(body);
            assert!(sum.is_good() && body[0] == kind);
        }
    }
}
