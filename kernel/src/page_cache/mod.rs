//! The page cache: contents of files and disks as pages in memory.
//!
//! | file | contents |
//! |---|---|
//! | [`cache`] | the page cache of one file: look-ups, loading, truncation, writing |
//! | `pages` | its table of pages by index |
//! | [`read_ahead`] | pages loaded before they are needed, in the background |
//!
//! It knows frames and no inodes: a file system gives it a [`PageSource`]. Reads and writes through
//! it are in [`crate::vfs::content`], because they also check a file's size and times.
//!
//! In Tender's terms a page cache is the *plate* of a file: content as a resource that outlives the
//! processes which use it (docs/resources.md).

pub mod cache;
mod pages;
pub mod read_ahead;

pub use cache::{PAGE, PageCache, PageSource};
