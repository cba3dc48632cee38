//! Programs that select sockets (`INET_DIAG_REQ_BYTECODE`): what `ss 'sport = :80'` sends
//! (net/ipv4/inet_diag.c of Linux 6.1, `inet_diag_bc_audit` and `inet_diag_bc_run`).
//!
//! A program is operations of four bytes, some with a condition behind them. Each says how many
//! bytes further it goes on if it holds, and if not. A jump leads onwards, never back, so a program
//! ends after at most as many steps as it has operations. It selects a socket if it ends exactly at
//! its end, and not if it leads beyond.
//!
//! [`Filter::check`] is Linux' audit in one pass: there a walk from the beginning looks for the
//! target of every jump, which takes the square of the length. Here a bit for each place of an
//! operation is kept.

use alloc::vec::Vec;
use core::net::IpAddr;

/// `struct inet_diag_bc_op`.
const OPERATION: usize = 4;
/// `struct inet_diag_hostcond` without the address.
const HOST: usize = 8;

/// The operations (`INET_DIAG_BC_*`).
mod code {
    pub const NOTHING: u8 = 0;
    pub const JUMP: u8 = 1;
    pub const SOURCE_LEAST: u8 = 2;
    pub const SOURCE_MOST: u8 = 3;
    pub const DESTINATION_LEAST: u8 = 4;
    pub const DESTINATION_MOST: u8 = 5;
    pub const AUTOMATIC: u8 = 6;
    pub const SOURCE: u8 = 7;
    pub const DESTINATION: u8 = 8;
    pub const INTERFACE: u8 = 9;
    pub const MARK: u8 = 10;
    pub const SOURCE_IS: u8 = 11;
    pub const DESTINATION_IS: u8 = 12;
    pub const GROUP: u8 = 13;
}

/// A fault of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no program: EINVAL.
    Invalid,
    /// It looks at what only an administrator may see: EPERM.
    NotAllowed,
    /// There is no memory to check it: ENOMEM.
    NoMemory,
}

/// A socket, as a program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its family; an address of IPv4 is mapped in a socket of IPv6.
    pub family: u8,
    /// Its name.
    pub local: (IpAddr, u16),
    /// Its peer.
    pub remote: (IpAddr, u16),
    /// The interface that it is bound to.
    pub interface: u32,
    /// SO_MARK.
    pub mark: u32,
    /// The kernel chose its port, not bind(2).
    pub is_automatic: bool,
}

/// A program that was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter<'a>(&'a [u8]);

/// An operation and the bytes from it on.
struct Operation<'a> {
    code: u8,
    yes: usize,
    no: usize,
    rest: &'a [u8],
}

impl<'a> Operation<'a> {
    fn at(bytes: &'a [u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..)?;
        let [code, yes, low, high] = *rest.first_chunk::<OPERATION>()?;
        Some(Self { code, yes: yes.into(), no: u16::from_ne_bytes([low, high]).into(), rest })
    }

    /// The word behind it, by its number.
    fn word(&self, number: usize) -> Option<u32> {
        let bytes = self.rest.get(OPERATION + 4 * number..)?;
        Some(u32::from_ne_bytes(*bytes.first_chunk()?))
    }

    /// The port of a comparison: the `no` of the operation behind it.
    fn port(&self) -> Option<u16> {
        let bytes = self.rest.get(OPERATION + 2..)?;
        Some(u16::from_ne_bytes(*bytes.first_chunk()?))
    }

    /// The condition about an end: family, length of the prefix, port (-1: any), address.
    fn host(&self) -> Option<(u8, usize, i32, &'a [u8])> {
        let condition = self.rest.get(OPERATION..)?;
        let [family, prefix, ..] = *condition.first_chunk::<HOST>()?;
        let port = i32::from_ne_bytes(*condition.get(4..)?.first_chunk()?);
        Some((family, prefix.into(), port, &condition[HOST..]))
    }

    /// How long it is with its condition.
    fn length(&self, is_administrator: bool) -> Result<usize, Fault> {
        let condition = match self.code {
            code::NOTHING | code::JUMP | code::AUTOMATIC => 0,
            code::SOURCE_LEAST
            | code::SOURCE_MOST
            | code::SOURCE_IS
            | code::DESTINATION_LEAST
            | code::DESTINATION_MOST
            | code::DESTINATION_IS => OPERATION,
            code::SOURCE | code::DESTINATION => {
                let (family, prefix, ..) = self.host().ok_or(Fault::Invalid)?;
                let address = address_length(family).ok_or(Fault::Invalid)?;
                if prefix > 8 * address {
                    return Err(Fault::Invalid);
                }
                HOST + address
            }
            code::INTERFACE => 4,
            code::MARK if !is_administrator => return Err(Fault::NotAllowed),
            code::MARK | code::GROUP => 8,
            _ => return Err(Fault::Invalid),
        };
        let length = OPERATION + condition;
        if self.rest.len() < length { Err(Fault::Invalid) } else { Ok(length) }
    }

    /// Whether it holds of a socket.
    fn holds(&self, of: &Subject) -> Option<bool> {
        let (source, destination) = (of.local.1, of.remote.1);
        Some(match self.code {
            code::NOTHING => true,
            code::JUMP => false,
            code::SOURCE_IS => source == self.port()?,
            code::SOURCE_LEAST => source >= self.port()?,
            code::SOURCE_MOST => source <= self.port()?,
            code::DESTINATION_IS => destination == self.port()?,
            code::DESTINATION_LEAST => destination >= self.port()?,
            code::DESTINATION_MOST => destination <= self.port()?,
            code::AUTOMATIC => of.is_automatic,
            code::SOURCE => self.is_end(of, of.local)?,
            code::DESTINATION => self.is_end(of, of.remote)?,
            code::INTERFACE => of.interface == self.word(0)?,
            code::MARK => of.mark & self.word(1)? == self.word(0)?,
            // There are no control groups: all sockets are in that whose number is 1, the root.
            code::GROUP => (self.word(0)?, self.word(1)?) == (1, 0),
            _ => return None,
        })
    }

    fn is_end(&self, of: &Subject, end: (IpAddr, u16)) -> Option<bool> {
        let (family, prefix, port, wanted) = self.host()?;
        if port != -1 && port != i32::from(end.1) {
            return Some(false);
        }
        let own = match (family, of.family, end.0) {
            (0, ..) => return Some(true),
            (INET, INET, IpAddr::V4(own)) => u128::from(own.to_bits()) << 96,
            // An address of IPv4 in a socket of IPv6; also with an empty prefix it must be one.
            (INET, INET6, IpAddr::V4(own)) => u128::from(own.to_bits()) << 96,
            (INET, INET6, IpAddr::V6(own)) => match own.to_ipv4_mapped() {
                Some(own) => u128::from(own.to_bits()) << 96,
                None => return Some(false),
            },
            (INET6, INET6, IpAddr::V6(own)) => own.to_bits(),
            (INET6, INET6, IpAddr::V4(own)) => own.to_ipv6_mapped().to_bits(),
            _ => return Some(false),
        };
        let mut bytes = [0; 16];
        let length = address_length(family)?;
        bytes[..length].copy_from_slice(wanted.get(..length)?);
        let differ = own ^ u128::from_be_bytes(bytes);
        Some(prefix == 0 || differ >> (128 - prefix.min(128)) == 0)
    }
}

const INET: u8 = 2;
const INET6: u8 = 10;

fn address_length(family: u8) -> Option<usize> {
    match family {
        0 => Some(0),
        INET => Some(4),
        INET6 => Some(16),
        _ => None,
    }
}

impl<'a> Filter<'a> {
    /// Checks a program. Only an administrator may look at marks.
    ///
    /// # Errors
    /// See [`Fault`].
    pub fn check(program: &'a [u8], is_administrator: bool) -> Result<Self, Fault> {
        if program.len() < OPERATION {
            return Err(Fault::Invalid);
        }
        // A bit for each place where an operation can begin, and for the end.
        let mut places: Vec<u64> = Vec::new();
        let words = program.len() / OPERATION / 64 + 1;
        places.try_reserve_exact(words).map_err(|_| Fault::NoMemory)?;
        places.resize(words, 0);
        let place = |at: usize| (at / OPERATION / 64, 1u64 << (at / OPERATION % 64));
        let mut at = 0;
        while at < program.len() {
            let operation = Operation::at(program, at).ok_or(Fault::Invalid)?;
            let length = operation.length(is_administrator)?;
            let left = program.len() - at;
            let leads =
                |on: usize| (length..=left + 4).contains(&on) && on.is_multiple_of(OPERATION);
            let jumps = operation.code != code::NOTHING;
            if !leads(operation.yes) || (jumps && !leads(operation.no)) {
                return Err(Fault::Invalid);
            }
            let (word, bit) = place(at);
            places[word] |= bit;
            at += operation.yes;
        }
        if at != program.len() {
            return Err(Fault::Invalid);
        }
        // Every jump leads to an operation, to the end, or beyond it, which is a refusal.
        let mut at = 0;
        while let Some(operation) = Operation::at(program, at) {
            let target = at + operation.no;
            if operation.code != code::NOTHING && target < program.len() {
                let (word, bit) = place(target);
                if places[word] & bit == 0 {
                    return Err(Fault::Invalid);
                }
            }
            at += operation.yes;
        }
        Ok(Self(program))
    }

    /// Whether the program selects a socket. One without operations selects all.
    pub fn selects(&self, subject: &Subject) -> bool {
        let mut at = 0;
        while at < self.0.len() {
            let Some(operation) = Operation::at(self.0, at) else { return false };
            let Some(holds) = operation.holds(subject) else { return false };
            let on = if holds { operation.yes } else { operation.no };
            // What was checked leads onwards.
            at += on.max(OPERATION);
        }
        at == self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn operation(code: u8, yes: u8, no: u16) -> Vec<u8> {
        let mut bytes = [code, yes, 0, 0].to_vec();
        bytes[2..].copy_from_slice(&no.to_ne_bytes());
        bytes
    }

    fn comparison(code: u8, port: u16, yes: u8, no: u16) -> Vec<u8> {
        [operation(code, yes, no), operation(0, 0, port)].concat()
    }

    fn subject(port: u16) -> Subject {
        Subject {
            family: INET,
            local: ("127.0.0.1".parse().unwrap(), port),
            remote: ("10.1.2.3".parse().unwrap(), 99),
            interface: 0,
            mark: 0x30,
            is_automatic: false,
        }
    }

    fn host(code: u8, family: u8, prefix: u8, port: i32, address: &[u8]) -> Vec<u8> {
        let length = 12 + address.len();
        let mut bytes = operation(code, length as u8, length as u16 + 4);
        bytes.extend([family, prefix, 0, 0]);
        bytes.extend(port.to_ne_bytes());
        bytes.extend(address);
        bytes
    }

    #[test]
    fn ports_are_compared() {
        for (code, low, same, high) in [
            (code::SOURCE_IS, false, true, false),
            (code::SOURCE_LEAST, false, true, true),
            (code::SOURCE_MOST, true, true, false),
        ] {
            let program = comparison(code, 80, 8, 12);
            let filter = Filter::check(&program, false).unwrap();
            let selected = [79, 80, 81].map(|port| filter.selects(&subject(port)));
            assert_eq!(selected, [low, same, high], "{code}");
        }
        let program = comparison(code::DESTINATION_IS, 99, 8, 12);
        assert!(Filter::check(&program, false).unwrap().selects(&subject(1)));
    }

    #[test]
    fn ends_are_compared_by_prefix_family_and_port() {
        let selects = |program: &[u8], subject: &Subject| {
            Filter::check(program, false).unwrap().selects(subject)
        };
        let v4 = subject(80);
        let mapped = Subject { family: INET6, ..v4 };
        for subject in [&v4, &mapped] {
            assert!(selects(&host(code::DESTINATION, INET, 8, -1, &[10, 9, 9, 9]), subject));
            assert!(selects(&host(code::DESTINATION, INET, 32, 99, &[10, 1, 2, 3]), subject));
            assert!(!selects(&host(code::DESTINATION, INET, 32, 98, &[10, 1, 2, 3]), subject));
            assert!(!selects(&host(code::DESTINATION, INET, 31, -1, &[10, 1, 2, 1]), subject));
            assert!(selects(&host(code::SOURCE, 0, 0, 80, &[]), subject));
            assert!(!selects(&host(code::SOURCE, 0, 0, 81, &[]), subject));
        }
        let six = Subject { local: ("fe80::1".parse().unwrap(), 1), ..mapped };
        assert!(!selects(&host(code::SOURCE, INET, 0, -1, &[0; 4]), &six));
        assert!(!selects(&host(code::SOURCE, INET6, 0, -1, &[0; 16]), &v4));
        let mut address = [0; 16];
        (address[0], address[1], address[15]) = (0xfe, 0x80, 1);
        assert!(selects(&host(code::SOURCE, INET6, 128, -1, &address), &six));
        address[15] = 2;
        assert!(!selects(&host(code::SOURCE, INET6, 128, -1, &address), &six));
        assert!(selects(&host(code::SOURCE, INET6, 126, -1, &address), &six));
    }

    #[test]
    fn jumps_join_conditions() {
        // sport = 80 or dport = 99: if the first holds, a jump leads to the end.
        let or = [
            comparison(code::SOURCE_IS, 80, 8, 12),
            operation(code::JUMP, 4, 12),
            comparison(code::DESTINATION_IS, 99, 8, 12),
        ]
        .concat();
        let filter = Filter::check(&or, false).unwrap();
        assert!(filter.selects(&subject(80)) && filter.selects(&subject(5)));
        let other = Subject { remote: (subject(1).remote.0, 98), ..subject(5) };
        assert!(!filter.selects(&other));
    }

    #[test]
    fn marks_are_for_administrators() {
        let mut program = operation(code::MARK, 12, 16);
        program.extend(0x10u32.to_ne_bytes());
        program.extend(0x1fu32.to_ne_bytes());
        assert_eq!(Filter::check(&program, false), Err(Fault::NotAllowed));
        assert!(Filter::check(&program, true).unwrap().selects(&subject(1)));
    }

    #[test]
    fn programs_that_lead_astray_are_refused() {
        let bad = [
            vec![],
            vec![0, 4, 0],
            operation(200, 4, 4),
            operation(code::JUMP, 4, 0),
            operation(code::JUMP, 4, 2),
            operation(code::JUMP, 4, 12),
            operation(code::JUMP, 0, 4),
            operation(code::JUMP, 8, 4),
            operation(code::SOURCE_IS, 4, 4),
            comparison(code::SOURCE_IS, 80, 4, 8),
            host(code::SOURCE, 3, 0, -1, &[]),
            host(code::SOURCE, INET, 33, -1, &[0; 4]),
            host(code::SOURCE, INET6, 0, -1, &[0; 4]),
            // Into the middle of a condition.
            [operation(code::JUMP, 4, 8), comparison(code::SOURCE_IS, 80, 8, 8)].concat(),
        ];
        for program in bad {
            assert_eq!(Filter::check(&program, true), Err(Fault::Invalid), "{program:?}");
        }
    }
}
