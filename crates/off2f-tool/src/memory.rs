//! The guest's non-volatile memory, by `/proc/hayate/nvm`: read as a list, written as commands.

use anyhow::{Context, Result, bail};
use hayate_off2f::Identity;
use std::io::ErrorKind;
use std::path::Path;

/// The kernel's file.
pub const FILE: &str = "/proc/hayate/nvm";

/// An area of non-volatile memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its kind: `nvdimm`, `pseudo`, `virtio-pmem`.
    pub kind: String,
    /// Its physical address.
    pub address: String,
    /// Its size.
    pub kib: u64,
    /// The store on it, if there is one.
    pub store: Option<Store>,
}

/// A store of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Its unique identifier.
    pub id: String,
    /// The most texts that the directory can hold.
    pub entries: u64,
    /// Space that texts use.
    pub used_kib: u64,
    /// Free space.
    pub free_kib: u64,
    /// The longest contiguous free space.
    pub longest_kib: u64,
    /// Entries that were left out because they are damaged.
    pub damaged: u64,
    /// The texts, by place.
    pub texts: Vec<Text>,
}

/// A text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The identity of its content.
    pub identity: Identity,
    /// Its size.
    pub kib: u64,
    /// Its first page in the store.
    pub page: u64,
    /// Whether it is placed for large pages.
    pub large: bool,
    /// How many opened files use it.
    pub users: u64,
    /// Its name, for people.
    pub name: String,
}

/// Returns the areas of non-volatile memory.
pub fn areas() -> Result<Vec<Area>> {
    let text = match std::fs::read_to_string(FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("no {FILE}: this system is not Hayate, or /proc is not mounted")
        }
        other => other.with_context(|| format!("cannot read {FILE}"))?,
    };
    parse(&text)
}

/// Reads the list.
fn parse(text: &str) -> Result<Vec<Area>> {
    let mut areas: Vec<Area> = Vec::new();
    for line in text.lines() {
        let understood = if line.starts_with("area ") {
            area(line).map(|area| areas.push(area))
        } else {
            let store = areas.last_mut().and_then(|area| area.store.as_mut());
            store.and_then(|store| text_of(line).map(|text| store.texts.push(text)))
        };
        understood.with_context(|| format!("{FILE} says what is not understood: {line}"))?;
    }
    Ok(areas)
}

fn area(line: &str) -> Option<Area> {
    let words: Vec<&str> = line.split(' ').collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    let number = |name: &str| after(name)?.parse::<u64>().ok();
    let store = || {
        Some(Store {
            id: after("id")?.into(),
            entries: number("of")?,
            used_kib: number("used")?,
            free_kib: number("free")?,
            longest_kib: number("longest")?,
            damaged: number("damaged")?,
            texts: Vec::new(),
        })
    };
    Some(Area {
        kind: words.get(2)?.to_string(),
        address: words.get(3)?.to_string(),
        kib: words.get(4)?.parse().ok()?,
        store: if words.get(6..) == Some(&["no", "store"]) { None } else { Some(store()?) },
    })
}

/// `text IDENTITY SIZE KiB page PAGE large|small users N NAME`
fn text_of(line: &str) -> Option<Text> {
    let words: Vec<&str> = line.splitn(10, ' ').collect();
    let [_, identity, kib, _, _, page, place, _, users, name] = words.as_slice() else {
        return None;
    };
    Some(Text {
        identity: identity.parse().ok()?,
        kib: kib.parse().ok()?,
        page: page.parse().ok()?,
        large: *place == "large",
        users: users.parse().ok()?,
        name: (*name).into(),
    })
}

/// Finds the text of this identity and its store.
pub fn find<'a>(areas: &'a [Area], identity: &Identity) -> Option<(&'a Store, &'a Text)> {
    let mut stores = areas.iter().filter_map(|area| area.store.as_ref());
    stores.find_map(|store| {
        let text = store.texts.iter().find(|text| text.identity == *identity)?;
        Some((store, text))
    })
}

/// Gives the kernel a command.
fn command(words: &str) -> Result<()> {
    let error = match std::fs::write(FILE, words) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    // Numbers of errno(3).
    match error.raw_os_error() {
        Some(1 | 13) => bail!("only root may do this"),
        Some(2) => bail!("there is no such text, or no such file"),
        Some(16) => bail!(
            "it is in use; end the programs that run it and drop what is kept; a template that \
             was started stays until the next boot"
        ),
        Some(28) => bail!("no store has room for it; `nvm usage` shows what there is"),
        Some(74) => bail!("it is damaged: the content is not that of its identity"),
        Some(123) => bail!("there is no store; `nvm format` makes one where there is memory"),
        _ => Err(error).with_context(|| format!("{FILE} does not take it")),
    }
}

/// Stores the content of the file at the absolute path `path`. `phase`: the page of a large page at
/// which it should begin, if that matters.
pub fn put(phase: Option<u32>, name: &str, path: &Path) -> Result<()> {
    // The kernel splits words at spaces; only the last word, the path, may contain spaces.
    let name: String = name.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
    let name = if name.is_empty() { "-" } else { &name };
    let phase = phase.map_or_else(|| "-".into(), |phase| phase.to_string());
    let path = path.to_str().context("its path is not UTF-8")?;
    command(&format!("put {phase} {name} {path}"))
}

/// Removes a text.
pub fn remove(identity: &Identity) -> Result<()> {
    command(&format!("rm {identity}"))
}

/// Makes the kernel read a text and compare it with its identity.
pub fn verify(identity: &Identity) -> Result<()> {
    command(&format!("verify {identity}"))
}

/// Moves the texts together, so that the free space is contiguous.
pub fn compact() -> Result<()> {
    command("compact")
}

/// Makes a store on each area that has none.
pub fn format() -> Result<()> {
    command("format")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_understood() {
        let identity = Identity::of(b"text");
        let list = format!(
            "area 0 nvdimm 0x100000000 65536 KiB id 0badcafe texts 1 of 1024 used 40 KiB free 65000 KiB \
             longest 64000 KiB damaged 2\n\
             text {identity} 40 KiB page 33 small users 3 a name\\n with spaces\n\
             area 1 pseudo 0x4000000 2048 KiB no store\n"
        );
        let areas = parse(&list).unwrap();
        let store = areas[0].store.as_ref().unwrap();
        assert_eq!((store.id.as_str(), store.entries, store.damaged), ("0badcafe", 1024, 2));
        assert_eq!((store.used_kib, store.free_kib, store.longest_kib), (40, 65000, 64000));
        let text = &store.texts[0];
        assert_eq!((text.kib, text.page, text.users, text.large), (40, 33, 3, false));
        assert_eq!(text.name, "a name\\n with spaces");
        assert_eq!(find(&areas, &identity).unwrap().1, text);
        assert_eq!(
            (areas[1].kind.as_str(), areas[1].kib, &areas[1].store),
            ("pseudo", 2048, &None)
        );
        assert!(parse("text without a store\n").is_err());
        assert!(parse("nonsense\n").is_err());
    }
}
