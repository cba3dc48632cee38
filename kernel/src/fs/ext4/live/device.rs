//! The disk as the crate writes it: metadata and journal, past the disk's page cache but in
//! agreement with it.
//!
//! Writes are collected and handed to the driver together: when there are many, at a flush, and
//! before something is read. Then the driver joins neighbours, which the blocks of a journal are.
//! When they are on the disk, pages that the disk's page cache has of them are changed as well, and
//! reads of such pages that are under way become useless. Dirty pages of the cache, which a program
//! wrote to the disk's node, are its own business, as on Linux.
//!
//! Lock order: `waiting` (sleeping), then the page cache's `pages`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::Errno;
use hayate_ext4::{Crc32c, Device, Error, Result, Source};
use hayate_machine::frames::Frame;

use crate::drivers::block::{SECTOR, Segment};
use crate::fs::disk::Disk;
use crate::fs::ext4::volume::crc32c;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::Mutex;

const PAGE: usize = 4096;
/// Writes that wait at most.
const MOST: usize = 64;

/// A write that waits: at most a page.
struct Piece {
    offset: u64,
    length: usize,
    frame: Frame,
}

/// A disk that a volume is written to.
pub struct DiskDevice {
    disk: Arc<Disk>,
    waiting: Mutex<Vec<Piece>>,
    /// Whether `waiting` has any.
    is_waiting: AtomicBool,
}

fn failed(error: Errno) -> Error {
    if error == Errno::ENOMEM { Error::Memory } else { Error::Io }
}

impl DiskDevice {
    pub fn new(disk: Arc<Disk>) -> Self {
        Self { disk, waiting: Mutex::new(Vec::new()), is_waiting: AtomicBool::new(false) }
    }

    /// Hands what waits to the driver.
    fn submit(&self, waiting: &mut Vec<Piece>) -> Result<()> {
        if waiting.is_empty() {
            return Ok(());
        }
        waiting.sort_unstable_by_key(|piece| piece.offset);
        let mut pieces = waiting.iter().map(|Piece { offset, length, frame }| {
            (offset / SECTOR, Segment { frame, offset: 0, length: *length })
        });
        match self.disk.device().write_metadata(&mut pieces) {
            // Not tried: they still wait.
            Err(Errno::ENOMEM) => Err(Error::Memory),
            outcome => {
                for Piece { offset, length, frame } in waiting.iter() {
                    self.disk.overwrite(*offset, frame, *length);
                }
                waiting.clear();
                self.is_waiting.store(false, Ordering::Release);
                outcome.map_err(failed)
            }
        }
    }

    fn put(&self, waiting: &mut Vec<Piece>, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        let overlaps =
            |piece: &&Piece| piece.offset < end && offset < piece.offset + piece.length as u64;
        if let Some(piece) = waiting.iter().find(overlaps) {
            if (piece.offset, piece.length) == (offset, bytes.len()) {
                piece.frame.write(0, bytes);
                return Ok(());
            }
            self.submit(waiting)?;
        }
        if waiting.len() >= MOST {
            self.submit(waiting)?;
        }
        waiting.make_room(1).map_err(failed)?;
        let frame = reclaim::frame().map_err(failed)?;
        frame.write(0, bytes);
        waiting.push(Piece { offset, length: bytes.len(), frame });
        self.is_waiting.store(true, Ordering::Release);
        Ok(())
    }
}

impl Source for DiskDevice {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if self.is_waiting.load(Ordering::Acquire) {
            self.submit(&mut self.waiting.lock())?;
        }
        self.disk.read(offset, into).map_err(failed)
    }

    fn crc32c(&self) -> Crc32c {
        crc32c()
    }
}

impl Device for DiskDevice {
    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let end = offset.checked_add(from.len() as u64).ok_or(Error::Io)?;
        if !(offset | end).is_multiple_of(SECTOR) || end > self.disk.size() {
            return Err(Error::Io);
        }
        let mut waiting = self.waiting.lock();
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            // A piece lies in one page of the disk's page cache.
            let room = PAGE - (at % PAGE as u64) as usize;
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.put(&mut waiting, at, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.submit(&mut self.waiting.lock())?;
        self.disk.driver().flush().map_err(failed)
    }
}
