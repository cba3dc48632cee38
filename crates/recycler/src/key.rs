//! The rules of a match, as keys: a kept resource fits a new process when their keys are equal.
//!
//! | resource | fits |
//! |---|---|
//! | program | the same content under the same name ([`ContentKey`]) |
//! | region | the same role and size ([`RegionKey`]) |
//! | space, work area, process, execution | always: they have no key |
//! | attachment | the same program and interpreter, the same user, the same limits ([`AttachmentKey`]) |

/// A number that equal keys share and that most different keys do not share.
pub trait Fingerprint {
    /// The number.
    fn fingerprint(&self) -> u64;
}

/// An odd number with bits all over: multiplying spreads small differences to the high bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A file's content and its origin: two contents are never equal, nor are two names of one content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentKey {
    /// The number of the file's page cache, which stands for device, inode and generation and is
    /// never used twice.
    pub page_cache: u64,
    /// How often the content had changed when it was read.
    pub version: u64,
    /// The name under which it was opened (the identity of the directory entry and the mount).
    pub place: (usize, usize),
}

impl Fingerprint for ContentKey {
    #[inline]
    fn fingerprint(&self) -> u64 {
        (self.page_cache ^ self.version << 32).wrapping_mul(SPREAD)
    }
}

/// The role of a region in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegionRole {
    /// Instructions and constants.
    Text,
    /// Variables with an initial value.
    Data,
    /// Variables that begin as zero.
    Bss,
    /// The first stack.
    Stack,
}

/// A region without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKey {
    /// The role of the region.
    pub role: RegionRole,
    /// Its size in bytes.
    pub bytes: usize,
}

impl Fingerprint for RegionKey {
    #[inline]
    fn fingerprint(&self) -> u64 {
        ((self.bytes as u64) << 2 | self.role as u64).wrapping_mul(SPREAD)
    }
}

/// Identifies a space with a program's regions attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentKey {
    /// The executable.
    pub program: ContentKey,
    /// Its interpreter (the dynamic loader).
    pub interpreter: Option<ContentKey>,
    /// Real and effective user, real and effective group.
    pub user: [u32; 4],
    /// The limits that affect addresses and sizes: address space, data, stack, locked memory.
    pub limits: [usize; 4],
    /// Whether addresses were randomised.
    pub randomised: bool,
}

impl Fingerprint for AttachmentKey {
    #[inline]
    fn fingerprint(&self) -> u64 {
        self.program.fingerprint().wrapping_add(u64::from(self.user[1]))
    }
}
