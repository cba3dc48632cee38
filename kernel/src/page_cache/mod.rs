//! The page cache: contents of files and disks as pages in memory.
//!
//! | file | contents |
//! |---|---|
//! | [`hint`], [`seals`] | what a program said about a file's content |
//! | [`in_place`] | the pages that lie on non-volatile memory |
//! | [`source`] | what pages are read from |
//! | `pages` | the table of pages by index |
//! | `write_state` | the errors of writing pages back, and who waits for them |
//! | [`cache`] | the page cache of one file: its fields, look-ups |
//! | [`access`] | its open files, running programs and writable mappings, counted |
//! | [`truncate`] | pages taken out, and out of page tables |
//! | [`write_back`] | changed pages written to the source, in time and at `fsync(2)` |
//! | [`reclaim`] | all page caches whose pages can be read again, and their reclaim |
//! | `past` | reads of the source, and those that leave the page cache out |
//! | [`load`] | missing pages made or read |
//! | [`read_ahead`] | pages loaded before they are needed, in the background |
//!
//! This is also the order of the layers, lowest first.
//!
//! It knows frames and no inodes: a file system gives it a [`source::PageSource`]. Reads and writes
//! through it are in [`crate::vfs::content`], because they also check a file's size and times.
//!
//! In Tender's terms a page cache is the *plate* of a file: content as a resource that outlives the
//! processes which use it (docs/resources.md).

pub mod access;
pub mod cache;
pub mod hint;
pub mod in_place;
pub mod load;
mod pages;
mod past;
pub mod read_ahead;
pub mod reclaim;
pub mod seals;
pub mod source;
pub mod truncate;
pub mod write_back;
mod write_state;
