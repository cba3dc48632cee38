//! `/proc/hayate/nvm` and `text_faults`: text on non-volatile memory.
//!
//! `nvm` lists areas and texts, one per line, and takes one command at a time from root (the guest
//! program `nvm` is a front end to it):
//!
//! * `put PHASE NAME PATH` stores the content of a file as a text; `PHASE` is the page within a
//!   large page at which the text is to begin, or `-`;
//! * `template USER NAME` stores a user's template, which is there at the next boot;
//! * `rm IDENTITY`, `verify IDENTITY`;
//! * `compact`, `format`.

use alloc::vec::Vec;
use core::{fmt, str};

use hayate_abi::{Errno, Result};
use hayate_nvm_store::Text;
use hayate_off2f::{Identity, LARGE_PAGES};

use super::text::line;
use crate::in_place::store;
use crate::page_cache::cache::PAGE;
use crate::page_cache::load::text_read;
use crate::reclaim::growth::Grow;
use crate::vfs::open_file::flags::O_RDONLY;
use crate::vfs::path::{Resolver, WalkFlags};
use crate::{memory, process, vfs};

/// The identifier of a store.
struct Hexadecimal([u8; 16]);

impl fmt::Display for Hexadecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Page faults on the text of programs and of libraries since boot, the bytes read from storage for
/// them, and the bytes read in all.
pub(super) fn text_faults((): &(), out: &mut Vec<u8>) -> Result<()> {
    let (program, library) = memory::text_faults();
    let (requests, bytes) = crate::drivers::block::reads();
    line(out, format_args!("program {program}\nlibrary {library}"))?;
    line(out, format_args!("text-kib {}", text_read() * 4))?;
    line(out, format_args!("storage-requests {requests}\nstorage-kib {}", bytes >> 10))
}

/// Lists areas and texts.
pub(super) fn show((): &(), out: &mut Vec<u8>) -> Result<()> {
    for (number, bank) in store::banks().iter().enumerate() {
        let area = bank.area();
        let kind = match area.kind() {
            machine::nvm::AreaKind::Nvdimm => "nvdimm",
            machine::nvm::AreaKind::Virtio => "virtio-pmem",
            machine::nvm::AreaKind::Pseudo => "pseudo",
        };
        let place = area.address();
        let kib = area.size() >> 10;
        // Copy the texts out: writing may sleep, and so may the holder of the store.
        let state = bank.with_store(|store| {
            let mut texts: Vec<Text> = Vec::new();
            texts.make_room_exact(store.texts().len())?;
            texts.extend_from_slice(store.texts());
            Ok::<_, Errno>((store.id(), store.usage(), store.damaged(), texts))
        });
        let Some(state) = state else {
            line(out, format_args!("area {number} {kind} {place:#x} {kib} KiB no store"))?;
            continue;
        };
        let (id, usage, damaged, texts) = state?;
        line(
            out,
            format_args!(
                "area {number} {kind} {place:#x} {kib} KiB id {} texts {} of {} used {} KiB free {} KiB \
                 longest {} KiB damaged {damaged}",
                Hexadecimal(id),
                usage.texts,
                usage.entries,
                usage.used * 4,
                (usage.total - usage.used) * 4,
                usage.longest * 4,
            ),
        )?;
        for text in &texts {
            line(
                out,
                format_args!(
                    "text {} {} KiB page {} {} users {} {}",
                    text.identity,
                    u64::from(text.pages) * 4,
                    text.first,
                    if text.phase == Text::ANYWHERE { "small" } else { "large" },
                    bank.users(&text.identity),
                    text.name().escape_ascii(),
                ),
            )?;
        }
    }
    Ok(())
}

pub(super) fn command(text: &[u8]) -> Result<()> {
    let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?.trim_end_matches('\n');
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let identity = || rest.parse::<Identity>().map_err(|()| Errno::EINVAL);
    match word {
        "put" => {
            let mut words = rest.splitn(3, ' ');
            let mut next = || words.next().filter(|word| !word.is_empty()).ok_or(Errno::EINVAL);
            let (phase, name, path) = (next()?, next()?, next()?);
            let phase = match phase {
                "-" => Text::ANYWHERE,
                number => number
                    .parse()
                    .ok()
                    .filter(|&phase: &u32| phase < LARGE_PAGES)
                    .ok_or(Errno::EINVAL)?,
            };
            put(phase, name.as_bytes(), path.as_bytes())
        }
        "template" => {
            let (owner, name) = rest.split_once(' ').ok_or(Errno::EINVAL)?;
            let owner = owner.parse().map_err(|_| Errno::EINVAL)?;
            process::templates::save::save(name.as_bytes(), owner)
        }
        "rm" => store::remove(&identity()?),
        "verify" => store::verify(&identity()?),
        "compact" if rest.is_empty() => store::compact().map(drop),
        "format" if rest.is_empty() => store::format(),
        _ => Err(Errno::EINVAL),
    }
}

/// Stores a file's content, opened with the writer's rights.
fn put(phase: u32, name: &[u8], path: &[u8]) -> Result<()> {
    let thread = process::thread::current();
    let (context, credentials) = (thread.directories()?, thread.credentials());
    let resolver = Resolver { context: &context, credentials: &credentials, start: None };
    let file = vfs::open::open(&resolver, path, O_RDONLY, 0, WalkFlags::empty())?;
    let page_cache = file.inode().page_cache().ok_or(Errno::EINVAL)?;
    let pages = u32::try_from(page_cache.page_count()).map_err(|_| Errno::EFBIG)?;
    store::put(pages, phase, name, |index, to| {
        let inside =
            page_cache.size().saturating_sub(index * PAGE as u64).min(PAGE as u64) as usize;
        to.fill(0);
        page_cache.page(index)?.read(0, to.get_mut(..inside).unwrap_or(&mut []));
        Ok(())
    })
    .map(drop)
}
