//! The descriptor of a provider: its messages, and the requests of who reads them
//! (ioctl_userfaultfd(2)).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use hayate_abi::{Errno, Result};
use machine::user::UserPtr;

use super::fill::Content;
use super::register::range;
use super::{Provider, feature};
use crate::memory::space::Space;
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::O_NONBLOCK;
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::Output;

/// The version of the interface (`UFFD_API`).
const VERSION: u64 = 0xaa;
/// `struct uffd_msg`
const MESSAGE: usize = 32;

const AGREE: u32 = 0xc018_aa3f;
const REGISTER: u32 = 0xc020_aa00;
const UNREGISTER: u32 = 0x8010_aa01;
const WAKE: u32 = 0x8010_aa02;
const COPY: u32 = 0xc028_aa03;
const ZERO: u32 = 0xc020_aa04;

/// The requests to a descriptor: to agree, register and unregister (`UFFD_API_IOCTLS`).
const REQUESTS: u64 = 1 << 0x3f | 1 << 0 | 1 << 1;
/// The requests about a region: to wake, copy and zero (`UFFD_API_RANGE_IOCTLS`).
const REQUESTS_OF_REGION: u64 = 1 << 2 | 1 << 3 | 1 << 4;
/// The only bit of the mode of copying and zeroing.
const DO_NOT_WAKE: u64 = 1;

/// Opens a provider for a space. `flags`: `O_NONBLOCK` counts. `user_only`: the kernel's own
/// accesses do not wait. `ENOMEM`.
pub fn open(space: &Arc<Space>, user_only: bool, flags: u32) -> Result<Arc<OpenFile>> {
    let provider = Provider::make(space, user_only)?;
    anonymous::open("[userfaultfd]", Arc::new(File(provider)), flags & O_NONBLOCK)
}

struct File(Arc<Provider>);

/// A structure of numbers of 64 bits.
fn words<const N: usize>(at: usize) -> Result<[u64; N]> {
    let mut words = [0; N];
    UserPtr::<u64>::new(at).read_slice(&mut words)?;
    Ok(words)
}

/// Writes the number at an index of a structure.
fn put(at: usize, index: usize, word: u64) -> Result<()> {
    UserPtr::<u64>::new(at).at(index).write(&word)
}

impl Provider {
    fn is_agreed(&self) -> bool {
        self.has(feature::AGREED)
    }

    /// Takes a message that nobody has read: the number of its fault, and its bytes.
    fn take_message(&self) -> Option<(u64, [u8; MESSAGE])> {
        const PAGE_FAULT: u8 = 0x12;
        let mut faults = self.faults.lock();
        let fault = faults.list.iter_mut().find(|fault| !fault.is_told)?;
        fault.is_told = true;
        let mut bytes = [0; MESSAGE];
        bytes[0] = PAGE_FAULT;
        bytes[8..16].copy_from_slice(&u64::from(fault.write).to_ne_bytes());
        bytes[16..24].copy_from_slice(&(fault.shown as u64).to_ne_bytes());
        bytes[24..28].copy_from_slice(&fault.thread.to_ne_bytes());
        Some((fault.id, bytes))
    }

    /// Makes a message one that nobody has read: it did not reach the reader.
    fn return_message(&self, id: u64) {
        let mut faults = self.faults.lock();
        if let Some(at) = faults.place(id)
            && let Some(fault) = faults.list.get_mut(at)
        {
            fault.is_told = false;
        }
        drop(faults);
        self.messages.wake_events(Events::READABLE.bits());
    }

    /// The numbers of faults whose messages nobody has read, and of all.
    fn count(&self) -> (usize, usize) {
        let faults = self.faults.lock();
        let untold = faults.list.iter().filter(|fault| !fault.is_told).count();
        (untold, faults.list.len())
    }

    /// `UFFDIO_API`
    fn agree(&self, at: usize) -> Result<()> {
        let [version, features, _] = words::<3>(at)?;
        if version != VERSION || features & !feature::ALL != 0 {
            UserPtr::<u64>::new(at).write_slice(&[0; 3])?;
            return Err(Errno::EINVAL);
        }
        UserPtr::<u64>::new(at).write_slice(&[VERSION, feature::ALL, REQUESTS])?;
        let agreed = (features | feature::AGREED) as u32;
        let first = self.features.compare_exchange(0, agreed, Relaxed, Relaxed);
        first.map(drop).or_else(|_| {
            UserPtr::<u64>::new(at).write_slice(&[0; 3])?;
            Err(Errno::EINVAL)
        })
    }

    /// `UFFDIO_REGISTER`
    fn add(&self, at: usize) -> Result<()> {
        /// Faults on missing pages; there is no other mode.
        const MISSING: u64 = 1;
        let [start, length, mode] = words::<3>(at)?;
        if mode != MISSING {
            return Err(Errno::EINVAL);
        }
        self.register(range(start, length)?)?;
        put(at, 3, REQUESTS_OF_REGION)
    }

    /// `UFFDIO_COPY` and `UFFDIO_ZEROPAGE`, whose outcome is at `result` in the structure.
    fn fill(
        &self,
        at: usize,
        result: usize,
        (start, length, mode): (u64, u64, u64),
        content: Content,
    ) -> Result<()> {
        let range = range(start, length)?;
        let wraps = |from: usize| from.checked_add(range.len()).is_none_or(|end| end <= from);
        if mode & !DO_NOT_WAKE != 0 || matches!(content, Content::Copy(from) if wraps(from)) {
            return Err(Errno::EINVAL);
        }
        let space = self.space.upgrade().ok_or(Errno::ESRCH)?;
        let (done, outcome) = space.fill(&range, content);
        drop(space);
        let told = match outcome {
            Err(error) if done == 0 => -i64::from(error.number()),
            _ => done as i64,
        };
        put(at, result, told as u64)?;
        if done == 0 {
            return outcome;
        }
        if mode & DO_NOT_WAKE == 0 {
            self.wake(&(range.start..range.start + done));
        }
        outcome.map_err(|_| Errno::EAGAIN)
    }
}

impl FileOps for File {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        let provider = &self.0;
        if !provider.is_agreed() || out.remaining() < MESSAGE {
            return Err(Errno::EINVAL);
        }
        let mut next = match provider.take_message() {
            None if file.nonblocking() => return Err(Errno::EAGAIN),
            None => {
                let wait = provider.messages.wait_interruptible(None, || provider.take_message());
                Some(wait.map_err(|_| Errno::ERESTARTSYS)?)
            }
            found => found,
        };
        let mut done = 0;
        while let Some((id, message)) = next {
            if !out.put(&message).is_ok_and(|length| length == MESSAGE) {
                provider.return_message(id);
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
            done += MESSAGE;
            next = (out.remaining() >= MESSAGE).then(|| provider.take_message()).flatten();
        }
        Ok(done)
    }

    fn poll(&self, file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.0.messages);
        // A fault may be over before it is read, so only who does not wait may ask.
        if !self.0.is_agreed() || !file.nonblocking() {
            Events::ERR
        } else if self.0.count().0 != 0 {
            Events::IN
        } else {
            Events::empty()
        }
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let (provider, at) = (&self.0, arg as usize);
        if command != AGREE && !provider.is_agreed() {
            return Err(Errno::EINVAL);
        }
        match command {
            AGREE => provider.agree(at)?,
            REGISTER => provider.add(at)?,
            UNREGISTER => {
                let [start, length] = words::<2>(at)?;
                provider.unregister(range(start, length)?)?;
            }
            WAKE => {
                let [start, length] = words::<2>(at)?;
                provider.wake(&range(start, length)?);
            }
            COPY => {
                let [start, from, length, mode] = words::<4>(at)?;
                provider.fill(at, 4, (start, length, mode), Content::Copy(from as usize))?;
            }
            ZERO => {
                let [start, length, mode] = words::<3>(at)?;
                provider.fill(at, 3, (start, length, mode), Content::Zeroes)?;
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    fn release(&self, _: &OpenFile) {
        self.0.close();
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let (untold, all) = self.0.count();
        let features = self.0.features.load(Relaxed);
        let requests = REQUESTS | REQUESTS_OF_REGION;
        let text = format!(
            "pending:\t{untold}\ntotal:\t{all}\nAPI:\t{VERSION:x}:{features:x}:{requests:x}\n"
        );
        Some(text.into_bytes())
    }
}
