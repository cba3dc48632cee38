//! Watching a start: how the functions on its way say where they are.
//!
//! They take a [`Watch`] as a type parameter and call it at each step. Starts that nobody watches
//! run the functions made for [`Unwatched`], whose calls are empty and leave no instruction behind;
//! with `trace=starts` on the kernel's command line the entries of the kernel choose the functions made for
//! `process::starts::Watched` instead. So nothing on the way asks whether it is watched.
//!
//! The road not taken: a flag that is tested at each step, or calls through a table. Both cost every
//! start some instructions for what one in a million wants.

pub use hayate_start_account::Part;

/// Who is told where a start is.
pub trait Watch {
    /// The start goes on with this part.
    #[inline(always)]
    fn enter(_: Part) {}

    /// The program is in its space: the address of its entry, and whether a dynamic linker comes
    /// before it.
    #[inline(always)]
    fn attached(_path: &[u8], _entry: usize, _linked: bool) {}

    /// A page of a kept space was looked at. `written`: it was its own and had been written to, and
    /// has the content of a `file` again, or zeroes.
    #[inline(always)]
    fn restored(_written: bool, _file: bool) {}

    /// The space's own pages now, as (copied, zeroed), if anybody wants to know.
    #[inline(always)]
    fn pages(_when: Pages, _count: impl FnOnce() -> (u64, u64)) {}
}

/// When pages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Before exec fills any.
    Before,
    /// After it has.
    After,
}

/// Nobody.
pub struct Unwatched;

impl Watch for Unwatched {}
