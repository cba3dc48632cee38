//! Texts on non-volatile memory: the store of each area, and the texts in use.
//!
//! Each area of non-volatile memory ([`machine::nvm`]) holds one store of texts
//! (`hayate_nvm_store`). [`find`] returns a [`Text`] by its identity; while there is a reference to
//! it, it is neither removed nor moved. [`find`] reads nothing of the text: the store guarantees
//! that the text matches its identity, from its publication on and across any power cut. With
//! `nvm_verify` on the kernel's command line, each text is read and hashed once, when it is first
//! used after a boot.
//!
//! A blank area (its first page is all zeroes) gets an empty store at boot, and so does pseudo
//! memory without one, because its content is undefined after the machine was switched off. Any
//! other content of an area is left alone.
//!
//! | file | what it keeps |
//! |---|---|
//! | `memory` | an area as the store's region; a device's memory with its flush |
//! | `bank` | the stores, texts in use |
//! | `change` | put, remove, verify, compact |
//!
//! Lock order: a bank's store (sleeping) before its table of texts in use (a spin lock and a leaf)
//! and before its device's state (sleeping).

mod bank;
mod change;
mod memory;

pub use bank::{Bank, Text, banks, find, init};
pub use change::{compact, format, put, remove, verify};
pub use memory::Memory;
