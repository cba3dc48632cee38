//! A guest: the machine, the session that drives it, and what its end means.

pub mod accel;
pub mod backtrace;
pub mod initramfs;
pub mod linux;
pub mod log;
pub mod processor;
pub mod qemu;
pub mod session;
pub mod terminal;
