//! The rules by which the layers of an overlay become one tree, as pure logic.
//!
//! The layers of a directory are numbered from the top: what a higher layer has hides what is
//! below. A *whiteout* hides a name and is nothing itself; a directory merges with directories
//! below until one of them is *opaque*, or something else is in the way (Linux
//! `Documentation/filesystems/overlayfs.rst`). [`Merge`] decides a look-up, [`Position`] numbers
//! the entries of a merged directory, [`lower_paths`] reads the mount option.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod merge;
mod option;
mod position;

pub use merge::{Merge, Outcome, Seen};
pub use option::{lower_paths, unescape};
pub use position::Position;
