//! FIFOs: pipes with a name in a file system (`fifo(7)`).
//!
//! The file system only knows that a node is a FIFO. The pipe behind it lives as long as it is
//! open, and is found through a table by device and inode number.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::Pipe;
use super::end::open_pipe;
use super::limits::Share;
use crate::credentials::Credentials;
use crate::vfs::inode::Inode;
use crate::vfs::open_file::{FileOps, OpenRequest};

type Table = BTreeMap<(u64, u64), Weak<Pipe>>;

static TABLE: SpinLock<Table> = SpinLock::new(Table::new());

fn pipe_of(inode: &Arc<dyn Inode>, credentials: &Credentials) -> Result<Arc<Pipe>> {
    let metadata = inode.metadata()?;
    let share = Share::new(credentials)?;
    let mut table = TABLE.lock();
    if let Some(pipe) = table.get(&metadata.identity()).and_then(Weak::upgrade) {
        return Ok(pipe);
    }
    table.retain(|_, pipe| pipe.strong_count() != 0);
    let pipe = Pipe::new(metadata, share.ok_or(Errno::ENOMEM)?);
    table.insert(metadata.identity(), Arc::downgrade(&pipe));
    Ok(pipe)
}

/// Opens the FIFO `inode`; waits for the other side unless `O_NONBLOCK` is set.
pub fn open(inode: &Arc<dyn Inode>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
    open_pipe(&pipe_of(inode, request.credentials)?, request, true)
}
