//! Control groups (cgroups(7), "Cgroups version 2"; kernel/cgroup of Linux 6.1).
//!
//! | file | contents |
//! |---|---|
//! | [`group`] | the tree of groups: names, counts, what is changed by whom |
//! | [`events`] | files of which programs are told when they change |
//! | `frost` | which groups are frozen |
//! | [`member`] | the place of a process in the tree |
//! | [`namespace`] | cgroup namespaces: a group that is the root of what is seen |
//! | [`rest`] | threads that count as frozen |
//! | [`list`] | the members of a group as processes |
//! | [`freezer`] | freezing groups, and the rest of their members |
//! | [`follow`] | starts and ends of members |
//! | [`memory`] | whom processes charge their memory, and which of them end at a limit |
//! | [`filters`], [`devices`] | programs that say which devices members may use |
//! | [`cpu`] | whose processor time threads share, and their rest when it is spent |
//! | [`io`] | which group pays for what processes ask of disks, and their rest |
//! | [`accounts`] | what controllers keep of a group, as a whole |
//! | [`moves`] | moving a process to another group; ending all of a group |
//!
//! `fs::cgroup` shows the tree as files. The rules without a tree are in the crate
//! `hayate_cgroup_rules`.
//!
//! # Design
//!
//! All threads of a process are in one group: there are no threaded groups, and the file that would
//! make one refuses (`EOPNOTSUPP`). A process of the **root** is in no list and counted nowhere.
//! That a process is, or was, in another group is a bit of [`Process::marks`], a word that its
//! starts and ends read anyway; only behind it is there a [`member::Member`]. So a start or an end
//! in the root costs a look at that bit.
//!
//! A start or an end in another group takes the lock of its maker's place, that of the group's
//! list, and atomic counts up to the root ([`hayate_cgroup_rules::meter`]); nothing that all
//! processors share but the counts of groups that both are in. Linux takes `css_set_lock`, which is
//! global.
//!
//! What is kept of programs is not for members: a program that a member starts begins neither at an
//! image nor at a template, and none is made of it.
//!
//! # Locks
//!
//! 1. [`group::lock`], which sleeps: names, what controllers a group gives, moves, freezing, ending
//!    (Linux: `cgroup_mutex`).
//! 2. The threads of a process (`Process::threads`).
//! 3. The place of a process ([`member::Member`]); of a maker before that of its child.
//! 4. The list of a group's members; the state of freezing, which one spin lock has for all groups
//!    that are being frozen. Both are leaves.
//!
//! News are told ([`group::News`]) when no spin lock is held.
//!
//! Road not taken: a table of the groups of all processes, keyed by number: a start in the root
//! would pay a look-up, or the table would have to be told of each process that leaves it.
//!
//! [`Process::marks`]: super::record::Process::is_grouped

pub mod accounts;
pub mod cpu;
pub mod devices;
pub mod events;
pub mod filters;
pub mod follow;
pub mod freezer;
mod frost;
pub mod group;
pub mod io;
pub mod list;
pub mod member;
pub mod memory;
pub mod moves;
pub mod namespace;
pub mod rest;
