//! The kernel's own page tables.
//!
//! They are built once ([`mod@build`]); the top-level entries of all areas exist from then on, so
//! every page table of a program shares them ([`crate::paging`]). Pages that are mapped later
//! ([`pages`]) only change tables below these entries. Tables are never freed.

mod build;
mod frames;
mod pages;

pub(crate) use build::{activate, build, map_late, share_half};
pub use frames::kept_frames;
pub(crate) use frames::{early_frame, early_size, set_early};
pub(crate) use pages::{
    frame_of, map_device, map_for_good, map_stack, page_entry, swap_page, unmap_stack,
};
