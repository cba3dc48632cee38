//! Page faults and the calls that make, drop and protect mappings.

use super::files::temporary_file;
use crate::experiment::{Experiment, Setting};
use crate::sampler::{Sampler, Skip};
use crate::sys::PAGE;
use crate::sys::memory::{Mapping, Pages};
use crate::sys::raw;
use measure_data::units::size;
use std::fs::File;
use std::os::fd::AsRawFd;

const PAGES: usize = 256;
const BYTES: usize = PAGES * PAGE;
/// Linux maps up to 16 cached pages around a fault: with accesses this far apart, each access
/// faults.
const FAR: usize = 16 * PAGE;
const FILE: usize = 8 << 20;
const LARGE: usize = 2 << 20;

fn touching(
    m: &mut Sampler,
    mut prepare: impl FnMut() -> Result<Mapping, Skip>,
    touch: impl Fn(&Mapping),
) -> Result<(), Skip> {
    let clock = m.clock();
    m.collect(|| {
        let mapping = prepare()?;
        let start = clock.start();
        touch(&mapping);
        Ok(clock.stop().saturating_sub(start))
    })
}

fn anonymous(bytes: usize) -> Result<Mapping, Skip> {
    Mapping::anonymous(bytes, Pages::Small).map_err(Skip::because("mmap"))
}

fn of_file(file: &File) -> Result<Mapping, Skip> {
    Mapping::file(file.as_raw_fd(), FILE).map_err(Skip::because("mapping a file"))
}

/// Drops the file's pages from the page cache; an error if that is impossible.
fn drop_cached(file: &File) -> Result<(), Skip> {
    super::files::drop_cached(file)
}

/// Page faults of a sample of [`file_warm`].
pub const WARM_FAULTS: u32 = (FILE / FAR) as u32;

/// Page faults on a cached file: also the primitive of programs that are executed.
pub fn file_warm(s: &Setting, m: &mut Sampler) -> Result<(), Skip> {
    let (file, _path) = temporary_file(s, "fault-warm", FILE)?;
    touching(m, || of_file(&file), |map| map.read_every(FAR))
}

/// The experiments of this file.
pub fn experiments() -> Vec<Experiment> {
    let mut all = fresh_memory();
    all.extend(of_files());
    all.push(map_touch_unmap());
    all.push(break_moved());
    for bytes in [PAGE, 1 << 20, 64 << 20] {
        all.push(map_unmap(bytes));
    }
    for bytes in [PAGE, 1 << 20] {
        all.push(protect(bytes));
    }
    all
}

/// Page faults on memory that was never touched.
fn fresh_memory() -> Vec<Experiment> {
    vec![
        Experiment::time("memory/fault/anonymous", "page fault, fresh memory", |_, m| {
            touching(m, || anonymous(BYTES), |map| map.write_every(PAGE))
        })
        .per(PAGES as u32)
        .method("256 fresh pages of 4 KB, a byte written to each; large pages turned off")
        .hardware(1.0, "trap", "the exception and its return, at the cost of a call")
        .hardware(PAGE as f64, "store-byte", "the page is cleared")
        .software(
            2300.0,
            "instruction",
            "region look-up, frame, page-table entry, accounting",
        ),
        Experiment::time("memory/fault/large", "page fault, a fresh 2 MB page", large_pages)
            .per(4)
            .method("four fresh pages of 2 MB (MADV_HUGEPAGE), a byte written to each")
            .hardware(1.0, "trap", "the exception and its return")
            .hardware(LARGE as f64, "store-byte-memory", "the page is cleared")
            .software(6000.0, "instruction", "region look-up, frame, page table"),
    ]
}

/// Page faults on mapped files.
fn of_files() -> Vec<Experiment> {
    vec![
        Experiment::time("memory/fault/file-warm", "page fault, a cached file", file_warm)
            .per(WARM_FAULTS)
            .method("a private mapping of a cached 8 MB file, a byte read every 64 KB")
            .hardware(1.0, "trap", "the exception and its return")
            .software(3500.0, "instruction", "region, file cache, the 16 pages around it"),
        Experiment::time(
            "memory/fault/file-cold",
            "page fault, a file not in the cache",
            |s, m| {
                let (file, _path) = temporary_file(s, "fault-cold", FILE)?;
                drop_cached(&file)?;
                touching(
                    m,
                    || {
                        drop_cached(&file)?;
                        let map = of_file(&file)?;
                        map.advise(libc::MADV_RANDOM);
                        Ok(map)
                    },
                    |map| map.read_every(FAR),
                )
            },
        )
        .per((FILE / FAR) as u32)
        .rounds_at_most(5)
        .method("the same after dropping the file from the cache; read-ahead turned off")
        .hardware(1.0, "device-read", "a block from the device")
        .software(6000.0, "instruction", "region, file cache, request, sleep, switch"),
        Experiment::time("memory/fault/copy-on-write", "page fault, copy on write", |s, m| {
            let (file, _path) = temporary_file(s, "fault-cow", FILE)?;
            touching(
                m,
                || {
                    let map = Mapping::file(file.as_raw_fd(), BYTES)
                        .map_err(Skip::because("mapping a file"))?;
                    map.read_every(PAGE);
                    Ok(map)
                },
                |map| map.write_every(PAGE),
            )
        })
        .per(PAGES as u32)
        .method(
            "256 pages of a cached file, mapped private and read before; a byte written to each",
        )
        .hardware(1.0, "trap", "the exception and its return")
        .hardware(PAGE as f64, "copy-byte", "the page is copied")
        .software(2600.0, "instruction", "region, frame, page-table entry, TLB"),
    ]
}

fn map_touch_unmap() -> Experiment {
    Experiment::time("memory/map/mmap-touch-munmap", "mmap, touch, munmap of 4 KB", |_, m| {
        m.try_batch(20, || {
            anonymous(PAGE)?.write_every(PAGE);
            Ok(())
        })
    })
    .per(20)
    .method("mmap(2), madvise(2) against large pages, a byte written, munmap(2)")
    .hardware(4.0, "trap", "three calls and a page fault")
    .hardware(PAGE as f64, "store-byte", "the page is cleared")
    .software(12_000.0, "instruction", "region made and freed, page table, frame")
}

fn break_moved() -> Experiment {
    Experiment::time("memory/map/brk", "brk up and down by 4 KB, untouched", |_, m| {
        // SAFETY: this only reads the break.
        let now = unsafe { raw::brk(0) };
        if now <= 0 {
            return Err(Skip("this system has no brk".into()));
        }
        let now = now as usize;
        // SAFETY: the new memory is not used, and nothing allocates in between.
        if unsafe { raw::brk(now + PAGE) } != (now + PAGE) as isize {
            return Err(Skip("brk cannot grow".into()));
        }
        m.batch(20, || {
            // SAFETY: as above.
            unsafe {
                raw::brk(now);
                raw::brk(now + PAGE);
            }
        })?;
        // SAFETY: back to where it was.
        unsafe { raw::brk(now) };
        Ok(())
    })
    .per(40)
    .method("brk(2) to 4 KB less and back, 20 times; the time is that of one call")
    .hardware(1.0, "trap", "into the kernel and back")
    .software(2500.0, "instruction", "region look-up, resize")
}

fn large_pages(_: &Setting, m: &mut Sampler) -> Result<(), Skip> {
    let policy = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .map_err(|_| Skip("this kernel shows no transparent huge pages".into()))?;
    if policy.contains("[never]") {
        return Err(Skip("transparent huge pages are turned off (enabled is [never])".into()));
    }
    let clock = m.clock();
    m.collect(|| {
        let map = Mapping::anonymous(5 * LARGE, Pages::Large).map_err(Skip::because("mmap"))?;
        let skipped = map.start().next_multiple_of(LARGE) - map.start();
        let start = clock.start();
        for page in 0..4 {
            map.word((skipped + page * LARGE) / 4).store(1, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(clock.stop().saturating_sub(start))
    })
}

fn map_unmap(bytes: usize) -> Experiment {
    Experiment::time(
        format!("memory/map/mmap-munmap/{}K", bytes >> 10),
        format!("mmap and munmap of {}", size(bytes as f64)),
        move |_, m| {
            m.try_batch(20, || {
                Mapping::anonymous(bytes, Pages::Default).map_err(Skip::because("mmap"))?;
                Ok(())
            })
        },
    )
    .per(20)
    .method("mmap(2) of private anonymous memory and munmap(2), never touched")
    .at("mmap and munmap", bytes as f64, "bytes")
    .hardware(2.0, "trap", "two calls")
    .software(8000.0, "instruction", "region made and freed")
}

fn protect(bytes: usize) -> Experiment {
    let pages = (bytes / PAGE) as f64;
    Experiment::time(
        format!("memory/map/mprotect/{}K", bytes >> 10),
        format!("mprotect of {}", size(bytes as f64)),
        move |_, m| {
            let map = anonymous((4 << 20).max(bytes))?;
            map.populate();
            raw::checked(map.protect(bytes, false)).map_err(Skip::because("mprotect"))?;
            m.batch(20, || {
                map.protect(bytes, true);
                map.protect(bytes, false);
            })
        },
    )
    .per(40)
    .method("mprotect(2) of touched memory, to writable and back, 20 times; the time is that of one call")
    .at("mprotect", bytes as f64, "bytes")
    .hardware(1.0, "trap", "into the kernel and back")
    .software(4000.0, "instruction", "region split and merged, TLB")
    .software(pages * 150.0, "instruction", "page-table entries")
}
