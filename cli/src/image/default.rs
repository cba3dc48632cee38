//! Images of unchanged Debian programs: the default one, with what a newcomer expects, one with
//! compilers, one with servers, and those of single experiments.
//!
//! The packages are unpacked and not installed: their maintainer scripts would need a running
//! Debian of the same kind, root, and a minute. `settle.sh` creates those results of the scripts
//! that programs look for: users and groups, the choice of awk and pager, the cache of the dynamic
//! linker, compiled Python modules.

use super::convert::{self, FUNCTIONS, SPLIT_VERSION, Split, shell};
use super::debian::{self, Package};
use super::scratch::Scratch;
use super::{finished, key};
use crate::{paths, tool};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// An image of Debian packages.
pub struct Recipe {
    /// Its name.
    name: &'static str,
    /// Its name for people.
    title: &'static str,
    /// Package names. Their dependencies are included.
    packages: &'static [&'static str],
    /// A package whose source goes into the image, unpacked by the body from `$HAYATE_SOURCE`.
    source: Option<&'static str>,
    /// Unpacks the packages `$3...` into a folder, completes them, and makes the image `$1`; `$2`
    /// is an empty folder.
    body: &'static str,
}

/// The default image.
pub const DEFAULT: Recipe = Recipe {
    name: "default",
    title: "the Debian programs",
    packages: &PACKAGES,
    source: None,
    body: BODY,
};

/// Compilers, make, and sources to compile in `/usr/src`, for `./hayate experiment off2f`.
pub const COMPILERS: Recipe = Recipe {
    name: "compilers",
    title: "Debian's compilers",
    packages: &COMPILER_PACKAGES,
    source: None,
    body: concat!(
        include_str!("compilers.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
examples "$root"
disk "$root" "$image"
"#
    ),
};

/// Programs with texts of 4 to 64 KiB in `/p`, made by this machine's C compiler, for
/// `./hayate experiment off2f-small`.
pub const SMALL_TEXTS: Recipe = Recipe {
    name: "small-texts",
    title: "programs with small texts",
    packages: &["base-files", "base-passwd", "busybox-static", "dash", "libc-bin", MERGED],
    source: None,
    body: concat!(
        include_str!("small-texts.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
texts "$root"
disk "$root" "$image"
"#
    ),
};

/// A program with 40 MiB of text in `/p`, of which it reads 400 pages, for
/// `./hayate experiment off2f-linux`.
pub const LARGE_TEXT: Recipe = Recipe {
    name: "large-text",
    title: "a program with a large text",
    packages: SMALL_TEXTS.packages,
    source: None,
    body: concat!(
        include_str!("large-text.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
large "$root"
disk "$root" "$image"
"#
    ),
};

/// Interpreters, shells, compilers and git, with something for each to start with, for
/// `./hayate experiment images`.
pub const START_UPS: Recipe = Recipe {
    name: "start-ups",
    title: "Debian's interpreters and compilers",
    packages: &START_UP_PACKAGES,
    source: None,
    body: concat!(
        include_str!("start-ups.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
start_ups "$root"
disk "$root" "$image"
"#
    ),
};

/// Ordinary tools, Python, a compiler and make, and the source of a package to make with them, for
/// `./hayate experiment jobs`.
pub const JOBS: Recipe = Recipe {
    name: "jobs",
    title: "Debian's tools for ordinary jobs",
    packages: &JOB_PACKAGES,
    source: Some("tree"),
    body: concat!(
        include_str!("compilers.sh"),
        include_str!("jobs.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
jobs "$root"
disk "$root" "$image"
"#
    ),
};

/// Servers, their clients and the tools of a network, for tests, and an Apache that starts programs
/// for `./hayate experiment tender-web`.
pub const SERVERS: Recipe = Recipe {
    name: "servers",
    title: "Debian's servers",
    packages: &SERVER_PACKAGES,
    source: None,
    body: concat!(
        include_str!("nginx.sh"),
        include_str!("web.sh"),
        include_str!("servers.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
servers "$root"
disk "$root" "$image"
"#
    ),
};

/// PostgreSQL, and git with files for a repository, for tests of disks that last.
pub const DATABASES: Recipe = Recipe {
    name: "databases",
    title: "Debian's PostgreSQL and git",
    packages: &[
        "base-files",
        "base-passwd",
        "bash",
        "busybox-static",
        "coreutils",
        "dash",
        "diffutils",
        "git",
        "libc-bin",
        "libpython3-stdlib",
        "postgresql",
        "python3-minimal",
        "sed",
        MERGED,
        "util-linux",
    ],
    source: None,
    body: r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
echo 'postgres:x:103:103::/var/lib/postgresql:/bin/bash' >>"$root/etc/passwd"
echo 'postgres:x:103:' >>"$root/etc/group"
disk "$root" "$image"
"#,
};

/// strace and gdb, Python, and a program in `/p` with names for a debugger, made by this machine's
/// C compiler.
pub const DEBUGGERS: Recipe = Recipe {
    name: "debuggers",
    title: "Debian's debuggers",
    packages: &[
        "base-files",
        "base-passwd",
        "bash",
        "busybox-static",
        "coreutils",
        "dash",
        "gdb",
        "grep",
        "libc-bin",
        "libpython3-stdlib",
        "make",
        "python3-minimal",
        "sed",
        "strace",
        MERGED,
    ],
    source: None,
    body: concat!(
        include_str!("debuggers.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
debugged "$root"
disk "$root" "$image"
"#
    ),
};

/// strace's source, made with its own tests by this machine's C compiler, and what they need.
pub const STRACE: Recipe = Recipe {
    name: "strace",
    title: "strace's own tests",
    packages: &[
        "base-files",
        "base-passwd",
        "bash",
        "coreutils",
        "dash",
        "diffutils",
        "findutils",
        "gawk",
        "grep",
        "libc-bin",
        "make",
        "procps",
        "sed",
        MERGED,
        "util-linux",
    ],
    source: Some("strace"),
    body: concat!(
        include_str!("strace.sh"),
        r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
strace_tests "$root"
disk "$root" "$image"
"#
    ),
};

/// Programs that make namespaces and containers, for tests.
pub const SANDBOXES: Recipe = Recipe {
    name: "sandboxes",
    title: "Debian's sandboxes",
    packages: &[
        "base-files",
        "base-passwd",
        "bsdutils",
        "bubblewrap",
        "busybox-static",
        "coreutils",
        "dash",
        "dbus",
        "grep",
        "hostname",
        "iproute2",
        "iputils-ping",
        "libc-bin",
        "mount",
        "procps",
        "runc",
        "sed",
        "systemd",
        "util-linux",
        MERGED,
    ],
    source: None,
    body: r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
echo 'messagebus:x:101:101::/nonexistent:/usr/sbin/nologin' >>"$root/etc/passwd"
echo 'messagebus:x:101:' >>"$root/etc/group"
: >"$root/etc/machine-id"
disk "$root" "$image"
"#,
};

/// The recipe of this name.
pub fn recipe(name: &str) -> Option<&'static Recipe> {
    let all = [
        &DEFAULT,
        &COMPILERS,
        &DATABASES,
        &DEBUGGERS,
        &SANDBOXES,
        &SERVERS,
        &SMALL_TEXTS,
        &LARGE_TEXT,
        &START_UPS,
        &STRACE,
        &JOBS,
    ];
    all.into_iter().find(|recipe| recipe.name == name)
}

const SERVER_PACKAGES: [&str; 30] = [
    "apache2",
    "apache2-utils",
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "caddy",
    "coreutils",
    "curl",
    "dash",
    "debianutils",
    "findutils",
    "gzip",
    "hostname",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "libc-bin",
    "libpython3-stdlib",
    "net-tools",
    "nginx-light",
    "nodejs",
    "perl-base",
    "procps",
    "python3-minimal",
    "redis-server",
    "sed",
    "tcpdump",
    MERGED,
    "util-linux",
];

const START_UP_PACKAGES: [&str; 17] = [
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "debianutils",
    "g++",
    "git",
    "libc-bin",
    "libpython3-stdlib",
    "mawk",
    "nodejs",
    "perl-base",
    "python3-minimal",
    "sed",
    MERGED,
];

const JOB_PACKAGES: [&str; 16] = [
    "base-files",
    "base-passwd",
    "busybox-static",
    "coreutils",
    "dash",
    "findutils",
    "gcc",
    "grep",
    "libc-bin",
    "libc6-dev",
    "libpython3-stdlib",
    "make",
    "python3-minimal",
    "sed",
    "tar",
    MERGED,
];

const COMPILER_PACKAGES: [&str; 17] = [
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "dash",
    "debianutils",
    "gcc",
    "grep",
    "less",
    "libc-bin",
    "libc6-dev",
    "make",
    "ncurses-base",
    "sed",
    "tcc",
    MERGED,
];

const PACKAGES: [&str; 30] = [
    "base-files",
    "base-passwd",
    "bash",
    "busybox-static",
    "coreutils",
    "curl",
    "dash",
    "debianutils",
    "diffutils",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "iputils-ping",
    "less",
    "libc-bin",
    "libpython3-stdlib",
    "mawk",
    "mount",
    "ncurses-base",
    "nginx-light",
    "perl-base",
    "procps",
    "python3-minimal",
    "python3-seccomp",
    "sed",
    "tar",
    MERGED,
    "util-linux",
];

/// Says that the root file system has a merged /usr; without it apt selects the package that would
/// convert an older layout, with all of Perl.
pub const MERGED: &str = "usr-is-merged";

const BODY: &str = concat!(
    include_str!("nginx.sh"),
    r#"image=$1; scratch=$2; shift 2
root=$scratch/root
settle "$root" "$@"
nginx "$root"
disk "$root" "$image"
"#
);

/// Shell functions that make a root file system of packages.
pub const SETTLE: &str = include_str!("settle.sh");

impl Recipe {
    /// Returns the newest kept image; makes one if there is none. It does not check whether Debian
    /// has newer packages: [`Recipe::make`] does.
    pub fn get(&self) -> Result<PathBuf> {
        let _alone = paths::lock(self.name)?;
        let pointer = paths::build("images")?.join(format!("{}-{}.current", self.name, self.key()));
        if let Ok(name) = std::fs::read_to_string(&pointer) {
            let image = paths::build("images")?.join(name.trim());
            if image.exists() {
                return Ok(image);
            }
        }
        self.make_alone()
    }

    /// Returns the image of the newest packages, made unless it is kept.
    pub fn make(&self) -> Result<PathBuf> {
        let _alone = paths::lock(self.name)?;
        self.make_alone()
    }

    fn make_alone(&self) -> Result<PathBuf> {
        let parts = self.parts()?;
        let folder = paths::build("images")?;
        let (recipe, manifest) = (self.key(), parts.manifest());
        let name = format!("{}-{}.ext4", self.name, key([recipe.as_bytes(), manifest.as_bytes()]));
        let image = folder.join(&name);
        if !image.exists() {
            let about = format!(
                "the {} image: {} Debian packages\n{manifest}",
                self.name,
                parts.packages.len()
            );
            let saying = format!("Making the {} image", self.name);
            finished(&image, about.trim_end(), &saying, |output| {
                let scratch = Scratch::new()?;
                let body = format!("{SETTLE}\n{}", self.body);
                let mut command = shell(&body, false)?;
                command.arg(output).arg(scratch.path());
                parts.give(&mut command);
                tool::run(&mut command).map(drop)
            })?;
        }
        std::fs::write(
            folder.join(format!("{}-{recipe}.current", self.name)),
            format!("{name}\n"),
        )?;
        Ok(image)
    }

    /// Returns the image with its programs and libraries (those that match `glob`) in two files.
    pub fn split(&self, glob: &str) -> Result<Split> {
        let _alone = paths::lock(self.name)?;
        let parts = self.parts()?;
        let folder = paths::build("images")?;
        let (recipe, manifest) = (self.key(), parts.manifest());
        let named = [&recipe, &manifest, glob, SPLIT_VERSION].map(str::as_bytes);
        let image = folder.join(format!("{}-off2f-{}.ext4", self.name, key(named)));
        convert::make_split(image, self.title, |output, nvm| {
            let scratch = Scratch::new()?;
            let body = self
                .body
                .replace("disk \"$root\"", "split \"$root\" \"$HAYATE_NVM\"\ndisk \"$root\"");
            let mut command = shell(&format!("{SETTLE}\n{body}"), false)?;
            command.env("HAYATE_SELF", std::env::current_exe()?);
            command.env("HAYATE_GLOB", glob).env("HAYATE_NVM", nvm);
            command.arg(output).arg(scratch.path());
            parts.give(&mut command);
            tool::run(&mut command).map(drop)
        })
    }

    /// Fetches what the image is made of.
    fn parts(&self) -> Result<Parts> {
        let source = self.source.map(debian::source).transpose()?;
        Ok(Parts { packages: packages(self.packages)?, source })
    }

    /// Returns a name for the way the image is made: another list or script gives another image.
    fn key(&self) -> String {
        let names = self.packages.iter().copied().chain(self.source);
        let packages = names.collect::<Vec<_>>().join(" ");
        key([&packages, FUNCTIONS, SETTLE, self.body].map(str::as_bytes))
    }
}

/// What an image is made of, with the files.
struct Parts {
    packages: Vec<(Package, PathBuf)>,
    source: Option<(Package, PathBuf)>,
}

impl Parts {
    /// Names and versions, one in a line.
    fn manifest(&self) -> String {
        let all = self.packages.iter().chain(&self.source);
        all.map(|(package, _)| format!("{} {}\n", package.name, package.version)).collect()
    }

    /// Names the files to the shell that makes the image.
    fn give(&self, command: &mut Command) {
        command.args(self.packages.iter().map(|(_, file)| file));
        command.envs(self.source.iter().map(|(_, file)| ("HAYATE_SOURCE", file)));
    }
}

/// Returns packages for a root file system with a merged /usr.
pub fn packages(names: &[&str]) -> Result<Vec<(Package, PathBuf)>> {
    debian::fetch(names).or_else(|error| {
        // Releases before the merge have no such package, and need none.
        let older: Vec<&str> = names.iter().copied().filter(|name| *name != MERGED).collect();
        if error.to_string().contains(MERGED) { debian::fetch(&older) } else { Err(error) }
    })
}
