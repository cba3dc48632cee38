//! Container images: what they say about their program, and their layers as one file system.
//!
//! An image is a configuration and a list of layers, each a tar archive with what is new, and with
//! *whiteouts* for what is gone. It comes as an OCI layout (a folder or an archive of one), as
//! `docker save` writes it, or as the plain archive of `docker export` ([`image`] reads the first
//! three). [`Flat::read`] makes one tree of the layers, and [`Flat::write`] one tar archive of
//! that, in which each path stands once and every folder before what is in it. From there an image
//! goes the way of any tar archive of the user's (`cli/src/image`).
//!
//! # Two readings
//!
//! Layers are read twice: first their headers, then the contents that are left. A tree in between
//! knows of each file in which layer, and where there, its content is. So no file is unpacked that
//! a later layer replaces, a hard link keeps its file when that file's own name is gone, and sizes
//! are known before anything is written.
//!
//! # Trust
//!
//! Everything here reads what a stranger made. Every digest that an image names is compared, in
//! both readings. Names are taken apart and put together again: what leads out by `..` is refused,
//! absolute names and symbolic links are followed in the tree and nowhere else. What comes out is
//! bounded ([`Limits`]): entries, bytes, names, the depth of folders, the steps of a search.
//!
//! # Roads not taken
//!
//! Unpacking layer upon layer in a folder, as Docker does: without root, owners and devices would
//! need fakeroot's files for each layer, and each name would have to be defended against links that
//! are real. One reading from the last layer to the first, which needs no tree: it loses a hard link
//! whose target was replaced.
#![forbid(unsafe_code)]

pub mod archive;
mod blob;
mod configuration;
mod entry;
mod flat;
pub mod image;
mod pax;
mod reference;
mod tree;

pub use blob::Digest;
pub use configuration::{Configuration, Port};
pub use flat::{Attributed, Flat};
pub use image::{Image, Layer, Source};
pub use reference::Reference;

use std::fmt;

/// Why an image is not taken: one line.
#[derive(Debug)]
pub struct Error(String);

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// The same error, at this place.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Error {
        Error(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error(error.to_string())
    }
}

/// A name from an image, for a message: on one line, and not too long.
pub fn shown(name: &[u8]) -> String {
    let text: String =
        String::from_utf8_lossy(name).chars().take(200).flat_map(char::escape_debug).collect();
    text
}

/// How much an image may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of all layers.
    pub entries: u64,
    /// Bytes of all layers, unpacked.
    pub bytes: u64,
    /// Bytes of all names and targets of links.
    pub names: u64,
}

impl Default for Limits {
    /// More than any image that people make: the largest, with models or compilers for graphics
    /// cards in them, have some ten GiB and some hundred thousand files.
    fn default() -> Limits {
        Limits { entries: 2_000_000, bytes: 64 << 30, names: 512 << 20 }
    }
}
