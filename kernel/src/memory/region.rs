//! The contents of a region: access rights, flags, and the source of its pages.

use alloc::sync::{Arc, Weak};

use hayate_abi::{Errno, Result};
use hayate_memory_policy::Policy;
use hayate_space_map::Content;
use machine::paging::Access;
use machine::sync::Once;

use super::page::PAGE;
use crate::ipc::sysv::shm::{Attached, Attachment};
use crate::page_cache::cache::{Mapper, PageCache};
use crate::vfs::mount::Location;
use crate::vfs::open_file::OpenFile;

bitflags::bitflags! {
    /// Access rights of a program to its memory; the values are those of `PROT_*` in `mmap(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Protection: u8 {
        /// Reading. On x86 anything that can be written or executed can be read.
        const READ = 1;
        /// Writing.
        const WRITE = 2;
        /// Executing.
        const EXECUTE = 4;
    }
}

impl Protection {
    /// As page-table access bits.
    #[inline]
    pub fn access(self) -> Access {
        Access {
            read: !self.is_empty(),
            write: self.contains(Protection::WRITE),
            execute: self.contains(Protection::EXECUTE),
        }
    }
}

bitflags::bitflags! {
    /// Further properties of a region.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct RegionFlags: u32 {
        /// Writes are visible in all mappings of the same content (`MAP_SHARED`).
        const SHARED = 1;
        /// Grows downwards when the page below it is touched: a stack (`MAP_GROWSDOWN`).
        const GROWS_DOWN = 1 << 1;
        /// Its pages stay in memory (`mlock`): all present, none given up.
        const LOCKED = 1 << 2;
        /// Not inherited at fork (`MADV_DONTFORK`).
        const NO_FORK = 1 << 3;
        /// Zeroes for the child of a fork (`MADV_WIPEONFORK`); a region that shows content becomes
        /// private memory there.
        const WIPE_ON_FORK = 1 << 4;
        /// Large pages wanted (`MADV_HUGEPAGE`).
        const LARGE = 1 << 5;
        /// Large pages not wanted (`MADV_NOHUGEPAGE`).
        const NO_LARGE = 1 << 6;
        /// `MAP_NORESERVE`.
        const NO_RESERVE = 1 << 7;
        /// The heap that `brk` moves.
        const HEAP = 1 << 8;
        /// The first stack.
        const STACK = 1 << 9;
        /// Left out of core dumps (`MADV_DONTDUMP`).
        const NO_DUMP = 1 << 10;
        /// `mprotect` may allow writing: not for a shared mapping of a file opened for reading.
        const MAY_WRITE = 1 << 11;
        /// `mprotect` may allow executing: not for files of a mount without exec.
        const MAY_EXECUTE = 1 << 12;
        /// Pages are locked when they are touched, and not before (`MLOCK_ONFAULT`).
        const LOCK_ON_FAULT = 1 << 13;
        /// Read little ahead (`MADV_RANDOM`), or much (`MADV_SEQUENTIAL`).
        const RANDOM = 1 << 14;
        /// See `RANDOM`.
        const SEQUENTIAL = 1 << 15;
        /// Its memory policy (`mbind(2)`), a word of 16 bits of which one is free: it parts, joins
        /// and is inherited with the other flags, and costs nothing where there is none.
        const POLICY = (0xffff & !(hayate_memory_policy::FREE as u32)) << 16;
        /// Missing pages may be provided by a program ([`Claims`](super::claims::Claims) say by
        /// which).
        const PROVIDED = (hayate_memory_policy::FREE as u32) << 16;
    }
}

impl RegionFlags {
    /// The memory policy; `None`: that of the thread.
    pub fn policy(self) -> Option<Policy> {
        Policy::unpack((self.intersection(RegionFlags::POLICY).bits() >> 16) as u16)
    }

    /// Sets the memory policy.
    pub fn set_policy(&mut self, policy: Option<Policy>) {
        let word = u32::from(Policy::pack(policy)) << 16;
        *self = RegionFlags::from_bits_retain(self.difference(RegionFlags::POLICY).bits() | word);
    }
}

/// The mapper of all page caches that are mapped.
static MAPPER: Once<Arc<dyn Mapper>> = Once::new();

/// Sets the mapper that page caches call when they shrink: it knows the spaces, which lie above
/// this module.
pub(super) fn set_mapper(mapper: Arc<dyn Mapper>) {
    MAPPER.call_once(|| mapper);
}

/// The mapper for [`PageCache::add_mapper`].
fn mapper() -> Weak<dyn Mapper> {
    match MAPPER.get() {
        Some(mapper) => Arc::downgrade(mapper),
        None => panic!("a file is mapped before all_spaces::init has run"),
    }
}

/// Where the pages of a region come from: a page cache, and the open file. A mapping makes it
/// once; the parts of the mapping and the spaces that fork from it share it.
pub struct Backing {
    /// The page cache.
    pub page_cache: Arc<PageCache>,
    /// The open file that was mapped, which this reference keeps open.
    file: Option<Arc<OpenFile>>,
    /// The name in `/proc/PID/maps` if there is no file.
    name: &'static str,
    /// Whether it is the program that the space executes, not a library.
    program: bool,
    /// Whether the page cache counts this as a mapping that can write to it.
    counted_writable: bool,
    /// Whether the page cache has the mapper to call when it shrinks.
    registered: bool,
    /// The segment of shared memory that shmat attached. References to this backing are its
    /// attachments, so only regions, and who looks at them, hold one.
    attachment: Option<Attachment>,
}

impl Attached for Backing {}

impl Backing {
    /// Makes the backing for a mapping of `file`, whose content is `page_cache`. `writable`: the
    /// mapping is shared and the file open for writing.
    ///
    /// # Errors
    /// `EPERM` if the content is sealed against writing; `ENOMEM`.
    pub fn file(
        page_cache: Arc<PageCache>,
        file: Arc<OpenFile>,
        writable: bool,
    ) -> Result<Arc<Backing>> {
        Self::make(page_cache, Some(file), "", writable, false).map(Arc::new)
    }

    /// Makes the backing for the program that is executed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn program(page_cache: Arc<PageCache>, file: Arc<OpenFile>) -> Result<Arc<Backing>> {
        Self::make(page_cache, Some(file), "", false, true).map(Arc::new)
    }

    /// Makes the backing for content without an open file, which `/proc/PID/maps` shows as `name`.
    pub fn nameless(page_cache: Arc<PageCache>, name: &'static str) -> Result<Arc<Backing>> {
        Self::make(page_cache, None, name, false, false).map(Arc::new)
    }

    /// Makes the backing for a mapping of a segment.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn segment(attachment: Attachment) -> Result<Arc<Backing>> {
        let memory = attachment.segment().memory().clone();
        let mut backing = Self::make(memory, None, "", false, false)?;
        backing.attachment = Some(attachment);
        let backing = Arc::new(backing);
        if let Some(attachment) = &backing.attachment {
            let owner: Arc<dyn Attached> = backing.clone();
            attachment.belong_to(Arc::downgrade(&owner));
        }
        Ok(backing)
    }

    fn make(
        page_cache: Arc<PageCache>,
        file: Option<Arc<OpenFile>>,
        name: &'static str,
        writable: bool,
        program: bool,
    ) -> Result<Backing> {
        if writable {
            page_cache.add_writable_mapping()?;
        }
        let mut backing = Backing {
            page_cache,
            file,
            name,
            program,
            counted_writable: writable,
            registered: false,
            attachment: None,
        };
        if !backing.page_cache.is_immutable() {
            backing.page_cache.add_mapper(mapper())?;
            backing.registered = true;
        }
        Ok(backing)
    }

    /// The segment of shared memory, if it is one.
    #[inline]
    pub fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// The location of the file, if there is one.
    pub fn location(&self) -> Option<&Location> {
        self.file.as_ref().map(|file| file.location())
    }

    /// The open file.
    pub fn open_file(&self) -> Option<&Arc<OpenFile>> {
        self.file.as_ref()
    }

    /// Whether it is the program that the space executes, not a library.
    #[inline]
    pub fn is_program(&self) -> bool {
        self.program
    }

    /// The name to show if there is no file.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if self.counted_writable {
            self.page_cache.remove_writable_mapping();
        }
        if self.registered {
            self.page_cache.remove_mapper(&mapper());
        }
    }
}

/// Whether memory with such rights and flags counts against `RLIMIT_DATA`.
#[inline]
pub(super) fn is_data(protection: Protection, flags: RegionFlags) -> bool {
    protection.contains(Protection::WRITE)
        && !flags.intersects(RegionFlags::SHARED | RegionFlags::GROWS_DOWN)
}

/// The mapping of a region.
#[derive(Clone)]
pub struct Mapping {
    /// The accesses that the program is allowed.
    pub protection: Protection,
    /// See [`RegionFlags`].
    pub flags: RegionFlags,
    /// Where pages come from; `None`: anonymous memory.
    pub backing: Option<Arc<Backing>>,
    /// The offset in the backing at which the region begins, in bytes, a multiple of a page.
    pub offset: u64,
}

impl Mapping {
    /// Whether writes go to the page cache itself.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.flags.contains(RegionFlags::SHARED)
    }

    /// The segment of shared memory that is mapped, if one is.
    #[inline]
    pub fn attachment(&self) -> Option<&Attachment> {
        self.backing.as_ref()?.attachment()
    }

    /// Whether it is private memory without a file, which counts against `RLIMIT_DATA` if writable.
    pub fn is_anonymous(&self) -> bool {
        self.backing.is_none()
    }

    /// Whether it counts against `RLIMIT_DATA`: private and writable (Linux: `is_data_mapping`,
    /// without stacks).
    #[inline]
    pub fn counts_as_data(&self) -> bool {
        is_data(self.protection, self.flags)
    }

    /// The index in the page cache of the page at `address`, in a region that begins at `start`.
    #[inline]
    pub fn index(&self, start: usize, address: usize) -> u64 {
        (self.offset + (address - start) as u64) / PAGE as u64
    }

    /// Whether the page at `address` has the same content in both mappings, whose regions begin at
    /// `start` and `other_start`, as long as it is not written. Access rights may differ.
    pub fn shows_same(
        &self,
        start: usize,
        other: &Mapping,
        other_start: usize,
        address: usize,
    ) -> bool {
        !self.is_shared()
            && !other.is_shared()
            && match (&self.backing, &other.backing) {
                (None, None) => true,
                (Some(a), Some(b)) => {
                    Arc::ptr_eq(a, b)
                        && self.index(start, address) == other.index(other_start, address)
                }
                _ => false,
            }
    }

    /// Whether both are equal in every respect.
    pub fn is_same(&self, other: &Mapping) -> bool {
        self.protection == other.protection
            && self.flags == other.flags
            && match (&self.backing, &other.backing) {
                (None, None) => true,
                (Some(a), Some(b)) => Arc::ptr_eq(a, b) && self.offset == other.offset,
                _ => false,
            }
    }

    /// Whether `mprotect` to `wanted` is allowed; fails with the error of `mprotect` if not.
    pub fn may(&self, wanted: Protection) -> Result<()> {
        let write = wanted.contains(Protection::WRITE);
        let execute = wanted.contains(Protection::EXECUTE);
        if (write && !self.flags.contains(RegionFlags::MAY_WRITE))
            || (execute && !self.flags.contains(RegionFlags::MAY_EXECUTE))
        {
            return Err(Errno::EACCES);
        }
        Ok(())
    }
}

impl Content for Mapping {
    fn advance(&mut self, bytes: usize) {
        if self.backing.is_some() {
            self.offset += bytes as u64;
        }
    }

    fn continues(&self, bytes: usize, next: &Self) -> bool {
        self.protection == next.protection
            && self.flags == next.flags
            && !self.flags.contains(RegionFlags::GROWS_DOWN)
            && match (&self.backing, &next.backing) {
                (None, None) => true,
                // As in Linux parts of a segment stay apart (`is_mergeable_vma`, mm/mmap.c): each
                // is an attachment.
                (Some(a), Some(b)) => {
                    Arc::ptr_eq(a, b)
                        && self.offset + bytes as u64 == next.offset
                        && a.attachment.is_none()
                }
                _ => false,
            }
    }
}
