//! Signals read from a descriptor (`signalfd(2)`).
//!
//! Reading takes pending signals of the *reading* thread and its process, whichever process opened
//! the descriptor, as in Linux. The program blocks the signals first; a sender wakes
//! `Process::signal_events` whether they are blocked or not.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::signal::{
    SI_MESGQ, SI_QUEUE, SI_TIMER, SIGCHLD, Siginfo, SignalSet, SignalfdSiginfo,
};
use hayate_abi::{Errno, Result};
use zerocopy::IntoBytes;

use super::sets::UNBLOCKABLE;
use crate::process::thread::{current, try_current};
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::{O_NONBLOCK, O_RDWR};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::Output;

/// The size of one record.
const RECORD: usize = size_of::<SignalfdSiginfo>();

/// A set of signals to be read.
pub struct SignalFd {
    wanted: AtomicU64,
}

/// Opens a descriptor for a set of signals; of `flags` only `O_NONBLOCK` counts.
pub fn open(wanted: SignalSet, flags: u32) -> Result<Arc<OpenFile>> {
    let signals = SignalFd { wanted: AtomicU64::new(wanted & !UNBLOCKABLE) };
    anonymous::open("[signalfd]", Arc::new(signals), O_RDWR | flags & O_NONBLOCK)
}

impl SignalFd {
    /// The set of signals of an open file. Fails with `EINVAL` if the file is no signalfd.
    pub fn of(file: &OpenFile) -> Result<&SignalFd> {
        file.ops_as::<SignalFd>().ok_or(Errno::EINVAL)
    }

    /// Changes the set.
    pub fn set_wanted(&self, wanted: SignalSet) {
        self.wanted.store(wanted & !UNBLOCKABLE, Ordering::Release);
        current().process().signal_events.wake_all();
    }

    fn wanted(&self) -> SignalSet {
        self.wanted.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<Siginfo> {
        current().take_signal(self.wanted())
    }
}

/// Converts a signal to the record of `signalfd`.
fn encode(info: &Siginfo) -> SignalfdSiginfo {
    let [first, second, third, fourth, ..] = info.fields;
    let mut record = SignalfdSiginfo {
        ssi_signo: info.si_signo as u32,
        ssi_errno: info.si_errno,
        ssi_code: info.si_code,
        ..SignalfdSiginfo::default()
    };
    match info.si_code {
        SI_TIMER => {
            record.ssi_tid = first as u32;
            record.ssi_overrun = (first >> 32) as u32;
            record.ssi_ptr = second;
            record.ssi_int = second as i32;
        }
        code => {
            record.ssi_pid = first as u32;
            record.ssi_uid = (first >> 32) as u32;
            if matches!(code, SI_QUEUE | SI_MESGQ) {
                record.ssi_ptr = second;
                record.ssi_int = second as i32;
            } else if info.si_signo == SIGCHLD as i32 {
                record.ssi_status = second as i32;
                record.ssi_utime = third;
                record.ssi_stime = fourth;
            }
        }
    }
    record
}

impl FileOps for SignalFd {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        if out.remaining() < RECORD {
            return Err(Errno::EINVAL);
        }
        let mut next = match self.take() {
            Some(info) => info,
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => {
                let thread = current();
                thread
                    .process()
                    .signal_events
                    .wait_interruptible(None, || self.take())
                    .map_err(|_| Errno::ERESTARTSYS)?
            }
        };
        loop {
            let put = out.put(encode(&next).as_bytes());
            if out.remaining() < RECORD || put.is_err() {
                return out.finish(put);
            }
            match self.take() {
                Some(info) => next = info,
                None => return Ok(out.done()),
            }
        }
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let Some(thread) = try_current() else { return Events::empty() };
        registrar.register(&thread.process().signal_events);
        if thread.pending() & self.wanted() != 0 { Events::READABLE } else { Events::empty() }
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        Some(format!("sigmask:\t{:016x}\n", self.wanted()).into_bytes())
    }
}
