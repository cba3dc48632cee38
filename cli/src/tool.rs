//! Runs other programs, and reports clearly when one is missing or fails.

use crate::failure::{Failure, USAGE};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The Debian package of each tool that the command needs beyond a bare machine.
const PACKAGES: [(&str, &str); 16] = [
    ("apt-get", "apt"),
    ("cargo", "rustup"),
    ("debugfs", "e2fsprogs"),
    ("dpkg-deb", "dpkg"),
    ("e2fsck", "e2fsprogs"),
    ("fakeroot", "fakeroot"),
    ("make", "make"),
    ("mke2fs", "e2fsprogs"),
    ("musl-gcc", "musl-tools"),
    ("objdump", "binutils"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("resize2fs", "e2fsprogs"),
    ("setpriv", "util-linux"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
];

/// Finds a tool in `PATH`, or in the administrator's folders, which are not in an ordinary user's
/// `PATH` on Debian (`mke2fs` is there).
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|folder| folder.join(name)).find(|file| {
        rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
    })
}

/// Returns a command for the tool, or an error that says how to install it.
pub fn command(name: &str) -> Result<Command> {
    let Some(path) = find(name) else {
        let package = PACKAGES.iter().find(|(tool, _)| *tool == name).map(|(_, package)| package);
        match package {
            Some(package) => bail!(
                "{name} is not installed. ./hayate setup installs it; by hand: \
                 apt-get install {package} (or what your distribution calls it)"
            ),
            None => bail!("{name} is not installed; install it with your distribution's packages"),
        }
    };
    Ok(Command::new(path))
}

/// Runs a command to its end with empty input. Returns its output if it succeeds; otherwise the
/// error contains the end of its error output.
pub fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let mut said = String::from_utf8_lossy(&output.stderr).trim_end().to_string();
    if said.is_empty() {
        said = String::from_utf8_lossy(&output.stdout).trim_end().to_string();
    }
    let lines: Vec<&str> = said.lines().collect();
    // For this command itself, started through a shell: its message about a wrong command line is
    // passed on.
    if let (Some(2), Some(line)) = (output.status.code(), lines.last())
        && let Some(text) = line.strip_prefix("hayate: ")
    {
        return Err(Failure::error(USAGE, text));
    }
    let tail = lines[lines.len().saturating_sub(30)..].join("\n  ");
    bail!("{name} failed ({}):\n  {tail}", output.status)
}
