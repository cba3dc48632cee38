//! Container images: `--image REF`.
//!
//! An image is found by a path or a reference ([`place`]), read and put together by
//! `hayate-container-image`, and becomes a root file system as a tar archive of the user's does
//! (`image::convert`). What was learnt of a name is kept in `build/cache/containers` ([`cache`]),
//! so that the next start opens neither archive nor layout; disks lie in `build/images` under the
//! image's ID, which names all of its content, so that two names of one image share them.

mod cache;
pub mod manage;
mod place;
mod registry;

use crate::arguments::network::{Network, Published};
use crate::image::convert::{self, Archived, Split};
use crate::{paths, progress::Progress};
use anyhow::{Context, Result, bail, ensure};
use cache::Record;
pub use cache::configuration;
use hayate_container_image::{Attributed, Configuration, Digest, Flat, Image, Limits};
use place::{Opened, Place};
use rustix::fs::statvfs;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

/// The version of the way a root file system is made: a new number makes new ones.
const VERSION: &[u8] = b"2";

/// An image that is ready to become a root file system.
pub struct Container {
    /// What it says about its program.
    pub configuration: Configuration,
    name: String,
    id: Digest,
    place: Place,
    /// Its files, if they were opened to read the configuration.
    opened: RefCell<Option<(Image, Opened)>>,
}

/// Finds an image by what the user wrote.
pub fn find(text: &str) -> Result<Container> {
    let place = Place::of(text)?;
    let (name, state) = (place.name(), place.state()?);
    if let Some((record, configuration)) = cache::known(&name, &state)? {
        let opened = RefCell::new(None);
        return Ok(Container { configuration, name, id: record.id, place, opened });
    }
    // Until its record names them, what was fetched is nobody's.
    let is_remote = matches!(place, Place::Registry(_));
    let _alone = is_remote.then(cache::alone).transpose()?;
    if is_remote && let Some((record, configuration)) = cache::known(&name, &state)? {
        let opened = RefCell::new(None);
        return Ok(Container { configuration, name, id: record.id, place, opened });
    }
    let opened = place.open().with_context(|| format!("--image {text}"))?;
    learnt(place, name, state, opened)
}

/// Finds an image, and forgets what was known of it: one of a registry is fetched again.
fn renew(text: &str) -> Result<Container> {
    let place = Place::of(text)?;
    let (name, state) = (place.name(), place.state()?);
    let (opened, _alone) = match &place {
        Place::Registry(reference) => {
            let alone = cache::alone()?;
            (cache::fetched(reference)?, Some(alone))
        }
        _ => (place.open().with_context(|| text.to_string())?, None),
    };
    learnt(place, name, state, opened)
}

/// Keeps what was learnt of an image.
fn learnt(
    place: Place,
    name: String,
    state: String,
    (image, opened): (Image, Opened),
) -> Result<Container> {
    let blobs = match (&place, image.manifest) {
        (Place::Registry(_), Some(manifest)) => {
            let layers = image.layers.iter().filter_map(|layer| layer.digest);
            [manifest, image.id].into_iter().chain(layers).collect()
        }
        _ => Vec::new(),
    };
    let made = crate::machines::directory::now();
    let (id, configuration) = (image.id, image.configuration.clone());
    cache::keep(&Record { name: name.clone(), state, id, blobs, made }, &image.text)?;
    Ok(Container { configuration, name, id, place, opened: RefCell::new(Some((image, opened))) })
}

impl Container {
    /// What it says about its program, as text.
    pub fn text(&self) -> Result<String> {
        cache::text(&self.id)
    }

    /// Returns a disk with its files.
    pub fn disk(&self) -> Result<PathBuf> {
        convert::disk_of_archive(&self.archived(&|tar| self.write(tar)))
    }

    /// Returns an initramfs with its files.
    pub fn initramfs(&self) -> Result<PathBuf> {
        convert::initramfs_of_archive(&self.archived(&|tar| self.write(tar)))
    }

    /// Returns its files with programs that match `glob` in two files each.
    pub fn split(&self, glob: &str, in_memory: bool) -> Result<Split> {
        convert::split_archive(&self.archived(&|tar| self.write(tar)), glob, in_memory)
    }

    fn archived<'a>(&'a self, write: &'a convert::Write<'a>) -> Archived<'a> {
        Archived { key: stem(&self.id), of: &self.name, write }
    }

    /// Writes the tar archive with its files; returns their extended attributes.
    fn write(&self, tar: &Path) -> Result<Vec<Attributed>> {
        let taken = self.opened.borrow_mut().take();
        let (image, opened) = match taken {
            Some(known) => known,
            None => self.place.open()?,
        };
        let at = || format!("the image {}", self.name);
        ensure!(image.id == self.id, "{} has changed meanwhile; try again", at());
        let flat = Flat::read(&image, &opened, Limits::default()).with_context(at)?;
        room(tar, flat.size())?;
        let file = File::create(tar).with_context(|| format!("cannot write {}", tar.display()))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let attributed = flat.write(&image, &opened, &mut file).with_context(at)?;
        file.flush().with_context(|| format!("cannot write {}", tar.display()))?;
        Ok(attributed)
    }
}

/// Publishes the ports that an image says it listens on (`--publish-all`), each on a free one of
/// this host; those that the user publishes stay where they are.
pub fn publish(network: &mut Network, image: &Configuration) -> Result<()> {
    if !network.publish_all {
        return Ok(());
    }
    for port in &image.ports {
        let known = |known: &Published| (known.guest, known.udp) == (port.number, port.udp);
        if network.publish.iter().any(known) {
            continue;
        }
        let host = free_port(port.udp).context("there is no free port")?;
        let kind = if port.udp { "udp" } else { "tcp" };
        eprintln!("hayate: port {host} of this host is {}/{kind} of the machine", port.number);
        let (guest, udp) = (port.number, port.udp);
        network.publish.push(Published { address: None, host, guest, udp });
    }
    Ok(())
}

/// A port that nobody has, a moment ago.
fn free_port(udp: bool) -> std::io::Result<u16> {
    let any = (Ipv4Addr::UNSPECIFIED, 0);
    let address = if udp {
        UdpSocket::bind(any)?.local_addr()?
    } else {
        TcpListener::bind(any)?.local_addr()?
    };
    Ok(address.port())
}

/// The part of a file's name that says of which image it is.
fn stem(id: &Digest) -> String {
    crate::image::key([&id.hex().into_bytes()[..], VERSION])
}

/// Refuses what the file system has no room for: the archive, what is unpacked of it, and the disk.
fn room(tar: &Path, size: u64) -> Result<()> {
    let folder = tar.parent().unwrap_or(tar);
    let found = statvfs(folder).with_context(|| format!("cannot examine {}", folder.display()))?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let needed = size.saturating_mul(3);
    if free < needed {
        let (free, needed) = (free >> 20, needed >> 20);
        bail!(
            "the image needs {needed} MiB in {} while its disk is made, and {free} MiB are free; \
             make room, or set HAYATE_BUILD_DIR to another folder",
            paths::build("making")?.display()
        );
    }
    Ok(())
}

/// A step that may take long.
fn step(saying: String) -> Progress {
    Progress::new(saying)
}
