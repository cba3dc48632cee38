//! The rules of Landlock (`landlock(7)`, security/landlock/ of Linux 6.1: ABI 2), without files.
//!
//! A [`Ruleset`] is what a program puts together: the rights that it handles, and for some files
//! and directories which of them it allows. A thread that restricts itself gets a [`Domain`], which
//! has the ruleset as its newest layer above those of its old domain. A layer allows a right that
//! it handles if one of its rules for the file or a directory above says so; a domain allows what
//! each of its layers allows.
//!
//! A file is named by a [`Key`], and a rule holds a *pin* of the caller's that keeps the file from
//! going, so that its key names no other. The path to a file comes as the keys from it up to the
//! real root.
//!
//! **Moving** a file into another directory must not give a program rights to it that it lacked
//! ([`Domain::may_move`]): either all rights that are handled are allowed at both places, or the
//! new place is restricted at least as the old one, and both allow [`Access::REFER`]. That right
//! must be allowed even by layers that do not handle it.
//!
//! # Road not taken
//!
//! Deciding once for each directory and keeping the answer: a rename of a directory above changes
//! it, and only confined programs pay for the walk.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod moves;
mod rules;

pub use moves::{Child, Move, Refused};
pub use rules::{Access, Domain, Failure, Key, Lineage, Ruleset};

/// The version that `landlock_create_ruleset(2)` tells.
pub const ABI: i32 = 2;

/// The most layers of a domain (`LANDLOCK_MAX_NUM_LAYERS`).
pub const MOST_LAYERS: usize = 16;

#[cfg(test)]
mod tests;
