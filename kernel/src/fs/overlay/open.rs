//! Open files of the overlay: each operation goes to the layer that counts at that moment.
//!
//! A file opened for reading may be copied up later through another open; from then on reads see
//! the upper file, as on Linux. Pages that were mapped before stay those of the lower file.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::copy_up::Content;
use super::node::Node;
use crate::credentials::Credentials;
use crate::vfs::inode::FileKind;
use crate::vfs::open_file::flags::O_TRUNC;
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits, Whence};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// An open regular file.
struct File {
    node: Arc<Node>,
    /// The operations in use, and whether they belong to the upper layer.
    real: SpinLock<(bool, Arc<dyn FileOps>)>,
}

/// Opens a regular file; copies it up if it is opened for writing.
pub fn open(node: Arc<Node>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
    if node.kind != FileKind::Regular {
        return Err(Errno::ENXIO);
    }
    let truncates = request.flags & O_TRUNC != 0;
    if request.writes() || truncates {
        node.copy_up(if truncates { Content::Drop } else { Content::Keep })?;
    }
    let upper = node.upper();
    let is_upper = upper.is_some();
    let ops = upper.unwrap_or_else(|| node.real()).open(request)?;
    Ok(Arc::new(File { node, real: SpinLock::new((is_upper, ops)) }))
}

impl File {
    fn real(&self, file: &OpenFile) -> Result<Arc<dyn FileOps>> {
        let (is_upper, ops) = self.real.lock().clone();
        if is_upper {
            return Ok(ops);
        }
        let Some(upper) = self.node.upper() else { return Ok(ops) };
        // The caller's permission was checked when it opened the file in the overlay.
        let request = OpenRequest {
            flags: file.flags(),
            credentials: &Credentials::root(),
            location: file.location(),
        };
        let ops = upper.open(&request)?;
        let old = core::mem::replace(&mut *self.real.lock(), (true, Arc::clone(&ops)));
        drop(old);
        Ok(ops)
    }
}

impl FileOps for File {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        self.real(file)?.read(file, offset, out)
    }

    fn write(&self, file: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        self.real(file)?.write(file, offset, input)
    }

    fn poll(&self, _: &OpenFile, _: &mut Registrar<'_>) -> Events {
        Events::ALWAYS
    }

    fn ioctl(&self, file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        self.real(file)?.ioctl(file, command, arg)
    }

    fn map(&self, file: &OpenFile) -> Result<MapSource> {
        self.real(file)?.map(file)
    }

    fn seek(&self, file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        self.real(file)?.seek(file, position, offset, whence)
    }

    fn allocate(&self, file: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.real(file)?.allocate(file, mode, offset, length)
    }

    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        self.real(file)?.sync(file, data_only)
    }
}
