//! The OCI specification of a container as a plan for the guest: what is done, what is passed over,
//! and what is refused.
//!
//! Refused is what a program would count on and not get: devices of the host, hooks inside of the
//! container, a user namespace, file systems that the guest lacks. Passed over is what a machine
//! gives in another way, or what only hardens: docs/containerd.md lists it.

use crate::hooks::{self, Hooks};
use anyhow::{Context, Result, bail, ensure};
use hayate_container_plan::{Capabilities, Limit, Mount, Plan};
use oci_spec::runtime::{self, LinuxNamespaceType, LinuxResources, PosixRlimitType, Process, Spec};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Memory of a machine whose specification has no limit, in MiB.
const USUAL_MEMORY: u64 = 1024;
/// The memory of kernel, init and tables beside the limit, in MiB.
const OVERHEAD: u64 = 64;
/// The least and the most processors of a machine.
const CPUS: std::ops::RangeInclusive<i64> = 1..=16;

/// Annotations by which CRI tells what belongs to one pod, and how large it is: those of containerd
/// and those of CRI-O.
const SANDBOX: [&str; 2] = ["io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"];
const MEMORY: &str = "io.kubernetes.cri.sandbox-memory";
const QUOTA: &str = "io.kubernetes.cri.sandbox-cpu-quota";
const PERIOD: &str = "io.kubernetes.cri.sandbox-cpu-period";

/// Capabilities by Linux' numbers (include/uapi/linux/capability.h).
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Flags of mount(2) by the words of the specification: set or cleared.
const FLAGS: [(&str, u64, bool); 20] = [
    ("ro", 1, true),
    ("rw", 1, false),
    ("nosuid", 2, true),
    ("suid", 2, false),
    ("nodev", 4, true),
    ("dev", 4, false),
    ("noexec", 8, true),
    ("exec", 8, false),
    ("sync", 16, true),
    ("async", 16, false),
    ("dirsync", 128, true),
    ("noatime", 1 << 10, true),
    ("atime", 1 << 10, false),
    ("nodiratime", 1 << 11, true),
    ("diratime", 1 << 11, false),
    ("relatime", 1 << 21, true),
    ("norelatime", 1 << 21, false),
    ("strictatime", 1 << 24, true),
    ("nostrictatime", 1 << 24, false),
    ("defaults", 0, true),
];
/// Words that say how a mount is bound or spreads: all mounts of a guest are private.
const SPREADING: [&str; 10] = [
    "bind",
    "rbind",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "shared",
    "rshared",
    "unbindable",
    "runbindable",
];

/// The size of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// MiB.
    pub memory: u64,
    /// Processors.
    pub cpus: u8,
}

/// The network namespace of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// A new one. It is empty, unless somebody (a hook, `ctr --cni`) puts something into it.
    New,
    /// The host's.
    Host,
    /// This namespace's.
    Namespace(PathBuf),
}

/// A bound folder or file of the host: which mount of the plan, from where, and whether it may only
/// be read.
pub struct Source {
    /// The number of the mount.
    pub number: usize,
    /// The path on the host.
    pub path: PathBuf,
    /// Whether it may only be read.
    pub read_only: bool,
}

/// A specification's demands, taken apart.
pub struct Wanted {
    /// The guest's part.
    pub plan: Plan,
    /// The root file system, if containerd mounts none.
    pub root: Option<PathBuf>,
    /// The folders and files that are bound.
    pub sources: Vec<Source>,
    /// The size of the machine, if this is the first container.
    pub size: Size,
    /// The network of the machine, if this is the first container.
    pub network: Network,
    /// Programs of the host to be run.
    pub hooks: Hooks,
}

/// Reads the specification of a bundle.
pub fn read(bundle: &Path) -> Result<Spec> {
    Spec::load(bundle.join("config.json")).context("cannot read config.json")
}

/// The name of the pod that a container belongs to: its own, unless an annotation says another.
pub fn pod(spec: &Spec, id: &str) -> String {
    let annotations = spec.annotations().clone().unwrap_or_default();
    let named = SANDBOX.iter().find_map(|key| annotations.get(*key));
    named.cloned().unwrap_or_else(|| id.to_string())
}

/// Reads what a specification asks for.
pub fn wanted(spec: &Spec, bundle: &Path) -> Result<Wanted> {
    refuse(spec)?;
    let process = spec.process().as_ref().context("the specification has no process")?;
    let mut plan = program(process)?;
    let bytes = |text: &String| text.as_bytes().to_vec();
    plan.hostname = spec.hostname().as_ref().filter(|name| !name.is_empty()).map(bytes);
    plan.domain = spec.domainname().as_ref().filter(|name| !name.is_empty()).map(bytes);
    let mut sources = Vec::new();
    for mount in spec.mounts().iter().flatten() {
        if let Some((mount, source)) = read_mount(mount, plan.mounts.len(), bundle)? {
            plan.mounts.push(mount);
            sources.extend(source);
        }
    }
    let linux = spec.linux().as_ref();
    if let Some(linux) = linux {
        let paths =
            |list: &Option<Vec<String>>| list.iter().flatten().map(bytes).collect::<Vec<_>>();
        plan.masked = paths(linux.masked_paths());
        plan.read_only = paths(linux.readonly_paths());
        for (name, value) in linux.sysctl().iter().flatten() {
            ensure!(!name.contains(".."), "no setting of the kernel: {name}");
            plan.settings.push((name.replace('.', "/"), value.as_bytes().to_vec()));
        }
    }
    let root = spec.root().as_ref();
    plan.read_only_root = root.is_some_and(|root| root.readonly().unwrap_or_default());
    Ok(Wanted {
        plan,
        root: root.map(|root| bundle.join(root.path())),
        sources,
        size: size(spec),
        network: network(spec),
        hooks: hooks::of(spec)?,
    })
}

/// Refuses what a program would count on and not get.
fn refuse(spec: &Spec) -> Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    if let Some(device) = linux.devices().iter().flatten().next() {
        bail!(
            "the device {} is asked for, and a machine has no device of the host",
            device.path().display()
        );
    }
    let mut kinds = linux.namespaces().iter().flatten().map(runtime::LinuxNamespace::typ);
    let users = kinds.any(|kind| kind == LinuxNamespaceType::User);
    let mapped = linux.uid_mappings().iter().flatten().next().is_some();
    ensure!(!users && !mapped, "a user namespace is asked for, and this runtime makes none");
    Ok(())
}

/// Reads the program of a container, or a further one.
pub fn program(process: &Process) -> Result<Plan> {
    let bytes = |list: &Option<Vec<String>>| {
        list.iter().flatten().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>()
    };
    let user = process.user();
    let mut plan = Plan {
        arguments: bytes(process.args()),
        environment: bytes(process.env()),
        directory: process.cwd().as_os_str().as_bytes().to_vec(),
        user: (user.uid(), user.gid()),
        groups: user.additional_gids().clone().unwrap_or_default(),
        mask: user.umask(),
        no_new_privileges: process.no_new_privileges().unwrap_or_default(),
        oom_score: process.oom_score_adj(),
        terminal: process.terminal().unwrap_or_default(),
        ..Plan::default()
    };
    ensure!(!plan.arguments.is_empty(), "the specification names no program");
    ensure!(plan.directory.starts_with(b"/"), "the working directory does not begin with /");
    if let Some(sets) = process.capabilities() {
        plan.capabilities = Some(Capabilities {
            bounding: bits(sets.bounding())?,
            effective: bits(sets.effective())?,
            permitted: bits(sets.permitted())?,
            inheritable: bits(sets.inheritable())?,
            ambient: bits(sets.ambient())?,
        });
    }
    for limit in process.rlimits().iter().flatten() {
        let (resource, soft, hard) = (resource(limit.typ()), limit.soft(), limit.hard());
        plan.limits.push(Limit { resource, soft, hard });
    }
    let texts = plan.arguments.iter().chain(&plan.environment).chain([&plan.directory]);
    ensure!(!texts.into_iter().any(|text| text.contains(&0)), "a text holds a zero byte");
    Ok(plan)
}

fn bits(set: &Option<HashSet<runtime::Capability>>) -> Result<u64> {
    let mut bits = 0;
    for one in set.iter().flatten() {
        let name = one.to_string();
        let name = name.strip_prefix("CAP_").unwrap_or(&name);
        let at = CAPABILITIES.iter().position(|known| *known == name);
        bits |= 1 << at.with_context(|| format!("there is no capability {name}"))?;
    }
    Ok(bits)
}

/// A resource by Linux' number (include/uapi/asm-generic/resource.h).
fn resource(kind: PosixRlimitType) -> u32 {
    match kind {
        PosixRlimitType::RlimitCpu => 0,
        PosixRlimitType::RlimitFsize => 1,
        PosixRlimitType::RlimitData => 2,
        PosixRlimitType::RlimitStack => 3,
        PosixRlimitType::RlimitCore => 4,
        PosixRlimitType::RlimitRss => 5,
        PosixRlimitType::RlimitNproc => 6,
        PosixRlimitType::RlimitNofile => 7,
        PosixRlimitType::RlimitMemlock => 8,
        PosixRlimitType::RlimitAs => 9,
        PosixRlimitType::RlimitLocks => 10,
        PosixRlimitType::RlimitSigpending => 11,
        PosixRlimitType::RlimitMsgqueue => 12,
        PosixRlimitType::RlimitNice => 13,
        PosixRlimitType::RlimitRtprio => 14,
        PosixRlimitType::RlimitRttime => 15,
    }
}

/// Reads a mount; `None`: it is one of control groups, which a guest does not have.
fn read_mount(
    mount: &runtime::Mount,
    number: usize,
    bundle: &Path,
) -> Result<Option<(Mount, Option<Source>)>> {
    let shown = mount.destination().display().to_string();
    let options: Vec<&str> = mount.options().iter().flatten().map(String::as_str).collect();
    let (mut flags, mut data) = (0, Vec::new());
    for option in &options {
        match FLAGS.iter().find(|(word, ..)| word == option) {
            Some((_, bit, true)) => flags |= bit,
            Some((_, bit, false)) => flags &= !bit,
            None if SPREADING.contains(option) => {}
            None => data.push(*option),
        }
    }
    let kind = mount.typ().as_deref().unwrap_or_default();
    let binds = options.iter().any(|option| *option == "bind" || *option == "rbind");
    let target = mount.destination().as_os_str().as_bytes().to_vec();
    let data = data.join(",").into_bytes();
    let plain = |kind: &str| Mount {
        kind: kind.into(),
        source: Vec::new(),
        target: target.clone(),
        flags,
        data: data.clone(),
    };
    Ok(match kind {
        _ if binds || kind == "bind" => {
            let path = mount.source().as_ref();
            let path = path.with_context(|| format!("{shown}: nothing is named to bind"))?;
            let source = Source { number, path: bundle.join(path), read_only: flags & 1 != 0 };
            let mount = Mount { data: Vec::new(), ..plain("bind") };
            Some((mount, Some(source)))
        }
        "proc" | "sysfs" | "tmpfs" | "devpts" | "mqueue" => Some((plain(kind), None)),
        "cgroup" | "cgroup2" => None,
        _ => bail!("{shown}: the guest has no file system of the type {kind:?} for containers"),
    })
}

/// The size of the machine: the pod's by its annotations, or the container's by its resources.
fn size(spec: &Spec) -> Size {
    let annotations = spec.annotations().clone().unwrap_or_default();
    let number = |key: &str| -> Option<i64> {
        annotations.get(key)?.parse().ok().filter(|&number| number > 0)
    };
    let resources = spec.linux().as_ref().and_then(|linux| linux.resources().as_ref());
    let of_memory = |resources: &LinuxResources| resources.memory().as_ref()?.limit();
    let limit = number(MEMORY).or_else(|| resources.and_then(of_memory));
    let limit = limit.filter(|&limit| limit > 0);
    let memory =
        limit.map_or(USUAL_MEMORY, |bytes| bytes.unsigned_abs().div_ceil(1 << 20) + OVERHEAD);
    let of_cpu = |resources: &LinuxResources| {
        let cpu = resources.cpu().as_ref()?;
        Some((cpu.quota()?, i64::try_from(cpu.period()?).ok()?))
    };
    let share = number(QUOTA).zip(number(PERIOD)).or_else(|| resources.and_then(of_cpu));
    let share = share.filter(|&(quota, period)| quota > 0 && period > 0);
    let cpus = share.map_or(1, |(quota, period)| quota / period + i64::from(quota % period > 0));
    let cpus = cpus.clamp(*CPUS.start(), *CPUS.end());
    Size { memory: memory.max(2 * OVERHEAD), cpus: u8::try_from(cpus).unwrap_or(1) }
}

fn network(spec: &Spec) -> Network {
    let linux = spec.linux().as_ref();
    let mut namespaces = linux.and_then(|linux| linux.namespaces().as_ref()).into_iter().flatten();
    let own = namespaces.find(|namespace| namespace.typ() == LinuxNamespaceType::Network);
    match own {
        None => Network::Host,
        Some(namespace) => match namespace.path() {
            Some(path) => Network::Namespace(path.clone()),
            None => Network::New,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(change: impl FnOnce(&mut Value)) -> Result<Wanted> {
        let mut spec = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 7, "gid": 8, "additionalGids": [9] },
                "args": ["sh", "-c", "true"], "env": ["A=b"], "cwd": "/srv",
                "capabilities": { "bounding": ["CAP_CHOWN", "CAP_CHECKPOINT_RESTORE"] },
                "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 512 }],
                "noNewPrivileges": true,
            },
            "root": { "path": "rootfs", "readonly": true },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc",
                  "options": ["nosuid", "noexec", "nodev"] },
                { "destination": "/run", "type": "tmpfs", "source": "tmpfs",
                  "options": ["nosuid", "mode=755", "size=65536k"] },
                { "destination": "/data", "type": "bind", "source": "/srv/data",
                  "options": ["rbind", "ro"] },
                { "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup" },
            ],
            "linux": { "namespaces": [{ "type": "network" }, { "type": "pid" }] },
        });
        change(&mut spec);
        let spec: Spec = serde_json::from_value(spec)?;
        wanted(&spec, Path::new("/bundle"))
    }

    #[test]
    fn a_specification_is_a_plan() {
        let wanted = of(|_| ()).unwrap();
        let plan = &wanted.plan;
        assert_eq!((plan.user, &plan.groups[..]), ((7, 8), &[9][..]));
        assert_eq!(plan.capabilities.unwrap().bounding, 1 | 1 << 40);
        assert_eq!(plan.limits, [Limit { resource: 7, soft: 512, hard: 1024 }]);
        assert!(plan.no_new_privileges && plan.read_only_root);
        let kinds: Vec<_> = plan.mounts.iter().map(|mount| &mount.kind[..]).collect();
        assert_eq!(kinds, ["proc", "tmpfs", "bind"]);
        assert_eq!(
            (plan.mounts[0].flags, &plan.mounts[1].data[..]),
            (14, &b"mode=755,size=65536k"[..])
        );
        let source = &wanted.sources[0];
        assert_eq!((source.number, source.read_only), (2, true));
        assert_eq!(wanted.root, Some("/bundle/rootfs".into()));
        assert_eq!(wanted.network, Network::New);
        assert_eq!(wanted.size, Size { memory: 1024, cpus: 1 });
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        type Change = fn(&mut Value);
        let changes: [(Change, &str); 6] = [
            (
                |spec| {
                    spec["linux"]["devices"] =
                        json!([{ "path": "/dev/fuse", "type": "c", "major": 10, "minor": 229 }])
                },
                "/dev/fuse",
            ),
            (|spec| spec["linux"]["namespaces"] = json!([{ "type": "user" }]), "user namespace"),
            (
                |spec| spec["hooks"] = json!({ "startContainer": [{ "path": "/bin/true" }] }),
                "/bin/true",
            ),
            (|spec| spec["mounts"][0]["type"] = json!("nfs"), "nfs"),
            (|spec| spec["process"]["args"] = json!([]), "no program"),
            (|spec| spec["process"]["env"] = json!(["A=\u{0}"]), "zero byte"),
        ];
        for (change, wrong) in changes {
            let error = of(change).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(wrong), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_machine_has_the_size_of_its_pod() {
        let sized = |resources: Value, annotations: Value| {
            let change = |spec: &mut Value| {
                spec["linux"]["resources"] = resources;
                spec["annotations"] = annotations;
            };
            of(change).unwrap().size
        };
        let cpu = json!({ "quota": 150_000, "period": 100_000 });
        let limits = json!({ "memory": { "limit": 128 << 20 }, "cpu": cpu });
        assert_eq!(sized(limits.clone(), json!({})), Size { memory: 192, cpus: 2 });
        let pod = json!({ MEMORY: "268435456", QUOTA: "300000", PERIOD: "100000" });
        assert_eq!(sized(limits, pod), Size { memory: 320, cpus: 3 });
        let none = json!({ "memory": { "limit": -1 }, "cpu": { "quota": -1, "period": 100_000 } });
        assert_eq!(sized(none, json!({})), Size { memory: 1024, cpus: 1 });
    }

    #[test]
    fn a_pod_is_named_by_its_annotation() {
        let spec = |annotations| -> Spec {
            serde_json::from_value(json!({ "ociVersion": "1.0", "annotations": annotations }))
                .unwrap()
        };
        assert_eq!(pod(&spec(json!({})), "a"), "a");
        assert_eq!(pod(&spec(json!({ "io.kubernetes.cri.sandbox-id": "p" })), "a"), "p");
    }
}
