//! Builds the programs of the guest: the kernel, its init, the measurement suite.
//!
//! Cargo is called only if a source is newer than the last build: its own check of a workspace of
//! this size takes longer than the start of a guest. Within one command it is called once: all
//! boots of a comparison have the same kernel, init and suite, even if sources are edited
//! meanwhile.

use crate::arguments::Profile;
use crate::{paths, progress::Progress, tool};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// A program that cargo builds, mostly for the guest.
struct Product {
    /// Package and binary.
    name: &'static str,
    /// Cargo's target; empty: the host.
    target: &'static str,
    /// Cargo's profile when it is optimised.
    profile: &'static str,
    /// Cargo's profile when its own checks are in it.
    dev_profile: &'static str,
    /// Its features in the profile `dev`.
    dev_features: &'static str,
    /// Its sources, besides the workspace's own files.
    sources: &'static [&'static str],
    /// Whether it has no symbols: it is unpacked into the memory of every guest.
    stripped: bool,
    /// The message while it is built.
    saying: &'static str,
}

const KERNEL: Product = Product {
    name: "hayate-kernel",
    target: "x86_64-unknown-none",
    profile: "kernel",
    dev_profile: "kernel-tests",
    // The tests that run inside the kernel: a release kernel has none.
    dev_features: "tests",
    sources: &["kernel", "machine", "crates"],
    stripped: false,
    saying: "Building the kernel",
};

const INIT: Product = Product {
    name: "hayate-init",
    target: "x86_64-unknown-linux-musl",
    profile: "release",
    dev_profile: "dev",
    dev_features: "",
    sources: &["guest/init", "crates"],
    stripped: true,
    saying: "Building the guest's init",
};

/// Hayate's own programs in every guest.
const PROGRAMS: [Product; 5] = [
    program("resource", &["guest/resource"]),
    program("mode", &["guest/mode", "guest/interface"]),
    program("template", &["guest/template/src", "guest/interface"]),
    program("nvm", &["guest/nvm", "crates/off2f", "crates/off2f-tool"]),
    program("off2f", &["guest/off2f", "crates/off2f", "crates/off2f-tool"]),
];

/// The guest's side of `cp`, only in machines that stay.
const COPY: Product = program("hayate-copy", &["guest/copy", "crates/tree-copy"]);

/// The guest's side of containerd's shim, only in its machines.
const CONTAINER: Product = program("container", &["guest/container", "crates/container-plan"]);

/// containerd's shim, a program of the host.
const SHIM: Product = Product {
    name: "containerd-shim-hayate-v1",
    target: "",
    profile: "release",
    dev_profile: "dev",
    dev_features: "",
    sources: &["shim", "cli/src", "cli/Cargo.toml", "crates"],
    stripped: false,
    saying: "Building containerd's shim",
};

const MEASURE: Product = Product {
    name: "measure",
    target: "x86_64-unknown-linux-musl",
    profile: "release",
    dev_profile: "dev",
    dev_features: "",
    sources: &["measure/src", "measure/Cargo.toml", "crates"],
    stripped: false,
    saying: "Building the measurement suite",
};

const TOKIO_SERVER: Product = Product {
    name: "hayate-tokio-server",
    target: "x86_64-unknown-linux-musl",
    profile: "release",
    dev_profile: "dev",
    dev_features: "",
    sources: &["tests/tokio"],
    stripped: true,
    saying: "Building a web server on tokio",
};

const fn program(name: &'static str, sources: &'static [&'static str]) -> Product {
    Product {
        name,
        target: "x86_64-unknown-linux-musl",
        profile: "release",
        dev_profile: "dev",
        dev_features: "",
        sources,
        stripped: true,
        saying: "Building the guest's programs",
    }
}

const WORKSPACE: [&str; 4] =
    ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo/config.toml"];

/// Returns the kernel, built if a source changed.
pub fn kernel(profile: Profile) -> Result<PathBuf> {
    build(&KERNEL, profile)
}

/// Returns the guest's init, built if a source changed.
pub fn init() -> Result<PathBuf> {
    build(&INIT, Profile::Release)
}

/// Returns Hayate's own programs for every guest, built if a source changed.
pub fn programs() -> Result<Vec<PathBuf>> {
    PROGRAMS.iter().map(|product| build(product, Profile::Release)).collect()
}

/// Returns the program that copies files in machines that stay, built if a source changed.
pub fn copy() -> Result<PathBuf> {
    build(&COPY, Profile::Release)
}

/// Returns the program that makes containers in machines, built if a source changed.
pub fn container() -> Result<PathBuf> {
    build(&CONTAINER, Profile::Release)
}

/// Returns containerd's shim, built if a source changed.
pub fn shim(profile: Profile) -> Result<PathBuf> {
    build(&SHIM, profile)
}

/// Returns the measurement suite, static, built if a source changed.
pub fn measure() -> Result<PathBuf> {
    build(&MEASURE, Profile::Release)
}

/// Returns a web server on tokio, static, built if a source changed. It is for tests.
pub fn tokio_server() -> Result<PathBuf> {
    build(&TOKIO_SERVER, Profile::Release)
}

fn build(product: &Product, profile: Profile) -> Result<PathBuf> {
    let word = match profile {
        Profile::Dev => product.dev_profile,
        Profile::Release => product.profile,
    };
    // Of all profiles, this one alone has a folder of another name.
    let folder = if word == "dev" { "debug" } else { word };
    let output = paths::target().join(product.target).join(folder).join(product.name);
    let stamp = paths::build("stamps")?.join(format!("{}-{word}", product.name));
    let lock = lock_of(&output);
    let mut done = lock.lock().unwrap_or_else(PoisonError::into_inner);
    if *done {
        return Ok(output);
    }
    let fresh = |stamp: &Path| -> Option<bool> {
        let built = stamp.metadata().ok()?.modified().ok()?;
        // Another build may have replaced the file since.
        let same = std::fs::read_to_string(stamp).ok()? == made(&output).ok()?;
        Some(same && newest(product.sources)? < built)
    };
    if fresh(&stamp) == Some(true) {
        *done = true;
        return Ok(output);
    }
    paths::writable(&paths::target(), "CARGO_TARGET_DIR")?;
    let began = SystemTime::now();
    let _step = Progress::new(product.saying);
    let mut cargo = cargo()?;
    cargo.arg("build");
    if product.stripped {
        cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    }
    if !product.target.is_empty() {
        cargo.args(["--target", product.target]);
    }
    tool::run(cargo.args([
        "--profile",
        word,
        "-p",
        product.name,
        "--features",
        if profile == Profile::Dev { product.dev_features } else { "" },
    ]))?;
    ensure!(output.exists(), "cargo succeeded, but there is no file {}", output.display());
    std::fs::write(&stamp, made(&output)?)
        .and_then(|()| std::fs::File::options().write(true).open(&stamp)?.set_modified(began))
        .with_context(|| format!("cannot write {}", stamp.display()))?;
    *done = true;
    Ok(output)
}

/// Returns the lock of an output, held while it is built. Its content says whether this command
/// has built it already.
fn lock_of(output: &Path) -> Arc<Mutex<bool>> {
    static LOCKS: Mutex<BTreeMap<PathBuf, Arc<Mutex<bool>>>> = Mutex::new(BTreeMap::new());
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    locks.entry(output.to_path_buf()).or_default().clone()
}

/// Returns when a file was made, as text for comparing.
fn made(file: &Path) -> Result<String> {
    let when = file.metadata().and_then(|found| found.modified());
    let when = when.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(format!("{when:?}"))
}

/// Returns cargo at the root of the project; it prints messages only if it fails.
pub fn cargo() -> Result<Command> {
    let mut cargo = match std::env::var_os("CARGO") {
        Some(path) => Command::new(path),
        None => tool::command("cargo")?,
    };
    cargo
        .current_dir(paths::project())
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TERM_QUIET", "true");
    Ok(cargo)
}

/// Returns the time of the newest change among the sources; `None` if one cannot be read. Each is
/// looked at once: several products have the same.
fn newest(sources: &[&'static str]) -> Option<SystemTime> {
    static KNOWN: Mutex<BTreeMap<&str, Option<SystemTime>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = WORKSPACE.iter().chain(sources);
    let mut times = all.map(|&source| *known.entry(source).or_insert_with(|| newest_below(source)));
    times.try_fold(SystemTime::UNIX_EPOCH, |newest, time| Some(newest.max(time?)))
}

fn newest_below(source: &str) -> Option<SystemTime> {
    let mut pending = vec![paths::project().join(source)];
    let mut newest = SystemTime::UNIX_EPOCH;
    while let Some(path) = pending.pop() {
        let found = path.symlink_metadata().ok()?;
        newest = newest.max(found.modified().ok()?);
        if found.is_dir() {
            for entry in path.read_dir().ok()? {
                let entry = entry.ok()?;
                let hidden = entry.file_name().as_encoded_bytes().first() == Some(&b'.');
                if !hidden && entry.file_name() != "target" {
                    pending.push(entry.path());
                }
            }
        }
    }
    Some(newest)
}
