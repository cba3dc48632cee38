//! `/proc/hayate/frames` and `objects`: exact counts of memory use.

use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_machine::paging::teardown;
use hayate_machine::{heap, mmio};

use super::text::line;
use crate::drivers::virtio_balloon;
use crate::memory::deferred_free;

/// Writes how the frames of memory are used, exact when nothing else runs: a name and a number per
/// line, in frames of 4 KiB; only `objects` is in bytes.
///
/// `free` includes per-CPU caches and the frames in the deferred free of large processes. The
/// latter are about `owed` when this is read, and are freed before the other numbers are counted.
/// `given-back` is the part of `free` that the host was told of and has; `given-back-ever` is all
/// that it was told of since boot, each time anew.
/// `inflated` are the frames that the host asked for and has.
/// `slabs` hold the kernel's small objects and free places between them; `objects` are the bytes of
/// those in use. `large` are the kernel's larger objects, `stacks` its stacks, which are kept for
/// the next thread. Without a leak the sum of `free`, `slabs` and `stacks` returns to its old
/// value, and so do `objects` and `large`.
pub fn frames(_: &(), out: &mut Vec<u8>) -> Result<()> {
    const FRAME: usize = 4096;
    let owed = teardown::pending();
    let counts = deferred_free::settled_counts();
    let (slabs, large) = heap::counts();
    let given_back = virtio_balloon::given_back();
    for (name, number) in [
        ("total", counts.total),
        ("reserved", counts.reserve),
        ("free", counts.free),
        ("owed", owed),
        ("given-back", given_back.map_or(0, |given| (given.now / FRAME as u64) as usize)),
        ("given-back-ever", given_back.map_or(0, |given| (given.ever / FRAME as u64) as usize)),
        ("inflated", virtio_balloon::inflated() as usize),
        ("slabs", slabs / FRAME),
        ("stacks", mmio::kept_frames()),
        ("large", large / FRAME),
        ("objects", heap::objects().map(|(size, count)| size * count).sum()),
    ] {
        line(out, format_args!("{name} {number}"))?;
    }
    Ok(())
}

/// Writes the kernel's small objects in use: a size and their number per line.
pub fn objects(_: &(), out: &mut Vec<u8>) -> Result<()> {
    heap::objects().try_for_each(|(size, count)| line(out, format_args!("{size} {count}")))
}
