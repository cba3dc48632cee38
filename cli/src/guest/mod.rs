//! A guest: the machine, the session that drives it, and the meaning of its end.

pub mod accel;
pub mod backtrace;
pub mod course;
pub mod event;
pub mod fault;
pub mod initramfs;
pub mod linux;
pub mod log;
pub mod monitor;
pub mod processor;
pub mod qemu;
pub mod session;
pub mod streams;
pub mod terminal;
pub mod verdict;
