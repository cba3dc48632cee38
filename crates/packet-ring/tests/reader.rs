//! A reader that follows packet_mmap.rst gets every packet that was kept, once and in order; and a
//! program that writes anything into the ring does no harm.

use hayate_fuzzing::{Random, rounds, seed};
use hayate_packet_ring::{
    Arrival, Layout, Memory, Outcome, Refused, Request, Ring, Version, status,
};
use proptest::prelude::*;
use std::cell::RefCell;

struct Bytes(RefCell<Vec<u8>>);

impl Bytes {
    fn of(layout: &Layout) -> Bytes {
        Bytes(RefCell::new(vec![0; layout.size()]))
    }

    fn half(&self, at: usize) -> usize {
        (self.load(at & !3) >> (at % 4 * 8) & 0xffff) as usize
    }

    fn bytes(&self, at: usize, count: usize) -> Vec<u8> {
        self.0.borrow()[at..at + count].to_vec()
    }
}

impl Memory for Bytes {
    fn load(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4));
        u32::from_ne_bytes(self.0.borrow()[at..at + 4].try_into().expect("four"))
    }

    fn store(&self, at: usize, value: u32) {
        assert!(at.is_multiple_of(4));
        self.0.borrow_mut()[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

const MOST: usize = 1 << 30;
const ADDRESS: [u8; 20] = [0xab; 20];

fn request(block_size: u32, block_count: u32, frame_size: u32) -> Request {
    let frame_count = block_size / frame_size.max(1) * block_count;
    Request { block_size, block_count, frame_size, frame_count, ..Request::default() }
}

fn layout(version: Version, block_size: u32, blocks: u32, frame_size: u32) -> Layout {
    Layout::new(version, 0, request(block_size, blocks, frame_size), MOST).expect("a layout")
}

/// The bytes of the packet of this number.
fn packet(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at) as u8).collect()
}

fn put(ring: &mut Ring, memory: &Bytes, number: usize, length: usize, time: u64) -> Outcome {
    let bytes = packet(number, length);
    let fill = |count: usize, at: usize| memory.write(at, &bytes[..count]);
    let arrival = Arrival {
        length,
        wanted: length,
        link: 14,
        address: ADDRESS,
        time,
        status: status::CHECKSUM_VALID,
        losing: false,
        fill: &fill,
    };
    ring.put(memory, &arrival)
}

/// A program that reads.
#[derive(Default)]
struct Reader {
    next: usize,
    sequence: u64,
}

impl Reader {
    /// Reads a frame, or all packets of a block, and gives it back: each packet's length and bytes.
    fn read(&mut self, layout: &Layout, memory: &Bytes) -> Option<Vec<(usize, Vec<u8>)>> {
        if layout.version == Version::V3 {
            return self.read_block(layout, memory);
        }
        let count = layout.per_block * layout.blocks;
        let at = self.next / layout.per_block * layout.block_size
            + self.next % layout.per_block * layout.frame_size;
        if memory.load(at) & status::USER == 0 {
            return None;
        }
        assert_eq!(memory.load(at), status::USER | status::CHECKSUM_VALID);
        self.next = (self.next + 1) % count;
        let skip = if layout.version == Version::V1 { 8 } else { 4 };
        let (length, kept) = (memory.load(at + skip), memory.load(at + skip + 4) as usize);
        let (start, network) = (memory.half(at + skip + 8), memory.half(at + skip + 10));
        assert_eq!(start + 14, network);
        assert!(start + kept <= layout.frame_size);
        assert_eq!(memory.bytes(at + 32, 20), ADDRESS);
        let bytes = memory.bytes(at + start, kept);
        memory.store(at, status::KERNEL);
        Some(vec![(length as usize, bytes)])
    }

    fn read_block(&mut self, layout: &Layout, memory: &Bytes) -> Option<Vec<(usize, Vec<u8>)>> {
        let block = self.next * layout.block_size;
        if memory.load(block + 8) & status::USER == 0 {
            return None;
        }
        self.next = (self.next + 1) % layout.blocks;
        let sequence = u64::from_ne_bytes(memory.bytes(block + 24, 8).try_into().expect("eight"));
        assert_eq!(sequence, self.sequence + 1);
        self.sequence = sequence;
        let packets = memory.load(block + 12);
        assert!(packets > 0 && memory.load(block + 20) as usize <= layout.block_size);
        let mut at = block + memory.load(block + 16) as usize;
        let mut all = Vec::new();
        for left in (0..packets).rev() {
            let (kept, length) = (memory.load(at + 12) as usize, memory.load(at + 16) as usize);
            let start = memory.half(at + 24);
            assert_eq!(start + 14, memory.half(at + 26));
            assert!(at + start + kept <= block + layout.block_size);
            assert_eq!(memory.bytes(at + 48, 20), ADDRESS);
            all.push((length, memory.bytes(at + start, kept)));
            let next = memory.load(at) as usize;
            assert_eq!(next == 0, left == 0);
            at += next;
        }
        memory.store(block + 8, status::KERNEL);
        Some(all)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(usize),
    Read,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1usize..3000).prop_map(Step::Arrive),
        1 => (3000usize..70_000).prop_map(Step::Arrive),
        3 => Just(Step::Read),
        1 => (1u64..20_000_000).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn every_kept_packet_is_read_once_and_in_order(
        version in 0..3i32,
        shape in (1u32..4, 1u32..5, 1u32..4),
        steps in steps(),
    ) {
        let version = Version::from_number(version).expect("a version");
        let (block, blocks, frame) = (4096 * shape.0, shape.1, (4096 / shape.2) & !15);
        let layout = layout(version, block, blocks, frame);
        let memory = Bytes::of(&layout);
        let mut ring = Ring::new(layout, &memory, 0);
        let (mut reader, mut now, mut number) = (Reader::default(), 0, 0);
        let (mut kept, mut got) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Arrive(length) => {
                    number += 1;
                    let outcome = put(&mut ring, &memory, number, length, now);
                    if outcome.kept {
                        kept.push((length, packet(number, length)));
                    }
                    prop_assert!(!outcome.wake || ring.is_readable(&memory));
                }
                Step::Read => got.extend(reader.read(&layout, &memory).into_iter().flatten()),
                Step::Wait(time) => {
                    now += time;
                    let (outcome, _) = ring.expire(&memory, now, false);
                    prop_assert!(!outcome.wake || ring.is_readable(&memory));
                }
            }
        }
        ring.expire(&memory, now + 1_000_000_000, false);
        while let Some(more) = reader.read(&layout, &memory) {
            got.extend(more);
        }
        prop_assert!(!ring.is_readable(&memory));
        prop_assert_eq!(got.len(), kept.len());
        for ((length, bytes), (whole, all)) in got.iter().zip(&kept) {
            prop_assert_eq!(length, whole);
            prop_assert_eq!(&bytes[..], &all[..bytes.len()]);
            // It is cut only where it does not fit a frame or a block.
            let room = match version {
                Version::V3 => layout.block_size - 48,
                _ => layout.frame_size,
            };
            prop_assert!(bytes.len() == all.len() || bytes.len() + 96 >= room);
        }
    }
}

#[test]
fn a_full_ring_takes_nothing_until_it_is_read() {
    for version in [Version::V1, Version::V2] {
        let layout = layout(version, 4096, 2, 2048);
        let memory = Bytes::of(&layout);
        let mut ring = Ring::new(layout, &memory, 0);
        assert!(!ring.is_readable(&memory));
        for number in 0..4 {
            assert!(put(&mut ring, &memory, number, 100, 0).kept);
        }
        assert!(!put(&mut ring, &memory, 4, 100, 0).kept);
        let mut reader = Reader::default();
        assert_eq!(reader.read(&layout, &memory).expect("a frame")[0].1, packet(0, 100));
        assert!(put(&mut ring, &memory, 5, 100, 0).kept);
        assert!(!put(&mut ring, &memory, 6, 100, 0).kept);
    }
}

#[test]
fn a_ring_of_blocks_freezes_and_thaws() {
    let layout = layout(Version::V3, 4096, 2, 2048);
    let memory = Bytes::of(&layout);
    let mut ring = Ring::new(layout, &memory, 0);
    let first = put(&mut ring, &memory, 0, 3000, 5);
    assert_eq!(first, Outcome { kept: true, wake: false, begins: Some(8_000_000), froze: false });
    assert!(put(&mut ring, &memory, 1, 3000, 6).wake);
    let third = put(&mut ring, &memory, 2, 3000, 7);
    assert_eq!(third, Outcome { kept: false, wake: true, begins: None, froze: true });
    assert_eq!(put(&mut ring, &memory, 3, 3000, 8), Outcome { wake: false, froze: false, ..third });
    assert_eq!(ring.expire(&memory, 1 << 40, false).1, None);
    let mut reader = Reader::default();
    assert_eq!(reader.read(&layout, &memory).expect("a block")[0].1, packet(0, 3000));
    assert!(put(&mut ring, &memory, 4, 100, 9).kept);
    // It is handed over when its time has come.
    assert_eq!(ring.expire(&memory, 9 + 7_999_999, false).1, Some(1));
    assert!(ring.expire(&memory, 9 + 8_000_000, false).0.wake);
    assert_eq!(reader.read(&layout, &memory).expect("a block")[0].1, packet(1, 3000));
    assert_eq!(reader.read(&layout, &memory).expect("a block")[0].1, packet(4, 100));
    assert_eq!(reader.read(&layout, &memory), None);
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let good = request(4096, 2, 1024);
    let of = |version, asked| Layout::new(version, 0, asked, MOST).map(|_| ());
    assert_eq!(of(Version::V2, good), Ok(()));
    for bad in [
        Request { block_size: 0, ..good },
        Request { block_size: 4095, ..good },
        Request { block_size: 1 << 31, ..good },
        Request { block_count: 3, ..good },
        Request { frame_count: 9, ..good },
        Request { frame_count: 0, ..good },
        Request { frame_size: 0, ..good },
        Request { frame_size: 48, frame_count: 170, ..good },
        Request { frame_size: 1000, ..good },
        Request { frame_size: 8192, frame_count: 0, ..good },
    ] {
        assert_eq!(of(Version::V2, bad), Err(Refused::Invalid), "{bad:?}");
    }
    let private = |size| Request { private_size: size, ..good };
    assert_eq!(of(Version::V3, private(3900)), Ok(()));
    assert_eq!(of(Version::V3, private(4000)), Err(Refused::Invalid));
    assert_eq!(of(Version::V3, private(u32::MAX)), Err(Refused::Invalid));
    assert_eq!(of(Version::V2, private(u32::MAX)), Ok(()));
    assert!(Layout::new(Version::V2, 2000, good, MOST).is_err());
    assert_eq!(Layout::new(Version::V2, 0, good, 8191).err(), Some(Refused::Memory));
    assert_eq!(of(Version::V2, request(1 << 30, 16, 1 << 20)), Err(Refused::Memory));
}

#[test]
fn a_program_that_writes_anything_does_no_harm() {
    let mut random = Random::new(seed());
    for _ in 0..rounds(300) {
        let version = Version::from_number(random.below(3) as i32).expect("a version");
        let reserve = random.below(200) as u32;
        let asked = request(4096 * (1 + random.below(3)) as u32, 1 + random.below(4) as u32, 512);
        let asked = Request { private_size: random.below(3000) as u32, ..asked };
        let Ok(layout) = Layout::new(version, reserve, asked, MOST) else { continue };
        let memory = Bytes::of(&layout);
        let mut ring = Ring::new(layout, &memory, 0);
        for number in 0..200 {
            // Bytes writes nothing outside of itself: it would panic.
            put(&mut ring, &memory, number, random.below(66_000), random.word() >> 20);
            ring.expire(&memory, random.word() >> 20, true);
            ring.is_readable(&memory);
            for _ in 0..random.below(8) {
                memory.store(random.below(layout.size() / 4) * 4, random.word() as u32);
            }
            if random.one_in(3) {
                let block = random.below(layout.blocks) * layout.block_size;
                memory.store(block + if version == Version::V3 { 8 } else { 0 }, 0);
            }
        }
    }
}
