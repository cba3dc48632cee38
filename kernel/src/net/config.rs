//! Interfaces, addresses and routes, and the way from here to a destination.
//!
//! All three are one [`Config`], which never changes: a change makes a new one and raises
//! [`generation`]. Each processor keeps a reference to the newest it has seen, so the way of a
//! packet takes only that processor's lock; a connection keeps its [`Path`] and asks again when the
//! generation is another.
//!
//! Lock order: a processor's [`SEEN`], then [`NEWEST`]; both are held for a few instructions.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::route::{Route, Routes};
use hayate_ip::{Address, SocketAddress};
use hayate_machine::cpu::PerCpu;
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};

use crate::drivers::net::NetworkDevice;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// The index of the loopback interface.
pub const LOOPBACK: u32 = 1;
/// The largest packet on the loopback interface (`LOOPBACK_MTU` of Linux' drivers/net/loopback.c).
const LOOPBACK_MTU: u32 = 65536;

/// Flags of an interface (netdevice(7)).
pub mod flag {
    #![allow(missing_docs, reason = "named as in netdevice(7)")]
    pub const UP: u32 = 0x1;
    pub const BROADCAST: u32 = 0x2;
    pub const LOOPBACK: u32 = 0x8;
    pub const RUNNING: u32 = 0x40;
    pub const MULTICAST: u32 = 0x1000;
    pub const LOWER_UP: u32 = 0x10000;
}

/// Packets and bytes that passed an interface.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets received.
    pub packets_in: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Packets received and dropped.
    pub dropped_in: AtomicU64,
    /// Packets sent.
    pub packets_out: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// Packets that were to be sent and were dropped.
    pub dropped_out: AtomicU64,
}

/// A network interface.
pub struct Interface {
    /// Its index, from 1.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address as a number, the first byte lowest; that of the loopback interface is
    /// zero.
    pub hardware: AtomicU64,
    /// The largest IP packet in bytes.
    pub mtu: AtomicU32,
    /// [`flag`]s.
    pub flags: AtomicU32,
    /// Counts of packets that passed it. What loopback passed on is counted on each processor;
    /// [`report::statistics_of`](super::report::statistics_of) knows both.
    pub counters: Counters,
    /// The device; the loopback interface has none.
    pub device: Option<Arc<dyn NetworkDevice>>,
}

impl Interface {
    /// Whether it is the loopback interface.
    #[inline]
    pub fn is_loopback(&self) -> bool {
        self.index == LOOPBACK
    }

    /// Returns the largest IP packet in bytes.
    #[inline]
    pub fn mtu(&self) -> usize {
        self.mtu.load(Ordering::Relaxed) as usize
    }

    /// Returns its hardware address.
    #[inline]
    pub fn hardware(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = self.hardware.load(Ordering::Relaxed).to_le_bytes();
        [a, b, c, d, e, f]
    }

    /// Returns a hardware address as [`Interface::hardware`] has it.
    pub fn word_of([a, b, c, d, e, f]: [u8; 6]) -> u64 {
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Returns the type of its hardware: `ARPHRD_LOOPBACK` or `ARPHRD_ETHER`.
    pub fn hardware_type(&self) -> u16 {
        if self.is_loopback() { 772 } else { 1 }
    }

    /// Whether it is up.
    #[inline]
    pub fn is_up(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & flag::UP != 0
    }
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub address: Address,
    /// The length of its network's prefix in bits.
    pub prefix: u8,
    /// The interface.
    pub interface: u32,
}

/// Interfaces, addresses and routes.
#[derive(Clone, Default)]
pub struct Config {
    /// In the order of their indexes.
    pub interfaces: Vec<Arc<Interface>>,
    /// In the order in which they were added.
    pub addresses: Vec<LocalAddress>,
    /// The routes.
    pub routes: Routes,
}

/// The way to a destination.
#[derive(Clone)]
pub struct Path {
    /// The interface that packets leave by.
    pub interface: Arc<Interface>,
    /// The next host on the interface's link: a gateway or the destination.
    pub next_hop: Address,
    /// The source address for a socket without one.
    pub source: Address,
    /// The destination is this machine.
    pub is_local: bool,
    /// The destination is a broadcast address.
    pub is_broadcast: bool,
}

impl Path {
    /// Checks that a destination is reached without a gateway, for a socket or a message that
    /// wants no other way (SO_DONTROUTE, MSG_DONTROUTE). Linux looks at this in IPv4 alone
    /// (`RTO_ONLINK`).
    ///
    /// # Errors
    /// `ENETUNREACH`.
    pub fn check_link(&self, to: Address) -> Result<()> {
        let is_direct = self.is_local || self.next_hop == to || !to.is_v4();
        if is_direct { Ok(()) } else { Err(Errno::ENETUNREACH) }
    }
}

static NEWEST: SpinLock<Option<Arc<Config>>> = SpinLock::new(None);
static GENERATION: AtomicU64 = AtomicU64::new(0);

per_cpu! {
    static SEEN: PerCpu<SpinLock<(u64, Option<Arc<Config>>)>> =
        PerCpu::new(SpinLock::new((0, None)));
}

/// Returns the number of changes so far.
#[inline]
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Returns the newest configuration.
#[inline]
pub fn current() -> Arc<Config> {
    let mut seen = SEEN.here().lock();
    let newest = generation();
    if seen.0 != newest {
        // Read after the generation: it may be newer than that, never older.
        *seen = (newest, NEWEST.lock().clone());
    }
    seen.1.clone().unwrap_or_default()
}

/// Changes the configuration.
///
/// # Errors
/// Those of `change`; `ENOMEM`.
pub fn change<T>(change: impl FnOnce(&mut Config) -> Result<T>) -> Result<T> {
    let mut newest = NEWEST.lock();
    let mut config = newest.as_deref().map_or_else(|| Ok(Config::default()), Config::copy)?;
    let value = change(&mut config)?;
    let config = Arc::new(config);
    let old = newest.replace(Arc::clone(&config));
    GENERATION.fetch_add(1, Ordering::Release);
    drop(newest);
    if let (Some(observer), Some(old)) = (OBSERVER.get(), old) {
        observer(&old, &config);
    }
    Ok(value)
}

/// Is shown the old and the new configuration after a change.
type Observer = fn(&Config, &Config);

static OBSERVER: Once<Observer> = Once::new();

/// Registers the observer of changes; at boot.
pub fn observe(observer: Observer) {
    OBSERVER.call_once(|| observer);
}

/// Makes the loopback interface with its addresses; at boot.
pub fn init() -> Result<()> {
    let flags = flag::UP | flag::LOOPBACK | flag::RUNNING | flag::LOWER_UP;
    add_interface(|index| Interface {
        index,
        name: String::from("lo"),
        hardware: AtomicU64::new(0),
        mtu: AtomicU32::new(LOOPBACK_MTU),
        flags: AtomicU32::new(flags),
        counters: Counters::default(),
        device: None,
    })?;
    add_address(LocalAddress { address: Address::LOOPBACK_V4, prefix: 8, interface: LOOPBACK })?;
    add_address(LocalAddress { address: Address::LOOPBACK_V6, prefix: 128, interface: LOOPBACK })
}

/// Adds an interface; `make` gets its index.
///
/// # Errors
/// `ENOMEM`.
pub fn add_interface(make: impl FnOnce(u32) -> Interface) -> Result<Arc<Interface>> {
    change(|config| {
        let index = config.interfaces.last().map_or(LOOPBACK, |last| last.index + 1);
        let interface = Arc::new(make(index));
        growth::push(&mut config.interfaces, Arc::clone(&interface))?;
        Ok(interface)
    })
}

/// Adds an address and the route to its network.
///
/// # Errors
/// `EEXIST`, `ENOMEM`.
pub fn add_address(new: LocalAddress) -> Result<()> {
    change(|config| config.add_address(new))
}

impl Config {
    /// Adds an address and the route to its network.
    ///
    /// # Errors
    /// `EEXIST`, `ENOMEM`.
    pub fn add_address(&mut self, new: LocalAddress) -> Result<()> {
        if self.addresses.iter().any(|old| old.address == new.address) {
            return Err(Errno::EEXIST);
        }
        growth::push(&mut self.addresses, new)?;
        let route = Route {
            network: new.address.network(new.prefix),
            prefix: new.prefix,
            gateway: None,
            interface: new.interface,
            metric: 0,
            source: Some(new.address),
            // `RTPROT_KERNEL`.
            protocol: 2,
        };
        self.routes.add(route).map_err(|_| Errno::ENOMEM)?;
        Ok(())
    }

    fn copy(&self) -> Result<Config> {
        let mut copy = Config::default();
        copy.interfaces.make_room(self.interfaces.len())?;
        copy.interfaces.extend(self.interfaces.iter().cloned());
        copy.addresses.make_room(self.addresses.len())?;
        copy.addresses.extend_from_slice(&self.addresses);
        for route in self.routes.iter() {
            copy.routes.add(*route).map_err(|_| Errno::ENOMEM)?;
        }
        Ok(copy)
    }

    /// Returns the interface with this index.
    pub fn interface(&self, index: u32) -> Option<&Arc<Interface>> {
        self.interfaces.iter().find(|interface| interface.index == index)
    }

    /// Returns the interface with this name.
    pub fn interface_named(&self, name: &[u8]) -> Option<&Arc<Interface>> {
        self.interfaces.iter().find(|interface| interface.name.as_bytes() == name)
    }

    /// Whether an address is one of this machine: all of 127.0.0.0/8 is, as on Linux.
    #[inline]
    pub fn is_local(&self, address: Address) -> bool {
        address.is_loopback() || self.addresses.iter().any(|local| local.address == address)
    }

    /// Whether an address is one of this machine: on the interface that it names, if it names one.
    pub fn is_local_on(&self, name: SocketAddress) -> bool {
        match name.scope {
            0 => self.is_local(name.address),
            link => self
                .addresses
                .iter()
                .any(|local| local.address == name.address && local.interface == link),
        }
    }

    /// Whether an address is the broadcast address of a network of this machine, or of all.
    #[inline]
    pub fn is_broadcast(&self, address: Address) -> bool {
        let is_of_network = || {
            let all = |local: &LocalAddress| local.address.broadcast(local.prefix);
            self.addresses.iter().any(|local| all(local) == Some(address))
        };
        // IPv6 has none.
        address.is_v4() && (address.is_broadcast() || is_of_network())
    }

    /// Returns an address of an interface, of the same version as `to`, for packets to `to`.
    pub(super) fn source_on(&self, interface: u32, to: Address) -> Option<Address> {
        let mut of_version = self
            .addresses
            .iter()
            .filter(|local| local.interface == interface && local.address.is_v4() == to.is_v4())
            .map(|local| local.address);
        // RFC 6724, rule 2: an address of the destination's scope.
        let fitting =
            of_version.clone().find(|address| address.is_link_local() == to.is_link_local());
        fitting.or_else(|| of_version.next())
    }

    /// Whether packets to an address that leave by an interface, 0 for any, stay in this machine.
    /// To an address of another interface they leave: both may be on one link
    /// (`fib_lookup_good_nhc` in Linux' net/ipv4/fib_trie.c compares the interface of a local
    /// address, too).
    fn stays(&self, to: Address, interface: u32) -> bool {
        if interface <= LOOPBACK {
            return self.is_local(to);
        }
        self.addresses.iter().any(|local| local.address == to && local.interface == interface)
    }

    /// Finds the way to `to`, only by `interface` if that is not 0.
    ///
    /// # Errors
    /// `ENETUNREACH`; `EADDRNOTAVAIL` if no address can be the source; `ENODEV` for an interface
    /// that does not exist; `ENETDOWN`.
    pub fn path(&self, to: Address, interface: u32) -> Result<Path> {
        // Packets to the wildcard address go to this machine (ip(7), INADDR_ANY in connect).
        let to = match to {
            Address::ANY_V4 => Address::LOOPBACK_V4,
            Address::ANY_V6 => Address::LOOPBACK_V6,
            to => to,
        };
        let is_broadcast = self.is_broadcast(to);
        if self.stays(to, interface) && !(is_broadcast && interface > LOOPBACK) {
            let interface = self.interface(LOOPBACK).ok_or(Errno::ENETUNREACH)?;
            return Ok(Path {
                interface: Arc::clone(interface),
                next_hop: to,
                // The route of 127.0.0.0/8 names its source, that of another own address itself.
                source: if to.is_v4() && to.is_loopback() { Address::LOOPBACK_V4 } else { to },
                is_local: true,
                is_broadcast,
            });
        }
        let spreads = is_broadcast || to.is_multicast();
        let interface_is_named = interface != 0;
        let (index, next_hop, source) = match self.routes.find(to, interface) {
            Some(route) => (route.interface, route.gateway.unwrap_or(to), route.source),
            // Linux has a route to the groups of IPv6 for each interface but this one
            // (`init_loopback`, net/ipv6/addrconf.c).
            None if spreads && interface != 0 && (to.is_v4() || interface != LOOPBACK) => {
                (interface, to, None)
            }
            None => return Err(Errno::ENETUNREACH),
        };
        let next_hop = if spreads { to } else { next_hop };
        let interface = self.interface(index).ok_or(Errno::ENODEV)?;
        if !interface.is_up() {
            return Err(Errno::ENETDOWN);
        }
        let source = source
            .filter(|source| !source.is_link_local())
            .or_else(|| self.source_on(index, to))
            // A program that has yet to ask for the address names none (Linux 6.1, net/ipv4/route.c,
            // `ip_route_output_key_hash_rcu`: `inet_select_addr` may find none there).
            .or_else(|| (to.is_broadcast() && interface_is_named).then_some(Address::ANY_V4))
            .ok_or(Errno::EADDRNOTAVAIL)?;
        let interface = Arc::clone(interface);
        Ok(Path { interface, next_hop, source, is_local: false, is_broadcast })
    }
}
