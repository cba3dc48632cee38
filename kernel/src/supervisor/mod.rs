//! Supervisor mode (DMSM): a running process moved between ring 3 and ring 0, where its system
//! calls become function calls.
//!
//! | file | contents |
//! |---|---|
//! | [`switch`] | which process may be switched, and what exec does with its mode |
//! | [`space`] | the privilege level of a space, which a switch changes |
//! | [`sites`] | the records of a space's call sites |
//! | [`call_sites`] | `syscall` instructions patched into jumps to the gate |
//! | [`gate`] | the handlers behind the gate, and when a call site is worth its patch |
//!
//! The floors of this folder are those of the kernel: [`sites`] lies below memory, [`space`] and
//! [`call_sites`] belong to memory, [`switch`] to processes, [`gate`] to system calls. The page
//! tables of both modes are in `machine::paging::supervisor`, the traps of programs in ring 0 in
//! `machine::trap::supervisor`. How it is used, and which bounds hold: docs/dmsm.md.

pub mod call_sites;
pub mod gate;
pub mod sites;
pub mod space;
pub mod switch;
