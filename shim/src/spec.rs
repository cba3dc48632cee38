//! The OCI specification of a container as a plan for the guest: what is done, what is passed over,
//! and what is refused.
//!
//! Refused is what a program would count on and not get: devices that no machine has, hooks inside
//! of the container, a user namespace, PID namespaces outside of the pod, mounts that reach the
//! host, file systems that the guest lacks. Passed over is what a machine
//! gives in another way, or what only hardens: docs/containerd.md lists it.

use crate::hooks::{self, Hooks};
use crate::size::Size;
use crate::{controls, devices, seccomp};
use anyhow::{Context, Result, bail, ensure};
use hayate_container_plan::filter::Filter;
use hayate_container_plan::{Capabilities, Limit, MEMORY, Mount, Plan};
use oci_spec::runtime::{self, LinuxNamespace, LinuxNamespaceType};
use oci_spec::runtime::{PosixRlimitType, Process, Spec};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Annotations by which CRI tells what belongs to one pod: that of containerd and that of CRI-O.
const SANDBOX: [&str; 2] = ["io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"];

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
/// Words that say how mounts spread, as flags of mount(2).
const SPREADING: [(&str, u64); 8] = [
    ("private", PRIVATE),
    ("rprivate", PRIVATE | RECURSIVE),
    ("slave", SLAVE),
    ("rslave", SLAVE | RECURSIVE),
    ("shared", SHARED),
    ("rshared", SHARED | RECURSIVE),
    ("unbindable", UNBINDABLE),
    ("runbindable", UNBINDABLE | RECURSIVE),
];
const RECURSIVE: u64 = 1 << 14;
const UNBINDABLE: u64 = 1 << 17;
const PRIVATE: u64 = 1 << 18;
const SLAVE: u64 = 1 << 19;
const SHARED: u64 = 1 << 20;

/// Where programs share memory (shm_overview(7)).
const SHARED_MEMORY: &[u8] = b"/dev/shm";

/// The PID namespace of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pids {
    /// A new one.
    New,
    /// The machine's.
    Machine,
    /// That of a process of the host with this number, which stands for a container of the pod.
    Of(u32),
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
    /// Whether what the host mounts there later is seen.
    pub follows: bool,
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
    /// Its PID namespace.
    pub pids: Pids,
    /// The process of the host whose UTS namespace it has, which stands for a container of the pod.
    pub names_of: Option<u32>,
    /// The same of the IPC namespace.
    pub ipc_of: Option<u32>,
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
        let (mount, source) = read_mount(mount, plan.mounts.len(), bundle)?;
        plan.mounts.push(mount);
        sources.extend(source);
    }
    let linux = spec.linux().as_ref();
    let resources = linux.and_then(|linux| linux.resources().as_ref());
    plan.controls = resources.map(controls::of).transpose()?.unwrap_or_default();
    let rules = resources.and_then(|resources| resources.devices().as_deref());
    plan.rules = devices::rules(rules.unwrap_or_default())?;
    if let Some(linux) = linux {
        let nodes = linux.devices().iter().flatten().map(devices::node);
        plan.nodes = nodes.collect::<Result<_>>()?;
        plan.cgroup_namespace = namespace(spec, LinuxNamespaceType::Cgroup).is_some();
        if let Some(word) = linux.rootfs_propagation().as_ref().filter(|word| !word.is_empty()) {
            let flags = spreading(word);
            plan.spreading = Some(flags.with_context(|| format!("mounts do not spread {word}"))?);
        }
        let paths =
            |list: &Option<Vec<String>>| list.iter().flatten().map(bytes).collect::<Vec<_>>();
        plan.filter = filter(spec)?;
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
        size: Size::of(spec),
        network: network(spec),
        pids: pids(spec)?,
        names_of: process_of(spec, LinuxNamespaceType::Uts, "uts")?,
        ipc_of: process_of(spec, LinuxNamespaceType::Ipc, "ipc")?,
        hooks: hooks::of(spec)?,
    })
}

/// Returns the filter of system calls of a container's programs, the further ones too.
pub fn filter(spec: &Spec) -> Result<Option<Filter>> {
    let wanted = spec.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
    Ok(wanted.map(seccomp::filter).transpose()?.flatten())
}

/// Refuses what a program would count on and not get.
fn refuse(spec: &Spec) -> Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    let users = namespace(spec, LinuxNamespaceType::User).is_some();
    let entered =
        namespace(spec, LinuxNamespaceType::Cgroup).is_some_and(|own| own.path().is_some());
    ensure!(
        !entered,
        "a cgroup namespace of the host is asked for, which is none of the machine's"
    );
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

/// A word that says how mounts spread.
fn spreading(word: &str) -> Option<u64> {
    SPREADING.iter().find(|(known, _)| *known == word).map(|(_, flags)| *flags)
}

/// Reads a mount.
fn read_mount(
    mount: &runtime::Mount,
    number: usize,
    bundle: &Path,
) -> Result<(Mount, Option<Source>)> {
    let shown = mount.destination().display().to_string();
    let options: Vec<&str> = mount.options().iter().flatten().map(String::as_str).collect();
    let (mut flags, mut data, mut spread) = (0, Vec::new(), Vec::new());
    for option in &options {
        match FLAGS.iter().find(|(word, ..)| word == option) {
            Some((_, bit, true)) => flags |= bit,
            Some((_, bit, false)) => flags &= !bit,
            None if *option == "bind" || *option == "rbind" => {}
            None => match spreading(option) {
                Some(flags) => spread.push(flags),
                None => data.push(*option),
            },
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
        spreading: spread.clone(),
    };
    Ok(match kind {
        _ if binds || kind == "bind" => {
            let path = mount.source().as_ref();
            let path = path.with_context(|| format!("{shown}: nothing is named to bind"))?;
            ensure!(
                !spread.iter().any(|flags| flags & SHARED != 0),
                "{shown}: what a container mounts does not reach the host"
            );
            let path = bundle.join(path);
            if target == SHARED_MEMORY
                && let Some(size) = memory(&path)
            {
                let source = path.as_os_str().as_bytes().to_vec();
                let data = format!("mode=1777,size={size}").into_bytes();
                return Ok((Mount { source, data, ..plain(MEMORY) }, None));
            }
            let follows = !spread.iter().any(|flags| flags & (PRIVATE | UNBINDABLE) != 0);
            let read_only = flags & 1 != 0;
            let mount = Mount { data: Vec::new(), ..plain("bind") };
            (mount, Some(Source { number, path, read_only, follows }))
        }
        "proc" | "sysfs" | "tmpfs" | "devpts" | "mqueue" => (plain(kind), None),
        // A guest has those of version 2 alone, as runc mounts on such a host.
        "cgroup" | "cgroup2" => (plain("cgroup2"), None),
        _ => bail!("{shown}: the guest has no file system of the type {kind:?} for containers"),
    })
}

/// The entry of a namespace.
fn namespace(spec: &Spec, kind: LinuxNamespaceType) -> Option<&LinuxNamespace> {
    let all = spec.linux().as_ref()?.namespaces().as_ref()?;
    all.iter().find(|namespace| namespace.typ() == kind)
}

fn network(spec: &Spec) -> Network {
    match namespace(spec, LinuxNamespaceType::Network) {
        None => Network::Host,
        Some(namespace) => match namespace.path() {
            Some(path) => Network::Namespace(path.clone()),
            None => Network::New,
        },
    }
}

/// The PID namespace: by a path, that of a process of the host.
fn pids(spec: &Spec) -> Result<Pids> {
    if namespace(spec, LinuxNamespaceType::Pid).is_none() {
        return Ok(Pids::Machine);
    }
    Ok(process_of(spec, LinuxNamespaceType::Pid, "pid")?.map_or(Pids::New, Pids::Of))
}

/// The process of the host whose namespace is asked for. None: a new one.
///
/// # Errors
/// The path is another one than that of a process.
fn process_of(spec: &Spec, kind: LinuxNamespaceType, file: &str) -> Result<Option<u32>> {
    let path = namespace(spec, kind).and_then(|own| own.path().as_ref());
    let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else { return Ok(None) };
    let named = path.to_str().and_then(|path| path.strip_prefix("/proc/"));
    let number = named.and_then(|path| path.strip_suffix(&format!("/ns/{file}"))?.parse().ok());
    let number = number.with_context(|| {
        format!("the {kind} namespace {} is asked for, which is none of the pod's", path.display())
    })?;
    Ok(Some(number))
}

/// Whether a bound folder is empty memory of the host (`/dev/shm` of a pod, an `emptyDir` of
/// memory): its size in bytes.
fn memory(path: &Path) -> Option<u64> {
    /// `TMPFS_MAGIC` (include/uapi/linux/magic.h)
    const TMPFS: u64 = 0x0102_1994;
    let found = rustix::fs::statfs(path).ok()?;
    let is_empty = std::fs::read_dir(path).ok()?.next().is_none();
    let size = found.f_blocks.saturating_mul(found.f_bsize as u64);
    (found.f_type as u64 == TMPFS && is_empty).then_some(size)
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
        assert_eq!(kinds, ["proc", "tmpfs", "bind", "cgroup2"]);
        assert_eq!((wanted.pids, plan.cgroup_namespace), (Pids::New, false));
        assert_eq!(
            (plan.mounts[0].flags, &plan.mounts[1].data[..]),
            (14, &b"mode=755,size=65536k"[..])
        );
        let source = &wanted.sources[0];
        assert_eq!((source.number, source.read_only, source.follows), (2, true, true));
        assert_eq!(wanted.root, Some("/bundle/rootfs".into()));
        assert_eq!(wanted.network, Network::New);
        assert_eq!(wanted.size, Size { memory: 1024, cpus: 1 });
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        type Change = fn(&mut Value);
        let changes: [(Change, &str); 13] = [
            (
                |spec| {
                    spec["linux"]["devices"] =
                        json!([{ "path": "/dev/vda", "type": "b", "major": 254, "minor": 0 }])
                },
                "/dev/vda is asked for",
            ),
            (
                |spec| {
                    let path = "/var/run/pid";
                    spec["linux"]["namespaces"] = json!([{ "type": "pid", "path": path }])
                },
                "/var/run/pid is asked for",
            ),
            (
                |spec| {
                    let path = "/proc/1/ns/cgroup";
                    spec["linux"]["namespaces"] = json!([{ "type": "cgroup", "path": path }])
                },
                "cgroup namespace of the host",
            ),
            (|spec| spec["mounts"][2]["options"] = json!(["rbind", "rshared"]), "/data: what"),
            (|spec| spec["linux"]["rootfsPropagation"] = json!("far"), "spread far"),
            (|spec| spec["linux"]["resources"] = json!({ "pids": { "limit": -3 } }), "is -3"),
            (
                |spec| {
                    spec["linux"]["resources"] =
                        json!({ "devices": [{ "allow": true, "access": "?" }] })
                },
                "right '?'",
            ),
            (|spec| spec["linux"]["namespaces"] = json!([{ "type": "user" }]), "user namespace"),
            (
                |spec| spec["hooks"] = json!({ "startContainer": [{ "path": "/bin/true" }] }),
                "/bin/true",
            ),
            (
                |spec| {
                    spec["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_NOTIFY" });
                },
                "judge system calls",
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
    fn namespaces_and_mounts_are_those_that_are_named() {
        let changed = of(|spec| {
            let path = "/proc/77/ns/pid";
            let kinds = [json!({ "type": "cgroup" }), json!({ "type": "pid", "path": path })];
            spec["linux"]["namespaces"] = json!(kinds);
            spec["mounts"][1]["options"] = json!(["rshared", "unbindable", "size=1k"]);
            spec["mounts"][2]["options"] = json!(["bind", "rprivate"]);
            spec["linux"]["rootfsPropagation"] = json!("rslave");
            spec["linux"]["resources"] = json!({ "memory": { "limit": 4096 } });
        });
        let wanted = changed.unwrap();
        let plan = &wanted.plan;
        assert_eq!((wanted.pids, plan.cgroup_namespace), (Pids::Of(77), true));
        assert_eq!(plan.mounts[1].spreading, [SHARED | RECURSIVE, UNBINDABLE]);
        assert_eq!(plan.mounts[1].data, b"size=1k");
        assert!(!wanted.sources[0].follows);
        assert_eq!(plan.spreading, Some(SLAVE | RECURSIVE));
        assert_eq!(plan.controls, [("memory.max".to_string(), b"4096".to_vec())]);
        assert!(!plan.rules.is_empty());
        let none = of(|spec| spec["linux"] = json!({})).unwrap();
        assert_eq!((none.pids, none.plan.controls.len()), (Pids::Machine, 0));
    }

    #[test]
    fn a_container_shares_what_its_pod_has() {
        let memory =
            ["/dev/shm", "/run/shm"].into_iter().find(|path| memory(Path::new(path)).is_some());
        let changed = of(|spec| {
            spec["linux"]["namespaces"] = json!([
                { "type": "uts", "path": "/proc/77/ns/uts" },
                { "type": "ipc", "path": "/proc/78/ns/ipc" },
            ]);
            if let Some(memory) = memory {
                spec["mounts"][2] = json!({ "destination": "/dev/shm", "type": "bind",
                                            "source": memory, "options": ["rbind"] });
            }
        });
        let wanted = changed.unwrap();
        assert_eq!((wanted.names_of, wanted.ipc_of), (Some(77), Some(78)));
        if let Some(memory) = memory {
            let mount = &wanted.plan.mounts[2];
            assert_eq!((&mount.kind[..], &mount.source[..]), (MEMORY, memory.as_bytes()));
            assert!(mount.data.starts_with(b"mode=1777,size=") && wanted.sources.is_empty());
        }
        let wrong = of(|spec| {
            let path = "/proc/77/ns/ipc";
            spec["linux"]["namespaces"] = json!([{ "type": "uts", "path": path }]);
        });
        let error = wrong.err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains("none of the pod's"), "{error}");
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
