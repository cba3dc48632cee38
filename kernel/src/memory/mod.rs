//! Memory of programs: spaces, regions, faults.
//!
//! A [`Space`] is a page table and a map of regions; a region says what is mapped in a range and
//! what the program may do there ([`Mapping`]). A page enters the page table only when it is
//! touched (or asked for): the fault path ([`fault`]) takes zeroed frames, pages of the page cache
//! (a [`PageCache`](crate::page_cache::cache::PageCache)), or copies of shared pages. Fork shares
//! whole page-table pages and copies the map; pages and page tables are copied when they are
//! written.
//!
//! The layers, lowest first. A file calls those above it in this list:
//!
//! | file | contents |
//! |---|---|
//! | [`page`], [`error`] | the size of a page, the program's half; the error for lack of memory |
//! | [`compare`] | whether two spaces have the same mappings and the same private pages |
//! | [`deferred_free`] | completes what ended processes have yet to free |
//! | [`outcome`] | what a page is touched for, and what comes of it |
//! | [`layout`] | the addresses of stack, heap and mappings, random or fixed |
//! | [`places`] | when addresses are drawn; the places of files, if they are drawn once per boot |
//! | [`limits`] | how much a process may map and lock |
//! | [`region`] | what a region holds |
//! | [`claims`] | who provides missing pages of a space |
//! | [`origin`] | the state of a space when its program began |
//! | [`weak_list`] | a list of all objects of a type, with a part for each processor |
//! | [`lineage`] | what the starts from one image have in common |
//! | [`space`] | the space itself: making, loading, counting |
//! | [`attachments`] | what segments of shared memory are told |
//! | [`all_spaces`] | what is done with every space: truncation of mapped files |
//! | [`fork`] | the copy for the child of a fork |
//! | [`large`] | when a program gets large pages |
//! | [`userfault`] | missing pages that a program provides |
//! | [`fault`] | what happens at a page fault |
//! | [`in_place::attach`] | text on non-volatile memory, entered when it is mapped |
//! | [`map`] | mmap, munmap, mprotect, brk |
//! | [`lock`], [`remap`], [`advise`] | mlock, mremap, madvise and their like |
//! | [`policy`] | mbind, move_pages |
//! | [`segments`] | shmat and shmdt |
//! | [`foreign`] | reading and writing another space |
//! | [`stored`] | spaces whose pages lie on non-volatile memory |
//! | [`show`] | the contents of `/proc/PID/maps`, `smaps` and `statm` |
//!
//! Above them stand [`crate::supervisor::space`] and [`crate::supervisor::call_sites`] (programs in
//! ring 0), and the pools of [`crate::recycle`] that keep spaces and regions. Memory calls none of
//! them. A fork takes a kept space first, so [`Space::new`] and [`Space::fork`] are defined with
//! the pool of empty spaces ([`crate::recycle::empty_spaces`]).
//!
//! [`in_place::attach`]: crate::in_place::attach
//!
//! Lock order: a space's lock (in its [`PageTable`](machine::paging::PageTable)), then a page
//! cache's lock, then the frame allocator's. A space's lock is a spin lock, so nothing sleeps under
//! it: pages are read from disk with the lock released, and the region is looked up again. An
//! unmapped region may hold the last reference to an open file, whose release may sleep, so removed
//! regions are dropped after the lock is released. Only one space is locked at a time, but for
//! fork: it locks the child, which no other thread can reach yet, and then the parent.
//!
//! No global lock is on the path of fork, exec, fault or exit: the list of all spaces has one part
//! for each processor.
//!
//! Road not taken: Linux' reverse maps (`i_mmap`, `anon_vma`). There is no swap, so no operation
//! has to find an anonymous page from its frame. Truncating a mapped file looks through all spaces
//! instead, which slows down that rare operation and not each fork.

pub mod advise;
pub mod all_spaces;
pub mod attachments;
pub mod claims;
pub mod compare;
pub mod deferred_free;
pub mod error;
pub mod fault;
pub mod foreign;
pub mod fork;
pub mod large;
pub mod layout;
pub mod limits;
pub mod lineage;
pub mod lock;
pub mod map;
pub mod origin;
pub mod outcome;
pub mod page;
pub mod places;
pub mod policy;
pub mod region;
pub mod remap;
pub mod segments;
pub mod show;
pub mod space;
pub mod stored;
pub mod userfault;
pub mod weak_list;

pub use fault::{handle_fault, text_faults, user_copy_fault};
pub use foreign::FutexPlace;
pub use layout::Layout;
pub use limits::{Limits, most_regions, set_most_regions};
pub use map::{MapRequest, Placement};
pub use outcome::{Cause, FaultResult, Touch};
pub use page::{LOWEST, PAGE, USER_END, page_down, page_up};
pub use region::{Backing, Mapping, Protection, RegionFlags};
pub use show::{ShownPages, ShownRegion};
pub use space::{CURRENT, Space, current, leave, try_current};
