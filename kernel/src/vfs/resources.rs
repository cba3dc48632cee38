//! Page caches of files, listed in the registry ([`crate::recycle::registry`]).
//!
//! They are found through the cached names, mount by mount. A page cache with several names is
//! shown with the first; one without a name (of a file that is open and deleted, or of a memfd) is
//! not shown, as only its holder can find it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashSet;
use hayate_abi::{Errno, Result};

use super::attributes::FileKind;
use super::mount;
use super::mount::Location;
use crate::page_cache::cache::{PAGE, PageCache};
use crate::reclaim::growth::Grow;
use crate::recycle::ResourceKind;
use crate::recycle::registry;
use crate::recycle::registry::{ResourceAttributes, ResourceRow, ResourceSource, Serial};

/// Registers with the registry; boot calls it once.
pub fn register() {
    registry::register(&PageCaches);
}

struct PageCaches;

/// Visits every page cache that is in memory and has a name, with its place and its file's owner.
fn each(mut visit: impl FnMut(&Arc<PageCache>, &Location, u32)) -> Result<()> {
    let mut seen = HashSet::new();
    // A tree that is bound in many places is visited once.
    let mut roots = HashSet::new();
    let lock = mount::lock();
    for mount in mount::all_with_root(&lock)? {
        roots.make_room(1)?;
        if !roots.insert(Arc::as_ptr(mount.root()).addr()) {
            continue;
        }
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
            let Some(page_cache) = inode.page_cache() else { continue };
            seen.make_room(1)?;
            if page_cache.resident() == 0 || !seen.insert(page_cache.id()) {
                continue;
            }
            visit(&page_cache, &Location { mount: mount.clone(), dentry }, attributes.uid);
        }
    }
    Ok(())
}

fn find(serial: Serial) -> Result<Arc<PageCache>> {
    let mut found = None;
    each(|page_cache, _, _| {
        if Serial::of(page_cache.id()) == serial {
            found = Some(page_cache.clone());
        }
    })?;
    found.ok_or(Errno::ENOENT)
}

impl ResourceSource for PageCaches {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Plate
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        let Some(root) = mount::root() else { return Ok(()) };
        each(|page_cache, place, owner| {
            show(ResourceRow {
                serial: Serial::of(page_cache.id()),
                name: place.display(&root).unwrap_or_default(),
                owner,
                bytes: page_cache.resident() * PAGE as u64,
                kept: false,
            });
        })
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let page_cache = find(serial)?;
        to.add("size", format_args!("{}", page_cache.size()))?;
        to.add("resident-pages", format_args!("{}", page_cache.resident()))?;
        to.add("version", format_args!("{}", page_cache.version()))?;
        to.add("memory-only", format_args!("{}", if page_cache.is_memory() { "yes" } else { "no" }))
    }

    fn control(&self, serial: Serial, attribute: &str, value: &str) -> Result<()> {
        let page_cache = find(serial)?;
        match (attribute, value) {
            // Reclaims pages that can be read again and have no other user.
            ("resident-pages", "0") => {
                page_cache.reclaim(usize::MAX);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }
}
