//! Measuring a start: how the functions on its path report their steps.
//!
//! They take a [`Watch`] as a type parameter and call it at each step. Starts that are not measured
//! run the functions instantiated for [`Unwatched`], whose calls are empty and leave no instruction
//! behind. With `trace=starts` on the kernel's command line the entries of the kernel choose the
//! functions instantiated for `process::starts::Watched`. So nothing on the path checks whether it
//! is measured.
//!
//! The parameter is on six functions: the two of exec in `syscall::process`, `program::find` and
//! `program::prepare`, [`super::spaces::take`] and the restoring of a space. The kernel holds them
//! twice; the second copy is only run under `trace=starts`.
//!
//! Roads not taken:
//!
//! * A flag that is tested at each step, or calls through a table. Both cost every start some
//!   instructions for a measurement that one in a million needs.
//! * Calls that are patched in when they are wanted (Linux' static keys). The kernel's text is
//!   never writable, and a patch needs the rules for code that other processors execute: far more
//!   code than six parameters.
//! * Marks in the handlers alone, which boot exchanges anyway. They see where exec begins and ends,
//!   but not its parts, and the parts are what the measurement is for.
//! * Another kernel, built with the marks. Then what is measured is not what runs.

pub use hayate_start_account::{Began, Image, StartPart};

/// An observer of a start's steps.
pub trait Watch {
    /// The start enters this part.
    #[inline(always)]
    fn enter(_: StartPart) {}

    /// It is decided where the program of this path begins; `_how` also tells of its image, and
    /// runs only if that is recorded.
    #[inline(always)]
    fn begins(_path: &[u8], _how: impl FnOnce() -> (Began, Image)) {}

    /// The program is mapped: the address of its entry, and whether a dynamic linker runs before
    /// it.
    #[inline(always)]
    fn attached(_entry: usize, _linked: bool) {}

    /// A page of a kept space was looked at. `written`: it was a private page that had been
    /// written, and now has the content of a `file` again, or zeroes.
    #[inline(always)]
    fn restored(_written: bool, _file: bool) {}

    /// The numbers of private pages now, as (copied, zeroed); `_count` runs only if they are
    /// recorded.
    #[inline(always)]
    fn pages(_when: Pages, _count: impl FnOnce() -> (u64, u64)) {}
}

/// The moment at which pages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Before exec fills any page.
    Before,
    /// After exec has filled them.
    After,
}

/// An observer that does nothing.
pub struct Unwatched;

impl Watch for Unwatched {}
