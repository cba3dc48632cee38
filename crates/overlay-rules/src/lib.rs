//! The rules that combine the layers of an overlay into one tree, as pure logic.
//!
//! The layers of a directory are numbered from the top: an entry in a higher layer hides entries of
//! the same name below. A *whiteout* hides a name and does not exist itself. A directory merges
//! with directories below, down to one that is *opaque* or to an entry that is not a directory
//! (Linux `Documentation/filesystems/overlayfs.rst`). [`Merge`] decides a look-up, [`Position`]
//! numbers the entries of a merged directory, [`lower_paths`] reads the mount option.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod merge;
mod option;
mod position;

pub use merge::{Merge, Outcome, Seen};
pub use option::{Fault, lower_paths, unescape};
pub use position::Position;
