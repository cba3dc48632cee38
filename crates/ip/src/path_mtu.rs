//! The MTUs of paths, as routers told of them (RFC 1191, RFC 8201): a table by destination.
//!
//! What a message says is believed of its destination alone, never raises an MTU, and holds for a
//! time. The table has its room from the start, so a message never costs memory; when it is full, the
//! entry goes that would go first.

use arrayvec::ArrayVec;

use crate::Address;

/// The least MTU of a link of IPv6 (RFC 8200, 5).
pub const LEAST_V6: u32 = 1280;

/// The MTU of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// The longest packet in bytes.
    pub bytes: u32,
    /// A router told of less than is believed: packets of IPv4 are cut, and routers may cut them
    /// further (Linux: `rt_mtu_locked`).
    pub is_locked: bool,
}

/// Returns the MTU of a path that was `old` bytes when a router tells that `told` bytes are the
/// most; `None` if that is no news. Less than `least` is not believed of IPv4
/// (`__ip_rt_update_pmtu`, net/ipv4/route.c of Linux 6.1), and a message that tells less than
/// [`LEAST_V6`] of IPv6 is discarded (RFC 8201, 4).
pub fn lowered(is_v4: bool, old: u32, told: u32, least: u32) -> Option<PathMtu> {
    if !is_v4 {
        let is_news = (LEAST_V6..old).contains(&told);
        return is_news.then_some(PathMtu { bytes: told, is_locked: false });
    }
    if told > old {
        return None;
    }
    let is_locked = told < least;
    Some(PathMtu { bytes: if is_locked { old.min(least) } else { told }, is_locked })
}

/// A destination, by the interface that packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The address.
    pub to: Address,
    /// The interface.
    pub interface: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    destination: Destination,
    mtu: PathMtu,
    /// When it ends.
    end: u64,
}

/// A table of at most `MOST` paths.
#[derive(Debug)]
pub struct Table<const MOST: usize> {
    entries: ArrayVec<Entry, MOST>,
}

impl<const MOST: usize> Table<MOST> {
    /// An empty table.
    pub const fn new() -> Table<MOST> {
        Table { entries: ArrayVec::new_const() }
    }

    /// Returns how many paths it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns what was told of a path and still holds. What does not is forgotten.
    pub fn find(&mut self, destination: Destination, now: u64) -> Option<PathMtu> {
        let at = self.entries.iter().position(|entry| entry.destination == destination)?;
        let Entry { mtu, end, .. } = self.entries[at];
        if now < end {
            return Some(mtu);
        }
        self.entries.swap_remove(at);
        None
    }

    /// Notes the MTU of a path until `end`.
    pub fn note(&mut self, destination: Destination, mtu: PathMtu, end: u64) {
        let new = Entry { destination, mtu, end };
        let known = self.entries.iter_mut().find(|entry| entry.destination == destination);
        if let Some(entry) = known {
            *entry = new;
        } else if self.entries.try_push(new).is_err()
            && let Some(first) = self.entries.iter_mut().min_by_key(|entry| entry.end)
        {
            *first = new;
        }
    }
}

impl<const MOST: usize> Default for Table<MOST> {
    fn default() -> Self {
        Table::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(number: u32) -> Destination {
        Destination { to: Address::v4(0x0a00_0000 + number), interface: 2 }
    }

    fn free(bytes: u32) -> PathMtu {
        PathMtu { bytes, is_locked: false }
    }

    #[test]
    fn a_message_lowers_an_mtu_within_bounds() {
        assert_eq!(lowered(true, 1500, 1400, 552), Some(free(1400)));
        assert_eq!(lowered(true, 1400, 1400, 552), Some(free(1400)));
        assert_eq!(lowered(true, 1400, 1401, 552), None);
        let locked = |bytes| Some(PathMtu { bytes, is_locked: true });
        assert_eq!(lowered(true, 1500, 551, 552), locked(552));
        assert_eq!(lowered(true, 1500, 0, 552), locked(552));
        assert_eq!(lowered(true, 300, 0, 552), locked(300));
        assert_eq!(lowered(false, 1500, 1400, 552), Some(free(1400)));
        assert_eq!(lowered(false, 1500, 1280, 552), Some(free(1280)));
        assert_eq!(lowered(false, 1500, 1279, 552), None);
        assert_eq!(lowered(false, 1280, 68, 552), None);
        assert_eq!(lowered(false, 1400, 1400, 552), None);
    }

    #[test]
    fn an_entry_is_of_one_destination_and_ends() {
        let mut table: Table<4> = Table::new();
        table.note(path(1), free(1400), 10);
        assert_eq!(table.find(path(1), 9), Some(free(1400)));
        assert_eq!(table.find(path(2), 9), None);
        assert_eq!(table.find(Destination { interface: 3, ..path(1) }, 9), None);
        table.note(path(1), free(1300), 20);
        assert_eq!((table.len(), table.find(path(1), 19)), (1, Some(free(1300))));
        assert_eq!((table.find(path(1), 20), table.is_empty()), (None, true));
    }

    proptest! {
        #[test]
        fn a_table_has_the_newest_of_a_few(notes in proptest::collection::vec(0u32..12, 0..60)) {
            let mut table: Table<4> = Table::new();
            for (at, &number) in notes.iter().enumerate() {
                table.note(path(number), free(600 + at as u32), at as u64 + 1);
                prop_assert!(table.len() <= 4);
                prop_assert_eq!(table.find(path(number), 0), Some(free(600 + at as u32)));
            }
            // The last four destinations are there, each with its last note.
            let mut newest: alloc::vec::Vec<(usize, u32)> = alloc::vec::Vec::new();
            for (at, &number) in notes.iter().enumerate().rev() {
                if newest.len() < 4 && !newest.iter().any(|&(_, other)| other == number) {
                    newest.push((at, number));
                }
            }
            for (at, number) in newest {
                prop_assert_eq!(table.find(path(number), 0), Some(free(600 + at as u32)));
            }
        }

        #[test]
        fn no_message_raises_an_mtu(
            is_v4: bool,
            old in 68u32..70_000,
            told: u32,
            least in 68u32..2000,
        ) {
            let mtu = lowered(is_v4, old, told, least);
            prop_assert!(mtu.is_none_or(|mtu| mtu.bytes <= old && mtu.bytes >= old.min(told)));
        }
    }
}
