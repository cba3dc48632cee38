//! The channel between a machine that stays and its host: any number of programs over one stream of
//! bytes each way.
//!
//! A *session* is one program in the guest with its streams. Everything travels in frames
//! ([`frame`]): a header of nine bytes (length of the payload, session, kind), then the payload.
//! The host opens sessions with numbers that it never uses again, so that a late frame can not
//! reach another program.
//!
//! # Flow
//!
//! Each stream of a session has a window ([`window`]): its sender may have [`WINDOW`] bytes on the
//! way that the other side has not passed on, and gets credit back as they are. So a program whose
//! output nobody reads stops, as at a full pipe, and no other one does.
//!
//! # Snapshots
//!
//! A machine becomes a snapshot between two messages of the host:
//! [`Settle`](frame::Message::Settle) ends all programs, after which the guest starts none, and
//! [`Fresh`](frame::Message::Fresh) makes a clone another machine than its twins, after which it
//! does. The guest greets the host once more.
//!
//! # Trust
//!
//! Bytes from the guest are allegations. The decoder refuses kinds that the side does not send, and
//! lengths above those of the kind; it grows with the bytes that arrived, and not by what a header
//! promises. [`relay`] refuses data beyond a window and frames about sessions that are not open, so
//! that the host queues a bounded number of bytes for each client.
//!
//! # Road not taken
//!
//! A port of the machine for each program: QEMU makes ports at its start, the driver of Linux knows
//! at most 511, and a program would wait for the interrupt of a new device. yamux and HTTP/2 as
//! formats: both have what this has, and neither has terminals, signals and exit statuses.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
pub mod frame;
pub mod relay;
pub mod window;

/// The version of the format. Both sides are built from one source tree, but a machine may live
/// longer than the program that started it.
pub const VERSION: u16 = 2;

/// The bytes of a stream that may be on the way.
pub const WINDOW: u32 = 128 << 10;

/// The session of the program that the machine was started with. The host opens the others.
pub const FIRST: u32 = 0;
