//! A small root file system for measuring: the suite, a shell, and `true`, in memory.
//!
//! It is an initramfs and has no disk. Another thread of QEMU serves a disk in real time. In
//! instruction-count mode its answers would arrive at another instruction in each run, and while an
//! idle guest waits for one its clock jumps ahead.

use super::convert::{FUNCTIONS, shell};
use super::default::{self, MERGED, SETTLE};
use super::scratch::Scratch;
use super::{finished, key};
use crate::{paths, tool};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The packages of the programs that the experiments execute (a dynamic `true`, `sh`, `busybox`)
/// and of a basic root file system.
const PACKAGES: [&str; 7] =
    ["base-files", "base-passwd", "busybox-static", "coreutils", "dash", "libc-bin", MERGED];

/// Unpacks the packages `$4...`, adds the program `$3`, makes the archive `$1`; `$2` is an empty
/// folder.
const BODY: &str = r#"image=$1; scratch=$2; program=$3; shift 3
root=$scratch/root
settle "$root" "$@"
# Programs run with the language C; files for others would only be unpacked and never read.
rm -rf "$root/usr/share/doc" "$root/usr/share/i18n" "$root/usr/lib/x86_64-linux-gnu/gconv" \
    "$root/usr/lib/locale"
cp "$program" "$root/usr/bin/measure"
chmod 755 "$root/usr/bin/measure"
archive "$root" "$image"
"#;

/// Returns an initramfs with `program` as `/usr/bin/measure`, made unless it is kept. The packages
/// are those of the first time: two comparisons on one machine have the same files.
pub fn get(program: &Path) -> Result<PathBuf> {
    let content =
        std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let recipe = [PACKAGES.join(" "), FUNCTIONS.into(), SETTLE.into(), BODY.into()].join("\n");
    let folder = paths::build("images")?;
    let image = folder.join(format!("small-{}.cpio", key([recipe.as_bytes(), &content[..]])));
    if image.exists() {
        return Ok(image);
    }
    let packages = default::packages(&PACKAGES)?;
    let about = format!("the image for measuring: {} Debian packages", packages.len());
    finished(&image, &about, "Making the image for measuring", |output| {
        let scratch = Scratch::new()?;
        let mut command = shell(&format!("{SETTLE}\n{BODY}"), false)?;
        command.arg(output).arg(scratch.path()).arg(program);
        command.args(packages.iter().map(|(_, file)| file));
        tool::run(&mut command).map(drop)
    })
}
