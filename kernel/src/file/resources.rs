//! Page caches of files, listed in the registry ([`crate::resource::registry`]).
//!
//! They are found through the cached names, mount by mount. A page cache with several names is
//! shown with the first; one without a name (of a file that is open and deleted, or of a memfd) is
//! not shown, as only its holder can find it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;
use hayate_abi::{Errno, Result};

use super::attributes::FileKind;
use super::mount::{self, Location};
use super::plate::{PAGE, Plate};
use crate::growth::Grow;
use crate::resource::Kind;
use crate::resource::registry::{self, Attributes, Entry, Serial, Source};

/// Registers with the registry; boot calls it once.
pub fn register() {
    registry::register(&Plates);
}

struct Plates;

/// Visits every page cache that is in memory and has a name, with its place and its file's owner.
fn each(mut visit: impl FnMut(&Arc<Plate>, &Location, u32)) -> Result<()> {
    let mut seen = HashSet::new();
    for mount in mount::all_with_root()? {
        let mut waiting: Vec<_> = Vec::new();
        waiting.push(mount.root().clone());
        while let Some(dentry) = waiting.pop() {
            let below = dentry.cached_children();
            waiting.make_room(below.len())?;
            waiting.extend(below);
            let Some(inode) = dentry.inode() else { continue };
            let attributes = inode.attributes();
            if attributes.kind != FileKind::Regular {
                continue;
            }
            let Some(plate) = inode.plate() else { continue };
            seen.make_room(1)?;
            if plate.resident() == 0 || !seen.insert(plate.id()) {
                continue;
            }
            visit(&plate, &Location { mount: mount.clone(), dentry }, attributes.uid);
        }
    }
    Ok(())
}

fn find(serial: Serial) -> Result<Arc<Plate>> {
    let mut found = None;
    each(|plate, _, _| {
        if Serial::of(plate.id()) == serial {
            found = Some(plate.clone());
        }
    })?;
    found.ok_or(Errno::ENOENT)
}

impl Source for Plates {
    fn kind(&self) -> Kind {
        Kind::Plate
    }

    fn visit(&self, show: &mut dyn FnMut(Entry)) -> Result<()> {
        let Some(root) = mount::root() else { return Ok(()) };
        each(|plate, place, owner| {
            show(Entry {
                serial: Serial::of(plate.id()),
                name: place.display(&root).unwrap_or_default(),
                owner,
                bytes: plate.resident() * PAGE as u64,
                kept: false,
            });
        })
    }

    fn describe(&self, serial: Serial, to: &mut Attributes) -> Result<()> {
        let plate = find(serial)?;
        to.add("size", format_args!("{}", plate.size()))?;
        to.add("resident-pages", format_args!("{}", plate.resident()))?;
        to.add("version", format_args!("{}", plate.version()))?;
        to.add("memory-only", format_args!("{}", if plate.is_memory() { "yes" } else { "no" }))
    }

    fn control(&self, serial: Serial, attribute: &str, value: &str) -> Result<()> {
        let plate = find(serial)?;
        match (attribute, value) {
            // Reclaims pages that can be read again and have no other user.
            ("resident-pages", "0") => {
                plate.reclaim(usize::MAX);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
