//! The initramfs of a run: init, the job, Hayate's own programs, drivers for Linux.

use crate::cpio::Archive;
use crate::{compile, paths};
use anyhow::{Context, Result};
use hayate_job::Job;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The files of a folder: name and content.
type Files = &'static [(&'static str, &'static [u8])];

/// What Hayate's own programs need beside themselves, by folders.
const LIBRARY: [(&str, Files); 2] = [
    (
        "hayate/lib",
        &[("hayate_template.py", include_bytes!("../../../guest/template/lib/hayate_template.py"))],
    ),
    (
        "hayate/lib/Hayate",
        &[("Template.pm", include_bytes!("../../../guest/template/lib/Hayate/Template.pm"))],
    ),
];

/// Writes the archive for one run into a file without a name (`O_TMPFILE`): it disappears with the
/// last process that has it open, however that process ends.
///
/// `root` is an archive with the whole root file system for a machine without a disk; it comes
/// first, so that init and the job replace files of the same names in it. `input` is the program's
/// input, if it comes with the job ([`Job::input_along`]). `further` programs are mounted at
/// [`hayate_job::PROGRAMS`] beside Hayate's own.
pub fn make(
    job: &Job,
    root: Option<&Path>,
    input: Option<&[u8]>,
    further: &[PathBuf],
    modules: &[PathBuf],
) -> Result<File> {
    let folder = paths::build("run")?;
    let programs: Vec<PathBuf> =
        compile::programs()?.into_iter().chain(further.iter().cloned()).collect();
    pack(&folder, job, root, input, &compile::init()?, &programs, modules)
}

/// Writes the archive as [`make`] does, of programs that are built: the guest's init, and those
/// that are mounted at [`hayate_job::PROGRAMS`]. It has no name in `folder`.
pub fn pack(
    folder: &Path,
    job: &Job,
    root: Option<&Path>,
    input: Option<&[u8]>,
    init: &Path,
    programs: &[PathBuf],
    modules: &[PathBuf],
) -> Result<File> {
    let mut file = tempfile::tempfile_in(folder)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    if let Some(root) = root {
        let mut root =
            std::fs::File::open(root).with_context(|| format!("cannot read {}", root.display()))?;
        let length = std::io::copy(&mut root, &mut file)?;
        // Consecutive archives begin at multiples of four bytes.
        file.write_all(&[0; 4][..(length.next_multiple_of(4) - length) as usize])?;
    }
    let mut archive = Archive::new();
    for folder in ["dev", "proc", "sys", "tmp", "run", "lower", "rw", "newroot"] {
        if root.is_none() || !["lower", "rw", "newroot"].contains(&folder) {
            archive.directory(folder)?;
        }
    }
    let init = std::fs::read(init).with_context(|| format!("cannot read {}", init.display()))?;
    archive.file("init", 0o755, &init)?;
    // Init finds them here and mounts them in the root of the job.
    archive.directory("hayate")?;
    archive.directory("hayate/bin")?;
    for program in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let content =
            std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        archive.file(&format!("hayate/bin/{name}"), 0o755, &content)?;
    }
    for (folder, files) in LIBRARY {
        archive.directory(folder)?;
        for (name, content) in files {
            archive.file(&format!("{folder}/{name}"), 0o644, content)?;
        }
    }
    let mut list = String::new();
    if !modules.is_empty() {
        archive.directory("modules")?;
    }
    for (index, module) in modules.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        let path = format!("modules/{index:02}-{name}");
        let content =
            std::fs::read(module).with_context(|| format!("cannot read {}", module.display()))?;
        archive.file(&path, 0o644, &content)?;
        list.push_str(&format!("/{path}\n"));
    }
    if !list.is_empty() {
        archive.file("modules.list", 0o644, list.as_bytes())?;
    }
    if let Some(input) = input {
        archive.file(hayate_job::INPUT.trim_start_matches('/'), 0o600, input)?;
    }
    archive.file(hayate_job::PATH.trim_start_matches('/'), 0o600, &job.encode())?;
    file.write_all(&archive.finish()?)?;
    file.flush()?;
    Ok(file)
}
