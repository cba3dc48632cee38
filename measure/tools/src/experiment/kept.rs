//! What images the first system keeps of each program, in a boot of its own.
//!
//! Each program is started until its image is there, with all that was kept before given up. The
//! images of the programs that it starts count as its own: those of the compiler behind `gcc`.

use super::describe::{Description, Work};
use super::results::Kept;
use crate::boot::{Setup, System};
use anyhow::{Context, Result, ensure};
use hayate_cli::progress::Progress;

/// How often each program is started: enough for a file that changes between all starts to be left
/// out of the image.
const STARTS: u32 = 16;

/// Starts `"$@"` and shows what is kept. The images come last: they may be none.
const ASK: &str = r#"
images() {
    echo drop image >/proc/hayate/pools
    for start in $(busybox seq "$STARTS"); do
        eval "$BEFORE" || exit
        "$@" </dev/null >/dev/null 2>&1 || exit
    done
    echo "asked: $*"
    busybox grep '^image ' /proc/hayate/pools
    busybox cat /proc/hayate/resources/image/* 2>/dev/null
    true
}
"#;

/// Returns what is kept of each program.
pub fn kept(setup: &Setup, what: &Description, systems: &[System]) -> Result<Vec<Kept>> {
    let system = systems.first().context("no system")?;
    let _step = Progress::new(format!("Asking what {} keeps", system.title));
    let before = what.before.as_deref().unwrap_or("true").replace('\'', r"'\''");
    let mut script = format!("STARTS={STARTS}\nBEFORE='{before}'\n{ASK}");
    let programs: Vec<_> =
        what.workload.iter().filter_map(|w| Some((w, w.run.as_ref()?))).collect();
    for (_, command) in &programs {
        // Split at spaces and nowhere else, as the suite does.
        let words = command.split(' ').map(|word| format!("'{}'", word.replace('\'', r"'\''")));
        script += &format!("images {}\n", words.collect::<Vec<_>>().join(" "));
    }
    let mut words = system.launcher.clone();
    words.extend(["/bin/busybox", "sh", "-c", &script].map(String::from));
    let ended = setup.run(system, words)?;
    ensure!(ended.status == 0, "what is kept: {}{}", ended.output, ended.error);
    let parts: Vec<&str> = ended.output.split("asked: ").skip(1).collect();
    ensure!(parts.len() == programs.len(), "not every program was asked: {}", ended.output);
    programs
        .into_iter()
        .zip(parts)
        .map(|((work, command), part)| read(work, command, part))
        .collect()
}

/// Reads what the guest said of one program.
fn read(work: &Work, command: &str, said: &str) -> Result<Kept> {
    let name = work.title.clone().unwrap_or_else(|| command.to_owned());
    let (mut images, mut bytes, mut horizon) = (0, 0, String::new());
    for entry in entries(said) {
        let value =
            |name: &str| entry.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let is_image = value("horizon").is_some();
        if is_image {
            images += 1;
            bytes += value("bytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        }
        // The kernel separates the arguments by NULs, and shows those as an escape.
        if value("arguments").is_some_and(|a| a.replace(r"\x00", " ") == command) {
            let (taken, why) = (value("horizon"), value("reason"));
            horizon = taken.or(why).unwrap_or("there is none").to_owned();
        }
    }
    // Kind, made, reused, stored, dropped, kept, bytes.
    let pool = said.lines().find(|line| line.starts_with("image ")).context("no line of images")?;
    let all: u64 = pool.split(' ').nth(6).and_then(|bytes| bytes.parse().ok()).context("bytes")?;
    Ok(Kept { name, images, bytes, heirs: all.saturating_sub(bytes), horizon })
}

/// Returns the lines of each resource, of which the first is its serial.
fn entries(said: &str) -> Vec<Vec<&str>> {
    let mut entries: Vec<Vec<&str>> = Vec::new();
    for line in said.lines() {
        if line.starts_with("serial: ") {
            entries.push(Vec::new());
        }
        if let Some(entry) = entries.last_mut() {
            entry.push(line);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_a_command_and_of_what_it_starts_are_added() {
        let work: Work =
            serde_json::from_str(r#"{"name": "c", "title": "C", "run": "gcc -c x.c"}"#).unwrap();
        let said = "gcc -c x.c\nimage 2 9 2 0 2 16384 1000\n\
            serial: 1\nname: /usr/bin/gcc\nbytes: 4096\narguments: gcc\\x00-c\\x00x.c\n\
            stage: ready\nhorizon: vfork()\n\
            serial: 2\nname: /usr/lib/cc1\nbytes: 8192\narguments: cc1\nstage: ready\n\
            horizon: openat(/tmp/x.s)\n\
            serial: 3\nname: /bin/as\nbytes: 0\narguments: as\nstage: seen\n";
        let kept = Kept {
            name: "C".into(),
            images: 2,
            bytes: 12_288,
            heirs: 4_096,
            horizon: "vfork()".into(),
        };
        assert_eq!(read(&work, "gcc -c x.c", said).unwrap(), kept);
        let none = "gcc -c x.c\nimage 0 0 0 0 0 0 1000\nserial: 1\narguments: gcc\\x00-c\\x00x.c\n\
            bytes: 0\nstage: refused\nreason: it is too short\n";
        let none = read(&work, "gcc -c x.c", none).unwrap();
        assert_eq!((none.images, none.bytes, none.horizon.as_str()), (0, 0, "it is too short"));
        assert!(read(&work, "gcc", "gcc\n").is_err());
    }
}
