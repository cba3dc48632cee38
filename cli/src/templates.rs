//! Templates that a machine has from its boot on (`--template`).
//!
//! The first use boots a machine with the same root file system, in which the guest's program
//! `template` makes the templates and saves them on non-volatile memory (`docs/templates.md`). The
//! file behind that is kept, under a name made of all that decides whether the templates fit: the
//! root, the kernel, QEMU, the processor, and the variables that interpreters look at. Machines
//! that come later map it, and their writes do not reach it.
//!
//! With `--off2f` the memory has the texts of the converted programs, too.

use crate::arguments::network::Net;
use crate::arguments::{Mode, Monitor, Run};
use crate::failure::{FAULT, Failure};
use crate::guest::initramfs;
use crate::guest::log::Sink;
use crate::guest::qemu::Qemu;
use crate::guest::session::{End, Session, Streams};
use crate::image::convert::remove_former;
use crate::image::{finished, key};
use crate::off2f::FileStore;
use crate::paths;
use crate::run::{self, Prepared};
use crate::snapshots::manifest::processor;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pages of memory for templates: 64 MiB, of which the file takes what is used.
const ROOM: u64 = (64 << 20) / 4096;
/// The least memory of the machine that makes them, in MiB: a user's templates take a sixteenth.
const LEAST: u64 = 1024;
/// The longest time that the making takes.
const PATIENCE: Duration = Duration::from_secs(600);
/// The guest's program.
const PROGRAM: &str = "/run/hayate/bin/template";
/// How the names of variables begin by which an interpreter decides how it starts.
const DECISIVE: [&str; 9] =
    ["LANG", "LC_", "HOME", "TZ", "PYTHON", "PERL", "LD_", "MALLOC_", "GLIBC_TUNABLES"];

/// Why the options do not go with `--template`, if they do not.
pub fn obstacle(options: &Run) -> Option<&'static str> {
    let is_root = options.user.as_ref().is_none_or(|user| user.numbers == Some((0, 0)));
    match () {
        () if options.template.is_empty() => None,
        () if options.machine.nvm.is_some() => {
            Some("--template makes the non-volatile memory itself: leave --nvm out")
        }
        () if options.machine.linux => Some("--template needs Hayate's kernel: leave --linux out"),
        () if options.machine.vmm != Monitor::Qemu => {
            Some("--vmm describes no non-volatile memory yet: leave --template out")
        }
        () if options.mode == Mode::Supervisor => {
            Some("programs in supervisor mode begin at no template: leave --template out")
        }
        () if !is_root => Some(
            "--template makes templates for root: leave --user out, or make one in the machine as \
             that user (docs/templates.md)",
        ),
        () => None,
    }
}

/// The files of a machine that is about to start.
pub struct Files<'a> {
    /// Its root file system.
    pub root: &'a Path,
    /// The texts of its converted programs.
    pub texts: Option<&'a Path>,
    /// The folders of `--with`, as images, and where they are shown.
    pub with: &'a [(PathBuf, Vec<u8>)],
}

/// Returns the file with the templates that the options ask for, for a machine with these files.
pub fn memory(options: &Run, files: &Files<'_>, qemu: &Qemu) -> Result<PathBuf> {
    let name = name(options, files, qemu)?;
    let output = paths::build("images")?.join(name);
    let _alone = paths::lock("templates")?;
    if output.exists() {
        return Ok(output);
    }
    remove_former(&output)?;
    let what = options.template.join(" ");
    finished(
        &output,
        &format!("of templates: {what}"),
        &format!("Making templates: {what}"),
        |to| {
            match files.texts {
                Some(texts) => FileStore::copy(texts, to, ROOM)?.sync(),
                None => File::create(to)?.set_len(ROOM * 4096).context("cannot make the memory"),
            }?;
            make(options, to)
        },
    )
}

/// The name of the file: what the templates are of, and the state of what they depend on.
fn name(options: &Run, files: &Files<'_>, qemu: &Qemu) -> Result<String> {
    let state = |path: &Path| -> Result<String> {
        let found = path.metadata().with_context(|| format!("cannot find {}", path.display()))?;
        let (size, time) = (found.len(), (found.mtime(), found.mtime_nsec()));
        Ok(format!("{} {size} {time:?}", path.display()))
    };
    let machine = &options.machine;
    let variables = variables(options);
    let kept = key([
        files.root.as_os_str().as_bytes(),
        options.template.join("\n").as_bytes(),
        format!("{:?} {} {:?}", machine.processor, machine.deterministic, machine.append)
            .as_bytes(),
        key(variables.iter().map(|variable| variable.as_bytes())).as_bytes(),
        key(files.with.iter().map(|(_, place)| &place[..])).as_bytes(),
    ]);
    let mut shown = Vec::new();
    for (image, _) in files.with {
        shown.push(state(image)?);
    }
    let now = key([
        state(files.root)?.as_bytes(),
        key(shown.iter().map(String::as_bytes)).as_bytes(),
        state(&qemu.boot.kernel)?.as_bytes(),
        state(&qemu.program)?.as_bytes(),
        format!("{:?} {}", processor(), qemu.has_kvm()).as_bytes(),
    ]);
    Ok(format!("templates-{kept}-{now}.nvm"))
}

/// The variables that the user sets and that decide how an interpreter starts.
fn variables(options: &Run) -> Vec<OsString> {
    let decides = |variable: &&OsString| {
        DECISIVE.iter().any(|name| variable.as_bytes().starts_with(name.as_bytes()))
    };
    options.env.iter().filter(decides).cloned().collect()
}

/// Makes the templates in a machine whose non-volatile memory is the file.
fn make(options: &Run, nvm: &Path) -> Result<()> {
    let mut chosen = options.clone();
    chosen.template.clear();
    chosen.command = [PROGRAM, "prepare"].map(OsString::from).to_vec();
    chosen.command.extend(options.template.iter().map(|what| format!("--{what}").into()));
    chosen.entrypoint = Some(OsString::new());
    chosen.env = variables(options);
    (chosen.disk, chosen.volume, chosen.persist) = (Vec::new(), Vec::new(), None);
    chosen.directory = None;
    chosen.machine.memory = chosen.machine.memory.max(LEAST);
    chosen.machine.network.choose(Net::None);
    let Prepared { job, archive, mut qemu, .. } = run::prepare(&chosen, false)?;
    qemu.keep_texts(nvm)?;
    let initramfs = initramfs::make(&job, archive.as_deref(), None, &[], &qemu.boot.modules)?;
    let mut said = tempfile::tempfile().context("cannot make a temporary file")?;
    let streams = Streams::Separate {
        input: Some(Box::new(std::io::empty())),
        output: Box::new(said.try_clone()?),
        error: Box::new(said.try_clone()?),
    };
    let session = Session::new(qemu, streams, Sink::None, Some(PATIENCE));
    run::pass_signals_on(session.events())?;
    let outcome = session.run(Some(&initramfs))?;
    if matches!(outcome.end, End::Program(0)) {
        return Ok(());
    }
    let mut text = String::new();
    said.rewind()?;
    said.read_to_string(&mut text)?;
    run::conclude(&outcome, false)?;
    let what = options.template.join(" ");
    Err(Failure::error(FAULT, format!("--template {what}: {}", text.trim_end())))
}
