//! The options of a socket that mean the same for every family (level `SOL_SOCKET`, socket(7)), and
//! the memory of a program from and to which values of options are copied.
//!
//! The system calls read and set these options; families look at them when they act. An option is
//! kept here only if every family that takes it either heeds it or has no use for it on Linux
//! either.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::user;
use hayate_machine::user::UserPtr;
use zerocopy::{FromBytes, IntoBytes};

use super::caller;
use crate::namespace::Handle;
use crate::net::config::Network;
use crate::schedule::time;

/// The level of these options.
pub const SOL_SOCKET: i32 = 1;

/// net.core.wmem_default, and the limit that SO_SNDBUF may be set to (wmem_max).
pub const SEND_DEFAULT: usize = 212_992;
/// net.core.rmem_default and rmem_max.
pub const RECEIVE_DEFAULT: usize = 212_992;
/// SOCK_MIN_SNDBUF of Linux 6.1 on x86-64.
const SEND_LEAST: usize = 4608;
/// SOCK_MIN_RCVBUF.
const RECEIVE_LEAST: usize = 2304;

/// One of the two buffers of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// SO_SNDBUF.
    Send,
    /// SO_RCVBUF.
    Receive,
}

impl Buffer {
    /// The largest wish that is heeded, and the least size.
    fn limits(self) -> (usize, usize) {
        match self {
            Buffer::Send => (SEND_DEFAULT, SEND_LEAST),
            Buffer::Receive => (RECEIVE_DEFAULT, RECEIVE_LEAST),
        }
    }

    /// The size for a wish: half of every buffer is assumed to be overhead, so twice the requested
    /// size is granted; a wish beyond the limits is cut (socket(7)). A negative one is a very large
    /// one (`sk_setsockopt`).
    pub fn granted(self, asked: i32) -> usize {
        let (most, least) = self.limits();
        ((asked as u32 as usize).min(most) * 2).max(least)
    }

    /// The size for a wish that no limit cuts (SO_SNDBUFFORCE); a negative one is 0.
    pub fn forced(self, asked: i32) -> usize {
        (asked.clamp(0, i32::MAX / 2) as usize * 2).max(self.limits().1)
    }
}

bitflags::bitflags! {
    /// Options that are switched on and off.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Switches: u32 {
        /// SO_REUSEADDR.
        const REUSE_ADDRESS = 1;
        /// SO_KEEPALIVE.
        const KEEP_ALIVE = 2;
        /// SO_BROADCAST.
        const BROADCAST = 4;
        /// SO_OOBINLINE: out-of-band data is read with the rest.
        const URGENT_INLINE = 8;
        /// SO_PASSCRED: the credentials of senders are reported.
        const PASS_CREDENTIALS = 16;
        /// SO_LINGER: close(2) waits for what is not yet sent.
        const LINGER = 32;
        /// SO_DONTROUTE: only hosts on the same link are reached.
        const ON_LINK = 64;
        /// SO_NO_CHECK: datagrams over IPv4 without a checksum.
        const NO_CHECKSUM = 128;
        /// SO_TIMESTAMP: messages are reported with the time of their arrival.
        const TIMESTAMP = 256;
        /// SO_TIMESTAMPNS: the same in nanoseconds, in place of the other.
        const TIMESTAMP_NS = 512;
        /// SO_RXQ_OVFL: the number of lost messages is reported.
        const LOST = 1024;
        /// SO_DEBUG.
        const DEBUG = 2048;
        /// SO_TIMESTAMPING with SOF_TIMESTAMPING_RX_SOFTWARE: what arrives is noted with its time.
        const TIMES = 4096;
        /// The option about times that was set last was a `*_NEW`: so are the numbers of the
        /// control messages (`SOCK_TSTAMP_NEW`).
        const NEW_TIMES = 8192;
        /// SO_PASSSEC: the security context of senders is reported. Without a security module none
        /// has one, as on a Linux without (`security_secid_to_secctx`).
        const PASS_SECURITY = 16384;
    }
}

/// The options that every socket has.
pub struct Common {
    switches: AtomicU32,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds; 0 means none.
    receive_timeout: AtomicU64,
    send_timeout: AtomicU64,
    /// SO_RCVLOWAT: a stream is read when so many bytes are there.
    pub low_water: AtomicU32,
    /// The time of SO_LINGER in seconds.
    pub linger: AtomicU32,
    /// SO_PRIORITY.
    pub priority: AtomicU32,
    /// SO_MARK.
    pub mark: AtomicU32,
    /// SO_INCOMING_CPU: the processor that the last packet came in on, or that was set; all ones
    /// for none.
    pub processor: AtomicU32,
    /// SO_TIMESTAMPING: its flags.
    pub timestamping: AtomicU32,
    /// SO_PEEK_OFF; negative: off.
    peek_offset: AtomicI32,
    /// SO_COOKIE; 0 until a program asks.
    cookie: AtomicU64,
    /// The number of its inode; 0 while it has no open file.
    inode: AtomicU64,
    /// The network namespace that it is in, for its life.
    network: Handle<Network>,
}

static COOKIES: AtomicU64 = AtomicU64::new(1);

/// Returns the cookie that a socket keeps at this place, which is 0 until somebody asks.
pub fn cookie_in(place: &AtomicU64) -> u64 {
    match place.load(Ordering::Relaxed) {
        0 => {
            let new = COOKIES.fetch_add(1, Ordering::Relaxed);
            let met = place.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
            met.err().unwrap_or(new)
        }
        cookie => cookie,
    }
}

impl Drop for Common {
    fn drop(&mut self) {
        if !self.network.is_first() {
            self.network.sockets.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Common {
    /// Makes the options of a new socket, which is in the network namespace of its maker.
    #[allow(clippy::new_without_default, reason = "it asks who makes it")]
    pub fn new() -> Self {
        Self::of(&caller::network())
    }

    /// Makes the options of a new socket that is in a given network namespace.
    pub fn of(network: &Handle<Network>) -> Self {
        if !network.is_first() {
            network.sockets.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            switches: AtomicU32::new(0),
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            low_water: AtomicU32::new(1),
            linger: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            mark: AtomicU32::new(0),
            processor: AtomicU32::new(u32::MAX),
            timestamping: AtomicU32::new(0),
            peek_offset: AtomicI32::new(-1),
            cookie: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            network: network.clone(),
        }
    }

    /// Returns the network namespace that it is in.
    #[inline]
    pub fn network(&self) -> &Handle<Network> {
        &self.network
    }

    /// Copies the options of a listener to a connection that it accepts.
    pub fn inherit(&self, listener: &Common) {
        let (to, from) = (self.words(), listener.words());
        for (to, from) in to.into_iter().zip(from) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for which in [Buffer::Receive, Buffer::Send] {
            let span = listener.timeout(which).load(Ordering::Relaxed);
            self.timeout(which).store(span, Ordering::Relaxed);
        }
    }

    fn words(&self) -> [&AtomicU32; 7] {
        let Common { switches, low_water, linger, priority, mark, processor, .. } = self;
        [switches, low_water, linger, priority, mark, processor, &self.timestamping]
    }

    /// Returns the number of bytes that a read of a stream waits for if it wants `room` bytes at
    /// most: SO_RCVLOWAT, or all of them with MSG_WAITALL (`sock_rcvlowat`).
    pub fn target(&self, room: usize, wait_for_all: bool) -> usize {
        if wait_for_all {
            return room;
        }
        (self.low_water.load(Ordering::Relaxed) as usize).min(room)
    }

    /// Returns a number that no other socket has: SO_COOKIE.
    pub fn cookie(&self) -> u64 {
        cookie_in(&self.cookie)
    }

    /// SO_PEEK_OFF: the number of bytes that a read with MSG_PEEK passes over; negative: it has
    /// none, and reads do not change it.
    pub fn peek_off(&self) -> i32 {
        self.peek_offset.load(Ordering::Relaxed)
    }

    /// Sets SO_PEEK_OFF.
    pub fn set_peek_off(&self, offset: i32) {
        self.peek_offset.store(offset, Ordering::Relaxed);
    }

    /// Returns the number of bytes that a read passes over, which peeks or does not; `None` if it
    /// begins with the first (`sk_peek_offset`).
    #[inline]
    pub fn passed_over(&self, peeks: bool) -> Option<usize> {
        if peeks { usize::try_from(self.peek_off()).ok() } else { None }
    }

    /// After a read of `count` bytes: the next peek begins behind those that this one showed, and
    /// so much earlier when bytes were taken (`sk_peek_offset_fwd`, `sk_peek_offset_bwd`).
    #[inline]
    pub fn note_read(&self, count: usize, peeks: bool) {
        if self.peek_off() >= 0 {
            self.move_peek_offset(if peeks { count as i64 } else { -(count as i64) });
        }
    }

    #[cold]
    fn move_peek_offset(&self, by: i64) {
        let moved = |old: i32| (old >= 0).then(|| (i64::from(old) + by).clamp(0, i32::MAX.into()));
        // One that was switched off meanwhile stays so.
        let _ = self.peek_offset.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
            moved(old).map(|offset| offset as i32)
        });
    }

    /// Returns the number of the socket's inode, by which programs know it in the lists of
    /// `/proc/net`; 0 if it has no open file.
    pub fn inode(&self) -> u64 {
        self.inode.load(Ordering::Relaxed)
    }

    /// Notes the number of its inode, or that its open file is gone (0).
    pub fn set_inode(&self, number: u64) {
        self.inode.store(number, Ordering::Relaxed);
    }

    /// Notes that a packet came in on this processor (SO_INCOMING_CPU).
    #[inline(always)]
    pub fn came_in_here(&self) {
        self.processor.store(cpu::id() as u32, Ordering::Relaxed);
    }

    /// Whether an option is on.
    pub fn has(&self, option: Switches) -> bool {
        self.switches.load(Ordering::Relaxed) & option.bits() != 0
    }

    /// Switches an option on or off.
    pub fn switch(&self, option: Switches, on: bool) {
        if on {
            self.switches.fetch_or(option.bits(), Ordering::Relaxed);
        } else {
            self.switches.fetch_and(!option.bits(), Ordering::Relaxed);
        }
    }

    /// Whether messages are noted with the time of their arrival, because the program asks for it
    /// by SO_TIMESTAMP, SO_TIMESTAMPNS or SO_TIMESTAMPING. (Linux notes it for all sockets while
    /// one asks.)
    #[inline]
    pub fn keeps_times(&self) -> bool {
        self.has(Switches::TIMESTAMP.union(Switches::TIMESTAMP_NS).union(Switches::TIMES))
    }

    /// Switches one kind of time stamps on, in place of the other, or both off.
    pub fn switch_timestamps(&self, kind: Switches, on: bool) {
        self.switch(Switches::TIMESTAMP.union(Switches::TIMESTAMP_NS), false);
        self.switch(kind, on);
    }

    /// SO_RCVTIMEO (for the buffer that is received) or SO_SNDTIMEO in nanoseconds, 0 for none.
    pub fn timeout(&self, which: Buffer) -> &AtomicU64 {
        match which {
            Buffer::Receive => &self.receive_timeout,
            Buffer::Send => &self.send_timeout,
        }
    }

    /// Returns the time of the monotonic clock at which a wait that begins now has to end.
    pub fn deadline(&self, which: Buffer) -> Option<u64> {
        let span = self.timeout(which).load(Ordering::Relaxed);
        (span != 0).then(|| time::monotonic_ns().saturating_add(span))
    }
}

/// The value of an option that a program sets, in its memory.
#[derive(Clone, Copy)]
pub struct OptionValue {
    address: usize,
    /// Its length as the program gave it; may be longer than what is there.
    pub length: usize,
}

impl OptionValue {
    /// A value in the program's memory.
    pub fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// Reads a number: EINVAL if it is too short.
    pub fn number(self) -> Result<i32> {
        self.read()
    }

    /// Reads a structure, which may be followed by more: EINVAL if it is too short.
    pub fn read<T: FromBytes + IntoBytes>(self) -> Result<T> {
        if self.length < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        UserPtr::<T>::new(self.address).read()
    }

    /// Reads the first bytes, as many as there are and fit; returns them.
    pub fn bytes(self, into: &mut [u8]) -> Result<&[u8]> {
        let length = self.length.min(into.len());
        let into = &mut into[..length];
        user::copy_in(into, self.address)?;
        Ok(into)
    }
}

/// The memory in which a program wants the value of an option.
#[derive(Clone, Copy)]
pub struct OptionOutput {
    address: usize,
    /// The address of its size, which becomes the size of the value.
    length: usize,
}

impl OptionOutput {
    /// Memory at `address` whose size is in memory at `length`.
    pub fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// Returns the size of the program's memory: EFAULT, and EINVAL if it is negative.
    pub fn room(self) -> Result<usize> {
        usize::try_from(UserPtr::<i32>::new(self.length).read()?).map_err(|_| Errno::EINVAL)
    }

    /// Writes a value, cut to the size of the program's memory, and the size of what was written.
    pub fn put(self, bytes: &[u8]) -> Result<()> {
        let count = bytes.len().min(self.room()?);
        user::copy_out(self.address, &bytes[..count])?;
        self.put_length(count)
    }

    /// Reads the number that the memory has before, for an option whose value is an answer to it:
    /// EINVAL if there is no room for one.
    pub fn read_number(self) -> Result<i32> {
        self.read_value()
    }

    /// Reads the structure that the memory has before, as [`read_number`](Self::read_number) does.
    pub fn read_value<T: FromBytes + IntoBytes>(self) -> Result<T> {
        if self.room()? < size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        UserPtr::<T>::new(self.address).read()
    }

    /// Writes bytes behind the first `offset` ones and no size. The caller has looked at the
    /// [room](Self::room).
    pub fn put_at(self, offset: usize, bytes: &[u8]) -> Result<()> {
        user::copy_out(self.address.wrapping_add(offset), bytes)
    }

    /// Writes a number.
    pub fn put_number(self, number: i32) -> Result<()> {
        self.put(&number.to_ne_bytes())
    }

    /// Writes the size alone.
    pub fn put_length(self, length: usize) -> Result<()> {
        UserPtr::<i32>::new(self.length).write(&(length as i32))
    }
}
