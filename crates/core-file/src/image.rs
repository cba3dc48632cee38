//! The headers (`elf(5)`; `elf_core_dump`, fs/binfmt_elf.c).
//!
//! A core file consists of the ELF header, a program header for the notes and one for each piece of
//! memory, the notes, and the memory, in which each piece begins at a multiple of [`ALIGNMENT`].

/// Bytes of the ELF header.
pub const HEADER: usize = 64;
/// Bytes of a program header.
pub const PROGRAM_HEADER: usize = 56;
/// Bytes of a section header.
pub const SECTION_HEADER: usize = 64;
/// The offset of each piece of memory is a multiple of this.
pub const ALIGNMENT: u64 = 4096;
/// The count of program headers which says that the first section header has the real count.
const MANY: usize = 0xffff;

/// A piece of memory may be read.
pub const READ: u32 = 4;
/// A piece of memory may be written.
pub const WRITE: u32 = 2;
/// A piece of memory may be executed.
pub const EXECUTE: u32 = 1;

/// Whether so many program headers need a section header that counts them.
pub fn wants_section(segments: usize) -> bool {
    segments >= MANY
}

/// A header under construction: each field follows the previous one.
struct Fields<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    fn new() -> Self {
        Fields { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, field: &[u8]) -> &mut Self {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + field.len()) {
            place.copy_from_slice(field);
        }
        self.at += field.len();
        self
    }

    fn half(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_le_bytes())
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_le_bytes())
    }
}

/// Returns the ELF header of a core file with so many program headers. `section`: the offset of the
/// section header that counts them, if they need one.
pub fn header(segments: usize, section: u64) -> [u8; HEADER] {
    const CORE: u16 = 4;
    const X86_64: u16 = 62;
    let many = wants_section(segments);
    let mut fields = Fields::new();
    // 64 bits, little-endian, version 1, System V.
    fields.put(b"\x7fELF\x02\x01\x01").put(&[0; 9]);
    fields.half(CORE).half(X86_64).word(1).long(0);
    fields.long(HEADER as u64).long(if many { section } else { 0 }).word(0);
    fields.half(HEADER as u16).half(PROGRAM_HEADER as u16).half(segments.min(MANY) as u16);
    fields.half(if many { SECTION_HEADER as u16 } else { 0 }).half(u16::from(many)).half(0);
    fields.bytes
}

/// Returns the program header of the notes.
pub fn notes_header(offset: u64, size: u64) -> [u8; PROGRAM_HEADER] {
    const NOTE: u32 = 4;
    let mut fields = Fields::new();
    fields.word(NOTE).word(0).long(offset).long(0).long(0).long(size).long(0).long(0);
    fields.bytes
}

/// Returns the program header of a piece of memory, of which `stored` bytes are at `offset` of the
/// file.
pub fn memory_header(
    offset: u64,
    address: u64,
    stored: u64,
    size: u64,
    flags: u32,
) -> [u8; PROGRAM_HEADER] {
    const LOAD: u32 = 1;
    let mut fields = Fields::new();
    fields.word(LOAD).word(flags).long(offset).long(address).long(0).long(stored).long(size);
    fields.long(ALIGNMENT);
    fields.bytes
}

/// Returns the section header that counts the program headers (`fill_extnum_info`).
pub fn section_header(segments: usize) -> [u8; SECTION_HEADER] {
    let mut fields = Fields::new();
    fields.word(0).word(0).long(0).long(0).long(0);
    // One section, in `sh_size`; the count in `sh_info`.
    fields.long(1).word(0).word(segments as u32).long(0).long(0);
    fields.bytes
}
