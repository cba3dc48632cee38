//! The options of `disk`.

use super::values::{checked, not_empty};
use clap::builder::TypedValueParser;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Printed below the help of `disk`.
pub const DISK_HELP: &str = "\
Examples:
  ./hayate disk make data.img --size 10G
  ./hayate run --disk data.img:/data -- sh -c 'date >>/data/log; cat /data/log'
  ./hayate disk make site.img --size 1G --from ./site --label site
  ./hayate run --disk site.img:/srv:ro -p 8080:80 -- nginx -g 'daemon off;'
  ./hayate disk check data.img
  ./hayate disk resize data.img --size 20G
  ./hayate disk list; ./hayate disk rm dev    what `run --persist dev` keeps

A disk is a file with an ext4 file system, for `--disk FILE:PATH` of run and start. It takes the
room on this host that its files need, not its size. docs/storage.md tells more.

Exit status:
    0  it was done; a disk that was checked is in order
    1  check --repair found errors, and repaired them
    4  check found errors, or that the disk was in use when its machine was killed, or the host's
       power failed: --repair is needed
  125  it cannot be done";

/// `disk`.
#[derive(Args)]
pub struct Disks {
    /// The request.
    #[command(subcommand)]
    pub request: DiskRequest,
}

/// The commands of `disk`.
#[derive(Subcommand)]
pub enum DiskRequest {
    /// Make a file that is a disk with an ext4 file system
    Make(MakeDisk),
    /// Check a disk's file system, when no machine uses it
    Check {
        /// Write what the journal holds to its place, and repair errors
        #[arg(long)]
        repair: bool,
        /// The disk
        #[arg(value_parser = path())]
        file: PathBuf,
    },
    /// List what `--persist` keeps: names, room that they take here, files
    List,
    /// Remove what `--persist` keeps under these names
    Rm {
        /// The names
        #[arg(value_name = "NAME", value_parser = super::values::name, required = true)]
        names: Vec<String>,
    },
    /// Make a disk and its file system larger or smaller, when no machine uses it
    Resize {
        /// The new size: 512M, 10G, 1T
        #[arg(long, value_name = "SIZE", value_parser = size)]
        size: u64,
        /// The disk
        #[arg(value_parser = path())]
        file: PathBuf,
    },
}

/// `disk make`.
#[derive(Args)]
pub struct MakeDisk {
    /// The size, of which the file takes only what is used: 512M, 10G, 1T
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: u64,

    /// Copy the content of this folder to the disk, with owners and permissions
    #[arg(long, value_name = "FOLDER", value_parser = path())]
    pub from: Option<PathBuf>,

    /// The label of the file system, 16 bytes at most
    #[arg(long, value_parser = label)]
    pub label: Option<String>,

    /// Replace a file of that name, with all that is in it
    #[arg(long)]
    pub force: bool,

    /// The file to make
    #[arg(value_parser = path())]
    pub file: PathBuf,
}

fn path() -> impl TypedValueParser<Value = PathBuf> {
    checked(not_empty).map(PathBuf::from)
}

/// Parses `512M`, `10G`, `1T` into bytes.
pub fn size(text: &str) -> Result<u64, String> {
    const FORM: &str = "write it as 512M, 10G or 1T";
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| FORM)?;
    let shift = match unit.to_ascii_uppercase().as_str() {
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err(FORM.into()),
    };
    match number.checked_mul(1 << shift) {
        Some(size) if (LEAST..=MOST).contains(&size) => Ok(size),
        _ => Err("it must be between 16M, of which a journal takes 4M, and 16T".into()),
    }
}

/// The smallest disk that has a journal and some room.
const LEAST: u64 = 16 << 20;
/// The largest file on a host's ext4.
const MOST: u64 = 16 << 40;

fn label(text: &str) -> Result<String, String> {
    if text.len() > 16 {
        return Err("a label has 16 bytes at most".into());
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("16M"), Ok(16 << 20));
        assert_eq!(size("10g"), Ok(10 << 30));
        assert_eq!(size("1TiB"), Ok(1 << 40));
        for wrong in ["", "M", "10", "1K", "15M", "17T", "-1G", "1.5G", "99999999999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert!(label("sixteen bytes ok").is_ok() && label("seventeen bytes..").is_err());
    }
}
