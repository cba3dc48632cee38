//! `./hayate off2f`: executables in two files, on the host.
//!
//! [`files`] converts, restores and examines single files, [`tree`] converts a whole root file
//! system for an image, [`store`] is the file behind non-volatile memory. The format itself is in
//! the crate `hayate-off2f`, the store in `hayate-nvm-store`; the kernel uses both.

mod files;
mod store;
pub mod tree;

pub use files::handle;
pub use store::{FileStore, blank};
