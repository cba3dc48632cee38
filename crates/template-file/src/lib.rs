//! A template as it lies on non-volatile memory.
//!
//! A template that is saved is one text of a store (`hayate-nvm-store`): pages of its **head**,
//! which this crate writes and reads, and behind them the pages of the program's own memory, each
//! as it is mapped. A kernel that finds the text at boot reads the head, and maps the pages where
//! they lie.
//!
//! # The head
//!
//! A [`Fixed`] part, and behind it pieces whose places the fixed part names, in this order:
//!
//! | piece | what |
//! |---|---|
//! | name, comm | the template's name; that of its thread, 16 bytes |
//! | fpu | the floating-point state, in the form of a signal frame |
//! | groups | the maker's further groups, four bytes each |
//! | actions | [`Action`]: the signals that are not at their default |
//! | rules, files | texts of the template: `hayate-template-rules`; a path a line |
//! | environment | variables, with a NUL each |
//! | bound | the paths that are bound to it, with a NUL each |
//! | regions | [`Region`], by address |
//! | pages | the address of each page, in order |
//! | known | [`Known`]: the files that it was made of |
//! | paths | their paths |
//!
//! All numbers are little-endian. Nothing needs to be aligned.
//!
//! # What is checked
//!
//! A reader believes nothing of a head: [`Head::read`] checks the checksum against
//! accidents, and then that all pieces lie inside, that regions and pages are in order, whole and
//! below the given end, that each page lies in a region, and that each number of a file is one.
//! The kernel itself checks numbers that mean something to it: rights, flags, addresses of code.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use core::ops::Range;

use hayate_off2f::checksum;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// How a head begins.
pub const MAGIC: [u8; 8] = *b"HayaTmp2";
/// The most pages of a head.
pub const MOST_PAGES: u32 = 1024;
/// The number of no file.
pub const NO_FILE: u32 = u32::MAX;

/// A register, number or address of a program; see [`Facts`].
pub type Word = U64;

/// The facts of fixed size. Numbers that mean something to one kernel only are stored as they are.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Facts {
    /// When the template was made, in nanoseconds since 1970.
    pub made: Word,
    /// The digest of the features of the processor and the kernel by which it was made.
    pub machine: [u8; 32],
    /// The address of the object that the kernel shows to programs (`vdso(7)`).
    pub object: Word,
    /// Where a start is told what it was started with; the C library's variable; the pairs.
    pub told: [Word; 3],
    /// Where the number of the thread is written, and cleared.
    pub numbers: [Word; 2],
    /// The area for restartable sequences: its address, its signature, the processor it shows.
    pub sequences: [Word; 3],
    /// Blocked signals: where a start goes on, and where the template was declared.
    pub blocked: [Word; 2],
    /// The alternate signal stack: address, flags, size.
    pub signal_stack: [Word; 3],
    /// Where the strings of the program lie.
    pub vectors: [Word; 6],
    /// The heap: its first address and its end.
    pub heap: [Word; 2],
    /// The addresses of the space.
    pub layout: [Word; 5],
    /// The registers, the thread pointers among them.
    pub registers: [Word; 21],
    /// Numbers of user and group: real, effective, saved, of the file system.
    pub ids: [U32; 8],
    /// Sets of capabilities: effective, permitted, inheritable, bounding, ambient.
    pub capabilities: [Word; 5],
    /// `securebits`.
    pub securebits: U32,
}

/// The place of a piece: its first byte, and how many bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
struct Place {
    first: U32,
    bytes: U32,
}

/// How many pieces there are.
const PIECES: usize = 13;

/// The beginning of a head.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Fixed {
    magic: [u8; 8],
    /// The checksum of what comes before and behind it in the head.
    checksum: U64,
    /// Pages of the head.
    head_pages: U32,
    /// Pages of the program's memory.
    pages: U32,
    facts: Facts,
    pieces: [Place; PIECES],
}

/// Where the checksum lies.
const CHECKSUM: Range<usize> = 8..16;

/// The action of a signal (`sigaction(2)`).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Action {
    /// The signal.
    pub signal: U32,
    /// `sa_handler`, `sa_flags`, `sa_restorer`, `sa_mask`.
    pub words: [Word; 4],
}

/// A region of memory.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Region {
    /// Its first address.
    pub start: Word,
    /// The first address behind it.
    pub end: Word,
    /// Where it begins in its file, in bytes.
    pub offset: Word,
    /// Its access rights.
    pub protection: U32,
    /// Its flags.
    pub flags: U32,
    /// The number of its file; [`NO_FILE`]: it has none.
    pub file: U32,
}

/// A file that the template was made of.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Known {
    path: Place,
    /// Its uses for the template: bits of [`Known::PROGRAM`] and so on.
    pub uses: U32,
    /// Its state, by which it is known again.
    pub state: State,
}

impl Known {
    /// It is the program.
    pub const PROGRAM: u32 = 1;
    /// It is mapped.
    pub const MAPPED: u32 = 2;
    /// Its state has the digest of its content, which was read for it.
    pub const HASHED: u32 = 4;
}

/// The state of a file.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct State {
    /// Bytes.
    pub size: U64,
    /// The last change of the content; zeroes if the digest is known.
    pub modified: I64,
    /// The part of that behind the second, in nanoseconds.
    pub nanoseconds: U32,
    /// The BLAKE3 digest of the content, or zeroes.
    pub digest: [u8; 32],
}

/// Why a head cannot be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not begin as a head does.
    NoHead,
    /// It does not match its checksum, or contradicts itself.
    Damaged,
    /// It would be too large.
    TooLarge,
    /// Memory is exhausted.
    NoMemory,
}

/// A head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the pieces, as the module names them")]
pub struct Head<'a> {
    pub facts: Facts,
    pub name: &'a [u8],
    pub comm: &'a [u8],
    pub fpu: &'a [u8],
    pub groups: &'a [U32],
    pub actions: &'a [Action],
    pub rules: &'a [u8],
    pub files: &'a [u8],
    pub environment: &'a [u8],
    pub bound: &'a [u8],
    pub regions: &'a [Region],
    pub pages: &'a [Word],
    pub known: &'a [Known],
    pub paths: &'a [u8],
}

/// Returns how many pages a head has whose first page this is, and how many pages of memory follow.
///
/// # Errors
/// [`Fault::NoHead`]; [`Fault::Damaged`]: it has none, or too many.
pub fn sizes(first_page: &[u8]) -> Result<(u32, u32), Fault> {
    let (fixed, _) = Fixed::ref_from_prefix(first_page).map_err(|_| Fault::NoHead)?;
    if fixed.magic != MAGIC {
        return Err(Fault::NoHead);
    }
    let head = fixed.head_pages.get();
    if head == 0 || head > MOST_PAGES {
        return Err(Fault::Damaged);
    }
    Ok((head, fixed.pages.get()))
}

fn records<T: FromBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &[u8],
) -> Result<&[T], Fault> {
    <[T]>::ref_from_bytes(bytes).map_err(|_| Fault::Damaged)
}

impl<'a> Head<'a> {
    /// Reads a head, all of whose pages `bytes` are. The memory that it describes ends below `end`.
    ///
    /// # Errors
    /// [`Fault::NoHead`], [`Fault::Damaged`].
    pub fn read(bytes: &'a [u8], end: u64) -> Result<Head<'a>, Fault> {
        let (fixed, _) = Fixed::ref_from_prefix(bytes).map_err(|_| Fault::NoHead)?;
        let (head_pages, pages) = sizes(bytes)?;
        if bytes.len() != head_pages as usize * PAGE || sum(bytes) != fixed.checksum.get() {
            return Err(Fault::Damaged);
        }
        let piece = |number: usize| {
            let place = fixed.pieces.get(number).ok_or(Fault::Damaged)?;
            within(bytes, place).ok_or(Fault::Damaged)
        };
        let head = Head {
            facts: fixed.facts,
            name: piece(0)?,
            comm: piece(1)?,
            fpu: piece(2)?,
            groups: records(piece(3)?)?,
            actions: records(piece(4)?)?,
            rules: piece(5)?,
            files: piece(6)?,
            environment: piece(7)?,
            bound: piece(8)?,
            regions: records(piece(9)?)?,
            pages: records(piece(10)?)?,
            known: records(piece(11)?)?,
            paths: piece(12)?,
        };
        let is_whole = head.pages.len() == pages as usize
            && head.has_regions_in_order(end)
            && head.has_pages_in_regions()
            && head.known.iter().all(|known| within(head.paths, &known.path).is_some());
        if is_whole { Ok(head) } else { Err(Fault::Damaged) }
    }

    fn has_regions_in_order(&self, end: u64) -> bool {
        let mut below = 0;
        self.regions.iter().all(|region| {
            let (start, stop) = (region.start.get(), region.end.get());
            let aligned = [start, stop, region.offset.get()];
            let is_good = aligned.iter().all(|number| number % PAGE as u64 == 0)
                && below <= start
                && start < stop
                && stop <= end
                && (region.file.get() == NO_FILE
                    || self.known.get(region.file.get() as usize).is_some());
            below = stop;
            is_good
        })
    }

    fn has_pages_in_regions(&self) -> bool {
        let mut regions = self.regions.iter();
        let mut here = regions.next();
        let mut below = 0;
        self.pages.iter().all(|page| {
            let address = page.get();
            while here.is_some_and(|region| region.end.get() <= address) {
                here = regions.next();
            }
            let is_good = address % PAGE as u64 == 0
                && below <= address
                && here.is_some_and(|region| region.start.get() <= address);
            below = address.saturating_add(PAGE as u64);
            is_good
        })
    }

    /// The path of a file.
    pub fn path(&self, known: &Known) -> &'a [u8] {
        within(self.paths, &known.path).unwrap_or_default()
    }

    /// The texts of a piece whose strings end with a NUL each.
    pub fn strings(piece: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        piece.split(|&byte| byte == 0).filter(|text| !text.is_empty())
    }

    /// Writes the head, in whole pages. `known` and `paths` are those of [`Files`].
    ///
    /// # Errors
    /// [`Fault::TooLarge`], [`Fault::NoMemory`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, Fault> {
        let mut fixed = Fixed {
            magic: MAGIC,
            checksum: U64::ZERO,
            head_pages: U32::ZERO,
            pages: U32::new(u32::try_from(self.pages.len()).map_err(|_| Fault::TooLarge)?),
            facts: self.facts,
            pieces: [Place::default(); PIECES],
        };
        let pieces: [&[u8]; PIECES] = [
            self.name,
            self.comm,
            self.fpu,
            self.groups.as_bytes(),
            self.actions.as_bytes(),
            self.rules,
            self.files,
            self.environment,
            self.bound,
            self.regions.as_bytes(),
            self.pages.as_bytes(),
            self.known.as_bytes(),
            self.paths,
        ];
        let mut at = size_of::<Fixed>();
        for (place, piece) in fixed.pieces.iter_mut().zip(pieces) {
            *place = Place::new(at, piece.len()).ok_or(Fault::TooLarge)?;
            at += piece.len();
        }
        let size = at.next_multiple_of(PAGE);
        if size > MOST_PAGES as usize * PAGE {
            return Err(Fault::TooLarge);
        }
        fixed.head_pages = U32::new((size / PAGE) as u32);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| Fault::NoMemory)?;
        bytes.extend_from_slice(fixed.as_bytes());
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.resize(size, 0);
        let sum = sum(&bytes).to_le_bytes();
        if let Some(place) = bytes.get_mut(CHECKSUM) {
            place.copy_from_slice(&sum);
        }
        Ok(bytes)
    }
}

impl Place {
    fn new(first: usize, bytes: usize) -> Option<Place> {
        let number = |number| u32::try_from(number).ok().map(U32::new);
        Some(Place { first: number(first)?, bytes: number(bytes)? })
    }
}

fn within<'a>(bytes: &'a [u8], place: &Place) -> Option<&'a [u8]> {
    let first = place.first.get() as usize;
    bytes.get(first..first.checked_add(place.bytes.get() as usize)?)
}

/// The checksum of a head: of what lies before its place, and of what lies behind.
fn sum(bytes: &[u8]) -> u64 {
    let part = |range: Range<usize>| checksum(bytes.get(range).unwrap_or_default());
    part(0..CHECKSUM.start) ^ part(CHECKSUM.end..bytes.len()).rotate_left(1)
}

/// The files of a head that is being written.
#[derive(Default)]
pub struct Files {
    /// The files.
    pub known: Vec<Known>,
    /// Their paths.
    pub paths: Vec<u8>,
}

impl Files {
    /// Adds a file.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], [`Fault::NoMemory`].
    pub fn add(&mut self, path: &[u8], uses: u32, state: State) -> Result<(), Fault> {
        let place = Place::new(self.paths.len(), path.len()).ok_or(Fault::TooLarge)?;
        self.known.try_reserve(1).map_err(|_| Fault::NoMemory)?;
        self.paths.try_reserve(path.len()).map_err(|_| Fault::NoMemory)?;
        self.known.push(Known { path: place, uses: U32::new(uses), state });
        self.paths.extend_from_slice(path);
        Ok(())
    }
}
