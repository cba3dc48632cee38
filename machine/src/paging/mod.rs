//! Page tables of programs: four levels, frames counted, tables shareable between spaces.
//!
//! A [`PageTable`] is a root, its lock, and the data that the lock protects besides (the kernel
//! puts the map of regions there). All changes of entries go through an [`Edit`], which the lock's
//! guard lends, so two changes never race. The edit collects what may only be given up after a TLB
//! flush, and gives it up when it is dropped, before the lock is released. A [`Slot`], the place of
//! one page, borrows the edit: while a slot exists, the table that it is in cannot be removed.
//!
//! Invariants:
//! * an entry of a page holds one reference to its frame (the zero page none; for large pages see
//!   [`large`]), so a frame that is mapped cannot be freed; entries of non-volatile memory made by
//!   [`attach`] hold none, because that memory cannot be freed at all;
//! * a frame leaves the table only through an edit's gather, that is, after every processor that
//!   may have it in a TLB has dropped it;
//! * tables are shared between spaces only as [`share`] describes: forking takes as many steps as
//!   the root has entries, whatever the size of the space, and the first change below a shared
//!   table copies that table.
//!
//! A table that is loaded on a processor ([`PageTable::activate`]) stays loaded there until another
//! table is loaded, even while the processor runs a kernel thread. Dropping the table first sends
//! such processors to the kernel's own root; moving it moves nothing that they point to. The
//! content of a large table may be given back later: [`teardown`].
//!
//! Lock order: a page table's lock comes before those of the frame allocator and the page cache;
//! two page tables are never locked at once, except a new one by its only owner (fork).
//!
//! Layers, lowest first: [`entry`], [`table`], [`usage`], [`run`], [`large`], [`page`], [`share`],
//! [`teardown`], [`gather`], [`own`], [`kernel`], [`loaded`], [`slot`], [`edit`]; then what builds
//! on an edit ([`change`], [`collapse`], [`attach`], [`restore`], [`end`], [`frozen`]),
//! [`page_table`] and [`supervisor`].
//!
//! Road not taken: the `x86_64` crate's mapper. It tracks neither occupancy nor counts nor sharing,
//! and walks each page from the root.

mod attach;
mod change;
mod collapse;
mod edit;
mod end;
mod entry;
mod frozen;
mod gather;
pub(crate) mod kernel;
mod large;
mod loaded;
mod own;
mod page;
mod page_table;
mod restore;
mod run;
mod share;
mod slot;
mod supervisor;
mod table;
pub mod teardown;
mod usage;

pub use attach::Prebuilt;
pub use edit::Edit;
pub use entry::{Access, PageKind};
pub use frozen::{Frozen, Place};
pub use kernel::zero_frame;
pub use large::count as large_pages;
pub use loaded::deactivate;
pub use page::Page;
pub use page_table::{Guard, PageTable};
pub use restore::{Fate, Found};
pub use slot::Slot;
pub use table::OutOfMemory;
pub use usage::Resident;
pub(crate) use usage::Usage;

use crate::frames::deferred;
use crate::ipi;

/// Makes page tables ready for use, and registers what lower layers call. Called once, on the first
/// processor, when frames can be allocated.
///
/// # Panics
/// If memory is exhausted at boot.
pub(crate) fn init() {
    kernel::init();
    deferred::register(teardown::free_some);
    ipi::register(ipi::SpaceActions { leave: loaded::leave, follow_mode: loaded::follow_mode });
}
