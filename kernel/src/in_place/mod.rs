//! Executables in two files (OFF2F): text on non-volatile memory, mapped and executed where it
//! lies.
//!
//! | file | contents |
//! |---|---|
//! | [`store`] | the texts on each area of non-volatile memory, and those in use |
//! | [`view`] | a header file shown as the executable that it was made from |
//! | [`attach`] | text entered in the page table when it is mapped |
//!
//! The floors of this folder are those of the kernel: [`store`] stands on drivers, [`view`] beside
//! the page cache, [`attach`] belongs to memory. The format of header files is in `crates/off2f`,
//! that of the store in `crates/nvm-store`. How it is used: docs/off2f.md.

pub mod attach;
pub mod store;
pub mod view;
