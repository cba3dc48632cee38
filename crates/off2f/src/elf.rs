//! The ELF data that decides where a page goes: checked reads, no copy.

use alloc::vec::Vec;

use crate::Refusal;

pub const ET_EXEC: u16 = 2;
pub const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;

pub const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;

pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;

/// Bytes of the file header and of a program header.
pub const FILE_HEADER: usize = 64;
pub const PROGRAM_HEADER: usize = 56;

/// The types of program headers whose meaning is known and allows a split: the gABI's, and GNU's
/// eh_frame, stack, relro, property and sframe.
const KNOWN: [u32; 14] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    0x6474_e550,
    0x6474_e551,
    0x6474_e552,
    0x6474_e553,
    0x6474_e554,
    0x6464_e550,
];

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// A program header.
#[derive(Clone, Copy)]
pub struct Segment {
    pub kind: u32,
    pub flags: u32,
    pub offset: usize,
    pub address: u64,
    pub file_size: usize,
}

impl Segment {
    fn parse(bytes: &[u8], at: usize, length: usize) -> Option<Segment> {
        let offset = usize::try_from(u64_at(bytes, at + 8)?).ok()?;
        let file_size = usize::try_from(u64_at(bytes, at + 32)?).ok()?;
        let segment = Segment {
            kind: u32_at(bytes, at)?,
            flags: u32_at(bytes, at + 4)?,
            offset,
            address: u64_at(bytes, at + 16)?,
            file_size,
        };
        // File content that is missing matters only where a segment is loaded or read from it.
        (offset.checked_add(file_size)? <= length || file_size == 0).then_some(segment)
    }

    /// The segment's bytes.
    fn content<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        file.get(self.offset..self.offset + self.file_size).unwrap_or(&[])
    }
}

/// The parts of an executable that are used here.
pub struct Executable {
    pub kind: u16,
    pub segments: Vec<Segment>,
    /// Bytes of file header and program headers, if they are contiguous at the beginning.
    pub headers: usize,
    pub build_id: Vec<u8>,
}

impl Executable {
    pub fn parse(file: &[u8]) -> Result<Executable, Refusal> {
        if !file.starts_with(b"\x7fELF") || file.len() < FILE_HEADER {
            return Err(Refusal::NotElf);
        }
        let truncated = Refusal::Truncated;
        let machine = u16_at(file, 18).ok_or(truncated)?;
        // 64 bits, little-endian.
        if file.get(4..6) != Some(&[2, 1]) || machine != EM_X86_64 {
            return Err(Refusal::OtherArchitecture(machine));
        }
        let kind = u16_at(file, 16).ok_or(truncated)?;
        if kind != ET_EXEC && kind != ET_DYN {
            return Err(Refusal::NotExecutable(kind));
        }
        let table = usize::try_from(u64_at(file, 32).ok_or(truncated)?).map_err(|_| truncated)?;
        let count = usize::from(u16_at(file, 56).ok_or(truncated)?);
        if usize::from(u16_at(file, 54).ok_or(truncated)?) != PROGRAM_HEADER || count == 0 {
            return Err(Refusal::NotElf);
        }
        let end = table.checked_add(count * PROGRAM_HEADER).ok_or(truncated)?;
        if end > file.len() {
            return Err(truncated);
        }
        let mut segments = Vec::with_capacity(count);
        for at in (table..end).step_by(PROGRAM_HEADER) {
            segments.push(Segment::parse(file, at, file.len()).ok_or(truncated)?);
        }
        let executable = Executable {
            kind,
            headers: if table == FILE_HEADER { end } else { 0 },
            build_id: build_id(file, &segments),
            segments,
        };
        executable.check(file)?;
        Ok(executable)
    }

    fn check(&self, file: &[u8]) -> Result<(), Refusal> {
        let mut text = false;
        for segment in &self.segments {
            if !KNOWN.contains(&segment.kind) {
                return Err(Refusal::UnknownSegment(segment.kind));
            }
            if segment.kind == PT_LOAD && segment.flags & PF_X != 0 {
                if segment.flags & PF_W != 0 {
                    return Err(Refusal::WritableText);
                }
                text |= segment.file_size != 0;
            }
            if segment.kind == PT_LOAD && segment.offset as u64 % 4096 != segment.address % 4096 {
                return Err(Refusal::Misaligned);
            }
            if segment.kind == PT_DYNAMIC && relocates_text(segment.content(file)) {
                return Err(Refusal::WritableText);
            }
        }
        if text { Ok(()) } else { Err(Refusal::NoText) }
    }
}

/// Whether the dynamic section says that the dynamic linker writes to the text.
fn relocates_text(dynamic: &[u8]) -> bool {
    const DT_TEXTREL: u64 = 22;
    const DT_FLAGS: u64 = 30;
    const DF_TEXTREL: u64 = 4;
    let entries = dynamic.chunks_exact(16).map_while(|entry| {
        let (tag, value) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
        (tag != 0).then_some((tag, value))
    });
    entries
        .into_iter()
        .any(|(tag, value)| tag == DT_TEXTREL || (tag == DT_FLAGS && value & DF_TEXTREL != 0))
}

/// The GNU build identifier of the first note that has one.
fn build_id(file: &[u8], segments: &[Segment]) -> Vec<u8> {
    const NT_GNU_BUILD_ID: u32 = 3;
    for segment in segments.iter().filter(|segment| segment.kind == PT_NOTE) {
        let mut rest = segment.content(file);
        while let (Some(name), Some(size), Some(kind)) =
            (u32_at(rest, 0), u32_at(rest, 4), u32_at(rest, 8))
        {
            let start = 12 + (name as usize).next_multiple_of(4);
            let Some(end) = start.checked_add(size as usize) else { break };
            let Some(content) = rest.get(start..end) else { break };
            if kind == NT_GNU_BUILD_ID && rest.get(12..16) == Some(b"GNU\0") {
                return content.to_vec();
            }
            rest = rest.get(end.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
    Vec::new()
}
