//! `./hayate containerd`: installs the shim by which containerd starts containers in machines
//! (`shim/`), with all that it needs, so that it depends on no source tree.
//!
//! Each file is written beside its final name and renamed: shims that run keep the files that they
//! have, and none sees half of one.

use crate::arguments::containerd::ContainerdRequest;
use crate::arguments::{Accel, Profile};
use crate::compile;
use crate::guest::{accel, volumes};
use crate::snapshots::directory;
use anyhow::{Context, Result};
use std::fs::Permissions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The program, by the name under which containerd looks for `io.containerd.hayate.v1`.
const SHIM: &str = "bin/containerd-shim-hayate-v1";
/// The folder with the files that its machines need.
const LIBRARY: &str = "lib/hayate";
/// The folder there with the starts of machines that the shim keeps.
const STARTS: &str = "starts";
/// The files there.
const FILES: [&str; 4] = ["kernel", "init", "container", "accel"];

/// Handles a request.
pub fn handle(request: &ContainerdRequest) -> Result<()> {
    match request {
        ContainerdRequest::Install { prefix, accel } => install(prefix, *accel, Profile::Release),
        ContainerdRequest::Remove { prefix } => remove(prefix),
    }
}

/// Builds and installs everything below a folder; the profile is the shim's.
pub fn install(prefix: &Path, wanted: Accel, profile: Profile) -> Result<()> {
    volumes::check_qemu()?;
    let programs = [compile::kernel(Profile::Release)?, compile::init()?, compile::container()?];
    let library = prefix.join(LIBRARY);
    for (name, program) in FILES.iter().zip(&programs) {
        let content = std::fs::read(program);
        let content = content.with_context(|| format!("cannot read {}", program.display()))?;
        put(&library.join(name), &content, 0o755)?;
    }
    let accel = match accel::settled(wanted, Profile::Release)? {
        Accel::Kvm => "kvm\n",
        _ => "tcg\n",
    };
    put(&library.join("accel"), accel.as_bytes(), 0o644)?;
    // They are of the kernel that was there before.
    directory::remove(&library.join(STARTS))?;
    let shim = compile::shim(profile)?;
    let content = std::fs::read(&shim);
    let content = content.with_context(|| format!("cannot read {}", shim.display()))?;
    // Last: who finds it finds the rest.
    put(&prefix.join(SHIM), &content, 0o755)
}

fn put(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let tried = || format!("cannot write {}", path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder).with_context(tried)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(tried)?;
    file.write_all(content).with_context(tried)?;
    file.as_file().set_permissions(Permissions::from_mode(mode)).with_context(tried)?;
    file.persist(path).with_context(tried)?;
    Ok(())
}

/// Removes the files that were installed, and their folder if nothing else is there.
fn remove(prefix: &Path) -> Result<()> {
    let library = prefix.join(LIBRARY);
    let files = FILES.iter().map(|name| library.join(name)).chain([prefix.join(SHIM)]);
    for path in files {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => {}
        }
    }
    directory::remove(&library.join(STARTS))?;
    let _ = std::fs::remove_dir(&library);
    Ok(())
}
