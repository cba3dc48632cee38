//! Images as kept resources: their pool, and what `/proc/hayate/resources` shows of them.

use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_recycler::{KeptKinds, ResourceKind};

use super::{image, table};
use crate::reclaim::growth;
use crate::recycle::registry;
use crate::recycle::registry::{ResourceAttributes, ResourceRow, ResourceSource, Serial};
use crate::recycle::{policy, pools};

/// The images made since boot.
pub static MADE: AtomicU64 = AtomicU64::new(0);
/// The starts that began at one.
pub static REUSED: AtomicU64 = AtomicU64::new(0);

/// Registers them; boot calls it once.
pub fn init() {
    pools::register(&Images);
    registry::register(&Images);
}

/// The bytes of the arguments that are shown.
const SHOWN: usize = 256;

/// The images as kept resources.
struct Images;

impl pools::AnyPool for Images {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Image
    }

    fn is_wanted(&self) -> bool {
        policy::keeps(KeptKinds::IMAGE)
    }

    fn limit(&self) -> usize {
        table::LIMIT.load(Ordering::Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        table::LIMIT.store(bytes, Ordering::Relaxed);
        table::keep_limit();
    }

    fn oldest(&self) -> Option<u64> {
        table::oldest()
    }

    /// It takes three starts to make an image anew.
    fn patience(&self) -> u64 {
        10
    }

    fn drop_oldest(&self) -> Option<usize> {
        table::drop_oldest()
    }

    fn counts(&self) -> hayate_recycler::ResourceCounts {
        hayate_recycler::ResourceCounts {
            made: MADE.load(Ordering::Relaxed),
            reused: REUSED.load(Ordering::Relaxed),
            stored: MADE.load(Ordering::Relaxed),
            kept: table::all().map_or(0, |all| all.iter().filter(|row| row.image.is_some()).count())
                as u64,
            bytes: image::bytes() as u64,
            ..Default::default()
        }
    }

    fn forget_page_cache(&self, id: u64) {
        table::forget_content(id);
    }
}

impl ResourceSource for Images {
    fn kind(&self) -> ResourceKind {
        ResourceKind::Image
    }

    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
        for row in table::all()? {
            show(ResourceRow {
                serial: Serial::of(row.entry.serial),
                name: growth::copy(row.entry.key.path())?,
                owner: row.entry.key.owner(),
                bytes: row.image.as_ref().map_or(0, |image| image.bytes as u64),
                kept: row.image.is_some(),
            });
        }
        Ok(())
    }

    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()> {
        let all = table::all()?;
        let row = all.iter().find(|row| Serial::of(row.entry.serial) == serial);
        let row = row.ok_or(Errno::ENOENT)?;
        let arguments = row.entry.key.arguments();
        let arguments = arguments.strip_suffix(&[0]).unwrap_or(arguments);
        // The beginning: the kernel sizes what it shows.
        let arguments = arguments.get(..SHOWN).unwrap_or(arguments);
        to.add("arguments", format_args!("{}", arguments.escape_ascii()))?;
        to.add("stage", format_args!("{}", row.state))?;
        if !row.why.is_empty() {
            to.add("reason", format_args!("{}", row.why))?;
        }
        if let Some(image) = &row.image {
            to.add("horizon", format_args!("{}", image.horizon))?;
            to.add("calls", format_args!("{}", image.calls))?;
            to.add("saved", format_args!("{}", image.saved))?;
            to.add("starts", format_args!("{}", image.starts.load(Ordering::Relaxed)))?;
            to.add("starts-at-most", format_args!("{}", image.most_starts))?;
            to.add("random", format_args!("{}", if image.is_fresh { "fresh" } else { "shared" }))?;
            to.add("files", format_args!("{}", image.held.count()))?;
            if let Some(lineage) = &image.lineage {
                let inherited = lineage.inherited.load(Ordering::Relaxed);
                to.add("inherited", format_args!("{inherited}"))?;
                to.add("heirs", format_args!("{}", lineage.heirs.lock().len()))?;
            }
            to.add("dependencies", format_args!("{}", image.dependencies.len()))?;
            to.add("patches", format_args!("{}", image.patches.len()))?;
        }
        Ok(())
    }
}
