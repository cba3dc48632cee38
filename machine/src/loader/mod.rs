//! The loader's information (PVH): the memory map, the command line, modules, where ACPI's tables
//! are.
//!
//! All of it is checked: `hvm_start_info` has been seen with garbage after a warm reset, so counts
//! are limited, ranges are cut to plausible ones, and a module that overlaps the kernel is dropped.

mod cmdline;
mod info;
mod start_info;

pub use cmdline::{flag, init_arguments, option, options};
pub(crate) use info::keep;
pub use info::{BootInfo, MemoryKind, MemoryRange, info};
pub(crate) use start_info::{firmware_bytes, image, read};
