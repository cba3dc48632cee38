//! The requests of netdevice(7) that change interfaces, addresses and routes (`devinet_ioctl`,
//! `ip_rt_ioctl`, `addrconf_add_ifaddr`, `ipv6_route_ioctl` of Linux 6.1), in the network namespace
//! of a socket. All take CAP_NET_ADMIN in the user namespace that it belongs to.

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::route::Route;
use hayate_ip::{Address, SocketAddress};
use hayate_machine::user::UserPtr;

use super::config::{Config, Interface, LocalAddress, Network, flag};
use super::packet_socket::tap;
use crate::credentials::Capability;
use crate::vfs::caller;

/// Add and delete a route.
pub const SIOCADDRT: u32 = 0x890b;
/// See [`SIOCADDRT`].
pub const SIOCDELRT: u32 = 0x890c;
/// Set flags, address, netmask, MTU and hardware address of an interface.
pub const SIOCSIFFLAGS: u32 = 0x8914;
/// See [`SIOCSIFFLAGS`].
pub const SIOCSIFADDR: u32 = 0x8916;
/// See [`SIOCSIFFLAGS`].
pub const SIOCSIFNETMASK: u32 = 0x891c;
/// See [`SIOCSIFFLAGS`].
pub const SIOCSIFMTU: u32 = 0x8922;
/// See [`SIOCSIFFLAGS`].
pub const SIOCSIFHWADDR: u32 = 0x8924;
/// Take an address from an interface.
pub const SIOCDIFADDR: u32 = 0x8936;

/// The route goes to a gateway, and to a host (`RTF_GATEWAY`, `RTF_HOST`).
const GATEWAY: u16 = 2;
const HOST: u16 = 4;
/// The routes that a program sets (`RTPROT_BOOT`).
const BOOT: u8 = 3;
/// `IFNAMSIZ`.
const NAME: usize = 16;
/// The least MTU of an interface (`ETH_MIN_MTU`).
const LEAST_MTU: u32 = 68;

/// Reads the IPv4 address of a `struct sockaddr`.
fn address(bytes: &[u8]) -> Result<Address> {
    let bytes = bytes.get(..16).ok_or(Errno::EINVAL)?;
    SocketAddress::parse(bytes, false).map(|address| address.address).map_err(|_| Errno::EINVAL)
}

/// Changes an interface by a `struct ifreq`, whose value begins after the name.
///
/// # Errors
/// `EPERM`, `ENODEV`, `EINVAL`, `EADDRNOTAVAIL`, `EOPNOTSUPP`, `ENOMEM`; those of the device.
pub fn change(network: &Network, command: u32, index: u32, value: &[u8]) -> Result<()> {
    caller::require_in(&network.owner, Capability::NetAdmin)?;
    let number = value.first_chunk().map_or(0, |number| u32::from_ne_bytes(*number));
    match command {
        SIOCSIFFLAGS => {
            let config = network.current();
            let interface = config.interface(index).ok_or(Errno::ENODEV)?;
            let up = number as u16 as u32 & flag::UP != 0;
            network.set_up(interface, up)?;
            if !up {
                tap::went_down(network.key, index);
            }
            Ok(())
        }
        SIOCSIFMTU => {
            let config = network.current();
            let interface = config.interface(index).ok_or(Errno::ENODEV)?;
            let most = interface.device.as_ref().map_or(u32::MAX, |card| card.mtu() as u32);
            if number < LEAST_MTU || number > most {
                return Err(Errno::EINVAL);
            }
            interface.mtu.store(number, Ordering::Relaxed);
            network.change(|_| Ok(()))
        }
        SIOCSIFADDR => {
            let new = address(value)?;
            // The mask of the address's class, as `inet_abc_len`.
            let prefix = match new.to_v4().unwrap_or(0) >> 28 {
                0..8 => 8,
                8..12 => 16,
                12..14 => 24,
                _ => return Err(Errno::EINVAL),
            };
            network.change(|config| {
                let old = first_v4(config, index).map(|own| own.address);
                if let Some(old) = old {
                    remove(config, old, index);
                }
                if new.is_any() {
                    return Ok(());
                }
                config.add_address(LocalAddress { address: new, prefix, interface: index })
            })
        }
        SIOCSIFNETMASK => {
            let mask = address(value)?.to_v4().ok_or(Errno::EINVAL)?;
            if mask.leading_ones() != mask.count_ones() {
                return Err(Errno::EINVAL);
            }
            network.change(|config| {
                let own = first_v4(config, index).ok_or(Errno::EADDRNOTAVAIL)?;
                remove(config, own.address, index);
                config.add_address(LocalAddress { prefix: mask.leading_ones() as u8, ..own })
            })
        }
        SIOCSIFHWADDR => set_hardware(network, index, value),
        _ => Err(Errno::EINVAL),
    }
}

/// Gives an interface the hardware address of a `struct sockaddr`.
fn set_hardware(network: &Network, index: u32, value: &[u8]) -> Result<()> {
    let config = network.current();
    let interface = config.interface(index).ok_or(Errno::ENODEV)?;
    // The type of the hardware, the address.
    let (kind, address) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
    if u16::from_ne_bytes(*kind) != interface.hardware_type() {
        return Err(Errno::EINVAL);
    }
    give_hardware(interface, *address.first_chunk().ok_or(Errno::EINVAL)?)
}

/// Gives an interface another hardware address, whether or not it is up: virtio's device has
/// IFF_LIVE_ADDR_CHANGE on Linux (`dev_set_mac_address`, `virtnet_set_mac_address`).
///
/// # Errors
/// `EOPNOTSUPP`: it has no device; those of the device.
pub fn give_hardware(interface: &Interface, address: [u8; 6]) -> Result<()> {
    let device = interface.device.as_ref().ok_or(Errno::EOPNOTSUPP)?;
    device.set_mac(address)?;
    interface.hardware.store(Interface::word_of(address), Ordering::Relaxed);
    Ok(())
}

fn first_v4(config: &Config, index: u32) -> Option<LocalAddress> {
    let mut own = config.addresses.iter().filter(|own| own.interface == index);
    own.find(|own| own.address.is_v4()).copied()
}

/// Takes an address away, and the routes from it.
fn remove(config: &mut Config, address: Address, index: u32) -> bool {
    let before = config.addresses.len();
    config.addresses.retain(|own| own.address != address || own.interface != index);
    config.routes.remove(|route| route.source == Some(address) && route.interface == index);
    config.addresses.len() < before
}

/// SIOCADDRT and SIOCDELRT with a `struct rtentry`.
///
/// # Errors
/// `EPERM`, `EFAULT`, `EINVAL`, `ENODEV`, `ENETUNREACH`, `EEXIST`, `ESRCH`, `ENOMEM`.
pub fn route_v4(network: &Network, command: u32, at: usize) -> Result<()> {
    caller::require_in(&network.owner, Capability::NetAdmin)?;
    // struct rtentry: a word; destination, gateway and mask as `struct sockaddr`; flags; ...;
    // metric and one; the interface's name, or no pointer.
    let bytes: [u8; 120] = UserPtr::new(at).read()?;
    let flags = u16::from_ne_bytes([bytes[56], bytes[57]]);
    let destination = address(&bytes[8..24])?;
    let gateway = if flags & GATEWAY != 0 { Some(address(&bytes[24..40])?) } else { None };
    let mask = match flags & HOST {
        0 => address(&bytes[40..56]).unwrap_or(Address::ANY_V4).to_v4().ok_or(Errno::EINVAL)?,
        _ => u32::MAX,
    };
    let metric = i16::from_ne_bytes([bytes[80], bytes[81]]);
    let name = bytes[88..].first_chunk().map_or(0, |word| usize::from_ne_bytes(*word));
    let index = if name == 0 { 0 } else { named(network, name)? };
    let prefix = mask.leading_ones() as u8;
    let route = (destination, prefix, gateway, metric.max(1) as u32 - 1);
    change_route(network, command, route, index)
}

/// Returns the index of the interface whose name a program has at `at`; that of an alias is its
/// interface's.
fn named(network: &Network, at: usize) -> Result<u32> {
    let mut name = [0; NAME];
    for (index, byte) in name.iter_mut().take(NAME - 1).enumerate() {
        *byte = UserPtr::new(at + index).read()?;
        if *byte == 0 {
            break;
        }
    }
    let end = name.iter().position(|byte| [0, b':'].contains(byte)).unwrap_or(NAME);
    let config = network.current();
    Ok(config.interface_named(&name[..end]).ok_or(Errno::ENODEV)?.index)
}

/// The same with a `struct in6_rtmsg`.
///
/// # Errors
/// Those of [`route_v4`].
pub fn route_v6(network: &Network, command: u32, at: usize) -> Result<()> {
    caller::require_in(&network.owner, Capability::NetAdmin)?;
    // struct in6_rtmsg: destination, source, gateway; type; two prefixes; metric; info; flags;
    // index.
    let bytes: [u8; 80] = UserPtr::new(at).read()?;
    let six = |at: usize| {
        let bits = bytes[at..].first_chunk().map_or(0, |bits| u128::from_be_bytes(*bits));
        Address::v6(bits)
    };
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let prefix = u16::from_ne_bytes([bytes[52], bytes[53]]);
    let prefix = u8::try_from(prefix).ok().filter(|&prefix| prefix <= 128).ok_or(Errno::EINVAL)?;
    let gateway = (word(72) & u32::from(GATEWAY) != 0).then(|| six(32));
    change_route(network, command, (six(0), prefix, gateway, word(56)), word(76))
}

/// Adds or removes a route by an interface: a network, its prefix, a gateway, a metric.
fn change_route(
    in_network: &Network,
    command: u32,
    (network, prefix, gateway, metric): (Address, u8, Option<Address>, u32),
    index: u32,
) -> Result<()> {
    let network = network.network(prefix);
    if command == SIOCDELRT {
        return in_network.change(|config| {
            let is_it = |route: &Route| {
                (route.network, route.prefix) == (network, prefix)
                    && (gateway.is_none() || route.gateway == gateway)
                    && (index == 0 || route.interface == index)
            };
            if config.routes.remove(is_it) == 0 { Err(Errno::ESRCH) } else { Ok(()) }
        });
    }
    in_network.change(|config| {
        let interface = match (index, gateway) {
            (0, Some(gateway)) => {
                let way = config.routes.find(gateway, 0).filter(|route| route.gateway.is_none());
                way.map(|route| route.interface).ok_or(Errno::ENETUNREACH)?
            }
            (0, None) => return Err(Errno::ENODEV),
            (index, _) => config.interface(index).ok_or(Errno::ENODEV)?.index,
        };
        let route =
            Route { network, prefix, gateway, interface, metric, source: None, protocol: BOOT };
        let added = config.routes.add(route).map_err(|_| Errno::ENOMEM)?;
        if added { Ok(()) } else { Err(Errno::EEXIST) }
    })
}

/// SIOCSIFADDR and SIOCDIFADDR of an IPv6 socket, with a `struct in6_ifreq`.
///
/// # Errors
/// `EPERM`, `EFAULT`, `EINVAL`, `ENODEV`, `EEXIST`, `EADDRNOTAVAIL`, `ENOMEM`.
pub fn address_v6(network: &Network, command: u32, at: usize) -> Result<()> {
    caller::require_in(&network.owner, Capability::NetAdmin)?;
    let bytes: [u8; 24] = UserPtr::new(at).read()?;
    let address =
        Address::v6(bytes[..16].first_chunk().map_or(0, |bits| u128::from_be_bytes(*bits)));
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let prefix = u8::try_from(word(16)).map_err(|_| Errno::EINVAL)?;
    if prefix > 128 || !address.is_unicast() || address.is_v4() {
        return Err(Errno::EINVAL);
    }
    let interface = word(20);
    network.change(|config| {
        config.interface(interface).ok_or(Errno::ENODEV)?;
        if command == SIOCDIFADDR {
            let removed = remove(config, address, interface);
            return if removed { Ok(()) } else { Err(Errno::EADDRNOTAVAIL) };
        }
        config.add_address(LocalAddress { address, prefix, interface })
    })
}
