//! `/proc/hayate`: the resources of processes, what is kept of them, and the policy.
//!
//! * `resources/KIND/SERIAL` (or `KIND/NAME`, if there is a name): the attributes of one resource,
//!   one per line; writing a line `ATTRIBUTE VALUE` changes one;
//! * `pools`: the counts of each kind; writing a line says what to drop or how much to keep;
//! * `policy`: what is kept;
//! * `fresh`: what makes a restored machine another one than its twins ([`fresh`]);
//! * `idle`: how long each CPU has slept, in nanoseconds since boot;
//! * `net_fault`: the faults that packets meet on purpose ([`faults`]);
//! * `nvm`, `text_faults`: text on non-volatile memory ([`nvm`]);
//! * `templates`: the caller's templates, all of them for an administrator;
//! * `starts`: with `trace=starts`, the measured starts ([`process::starts`]); writing `watch`
//!   measures the starts that the writer makes, without images, and `images` lets them begin there;
//! * `refusal`, in a kernel for tests: which memory request of the writer is refused ([`refusal`]);
//! * `frames`, `objects`: how memory is used, exact when nothing else runs ([`frames`]).

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::str;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_packet_faults::Faults;

use super::text::line;
use super::tree;
use super::tree::{Item, Listing, Node, Subject, What};
use super::{frames, fresh, nvm, system};
use crate::credentials::Capability;
use crate::memory::deferred_free;
use crate::net::faults;
use crate::process;
use crate::process::resources::may_see;
use crate::process::templates::{shelf, table};
use crate::reclaim::growth::Grow;
#[cfg(debug_assertions)]
use crate::reclaim::refusal;
use crate::recycle::registry;
use crate::recycle::registry::Serial;
use crate::recycle::{Policy, ResourceKind, policy, pools};
#[cfg(debug_assertions)]
use crate::schedule;
use crate::vfs::inode::{DirectorySink, FileKind, Inode};

/// The items of `/proc/hayate`.
pub static ITEMS: &[Item<()>] = &[
    Item { name: "frames", what: What::Text(frames::frames) },
    Item { name: "fresh", what: What::Setting(fresh::show, fresh::renew) },
    Item { name: "idle", what: What::Text(system::idle) },
    Item { name: "net_fault", what: What::Setting(show_faults, set_faults) },
    Item { name: "nvm", what: What::Setting(nvm::show, |(), text| nvm::command(text)) },
    Item { name: "objects", what: What::Text(frames::objects) },
    Item { name: "policy", what: What::Setting(show_policy, set_policy) },
    Item { name: "pools", what: What::Setting(show_pools, change_pools) },
    #[cfg(debug_assertions)]
    Item { name: "refusal", what: What::Setting(show_refusal, refuse) },
    Item { name: "resources", what: What::Directory(KINDS) },
    Item { name: "starts", what: What::Setting(show_starts, watch_starts) },
    Item { name: "templates", what: What::Text(show_templates) },
    Item { name: "text_faults", what: What::Text(nvm::text_faults) },
];

/// A directory for each kind.
static KINDS: &[Item<()>] = &[
    Item { name: "attachment", what: What::Listing(&OfKind(ResourceKind::Attachment)) },
    Item { name: "execution", what: What::Listing(&OfKind(ResourceKind::Execution)) },
    Item { name: "image", what: What::Listing(&OfKind(ResourceKind::Image)) },
    Item { name: "plate", what: What::Listing(&OfKind(ResourceKind::Plate)) },
    Item { name: "process", what: What::Listing(&OfKind(ResourceKind::Process)) },
    Item { name: "program", what: What::Listing(&OfKind(ResourceKind::Program)) },
    Item { name: "region", what: What::Listing(&OfKind(ResourceKind::Region)) },
    Item { name: "space", what: What::Listing(&OfKind(ResourceKind::Space)) },
    Item { name: "work-area", what: What::Listing(&OfKind(ResourceKind::WorkArea)) },
];

/// The subject of a resource's file: only what is needed to find the resource, so that an open file
/// keeps nothing alive.
#[derive(Clone)]
struct Resource {
    kind: ResourceKind,
    serial: Serial,
    owner: u32,
}

impl Subject for Resource {
    fn owner(&self, _: bool) -> (u32, u32) {
        (self.owner, 0)
    }

    fn seed(&self) -> u64 {
        (self.kind.index() as u64) << 56 ^ self.serial.number ^ self.serial.part.unwrap_or(0) << 20
    }
}

/// All resources of a kind.
struct OfKind(ResourceKind);

impl OfKind {
    /// A file that every user may read.
    const OPEN: What<Resource> = What::Setting(show, change);
}

static OPEN: What<Resource> = OfKind::OPEN;
/// A file for the owner and root.
static PRIVATE: What<Resource> = What::Private(show);

/// Positions in a listing for the parts of one number: more than a space may have regions.
const PARTS: u64 = 1 << 20;
/// The last position in a listing; programs see positions as signed numbers.
const LAST: u64 = i64::MAX as u64 - 3;

impl Listing<()> for OfKind {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let kind = self.0;
        let entry = match Serial::parse(name) {
            Some(serial) => registry::find(kind, serial),
            None => registry::find_by_name(kind, name),
        }?;
        if !may_see(kind, entry.owner) {
            return Err(Errno::ENOENT);
        }
        let what = match kind {
            ResourceKind::Space
            | ResourceKind::Region
            | ResourceKind::Attachment
            | ResourceKind::Image => &PRIVATE,
            _ => &OPEN,
        };
        let subject = Resource { kind, serial: entry.serial, owner: entry.owner };
        Ok(Node::entry(subject, what, device, 0, b"resource"))
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let mut all = Vec::new();
        let mut lacking = false;
        registry::visit(self.0, &mut |entry| {
            if may_see(self.0, entry.owner) {
                lacking |= all.make_room(1).is_err();
                if !lacking {
                    all.push(entry.serial);
                }
            }
        })?;
        if lacking {
            return Err(Errno::ENOMEM);
        }
        all.sort_unstable();
        // Each call takes a new snapshot, so a position is computed from the serial and not from
        // the index in the snapshot: resources that come and go between two calls do not move
        // others. The parts of one number are counted among themselves.
        let (mut number, mut part) = (u64::MAX, 0);
        for serial in all {
            part = if serial.number == number { (part + 1).min(PARTS - 1) } else { 0 };
            number = serial.number;
            let place = number.saturating_mul(PARTS).saturating_add(part).min(LAST);
            if place + 2 < *position {
                continue;
            }
            let name = format!("{serial}");
            let inode = tree::mix(self.0.index() as u64, name.as_bytes()) | 1;
            if !sink.entry(inode, FileKind::Regular, name.as_bytes(), place + 3) {
                return Ok(());
            }
            *position = place + 3;
        }
        Ok(())
    }
}

fn show(resource: &Resource, out: &mut Vec<u8>) -> Result<()> {
    let attributes = registry::describe(resource.kind, resource.serial)?;
    attributes.iter().try_for_each(|(name, value)| line(out, format_args!("{name}: {value}")))
}

/// Handles a written line `ATTRIBUTE VALUE`.
fn change(resource: &Resource, text: &[u8]) -> Result<()> {
    let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let (attribute, value) = text.trim().split_once(' ').ok_or(Errno::EINVAL)?;
    let caller = process::current().credentials();
    // Whose number it is does not tell inside a user namespace what is the caller's.
    if !caller.is_outermost() {
        return Err(Errno::EPERM);
    }
    let right = match resource.kind {
        // As setpriority(2) for a higher priority.
        ResourceKind::Execution if value.trim().starts_with('-') => Some(Capability::SysNice),
        ResourceKind::Plate => Some(Capability::SysAdmin),
        _ => None,
    };
    if let Some(right) = right {
        caller.require(right)?;
    }
    registry::control(resource.kind, resource.serial, attribute, value.trim())
}

fn show_policy(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", policy::get()))
}

fn set_policy(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::SysAdmin)?;
    let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    policy::set(Policy::parse(text).map_err(|_| Errno::EINVAL)?);
    Ok(())
}

fn show_pools(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("kind made reused stored dropped kept bytes limit"))?;
    for kind in ResourceKind::ALL {
        let counts = pools::counts(kind);
        // A kind without a pool keeps nothing.
        let limit = pools::limit(kind).unwrap_or(0);
        line(
            out,
            format_args!(
                "{} {} {} {} {} {} {} {limit}",
                kind,
                counts.made,
                counts.reused,
                counts.stored,
                counts.dropped,
                counts.kept,
                counts.bytes
            ),
        )?;
    }
    Ok(())
}

/// The templates that the caller may remove, with an empty line behind each.
fn show_templates(_: &(), out: &mut Vec<u8>) -> Result<()> {
    let caller = process::current().credentials();
    if !caller.is_outermost() {
        return Ok(());
    }
    let owner = (!caller.has(Capability::SysAdmin)).then_some(caller.euid);
    for template in table::all(owner)? {
        line(out, format_args!("name: {}", template.name.escape_ascii()))?;
        line(out, format_args!("owner: {}", template.owner()))?;
        line(out, format_args!("made: {}", template.made))?;
        line(out, format_args!("bytes: {}", template.bytes))?;
        if template.stored != 0 {
            line(out, format_args!("stored: {}", template.stored))?;
        }
        line(out, format_args!("starts: {}", template.starts.load(Ordering::Relaxed)))?;
        show_bound(out, &template.name, template.owner())?;
        let rows = [
            ("serves", template.serves.text()),
            ("file", &*template.mapped),
            ("file", &*template.files),
        ];
        for (name, list) in rows {
            for text in list.split(|&byte| byte == b'\n').filter(|text| !text.is_empty()) {
                line(out, format_args!("{name}: {}", text.escape_ascii()))?;
            }
        }
        line(out, format_args!(""))?;
    }
    for stored in shelf::all(owner)? {
        line(out, format_args!("name: {}", stored.name.escape_ascii()))?;
        line(out, format_args!("owner: {}", stored.owner))?;
        line(out, format_args!("made: {}", stored.made))?;
        line(out, format_args!("stored: {}", stored.bytes()))?;
        show_bound(out, &stored.name, stored.owner)?;
        let head = stored.head()?;
        for text in head.rules.split(|&byte| byte == b'\n').filter(|text| !text.is_empty()) {
            line(out, format_args!("serves: {}", text.escape_ascii()))?;
        }
        for file in head.known {
            line(out, format_args!("file: {}", head.path(file).escape_ascii()))?;
        }
        line(out, format_args!(""))?;
    }
    Ok(())
}

/// The paths that are bound to a template.
fn show_bound(out: &mut Vec<u8>, name: &[u8], owner: u32) -> Result<()> {
    table::for_each_path((name, owner), |path| {
        line(out, format_args!("bound: {}", path.escape_ascii()))
    })
}

/// Only root may read the paths and times of measured processes, and the process that makes them.
fn show_starts(_: &(), out: &mut Vec<u8>) -> Result<()> {
    if !process::starts::is_watcher() {
        process::current().credentials().require(Capability::SysAdmin)?;
    }
    process::starts::show(&mut |start| {
        let text = format!("{start}");
        out.make_room(text.len())?;
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
}

/// Handles `watch` and `images`. By the file's mode only root can open it for writing, and may pass
/// the descriptor on.
fn watch_starts(_: &(), text: &[u8]) -> Result<()> {
    match text.trim_ascii() {
        b"watch" => process::starts::watch(),
        b"images" => process::starts::allow_images(),
        _ => Err(Errno::EINVAL),
    }
}

fn show_faults(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", faults::get()))
}

/// Sets the faults that packets meet.
fn set_faults(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::NetAdmin)?;
    let text = str::from_utf8(text.trim_ascii()).map_err(|_| Errno::EINVAL)?;
    faults::set(Faults::parse(text).map_err(|_| Errno::EINVAL)?);
    Ok(())
}

/// Handles `drop`, `drop KIND` or `limit KIND BYTES`.
fn change_pools(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::SysAdmin)?;
    let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let kind = |name: &str| ResourceKind::from_name(name).ok_or(Errno::EINVAL);
    let mut words = text.split_whitespace();
    let wanted = (words.next(), words.next(), words.next(), words.next());
    match wanted {
        (Some("drop"), None, None, None) => drop_kept(None),
        (Some("drop"), Some(name), None, None) => drop_kept(Some(kind(name)?)),
        (Some("limit"), Some(name), Some(bytes), None) => {
            let bytes = bytes.parse().map_err(|_| Errno::EINVAL)?;
            if !pools::set_limit(kind(name)?, bytes) {
                return Err(Errno::EINVAL);
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

fn drop_kept(kind: Option<ResourceKind>) {
    if kind.is_none() {
        deferred_free::settle();
    }
    pools::drop_all(kind);
}

#[cfg(debug_assertions)]
fn show_refusal(_: &(), out: &mut Vec<u8>) -> Result<()> {
    refusal::show(&mut |text| line(out, text))
}

/// Handles what [`refusal`] lists.
#[cfg(debug_assertions)]
fn refuse(_: &(), text: &[u8]) -> Result<()> {
    process::current().credentials().require(Capability::SysResource)?;
    let command = str::from_utf8(text.trim_ascii()).map_err(|_| Errno::EINVAL)?;
    refusal::command(command, &schedule::ARMED_EXECUTIONS)
}
