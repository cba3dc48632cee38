//! The options of the level `SOL_SOCKET` that only sockets of the Internet heed (socket(7)). Those
//! of all families are in `vfs::socket_options`.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::SocketAddress;

use super::config::Network;
use crate::credentials::Capability;
use crate::vfs::caller;
use crate::vfs::socket_options::{OptionOutput, OptionValue};

const SO_REUSEPORT: i32 = 15;
const SO_BINDTODEVICE: i32 = 25;
const SO_BINDTOIFINDEX: i32 = 62;

/// The values of a socket.
#[derive(Default)]
pub struct Level {
    reuse_port: AtomicBool,
    interface: AtomicU32,
}

impl Level {
    /// SO_REUSEPORT.
    pub fn shares_port(&self) -> bool {
        self.reuse_port.load(Ordering::Relaxed)
    }

    /// SO_BINDTODEVICE: the interface's index, 0 for none.
    pub fn interface(&self) -> u32 {
        self.interface.load(Ordering::Relaxed)
    }

    /// Copies the values to a connection that was accepted.
    pub fn inherit(&self, from: &Level) {
        self.reuse_port.store(from.shares_port(), Ordering::Relaxed);
        self.interface.store(from.interface(), Ordering::Relaxed);
    }

    /// Finds the link of an IPv6 address that a socket is bound to: an address of a link says
    /// nothing without one (RFC 4007, 6; `__inet6_bind` of Linux). Calls `bind` with the address,
    /// whose scope is the link if it needs one and 0 otherwise; the socket is bound to that
    /// interface then, unless `bind` fails. (On Linux it is also then.)
    ///
    /// # Errors
    /// `EINVAL` if it needs one and neither it nor the socket names one, `ENODEV` if there is no
    /// such interface; those of `bind`.
    pub fn bind_on_link(
        &self,
        network: &Network,
        wanted: SocketAddress,
        bind: impl FnOnce(SocketAddress) -> Result<()>,
    ) -> Result<()> {
        let address = wanted.address;
        let before = self.interface();
        if address.is_v4() || address.is_any() {
            return bind(SocketAddress { scope: 0, ..wanted });
        }
        let is_needed = address.needs_scope();
        let link = if is_needed && wanted.scope != 0 { wanted.scope } else { before };
        match link {
            0 if is_needed => return Err(Errno::EINVAL),
            0 => {}
            link => network.current().interface(link).map(drop).ok_or(Errno::ENODEV)?,
        }
        self.interface.store(link, Ordering::Relaxed);
        let scope = if is_needed { link } else { 0 };
        bind(SocketAddress { scope, ..wanted })
            .inspect_err(|_| self.interface.store(before, Ordering::Relaxed))
    }

    /// Sets an option of a socket of `network`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if it is none of these; `EINVAL`, `EFAULT`, `ENODEV`, `EPERM`.
    pub fn set(&self, network: &Network, option: i32, value: OptionValue) -> Result<()> {
        match option {
            SO_REUSEPORT => self.reuse_port.store(value.number()? != 0, Ordering::Relaxed),
            SO_BINDTODEVICE => {
                let mut name = [0; 16];
                let name = value.bytes(&mut name)?;
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                let config = network.current();
                let index = match name {
                    [] => 0,
                    name => config.interface_named(name).ok_or(Errno::ENODEV)?.index,
                };
                self.bind_interface(network, index)?;
            }
            SO_BINDTOIFINDEX => {
                let index = u32::try_from(value.number()?).map_err(|_| Errno::EINVAL)?;
                if index != 0 && network.current().interface(index).is_none() {
                    return Err(Errno::ENODEV);
                }
                self.bind_interface(network, index)?;
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// Sets an option and calls `changed`; the options are as before if that fails.
    ///
    /// # Errors
    /// Those of [`set`](Self::set) and of `changed`.
    pub fn set_with(
        &self,
        network: &Network,
        option: i32,
        value: OptionValue,
        changed: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let before = Level::default();
        before.inherit(self);
        self.set(network, option, value)?;
        changed().inspect_err(|_| self.inherit(&before))
    }

    /// A socket that has an interface needs CAP_NET_RAW to change it (`sock_bindtoindex_locked`).
    fn bind_interface(&self, network: &Network, index: u32) -> Result<()> {
        if self.interface() != 0 {
            caller::require_in(&network.owner, Capability::NetRaw)?;
        }
        self.interface.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// Returns an option.
    ///
    /// # Errors
    /// `ENOPROTOOPT` if it is none of these; `EFAULT`, `EINVAL`.
    pub fn get(&self, network: &Network, option: i32, out: OptionOutput) -> Result<()> {
        match option {
            SO_REUSEPORT => out.put_number(i32::from(self.shares_port())),
            SO_BINDTODEVICE => {
                let config = network.current();
                let Some(interface) = config.interface(self.interface()) else {
                    return out.put_length(0);
                };
                let mut name = [0; 16];
                let length = interface.name.len().min(15);
                name[..length].copy_from_slice(&interface.name.as_bytes()[..length]);
                if out.room()? < name.len() {
                    return Err(Errno::EINVAL);
                }
                out.put(&name[..=length])
            }
            SO_BINDTOIFINDEX => out.put_number(self.interface() as i32),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}
