//! Network namespaces (network_namespaces(7)): interfaces, addresses and routes of each, and the
//! way from there to a destination.
//!
//! All three are one [`Config`], which never changes: a change makes a new one and raises
//! [`Network::generation`]. Each processor keeps a reference to the newest of the first namespace
//! that it has seen, so the way of a packet takes only that processor's lock; a connection keeps
//! its [`Path`] and asks again when the generation is another. In another namespace the way of a
//! packet takes the lock of that one's configuration.
//!
//! # Namespaces
//!
//! A socket is of the namespace in which it was made, for its life, and holds it. A packet is of
//! that of the interface which it arrives on; an [`Interface`] knows its namespace and does not
//! hold it. The first namespace has the devices. Each further one has a loopback interface, which
//! is down until a program sets it up, and nothing leads out.
//!
//! Ports, connections, fragments and MTUs of paths are found in tables that all namespaces share,
//! by keys that contain the namespace's ([`Network::key`]), as in Linux. The first namespace keeps
//! its tables where they are, and a further one is made in a moment: it allocates itself, its
//! interface and its configuration. What it leaves behind in tables holds no reference to it, and
//! is taken out at its end ([`at_end`]). Road not taken: tables for each namespace. They would be
//! some hundred parts with a lock each, made at every start of a sandbox, most of them for nothing.
//!
//! Lock order: a processor's [`SEEN`], then [`Network::newest`]; both are held for a few
//! instructions.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ip::membership::Memberships;
use hayate_ip::route::{Route, Routes};
use hayate_ip::{Address, SocketAddress};
use hayate_machine::cpu::PerCpu;
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};

use super::settings::Settings;
use super::statistics::{self, Counter, Counts, TcpCounter};
use crate::drivers::net::NetworkDevice;
use crate::namespace::{self, Handle, Home};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::user_namespace::{self, UserNamespace};

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

/// A network namespace.
pub struct Network {
    /// Its number.
    pub number: u64,
    /// What keys of tables contain: 0 for the first.
    pub key: u64,
    /// The user namespace that it belongs to.
    pub owner: Handle<UserNamespace>,
    /// Its settings.
    pub settings: Settings,
    /// The groups that its sockets have joined; a leaf.
    pub groups: SpinLock<Memberships>,
    /// The bytes of memory that its incomplete packets take.
    pub incomplete: AtomicUsize,
    /// What its protocols have done; those of the first are elsewhere.
    counts: Counts,
    /// How many sockets it has; those of the first are not counted.
    pub sockets: AtomicUsize,
    /// Whether tables may have something of it that does not hold it.
    has_traces: AtomicBool,
    newest: SpinLock<Option<Arc<Config>>>,
    generation: AtomicU64,
    /// Its place among those of the user who made it, given back at its end.
    _counted: Option<Box<dyn Send + Sync>>,
}

/// The first one.
pub static FIRST: Network = Network::new(namespace::first::NET, user_namespace::first(), None);

/// The first one, as a handle.
pub const fn first() -> Handle<Network> {
    Handle::First(&FIRST)
}

/// Makes a namespace that belongs to `owner`. It has a loopback interface, which is down, no
/// addresses, and the settings that a machine boots with.
///
/// # Errors
/// `ENOMEM`.
pub fn another(
    owner: Handle<UserNamespace>,
    counted: Box<dyn Send + Sync>,
) -> Result<Handle<Network>> {
    let network = Arc::new(Network::new(namespace::number(), owner, Some(counted)));
    let handle = Handle::Other(network.clone());
    let mut config = Config::default();
    growth::push(&mut config.interfaces, Arc::new(loopback(&handle, 0)))?;
    *network.newest.lock() = Some(Arc::new(config));
    Ok(handle)
}

/// The loopback interface of a namespace, with [`flag::UP`] or not.
fn loopback(network: &Handle<Network>, up: u32) -> Interface {
    Interface {
        index: LOOPBACK,
        name: String::from("lo"),
        hardware: AtomicU64::new(0),
        mtu: AtomicU32::new(LOOPBACK_MTU),
        flags: AtomicU32::new(flag::LOOPBACK | flag::RUNNING | flag::LOWER_UP | up),
        counters: Counters::default(),
        device: None,
        key: network.key,
        network: network.home(),
    }
}

/// Takes what a namespace left behind out of the tables.
type Purge = fn(&Network);

static AT_END: Once<Purge> = Once::new();

/// Registers what is called at the end of a namespace that has [left traces](Network::note_trace);
/// at boot.
pub fn at_end(purge: Purge) {
    AT_END.call_once(|| purge);
}

impl Drop for Network {
    fn drop(&mut self) {
        if let (true, Some(purge)) = (self.has_traces.load(Ordering::Relaxed), AT_END.get()) {
            purge(self);
        }
    }
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
    /// [`Network::key`] of its namespace.
    pub key: u64,
    /// Its namespace.
    pub network: Home<Network>,
}

impl Interface {
    /// A number that no interface of any namespace has but this: in the first its index.
    #[inline]
    pub fn identity(&self) -> u32 {
        if self.key == 0 { self.index } else { 1 << 31 | self.key as u32 }
    }

    /// Its flags as programs are told them: an interface that is down says nothing of the other
    /// end (`dev_get_flags`).
    pub fn shown_flags(&self) -> u32 {
        let flags = self.flags.load(Ordering::Relaxed);
        let of_the_other_end = flag::RUNNING | flag::LOWER_UP;
        if flags & flag::UP == 0 { flags & !of_the_other_end } else { flags }
    }

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

impl LocalAddress {
    /// Whether it makes the loopback addresses of its version those of this machine.
    fn loops(&self) -> bool {
        self.address.is_loopback() && self.interface == LOOPBACK
    }
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
    /// Whether 127.0.0.0/8 and ::1 are this machine's: the loopback interface has such an address.
    /// Follows from the addresses.
    loops: [bool; 2],
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

per_cpu! {
    static SEEN: PerCpu<SpinLock<(u64, Option<Arc<Config>>)>> =
        PerCpu::new(SpinLock::new((0, None)));
}

impl Network {
    const fn new(
        number: u64,
        owner: Handle<UserNamespace>,
        counted: Option<Box<dyn Send + Sync>>,
    ) -> Network {
        Network {
            number,
            key: number - namespace::first::NET,
            owner,
            settings: Settings::new(),
            groups: SpinLock::new(Memberships::new()),
            incomplete: AtomicUsize::new(0),
            counts: Counts::new(),
            sockets: AtomicUsize::new(0),
            has_traces: AtomicBool::new(false),
            newest: SpinLock::new(None),
            generation: AtomicU64::new(0),
            _counted: counted,
        }
    }

    /// Whether it is the first.
    #[inline]
    pub fn is_first(&self) -> bool {
        self.key == 0
    }

    /// Notes that a table gets something of it that does not hold it.
    pub fn note_trace(&self) {
        if !self.is_first() {
            self.has_traces.store(true, Ordering::Relaxed);
        }
    }

    /// Counts an event of IPv4 or of IPv6.
    #[inline]
    pub fn count(&self, counter: Counter, is_v4: bool) {
        if self.is_first() {
            statistics::count(counter, is_v4);
        } else {
            self.counts.of(counter, is_v4).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an event of TCP.
    #[inline]
    pub fn count_tcp(&self, counter: TcpCounter) {
        self.count_events(counter, 1);
    }

    /// Counts several events of TCP.
    #[inline]
    pub fn count_events(&self, counter: TcpCounter, events: u64) {
        if self.is_first() {
            statistics::count_tcp(counter, events);
        } else {
            self.counts.of_tcp(counter).fetch_add(events, Ordering::Relaxed);
        }
    }

    /// Returns how often an event of IPv4 or of IPv6 was counted.
    pub fn total(&self, counter: Counter, is_v4: bool) -> u64 {
        match self.is_first() {
            true => statistics::total(counter, is_v4),
            false => self.counts.of(counter, is_v4).load(Ordering::Relaxed),
        }
    }

    /// Returns how often an event of TCP was counted.
    pub fn total_tcp(&self, counter: TcpCounter) -> u64 {
        match self.is_first() {
            true => statistics::total_tcp(counter),
            false => self.counts.of_tcp(counter).load(Ordering::Relaxed),
        }
    }

    /// Returns the number of changes so far.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the newest configuration.
    #[inline]
    pub fn current(&self) -> Arc<Config> {
        if !self.is_first() {
            return self.newest.lock().clone().unwrap_or_default();
        }
        let mut seen = SEEN.here().lock();
        let newest = self.generation();
        if seen.0 != newest {
            // Read after the generation: it may be newer than that, never older.
            *seen = (newest, self.newest.lock().clone());
        }
        seen.1.clone().unwrap_or_default()
    }

    /// Changes the configuration.
    ///
    /// # Errors
    /// Those of `change`; `ENOMEM`.
    pub fn change<T>(&self, change: impl FnOnce(&mut Config) -> Result<T>) -> Result<T> {
        let mut newest = self.newest.lock();
        let mut config = newest.as_deref().map_or_else(|| Ok(Config::default()), Config::copy)?;
        let value = change(&mut config)?;
        let has = |v4| config.addresses.iter().any(|own| own.loops() && own.address.is_v4() == v4);
        config.loops = [has(true), has(false)];
        let config = Arc::new(config);
        let old = newest.replace(Arc::clone(&config));
        self.generation.fetch_add(1, Ordering::Release);
        drop(newest);
        if let (Some(observer), Some(old)) = (OBSERVER.get(), old) {
            observer(self, &old, &config);
        }
        Ok(value)
    }

    /// Sets an interface of this namespace up or down. The loopback interface gets its addresses
    /// when it comes up, if it has none of that version of IP, and loses those of IPv6 when it goes
    /// down (`inetdev_event`, `init_loopback`, `addrconf_ifdown`). The ways of connections are
    /// found anew.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn set_up(&self, interface: &Interface, up: bool) -> Result<()> {
        self.change(|config| {
            if interface.is_loopback() && interface.is_up() != up {
                config.turn_loopback(up)?;
            }
            match up {
                true => interface.flags.fetch_or(flag::UP, Ordering::Relaxed),
                false => interface.flags.fetch_and(!flag::UP, Ordering::Relaxed),
            };
            Ok(())
        })
    }
}

/// Is shown the old and the new configuration of a namespace after a change.
type Observer = fn(&Network, &Config, &Config);

static OBSERVER: Once<Observer> = Once::new();

/// Registers the observer of changes; at boot.
pub fn observe(observer: Observer) {
    OBSERVER.call_once(|| observer);
}

/// Makes the loopback interface of the first namespace with its addresses; at boot.
pub fn init() -> Result<()> {
    add_interface(|_| loopback(&first(), flag::UP))?;
    FIRST.change(|config| config.turn_loopback(true))
}

/// Adds an interface to the first namespace; `make` gets its index.
///
/// # Errors
/// `ENOMEM`.
pub fn add_interface(make: impl FnOnce(u32) -> Interface) -> Result<Arc<Interface>> {
    FIRST.change(|config| {
        let index = config.interfaces.last().map_or(LOOPBACK, |last| last.index + 1);
        let interface = Arc::new(make(index));
        growth::push(&mut config.interfaces, Arc::clone(&interface))?;
        Ok(interface)
    })
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

    /// The loopback interface comes up or goes down.
    fn turn_loopback(&mut self, up: bool) -> Result<()> {
        if up {
            for (address, prefix) in [(Address::LOOPBACK_V4, 8), (Address::LOOPBACK_V6, 128)] {
                let is_there = |own: &LocalAddress| {
                    own.address == address
                        || address.is_v4() && own.address.is_v4() && own.interface == LOOPBACK
                };
                if !self.addresses.iter().any(is_there) {
                    self.add_address(LocalAddress { address, prefix, interface: LOOPBACK })?;
                }
            }
        } else {
            self.addresses.retain(|own| own.interface != LOOPBACK || own.address.is_v4());
            self.routes.remove(|route| route.interface == LOOPBACK && !route.network.is_v4());
        }
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

    /// Whether an address is one of this machine: all of 127.0.0.0/8 is, as on Linux, if the
    /// loopback interface has an address of that.
    #[inline]
    pub fn is_local(&self, address: Address) -> bool {
        if address.is_loopback() {
            return self.loops[usize::from(!address.is_v4())];
        }
        self.addresses.iter().any(|local| local.address == address)
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

    /// Whether bind(2) takes an address. Without any address of IPv4 each of that version is taken:
    /// Linux makes the table that says otherwise with the first (`__inet_dev_addr_type`).
    pub fn takes(&self, name: SocketAddress) -> bool {
        let has_none = || !self.addresses.iter().any(|own| own.address.is_v4());
        self.is_local_on(name) || name.address.is_v4() && has_none()
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
            // Linux has no routes by an interface that is down.
            return Err(if index == LOOPBACK { Errno::ENETUNREACH } else { Errno::ENETDOWN });
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
