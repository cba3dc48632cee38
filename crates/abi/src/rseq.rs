//! Restartable sequences (`rseq(2)`, `include/uapi/linux/rseq.h` of Linux 6.1).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The size of `struct rseq`, of which its address is a multiple.
pub const AREA_SIZE: usize = 32;
/// Where `cpu_id_start` is in it.
pub const CPU_ID_START: usize = 0;
/// Where `cpu_id` is in it.
pub const CPU_ID: usize = 4;
/// Where `rseq_cs`, the address of the sequence, is in it.
pub const SEQUENCE: usize = 8;
/// Where `flags` is in it.
pub const FLAGS: usize = 16;

/// Flag of the call: the area is given up.
pub const RSEQ_FLAG_UNREGISTER: u32 = 1;
/// `RSEQ_CPU_ID_UNINITIALIZED`: the area is not registered.
pub const CPU_ID_UNINITIALIZED: u32 = u32::MAX;

/// `struct rseq_cs`: a sequence.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
#[allow(missing_docs, reason = "named as in linux/rseq.h")]
pub struct RseqCs {
    pub version: u32,
    pub flags: u32,
    pub start_ip: u64,
    pub post_commit_offset: u64,
    pub abort_ip: u64,
}

impl RseqCs {
    /// Whether the instruction at `ip` is in the sequence.
    pub fn holds(&self, ip: u64) -> bool {
        ip.wrapping_sub(self.start_ip) < self.post_commit_offset
    }
}
