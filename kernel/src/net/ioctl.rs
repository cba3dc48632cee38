//! The requests of netdevice(7) that every socket answers for its network namespace.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_ip::{Address, SocketAddress};
use hayate_machine::user;
use hayate_machine::user::UserPtr;

use super::config::{Config, Interface, Network};
use super::configure::{
    self, SIOCADDRT, SIOCDELRT, SIOCDIFADDR, SIOCSIFADDR, SIOCSIFFLAGS, SIOCSIFHWADDR, SIOCSIFMTU,
    SIOCSIFNETMASK,
};

const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFADDR: u32 = 0x8915;
const SIOCGIFDSTADDR: u32 = 0x8917;
const SIOCGIFBRDADDR: u32 = 0x8919;
const SIOCGIFNETMASK: u32 = 0x891b;
const SIOCGIFMETRIC: u32 = 0x891d;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;
const SIOCETHTOOL: u32 = 0x8946;

/// `IFNAMSIZ`, and the size of a `struct ifreq`.
const NAME: usize = 16;
const REQUEST: usize = 40;

/// Answers a request of an IPv6 socket: like [`interface`], but addresses and routes are those of
/// IPv6.
///
/// # Errors
/// Those of [`interface`].
pub fn interface_v6(network: &Network, command: u32, at: usize) -> Result<i64> {
    match command {
        SIOCSIFADDR | SIOCDIFADDR => configure::address_v6(network, command, at).map(|()| 0),
        SIOCADDRT | SIOCDELRT => configure::route_v6(network, command, at).map(|()| 0),
        _ => interface(network, command, at),
    }
}

/// Answers a request about an interface of a namespace, or changes it.
///
/// # Errors
/// `ENODEV`, `EADDRNOTAVAIL`, `EFAULT`; `ENOTTY` for other requests; those of [`configure`].
pub fn interface(network: &Network, command: u32, at: usize) -> Result<i64> {
    match command {
        SIOCGIFCONF => list(network, at),
        SIOCADDRT | SIOCDELRT => configure::route_v4(network, command, at).map(|()| 0),
        SIOCSIFFLAGS | SIOCSIFADDR | SIOCSIFNETMASK | SIOCSIFMTU | SIOCSIFHWADDR => {
            let request: [u8; REQUEST] = UserPtr::new(at).read()?;
            let length = request.iter().take(NAME - 1).take_while(|&&byte| byte != 0).count();
            let config = network.current();
            let interface = config.interface_named(&request[..length]).ok_or(Errno::ENODEV)?;
            configure::change(network, command, interface.index, &request[NAME..]).map(|()| 0)
        }
        // No interface has anything that ethtool(8) sets.
        SIOCETHTOOL => {
            let request: [u8; REQUEST] = UserPtr::new(at).read()?;
            let length = request.iter().take(NAME - 1).take_while(|&&byte| byte != 0).count();
            let config = network.current();
            config.interface_named(&request[..length]).ok_or(Errno::ENODEV)?;
            Err(Errno::EOPNOTSUPP)
        }
        SIOCGIFNAME => {
            let mut request: [u8; REQUEST] = UserPtr::new(at).read()?;
            let index = request[NAME..].first_chunk().map_or(0, |index| u32::from_ne_bytes(*index));
            let config = network.current();
            let interface = config.interface(index).ok_or(Errno::ENODEV)?;
            request[..NAME].copy_from_slice(&name(interface));
            UserPtr::new(at).write(&request)?;
            Ok(0)
        }
        SIOCGIFFLAGS | SIOCGIFADDR | SIOCGIFDSTADDR | SIOCGIFBRDADDR | SIOCGIFNETMASK
        | SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFINDEX | SIOCGIFTXQLEN => {
            let mut request: [u8; REQUEST] = UserPtr::new(at).read()?;
            let length = request.iter().take(NAME - 1).take_while(|&&byte| byte != 0).count();
            let config = network.current();
            let interface = config.interface_named(&request[..length]).ok_or(Errno::ENODEV)?;
            let mut value = [0; NAME];
            answer(command, &config, interface, &mut value)?;
            request[NAME..2 * NAME].copy_from_slice(&value);
            UserPtr::new(at).write(&request)?;
            Ok(0)
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn name(interface: &Interface) -> [u8; NAME] {
    let mut name = [0; NAME];
    let length = interface.name.len().min(NAME - 1);
    name[..length].copy_from_slice(&interface.name.as_bytes()[..length]);
    name
}

/// Returns the first IPv4 address of an interface and the length of its prefix.
fn address_of(config: &Config, interface: &Interface) -> Option<(Address, u8)> {
    let mut own = config.addresses.iter().filter(|own| own.interface == interface.index);
    own.find(|own| own.address.is_v4()).map(|own| (own.address, own.prefix))
}

fn put_address(address: Address, value: &mut [u8; NAME]) {
    value.copy_from_slice(&SocketAddress::new(address, 0).to_bytes(false)[..NAME]);
}

fn answer(
    command: u32,
    config: &Config,
    interface: &Arc<Interface>,
    value: &mut [u8; NAME],
) -> Result<()> {
    let own = || address_of(config, interface).ok_or(Errno::EADDRNOTAVAIL);
    let number = match command {
        SIOCGIFFLAGS => {
            let flags = interface.shown_flags() as u16;
            value[..2].copy_from_slice(&flags.to_ne_bytes());
            return Ok(());
        }
        SIOCGIFADDR | SIOCGIFDSTADDR => {
            put_address(own()?.0, value);
            return Ok(());
        }
        SIOCGIFBRDADDR => {
            let (address, prefix) = own()?;
            let broadcast = address.broadcast(prefix).filter(|_| !interface.is_loopback());
            put_address(broadcast.unwrap_or(Address::ANY_V4), value);
            return Ok(());
        }
        SIOCGIFNETMASK => {
            let (_, prefix) = own()?;
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            put_address(Address::v4(mask), value);
            return Ok(());
        }
        SIOCGIFHWADDR => {
            value[..2].copy_from_slice(&interface.hardware_type().to_ne_bytes());
            value[2..8].copy_from_slice(&interface.hardware());
            return Ok(());
        }
        SIOCGIFMETRIC => 0,
        SIOCGIFMTU => interface.mtu() as u32,
        SIOCGIFINDEX => interface.index,
        // The queue's length of `alloc_netdev`.
        _ => 1000,
    };
    value[..4].copy_from_slice(&number.to_ne_bytes());
    Ok(())
}

/// SIOCGIFCONF: the interfaces that have an IPv4 address, as many as there is room for; without
/// memory to put them, how much they take.
fn list(network: &Network, at: usize) -> Result<i64> {
    /// `struct ifconf`: a length, padding, an address.
    type Ifconf = [u32; 4];
    let mut request: Ifconf = UserPtr::new(at).read()?;
    let to = u64::from(request[2]) | u64::from(request[3]) << 32;
    let room = usize::try_from(request[0] as i32).map_err(|_| Errno::EINVAL)?;
    let config = network.current();
    let mut length = 0;
    for interface in &config.interfaces {
        let Some((address, _)) = address_of(&config, interface) else { continue };
        if to != 0 {
            if room - length < REQUEST {
                break;
            }
            let mut entry = [0; REQUEST];
            entry[..NAME].copy_from_slice(&name(interface));
            let mut value = [0; NAME];
            put_address(address, &mut value);
            entry[NAME..2 * NAME].copy_from_slice(&value);
            user::copy_out(to as usize + length, &entry)?;
        }
        length += REQUEST;
    }
    request[0] = length as u32;
    UserPtr::new(at).write(&request)?;
    Ok(0)
}
