//! The descriptor through which a program answers for the calls of others (`seccomp_unotify(2)`).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_bpf::seccomp::DATA_SIZE;
use hayate_machine::sync::SpinLock;
use hayate_machine::user;

use super::notices::{Answer, Gift, Notices};
use crate::memory::PAGE;
use crate::process::thread::current;
use crate::process::visible;
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::{O_CLOEXEC, O_RDWR};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};

/// The size of `struct seccomp_notif`.
pub const NOTICE_SIZE: usize = 16 + DATA_SIZE;
/// The size of `struct seccomp_notif_resp`.
pub const ANSWER_SIZE: usize = 24;
/// The size of `struct seccomp_notif_addfd` (`SECCOMP_NOTIFY_ADDFD_SIZE_VER0`).
const GIFT_SIZE: usize = 24;

const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const IS_VALID: u32 = 0x4008_2102;
/// With the direction that was wrong in the first versions of the header.
const IS_VALID_OLD: u32 = 0x8008_2102;
/// Without its size, which may grow (`EA_IOCTL`).
const GIVE: u32 = 0x4000_2103;
const SIZE_BITS: u32 = 0x3fff_0000;

struct Listener(Arc<Notices>);

/// Opens the listener of a filter.
pub fn open(notices: &Arc<Notices>) -> Result<Arc<OpenFile>> {
    anonymous::open("seccomp notify", Arc::new(Listener(Arc::clone(notices))), O_RDWR)
}

/// The integer at an offset of a structure.
fn at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let found = bytes.get(offset..).and_then(<[u8]>::first_chunk);
    found.copied().unwrap_or([0; N])
}

fn long(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(at(bytes, offset))
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(at(bytes, offset))
}

impl Listener {
    fn receive(&self, to: usize) -> Result<()> {
        let mut bytes = [0; NOTICE_SIZE];
        user::copy_in(&mut bytes, to)?;
        if bytes.iter().any(|&byte| byte != 0) {
            return Err(Errno::EINVAL);
        }
        let notices = &self.0;
        let requested = notices.events.wait_interruptible(None, || notices.request());
        requested.map_err(|_| Errno::EINTR)?;
        let received = notices.receive()?;
        bytes[..8].copy_from_slice(&received.id.to_ne_bytes());
        bytes[8..12].copy_from_slice(&visible::shown(received.thread).to_ne_bytes());
        bytes[16..].copy_from_slice(&received.data);
        user::copy_out(to, &bytes).inspect_err(|_| notices.return_back(received.id))
    }

    fn send(&self, from: usize) -> Result<()> {
        const CONTINUE: u32 = 1;
        let mut bytes = [0; ANSWER_SIZE];
        user::copy_in(&mut bytes, from)?;
        let (value, error) = (long(&bytes, 8) as i64, word(&bytes, 16) as i32);
        let goes_on = match word(&bytes, 20) {
            0 => false,
            CONTINUE if value == 0 && error == 0 => true,
            _ => return Err(Errno::EINVAL),
        };
        self.0.reply(long(&bytes, 0), Answer { value, error, goes_on })
    }

    fn is_valid(&self, from: usize) -> Result<()> {
        let mut id = [0; 8];
        user::copy_in(&mut id, from)?;
        if self.0.is_sent(u64::from_ne_bytes(id)) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// Gives the waiting thread a descriptor; returns its number there.
    fn give(&self, from: usize, size: usize) -> Result<i32> {
        const SETFD: u32 = 1;
        const SEND: u32 = 2;
        let bytes = read_growing(from, size)?;
        let id = long(&bytes, 0);
        let [flags, source, number, descriptor_flags] = [8, 12, 16, 20].map(|at| word(&bytes, at));
        if descriptor_flags & !O_CLOEXEC != 0
            || flags & !(SETFD | SEND) != 0
            || number != 0 && flags & SETFD == 0
        {
            return Err(Errno::EINVAL);
        }
        let gift = Arc::new(Gift {
            file: current().files().get_open(source as i32)?,
            number: (flags & SETFD != 0).then_some(number as i32),
            close_on_exec: descriptor_flags & O_CLOEXEC != 0,
            answers: flags & SEND != 0,
            outcome: SpinLock::new(None),
        });
        let notices = &self.0;
        notices.offer(id, Arc::clone(&gift))?;
        let outcome = || *gift.outcome.lock();
        match notices.answers.wait_interruptible(None, outcome) {
            Ok(outcome) => outcome,
            Err(_) => {
                notices.withdraw(id, &gift);
                // It may have been taken just before.
                outcome().unwrap_or(Err(Errno::ERESTARTSYS))
            }
        }
    }
}

/// Reads a structure that later versions may make longer: what is beyond the known part must be
/// zero (`copy_struct_from_user`).
fn read_growing(from: usize, size: usize) -> Result<[u8; GIFT_SIZE]> {
    if !(GIFT_SIZE..PAGE).contains(&size) {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; GIFT_SIZE];
    user::copy_in_growing(&mut bytes, from, size)?;
    Ok(bytes)
}

impl FileOps for Listener {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.0.events);
        self.0.poll()
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let arg = arg as usize;
        match command {
            RECEIVE => self.receive(arg)?,
            SEND => self.send(arg)?,
            IS_VALID | IS_VALID_OLD => self.is_valid(arg)?,
            _ if command & !SIZE_BITS == GIVE => {
                let size = (command & SIZE_BITS) >> 16;
                return self.give(arg, size as usize).map(i64::from);
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(0)
    }

    fn release(&self, _: &OpenFile) {
        self.0.close();
    }
}
