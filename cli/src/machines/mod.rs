//! Machines that stay: `start`, `exec`, `ps`, `logs`, `cp`, `stop`, `rm`.
//!
//! # Who owns a machine
//!
//! `start` starts this program once more, as the hidden command `keep`, in a session of its own.
//! That process is the machine's *supervisor* ([`supervisor`]): it is QEMU's parent, and runs the
//! same session as `run` ([`crate::guest::session`]) until the machine ends. QEMU dies with it
//! (`PR_SET_PDEATHSIG`). It owns the channel ([`hayate_channel`]) and serves any number of clients
//! at a socket ([`hub`]); a client is a program that `exec` runs, or `stop`.
//!
//! # What lies on the disk
//!
//! A folder `build/machines/NAME` ([`directory`]), for its owner only: `lock`, which the supervisor
//! has locked as long as it lives (flock(2)), `socket`, `state`, and logs ([`journal`]). Whether a
//! machine runs is asked of the lock and of nothing else: no number of a process can be mistaken.
//! Every command that lists or looks up machines clears up after supervisors that were killed. A
//! folder that was removed ends its machine.
//!
//! # Ends
//!
//! | what ends | what follows |
//! |---|---|
//! | the program of `exec` | its client has the status; nobody else notices |
//! | a client (SIGKILL) | its program gets SIGHUP, after two seconds SIGKILL |
//! | `start`, before the machine is ready | the supervisor gets SIGTERM, and nothing stays |
//! | the process of `--owner` | the machine is stopped |
//! | the first program | the machine is stopped |
//! | QEMU | the supervisor notes why, removes the socket, and ends |
//! | the supervisor (SIGKILL) | QEMU dies; the next command notes it, and removes the socket |
//!
//! # Road not taken
//!
//! QEMU's own `-daemonize` with a socket of its own for the channel: such a socket has one client
//! at a time, and nobody would hear that QEMU stopped the machine. One daemon for all machines: its
//! death would end them all. virtio-vsock: it needs `/dev/vhost-vsock` of the host, which
//! containers do not have, and its latency is that of a virtio-serial port.

pub mod copy;
pub mod directory;
pub mod exec;
pub mod hub;
pub mod journal;
pub mod manage;
pub mod start;
pub mod supervisor;
