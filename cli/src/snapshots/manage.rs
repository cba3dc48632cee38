//! `./hayate snapshot list`, `show` and `rm`.

use super::directory::Snapshots;
use super::manifest::Manifest;
use crate::failure::FAULT;
use crate::machines::directory::now;
use crate::machines::manage::{age, each, table};
use anyhow::Result;

/// `./hayate snapshot list`.
pub fn list(quiet: bool) -> Result<u8> {
    let all = Snapshots::open()?;
    let names = all.names()?;
    if quiet {
        names.iter().for_each(|name| println!("{name}"));
        return Ok(0);
    }
    let mut rows = vec![["NAME", "MADE", "CPUS", "MEMORY", "DISK", "STATE"].map(String::from)];
    for name in names {
        let disk = format!("{} MiB", all.size(&name) >> 20);
        rows.push(match all.find(&name) {
            Ok(snapshot) => {
                let Manifest { made, cpus, memory, .. } = snapshot.manifest;
                let state = match snapshot.manifest.obstacle() {
                    Some(why) => format!("unusable: {why}"),
                    None => "ready".into(),
                };
                let made = format!("{} ago", age(now().saturating_sub(made)));
                [name, made, cpus.to_string(), format!("{memory} MiB"), disk, state]
            }
            Err(error) => {
                let none = || "-".to_string();
                [name, none(), none(), none(), disk, format!("unusable: {error:#}")]
            }
        });
    }
    table(&rows);
    Ok(0)
}

/// `./hayate snapshot show`.
pub fn show(name: &str) -> Result<u8> {
    let all = Snapshots::open()?;
    let manifest = all.manifest(name)?;
    println!("name: {name}");
    println!("made: {} ago", age(now().saturating_sub(manifest.made)));
    let words: Vec<_> = manifest.words.iter().map(|word| quoted(word)).collect();
    println!("command: ./hayate snapshot make {}", words.join(" "));
    for warm in &manifest.warm {
        println!("warm-up: {warm}");
    }
    for (field, value) in manifest.options.iter().filter(|(_, value)| !value.is_empty()) {
        println!("{}: {value}", field.replace('_', "-"));
    }
    println!("network device: {}", if manifest.network { "yes" } else { "no" });
    println!("qemu: {} ({})", manifest.qemu.path.display(), manifest.qemu.content);
    println!("kernel file: {}", manifest.kernel.path.display());
    for disk in &manifest.disks {
        println!("disk: {}", disk.path.display());
    }
    println!("host's processor: {}", manifest.processor.0);
    println!("on the disk: {} MiB", all.size(name) >> 20);
    let whole = all.find(name).map(|snapshot| snapshot.manifest.obstacle());
    let (usable, status) = match whole {
        Ok(None) => ("yes".to_string(), 0),
        Ok(Some(why)) => (format!("no: {why}"), FAULT),
        Err(error) => (format!("no: {error:#}"), FAULT),
    };
    println!("usable: {usable}");
    Ok(status)
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `./hayate snapshot rm`.
pub fn remove(names: &[String]) -> Result<u8> {
    let all = Snapshots::open()?;
    each(names, |name| all.remove(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_can_be_pasted_into_a_shell() {
        for word in ["--warm", "python3 -c 'print(42)'", "", "a\"b"] {
            let again = super::super::words::split(&quoted(word)).unwrap();
            assert_eq!(again, [word]);
        }
    }
}
