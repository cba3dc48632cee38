//! 9P: a tree of the host's, read and written there and here at once (docs/volumes.md).
//!
//! From below to above: [`client`] speaks with the server by the driver
//! ([`crate::drivers::virtio_9p`]) and the crate `hayate-ninep`, [`pages`] are the content of files
//! for mappings, [`node`] is a file and the tree of all, [`content`] what happens to its pages,
//! [`file`](mod@file) an open file, [`directory`] an open directory.
//!
//! # What is kept, and for how long
//!
//! Others change the tree, and tell nobody. So the server is asked at each step of a walk, at each
//! `stat`, read and write; the file system keeps names only while they are in use
//! ([`Caching::InUse`](crate::vfs::filesystem::Caching::InUse)), and no data of files but the pages
//! of mappings. Those are compared with the file's size, times and version whenever its attributes
//! come, at the latest when it is opened or executed, and taken out of every mapping if they
//! differ. Pages that a shared mapping changed are written to the server. That is what Linux gives
//! with `cache=mmap`, or more: it does not ask again for names that are in use, and its reads do
//! not find what a mapping has written.
//!
//! A server says by the *qid* which file a name leads to. All names of one file lead to one
//! [`node::Node`] as long as it is in use. QEMU's server finds a file by the path by which the fid
//! was made, so a node keeps the fid of its latest walk, and an answer about another file than the
//! node's is none about it.
//!
//! # Locks
//!
//! The table of nodes and the fields of a node are spin locks and leaves, but for the list of
//! changed files ([`content`]); the server is asked with none of them. A node's `appending` comes
//! before the content lock of its page cache.
//!
//! Road not taken: leases or notifications for data that could be kept longer. 9P has none.

mod client;
mod content;
mod directory;
mod file;
mod node;
mod pages;

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::warn;

use self::client::Client;
use self::node::Volume;
use crate::page_cache::write_back;
use crate::vfs::filesystem::FileSystem;
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_machine, register_type};

/// Registers the type for `mount(2)`.
pub fn register() {
    register_type(&FileSystemType { name: "9p", needs_device: false, user: of_machine, mount });
}

/// Mounts the tree of the server whose tag is the source. The options are those of Linux
/// (Documentation/filesystems/9p.rst) that ask for what there is: the transport, the dialect and no
/// cache; others are refused.
fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    for (key, value) in request.options() {
        let good = match key {
            b"trans" => value == b"virtio",
            b"version" => value == b"9p2000.L",
            b"cache" => value == b"none" || value == b"0" || value == b"mmap",
            b"access" => value == b"any" || value == b"user" || value == b"client",
            b"msize" => !value.is_empty() && value.iter().all(u8::is_ascii_digit),
            b"uname" | b"aname" | b"dfltuid" | b"dfltgid" => value == b"0" || value.is_empty(),
            _ => false,
        };
        if !good {
            warn!("9p: option {}={} is refused", key.escape_ascii(), value.escape_ascii());
            return Err(Errno::EINVAL);
        }
    }
    let (fid, _) = Client::connect(request.source)?;
    write_back::start()?;
    Ok(Volume::new(fid)?)
}
