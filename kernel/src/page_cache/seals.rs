//! Seals of `F_ADD_SEALS` (`memfd_create(2)`).

#![allow(missing_docs, reason = "the names are those of fcntl(2)")]

pub const F_SEAL_SEAL: u32 = 1;
pub const F_SEAL_SHRINK: u32 = 2;
pub const F_SEAL_GROW: u32 = 4;
pub const F_SEAL_WRITE: u32 = 8;
pub const F_SEAL_FUTURE_WRITE: u32 = 16;
