//! `/sys/class/net`: a directory for each network interface (Documentation/ABI/testing/
//! sysfs-class-net), with the files of which Hayate knows the content.
//!
//! The interfaces are those of the reader's network namespace. On Linux they are those of the
//! namespace in which sysfs was mounted, and each directory is a link into the tree of devices,
//! which is not here.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_netlink::route::link::Statistics;

use super::{ROOT_NUMBER, list_names};
use crate::fs::proc::text::line;
use crate::fs::proc::tree::{Item, Listing, Node, Subject, What};
use crate::net::config::{Interface, flag};
use crate::net::report;
use crate::vfs::caller;
use crate::vfs::inode::{DirectorySink, Inode};

/// An interface as the subject of files.
#[derive(Clone)]
struct Folder(Arc<Interface>);

impl Subject for Folder {
    fn seed(&self) -> u64 {
        self.0.identity().into()
    }
}

/// The directories of interfaces.
pub struct Interfaces;

impl Listing<()> for Interfaces {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let config = caller::network().current();
        let found = config.interface_named(name).cloned().ok_or(Errno::ENOENT)?;
        Ok(Node::entry(Folder(found), &INTERFACE, device, ROOT_NUMBER, name))
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let config = caller::network().current();
        let names = config.interfaces.iter().map(|interface| interface.name.clone());
        list_names(names, 2, position, sink);
        Ok(())
    }
}

static INTERFACE: What<Folder> = What::Directory(&[
    Item { name: "addr_len", what: What::Text(|_, out| line(out, format_args!("6"))) },
    Item {
        name: "address",
        what: What::Text(|it, out| line(out, format_args!("{}", colons(it.0.hardware())))),
    },
    Item {
        name: "broadcast",
        what: What::Text(|it, out| {
            let all = if it.0.is_loopback() { 0 } else { 0xff };
            line(out, format_args!("{}", colons([all; 6])))
        }),
    },
    Item {
        name: "carrier",
        what: What::Text(|it, out| {
            if !it.0.is_up() {
                return Err(Errno::EINVAL);
            }
            line(out, format_args!("{}", u8::from(has_carrier(&it.0))))
        }),
    },
    Item {
        name: "flags",
        what: What::Text(|it, out| {
            // Those that are set, without those that follow from the state.
            let flags = it.0.flags.load(Ordering::Relaxed) & !(flag::RUNNING | flag::LOWER_UP);
            line(out, format_args!("{flags:#x}"))
        }),
    },
    Item { name: "ifindex", what: What::Text(|it, out| line(out, format_args!("{}", it.0.index))) },
    Item { name: "iflink", what: What::Text(|it, out| line(out, format_args!("{}", it.0.index))) },
    Item { name: "mtu", what: What::Text(|it, out| line(out, format_args!("{}", it.0.mtu()))) },
    Item {
        name: "operstate",
        what: What::Text(|it, out| {
            let state = match (it.0.is_up(), it.0.is_loopback(), has_carrier(&it.0)) {
                (false, ..) | (true, false, false) => "down",
                // Loopback does not say.
                (true, true, _) => "unknown",
                (true, false, true) => "up",
            };
            line(out, format_args!("{state}"))
        }),
    },
    Item { name: "statistics", what: What::Directory(STATISTICS) },
    Item {
        name: "type",
        what: What::Text(|it, out| line(out, format_args!("{}", it.0.hardware_type()))),
    },
    Item {
        name: "uevent",
        what: What::Text(|it, out| {
            line(out, format_args!("INTERFACE={}\nIFINDEX={}", it.0.name, it.0.index))
        }),
    },
]);

static STATISTICS: &[Item<Folder>] = &[
    Item { name: "rx_bytes", what: What::Text(|it, out| count(it, out, |all| all.bytes_in)) },
    Item { name: "rx_dropped", what: What::Text(|it, out| count(it, out, |all| all.dropped_in)) },
    Item { name: "rx_errors", what: What::Text(|it, out| count(it, out, |all| all.errors_in)) },
    Item { name: "rx_packets", what: What::Text(|it, out| count(it, out, |all| all.packets_in)) },
    Item { name: "tx_bytes", what: What::Text(|it, out| count(it, out, |all| all.bytes_out)) },
    Item { name: "tx_dropped", what: What::Text(|it, out| count(it, out, |all| all.dropped_out)) },
    Item { name: "tx_errors", what: What::Text(|it, out| count(it, out, |all| all.errors_out)) },
    Item { name: "tx_packets", what: What::Text(|it, out| count(it, out, |all| all.packets_out)) },
];

fn count(folder: &Folder, out: &mut Vec<u8>, which: fn(&Statistics) -> u64) -> Result<()> {
    line(out, format_args!("{}", which(&report::statistics_of(&folder.0))))
}

fn has_carrier(interface: &Interface) -> bool {
    interface.is_loopback() || interface.shown_flags() & flag::LOWER_UP != 0
}

fn colons([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}
