//! Control messages of sendmsg(2) and recvmsg(2): descriptors and credentials (cmsg(3), unix(7));
//! all others are passed on to and from the family as they are.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::socket::{Cmsghdr, Msghdr, Ucred};
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use crate::credentials::Capability;
use crate::ipc::unix::message::MOST_DESCRIPTORS;
use crate::process;
use crate::process::{numbers, pids, visible};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::open_file::OpenFile;
use crate::vfs::socket::{Ancillary, ControlMessage, flags};
use crate::vfs::socket_options::SOL_SOCKET;

const SCM_RIGHTS: i32 = 1;
const SCM_CREDENTIALS: i32 = 2;
/// The most bytes of control data: net.core.optmem_max of Linux.
const LONGEST: usize = 20_480;
const HEAD: usize = size_of::<Cmsghdr>();

/// The control data that a program sends.
#[derive(Default)]
pub struct Control {
    /// SCM_RIGHTS.
    pub descriptors: Vec<Arc<OpenFile>>,
    /// SCM_CREDENTIALS, checked.
    pub claimed: Option<Ucred>,
    /// The messages that the family takes itself.
    pub others: Vec<ControlMessage>,
}

/// The control data of a message that was received.
pub struct Received {
    /// SCM_CREDENTIALS.
    pub credentials: Option<Ucred>,
    /// SCM_RIGHTS.
    pub files: Vec<Arc<OpenFile>>,
    /// Those of the family.
    pub others: Vec<ControlMessage>,
}

fn align(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// Reads the control data of a message that is to be sent, for a family that takes `which` of it.
pub fn parse(header: &Msghdr, which: Ancillary) -> Result<Control> {
    let length = usize::try_from(header.msg_controllen).unwrap_or(usize::MAX);
    if length > LONGEST {
        return Err(Errno::ENOBUFS);
    }
    let mut bytes = Vec::new();
    bytes.make_room_exact(length).map_err(|_| Errno::ENOBUFS)?;
    bytes.resize(length, 0);
    if length > 0 {
        user::copy_in(&mut bytes, header.msg_control as usize)?;
    }
    let mut control = Control::default();
    let mut rest = bytes.as_slice();
    while rest.len() >= HEAD {
        let (head, _) = Cmsghdr::read_from_prefix(rest).map_err(|_| Errno::EINVAL)?;
        let end = usize::try_from(head.cmsg_len).unwrap_or(usize::MAX);
        let data = rest.get(HEAD..end).ok_or(Errno::EINVAL)?;
        control.take(&head, data, which)?;
        rest = rest.get(align(end)..).unwrap_or_default();
    }
    Ok(control)
}

impl Control {
    fn take(&mut self, head: &Cmsghdr, data: &[u8], which: Ancillary) -> Result<()> {
        let passed = matches!(head.cmsg_type, SCM_RIGHTS | SCM_CREDENTIALS);
        match (which, head.cmsg_level) {
            // As in `sock_cmsg_send`: descriptors and credentials do not concern the family.
            (Ancillary::Own, SOL_SOCKET) if passed => Ok(()),
            (Ancillary::Own, level) => {
                let mut copy = SmallVec::new();
                copy.make_room_exact(data.len()).map_err(|_| Errno::ENOBUFS)?;
                copy.extend_from_slice(data);
                let message = ControlMessage { level, kind: head.cmsg_type, data: copy };
                growth::push(&mut self.others, message).map_err(|_| Errno::ENOBUFS)
            }
            (_, SOL_SOCKET) => match head.cmsg_type {
                SCM_RIGHTS if which == Ancillary::Files => {
                    take_descriptors(data, &mut self.descriptors)
                }
                SCM_CREDENTIALS => {
                    let claimed = Ucred::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                    self.claimed = Some(check_credentials(claimed)?);
                    Ok(())
                }
                _ => Err(Errno::EINVAL),
            },
            _ => Ok(()),
        }
    }
}

fn take_descriptors(data: &[u8], into: &mut Vec<Arc<OpenFile>>) -> Result<()> {
    for number in data.chunks_exact(4) {
        if into.len() >= MOST_DESCRIPTORS {
            return Err(Errno::EINVAL);
        }
        let fd = i32::from_ne_bytes(number.try_into().map_err(|_| Errno::EINVAL)?);
        into.push(process::current().files().get(fd)?);
    }
    Ok(())
}

/// Checks that a program claims its own credentials, unless it is privileged (unix(7),
/// SCM_CREDENTIALS).
fn check_credentials(claimed: Ucred) -> Result<Ucred> {
    let (uid, gid) = (numbers::user(claimed.uid)?, numbers::group(claimed.gid)?);
    let asked = u32::try_from(claimed.pid).map_or(visible::NOBODY, visible::meant);
    let claimed = Ucred { pid: asked as i32, uid, gid };
    let thread = process::current();
    let own = thread.identity();
    let credentials = thread.credentials();
    let uids = [credentials.uid, credentials.euid, credentials.suid];
    let gids = [credentials.gid, credentials.egid, credentials.sgid];
    let over = thread.process.pid_namespace().owner.clone();
    let pid = claimed.pid == own.pid || credentials.has_in(&over, Capability::SysAdmin);
    let uid = uids.contains(&claimed.uid) || credentials.has_own(Capability::Setuid);
    let gid = gids.contains(&claimed.gid) || credentials.has_own(Capability::Setgid);
    if !(pid && uid && gid) {
        return Err(Errno::EPERM);
    }
    if claimed.pid != own.pid && pids::process(asked).is_none() {
        return Err(Errno::ESRCH);
    }
    Ok(claimed)
}

/// Writes the control data of a received message and installs the descriptors. Data for which there
/// is no space is dropped and MSG_CTRUNC set.
pub fn write(header: &mut Msghdr, received: Received, close_on_exec: bool) -> Result<()> {
    let mut writer = Writer {
        at: header.msg_control as usize,
        room: usize::try_from(header.msg_controllen).unwrap_or(usize::MAX),
        used: 0,
        header,
    };
    for message in &received.others {
        writer.put(message.level, message.kind, &message.data)?;
    }
    if let Some(sender) = received.credentials {
        writer.put(SOL_SOCKET, SCM_CREDENTIALS, sender.as_bytes())?;
    }
    writer.put_files(received.files, close_on_exec)?;
    writer.header.msg_controllen = writer.used as u64;
    Ok(())
}

/// The program's memory for control data.
struct Writer<'a> {
    header: &'a mut Msghdr,
    at: usize,
    room: usize,
    used: usize,
}

impl Writer<'_> {
    /// Installs descriptors, as many as there is space for, and writes their numbers.
    fn put_files(&mut self, files: Vec<Arc<OpenFile>>, close_on_exec: bool) -> Result<()> {
        let fits = self.room.saturating_sub(HEAD) / 4;
        if fits < files.len() {
            self.header.msg_flags |= flags::CTRUNC;
        }
        let mut numbers = Vec::new();
        for file in files.into_iter().take(fits) {
            match process::current().install(file, close_on_exec) {
                Ok(fd) => numbers.extend_from_slice(&fd.to_ne_bytes()),
                Err(_) => {
                    self.header.msg_flags |= flags::CTRUNC;
                    break;
                }
            }
        }
        if numbers.is_empty() { Ok(()) } else { self.put(SOL_SOCKET, SCM_RIGHTS, &numbers) }
    }

    fn put(&mut self, level: i32, kind: i32, data: &[u8]) -> Result<()> {
        if self.room < HEAD {
            self.header.msg_flags |= flags::CTRUNC;
            return Ok(());
        }
        let fits = data.len().min(self.room - HEAD);
        if fits < data.len() {
            self.header.msg_flags |= flags::CTRUNC;
        }
        let head = Cmsghdr { cmsg_len: (HEAD + fits) as u64, cmsg_level: level, cmsg_type: kind };
        UserPtr::<Cmsghdr>::new(self.at).write(&head)?;
        user::copy_out(self.at + HEAD, &data[..fits])?;
        let taken = align(HEAD + fits).min(self.room);
        self.at += taken;
        self.room -= taken;
        self.used += taken;
        Ok(())
    }
}
