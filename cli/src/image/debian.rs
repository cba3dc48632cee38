//! Debian packages, fetched by name with apt, without touching the host's own packages.
//!
//! apt resolves the names against an *empty* machine (an empty dpkg status), so that every
//! dependency is in the result, and checks its downloads against the archive's signatures. The
//! host's package lists are used if there are any. If not, or if they are out of date, lists are
//! fetched into `build/apt`, which needs no root. So are lists of sources, which few hosts have: of
//! the archives that the host's own lists name.

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

/// The lists that apt reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// The host's.
    Host,
    /// Our own, of packages.
    Own,
    /// Our own, of sources.
    Sources,
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
    match attempt(names, Lists::Host) {
        Ok(found) => Ok(found),
        Err(_) => {
            let _step = Progress::new("Fetching Debian's package lists");
            tool::run(apt("apt-get", Lists::Own)?.arg("update"))?;
            drop(_step);
            attempt(names, Lists::Own)
        }
    }
}

/// Downloads the source of a package into `build/packages`, as its authors published it, without
/// Debian's changes. Returns it with its archive.
pub fn source(name: &str) -> Result<(Package, PathBuf)> {
    ensure!(
        tool::find("apt-get").is_some(),
        "this machine has no apt, and the source of {name} is Debian's"
    );
    let _alone = paths::lock("packages")?;
    source_in(name, Lists::Host).or_else(|_| {
        let _step = Progress::new("Fetching Debian's lists of sources");
        write_source_lists()?;
        tool::run(apt("apt-get", Lists::Sources)?.arg("update"))?;
        drop(_step);
        source_in(name, Lists::Sources)
    })
}

fn source_in(name: &str, lists: Lists) -> Result<(Package, PathBuf)> {
    let ask = |place: &Path, more: &[&str]| -> Result<String> {
        let words = ["source", "--tar-only", "--download-only"];
        let mut command = apt("apt-get", lists)?;
        let output = tool::run(command.args(words).args(more).arg(name).current_dir(place))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // apt does not name files that are in the directory: it is another one.
    let said = ask(&paths::build("apt")?, &["--print-uris"])?;
    let (version, file) =
        said.lines().find_map(original).with_context(|| format!("apt has no source of {name}"))?;
    let folder = paths::build("packages")?;
    let file = folder.join(file);
    if !file.exists() {
        let _step = Progress::new(format!("Downloading the source of {name}"));
        // apt compares its digest with the one in the archive's signed lists.
        ask(&folder, &[])?;
        ensure!(file.exists(), "apt-get source succeeded, but left no {}", file.display());
    }
    Ok((Package { name: format!("{name} (source)"), version: version.into() }, file))
}

/// The version and the file of a line `'URL' NAME_VERSION.orig.tar.gz SIZE DIGEST`.
fn original(line: &str) -> Option<(&str, &str)> {
    let file = line.split_whitespace().nth(1)?;
    let (name, end) = file.split_once(".orig.tar.")?;
    let (_, version) = name.split_once('_')?;
    (!end.contains('.') && !file.contains('/')).then_some((version, file))
}

/// Writes a copy of the host's sources.list that asks for sources in place of packages.
fn write_source_lists() -> Result<()> {
    let folder = paths::build("apt")?.join("sources");
    std::fs::create_dir_all(&folder)?;
    let etc = Path::new("/etc/apt");
    let mut files = vec![etc.join("sources.list")];
    let further = etc.join("sources.list.d").read_dir().into_iter().flatten().flatten();
    files.extend(further.map(|entry| entry.path()));
    for file in files {
        let (Some(name), Ok(text)) = (file.file_name(), std::fs::read_to_string(&file)) else {
            continue;
        };
        if file.extension().is_some_and(|end| end == "list" || end == "sources") {
            std::fs::write(folder.join(name), of_sources(&text))?;
        }
    }
    Ok(())
}

/// A text of sources.list(5), in lines or in stanzas, for sources in place of packages.
fn of_sources(text: &str) -> String {
    let line = |line: &str| match line.split_once([' ', '\t']) {
        Some(("deb", rest)) => format!("deb-src {rest}\n"),
        Some((field, _)) if field.eq_ignore_ascii_case("types:") => "Types: deb-src\n".into(),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn attempt(names: &[&str], lists: Lists) -> Result<Vec<(Package, PathBuf)>> {
    let packages = resolve(names, lists)?;
    let folder = paths::build("packages")?;
    let mut missing = Vec::new();
    for package in &packages {
        if find(&folder, package)?.is_none() {
            missing.push(format!("{}={}", package.name, package.version));
        }
    }
    if !missing.is_empty() {
        let _step = Progress::new(format!("Downloading {} Debian packages", missing.len()));
        tool::run(apt("apt-get", lists)?.arg("download").args(&missing).current_dir(&folder))?;
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
fn resolve(names: &[&str], lists: Lists) -> Result<Vec<Package>> {
    let _step = Progress::new("Resolving Debian packages");
    let output = tool::run(
        apt("apt-get", lists)?
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
/// this project's lock is held ([`fetch`]).
fn apt(program: &str, lists: Lists) -> Result<Command> {
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
    let own = match lists {
        Lists::Host => return Ok(command),
        Lists::Own => base.join("lists"),
        Lists::Sources => {
            set("Dir::Etc::SourceList=/dev/null".into());
            set(format!("Dir::Etc::SourceParts={}", base.join("sources").display()));
            base.join("source-lists")
        }
    };
    std::fs::create_dir_all(own.join("partial"))?;
    set(format!("Dir::State::Lists={}", own.display()));
    set("Dir::State::status=/dev/null".into());
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

    #[test]
    fn the_archive_of_a_source_is_told_from_what_comes_with_it() {
        let line = |file: &str| format!("'http://deb.debian.org/pool/{file}' {file} 65 SHA256:1");
        let archive = line("tree_2.1.0.orig.tar.gz");
        assert_eq!(original(&archive), Some(("2.1.0", "tree_2.1.0.orig.tar.gz")));
        for other in ["tree_2.1.0.orig.tar.gz.asc", "tree_2.1.0-1.dsc", "../a_1.orig.tar.gz"] {
            assert_eq!(original(&line(other)), None, "{other}");
        }
        assert_eq!(original("Reading package lists..."), None);
    }

    #[test]
    fn lists_of_sources_are_of_the_same_archives() {
        let lines = "# main\ndeb [signed-by=/k.gpg] http://a b main\ndeb-src http://a b main\n";
        let wanted =
            "# main\ndeb-src [signed-by=/k.gpg] http://a b main\ndeb-src http://a b main\n";
        assert_eq!(of_sources(lines), wanted);
        let stanza = "Types: deb\nURIs: http://a\nSuites: b\nSigned-By: /k.gpg\n";
        assert_eq!(of_sources(stanza), stanza.replace("deb\n", "deb-src\n"));
    }
}
