//! Conversion from ELF to the two files.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::elf::{Executable, PF_W, PF_X, PT_LOAD};
use crate::header::{BUILD_ID, HEADERS, Header, RUNS, Run, StorePlace};
use crate::{Identity, LARGE_PAGES, MAGIC, PAGE};

/// Why a file is not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is a header file.
    AlreadyConverted,
    /// It is not an ELF file.
    NotElf,
    /// An ELF file for this machine number, or of another width or byte order.
    OtherArchitecture(u16),
    /// Neither an executable nor a shared library: an object file, a core dump. The ELF type.
    NotExecutable(u16),
    /// It ends before data that its headers name.
    Truncated,
    /// It has no executable segment.
    NoText,
    /// Its text is written to, by a segment that is executable and writable or by relocations.
    WritableText,
    /// A segment of this type, for which the effect of a split is unknown.
    UnknownSegment(u32),
    /// A segment whose address and file offset are not congruent modulo the page size.
    Misaligned,
    /// It alternates between text and data more often than a header can describe.
    TooManyPieces,
    /// It has more pages than the format can count.
    TooLarge,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyConverted => f.write_str("already converted"),
            Self::NotElf => f.write_str("not an ELF file"),
            Self::OtherArchitecture(number) => {
                write!(f, "for another architecture (machine {number})")
            }
            Self::NotExecutable(kind) => {
                write!(f, "neither an executable nor a shared library (ELF type {kind})")
            }
            Self::Truncated => f.write_str("shorter than its headers say"),
            Self::NoText => f.write_str("it has no text"),
            Self::WritableText => f.write_str("its text is written at run time"),
            Self::UnknownSegment(kind) => write!(f, "it has a segment of unknown type {kind:#x}"),
            Self::Misaligned => f.write_str("a segment is not aligned to pages"),
            Self::TooManyPieces => f.write_str("text and data alternate too often"),
            Self::TooLarge => f.write_str("too large"),
        }
    }
}

impl core::error::Error for Refusal {}

/// Options of a conversion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Keep a copy of the text in the header file, from which the program starts if the store does
    /// not have the text.
    pub keep_text: bool,
}

/// The two files.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The content of the first page of the header file.
    pub header: Header,
    /// The header file.
    pub file: Vec<u8>,
    /// The text, in whole pages.
    pub text: Vec<u8>,
}

impl Converted {
    /// Records in which store, and where in it, the text was put.
    pub fn set_place(&mut self, place: StorePlace) {
        self.header.place = Some(place);
        self.file[..PAGE].copy_from_slice(&self.header.encode());
    }
}

/// Splits the executable `elf`.
pub fn convert(elf: &[u8], options: Options) -> Result<Converted, Refusal> {
    if elf.starts_with(&MAGIC) {
        return Err(Refusal::AlreadyConverted);
    }
    let executable = Executable::parse(elf)?;
    let pages = elf.len().div_ceil(PAGE);
    // The header and at most two copies must be countable in 32 bits.
    if pages > (u32::MAX / 4) as usize {
        return Err(Refusal::TooLarge);
    }
    let mut is_text = vec![false; pages];
    for segment in &executable.segments {
        // Constants are text as well, but not those in the segment with the headers and the
        // symbols.
        let constant = segment.flags & PF_W == 0 && segment.offset != 0;
        if segment.kind == PT_LOAD
            && segment.file_size != 0
            && (segment.flags & PF_X != 0 || constant)
        {
            let last = (segment.offset + segment.file_size).div_ceil(PAGE);
            is_text[segment.offset / PAGE..last].fill(true);
        }
    }
    let runs = runs(&is_text)?;
    let text_pages = is_text.iter().filter(|text| **text).count() as u32;
    let kept_pages = pages as u32 - text_pages;

    let mut text = Vec::with_capacity(text_pages as usize * PAGE);
    let mut file = vec![0; PAGE];
    for (page, is_text) in elf.chunks(PAGE).zip(&is_text) {
        let to = if *is_text { &mut text } else { &mut file };
        to.extend_from_slice(page);
        to.resize(to.len().next_multiple_of(PAGE), 0);
    }
    let copy = options.keep_text.then_some(1 + kept_pages);
    if options.keep_text {
        file.extend_from_slice(&text);
    }

    let mut build_id = executable.build_id.clone();
    build_id.truncate(BUILD_ID);
    let headers = elf.get(..executable.headers).filter(|bytes| bytes.len() <= HEADERS);
    let (large, phase) = alignment(&executable, &is_text, text_pages);
    let header = Header {
        size: elf.len() as u64,
        original: Identity::of(elf),
        text: Identity::of(&text),
        text_pages,
        large,
        phase,
        copy,
        runs,
        build_id,
        elf_type: executable.kind,
        place: None,
        headers: headers.unwrap_or(&[]).to_vec(),
    };
    file[..PAGE].copy_from_slice(&header.encode());
    Ok(Converted { header, file, text })
}

/// Returns the runs of pages of one sort, as the header lists them.
fn runs(is_text: &[bool]) -> Result<Vec<Run>, Refusal> {
    let mut runs: Vec<Run> = Vec::new();
    // The next page of the text, and of the header file behind its first page.
    let (mut in_text, mut in_file) = (0, 1);
    for (page, &text) in is_text.iter().enumerate() {
        let from = if text { &mut in_text } else { &mut in_file };
        match runs.last_mut() {
            Some(run) if run.text == text => run.count += 1,
            _ => runs.push(Run { first: page as u32, count: 1, text, from: *from }),
        }
        *from += 1;
    }
    if runs.len() > RUNS { Err(Refusal::TooManyPieces) } else { Ok(runs) }
}

/// Whether the text should be placed for large pages, and if so at which page of a large page it
/// must begin, so that the largest executable segment can be mapped with them.
fn alignment(executable: &Executable, is_text: &[bool], text_pages: u32) -> (bool, u32) {
    let greatest = executable
        .segments
        .iter()
        .filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0)
        .max_by_key(|segment| segment.file_size);
    let Some(segment) = greatest else { return (false, 0) };
    if text_pages < LARGE_PAGES {
        return (false, 0);
    }
    let before = is_text[..segment.offset / PAGE].iter().filter(|text| **text).count() as u64;
    let page = segment.address / PAGE as u64;
    (true, (page.wrapping_sub(before) % u64::from(LARGE_PAGES)) as u32)
}
