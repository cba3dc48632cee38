//! The registry: every resource there is, by kind and serial, with a name, an owner and attributes.
//!
//! It keeps no list. A query walks the structures that hold resources anyway (the table of
//! processes, the spaces, the names of files, the pools). So being visible costs a start and an end
//! only the serial of a space, and no lock is shared. The result is a snapshot that may be out of
//! date when it is read: a resource that is gone meanwhile gives `ENOENT`.
//!
//! A module that has resources registers a [`ResourceSource`] for each kind at boot. The operations
//! are the same for all kinds: [`visit`], [`find`] by serial, [`find_by_name`], [`describe`],
//! [`control`]. The modules themselves make, release and reuse resources;
//! [`statistics`](super::statistics) counts them.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::reclaim::growth::Grow;
use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use hayate_recycler::ResourceKind;
use machine::sync::SpinLock;

/// The identity of a resource among all of its kind, as long as the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Serial {
    /// The number.
    pub number: u64,
    /// For a part of the resource with that number: the part's offset in bytes.
    pub part: Option<u64>,
}

impl Serial {
    /// A serial that is only a number.
    pub fn of(number: u64) -> Serial {
        Serial { number, part: None }
    }

    /// Parses the output of [`Display`](fmt::Display), in its one form.
    pub fn parse(text: &[u8]) -> Option<Serial> {
        let text = core::str::from_utf8(text).ok()?;
        let (number, part) = match text.split_once('-') {
            Some((number, part)) => (number, Some(part)),
            None => (text, None),
        };
        let plain = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
                && (text == "0" || !text.starts_with('0'))
        };
        if !plain(number) || !part.is_none_or(plain) {
            return None;
        }
        let part = match part {
            Some(part) => Some(u64::from_str_radix(part, 16).ok()?),
            None => None,
        };
        Some(Serial { number: number.parse().ok()?, part })
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            None => write!(f, "{}", self.number),
            Some(part) => write!(f, "{}-{part:x}", self.number),
        }
    }
}

/// One resource in a snapshot.
#[derive(Clone, Debug)]
pub struct ResourceRow {
    /// Its serial.
    pub serial: Serial,
    /// Its name; several may have the same, and some have none.
    pub name: Vec<u8>,
    /// The user who owns it.
    pub owner: u32,
    /// The memory it takes or stands for, in bytes.
    pub bytes: u64,
    /// Whether it is kept for a later use, rather than in use.
    pub kept: bool,
}

/// Attributes of one resource, as lines `name: value`.
#[derive(Default)]
pub struct ResourceAttributes(Vec<(&'static str, String)>);

impl ResourceAttributes {
    /// Adds an attribute. Fails with `ENOMEM`.
    pub fn add(&mut self, name: &'static str, value: fmt::Arguments<'_>) -> Result<()> {
        self.0.make_room(1)?;
        self.0.push((name, alloc::format!("{value}")));
        Ok(())
    }

    /// All attributes.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// The owner of the resources of a kind. Its functions are called without locks and may sleep.
pub trait ResourceSource: Sync {
    /// The kind.
    fn kind(&self) -> ResourceKind;

    /// Shows every resource there is. Fails with `ENOMEM`.
    fn visit(&self, show: &mut dyn FnMut(ResourceRow)) -> Result<()>;

    /// Adds the attributes of one resource, besides those of its [`ResourceRow`]. Fails with
    /// `ENOENT` if it is gone.
    fn describe(&self, serial: Serial, to: &mut ResourceAttributes) -> Result<()>;

    /// Changes an attribute. Fails with `EINVAL` if it cannot be changed, or not to that value.
    fn control(&self, serial: Serial, attribute: &str, value: &str) -> Result<()> {
        let _ = (serial, attribute, value);
        Err(Errno::EINVAL)
    }
}

/// The most sources: one or two for each kind.
const MOST: usize = 2 * ResourceKind::COUNT;

static SOURCES: SpinLock<ArrayVec<&'static dyn ResourceSource, MOST>> =
    SpinLock::new(ArrayVec::new_const());

/// Adds a source; at boot, once each.
///
/// # Panics
/// If there are more than the list has places: a mistake in the kernel.
pub fn register(source: &'static dyn ResourceSource) {
    if SOURCES.lock().try_push(source).is_err() {
        panic!("more sources of resources than the list of them has places");
    }
}

fn sources(kind: ResourceKind) -> impl Iterator<Item = &'static dyn ResourceSource> {
    let all = SOURCES.lock().clone();
    all.into_iter().filter(move |source| source.kind() == kind)
}

/// Shows every resource of a kind. Fails with `ENOMEM`.
pub fn visit(kind: ResourceKind, show: &mut dyn FnMut(ResourceRow)) -> Result<()> {
    sources(kind).try_for_each(|source| source.visit(show))
}

/// Returns the resource with this serial. Fails with `ENOENT`.
pub fn find(kind: ResourceKind, serial: Serial) -> Result<ResourceRow> {
    first(kind, |entry| entry.serial == serial)
}

/// Returns the first resource with this name. Fails with `ENOENT`.
pub fn find_by_name(kind: ResourceKind, name: &[u8]) -> Result<ResourceRow> {
    first(kind, |entry| !name.is_empty() && entry.name == name)
}

fn first(kind: ResourceKind, matches: impl Fn(&ResourceRow) -> bool) -> Result<ResourceRow> {
    let mut found = None;
    visit(kind, &mut |entry| {
        if found.is_none() && matches(&entry) {
            found = Some(entry);
        }
    })?;
    found.ok_or(Errno::ENOENT)
}

/// Returns the attributes of a resource. Fails with `ENOENT`.
pub fn describe(kind: ResourceKind, serial: Serial) -> Result<ResourceAttributes> {
    let entry = find(kind, serial)?;
    let mut all = ResourceAttributes::default();
    all.add("kind", format_args!("{kind}"))?;
    all.add("serial", format_args!("{serial}"))?;
    all.add("name", format_args!("{}", entry.name.escape_ascii()))?;
    all.add("owner", format_args!("{}", entry.owner))?;
    all.add("bytes", format_args!("{}", entry.bytes))?;
    all.add("state", format_args!("{}", if entry.kept { "kept" } else { "in use" }))?;
    let mut result = Err(Errno::ENOENT);
    for source in sources(kind) {
        result = source.describe(serial, &mut all);
        if result != Err(Errno::ENOENT) {
            break;
        }
    }
    result.map(|()| all)
}

/// Changes an attribute of a resource. Fails with `ENOENT`, `EINVAL`.
pub fn control(kind: ResourceKind, serial: Serial, attribute: &str, value: &str) -> Result<()> {
    let mut result = Err(Errno::ENOENT);
    for source in sources(kind) {
        result = source.control(serial, attribute, value);
        if result != Err(Errno::ENOENT) {
            break;
        }
    }
    result
}
