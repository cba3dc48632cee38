//! What `./hayate containerd install` has installed beside this program: kernel, init and the
//! guest's program, and whether KVM works here.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Below the folder that holds `bin` with this program.
const FOLDER: &str = "lib/hayate";

/// The installed files.
pub struct Library {
    folder: PathBuf,
}

impl Library {
    /// Finds them by this program's own place.
    pub fn find() -> Result<Library> {
        let program = std::env::current_exe().context("cannot find the shim's own file")?;
        let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr/local"));
        let folder = prefix.join(FOLDER);
        anyhow::ensure!(
            folder.join("kernel").is_file(),
            "there is no {}/kernel: ./hayate containerd install puts it there",
            folder.display()
        );
        Ok(Library { folder })
    }

    /// Hayate's kernel.
    pub fn kernel(&self) -> PathBuf {
        self.folder.join("kernel")
    }

    /// The guest's init.
    pub fn init(&self) -> PathBuf {
        self.folder.join("init")
    }

    /// The guest's program that makes containers.
    pub fn container(&self) -> PathBuf {
        self.folder.join(hayate_container_plan::PROGRAM)
    }

    /// The folder of the starts of machines that are kept.
    pub fn starts(&self) -> PathBuf {
        self.folder.join("starts")
    }

    /// Whether KVM was found to work when this was installed.
    pub fn has_kvm(&self) -> bool {
        std::fs::read_to_string(self.folder.join("accel")).is_ok_and(|word| word.trim() == "kvm")
    }
}
