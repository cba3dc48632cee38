//! Asynchronous input and output: requests (`io_submit(2)`, `include/uapi/linux/aio_abi.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

#[allow(missing_docs, reason = "named as in linux/aio_abi.h")]
mod constants {
    pub const IOCB_CMD_PREAD: u16 = 0;
    pub const IOCB_CMD_PWRITE: u16 = 1;
    pub const IOCB_CMD_FSYNC: u16 = 2;
    pub const IOCB_CMD_FDSYNC: u16 = 3;
    pub const IOCB_CMD_POLL: u16 = 5;
    pub const IOCB_CMD_PREADV: u16 = 7;
    pub const IOCB_CMD_PWRITEV: u16 = 8;

    pub const IOCB_FLAG_RESFD: u32 = 1;
    pub const IOCB_FLAG_IOPRIO: u32 = 2;

    /// What the kernel writes into `aio_key`, and `io_cancel(2)` wants there.
    pub const KIOCB_KEY: u32 = 0;
}
pub use constants::*;

/// `struct iocb`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in linux/aio_abi.h")]
pub struct Iocb {
    pub aio_data: u64,
    pub aio_key: u32,
    pub aio_rw_flags: u32,
    pub aio_lio_opcode: u16,
    pub aio_reqprio: i16,
    pub aio_fildes: i32,
    pub aio_buf: u64,
    pub aio_nbytes: u64,
    pub aio_offset: i64,
    pub aio_reserved2: u64,
    pub aio_flags: u32,
    pub aio_resfd: i32,
}

/// Where [`Iocb::aio_key`] lies, in bytes.
pub const KEY: usize = core::mem::offset_of!(Iocb, aio_key);
