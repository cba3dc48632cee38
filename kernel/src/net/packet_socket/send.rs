//! Frames that programs write (`packet_snd`).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::endpoint::Endpoint;
use super::seen::{ADDRESS, FAMILY, LEAST, LINK, link_header};
use crate::net::config::Interface;
use crate::net::neighbour::Hardware;
use crate::net::slice::Payload;
use crate::net::{link, loopback};
use crate::vfs::socket::OutgoingMessage;
use crate::vfs::socket_options::SOL_SOCKET;
use crate::vfs::transfer::Input;

/// `sizeof(struct sockaddr_ll)`.
pub const WHOLE: usize = ADDRESS + 8;
/// The bytes of a VLAN's header, which do not count for the MTU.
const VLAN: usize = 4;
const VLAN_PROTOCOL: u16 = 0x8100;

/// Where a frame goes.
struct Aim {
    interface: u32,
    protocol: u16,
    hardware: Option<Hardware>,
}

/// Reads the destination of a message, a `struct sockaddr_ll` that may be shorter than its address.
/// Its family is not looked at.
fn aim(endpoint: &Endpoint, to: Option<&[u8]>) -> Result<Aim> {
    let Some(bytes) = to else {
        let (interface, protocol) = endpoint.bound();
        return Ok(Aim { interface, protocol, hardware: None });
    };
    let head: &[u8; ADDRESS] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
    if bytes.len() < WHOLE || bytes.len() < ADDRESS + usize::from(head[11]) {
        return Err(Errno::EINVAL);
    }
    let interface = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    let hardware = bytes[ADDRESS..].first_chunk().copied();
    Ok(Aim { interface, protocol: u16::from_be_bytes([head[2], head[3]]), hardware })
}

/// Reads the address of bind(2): interface and protocol.
///
/// # Errors
/// `EINVAL` if it is too short or of another family.
pub fn parse(bytes: &[u8]) -> Result<(u32, u16)> {
    let head: &[u8; WHOLE] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
    if u16::from_ne_bytes([head[0], head[1]]) != FAMILY {
        return Err(Errno::EINVAL);
    }
    let interface = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]);
    Ok((interface, u16::from_be_bytes([head[2], head[3]])))
}

/// Sends a frame, or the rest of one whose header the kernel makes. Returns its length.
///
/// # Errors
/// `ENXIO` for no interface, `ENETDOWN`, `EMSGSIZE`, `EINVAL`, `EFAULT`, `ENOBUFS`, and the
/// socket's pending error.
pub fn send(
    endpoint: &Arc<Endpoint>,
    input: &mut Input<'_>,
    message: &OutgoingMessage<'_>,
) -> Result<usize> {
    let Aim { interface, protocol, hardware } = aim(endpoint, message.to)?;
    let config = endpoint.network.current();
    let interface = config.interface(interface).ok_or(Errno::ENXIO)?;
    if !interface.is_up() {
        return Err(Errno::ENETDOWN);
    }
    // None of the control messages of this level has a meaning here (`__sock_cmsg_send`).
    if message.control.iter().any(|control| control.level == SOL_SOCKET) {
        return Err(Errno::EINVAL);
    }
    let length = input.remaining();
    let most = interface.mtu() + if endpoint.cooked { 0 } else { LINK };
    if length > most + VLAN {
        return Err(Errno::EMSGSIZE);
    }
    if let Some(error) = endpoint.take_error() {
        return Err(error);
    }
    let made = match endpoint.cooked {
        true => Some(header(interface, protocol, hardware, length)?),
        false if length < LINK => return Err(Errno::EINVAL),
        false => None,
    };
    let mut body = Payload::take(input, length)?;
    let link = match made {
        Some(link) => link,
        None => {
            let mut link = [0; LINK];
            body.read(0, &mut link);
            body.skip(LINK);
            link
        }
    };
    if length > most && u16::from_be_bytes([link[12], link[13]]) != VLAN_PROTOCOL {
        return Err(Errno::EMSGSIZE);
    }
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    if interface.is_loopback() {
        loopback::send_frame(interface, link, body, endpoint);
    } else {
        link::send_frame(interface, link, body, endpoint)?;
    }
    Ok(length)
}

/// Makes the header of a frame (`eth_header`).
fn header(
    interface: &Interface,
    protocol: u16,
    to: Option<Hardware>,
    length: usize,
) -> Result<[u8; LINK]> {
    let to = match to {
        Some(to) => to,
        None if interface.is_loopback() => [0; 6],
        None => return Err(Errno::EINVAL),
    };
    // A frame of LLC has its length there.
    let number = if matches!(protocol, 1 | 4) { (length as u16).min(LEAST - 1) } else { protocol };
    Ok(link_header(to, interface.hardware(), number))
}
