//! ELF: the header, the program headers, the plan.

use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::PAGE;

/// The end of the user half: no plan reaches beyond it.
const USER_END: u64 = 0x7fff_ffff_f000;
/// The longest path of an interpreter, its NUL included (`PATH_MAX`).
const PATH_MAX: u64 = 4096;
/// The largest table of program headers (`load_elf_phdrs`).
const TABLE_MAX: usize = 65536;

const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const EM_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;
const PT_PHDR: u32 = 6;
const PT_GNU_STACK: u32 = 0x6474_e551;

/// Access rights of a segment, `p_flags`.
pub mod flags {
    /// Execute.
    pub const X: u32 = 1;
    /// Write.
    pub const W: u32 = 2;
    /// Read.
    pub const R: u32 = 4;
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FileHeader {
    e_ident: [u8; 16],
    e_type: u16,
    e_machine: u16,
    e_version: u32,
    e_entry: u64,
    e_phoff: u64,
    e_shoff: u64,
    e_flags: u32,
    e_ehsize: u16,
    e_phentsize: u16,
    e_phnum: u16,
    e_shentsize: u16,
    e_shnum: u16,
    e_shstrndx: u16,
}

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ProgramHeader {
    p_type: u32,
    p_flags: u32,
    p_offset: u64,
    p_vaddr: u64,
    p_paddr: u64,
    p_filesz: u64,
    p_memsz: u64,
    p_align: u64,
}

/// Whether the file fixes its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The file's addresses are used unchanged (`ET_EXEC`).
    Fixed,
    /// The file's addresses are relative to the address that the loader chooses (`ET_DYN`).
    Independent,
}

/// The file header: where the program headers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    position: Position,
    entry: u64,
    table_offset: u64,
    table_count: u16,
}

impl Header {
    /// Bytes of the file header.
    pub const SIZE: usize = size_of::<FileHeader>();

    /// Parses a file header. `ENOEXEC` if this is not an executable for this machine.
    pub fn parse(head: &[u8]) -> Result<Header> {
        let (file, _) = FileHeader::read_from_prefix(head).map_err(|_| Errno::ENOEXEC)?;
        let position = match file.e_type {
            ET_EXEC => Position::Fixed,
            ET_DYN => Position::Independent,
            _ => return Err(Errno::ENOEXEC),
        };
        let class_64_little_endian = file.e_ident[4] == 2 && file.e_ident[5] == 1;
        let table_size = usize::from(file.e_phnum) * size_of::<ProgramHeader>();
        if !file.e_ident.starts_with(b"\x7fELF")
            || !class_64_little_endian
            || file.e_machine != EM_X86_64
            || usize::from(file.e_phentsize) != size_of::<ProgramHeader>()
            || table_size == 0
            || table_size > TABLE_MAX
            || file.e_phoff.checked_add(table_size as u64).is_none()
        {
            return Err(Errno::ENOEXEC);
        }
        Ok(Header {
            position,
            entry: file.e_entry,
            table_offset: file.e_phoff,
            table_count: file.e_phnum,
        })
    }

    /// Returns the bytes of the file that [`Plan::new`] needs: the program headers.
    pub fn table(&self) -> Range<u64> {
        let size = u64::from(self.table_count) * size_of::<ProgramHeader>() as u64;
        self.table_offset..self.table_offset.saturating_add(size)
    }
}

/// A piece of the file to be mapped. Addresses are the file's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first byte, not rounded.
    pub address: u64,
    /// Bytes in memory, at least `file_size`; the rest is zero.
    pub memory_size: u64,
    /// Where in the file it begins; congruent to `address` modulo the page size.
    pub file_offset: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// An or of [`flags`]' bits.
    pub flags: u32,
}

impl Segment {
    /// The first address after the segment.
    pub fn end(&self) -> u64 {
        self.address + self.memory_size
    }

    /// Returns the first address after the part that comes from the file.
    pub fn file_end(&self) -> u64 {
        self.address + self.file_size
    }
}

/// The mappings that are needed to execute a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether the addresses are fixed.
    pub position: Position,
    /// The first instruction.
    pub entry: u64,
    /// The segments to map, in the file's order; never empty.
    pub segments: Vec<Segment>,
    /// The pages from the lowest to the highest segment.
    pub span: Range<u64>,
    /// The alignment of a position-independent file: a power of two, at least a page.
    pub alignment: u64,
    /// The bytes of the file that hold the interpreter's path and its NUL.
    pub interpreter: Option<Range<u64>>,
    /// The address of the program headers in memory (`AT_PHDR`); 0 if they are not mapped.
    pub headers: u64,
    /// Their number (`AT_PHNUM`).
    pub header_count: u16,
    /// Whether the stack must be executable; Linux makes it executable if the file does not say.
    pub executable_stack: bool,
}

impl Plan {
    /// Bytes of one program header (`AT_PHENT`).
    pub const HEADER_SIZE: u64 = size_of::<ProgramHeader>() as u64;

    /// Makes the plan from the header and its [`Header::table`].
    ///
    /// * `ENOEXEC`: the table is shorter than the header says, or the interpreter's range is
    ///   invalid.
    /// * `EINVAL`: a segment that cannot be mapped, or no segment at all.
    /// * `ENOMEM`: memory for the plan is exhausted.
    pub fn new(header: &Header, table: &[u8]) -> Result<Plan> {
        let count = usize::from(header.table_count);
        let headers =
            || table.chunks_exact(size_of::<ProgramHeader>()).take(count).map(ProgramHeader::read);
        if headers().count() != count {
            return Err(Errno::ENOEXEC);
        }
        let mut plan = Plan {
            position: header.position,
            entry: header.entry,
            segments: Vec::new(),
            span: 0..0,
            alignment: PAGE,
            interpreter: None,
            headers: 0,
            header_count: header.table_count,
            executable_stack: true,
        };
        let loads = headers().flatten().filter(|entry| entry.p_type == PT_LOAD).count();
        plan.segments.try_reserve_exact(loads).map_err(|_| Errno::ENOMEM)?;
        for entry in headers().flatten() {
            match entry.p_type {
                PT_LOAD if entry.p_memsz > 0 => plan.add(&entry)?,
                PT_INTERP if plan.interpreter.is_none() => {
                    plan.interpreter = Some(interpreter(&entry)?);
                }
                PT_PHDR => plan.headers = entry.p_vaddr,
                PT_GNU_STACK => plan.executable_stack = entry.p_flags & flags::X != 0,
                _ => {}
            }
        }
        if plan.segments.is_empty() {
            return Err(Errno::EINVAL);
        }
        plan.place_headers(header);
        Ok(plan)
    }

    fn add(&mut self, entry: &ProgramHeader) -> Result<()> {
        let end = entry.p_vaddr.checked_add(entry.p_memsz).ok_or(Errno::EINVAL)?;
        let file_end = entry.p_offset.checked_add(entry.p_filesz).ok_or(Errno::EINVAL)?;
        if end > USER_END
            || file_end > i64::MAX as u64
            || entry.p_filesz > entry.p_memsz
            || entry.p_vaddr % PAGE != entry.p_offset % PAGE
        {
            return Err(Errno::EINVAL);
        }
        let pages = entry.p_vaddr / PAGE * PAGE..end.next_multiple_of(PAGE);
        self.span = if self.segments.is_empty() {
            pages
        } else {
            self.span.start.min(pages.start)..self.span.end.max(pages.end)
        };
        if entry.p_align.is_power_of_two() && entry.p_align <= 1 << 30 {
            self.alignment = self.alignment.max(entry.p_align);
        }
        self.segments.push(Segment {
            address: entry.p_vaddr,
            memory_size: entry.p_memsz,
            file_offset: entry.p_offset,
            file_size: entry.p_filesz,
            flags: entry.p_flags & (flags::R | flags::W | flags::X),
        });
        Ok(())
    }

    /// Finds the address of the program headers in memory: in the segment whose file part contains
    /// them (`load_elf_binary`); `PT_PHDR` is used only if there is no such segment.
    fn place_headers(&mut self, header: &Header) {
        let table = header.table();
        let holder = self.segments.iter().find(|segment| {
            segment.file_offset <= table.start
                && table.start < segment.file_offset + segment.file_size
        });
        if let Some(segment) = holder {
            self.headers = segment.address + (table.start - segment.file_offset);
        }
    }

    /// Returns the address after the last byte of the program: rounded up, its heap can begin
    /// there.
    pub fn end(&self) -> u64 {
        self.segments.iter().map(Segment::end).max().unwrap_or(0)
    }
}

impl ProgramHeader {
    fn read(bytes: &[u8]) -> Option<ProgramHeader> {
        ProgramHeader::read_from_bytes(bytes).ok()
    }
}

fn interpreter(entry: &ProgramHeader) -> Result<Range<u64>> {
    let end = entry.p_offset.checked_add(entry.p_filesz).ok_or(Errno::ENOEXEC)?;
    if entry.p_filesz < 2 || entry.p_filesz > PATH_MAX || end > i64::MAX as u64 {
        return Err(Errno::ENOEXEC);
    }
    Ok(entry.p_offset..end)
}
