//! The files and the machine that a saved template depends on, and how they are known again in
//! another boot.
//!
//! A page of a program's memory is right only beside the files that it was made with, on a
//! processor that its C library chose its code for, and with the object that the kernel showed to
//! it. So a template is saved with the state of each file and with a digest of the machine, and is
//! used only where all are the same.
//!
//! * A file in two files (`docs/off2f.md`) is known by the digest of its content, which its header
//!   carries.
//! * A script that must be unchanged is read and hashed.
//! * Any other file is known by its size and the time of its last change, as make(1) and Python
//!   know theirs: to read the libraries of a program takes longer than to start it.

use hayate_abi::{Errno, Result};
use hayate_off2f::{Digest, Header};
use hayate_template_file::{PAGE, State};
use machine::cpu;
use machine::vdso;
use zerocopy::little_endian::{I64, U32, U64};

use crate::in_place::view;
use crate::vfs::attributes::FileKind;
use crate::vfs::mount::Location;

/// The largest script that is hashed at the first start from a template, in bytes.
const MOST_OF_SCRIPT: u64 = 1 << 20;

/// How a file is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The digest in its header, or else its size and time.
    Header,
    /// Its content.
    Content,
}

/// The digest of what the processor and the kernel must have in common with those where a template
/// was saved.
pub fn machine() -> [u8; 32] {
    let mut digest = Digest::new();
    for words in cpu::chosen_by() {
        words.iter().for_each(|word| digest.update(&word.to_le_bytes()));
    }
    digest.update(vdso::content());
    digest.update(env!("CARGO_PKG_VERSION").as_bytes());
    digest.finish().0
}

/// The state of a file.
///
/// # Errors
/// `EINVAL`: it is no regular file; `EFBIG`: it is too large to be hashed; those of its reading.
pub fn state(location: &Location, by: By) -> Result<State> {
    let metadata = location.metadata()?;
    if metadata.kind != FileKind::Regular {
        return Err(Errno::EINVAL);
    }
    let known = match by {
        By::Content => Some(content(location, metadata.size)?),
        By::Header => header(location),
    };
    let state = State { size: U64::new(metadata.size), ..State::default() };
    Ok(match known {
        Some(digest) => State { digest, ..state },
        None => State {
            modified: I64::new(metadata.modified.seconds),
            nanoseconds: U32::new(metadata.modified.nanoseconds),
            ..state
        },
    })
}

/// The digest of the original in the header of a file in two files.
fn header(location: &Location) -> Option<[u8; 32]> {
    let page = location.inode().ok()?.get_xattr(view::ATTRIBUTE).ok()?;
    Some(Header::parse_start(&page).ok()?.original.0)
}

fn content(location: &Location, size: u64) -> Result<[u8; 32]> {
    if size > MOST_OF_SCRIPT {
        return Err(Errno::EFBIG);
    }
    let inode = location.inode()?;
    let page_cache = inode.page_cache().ok_or(Errno::EINVAL)?;
    let mut digest = Digest::new();
    let mut piece = [0; 512];
    for at in (0..size).step_by(piece.len()) {
        let count = (size - at).min(piece.len() as u64) as usize;
        let piece = piece.get_mut(..count).unwrap_or_default();
        page_cache.page(at / PAGE as u64)?.read((at % PAGE as u64) as usize, piece);
        digest.update(piece);
    }
    Ok(digest.finish().0)
}
