//! A guest: the machine, the session that drives it, and the meaning of its end.

pub mod accel;
pub mod backtrace;
pub mod disk;
pub mod event;
pub mod initramfs;
pub mod inquiry;
pub mod lifecycle;
pub mod linux;
pub mod log;
pub mod machine_fault;
pub mod network;
pub mod nvm;
pub mod processor;
pub mod qemu;
pub mod qmp;
pub mod session;
pub mod streams;
pub mod terminal;
pub mod verdict;
pub mod volumes;
