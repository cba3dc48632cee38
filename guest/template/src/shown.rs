//! The templates as `/proc/hayate/templates` shows them.

use crate::Failure;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

const PATH: &str = "/proc/hayate/templates";
/// The heading of a list.
pub const LIST: &str = "NAME             OWNER      KIB   STARTS  CHANGED  PROGRAM\n";
const SECOND: i128 = 1_000_000_000;

/// A template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub name: String,
    owner: String,
    /// When it was made, in nanoseconds since 1970.
    pub made: i128,
    bytes: u64,
    /// Its bytes on non-volatile memory, if it was saved before this boot.
    stored: u64,
    starts: u64,
    bound: Vec<String>,
    serves: Vec<String>,
    files: Vec<String>,
}

/// What became of a file since the template was made.
fn change(file: &str, made: i128) -> Option<&'static str> {
    let Ok(now) = std::fs::metadata(file) else { return Some("gone") };
    let changed = |at: &Metadata| i128::from(at.ctime()) * SECOND + i128::from(at.ctime_nsec());
    (changed(&now) > made).then_some("changed")
}

impl Shown {
    /// All templates that the user sees.
    pub fn all() -> Result<Vec<Shown>, Failure> {
        let text = std::fs::read_to_string(PATH).map_err(|error| {
            Failure::new(format!("{PATH}: {error}; templates are there in Hayate alone"))
        })?;
        Ok(parse(&text))
    }

    /// The user's own template of this name, or else another's that the user sees.
    pub fn find(name: &OsStr) -> Result<Option<Shown>, Failure> {
        let own = own_user();
        let mut named: Vec<Shown> =
            Shown::all()?.into_iter().filter(|shown| OsStr::new(&shown.name) == name).collect();
        named.sort_by_key(|shown| shown.owner != own);
        Ok(named.into_iter().next())
    }

    /// The files that are not what they were. Of a template that was saved the kernel compares them
    /// before it uses it, and their inodes are those of another boot.
    fn changes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let files = if self.stored == 0 { &self.files[..] } else { &[] };
        files.iter().filter_map(|file| Some((change(file, self.made)?, file.as_str())))
    }

    /// Its line in a list.
    pub fn line(&self) -> String {
        let Shown { name, owner, bytes, starts, .. } = self;
        let (program, changed) =
            (self.files.first().map_or("?", String::as_str), self.changes().count());
        format!("{name:<16} {owner:>5} {:>8} {starts:>8} {changed:>8}  {program}\n", bytes / 1024)
    }

    /// All about it.
    pub fn page(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let age = (now as i128 - self.made) / SECOND;
        let mut page = format!(
            "name: {}\nowner: {}\nage: {age} s\nmemory: {} KiB\nstarts: {}\n",
            self.name,
            self.owner,
            self.bytes / 1024,
            self.starts
        );
        if self.stored != 0 {
            let _ = writeln!(page, "on non-volatile memory: {} KiB", self.stored / 1024);
        }
        for (name, list) in [("bound", &self.bound), ("serves", &self.serves)] {
            for text in list {
                let _ = writeln!(page, "{name}: {text}");
            }
        }
        let _ = writeln!(page, "files: {}", self.files.len());
        for (what, file) in self.changes() {
            let _ = writeln!(page, "{what}: {file}");
        }
        page
    }
}

/// The number of the user whose rights count.
fn own_user() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ids.split_whitespace().nth(1).unwrap_or_default().to_owned()
}

fn parse(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name == "name" {
            all.push(Shown { name: value.to_owned(), ..Shown::default() });
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        match name {
            "owner" => last.owner = value.to_owned(),
            "made" => last.made = value.parse().unwrap_or_default(),
            "bytes" => last.bytes = value.parse().unwrap_or_default(),
            "stored" => last.stored = value.parse().unwrap_or_default(),
            "starts" => last.starts = value.parse().unwrap_or_default(),
            "bound" => last.bound.push(value.to_owned()),
            "serves" => last.serves.push(value.to_owned()),
            "file" if !last.files.iter().any(|file| file == value) => {
                last.files.push(value.to_owned());
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: py\nowner: 0\nmade: 1000000000000000000\nbytes: 2048\nstarts: 3\n\
                        bound: /usr/bin/python3\nserves: script\nfile: /no/such/file\n\
                        file: /proc/self/exe\nfile: /no/such/file\n\nname: other\nowner: 7\n";

    #[test]
    fn what_the_kernel_shows_is_read() {
        let all = parse(TEXT);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].bound, ["/usr/bin/python3"]);
        assert_eq!(all[0].files, ["/no/such/file", "/proc/self/exe"]);
        assert_eq!((all[1].name.as_str(), all[1].owner.as_str()), ("other", "7"));
        assert!(all[0].page().contains("gone: /no/such/file\nchanged: /proc/self/exe\n"));
        assert!(all[0].line().starts_with("py "));
        assert_eq!(parse("nonsense\n: \nstarts: 3\n"), []);
    }
}
