//! The ring in which asynchronous input and output reports what is done (`io_setup(2)`; fs/aio.c of
//! Linux 6.1): how many places it has, where they lie, and how many are free.
//!
//! The kernel writes events at the tail, and a program takes them from the head. The ring is memory
//! of the program: its library takes events without a system call, and moves the head itself. So a
//! head that was read is an allegation. The worst that a wrong one does is that the program loses
//! its own events. The tail is the kernel's alone; what the program sees of it is a copy.
//!
//! One place stays free, so that a full ring is not taken for an empty one.
#![no_std]
#![forbid(unsafe_code)]

/// The bytes of an event (`struct io_event`), and of the header before the first one.
pub const EVENT: usize = 32;
/// The bytes of a page.
pub const PAGE: usize = 4096;
/// Where the header has the head.
pub const HEAD: usize = 8;
/// Where the header has the copy of the tail.
pub const TAIL: usize = 12;

/// `AIO_RING_MAGIC`, by which a library knows that it may read the ring.
const MAGIC: u32 = 0xa10a_10a1;
/// Beyond these the sizes would overflow (`ioctx_alloc`).
const MOST: u32 = 0x1000_0000 / EVENT as u32;

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The places for events, one of which stays free.
    pub places: u32,
}

impl Ring {
    /// The ring for a program that wants `events` at once, on a machine that may have `cpus`
    /// processors: twice as many, since each processor may set some aside, and what fills its
    /// pages. `None`: more than any ring has.
    pub fn sized(events: u32, cpus: u32) -> Option<Ring> {
        let wanted = events.max(cpus.saturating_mul(4)).checked_mul(2)?;
        if wanted > MOST {
            return None;
        }
        let bytes = EVENT + (wanted as usize + 2) * EVENT;
        let places = (bytes.next_multiple_of(PAGE) - EVENT) / EVENT;
        u32::try_from(places).ok().map(|places| Ring { places })
    }

    /// Its bytes: whole pages.
    pub fn bytes(self) -> usize {
        (EVENT + self.places as usize * EVENT).next_multiple_of(PAGE)
    }

    /// The header of an empty ring.
    pub fn header(self) -> [u8; EVENT] {
        /// `AIO_RING_COMPAT_FEATURES`
        const COMPATIBLE: u32 = 1;
        let words = [0, self.places, 0, 0, MAGIC, COMPATIBLE, 0, EVENT as u32];
        let mut header = [0; EVENT];
        for (to, word) in header.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&u32::to_le_bytes(word));
        }
        header
    }

    /// Which page a place lies in, and where in it. No event lies across two pages.
    pub fn place(self, number: u32) -> (usize, usize) {
        let at = (self.wrap(number) as usize + 1) * EVENT;
        (at / PAGE, at % PAGE)
    }

    /// A number of a place, whatever the program wrote.
    pub fn wrap(self, number: u32) -> u32 {
        number.checked_rem(self.places).unwrap_or(0)
    }

    /// The place after this one.
    pub fn next(self, number: u32) -> u32 {
        self.wrap(self.wrap(number) + 1)
    }

    /// How many events wait between a head, whatever the program wrote, and the tail.
    pub fn waiting(self, head: u32, tail: u32) -> u32 {
        let (head, tail) = (self.wrap(head), self.wrap(tail));
        if head <= tail { tail - head } else { self.places - (head - tail) }
    }

    /// Whether there is room for one event more beside those that wait, and those of so many
    /// requests on their way.
    pub fn has_room(self, head: u32, tail: u32, on_their_way: u32) -> bool {
        self.waiting(head, tail).saturating_add(on_their_way) < self.places.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ring_fills_its_pages() {
        // As Linux' own: 127 places in a page, 255 in two.
        assert_eq!(Ring::sized(1, 1).map(|ring| (ring.places, ring.bytes())), Some((127, PAGE)));
        assert_eq!(Ring::sized(62, 1).map(|ring| ring.places), Some(127));
        assert_eq!(Ring::sized(63, 1).map(|ring| ring.places), Some(255));
        assert_eq!(Ring::sized(1, 16).map(|ring| (ring.places, ring.bytes())), Some((255, 8192)));
        assert_eq!(Ring::sized(MOST / 2 + 1, 1), None);
        assert_eq!(Ring::sized(u32::MAX, 1), None);
    }

    #[test]
    fn a_library_knows_the_header() {
        let header = Ring { places: 127 }.header();
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        assert_eq!((word(4), word(HEAD), word(TAIL)), (127, 0, 0));
        assert_eq!((word(16), word(20), word(24), word(28)), (0xa10a_10a1, 1, 0, 32));
    }

    #[test]
    fn one_place_stays_free() {
        let ring = Ring { places: 4 };
        assert!(ring.has_room(0, 0, 0) && ring.has_room(0, 2, 0) && !ring.has_room(0, 3, 0));
        assert!(ring.has_room(3, 1, 0) && !ring.has_room(3, 1, 1) && !ring.has_room(0, 0, 3));
    }

    proptest! {
        #[test]
        fn every_place_lies_in_the_ring(events in 1u32..70_000, number: u32) {
            let ring = Ring::sized(events, 2).unwrap();
            let (page, at) = ring.place(number);
            prop_assert!(at % EVENT == 0 && at + EVENT <= PAGE);
            let start = page * PAGE + at;
            prop_assert!((EVENT..=ring.bytes() - EVENT).contains(&start));
            prop_assert!(ring.places > 2 * events);
        }

        #[test]
        fn the_tail_never_meets_the_head(head in 0u32..127, steps in 0usize..400) {
            let ring = Ring { places: 127 };
            let (mut tail, mut done) = (head, 0);
            for _ in 0..steps {
                if ring.has_room(head, tail, 0) {
                    tail = ring.next(tail);
                    done += 1;
                }
            }
            prop_assert_eq!(ring.waiting(head, tail), done);
            prop_assert!(done <= 126);
        }

        #[test]
        fn no_head_makes_more_events_than_places(head: u32, tail: u32, places in 1u32..5000) {
            let ring = Ring { places };
            prop_assert!(ring.waiting(head, tail) < places);
        }
    }
}
