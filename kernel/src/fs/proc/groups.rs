//! `/proc/PID/net/igmp`, `igmp6`, `mcfilter` and `mcfilter6`: the groups of each interface, and the
//! sources that sockets name of them (proc_pid_net(5); net/ipv4/igmp.c and net/ipv6/mcast.c of
//! Linux 6.1).
//!
//! Besides those that sockets have joined there are groups that every host is in: all hosts of a
//! link (RFC 1112, 4; RFC 4291, 2.8), and for IPv6 the group of each own address by which
//! neighbours look for it.

use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_ip::Address;

use super::target::Target;
use super::text::{line, put};
use crate::net::config::{self, Interface, Network};
use crate::net::groups::{self, Shown};

/// All hosts of a link.
const ALL_V4: u32 = 0xe000_0001;
const ALL_V6: u128 = 0xff02_0000_0000_0000_0000_0000_0000_0001;
/// The same within a node.
const NODE_V6: u128 = 0xff01_0000_0000_0000_0000_0000_0000_0001;
/// The group of an address, of which it gives the last 24 bits (RFC 4291, 2.7.1).
const SOLICITED: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;

/// Nanoseconds of a tick, in which a time is given (`USER_HZ`).
const TICK: u64 = 10_000_000;

/// The groups of an interface.
fn of<'a>(list: &'a [Shown], interface: &Interface) -> impl Iterator<Item = &'a Shown> {
    let index = interface.index;
    list.iter().filter(move |shown| shown.interface == index)
}

/// An IPv4 address in the order of the network, as a number of this machine.
fn network_order(address: Address) -> u32 {
    address.to_v4().unwrap_or_default().swap_bytes()
}

/// `igmp`.
pub fn igmp(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter"))?;
    let network = target.network()?;
    let list = groups::shown(&network, true)?;
    let config = network.current();
    for interface in config.interfaces.iter().filter(|interface| interface.is_up()) {
        let (index, name) = (interface.index, &interface.name);
        let count = of(&list, interface).count() + 1;
        let dialect = groups::dialect(&network, index, true);
        line(out, format_args!("{index}\t{name:<10}: {count:5}      V{dialect}"))?;
        for shown in of(&list, interface) {
            let (running, ticks) = timer(shown);
            let group = network_order(shown.group);
            put(out, format_args!("\t\t\t\t{group:08X} {:5} ", shown.users))?;
            line(out, format_args!("{}:{ticks:08X}\t\t0", u8::from(running)))?;
        }
        line(out, format_args!("\t\t\t\t{:08X} {:5} 0:00000000\t\t0", ALL_V4.swap_bytes(), 1))?;
    }
    Ok(())
}

/// Whether something is to be said of a group, and the ticks until then.
fn timer(shown: &Shown) -> (bool, u64) {
    (shown.says_in.is_some(), shown.says_in.unwrap_or_default() / TICK)
}

/// A line of `igmp6`.
fn row_v6(
    out: &mut Vec<u8>,
    interface: &Interface,
    group: u128,
    users: usize,
    (flags, ticks): (u32, u64),
) -> Result<()> {
    let (index, name) = (interface.index, &interface.name);
    line(out, format_args!("{index:<4} {name:<15} {group:032x} {users:5} {flags:08X} {ticks}"))
}

/// `igmp6`.
pub fn igmp_v6(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    /// MAF_TIMER_RUNNING, MAF_LOADED, MAF_NOREPORT.
    const RUNNING: u32 = 1;
    const LOADED: u32 = 4;
    const NO_REPORT: u32 = 8;
    let network = target.network()?;
    let list = groups::shown(&network, false)?;
    let config = network.current();
    for interface in config.interfaces.iter().filter(|interface| interface.is_up()) {
        for shown in of(&list, interface) {
            let (running, ticks) = timer(shown);
            // A group that stays in a machine is not told to a device.
            let loaded = if shown.group.bits() >> 112 & 15 > 1 { LOADED } else { 0 };
            let flags = loaded | if running { RUNNING } else { 0 };
            row_v6(out, interface, shown.group.bits(), shown.users, (flags, ticks))?;
        }
        let is_own = |own: &&config::LocalAddress| {
            own.interface == interface.index && !own.address.is_v4() && !interface.is_loopback()
        };
        for own in config.addresses.iter().filter(is_own) {
            let group = SOLICITED | own.address.bits() & 0xff_ffff;
            row_v6(out, interface, group, 1, (LOADED, 0))?;
        }
        row_v6(out, interface, ALL_V6, 1, (LOADED | NO_REPORT, 0))?;
        row_v6(out, interface, NODE_V6, 1, (NO_REPORT, 0))?;
    }
    Ok(())
}

/// `mcfilter`.
pub fn filters(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("Idx Device        MCA        SRC    INC    EXC"))?;
    each_source(&*target.network()?, true, |interface, group, source, [included, excluded]| {
        let [group, source] = [group, source].map(|it| it.to_v4().unwrap_or_default());
        put(out, format_args!("{:3} {:>6.6} ", interface.index, interface.name))?;
        line(out, format_args!("0x{group:08x} 0x{source:08x} {included:6} {excluded:6}"))
    })
}

/// `mcfilter6`.
pub fn filters_v6(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    put(out, format_args!("Idx Device                Multicast Address"))?;
    line(out, format_args!("                   Source Address    INC    EXC"))?;
    each_source(&*target.network()?, false, |interface, group, source, [included, excluded]| {
        put(out, format_args!("{:3} {:>6.6} ", interface.index, interface.name))?;
        let (group, source) = (group.bits(), source.bits());
        line(out, format_args!("{group:032x} {source:032x} {included:6} {excluded:6}"))
    })
}

/// Calls `row` with each source that sockets name.
fn each_source(
    network: &Network,
    is_v4: bool,
    mut row: impl FnMut(&Interface, Address, Address, [u32; 2]) -> Result<()>,
) -> Result<()> {
    let list = groups::shown(network, is_v4)?;
    for interface in &network.current().interfaces {
        for shown in of(&list, interface) {
            for &(source, counts) in &shown.sources {
                row(interface, shown.group, source, counts)?;
            }
        }
    }
    Ok(())
}
