//! The socket of a descriptor.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use crate::process;
use crate::vfs::open_file::OpenFile;
use crate::vfs::socket::SocketOps;

/// Returns the open file of a socket's descriptor. Fails with EBADF, ENOTSOCK.
pub(super) fn lookup(fd: i32) -> Result<Arc<OpenFile>> {
    let file = process::current().files().get_open(fd)?;
    if file.ops().as_socket().is_some() { Ok(file) } else { Err(Errno::ENOTSOCK) }
}

/// Returns the socket of an open file. Fails with ENOTSOCK.
pub(super) fn socket_of(file: &OpenFile) -> Result<&dyn SocketOps> {
    file.ops().as_socket().ok_or(Errno::ENOTSOCK)
}
