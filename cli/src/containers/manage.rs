//! `./hayate image pull`, `rm` and `prune`, and the container images of `image list`.

use super::cache::{self, Record};
use super::place::Place;
use crate::machines::directory::now;
use crate::machines::manage::{age, table};
use anyhow::{Result, ensure};
use hayate_container_image::shown;

/// How many digits of an ID are shown, and how many are enough to name one.
const SHOWN: usize = 12;
const ENOUGH: usize = 6;

/// `image pull`: fetches images, also those that are here, and makes their disks.
pub fn pull(references: &[String]) -> Result<()> {
    for text in references {
        let container = super::renew(text)?;
        container.disk()?;
        println!("{}", short(&container.id.hex()));
    }
    cache::sweep().map(drop)
}

/// The table of container images.
pub fn list() -> Result<()> {
    let records = cache::all()?;
    if records.is_empty() {
        return Ok(());
    }
    let title = ["NAME", "ID", "DISK", "READ"].map(String::from);
    let mut rows = vec![title];
    for record in &records {
        let mib = cache::disk_of(&record.id)? >> 20;
        let since = age(now().saturating_sub(record.made));
        let name = shown(record.name.as_bytes());
        let id = short(&record.id.hex()).to_string();
        rows.push([name, id, format!("{mib} MiB"), format!("{since} ago")]);
    }
    table(&rows);
    println!();
    Ok(())
}

fn short(hex: &str) -> &str {
    &hex[..SHOWN]
}

/// `image rm`: forgets images, by name or ID, and removes what only they need.
pub fn remove(names: &[String]) -> Result<()> {
    let all = cache::all()?;
    // All are there, or nothing is removed.
    let mut found = Vec::new();
    for text in names {
        let of: Vec<&Record> = all.iter().filter(|record| is_meant(record, text)).collect();
        ensure!(!of.is_empty(), "there is no container image {}", shown(text.as_bytes()));
        let one = of.iter().all(|record| record.id == of[0].id);
        ensure!(one, "{} begins several IDs: write more of it", shown(text.as_bytes()));
        found.extend(of);
    }
    for record in found {
        cache::forget(record)?;
        println!("{}", shown(record.name.as_bytes()));
    }
    cache::sweep().map(drop)
}

/// Whether a name or the beginning of an ID means the image.
fn is_meant(record: &Record, text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or(text);
    let is_id = hex.len() >= ENOUGH && record.id.hex().starts_with(hex);
    is_id || Place::of(text).is_ok_and(|place| place.name() == record.name)
}

/// `image prune`: removes what no image needs; with `all`, every container image.
pub fn prune(all: bool) -> Result<()> {
    for record in cache::all()? {
        if all || cache::is_stale(&record) {
            cache::forget(&record)?;
            println!("{}", shown(record.name.as_bytes()));
        }
    }
    let freed = cache::sweep()?;
    println!("{} MiB are free again", freed >> 20);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hayate_container_image::Digest;

    #[test]
    fn images_are_meant_by_name_or_id() {
        let record = Record {
            name: "docker.io/library/a:1".into(),
            state: String::new(),
            id: Digest::of(b""),
            blobs: Vec::new(),
            made: 0,
        };
        for text in ["a:1", "docker.io/library/a:1", "e3b0c4", "sha256:e3b0c44298fc"] {
            assert!(is_meant(&record, text), "{text}");
        }
        for text in ["a", "a:2", "b:1", "e3b0c", "e3b0c5", "", "sha256:"] {
            assert!(!is_meant(&record, text), "{text}");
        }
    }
}
