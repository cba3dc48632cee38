//! The task of a guest: the file that `./hayate` writes for the guest's init.
//!
//! The host command writes a [`Job`] as the file [`PATH`] into the initramfs, so that a start needs
//! no communication with the host and is the same in every run. The format, private to these two
//! programs, is that of [records](hayate_records).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use hayate_records::{Records, number, read, text, unknown};

/// The path of the file in the initramfs.
pub const PATH: &str = "/hayate.job";

/// The path of the program's whole input in the initramfs, if it comes with the job
/// ([`Job::input_along`]).
pub const INPUT: &str = "/hayate.input";

/// The directory in the guest that contains the programs that come with the job.
pub const PROGRAMS: &str = "/usr/local/bin";

/// Names of the virtio-serial ports between host and guest.
pub mod port {
    /// The interactive terminal, raw bytes both ways.
    pub const TTY: &str = "hayate.tty";
    /// The program's standard input.
    pub const STDIN: &str = "hayate.stdin";
    /// The program's standard output.
    pub const STDOUT: &str = "hayate.stdout";
    /// The program's standard error.
    pub const STDERR: &str = "hayate.stderr";
    /// Lines of text: the exit status and messages to the host, signals and sizes to the guest.
    pub const CONTROL: &str = "hayate.control";
    /// Any number of programs, for a machine that stays (`hayate-channel`).
    pub const CHANNEL: &str = "hayate.channel";
}

/// The source of the root file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// The initramfs itself is the root; there is no disk.
    Memory,
    /// A block device, mounted read-only below a writable layer in memory.
    Disk {
        /// The device, `/dev/vda`.
        device: String,
        /// The mount options of its file system: `dax`, or nothing.
        kind: String,
        /// The mount options of its file system: `dax`, or nothing.
        options: String,
    },
}

impl Root {
    /// A disk with ext4, mounted as usual.
    pub fn disk(device: String) -> Root {
        Root::Disk { device, kind: "ext4".to_string(), options: String::new() }
    }
}

/// A disk with a folder of the host's, mounted at a path in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device, `/dev/vdb`.
    pub device: String,
    /// The type of its file system.
    pub kind: String,
    /// The path in the guest.
    pub path: Vec<u8>,
}

/// A disk of the user's, whose ext4 file system is mounted at a path in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The device, `/dev/vdb`.
    pub device: String,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// The path in the guest.
    pub path: Vec<u8>,
}

/// A folder of the host's that is read and written from both sides, at a path in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The name of the server by which the guest reaches it.
    pub tag: String,
    /// Whether the guest may only read.
    pub read_only: bool,
    /// The path in the guest.
    pub path: Vec<u8>,
}

/// How the program's streams are connected to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// One terminal of this many rows and columns (0 where the host does not know).
    Terminal {
        /// Rows of text.
        rows: u16,
        /// Columns of text.
        columns: u16,
    },
    /// Standard input, output and error, each by itself.
    Separate,
    /// The machine stays, and is given programs by the channel, each with its own streams. The
    /// job's program is the first of them; without arguments there is none.
    Channel,
}

/// How a program whose starts are to be explained is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explain {
    /// As `posix_spawn` does: by vfork.
    Spawn,
    /// By fork.
    Fork,
}

/// The guest's place in a network, told at its start, so that the guest need not ask for it. It is
/// about the first network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Whether the network gives an address, and with it routers and name servers (DHCP).
    pub dhcp: bool,
    /// Its addresses, each with the length of its network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The routers to everywhere else.
    pub gateways: Vec<IpAddr>,
    /// The name servers.
    pub name_servers: Vec<IpAddr>,
    /// Whether the user named them: then they replace those that the root file system names.
    pub own_name_servers: bool,
    /// Whether the machine has to speak first: nothing reaches it before the network has seen its
    /// hardware address.
    pub speaks_first: bool,
}

impl Network {
    /// Puts the records of a network, that of the key `network` first.
    fn encode(&self, out: &mut Records) {
        out.put("network", if self.own_name_servers { "own-name-servers" } else { "" });
        if self.dhcp {
            out.put("network-dhcp", "");
        }
        if self.speaks_first {
            out.put("network-speaks-first", "");
        }
        for (address, prefix) in &self.addresses {
            out.put("network-address", format!("{address}/{prefix}"));
        }
        for gateway in &self.gateways {
            out.show("network-gateway", gateway);
        }
        for server in &self.name_servers {
            out.show("network-name-server", server);
        }
    }

    /// Takes a record with an address; false if the key is another.
    fn decode(&mut self, key: &[u8], value: &[u8]) -> Result<bool, String> {
        match key {
            b"network-dhcp" => self.dhcp = true,
            b"network-speaks-first" => self.speaks_first = true,
            b"network-address" => self.addresses.push(prefixed(value)?),
            b"network-gateway" => self.gateways.push(number(value)?),
            b"network-name-server" => self.name_servers.push(number(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A program to run in the guest, and its environment there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The program and its arguments. Empty: the login shell of the root file system.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=VALUE`, the whole environment.
    pub environment: Vec<Vec<u8>>,
    /// The working directory; `None` is `/` for a program and the home directory for a shell.
    pub directory: Option<Vec<u8>>,
    /// User and group to run as.
    pub user: (u32, u32),
    /// `USER[:GROUP]`, each by name or number, to be looked up in the root file system's own list,
    /// instead of `user`. The user's home becomes `HOME` unless the environment has one, and a
    /// number without a line has group 0, as in a container.
    pub account: Option<Vec<u8>>,
    /// The signal that asks the first program of a machine that stays to end, instead of SIGTERM to
    /// all.
    pub stop_signal: Option<u8>,
    /// The name the guest gives itself.
    pub hostname: String,
    /// Where the root file system comes from.
    pub root: Root,
    /// The device of a disk with the writable layer over the root's disk; `None`: it is in memory.
    pub persist: Option<String>,
    /// Further disks, in the order of mounting; each gets a writable layer too.
    pub mounts: Vec<Mount>,
    /// Disks of the user's, in the order of mounting.
    pub disks: Vec<Disk>,
    /// Folders of the host's, in the order of mounting, after the disks.
    pub volumes: Vec<Volume>,
    /// How the program's streams are connected to the host.
    pub streams: Streams,
    /// Whether the program's input is the file [`INPUT`] and not a port: the host decides when
    /// input from a port arrives, so no two runs would be the same. Only with
    /// [`Streams::Separate`].
    pub input_along: bool,
    /// The network, if the machine has one.
    pub network: Option<Network>,
    /// Start the program twice and report to the host where the time of the starts went.
    pub explain: Option<Explain>,
}

impl Job {
    /// Encodes the job as bytes, to be written to [`PATH`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Records::default();
        out.put_all("argument", &self.arguments);
        out.put_all("environment", &self.environment);
        if let Some(directory) = &self.directory {
            out.put("directory", directory);
        }
        out.show("user", self.user.0);
        out.show("group", self.user.1);
        if let Some(account) = &self.account {
            out.put("account", account);
        }
        if let Some(signal) = self.stop_signal {
            out.show("stop-signal", signal);
        }
        out.put("hostname", &self.hostname);
        match &self.root {
            Root::Memory => out.put("root", "memory"),
            Root::Disk { device, kind, options } => {
                out.put("root", "disk");
                out.put("device", device);
                out.put("kind", kind);
                out.put("options", options);
            }
        }
        if let Some(device) = &self.persist {
            out.put("persist", device);
        }
        for mount in &self.mounts {
            out.put("mount-device", &mount.device);
            out.put("mount-kind", &mount.kind);
            out.put("mount-path", &mount.path);
        }
        for disk in &self.disks {
            out.put("disk-device", &disk.device);
            out.put("disk-access", if disk.read_only { "ro" } else { "rw" });
            out.put("disk-path", &disk.path);
        }
        for volume in &self.volumes {
            out.put("volume-tag", &volume.tag);
            out.put("volume-access", if volume.read_only { "ro" } else { "rw" });
            out.put("volume-path", &volume.path);
        }
        match self.streams {
            Streams::Terminal { rows, columns } => {
                out.show("rows", rows);
                out.show("columns", columns);
                out.put("streams", "terminal");
            }
            Streams::Separate => out.put("streams", "separate"),
            Streams::Channel => out.put("streams", "channel"),
        }
        if self.input_along {
            out.put("input", "along");
        }
        if let Some(network) = &self.network {
            network.encode(&mut out);
        }
        match self.explain {
            None => {}
            Some(Explain::Spawn) => out.put("explain", "spawn"),
            Some(Explain::Fork) => out.put("explain", "fork"),
        }
        out.finish()
    }

    /// Decodes a job. The error names the wrong record.
    pub fn decode(bytes: &[u8]) -> Result<Job, String> {
        let mut job = Job {
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            user: (0, 0),
            account: None,
            stop_signal: None,
            hostname: String::new(),
            root: Root::Memory,
            persist: None,
            mounts: Vec::new(),
            disks: Vec::new(),
            volumes: Vec::new(),
            streams: Streams::Separate,
            input_along: false,
            network: None,
            explain: None,
        };
        let (mut disk_device, mut disk_read_only) = (String::new(), false);
        let (mut volume_tag, mut read_only) = (String::new(), false);
        let mut network = Network::default();
        let (mut mount_device, mut mount_kind) = (String::new(), String::new());
        let (mut device, mut kind, mut options) = (String::new(), String::new(), String::new());
        let mut disk = false;
        let (mut rows, mut columns, mut terminal) = (0, 0, false);
        for record in read(bytes) {
            let (key, value) = record?;
            match key {
                b"argument" => job.arguments.push(value.to_vec()),
                b"environment" => job.environment.push(value.to_vec()),
                b"directory" => job.directory = Some(value.to_vec()),
                b"user" => job.user.0 = number(value)?,
                b"group" => job.user.1 = number(value)?,
                b"account" => job.account = Some(value.to_vec()),
                b"stop-signal" => job.stop_signal = Some(number(value)?),
                b"hostname" => job.hostname = text(value)?,
                b"root" => disk = value == b"disk",
                b"device" => device = text(value)?,
                b"kind" => kind = text(value)?,
                b"options" => options = text(value)?,
                b"persist" => job.persist = Some(text(value)?),
                b"mount-device" => mount_device = text(value)?,
                b"mount-kind" => mount_kind = text(value)?,
                b"mount-path" => job.mounts.push(Mount {
                    device: mount_device.clone(),
                    kind: mount_kind.clone(),
                    path: value.to_vec(),
                }),
                b"disk-device" => disk_device = text(value)?,
                b"disk-access" => disk_read_only = value == b"ro",
                b"disk-path" => job.disks.push(Disk {
                    device: disk_device.clone(),
                    read_only: disk_read_only,
                    path: value.to_vec(),
                }),
                b"volume-tag" => volume_tag = text(value)?,
                b"volume-access" => read_only = value == b"ro",
                b"volume-path" => job.volumes.push(Volume {
                    tag: volume_tag.clone(),
                    read_only,
                    path: value.to_vec(),
                }),
                b"rows" => rows = number(value)?,
                b"columns" => columns = number(value)?,
                b"input" if value == b"along" => job.input_along = true,
                b"explain" if value == b"spawn" => job.explain = Some(Explain::Spawn),
                b"explain" if value == b"fork" => job.explain = Some(Explain::Fork),
                b"network" => {
                    network.own_name_servers = value == b"own-name-servers";
                    job.network = Some(Network::default());
                }
                b"streams" if value == b"channel" => job.streams = Streams::Channel,
                b"streams" => terminal = value == b"terminal",
                _ if network.decode(key, value)? => {}
                _ => return Err(unknown(key)),
            }
        }
        if disk {
            job.root = Root::Disk { device, kind, options };
        }
        if job.network.is_some() {
            job.network = Some(network);
        }
        if terminal {
            job.streams = Streams::Terminal { rows, columns };
        }
        Ok(job)
    }
}

/// Who a machine is that was restored from a snapshot: what sets it apart from its twins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fresh {
    /// Random bytes of the host, for this machine alone.
    pub seed: [u8; SEED],
    /// The time, in nanoseconds since 1970.
    pub time: u64,
    /// The hardware address of its network device; `None`: it has none.
    pub hardware: Option<[u8; 6]>,
    /// The name the machine gives itself.
    pub hostname: String,
    /// Its job. Root, mounts and streams are those of the snapshot. `None`: the whole job is, but
    /// for the name, and no program is started; nothing of a network is to be set up anew.
    pub job: Option<Job>,
}

/// Random bytes in [`Fresh`].
pub const SEED: usize = 64;

impl Fresh {
    /// Encodes it as bytes: seed, time, hardware address (zeroes for none), the length of the name,
    /// the name, and the job, if it comes along.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.seed.to_vec();
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(&self.hardware.unwrap_or_default());
        let name = &self.hostname.as_bytes()[..self.hostname.floor_char_boundary(u8::MAX.into())];
        out.push(name.len() as u8);
        out.extend_from_slice(name);
        if let Some(job) = &self.job {
            out.extend_from_slice(&job.encode());
        }
        out
    }

    /// Decodes it. The error names what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Fresh, String> {
        let short = || "too short".to_string();
        let (seed, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let (time, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (hardware, rest) = rest.split_first_chunk().ok_or_else(short)?;
        let (&length, rest) = rest.split_first().ok_or_else(short)?;
        let (name, rest) = rest.split_at_checked(length.into()).ok_or_else(short)?;
        Ok(Fresh {
            seed: *seed,
            time: u64::from_le_bytes(*time),
            hardware: (*hardware != [0; 6]).then_some(*hardware),
            hostname: text(name)?,
            job: if rest.is_empty() { None } else { Some(Job::decode(rest)?) },
        })
    }
}

/// `10.0.2.15/24`.
fn prefixed(value: &[u8]) -> Result<(IpAddr, u8), String> {
    let at = value.iter().position(|&byte| byte == b'/');
    let at = at.ok_or_else(|| format!("no '/' in {:?}", String::from_utf8_lossy(value)))?;
    Ok((number(&value[..at])?, number(&value[at + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn mount(device: &str, path: &[u8]) -> Mount {
        Mount { device: device.into(), kind: "ext4".into(), path: path.to_vec() }
    }

    fn job() -> Job {
        Job {
            arguments: vec![
                b"/bin/sh".to_vec(),
                b"-c".to_vec(),
                b"".to_vec(),
                b"a=b\n\xff".to_vec(),
            ],
            environment: vec![b"TERM=xterm".to_vec(), b"EMPTY=".to_vec()],
            directory: Some(b"/tmp".to_vec()),
            user: (1000, 100),
            account: Some(b"web:www".to_vec()),
            stop_signal: Some(3),
            hostname: "hayate".into(),
            root: Root::Disk {
                device: "/dev/pmem0p1".into(),
                kind: "ext4".into(),
                options: "dax".into(),
            },
            persist: Some("/dev/vdf".into()),
            mounts: vec![mount("/dev/vdb", b"/a"), mount("/dev/vdc", b"/b\xfe")],
            disks: vec![
                Disk { device: "/dev/vdd".into(), read_only: true, path: b"/e".to_vec() },
                Disk { device: "/dev/vde".into(), read_only: false, path: b"/f=".to_vec() },
            ],
            volumes: vec![
                Volume { tag: "hayate.volume.0".into(), read_only: true, path: b"/c".to_vec() },
                Volume { tag: "hayate.volume.1".into(), read_only: false, path: b"/d=".to_vec() },
            ],
            streams: Streams::Terminal { rows: 24, columns: 80 },
            input_along: false,
            network: Some(Network {
                dhcp: true,
                addresses: vec![
                    ("10.0.2.15".parse().unwrap(), 24),
                    ("fec0::15".parse().unwrap(), 64),
                ],
                gateways: vec!["fe80::2".parse().unwrap()],
                name_servers: vec!["10.0.2.3".parse().unwrap()],
                own_name_servers: true,
                speaks_first: true,
            }),
            explain: Some(Explain::Fork),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Job::decode(&job().encode()), Ok(job()));
        let plain = Job { root: Root::Memory, streams: Streams::Separate, explain: None, ..job() };
        assert_eq!(Job::decode(&plain.encode()), Ok(plain.clone()));
        let unconfigured = Job { network: Some(Network::default()), ..plain.clone() };
        assert_eq!(Job::decode(&unconfigured.encode()), Ok(unconfigured));
        let stays = Job { streams: Streams::Channel, account: None, ..plain.clone() };
        assert_eq!(Job::decode(&stays.encode()), Ok(stays));
        let along = Job { input_along: true, network: None, ..plain };
        assert_eq!(Job::decode(&along.encode()), Ok(along));
    }

    #[test]
    fn a_fresh_machine_is_read_as_written() {
        let seed = core::array::from_fn(|at| at as u8);
        let hardware = Some([2, 0, 0, 0, 0, 9]);
        let (hostname, job) = ("clone-1".to_string(), Some(job()));
        let fresh = Fresh { seed, time: 7 << 40, hardware, hostname, job };
        let plain = Fresh { hardware: None, job: None, ..fresh.clone() };
        for fresh in [plain, fresh] {
            let bytes = fresh.encode();
            assert_eq!(Fresh::decode(&bytes), Ok(fresh));
            for end in 0..SEED + 8 + 6 + 1 + 7 {
                assert!(Fresh::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn a_wrong_note_is_refused() {
        assert!(Job::decode(b"argument\0").is_err());
        assert!(Job::decode(b"colour=blue\0").is_err());
        assert!(Job::decode(b"explain=well\0").is_err());
        assert!(Job::decode(b"input=soon\0").is_err());
        assert!(Job::decode(b"rows=many\0").is_err());
        assert!(Job::decode(b"rows=70000\0").is_err());
        assert!(Job::decode(b"hostname=\xff\0").is_err());
        assert!(Job::decode(b"network-address=10.0.2.15\0").is_err());
        assert!(Job::decode(b"network-address=10.0.2.256/24\0").is_err());
    }
}
