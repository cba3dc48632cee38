//! When the addresses of programs are drawn, and the places of files that are drawn once per boot.
//!
//! Where QEMU translates a guest in software, it translates code anew at each new address: random
//! addresses, drawn for every start as Linux draws them, then cost far more time than the start
//! itself. `aslr=` on the kernel's command line says when they are drawn:
//!
//! | `aslr=` | program, interpreter, mapped files | stack, heap, other mappings |
//! |---|---|---|
//! | `start`, the default | at each start | at each start |
//! | `boot` | once per boot for each file | at each start |
//! | `off`, or `norandmaps` as on Linux | never | never |
//!
//! With `boot` a file is mapped at the same address in all programs until the next boot, as Windows
//! and macOS map their libraries. A program that learns where its C library lies then knows it of
//! every other program, which is what is given up.
//!
//! Programs get an address of their own by a hash with the boot's keys. The other files get theirs
//! one below the other, in the order in which they are first mapped, from a random address on: so
//! the libraries of a program lie together and share tables of pages. When the window is full, its
//! places are given a second time. A place that is taken in some space, by a second mapping of the
//! same file or by another file of the same place, is no obstacle: that mapping goes where it would
//! go without a place.

use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use machine::sync::Lazy;
use machine::{boot, warn};

use super::layout::PROGRAM_BASE;
use super::page::PAGE;
use crate::hash::hash_name;
use crate::page_cache::cache::PageCache;
use crate::random;

/// When addresses are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// For each start of a program.
    EachStart,
    /// Once per boot, as far as files are concerned.
    OncePerBoot,
    /// Never: the addresses that Linux uses without randomisation.
    Never,
}

/// When this kernel draws addresses (see the module).
pub fn drawn() -> Drawn {
    static DRAWN: Lazy<Drawn> = Lazy::new(|| match boot::option("aslr") {
        _ if boot::flag("norandmaps") => Drawn::Never,
        Some("off") => Drawn::Never,
        Some("boot") => Drawn::OncePerBoot,
        Some("start") | None => Drawn::EachStart,
        Some(other) => {
            warn!("aslr={other}: it is start, boot or off; this kernel takes start");
            Drawn::EachStart
        }
    });
    *DRAWN
}

/// Whether programs get random addresses at all.
pub fn are_random() -> bool {
    drawn() != Drawn::Never
}

/// The bits of a program's place that are drawn, in pages: as many as Linux draws.
const PROGRAM_BITS: u32 = 28;
/// The window of the other files: its size, and where its end may lie, above all programs and below
/// all that is drawn at each start.
const WINDOW: usize = 16 << 30;
const LOWEST_END: usize = 0x6000_0000_0000;
/// The bits of its end that are drawn, in pages.
const END_BITS: u32 = 32;
/// The largest file that gets a place.
const LARGEST: usize = WINDOW / 16;

/// How much of the window was given, in bytes.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// Where a position-independent program of this file begins.
pub fn of_program(file: &PageCache) -> usize {
    let pages = hash_name(&file.id().to_le_bytes()) & ((1 << PROGRAM_BITS) - 1);
    PROGRAM_BASE + pages as usize * PAGE
}

/// Where a mapping of a whole file of `size` bytes begins, a multiple of `align`. `None` if the
/// file is too large for a place.
#[inline]
pub fn of_file(file: &PageCache, size: usize, align: usize) -> Option<usize> {
    let place = file.address.load(Relaxed);
    if place != 0 { Some(place) } else { draw(file, size, align) }
}

#[cold]
fn draw(file: &PageCache, size: usize, align: usize) -> Option<usize> {
    static END: Lazy<usize> = Lazy::new(|| {
        let pages = random::word() & ((1 << END_BITS) - 1);
        LOWEST_END + pages as usize * PAGE
    });
    if size > LARGEST || align > LARGEST {
        return None;
    }
    // The alignment lets the place begin lower, by less than `align`.
    let taken = size + align - PAGE;
    let next = |given: usize| Some(if given + taken > WINDOW { taken } else { given + taken });
    let before = GIVEN.fetch_update(Relaxed, Relaxed, next).unwrap_or(0);
    let given = next(before).unwrap_or(taken);
    let place = (*END - given + (align - PAGE)) & !(align - 1);
    // Another processor may have been faster.
    match file.address.compare_exchange(0, place, Relaxed, Relaxed) {
        Ok(_) => Some(place),
        Err(place) => Some(place),
    }
}
