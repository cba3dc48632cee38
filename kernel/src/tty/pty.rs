//! Pseudo terminals: the master side, and the pairs of a devpts.
//!
//! Opening the `ptmx` of a devpts makes a pair of it with the lowest free number; the slave appears
//! there as `N`, which is locked until unlockpt(3) (pts(4)). Closing the master hangs the slave up.
//! Each mounted devpts has pairs of its own (since Linux 4.7), so that a container or a sandbox
//! sees its own alone; a master keeps the pairs of a devpts that was unmounted.
//!
//! Lock order: the pairs of an instance (spin) are a leaf.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::ioctl;
use super::state::{Output as Shown, Tty};
use crate::credentials::Credentials;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::inode::{Inode, Timestamp};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// The type of the file system that shows pairs.
pub const DEVPTS: &str = "devpts";
/// Slaves have majors 136 to 143, of which the first is enough (Documentation/admin-guide/
/// devices.txt of Linux).
const SLAVE_MAJOR: u32 = 136;
/// The most pairs at once, of all instances: `/proc/sys/kernel/pty/max`.
pub const MOST: u32 = 4096;
/// How many of them are for instances of the first mount namespace:
/// `/proc/sys/kernel/pty/reserve`.
pub const RESERVED: u32 = 1024;
/// The most that an instance may be given (`NR_UNIX98_PTY_MAX`).
pub const MOST_OF_ONE: u32 = 1 << 20;
/// Bytes that one step of a transfer moves.
const PIECE: usize = 512;

/// A pair as devpts shows it.
#[derive(Clone)]
pub struct Pair {
    /// The slave.
    pub slave: Arc<Tty>,
    /// Owner of the node: the user who opened the master.
    pub uid: u32,
    /// Group of the node.
    pub gid: u32,
    /// When it was made.
    pub made: Timestamp,
    /// The node of devpts, kept from its first look-up on, so that chmod and chown last as long as
    /// the pair.
    pub node: Arc<SpinLock<Option<Arc<dyn Inode>>>>,
}

/// How many pairs there are.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Returns the number of pairs.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// The pairs of a mounted devpts.
pub struct Pairs {
    pairs: SpinLock<BTreeMap<u32, Pair>>,
    /// The most of them.
    most: u32,
    /// The most of all instances for which this one may make another.
    most_of_all: u32,
}

impl Pairs {
    /// None so far. `is_first`: it is mounted in the first mount namespace.
    pub fn new(most: u32, is_first: bool) -> Arc<Pairs> {
        let most_of_all = if is_first { MOST } else { MOST - RESERVED };
        Arc::new(Pairs { pairs: SpinLock::new(BTreeMap::new()), most, most_of_all })
    }

    /// Returns the pair with this number.
    pub fn get(&self, number: u32) -> Option<Pair> {
        self.pairs.lock().get(&number).cloned()
    }

    /// Stores the numbers of all pairs from `from` on, in order, at most `into.len()`; returns how
    /// many.
    pub fn numbers(&self, from: u32, into: &mut [u32]) -> usize {
        let pairs = self.pairs.lock();
        let mut count = 0;
        for (slot, number) in into.iter_mut().zip(pairs.range(from..).map(|(number, _)| *number)) {
            *slot = number;
            count += 1;
        }
        count
    }

    fn remove(&self, number: u32) {
        let removed = self.pairs.lock().remove(&number);
        drop(removed);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The master of a pair, one for each open of a `ptmx`.
pub struct Master {
    number: u32,
    pairs: Arc<Pairs>,
    slave: Arc<Tty>,
}

impl Master {
    /// Makes a pair. ENOSPC when all numbers are taken.
    pub fn open(all: &Arc<Pairs>, credentials: &Credentials) -> Result<Arc<Self>> {
        let one_more = |count| (count < all.most_of_all).then_some(count + 1);
        COUNT
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .map_err(|_| Errno::ENOSPC)?;
        let mut pairs = all.pairs.lock();
        let mut number = 0;
        for taken in pairs.keys() {
            if *taken != number {
                break;
            }
            number += 1;
        }
        if number >= all.most {
            COUNT.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::ENOSPC);
        }
        let slave = Tty::new((SLAVE_MAJOR, number), format!("pts/{number}"), true);
        let pair = Pair {
            slave: slave.clone(),
            uid: credentials.fsuid,
            gid: credentials.fsgid,
            made: Timestamp::now(),
            node: Arc::new(SpinLock::new(None)),
        };
        pairs.insert(number, pair);
        Ok(Arc::new(Self { number, pairs: Arc::clone(all), slave }))
    }

    /// Returns the slave's number (TIOCGPTN).
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the pair is one of these.
    pub fn is_of(&self, pairs: &Arc<Pairs>) -> bool {
        Arc::ptr_eq(&self.pairs, pairs)
    }

    /// Returns the slave.
    pub fn slave(&self) -> &Arc<Tty> {
        &self.slave
    }

    /// Makes one step of a read; `None` when the reader has to wait.
    fn read_now(&self, out: &mut Output<'_>) -> Option<Result<usize>> {
        let packet = self.slave.packet();
        let mut piece = [0; PIECE];
        let head = usize::from(packet);
        let room = out.remaining().min(PIECE);
        if room <= head {
            return Some(if room == 0 { Ok(0) } else { Err(Errno::EINVAL) });
        }
        let count = match self.slave.take_output(&mut piece[head..room], false) {
            Shown::Bytes(count) => count + head,
            Shown::Status(status) => {
                piece[0] = status;
                1
            }
            Shown::Abandoned => return Some(Err(Errno::EIO)),
            Shown::Nothing => return None,
        };
        Some(out.put(&piece[..count]).map(|_| count))
    }
}

impl FileOps for Master {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let mut total = if file.nonblocking() {
            self.read_now(out).unwrap_or(Err(Errno::EAGAIN))?
        } else {
            // The bytes must not be copied to the program in the wait's condition, which runs while
            // the thread is on the wait queue: so wait for readiness first.
            loop {
                if let Some(result) = self.read_now(out) {
                    break result?;
                }
                let ready = || {
                    let ready = Events::IN | Events::HUP;
                    self.slave.master_events().intersects(ready).then_some(())
                };
                self.slave
                    .master
                    .wait_interruptible(None, ready)
                    .map_err(|_| Errno::ERESTARTSYS)?;
            }
        };
        while !self.slave.packet() && total > 0 && out.remaining() > 0 {
            match self.read_now(out) {
                Some(Ok(count)) if count > 0 => total += count,
                _ => break,
            }
        }
        Ok(total)
    }

    fn write(&self, file: &OpenFile, _offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let mut written = 0;
        let mut piece = [0; PIECE];
        while input.remaining() > 0 {
            if !self.slave.takes_input() {
                if file.nonblocking() {
                    return if written > 0 { Ok(written) } else { Err(Errno::EAGAIN) };
                }
                let room = || self.slave.takes_input().then_some(());
                if self.slave.master.wait_interruptible(None, room).is_err() {
                    return if written > 0 { Ok(written) } else { Err(Errno::ERESTARTSYS) };
                }
            }
            let count = match input.take(&mut piece) {
                Ok(count) => count,
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            };
            let mut rest = &piece[..count];
            while !rest.is_empty() {
                let taken = self.slave.type_in(rest);
                written += taken;
                rest = &rest[taken..];
                if rest.is_empty() {
                    break;
                }
                if file.nonblocking() {
                    return if written > 0 { Ok(written) } else { Err(Errno::EAGAIN) };
                }
                let room = || self.slave.takes_input().then_some(());
                if self.slave.master.wait_interruptible(None, room).is_err() {
                    return if written > 0 { Ok(written) } else { Err(Errno::ERESTARTSYS) };
                }
            }
        }
        Ok(written)
    }

    fn poll(&self, _file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.slave.master);
        self.slave.master_events()
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        ioctl::master_side(self.slave(), self.number(), command, arg)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.slave.master_signals, Interest::BOTH))
    }

    fn own_signals(&self, file: &OpenFile) {
        file.owner().set_caller();
    }

    fn release(&self, _file: &OpenFile) {
        self.pairs.remove(self.number);
        self.slave.hang_up();
    }
}
