//! Debian packages, fetched by name with apt, without touching the host's own packages.
//!
//! apt resolves the names against an *empty* machine (an empty dpkg status), so that every
//! dependency is in the result, and checks its downloads against the archive's signatures. The
//! host's package lists are used if there are any. If not, or if they are out of date, lists are
//! fetched into `build/apt`, which needs no root.

use crate::{paths, progress::Progress, tool};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package, as resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Resolves the names and downloads the packages into `build/packages`. Returns them in order of
/// their names, with their files.
pub fn fetch(names: &[&str]) -> Result<Vec<(Package, PathBuf)>> {
    if tool::find("apt-get").is_none() {
        bail!(
            "this machine has no apt, and the default image is made of Debian packages; \
             give a root file system of your own with --rootfs (a folder, a tar, an ext4 image)"
        );
    }
    // apt removes partial downloads of another apt from its lists.
    let _alone = paths::lock("packages")?;
    match attempt(names, false) {
        Ok(found) => Ok(found),
        Err(_) => {
            let _step = Progress::new("Fetching Debian's package lists");
            tool::run(apt("apt-get", true)?.arg("update"))?;
            drop(_step);
            attempt(names, true)
        }
    }
}

fn attempt(names: &[&str], own_lists: bool) -> Result<Vec<(Package, PathBuf)>> {
    let packages = resolve(names, own_lists)?;
    let folder = paths::build("packages")?;
    let mut missing = Vec::new();
    for package in &packages {
        if find(&folder, package)?.is_none() {
            missing.push(format!("{}={}", package.name, package.version));
        }
    }
    if !missing.is_empty() {
        let _step = Progress::new(format!("Downloading {} Debian packages", missing.len()));
        tool::run(apt("apt-get", own_lists)?.arg("download").args(&missing).current_dir(&folder))?;
    }
    packages
        .into_iter()
        .map(|package| {
            let file = find(&folder, &package)?;
            let file = file.with_context(|| {
                format!(
                    "apt-get download succeeded, but left no file of the package {}",
                    package.name
                )
            })?;
            Ok((package, file))
        })
        .collect()
}

/// Returns everything that the names need on an empty machine.
fn resolve(names: &[&str], own_lists: bool) -> Result<Vec<Package>> {
    let _step = Progress::new("Resolving Debian packages");
    let output = tool::run(
        apt("apt-get", own_lists)?
            .args(["--simulate", "--no-install-recommends", "-o", "Dir::State::status=/dev/null"])
            .args(["-o", "APT::Get::Show-User-Simulation-Note=false", "install"])
            .args(names),
    )?;
    let mut packages: Vec<Package> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(planned).collect();
    packages.sort();
    ensure!(!packages.is_empty(), "apt names no packages to install for {}", names.join(" "));
    Ok(packages)
}

/// The package of a line `Inst NAME (VERSION ORIGIN [ARCHITECTURE])`.
fn planned(line: &str) -> Option<Package> {
    let mut words = line.strip_prefix("Inst ")?.split(' ');
    let name = words.next()?;
    let version = words.find_map(|word| word.strip_prefix('('))?;
    let name = name.split(':').next()?;
    Some(Package { name: name.into(), version: version.into() })
}

/// Finds the file that apt makes of a package: a colon in the version is written `%3a`.
fn find(folder: &Path, package: &Package) -> Result<Option<PathBuf>> {
    let start = format!("{}_{}_", package.name, package.version.replace(':', "%3a"));
    for entry in folder.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&start) && name.ends_with(".deb") {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Returns apt for this architecture, without root, and without apt's own locks, which need root:
/// this project's lock is held ([`fetch`]). With `own_lists` it uses lists of our own.
fn apt(program: &str, own_lists: bool) -> Result<Command> {
    let mut command = tool::command(program)?;
    command.env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["-q", "-y"]);
    let mut set = |option: String| {
        command.arg("-o").arg(option);
    };
    set("Debug::NoLocking=true".into());
    set("APT::Architecture=amd64".into());
    set("APT::Architectures=amd64".into());
    // Downloads go into folders of this user, which apt's own user may not enter.
    set(format!("APT::Sandbox::User={}", user()));
    let base = paths::build("apt")?;
    set(format!("Dir::Cache={}", base.join("cache").display()));
    std::fs::create_dir_all(base.join("cache/archives/partial"))?;
    if own_lists {
        std::fs::create_dir_all(base.join("lists/partial"))?;
        set(format!("Dir::State::Lists={}", base.join("lists").display()));
        set("Dir::State::status=/dev/null".into());
    }
    Ok(command)
}

fn user() -> String {
    if rustix::process::geteuid().is_root() { "root".into() } else { String::new() }
}

/// Unpacks a package's files into a folder.
pub fn unpack(package: &Path, folder: &Path) -> Result<()> {
    tool::run(tool::command("dpkg-deb")?.arg("-x").arg(package).arg(folder)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_of_apt_is_understood() {
        let line = "Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64]) []";
        let package = Package { name: "libc6".into(), version: "2.36-9+deb12u14".into() };
        assert_eq!(planned(line), Some(package));
        let line = "Inst procps [2:4.0.2-2] (2:4.0.2-3 Debian:12/oldstable [amd64])";
        assert_eq!(planned(line).unwrap().version, "2:4.0.2-3");
        assert_eq!(planned("Conf libc6 (2.36 Debian [amd64])"), None);
    }
}
