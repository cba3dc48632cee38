//! The walk over headers, names and contents.

use core::fmt;

/// Bytes of a newc header: a magic of six characters and thirteen fields of eight.
const HEADER: usize = 110;
/// The longest name that is taken, with its zero byte: Linux' `PATH_MAX`.
const LONGEST_NAME: usize = 4096;
const TRAILER: &[u8] = b"TRAILER!!!";

/// One file, directory, link or device of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Inode number; together with `device` it identifies the entries that are links of one file.
    pub inode: u32,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of links; over one for a file whose other names are entries of their own.
    pub links: u32,
    /// Modification time in seconds since 1970.
    pub modified: u32,
    /// Major and minor number of the device the file was on.
    pub device: (u32, u32),
    /// Major and minor number that a device node stands for.
    pub node: (u32, u32),
    /// Path without its zero byte, as written in the archive.
    pub name: &'a [u8],
    /// Content of a file, target of a symbolic link.
    pub content: &'a [u8],
}

/// An item that [`Reader`] yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An entry.
    Entry(Entry<'a>),
    /// A trailer: inode numbers of later entries are unrelated to those of earlier ones.
    End,
}

/// Why reading an archive failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The offset of the damaged entry, in bytes from the start of the input.
    pub offset: usize,
    /// The fault.
    pub fault: Fault,
}

/// A fault of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Neither `070701` nor `070702`.
    Magic,
    /// The bytes of a compressed archive.
    Compressed,
    /// A field that is not a hexadecimal number.
    Field,
    /// A name that is empty, too long or without its zero byte.
    Name,
    /// The input ends within an entry.
    Truncated,
    /// The sum over a `070702` entry's content is not the one in its header.
    Checksum,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.fault {
            Fault::Magic => "not a newc cpio header",
            Fault::Compressed => "compressed; pass the archive uncompressed",
            Fault::Field => "a header field is no hexadecimal number",
            Fault::Name => "a name is empty, too long or not terminated",
            Fault::Truncated => "the archive ends within an entry",
            Fault::Checksum => "the content does not match its checksum",
        };
        write!(f, "cpio archive, byte {}: {text}", self.offset)
    }
}

impl core::error::Error for Error {}

/// Walks a chain of archives.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    input: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the beginning of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, offset: 0 }
    }

    fn fail(&mut self, fault: Fault) -> Error {
        let offset = self.offset;
        self.offset = self.input.len();
        Error { offset, fault }
    }

    /// Reads the item at the current offset, which is within the input.
    fn read(&mut self) -> Result<Item<'a>, Fault> {
        let rest = self.input.get(self.offset..).unwrap_or_default();
        let (sums, fields) = read_header(rest)?;
        let [
            inode,
            mode,
            uid,
            gid,
            links,
            modified,
            size,
            major,
            minor,
            node_major,
            node_minor,
            name_size,
            sum,
        ] = fields;
        let name_size = name_size as usize;
        if !(2..=LONGEST_NAME).contains(&name_size) {
            return Err(Fault::Name);
        }
        // No sum below can overflow: each part is under 2^32, and offsets are within real memory.
        let name_end = HEADER + name_size;
        let name = match rest.get(HEADER..name_end).ok_or(Fault::Truncated)? {
            [name @ .., 0] => name,
            _ => return Err(Fault::Name),
        };
        let start = name_end.next_multiple_of(4);
        let end = start + size as usize;
        let content = rest.get(start..end).ok_or(Fault::Truncated)?;
        if sums && mode & 0o170_000 == 0o100_000 {
            let found = content.iter().fold(0u32, |sum, &byte| sum.wrapping_add(byte.into()));
            if found != sum {
                return Err(Fault::Checksum);
            }
        }
        // The padding after the last entry of a file may be missing.
        self.offset = (self.offset + end.next_multiple_of(4)).min(self.input.len());
        if name == TRAILER {
            return Ok(Item::End);
        }
        Ok(Item::Entry(Entry {
            inode,
            mode,
            uid,
            gid,
            links,
            modified,
            device: (major, minor),
            node: (node_major, node_minor),
            name,
            content,
        }))
    }
}

/// Reads the fields of a header, and whether its last is a checksum.
fn read_header(bytes: &[u8]) -> Result<(bool, [u32; 13]), Fault> {
    let sums = match bytes.get(..6) {
        Some(b"070701") => false,
        Some(b"070702") => true,
        _ => return Err(wrong_magic(bytes)),
    };
    let header = bytes.get(6..HEADER).ok_or(Fault::Truncated)?;
    let mut fields = [0u32; 13];
    for (field, digits) in fields.iter_mut().zip(header.chunks_exact(8)) {
        *field = hexadecimal(digits).ok_or(Fault::Field)?;
    }
    Ok((sums, fields))
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Item<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.input.get(self.offset..)?;
        // Zero bytes pad archives; a header never begins with one.
        self.offset += rest.iter().position(|&byte| byte != 0)?;
        Some(self.read().map_err(|fault| self.fail(fault)))
    }
}

/// Distinguishes a compressed archive, by its first bytes, from input that is no archive.
fn wrong_magic(rest: &[u8]) -> Fault {
    const COMPRESSED: [&[u8]; 7] = [
        &[0x1f, 0x8b],                         // gzip
        &[0xfd, b'7', b'z', b'X', b'Z', 0x00], // xz
        &[0x28, 0xb5, 0x2f, 0xfd],             // zstd
        &[0x02, 0x21, 0x4c, 0x18],             // lz4, legacy
        b"BZh",                                // bzip2
        &[0x5d, 0x00, 0x00],                   // lzma
        &[0x89, b'L', b'Z', b'O'],             // lzop
    ];
    if COMPRESSED.iter().any(|magic| rest.starts_with(magic)) {
        Fault::Compressed
    } else if rest.len() < 6 {
        Fault::Truncated
    } else {
        Fault::Magic
    }
}

/// Eight hexadecimal digits of either case.
fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for &digit in digits {
        value = (value << 4) | char::from(digit).to_digit(16)?;
    }
    Some(value)
}
