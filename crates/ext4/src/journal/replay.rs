//! Replays the journal: writes the newest committed copy of each block to its place.

use alloc::vec::Vec;

use super::{Journal, be32};
use crate::checksum::crc32c;
use crate::error::{Error, Result, buffer};
use crate::field::put;
use crate::volume::{Device, Volume};

/// Replays the journal, inode `number`, and leaves it empty. Everything is at its place and
/// durable before the journal forgets it: after a crash in the middle the next replay does the
/// same again.
pub fn replay(volume: &Volume, device: &dyn Device, number: u32) -> Result<()> {
    // The inode of the journal is read as it is on the device: nothing of it is ever in the
    // journal.
    let plain = volume.without_copies();
    let Some((journal, mut raw)) = Journal::open(&plain, device, number)? else {
        return Ok(());
    };
    let (start, sequence) = (be32(&raw, 0x1c), be32(&raw, 0x18));
    let transactions = journal.transactions(start, sequence)?;
    let copies = journal.copies(&transactions)?;
    let mut block: Vec<u8> = buffer(volume.block_size())?;
    for (target, copy) in copies.all() {
        device.read(copy.place << volume.block_shift, &mut block)?;
        if !journal.is_good(copy, &block) {
            return Err(Error::Checksum("a block in the journal"));
        }
        if copy.escaped {
            put(&mut block, 0, &super::MAGIC.to_be_bytes());
        }
        device.write(target << volume.block_shift, &block)?;
    }
    device.flush()?;
    // Remnants of a transaction that was not finished have the next number; it is not used again.
    let next = sequence.wrapping_add(transactions.len() as u32).wrapping_add(1);
    put(&mut raw, 0x18, &next.to_be_bytes());
    put(&mut raw, 0x1c, &[0; 4]);
    put(&mut raw, 0xfc, &[0; 4]);
    if journal.has_sums() {
        let sum = crc32c(!0, &[raw.get(..1024).unwrap_or_default()]);
        put(&mut raw, 0xfc, &sum.to_be_bytes());
    }
    device.write(journal.place(0)? << volume.block_shift, raw.get(..1024).unwrap_or_default())?;
    device.flush()
}
