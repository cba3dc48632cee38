//! The first page of a header file.

use alloc::vec::Vec;
use core::fmt;

use crate::elf::{u16_at, u32_at, u64_at};
use crate::{Identity, LARGE_PAGES, MAGIC, PAGE, START, VERSION, checksum, checksum_of};

/// The most runs.
pub(crate) const RUNS: usize = 46;
/// The most bytes of a build identifier that are kept.
pub(crate) const BUILD_ID: usize = 64;
/// The most bytes of ELF headers that are kept.
pub(crate) const HEADERS: usize = PAGE - at::HEADERS;

/// The offset of each field; docs/off2f.md has the same as a table.
mod at {
    pub const VERSION: usize = 8;
    pub const FLAGS: usize = 12;
    pub const CHECKSUM: usize = 16;
    pub const SIZE: usize = 24;
    pub const ORIGINAL: usize = 32;
    pub const TEXT: usize = 64;
    pub const TEXT_PAGES: usize = 96;
    pub const PHASE: usize = 100;
    pub const COPY: usize = 104;
    pub const RUN_COUNT: usize = 108;
    pub const STORE: usize = 112;
    pub const STORE_PAGE: usize = 128;
    pub const ELF_TYPE: usize = 136;
    pub const BUILD_ID_SIZE: usize = 138;
    pub const HEADERS_SIZE: usize = 140;
    pub const BUILD_ID: usize = 144;
    pub const HEADERS_CHECKSUM: usize = 208;
    pub const RUNS: usize = 256;
    pub const HEADERS: usize = super::START;
}

const LARGE: u32 = 1;
const COPY: u32 = 2;
const PLACED: u32 = 4;
const RUN: usize = 16;

/// Consecutive pages of the original that are also consecutive in one of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first page of the original.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// Whether they are in the text; otherwise they are in the header file.
    pub text: bool,
    /// The first page there.
    pub from: u32,
}

/// Where the converter put the text. In a store that was compacted since, the text is elsewhere: it
/// is found by its identity, and this is only information for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// The store's identifier.
    pub store: [u8; 16],
    /// The text's first page in it.
    pub page: u64,
}

/// The content of the first page of a header file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the original.
    pub size: u64,
    /// The original's identity.
    pub original: Identity,
    /// The text's identity.
    pub text: Identity,
    /// Pages of the text.
    pub text_pages: u32,
    /// Whether the text should be placed for large pages.
    pub large: bool,
    /// If so, the page of a large page at which it begins.
    pub phase: u32,
    /// The page of the header file at which a copy of the text begins, if it has one.
    pub copy: Option<u32>,
    /// The places of all pages of the original: sorted, without gaps.
    pub runs: Vec<Run>,
    /// The GNU build identifier, if the original has one.
    pub build_id: Vec<u8>,
    /// `e_type` of the original.
    pub elf_type: u16,
    /// The place of the text.
    pub place: Option<StorePlace>,
    /// The original's file header and program headers, if they are contiguous and not too long.
    pub headers: Vec<u8>,
}

/// A fault of a header file or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not begin as a header file does.
    NotConverted,
    /// Its version is not known here.
    Version(u32),
    /// Its first page does not match the checksum.
    Checksum,
    /// The first page contradicts itself.
    Inconsistent,
    /// The header file is shorter than its first page says.
    Truncated,
    /// The text is not the one that the header names.
    OtherText,
    /// The result of restoring is not the original.
    OtherOriginal,
    /// Memory is exhausted.
    Memory,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConverted => f.write_str("not an OFF2F file"),
            Self::Version(version) => write!(f, "of version {version}, which is unknown here"),
            Self::Checksum => f.write_str("its header does not match its checksum"),
            Self::Inconsistent => f.write_str("its header contradicts itself"),
            Self::Truncated => f.write_str("shorter than its header says"),
            Self::OtherText => f.write_str("the text is not the one that the header names"),
            Self::OtherOriginal => f.write_str("header file and text do not make the original"),
            Self::Memory => f.write_str("no memory"),
        }
    }
}

impl core::error::Error for Fault {}

impl Header {
    /// Reads the first page of a header file; the rest of the file may be missing.
    pub fn parse(file: &[u8]) -> Result<Header, Fault> {
        let mut header = Header::parse_start(file)?;
        let page = file.get(..PAGE).ok_or(Fault::Truncated)?;
        if u64_at(page, at::HEADERS_CHECKSUM) != Some(checksum(&page[at::HEADERS..])) {
            return Err(Fault::Checksum);
        }
        let part = |start: usize, length: usize, most: usize| {
            let bytes = page.get(start..start + length.min(most)).ok_or(Fault::Inconsistent)?;
            let mut copy = Vec::new();
            copy.try_reserve_exact(bytes.len()).map_err(|_| Fault::Memory)?;
            copy.extend_from_slice(bytes);
            if length > most { Err(Fault::Inconsistent) } else { Ok(copy) }
        };
        let build_id = u16_at(page, at::BUILD_ID_SIZE).map_or(usize::MAX, usize::from);
        let headers = u32_at(page, at::HEADERS_SIZE).map_or(usize::MAX, |size| size as usize);
        header.build_id = part(at::BUILD_ID, build_id, BUILD_ID)?;
        header.headers = part(at::HEADERS, headers, HEADERS)?;
        Ok(header)
    }

    /// Reads the first [`START`] bytes of a header file, which are enough to present the original:
    /// without the build identifier and the ELF headers, which are returned empty.
    pub fn parse_start(file: &[u8]) -> Result<Header, Fault> {
        if !file.starts_with(&MAGIC) {
            return Err(Fault::NotConverted);
        }
        let start = file.get(..START).ok_or(Fault::Truncated)?;
        let version = u32_at(start, at::VERSION).ok_or(Fault::Truncated)?;
        if version != VERSION {
            return Err(Fault::Version(version));
        }
        let (before, after) = (&start[..at::CHECKSUM], &start[at::CHECKSUM + 8..]);
        if u64_at(start, at::CHECKSUM) != Some(checksum_of(&[before, &[0; 8], after])) {
            return Err(Fault::Checksum);
        }
        let header = Header::read(start)?;
        if header.is_consistent() { Ok(header) } else { Err(Fault::Inconsistent) }
    }

    fn read(page: &[u8]) -> Result<Header, Fault> {
        let bad = Fault::Inconsistent;
        let word = |at| u32_at(page, at).ok_or(bad);
        let identity = |at: usize| {
            let bytes = page.get(at..at + 32).and_then(|bytes| bytes.try_into().ok());
            bytes.map(Identity).ok_or(bad)
        };
        let flags = word(at::FLAGS)?;
        let count = word(at::RUN_COUNT)? as usize;
        if flags & !(LARGE | COPY | PLACED) != 0 || count > RUNS {
            return Err(bad);
        }
        let mut runs = Vec::new();
        runs.try_reserve_exact(count).map_err(|_| Fault::Memory)?;
        for start in (at::RUNS..).step_by(RUN).take(count) {
            let text = match word(start + 8)? {
                0 => false,
                1 => true,
                _ => return Err(bad),
            };
            runs.push(Run {
                first: word(start)?,
                count: word(start + 4)?,
                text,
                from: word(start + 12)?,
            });
        }
        let store = page.get(at::STORE..at::STORE + 16).and_then(|bytes| bytes.try_into().ok());
        let place =
            StorePlace { store: store.ok_or(bad)?, page: u64_at(page, at::STORE_PAGE).ok_or(bad)? };
        Ok(Header {
            size: u64_at(page, at::SIZE).ok_or(bad)?,
            original: identity(at::ORIGINAL)?,
            text: identity(at::TEXT)?,
            text_pages: word(at::TEXT_PAGES)?,
            large: flags & LARGE != 0,
            phase: word(at::PHASE)?,
            copy: if flags & COPY != 0 { Some(word(at::COPY)?) } else { None },
            runs,
            build_id: Vec::new(),
            elf_type: u16_at(page, at::ELF_TYPE).ok_or(bad)?,
            place: (flags & PLACED != 0).then_some(place),
            headers: Vec::new(),
        })
    }

    /// Whether the runs cover the whole original, each page from a place of its own.
    fn is_consistent(&self) -> bool {
        let pages = self.size.div_ceil(PAGE as u64);
        let (mut next, mut in_text, mut in_file) = (0u64, 0u64, 1u64);
        for run in &self.runs {
            let from = if run.text { &mut in_text } else { &mut in_file };
            if u64::from(run.first) != next || run.count == 0 || u64::from(run.from) != *from {
                return false;
            }
            next += u64::from(run.count);
            *from += u64::from(run.count);
        }
        next == pages
            && in_text == u64::from(self.text_pages)
            && in_text != 0
            && in_file + in_text <= u64::from(u32::MAX)
            && self.copy.is_none_or(|copy| u64::from(copy) == in_file)
            && (self.phase < if self.large { LARGE_PAGES } else { 1 })
    }

    /// The first page of the header file.
    pub fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(at::VERSION, &VERSION.to_le_bytes());
        let flags = if self.large { LARGE } else { 0 }
            | if self.copy.is_some() { COPY } else { 0 }
            | if self.place.is_some() { PLACED } else { 0 };
        put(at::FLAGS, &flags.to_le_bytes());
        put(at::SIZE, &self.size.to_le_bytes());
        put(at::ORIGINAL, &self.original.0);
        put(at::TEXT, &self.text.0);
        put(at::TEXT_PAGES, &self.text_pages.to_le_bytes());
        put(at::PHASE, &self.phase.to_le_bytes());
        put(at::COPY, &self.copy.unwrap_or(0).to_le_bytes());
        put(at::RUN_COUNT, &(self.runs.len().min(RUNS) as u32).to_le_bytes());
        if let Some(place) = self.place {
            put(at::STORE, &place.store);
            put(at::STORE_PAGE, &place.page.to_le_bytes());
        }
        put(at::ELF_TYPE, &self.elf_type.to_le_bytes());
        let build_id = &self.build_id[..self.build_id.len().min(BUILD_ID)];
        put(at::BUILD_ID_SIZE, &(build_id.len() as u16).to_le_bytes());
        put(at::BUILD_ID, build_id);
        let headers = &self.headers[..self.headers.len().min(HEADERS)];
        put(at::HEADERS_SIZE, &(headers.len() as u32).to_le_bytes());
        put(at::HEADERS, headers);
        for (start, run) in (at::RUNS..).step_by(RUN).zip(self.runs.iter().take(RUNS)) {
            put(start, &run.first.to_le_bytes());
            put(start + 4, &run.count.to_le_bytes());
            put(start + 8, &u32::from(run.text).to_le_bytes());
            put(start + 12, &run.from.to_le_bytes());
        }
        let sum = checksum(&page[at::HEADERS..]);
        page[at::HEADERS_CHECKSUM..at::HEADERS_CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
        let sum = checksum(&page[..START]);
        page[at::CHECKSUM..at::CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Pages of the header file.
    pub fn file_pages(&self) -> u32 {
        let kept: u32 = self.runs.iter().filter(|run| !run.text).map(|run| run.count).sum();
        1 + kept + if self.copy.is_some() { self.text_pages } else { 0 }
    }

    /// The copy of the text in the header file, if it has one.
    pub fn text_copy<'a>(&self, file: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.copy? as usize * PAGE;
        file.get(start..start.checked_add(self.text_pages as usize * PAGE)?)
    }

    /// Restores the original from the header file and the text (`None`: the copy in the header
    /// file), and checks it against both identities.
    pub fn restore(&self, file: &[u8], text: Option<&[u8]>) -> Result<Vec<u8>, Fault> {
        let text = text.or_else(|| self.text_copy(file)).ok_or(Fault::OtherText)?;
        if text.len() != self.text_pages as usize * PAGE || Identity::of(text) != self.text {
            return Err(Fault::OtherText);
        }
        let size = usize::try_from(self.size).map_err(|_| Fault::Memory)?;
        let mut original = Vec::new();
        original.try_reserve_exact(size.next_multiple_of(PAGE)).map_err(|_| Fault::Memory)?;
        for run in &self.runs {
            let from = if run.text { text } else { file };
            let start = run.from as usize * PAGE;
            let pages = from.get(start..start + run.count as usize * PAGE);
            original.extend_from_slice(pages.ok_or(Fault::Truncated)?);
        }
        original.truncate(size);
        if Identity::of(&original) == self.original {
            Ok(original)
        } else {
            Err(Fault::OtherOriginal)
        }
    }
}
