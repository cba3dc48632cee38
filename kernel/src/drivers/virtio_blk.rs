//! The driver of virtio block devices (virtio 1.2, 5.2).
//!
//! A transfer is split into requests of as many segments as the device takes. All are given to the
//! device at once, as far as the queue has room, and the caller sleeps until the last one is
//! answered. Requests of several callers are in flight together.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::info;
use hayate_machine::sync::SpinLock;
use hayate_machine::virtio::{Chain, Device, Error, Piece, Queue};

use super::block::{BlockDevice, SECTOR, Segment, count_read, register};
use crate::schedule::WaitQueue;

mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const READ_ONLY: u64 = 1 << 5;
    pub const FLUSH: u64 = 1 << 9;
}

/// Offsets in the device's configuration.
mod config {
    pub const CAPACITY: usize = 0;
    pub const SIZE_MAX: usize = 8;
    pub const SEG_MAX: usize = 12;
}

/// Types of a request.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;

/// The largest queue that is used; it limits the segments in flight.
const QUEUE: u16 = 256;

struct Disk {
    sectors: u64,
    read_only: bool,
    flushes: bool,
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
    failed: AtomicBool,
    done: WaitQueue,
}

impl Transfer {
    fn finish_one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.wake_all();
        }
    }
}

/// Sets the device up and registers its disk.
pub fn start(device: Device) -> core::result::Result<(), Error> {
    let wanted = feature::SIZE_MAX | feature::SEG_MAX | feature::READ_ONLY | feature::FLUSH;
    let agreed = device.negotiate(wanted)?;
    let slot: Arc<machine::sync::Once<Arc<Disk>>> = Arc::new(machine::sync::Once::new());
    let target = Arc::clone(&slot);
    device.connect(Box::new(move || {
        if let Some(disk) = target.get() {
            disk.interrupt();
        }
    }))?;
    let queue = device.queue(0, QUEUE)?;
    let (sectors, size_max, seg_max) = device.config(|config| {
        (config.u64(config::CAPACITY), config.u32(config::SIZE_MAX), config.u32(config::SEG_MAX))
    });
    // Two descriptors are for the header and the status. A device without SEG_MAX takes one
    // segment. With a size limit under a page, segments would have to be split.
    let mut segments = if agreed & feature::SEG_MAX != 0 { seg_max.max(1) as usize } else { 1 };
    segments = segments.min(usize::from(queue.size()).saturating_sub(2)).max(1);
    if agreed & feature::SIZE_MAX != 0 && size_max < 4096 {
        return Err(Error::Features);
    }
    let count = usize::from(queue.size());
    let disk = Arc::new(Disk {
        sectors,
        read_only: agreed & feature::READ_ONLY != 0,
        flushes: agreed & feature::FLUSH != 0,
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
    let mode = if disk.read_only { ", read-only" } else { "" };
    let index = register(disk);
    info!("virtio-blk: disk {index}, {} KiB at {}{mode}", sectors / 2, device.place());
    // The device is never released.
    core::mem::forget(device);
    Ok(())
}

impl Disk {
    /// Takes the answers and wakes the callers.
    fn interrupt(&self) {
        let mut state = self.state.lock();
        while let Some((chain, _)) = state.queue.take() {
            let good =
                matches!(chain.pieces().last(), Some(Piece::Bytes(status)) if status[..] == [0]);
            let owner = state.owners.get_mut(chain.token as usize).and_then(Option::take);
            state.free.push(chain.token);
            if let Some(owner) = owner {
                if !good {
                    owner.failed.store(true, Ordering::Relaxed);
                }
                owner.finish_one();
            }
        }
        drop(state);
        self.room.wake_all();
    }

    /// Makes one request; `ENOMEM` without memory for it.
    fn chain(kind: u32, sector: u64, segments: &[Segment<'_>]) -> Result<Chain> {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        let mut chain = Chain::new(0);
        let mut good = chain.reads(Piece::bytes(Box::new(header)));
        for segment in segments {
            let piece = Piece::Frame {
                frame: segment.frame.clone(),
                offset: segment.offset,
                length: segment.length,
            };
            good &= if kind == IN { chain.writes(piece) } else { chain.reads(piece) };
        }
        good &= chain.writes(Piece::bytes(Box::new([0xff])));
        if good { Ok(chain) } else { Err(Errno::ENOMEM) }
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

    fn transfer(&self, kind: u32, sector: u64, segments: &[Segment<'_>]) -> Result<()> {
        let transfer = Arc::new(Transfer {
            left: AtomicU32::new(1),
            failed: AtomicBool::new(false),
            done: WaitQueue::new(),
        });
        let mut result = Ok(());
        let mut sector = sector;
        let mut rest = segments;
        loop {
            let (now, later) = rest.split_at(rest.len().min(self.segments));
            match Self::chain(kind, sector, now) {
                Ok(chain) => self.give(chain, &transfer),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            sector += now.iter().map(|segment| segment.length as u64).sum::<u64>() / SECTOR;
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        self.state.lock().queue.notify();
        // Drops the caller's own count. The frames belong to the device until every request is
        // answered.
        transfer.left.fetch_sub(1, Ordering::AcqRel);
        transfer
            .done
            .wait_for_device(|| (transfer.left.load(Ordering::Acquire) == 0).then_some(()));
        if transfer.failed.load(Ordering::Relaxed) { Err(Errno::EIO) } else { result }
    }
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
        self.transfer(IN, sector, segments)
    }

    fn write(&self, sector: u64, segments: &[Segment<'_>]) -> Result<()> {
        if self.read_only { Err(Errno::EROFS) } else { self.transfer(OUT, sector, segments) }
    }

    fn flush(&self) -> Result<()> {
        if self.flushes { self.transfer(FLUSH, 0, &[]) } else { Ok(()) }
    }
}
