//! A snapshot's manifest: what it was made with, and how its files must look.
//!
//! The first line is the checksum of the rest, which is JSON: a manifest that was cut short or
//! edited is refused. What a clone needs and may find changed is named by an [`Identity`]: the host
//! program, kernel and disks by their files, the processor by its name.

use crate::failure::{FAULT, Failure};
use crate::guest::inquiry;
use anyhow::{Context, Result};
use hayate_job::{Job, Root, Streams};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The version of this format, and of everything in a snapshot that QEMU does not check.
const FORMAT: u64 = 3;

/// A file that a clone needs as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its path.
    pub path: PathBuf,
    /// Size, time and number.
    pub state: String,
    /// The checksum of its content, or what it says of itself; empty if only the state counts.
    pub content: String,
}

impl Identity {
    /// The identity of a file by its state alone.
    pub fn of(path: &Path) -> Result<Identity> {
        let shown = || format!("cannot read {}", path.display());
        let path = path.canonicalize().with_context(shown)?;
        let state = state(&path)?;
        Ok(Identity { path, state, content: String::new() })
    }

    /// The same, with a description of its content for when the state has changed.
    pub fn with(path: &Path, content: impl Fn(&Path) -> Result<String>) -> Result<Identity> {
        let identity = Identity::of(path)?;
        let content = content(&identity.path)?;
        Ok(Identity { content, ..identity })
    }

    /// Whether it is what it was.
    fn holds(&self, content: impl Fn(&Path) -> Result<String>) -> bool {
        let same = state(&self.path).is_ok_and(|state| state == self.state);
        let alike = || content(&self.path).is_ok_and(|content| content == self.content);
        same || !self.content.is_empty() && alike()
    }

    fn value(&self) -> Value {
        json!({ "path": self.path.to_string_lossy(), "state": self.state, "content": self.content })
    }

    fn of_value(value: &Value) -> Option<Identity> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_string());
        Some(Identity {
            path: text("path")?.into(),
            state: text("state")?,
            content: text("content")?,
        })
    }
}

fn state(path: &Path) -> Result<String> {
    let found = path.metadata().with_context(|| format!("cannot read {}", path.display()))?;
    let (size, inode) = (found.size(), found.ino());
    Ok(format!("{size} {}.{:09} {inode}", found.mtime(), found.mtime_nsec()))
}

/// Returns the checksum of a file.
pub fn checksum_of(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(checksum(&bytes))
}

/// Returns the checksum of bytes, in hexadecimal digits.
pub fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the checksum of what a clone's job has in common with that of its snapshot if the clone
/// is started with no options of its own: all but name, program, disks and streams. Folders count:
/// a machine that is saved has none.
pub fn checksum_of_job(job: &Job) -> String {
    let common = Job {
        arguments: Vec::new(),
        hostname: String::new(),
        root: Root::Memory,
        persist: None,
        mounts: Vec::new(),
        disks: Vec::new(),
        streams: Streams::Channel,
        ..job.clone()
    };
    checksum(&common.encode())
}

/// Returns the version that a QEMU reports.
pub fn version_of(program: &Path) -> Result<String> {
    inquiry::version_line(program).with_context(|| format!("{} says no version", program.display()))
}

/// What the host's processor is: its name, and a checksum of its features.
pub fn processor() -> (String, String) {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let mut features: Vec<_> = field("flags").split_ascii_whitespace().collect();
    features.sort_unstable();
    let name = format!("{} {}", field("vendor_id"), field("model name"));
    (name.trim().to_string(), checksum(features.join(" ").as_bytes()))
}

/// The description of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// The words of `snapshot make` that made it.
    pub words: Vec<String>,
    /// The warm-ups, as they were written.
    pub warm: Vec<String>,
    /// The options that define the machine, by their fields' names.
    pub options: BTreeMap<String, String>,
    /// The machine's memory, in MiB.
    pub memory: u64,
    /// Its processors.
    pub cpus: u8,
    /// Whether it runs with KVM.
    pub kvm: bool,
    /// Whether it has a network device.
    pub network: bool,
    /// Whether it gives unused memory back to the host; then each clone has a copy of the memory.
    pub gives_back: bool,
    /// The program of QEMU, with its version.
    pub qemu: Identity,
    /// Hayate's kernel, with its checksum.
    pub kernel: Identity,
    /// The disks, in their order.
    pub disks: Vec<Identity>,
    /// The host's processor, and the checksum of its features.
    pub processor: (String, String),
    /// What the end of `memory` says.
    pub token: String,
    /// What the container image of its root file system says of its program, if there is one.
    pub image: Option<String>,
    /// The size of `devices`, and its checksum.
    pub devices: (u64, String),
    /// The checksum of the guest's job ([`checksum_of_job`]).
    pub job: String,
}

impl Manifest {
    /// Returns the manifest as text.
    pub fn encode(&self) -> String {
        let value = json!({
            "format": FORMAT,
            "channel": hayate_channel::VERSION,
            "made": self.made,
            "words": self.words,
            "warm": self.warm,
            "options": self.options,
            "memory": self.memory,
            "cpus": self.cpus,
            "kvm": self.kvm,
            "network": self.network,
            "gives-back": self.gives_back,
            "qemu": self.qemu.value(),
            "kernel": self.kernel.value(),
            "disks": self.disks.iter().map(Identity::value).collect::<Vec<_>>(),
            "processor": self.processor.0,
            "features": self.processor.1,
            "token": self.token,
            "image": self.image,
            "devices": self.devices.0,
            "devices-checksum": self.devices.1,
            "job": self.job,
        });
        let text = format!("{value}\n");
        format!("{}\n{text}", checksum(text.as_bytes()))
    }

    /// Reads a manifest. The error says what is wrong with it.
    pub fn decode(text: &str) -> Result<Manifest, &'static str> {
        let (sum, rest) = text.split_once('\n').ok_or("its manifest is cut short")?;
        if sum != checksum(rest.as_bytes()) {
            return Err("its manifest is cut short or was changed");
        }
        let value: Value = serde_json::from_str(rest).map_err(|_| "its manifest is none")?;
        let is = |name: &str, number: u64| value.get(name).and_then(Value::as_u64) == Some(number);
        if !is("format", FORMAT) || !is("channel", hayate_channel::VERSION.into()) {
            return Err("it was made by another version of Hayate");
        }
        Manifest::of_value(&value).ok_or("its manifest lacks something")
    }

    fn of_value(value: &Value) -> Option<Manifest> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_string());
        let number = |name: &str| value.get(name)?.as_u64();
        let list = |name: &str| -> Option<Vec<String>> {
            let words = value.get(name)?.as_array()?.iter();
            words.map(|word| Some(word.as_str()?.to_string())).collect()
        };
        let options: &Map<String, Value> = value.get("options")?.as_object()?;
        let options = options.iter();
        Some(Manifest {
            made: number("made")?,
            words: list("words")?,
            warm: list("warm")?,
            options: options
                .map(|(name, value)| Some((name.clone(), value.as_str()?.to_string())))
                .collect::<Option<_>>()?,
            memory: number("memory")?,
            cpus: u8::try_from(number("cpus")?).ok()?,
            kvm: value.get("kvm")?.as_bool()?,
            network: value.get("network")?.as_bool()?,
            gives_back: value.get("gives-back")?.as_bool()?,
            qemu: Identity::of_value(value.get("qemu")?)?,
            kernel: Identity::of_value(value.get("kernel")?)?,
            disks: value
                .get("disks")?
                .as_array()?
                .iter()
                .map(Identity::of_value)
                .collect::<Option<_>>()?,
            processor: (text("processor")?, text("features")?),
            token: text("token")?,
            image: text("image"),
            devices: (number("devices")?, text("devices-checksum")?),
            job: text("job")?,
        })
    }

    /// Says why no machine can be started from it on this host today, if so.
    pub fn obstacle(&self) -> Option<String> {
        let shown = |identity: &Identity| identity.path.display().to_string();
        if !self.qemu.holds(version_of) {
            return Some(format!("it was made with another QEMU ({})", self.qemu.content));
        }
        if !self.kernel.holds(checksum_of) {
            return Some(format!("it holds another kernel than {}", shown(&self.kernel)));
        }
        if let Some(disk) = self.disks.iter().find(|disk| !disk.holds(|_| Ok(String::new()))) {
            return Some(format!("its disk {} has changed or is gone", shown(disk)));
        }
        let (name, features) = processor();
        if name != self.processor.0 {
            return Some(format!("it was made on another processor ({})", self.processor.0));
        }
        // With TCG the machine's processor does not depend on the host's.
        if self.kvm && features != self.processor.1 {
            return Some("the host's processor had other features when it was made".into());
        }
        None
    }
}

/// The error of a snapshot that is not usable.
pub fn unusable(name: &str, why: &str) -> anyhow::Error {
    let text = format!(
        "the snapshot {name} cannot be used: {why}; make it again (./hayate snapshot show {name} \
         says how it was made)"
    );
    Failure::error(FAULT, text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A manifest of files that exist.
    pub fn manifest(folder: &Path) -> Manifest {
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::write(&path, name).unwrap();
            path
        };
        Manifest {
            made: 7,
            words: vec!["s".into(), "--memory=64M".into()],
            warm: vec!["sh -c 'true'".into()],
            options: [("memory".to_string(), "64M".to_string())].into(),
            memory: 64,
            cpus: 2,
            kvm: false,
            network: true,
            gives_back: false,
            qemu: Identity::of(&file("qemu")).unwrap(),
            kernel: Identity::with(&file("kernel"), checksum_of).unwrap(),
            disks: vec![Identity::of(&file("disk")).unwrap()],
            processor: processor(),
            token: "00ff".into(),
            image: Some("{\"a\":\"b\"}".into()),
            devices: (3, checksum(b"abc")),
            job: String::new(),
        }
    }

    #[test]
    fn a_manifest_is_read_as_written_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest(folder.path());
        let text = manifest.encode();
        assert_eq!(Manifest::decode(&text), Ok(manifest));
        for end in 0..text.len() {
            assert!(Manifest::decode(&text[..end]).is_err(), "{end}");
        }
        let edited = text.replace("\"cpus\":2", "\"cpus\":3");
        assert!(edited != text && Manifest::decode(&edited).is_err());
        let (_, rest) = text.split_once('\n').unwrap();
        let later = rest.replace("\"format\":3", "\"format\":4");
        let later = format!("{}\n{later}", checksum(later.as_bytes()));
        assert_eq!(Manifest::decode(&later), Err("it was made by another version of Hayate"));
    }

    #[test]
    fn what_has_changed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let first = manifest(folder.path());
        assert_eq!(first.obstacle(), None);
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::remove_file(&path).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let told = |manifest: &Manifest| manifest.obstacle().unwrap();
        // The same content, built anew.
        write("kernel", "kernel");
        assert_eq!(first.obstacle(), None);
        write("kernel", "other");
        assert!(told(&first).contains("another kernel"));
        write("kernel", "kernel");
        write("disk", "disks");
        assert!(told(&first).contains("disk"));
        let second = manifest(folder.path());
        let elsewhere = Manifest { processor: ("Other".into(), String::new()), ..second.clone() };
        assert!(told(&elsewhere).contains("another processor (Other)"));
        let features = Manifest { processor: (processor().0, String::new()), ..second.clone() };
        assert_eq!(features.obstacle(), None);
        assert!(told(&Manifest { kvm: true, ..features }).contains("other features"));
        write("qemu", "newer");
        assert!(told(&second).contains("another QEMU"));
    }
}
