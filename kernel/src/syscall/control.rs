//! Control messages of sendmsg(2) and recvmsg(2): descriptors and credentials (cmsg(3), unix(7)).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::socket::{Cmsghdr, Msghdr, Ucred};
use hayate_abi::{Errno, Result};
use hayate_machine::user::{self, UserPtr};
use zerocopy::{FromBytes, IntoBytes};

use crate::credentials::Capability;
use crate::ipc::unix::message::MOST_DESCRIPTORS;
use crate::ipc::unix::socket::flags;
use crate::process;
use crate::process::pids;
use crate::reclaim::growth::Grow;
use crate::vfs::open_file::OpenFile;

const SOL_SOCKET: i32 = 1;
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
    pub sender: Option<Ucred>,
}

fn align(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// Reads the control data of a message that is to be sent.
pub fn parse(header: &Msghdr) -> Result<Control> {
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
        if head.cmsg_level == SOL_SOCKET {
            match head.cmsg_type {
                SCM_RIGHTS => take_descriptors(data, &mut control.descriptors)?,
                SCM_CREDENTIALS => {
                    let claimed = Ucred::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                    control.sender = Some(check_credentials(claimed)?);
                }
                _ => return Err(Errno::EINVAL),
            }
        }
        rest = rest.get(align(end)..).unwrap_or_default();
    }
    Ok(control)
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
    let thread = process::current();
    let own = thread.identity();
    let credentials = thread.credentials();
    let uids = [credentials.uid, credentials.euid, credentials.suid];
    let gids = [credentials.gid, credentials.egid, credentials.sgid];
    let pid = claimed.pid == own.pid || credentials.has(Capability::SysAdmin);
    let uid = uids.contains(&claimed.uid) || credentials.has(Capability::Setuid);
    let gid = gids.contains(&claimed.gid) || credentials.has(Capability::Setgid);
    if !(pid && uid && gid) {
        return Err(Errno::EPERM);
    }
    if claimed.pid != own.pid && pids::process(claimed.pid as u32).is_none() {
        return Err(Errno::ESRCH);
    }
    Ok(claimed)
}

/// Writes the control data of a received message and installs the descriptors. Data for which there
/// is no space is dropped and MSG_CTRUNC set.
pub fn write(
    header: &mut Msghdr,
    sender: Option<Ucred>,
    files: Vec<Arc<OpenFile>>,
    close_on_exec: bool,
) -> Result<()> {
    let mut at = header.msg_control as usize;
    let mut room = usize::try_from(header.msg_controllen).unwrap_or(usize::MAX);
    let mut used = 0;
    if let Some(sender) = sender {
        put(header, SCM_CREDENTIALS, sender.as_bytes(), &mut at, &mut room, &mut used)?;
    }
    if !files.is_empty() {
        let fits = room.saturating_sub(HEAD) / 4;
        if fits < files.len() {
            header.msg_flags |= flags::CTRUNC;
        }
        let mut numbers = Vec::new();
        for file in files.into_iter().take(fits) {
            match process::current().install(file, close_on_exec) {
                Ok(fd) => numbers.extend_from_slice(&fd.to_ne_bytes()),
                Err(_) => {
                    header.msg_flags |= flags::CTRUNC;
                    break;
                }
            }
        }
        if !numbers.is_empty() {
            put(header, SCM_RIGHTS, &numbers, &mut at, &mut room, &mut used)?;
        }
    }
    header.msg_controllen = used as u64;
    Ok(())
}

fn put(
    header: &mut Msghdr,
    kind: i32,
    data: &[u8],
    at: &mut usize,
    room: &mut usize,
    used: &mut usize,
) -> Result<()> {
    if *room < HEAD {
        header.msg_flags |= flags::CTRUNC;
        return Ok(());
    }
    let fits = data.len().min(*room - HEAD);
    if fits < data.len() {
        header.msg_flags |= flags::CTRUNC;
    }
    let head = Cmsghdr { cmsg_len: (HEAD + fits) as u64, cmsg_level: SOL_SOCKET, cmsg_type: kind };
    UserPtr::<Cmsghdr>::new(*at).write(&head)?;
    user::copy_out(*at + HEAD, &data[..fits])?;
    let taken = align(HEAD + fits).min(*room);
    *at += taken;
    *room -= taken;
    *used += taken;
    Ok(())
}
