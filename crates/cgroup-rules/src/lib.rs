//! The rules of control groups (cgroups(7), "Cgroups version 2";
//! Documentation/admin-guide/cgroup-v2.rst and kernel/cgroup/cgroup.c of Linux 6.1), without a tree
//! and without processes.
//!
//! | module | contents |
//! |---|---|
//! | [`amount`] | the amounts of memory that programs write |
//! | [`bandwidth`] | the processor time that a group may have in each period |
//! | [`controllers`] | which controllers there are, what `cgroup.subtree_control` is told |
//! | [`domain`] | which group may hold processes, and which may give controllers to its children |
//! | [`io`] | the limits of input and output, and how a group is held to them |
//! | [`memory`] | what is charged for memory, with limits, events and uses |
//! | [`meter`] | counts that rise and fall in a group and in all around it, with limits |
//! | [`number`] | the numbers and limits that programs write |
//! | [`path`] | the path of a group as a program in a cgroup namespace sees it |
//! | [`share`] | the weights of groups, and how they share a processor |
//!
//! There are no threaded groups: a group is a domain, and what Linux calls a *thread root* arises
//! only as it does without them, in a group that has processes and gives threaded controllers to
//! its children.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod amount;
pub mod bandwidth;
pub mod controllers;
pub mod domain;
pub mod io;
pub mod memory;
pub mod meter;
pub mod number;
pub mod path;
pub mod share;
