//! The driver of virtio block devices (virtio 1.2, 5.2).
//!
//! A transfer is split into requests of as many segments as the device takes. All are given to the
//! device at once, as far as the queue has room, and the caller sleeps until the last one is
//! answered. Requests of several callers are in flight together.
//!
//! A write is done when the host has it; it is durable after a later [`flush`](BlockDevice::flush).
//! A device without `VIRTIO_BLK_F_FLUSH` has nothing to flush (5.2.6.2: it writes through).
//!
//! Pages are written to get memory, so a write asks only for memory that need not be much: where a
//! request for all segments finds no room, several with fewer are made.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::virtio::{Chain, Device, Error, Piece, Queue};
use hayate_machine::{boot, info};

use super::block::{BlockDevice, SECTOR, Segment, Shape, count_read, register};
use crate::schedule::WaitQueue;

mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const READ_ONLY: u64 = 1 << 5;
    pub const BLOCK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
}

/// Offsets in the device's configuration.
mod config {
    pub const CAPACITY: usize = 0;
    pub const SIZE_MAX: usize = 8;
    pub const SEG_MAX: usize = 12;
    pub const BLOCK_SIZE: usize = 20;
    pub const PHYSICAL_EXPONENT: usize = 24;
    pub const LEAST: usize = 26;
    pub const BEST: usize = 28;
    pub const DISCARD_SECTORS: usize = 36;
    pub const ZEROES_SECTORS: usize = 48;
    pub const ZEROES_MAY_UNMAP: usize = 56;
}

/// Types of a request.
mod request {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// The flag of a part of a `WRITE_ZEROES` request: the sectors may be given back.
const UNMAP: u32 = 1;

/// Answers of the device.
mod status {
    pub const GOOD: u8 = 0;
    pub const UNSUPPORTED: u8 = 2;
    /// No answer yet.
    pub const NONE: u8 = 0xff;
}

/// The largest queue that is used; it limits the segments in flight.
const QUEUE: u16 = 256;
/// Bytes of a serial number.
const SERIAL: usize = 20;

struct Disk {
    sectors: u64,
    read_only: bool,
    flushes: bool,
    shape: Shape,
    /// The most sectors that one request discards or zeroes; 0: the device does not offer it.
    discards: u32,
    zeroes: u32,
    /// Whether sectors that are zeroed may be given back.
    unmaps: bool,
    serial: Once<String>,
    /// Segments of one request.
    segments: usize,
    state: SpinLock<State>,
    /// Woken when the queue has room again.
    room: WaitQueue,
}

struct State {
    queue: Queue,
    /// The transfer of each token.
    owners: Vec<Option<Arc<Transfer>>>,
    free: Vec<u64>,
}

/// The requests of one call.
struct Transfer {
    /// Requests not yet answered, plus one while the caller still adds requests.
    left: AtomicU32,
    /// Whether a request failed, and whether the device does not know such requests.
    failed: AtomicBool,
    unsupported: AtomicBool,
    done: WaitQueue,
}

impl Transfer {
    fn new() -> Arc<Transfer> {
        Arc::new(Transfer {
            left: AtomicU32::new(1),
            failed: AtomicBool::new(false),
            unsupported: AtomicBool::new(false),
            done: WaitQueue::new(),
        })
    }

    /// Waits for all answers. `added`: whether all requests could be made.
    fn wait(&self, added: Result<()>) -> Result<()> {
        // Drops the caller's own count. The frames belong to the device until every request is
        // answered.
        self.left.fetch_sub(1, Ordering::AcqRel);
        self.done.wait_for_device(|| (self.left.load(Ordering::Acquire) == 0).then_some(()));
        if self.unsupported.load(Ordering::Relaxed) {
            Err(Errno::EOPNOTSUPP)
        } else if self.failed.load(Ordering::Relaxed) {
            Err(Errno::EIO)
        } else {
            added
        }
    }

    fn finish_one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.wake_all();
        }
    }
}

/// What the device's configuration says.
struct Found {
    sectors: u64,
    size_max: u32,
    seg_max: u32,
    shape: Shape,
    discards: u32,
    zeroes: u32,
    unmaps: bool,
}

impl Found {
    /// Reads the fields that belong to the features that were agreed on.
    fn of(device: &Device, agreed: u64) -> Found {
        let has = |feature: u64| agreed & feature != 0;
        device.config(|config| {
            let mut shape = Shape::default();
            if has(feature::BLOCK_SIZE) {
                shape.logical = sane(config.u32(config::BLOCK_SIZE));
                (shape.physical, shape.least) = (shape.logical, shape.logical);
            }
            if has(feature::TOPOLOGY) {
                let exponent = u32::from(config.u8(config::PHYSICAL_EXPONENT));
                shape.physical = sane(shape.logical.checked_shl(exponent).unwrap_or(0));
                let blocks = |count: u32| count.saturating_mul(shape.logical);
                shape.least = blocks(config.u16(config::LEAST).into()).max(shape.logical);
                shape.best = blocks(config.u32(config::BEST));
            }
            let limit = |feature, offset| if has(feature) { config.u32(offset) } else { 0 };
            Found {
                sectors: config.u64(config::CAPACITY),
                size_max: config.u32(config::SIZE_MAX),
                seg_max: config.u32(config::SEG_MAX),
                shape,
                discards: limit(feature::DISCARD, config::DISCARD_SECTORS),
                zeroes: limit(feature::WRITE_ZEROES, config::ZEROES_SECTORS),
                unmaps: has(feature::WRITE_ZEROES) && config.u8(config::ZEROES_MAY_UNMAP) != 0,
            }
        })
    }
}

/// A size of blocks that the kernel can believe.
fn sane(size: u32) -> u32 {
    if size.is_power_of_two() && (512..=1 << 20).contains(&size) { size } else { 512 }
}

/// Sets the device up and registers its disk.
pub fn start(device: Device) -> core::result::Result<(), Error> {
    let wanted = feature::SIZE_MAX
        | feature::SEG_MAX
        | feature::READ_ONLY
        | feature::BLOCK_SIZE
        | feature::FLUSH
        | feature::TOPOLOGY
        | feature::DISCARD
        | feature::WRITE_ZEROES;
    let agreed = device.negotiate(wanted)?;
    let slot: Arc<Once<Arc<Disk>>> = Arc::new(Once::new());
    let target = Arc::clone(&slot);
    device.connect(Box::new(move || {
        if let Some(disk) = target.get() {
            disk.interrupt();
        }
    }))?;
    let queue = device.queue(0, QUEUE)?;
    let found = Found::of(&device, agreed);
    // Two descriptors are for the header and the status. A device without SEG_MAX takes one
    // segment. With a size limit under a page, segments would have to be split. Blocks that are
    // larger than sectors would need transfers of whole blocks.
    let mut segments =
        if agreed & feature::SEG_MAX != 0 { found.seg_max.max(1) as usize } else { 1 };
    segments = segments.min(usize::from(queue.size()).saturating_sub(2)).max(1);
    if agreed & feature::SIZE_MAX != 0 && found.size_max < 4096 {
        return Err(Error::Features);
    }
    let count = usize::from(queue.size());
    let disk = Arc::new(Disk {
        sectors: found.sectors,
        read_only: agreed & feature::READ_ONLY != 0 || u64::from(found.shape.logical) != SECTOR,
        flushes: agreed & feature::FLUSH != 0,
        shape: found.shape,
        discards: found.discards,
        zeroes: found.zeroes,
        unmaps: found.unmaps,
        serial: Once::new(),
        segments,
        state: SpinLock::new(State {
            queue,
            owners: (0..count).map(|_| None).collect(),
            free: (0..count as u64).rev().collect(),
        }),
        room: WaitQueue::new(),
    });
    slot.call_once(|| Arc::clone(&disk));
    device.start();
    // A request for each disk of every start would cost, and nobody asks for the name of the root
    // file system's disk.
    if !disk.read_only || boot::flag("disk_serials") {
        disk.ask_serial();
    }
    let mode = if disk.read_only { ", read-only" } else { "" };
    let kib = disk.sectors / 2;
    let index = register(disk);
    info!("virtio-blk: disk {index}, {kib} KiB at {}{mode}", device.place());
    // The device is never released.
    core::mem::forget(device);
    Ok(())
}

impl Disk {
    /// Takes the answers and wakes the callers.
    fn interrupt(&self) {
        let mut state = self.state.lock();
        while let Some((chain, _)) = state.queue.take() {
            let answer = match chain.pieces().last() {
                Some(Piece::Bytes(status)) => status.first().copied().unwrap_or(status::NONE),
                _ => status::NONE,
            };
            let owner = state.owners.get_mut(chain.token as usize).and_then(Option::take);
            state.free.push(chain.token);
            if let Some(owner) = owner {
                match answer {
                    status::GOOD => {}
                    status::UNSUPPORTED => owner.unsupported.store(true, Ordering::Relaxed),
                    _ => owner.failed.store(true, Ordering::Relaxed),
                }
                if answer == status::GOOD
                    && let [_, Piece::Bytes(serial), _] = chain.pieces()
                    && serial.len() == SERIAL
                {
                    self.serial.call_once(|| text_of(serial));
                }
                owner.finish_one();
            }
        }
        drop(state);
        self.room.wake_all();
    }

    /// Begins a request with room for `segments`, or for fewer if memory for so many is missing.
    /// Returns it and how many; `ENOMEM` without memory for one.
    fn begin(kind: u32, sector: u64, segments: usize) -> Result<(Chain, usize)> {
        let mut chain = Chain::new(0);
        let mut room = segments;
        while !chain.make_room(room + 2) {
            room /= 2;
            if room == 0 {
                return Err(Errno::ENOMEM);
            }
        }
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        if chain.reads(Piece::bytes(Box::new(header))) {
            Ok((chain, room))
        } else {
            Err(Errno::ENOMEM)
        }
    }

    /// Ends a request, and gives it to the device.
    fn end(&self, mut chain: Chain, transfer: &Arc<Transfer>) -> Result<()> {
        if !chain.writes(Piece::bytes(Box::new([status::NONE]))) {
            return Err(Errno::ENOMEM);
        }
        self.give(chain, transfer);
        Ok(())
    }

    /// Gives one request to the device; sleeps until the queue has room.
    fn give(&self, mut chain: Chain, transfer: &Arc<Transfer>) {
        transfer.left.fetch_add(1, Ordering::Relaxed);
        self.room.wait_for_device(|| {
            let mut state = self.state.lock();
            let token = state.free.pop()?;
            chain.token = token;
            match state.queue.give(core::mem::take(&mut chain)) {
                Ok(()) => {
                    state.owners[token as usize] = Some(Arc::clone(transfer));
                    Some(())
                }
                Err(back) => {
                    chain = back;
                    state.free.push(token);
                    // The requests already in the queue must be started, or room would never come.
                    state.queue.notify();
                    None
                }
            }
        });
    }

    /// Makes the requests of a transfer, and gives them to the device.
    fn add_all(
        &self,
        kind: u32,
        pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>,
        transfer: &Arc<Transfer>,
    ) -> Result<()> {
        let mut pieces = pieces.peekable();
        while let Some(&(start, _)) = pieces.peek() {
            let (mut chain, room) = Self::begin(kind, start, self.segments)?;
            let mut next = start;
            for _ in 0..room {
                let Some((_, segment)) = pieces.next_if(|(sector, _)| *sector == next) else {
                    break;
                };
                next += segment.length as u64 / SECTOR;
                let piece = Piece::Frame {
                    frame: segment.frame.clone(),
                    offset: segment.offset,
                    length: segment.length,
                };
                let is_added =
                    if kind == request::IN { chain.writes(piece) } else { chain.reads(piece) };
                if !is_added {
                    return Err(Errno::ENOMEM);
                }
            }
            self.end(chain, transfer)?;
        }
        Ok(())
    }

    fn transfer(
        &self,
        kind: u32,
        pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>,
    ) -> Result<()> {
        let transfer = Transfer::new();
        let added = self.add_all(kind, pieces, &transfer);
        self.state.lock().queue.notify();
        transfer.wait(added)
    }

    /// Makes one request without segments, or with bytes that the device reads or fills.
    fn command(&self, kind: u32, read: Option<Box<[u8]>>, filled: Option<Box<[u8]>>) -> Result<()> {
        let transfer = Transfer::new();
        let (mut chain, _) = Self::begin(kind, 0, 1)?;
        let mut good = true;
        if let Some(bytes) = read {
            good &= chain.reads(Piece::bytes(bytes));
        }
        if let Some(bytes) = filled {
            good &= chain.writes(Piece::bytes(bytes));
        }
        if !good {
            return Err(Errno::ENOMEM);
        }
        let added = self.end(chain, &transfer);
        self.state.lock().queue.notify();
        transfer.wait(added)
    }

    /// Discards or zeroes sectors, `most` in each request.
    fn clear(&self, kind: u32, sector: u64, sectors: u64, most: u32, flags: u32) -> Result<()> {
        if most == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let (mut sector, mut left) = (sector, sectors);
        while left > 0 {
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(most);
            let mut part = [0; 16];
            part[..8].copy_from_slice(&sector.to_le_bytes());
            part[8..12].copy_from_slice(&count.to_le_bytes());
            part[12..].copy_from_slice(&flags.to_le_bytes());
            self.command(kind, Some(Box::new(part)), None)?;
            sector += u64::from(count);
            left -= u64::from(count);
        }
        Ok(())
    }

    fn ask_serial(&self) {
        // A device without serial numbers has none.
        let _ = self.command(request::GET_ID, None, Some(Box::new([0; SERIAL])));
    }
}

/// The text of a serial number: up to the first zero byte, and nothing that is odd in a name.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let shown = |byte: &u8| match *byte {
        byte if byte.is_ascii_alphanumeric() || b"-_.:+@#".contains(&byte) => char::from(byte),
        _ => '_',
    };
    text.trim_ascii().iter().map(shown).collect()
}

impl BlockDevice for Disk {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, sector: u64, segments: &[Segment<'_>]) -> Result<()> {
        count_read(segments);
        let mut next = sector;
        self.transfer(
            request::IN,
            &mut segments.iter().map(|segment| {
                let at = next;
                next += segment.length as u64 / SECTOR;
                (at, *segment)
            }),
        )
    }

    fn write(&self, pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>) -> Result<()> {
        if self.read_only { Err(Errno::EROFS) } else { self.transfer(request::OUT, pieces) }
    }

    fn flush(&self) -> Result<()> {
        if self.flushes { self.command(request::FLUSH, None, None) } else { Ok(()) }
    }

    fn discard(&self, sector: u64, sectors: u64) -> Result<()> {
        self.clear(request::DISCARD, sector, sectors, self.discards, 0)
    }

    fn write_zeroes(&self, sector: u64, sectors: u64, unmap: bool) -> Result<()> {
        let flags = if unmap && self.unmaps { UNMAP } else { 0 };
        self.clear(request::WRITE_ZEROES, sector, sectors, self.zeroes, flags)
    }

    fn serial(&self) -> &str {
        self.serial.get().map_or("", |serial| serial)
    }

    fn shape(&self) -> Shape {
        self.shape
    }
}
