//! Load latency over size and stride, the cache line, and the reach of the TLB.

use super::chase::{follow, link};
use crate::experiment::{Experiment, Setting};
use crate::sampler::{Sampler, Skip};
use crate::sys::PAGE;
use crate::sys::memory::{Mapping, Pages};
use measure_data::units::size;

/// Loads in one sample.
const LOADS: u32 = 2048;
/// The stride of the curve that cache sizes are read from: one line.
pub const LINE_STRIDE: usize = 64;
/// Distances tried for the cache line.
const DISTANCES: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// Blocks in the cache line experiment are this far apart.
const BLOCK: usize = 512;

/// Follows a chase over `offsets`: once around to warm up, then takes the samples.
fn chase(m: &mut Sampler, bytes: usize, offsets: &[usize], pages: Pages) -> Result<(), Skip> {
    let mapping = Mapping::anonymous(bytes, pages).map_err(Skip::because("mmap"))?;
    let mut node = link(&mapping, offsets);
    // SAFETY: the chase was linked just above in a mapping that outlives it.
    node = unsafe { follow(node, offsets.len().min(1 << 21) as u32) };
    let clock = m.clock();
    m.collect(|| {
        let start = clock.start();
        // SAFETY: as above.
        node = unsafe { follow(node, LOADS) };
        Ok(clock.stop().saturating_sub(start))
    })
}

/// Array sizes: four per doubling up to 8 MiB, then two.
fn sizes(limit: u64) -> Vec<usize> {
    let limit = limit as usize;
    let mut all = Vec::new();
    let mut power = 1 << 10;
    while power <= limit {
        let steps: &[usize] = if power < 8 << 20 { &[4, 5, 6, 7] } else { &[4, 6] };
        all.extend(steps.iter().map(|s| power / 4 * s).filter(|s| *s <= limit));
        power *= 2;
    }
    all
}

/// Bytes as a part of a name: `1280K`, `24M`.
fn short(bytes: usize) -> String {
    match bytes {
        b if b.is_multiple_of(1 << 20) => format!("{}M", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{}K", b >> 10),
        b => format!("{b}"),
    }
}

/// The experiments of this file.
pub fn experiments(setting: &Setting) -> Vec<Experiment> {
    let limit = setting.memory_limit.min((4 * setting.last_cache()).max(64 << 20));
    let mut all: Vec<Experiment> =
        sizes(limit).into_iter().map(|bytes| point(setting, bytes, LINE_STRIDE)).collect();
    for stride in [16, 256, 4096, 65536] {
        let mut bytes = stride * 16;
        while bytes as u64 <= limit.min(64 << 20) {
            all.push(point(setting, bytes, stride));
            bytes *= 4;
        }
    }
    all.extend(DISTANCES.map(|distance| line(setting, distance)));
    let mut pages = 16;
    while (pages * (PAGE + LINE_STRIDE)) as u64 <= limit && pages <= 16384 {
        all.push(tlb(pages));
        if (pages / 2 * 3 * (PAGE + LINE_STRIDE)) as u64 <= limit {
            all.push(tlb(pages / 2 * 3));
        }
        pages *= 2;
    }
    all
}

fn point(setting: &Setting, bytes: usize, stride: usize) -> Experiment {
    let experiment = Experiment::time(
        format!("memory/latency/{stride}/{}", short(bytes)),
        format!("load from {} at stride {stride}", size(bytes as f64)),
        move |_, m| {
            let offsets: Vec<usize> = (0..bytes / stride).map(|i| i * stride).collect();
            chase(m, bytes, &offsets, Pages::Large)
        },
    )
    .per(LOADS)
    .method("2,048 loads, each needing the last, in a random cycle through the array; large pages where the system has them")
    .at(format!("load latency, stride {stride}"), bytes as f64, "bytes")
    .rounds_at_most(if bytes >= 16 << 20 { 5 } else { 8 });
    // The share of the touched lines that each cache can hold. Strides above a line use only some
    // of the sets of the first two levels, down to one set of about eight ways.
    let touched = (bytes / stride * stride.min(64)) as f64;
    let mut left = 1.0;
    let mut experiment = experiment;
    for (level, name) in [(1, "l1"), (2, "l2"), (3, "l3")] {
        // A machine that reports no caches is assumed to have common ones, as for the primitives.
        let cache = match setting.caches.iter().find(|c| c.level == level) {
            Some(cache) => cache.bytes,
            None if setting.caches.is_empty() => setting.cache(level),
            None => continue,
        };
        let sets_used =
            if level < 3 { 64.0 / (stride as f64).clamp(64.0, cache as f64 / 8.0) } else { 1.0 };
        let held = (cache as f64 * sets_used / touched).min(1.0);
        let share = (held - (1.0 - left)).max(0.0);
        experiment =
            experiment.hardware(share, name, "the share of the lines that this level holds");
        left -= share;
    }
    experiment.hardware(left, "memory", "the rest")
}

fn line(setting: &Setting, distance: usize) -> Experiment {
    // Half of the second cache: the first load of a pair always comes from there, and no prefetcher
    // loads a neighbour into the first cache in time.
    let bytes = (setting.cache(2) as usize / 2).min(setting.memory_limit as usize);
    let blocks = (bytes / BLOCK).max(64);
    Experiment::time(
        format!("memory/line/{distance}"),
        format!("two loads {distance} bytes apart"),
        move |_, m| pairs(m, blocks, distance),
    )
    .per(LOADS / 2)
    .method("blocks of 512 bytes in random order, in each a load and one that many bytes further: within the same cache line the second comes from the first cache")
    .at("pair of loads", distance as f64, "bytes")
    .hardware(1.0, "l2", "the first load")
    .hardware(1.0, if distance < 64 { "l1" } else { "l2" }, "the second load, with lines of 64 bytes")
}

/// A chase in which the node at the start of each block points `distance` further into the
/// block, and that node to a random other block.
fn pairs(m: &mut Sampler, blocks: usize, distance: usize) -> Result<(), Skip> {
    let mapping =
        Mapping::anonymous(blocks * BLOCK, Pages::Large).map_err(Skip::because("mmap"))?;
    let mut order: Vec<usize> = (0..blocks).collect();
    fastrand::Rng::with_seed(5).shuffle(&mut order);
    // Every other block starts 128 bytes later, so that more cache sets take part.
    let start_of = |block: usize| block * BLOCK + block % 2 * 128;
    for (at, block) in order.iter().enumerate() {
        let next = order[(at + 1) % order.len()];
        mapping.link(start_of(*block), start_of(*block) + distance);
        mapping.link(start_of(*block) + distance, start_of(next));
    }
    let first = mapping.start() + start_of(order[0]);
    // SAFETY: the links above form one cycle in a mapping that outlives it.
    let mut node = unsafe { follow(first, 4 * order.len() as u32) };
    let clock = m.clock();
    m.collect(|| {
        let start = clock.start();
        // SAFETY: as above.
        node = unsafe { follow(node, LOADS) };
        Ok(clock.stop().saturating_sub(start))
    })
}

fn tlb(pages: usize) -> Experiment {
    // One line further in each page; otherwise all would compete for the same sets of the cache.
    let stride = PAGE + LINE_STRIDE;
    let bytes = pages * stride;
    Experiment::time(
        format!("memory/tlb/{pages}"),
        format!("load from {pages} pages in turn"),
        move |_, m| {
            let offsets: Vec<usize> = (0..pages).map(|i| i * stride).collect();
            chase(m, bytes, &offsets, Pages::Small)
        },
    )
    .per(LOADS)
    .method("2,048 loads, each needing the last, one line in each 4 KB page, in random order; large pages turned off")
    .at("one line per page", pages as f64, "pages")
    .rounds_at_most(if pages > 4096 { 5 } else { 8 })
    .hardware(1.0, if pages * 64 <= 32 << 10 { "l1" } else { "l2" }, "the line itself")
    .hardware(if pages > 2048 { 0.7 } else { 0.0 }, "page-walk", "the translation is in no TLB")
}
