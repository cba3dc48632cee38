//! PACKET_ADD_MEMBERSHIP: interfaces that receive more than is for this machine.
//!
//! A device is told when the first socket asks and when the last one ends. It receives all groups
//! in any case: which of them sockets have joined is decided above.
//!
//! Lock: [`ASKED`] may sleep, and is held while a device is told.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use crate::net::config::{self, Network};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::Mutex;
use crate::vfs::socket_options::OptionValue;

/// The types of `struct packet_mreq`.
const MULTICAST: u16 = 0;
const PROMISCUOUS: u16 = 1;
const UNICAST: u16 = 3;
/// The size of that structure, and of a hardware address.
const REQUEST: usize = 16;
const HARDWARE: usize = 6;
/// The most memberships of a socket: they are a program's to make.
const MOST: usize = 1024;

/// A membership: what a program asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    interface: u32,
    kind: u16,
    address: [u8; 8],
}

/// The memberships of a socket, with the number of times it asked.
#[derive(Default)]
pub struct Memberships(Vec<(Wish, u32)>);

/// The interfaces that sockets want promiscuous, one entry for each of them. All that have a device
/// are in the first network namespace; in another one only the loopback interface can be asked for.
static ASKED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Reads a `struct packet_mreq`: EINVAL, EFAULT.
fn read(value: OptionValue) -> Result<(Wish, usize)> {
    let mut bytes = [0; REQUEST];
    if value.bytes(&mut bytes)?.len() < REQUEST {
        return Err(Errno::EINVAL);
    }
    let [i0, i1, i2, i3, k0, k1, l0, l1, address @ ..] = bytes;
    let length = usize::from(u16::from_ne_bytes([l0, l1]));
    if value.length < length + REQUEST - address.len() {
        return Err(Errno::EINVAL);
    }
    let interface = u32::from_ne_bytes([i0, i1, i2, i3]);
    Ok((Wish { interface, kind: u16::from_ne_bytes([k0, k1]), address }, length))
}

impl Memberships {
    /// Adds one (`packet_mc_add`).
    ///
    /// # Errors
    /// `ENODEV`, `EINVAL`, `EFAULT`, `ENOMEM`; `EIO` if the device does not answer.
    pub fn add(&mut self, network: &Network, value: OptionValue) -> Result<()> {
        let (wish, length) = read(value)?;
        if network.current().interface(wish.interface).is_none() {
            return Err(Errno::ENODEV);
        }
        let whole = matches!(wish.kind, MULTICAST | UNICAST);
        if length > HARDWARE || whole && length != HARDWARE {
            return Err(Errno::EINVAL);
        }
        if let Some((_, count)) = self.0.iter_mut().find(|(own, _)| *own == wish) {
            *count = count.checked_add(1).ok_or(Errno::ENOBUFS)?;
            return Ok(());
        }
        if self.0.len() >= MOST {
            return Err(Errno::ENOBUFS);
        }
        growth::relieved(|| self.0.make_room(1))?;
        if wish.kind == PROMISCUOUS {
            ask(wish.interface)?;
        }
        self.0.push((wish, 1));
        Ok(())
    }

    /// Drops one; that there is none is no error (`packet_mc_drop`).
    ///
    /// # Errors
    /// `EINVAL`, `EFAULT`.
    pub fn drop(&mut self, value: OptionValue) -> Result<()> {
        let (wish, _) = read(value)?;
        if let Some(at) = self.0.iter().position(|(own, _)| *own == wish) {
            self.0[at].1 -= 1;
            if self.0[at].1 == 0 {
                self.0.swap_remove(at);
                end(wish);
            }
        }
        Ok(())
    }

    /// Drops all.
    pub fn drop_all(&mut self) {
        core::mem::take(&mut self.0).into_iter().for_each(|(wish, _)| end(wish));
    }
}

/// Asks for all frames of an interface. A device that has no such mode gives what it gives
/// (`__dev_set_rx_mode`).
fn ask(interface: u32) -> Result<()> {
    let mut asked = ASKED.lock();
    growth::relieved(|| asked.make_room(1))?;
    let first = !asked.contains(&interface);
    asked.push(interface);
    let config = config::FIRST.current();
    let device = config.interface(interface).and_then(|interface| interface.device.as_ref());
    if let Some(device) = device.filter(|_| first) {
        match device.set_promiscuous(true) {
            Ok(()) | Err(Errno::EOPNOTSUPP) => {}
            Err(error) => {
                asked.pop();
                return Err(error);
            }
        }
    }
    Ok(())
}

fn end(wish: Wish) {
    if wish.kind != PROMISCUOUS {
        return;
    }
    let mut asked = ASKED.lock();
    let Some(at) = asked.iter().position(|&other| other == wish.interface) else { return };
    asked.swap_remove(at);
    if asked.contains(&wish.interface) {
        return;
    }
    let config = config::FIRST.current();
    let device = config.interface(wish.interface).and_then(|interface| interface.device.as_ref());
    if let Some(device) = device {
        // Otherwise it would receive no group any more. One that refuses stays as it is.
        if device.set_all_multicast(true).is_ok() {
            let _ = device.set_promiscuous(false);
        }
    }
}
