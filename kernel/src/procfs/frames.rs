//! `/proc/hayate/frames` and `objects`: how memory is used, exactly.

use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_machine::paging::teardown;
use hayate_machine::{heap, mmio};

use super::system::line;
use crate::memory::pressure;

/// How the frames of memory are used, exactly when nothing else runs: a name and a number a line, in
/// frames of 4 KiB, only `objects` in bytes.
///
/// `free` counts what processors keep at hand as well, and what large processes that had ended still
/// held when this was read: `owed`, about, which is given back before the rest is counted. `slabs` hold the kernel's small objects, with
/// places between them that are free; `objects` are the bytes of those in use. `large` are the
/// kernel's larger objects, `stacks` its stacks, which are kept for the next thread. Without a leak
/// the sum of `free`, `slabs` and `stacks` comes back, and so do `objects` and `large`.
pub fn frames(_: &(), out: &mut Vec<u8>) -> Result<()> {
    const FRAME: usize = 4096;
    let owed = teardown::owed();
    let counts = pressure::settled_counts();
    let (slabs, large) = heap::counts();
    for (name, number) in [
        ("total", counts.total),
        ("reserved", counts.reserve),
        ("free", counts.free),
        ("owed", owed),
        ("slabs", slabs / FRAME),
        ("stacks", mmio::kept_frames()),
        ("large", large / FRAME),
        ("objects", heap::objects().map(|(size, count)| size * count).sum()),
    ] {
        line(out, format_args!("{name} {number}"))?;
    }
    Ok(())
}

/// The kernel's small objects in use: a size and how many a line.
pub fn objects(_: &(), out: &mut Vec<u8>) -> Result<()> {
    heap::objects().try_for_each(|(size, count)| line(out, format_args!("{size} {count}")))
}
