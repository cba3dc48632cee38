//! How a container, or a further program of one, is made in a machine: the note that the shim of
//! containerd writes into the folder that it shares with the machine, and that the guest's program
//! `container` carries out.
//!
//! The shim reads the OCI specification, checks it, and refuses there what cannot be had; a plan
//! says only what the guest does, in its order. So the guest needs no reader of JSON, which each
//! machine would load at its boot. The form is that of the guest's job: [records](hayate_records).
//!
//! [`interface`] has what the guest is told of the pod's network, [`device`] the nodes that a
//! container has and the program that says which it may use, and [`filter`] the one that judges its
//! system calls.
#![forbid(unsafe_code)]

pub mod device;
pub mod filter;
pub mod interface;

use device::{Node, Rule};
use filter::Filter;
use hayate_records::{Records, number, numbers, read, text, unknown};

/// Where the guest finds the folder that the shim shares with the machine. Each container has a
/// folder of its own there.
pub const POD: &str = "/pod";
/// In the folder of a container: its root file system.
pub const ROOT: &str = "rootfs";
/// In the folder of a container: the plan of its first program.
pub const PLAN: &str = "plan";
/// In the folder of a container: the interface of the pod.
pub const INTERFACE: &str = "interface";
/// In the folder of a container: folders and files of the host that are shown in it.
pub const SOURCES: &str = "sources";
/// The type of a mount that shows memory which containers of the pod share (`/dev/shm`).
pub const MEMORY: &str = "memory";
/// The guest's program that carries plans out.
pub const PROGRAM: &str = "container";

/// The sets of capabilities, as bits by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Those that a program can have at all.
    pub bounding: u64,
    /// Those that count.
    pub effective: u64,
    /// Those that a program may take.
    pub permitted: u64,
    /// Those that pass to programs whose file allows it.
    pub inheritable: u64,
    /// Those that pass to every program.
    pub ambient: u64,
}

/// A limit of a resource (setrlimit(2)): its number, the limit, and how far it may be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The resource, by Linux' number.
    pub resource: u32,
    /// The limit.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// A mount in the container, made in the order of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// The type of file system; `bind` shows `source`, and [`MEMORY`] memory of the machine.
    pub kind: String,
    /// For `bind`: a path in the folder of the container; for [`MEMORY`]: a name, by which all
    /// containers of the pod have the same.
    pub source: Vec<u8>,
    /// The path in the container.
    pub target: Vec<u8>,
    /// Linux' flags of mount(2).
    pub flags: u64,
    /// Options of the file system, with commas.
    pub data: Vec<u8>,
    /// How mounts spread there, as flags of mount(2), one call for each.
    pub spreading: Vec<u64>,
}

/// A program and the container around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The program and its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// `NAME=VALUE`, the whole environment.
    pub environment: Vec<Vec<u8>>,
    /// The working directory.
    pub directory: Vec<u8>,
    /// User and group.
    pub user: (u32, u32),
    /// Further groups.
    pub groups: Vec<u32>,
    /// The mask of new files' modes.
    pub mask: Option<u32>,
    /// The program's capabilities. `None`: those of the guest's init.
    pub capabilities: Option<Capabilities>,
    /// Limits of resources.
    pub limits: Vec<Limit>,
    /// Whether no program gets more rights by its file.
    pub no_new_privileges: bool,
    /// How likely it is ended when memory lacks.
    pub oom_score: Option<i32>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// The host name of the container.
    pub hostname: Option<Vec<u8>>,
    /// Its domain name.
    pub domain: Option<Vec<u8>>,
    /// Settings of the kernel: path below `/proc/sys`, and value.
    pub settings: Vec<(String, Vec<u8>)>,
    /// Its mounts.
    pub mounts: Vec<Mount>,
    /// Paths that it cannot see.
    pub masked: Vec<Vec<u8>>,
    /// Paths that it cannot write to.
    pub read_only: Vec<Vec<u8>>,
    /// Whether it cannot write to its root file system.
    pub read_only_root: bool,
    /// How mounts spread at its root, as flags of mount(2).
    pub spreading: Option<u64>,
    /// Whether it has a cgroup namespace of its own.
    pub cgroup_namespace: bool,
    /// The container whose UTS namespace it has. None: one of its own.
    pub names_of: Option<String>,
    /// The container whose IPC namespace it has. None: one of its own.
    pub ipc_of: Option<String>,
    /// Files of its control group and what is written to them, in this order.
    pub controls: Vec<(String, Vec<u8>)>,
    /// Nodes of devices, beside those that every container has.
    pub nodes: Vec<Node>,
    /// Which devices it may use: the last rule counts that names one. None: all.
    pub rules: Vec<Rule>,
    /// The filter of system calls.
    pub filter: Option<Filter>,
}

impl Plan {
    /// Returns the plan as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Records::default();
        out.put_all("argument", &self.arguments);
        out.put_all("environment", &self.environment);
        out.put("directory", &self.directory);
        out.put("user", format!("{}:{}", self.user.0, self.user.1));
        self.groups.iter().for_each(|group| out.show("group", group));
        if let Some(mask) = self.mask {
            out.show("mask", mask);
        }
        if let Some(sets) = self.capabilities {
            let Capabilities { bounding, effective, permitted, inheritable, ambient } = sets;
            let text = format!("{bounding}:{effective}:{permitted}:{inheritable}:{ambient}");
            out.put("capabilities", text);
        }
        for Limit { resource, soft, hard } in &self.limits {
            out.put("limit", format!("{resource}:{soft}:{hard}"));
        }
        if let Some(score) = self.oom_score {
            out.show("oom-score", score);
        }
        if let Some(name) = &self.hostname {
            out.put("hostname", name);
        }
        if let Some(name) = &self.domain {
            out.put("domain", name);
        }
        for (path, value) in &self.settings {
            out.put("setting", path);
            out.put("setting-value", value);
        }
        for Mount { kind, source, target, flags, data, spreading } in &self.mounts {
            out.put("mount", kind);
            out.put("mount-source", source);
            out.show("mount-flags", flags);
            out.put("mount-data", data);
            spreading.iter().for_each(|flags| out.show("mount-spreading", flags));
            out.put("mount-target", target);
        }
        out.put_all("masked", &self.masked);
        out.put_all("read-only", &self.read_only);
        if let Some(flags) = self.spreading {
            out.show("spreading", flags);
        }
        if let Some(id) = &self.names_of {
            out.put("names-of", id);
        }
        if let Some(id) = &self.ipc_of {
            out.put("ipc-of", id);
        }
        for (file, value) in &self.controls {
            out.put("control", file);
            out.put("control-value", value);
        }
        for node in &self.nodes {
            out.put("node", &node.path);
            out.put("node-device", node.numbers());
        }
        self.rules.iter().for_each(|rule| out.put("rule", rule.numbers()));
        if let Some(filter) = &self.filter {
            out.show("filter", filter.flags);
            out.put("filter-program", filter.text());
        }
        let facts = [
            ("terminal", self.terminal),
            ("no-new-privileges", self.no_new_privileges),
            ("read-only-root", self.read_only_root),
            ("cgroup-namespace", self.cgroup_namespace),
        ];
        for (key, _) in facts.into_iter().filter(|(_, is)| *is) {
            out.put(key, "");
        }
        out.finish()
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// The wrong record.
    pub fn decode(bytes: &[u8]) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let mut mount = Mount::default();
        for record in read(bytes) {
            let (key, value) = record?;
            match key {
                b"argument" => plan.arguments.push(value.to_vec()),
                b"environment" => plan.environment.push(value.to_vec()),
                b"directory" => plan.directory = value.to_vec(),
                b"user" => {
                    let [user, group] = numbers(value)?;
                    plan.user = (user, group);
                }
                b"group" => plan.groups.push(number(value)?),
                b"mask" => plan.mask = Some(number(value)?),
                b"capabilities" => {
                    let [bounding, effective, permitted, inheritable, ambient] = numbers(value)?;
                    plan.capabilities =
                        Some(Capabilities { bounding, effective, permitted, inheritable, ambient });
                }
                b"limit" => {
                    let [resource, soft, hard]: [u64; 3] = numbers(value)?;
                    let resource = u32::try_from(resource).map_err(|error| error.to_string())?;
                    plan.limits.push(Limit { resource, soft, hard });
                }
                b"oom-score" => plan.oom_score = Some(number(value)?),
                b"hostname" => plan.hostname = Some(value.to_vec()),
                b"domain" => plan.domain = Some(value.to_vec()),
                b"setting" => plan.settings.push((text(value)?, Vec::new())),
                b"setting-value" => {
                    plan.settings.last_mut().ok_or("a value of no setting")?.1 = value.to_vec();
                }
                b"mount" => mount.kind = text(value)?,
                b"mount-source" => mount.source = value.to_vec(),
                b"mount-flags" => mount.flags = number(value)?,
                b"mount-data" => mount.data = value.to_vec(),
                b"mount-spreading" => mount.spreading.push(number(value)?),
                b"mount-target" => {
                    mount.target = value.to_vec();
                    plan.mounts.push(std::mem::take(&mut mount));
                }
                b"masked" => plan.masked.push(value.to_vec()),
                b"read-only" => plan.read_only.push(value.to_vec()),
                b"spreading" => plan.spreading = Some(number(value)?),
                b"names-of" => plan.names_of = Some(text(value)?),
                b"ipc-of" => plan.ipc_of = Some(text(value)?),
                b"control" => plan.controls.push((text(value)?, Vec::new())),
                b"control-value" => {
                    plan.controls.last_mut().ok_or("a value of no file")?.1 = value.to_vec();
                }
                b"node" => plan.nodes.push(Node::at(value)),
                b"node-device" => {
                    plan.nodes.last_mut().ok_or("a device of no node")?.set(numbers(value)?)?;
                }
                b"rule" => plan.rules.push(Rule::of(numbers(value)?)?),
                b"filter" => {
                    plan.filter = Some(Filter { flags: number(value)?, ..Filter::default() });
                }
                b"filter-program" => {
                    plan.filter.as_mut().ok_or("a program of no filter")?.set_program(value)?;
                }
                b"cgroup-namespace" => plan.cgroup_namespace = true,
                b"terminal" => plan.terminal = true,
                b"no-new-privileges" => plan.no_new_privileges = true,
                b"read-only-root" => plan.read_only_root = true,
                _ => return Err(unknown(key)),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Kind;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(1_u8.., 0..20)
    }

    fn full(words: Vec<Vec<u8>>, count: u64, flag: bool) -> Plan {
        let mount = Mount {
            kind: "bind".into(),
            source: words[0].clone(),
            target: words[1].clone(),
            flags: count,
            data: words[2].clone(),
            spreading: vec![count, 7],
        };
        let sets = Capabilities { bounding: count, ambient: 1, ..Capabilities::default() };
        Plan {
            arguments: words.clone(),
            environment: words.clone(),
            directory: words[0].clone(),
            user: (count as u32, 7),
            groups: vec![1, 2],
            mask: flag.then_some(0o22),
            capabilities: flag.then_some(sets),
            limits: vec![Limit { resource: 7, soft: count, hard: u64::MAX }],
            no_new_privileges: flag,
            oom_score: Some(-1),
            terminal: !flag,
            hostname: Some(words[1].clone()),
            domain: flag.then(|| words[1].clone()),
            settings: vec![("kernel/shmmax".into(), words[2].clone())],
            mounts: vec![mount.clone(), Mount { spreading: Vec::new(), ..mount }],
            masked: words.clone(),
            controls: vec![("memory.max".into(), words[0].clone()), ("a".into(), Vec::new())],
            nodes: vec![Node { major: count as u32, user: 3, ..Node::at(&words[1]) }],
            rules: vec![
                Rule { allow: flag, kind: None, major: Some(7), minor: None, access: 3 },
                Rule { kind: Some(Kind::Block), ..Rule::ALL },
            ],
            read_only: words,
            read_only_root: flag,
            spreading: flag.then_some(count),
            cgroup_namespace: !flag,
            names_of: flag.then(|| "pod".into()),
            ipc_of: Some("other".into()),
            filter: flag.then(|| Filter { flags: 2, program: vec![count, 6] }),
        }
    }

    proptest! {
        #[test]
        fn a_plan_is_read_as_it_was_written(
            words in prop::collection::vec(bytes(), 3..6),
            count in any::<u64>(),
            flag in any::<bool>(),
        ) {
            let plan = full(words, count, flag);
            prop_assert_eq!(Plan::decode(&plan.encode()), Ok(plan));
        }

        #[test]
        fn other_bytes_are_an_error_or_a_plan(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Plan::decode(&bytes);
        }
    }

    #[test]
    fn wrong_records_are_named() {
        for (bytes, wrong) in [
            (&b"argument\0"[..], "no '='"),
            (b"colour=red\0", "unknown key"),
            (b"user=1\0", "not 2 numbers"),
            (b"user=a:b\0", "not a fitting number"),
            (b"setting-value=1\0", "a value of no setting"),
            (b"control-value=1\0", "a value of no file"),
            (b"node-device=2:1:3:0:0:0\0", "a device of no node"),
            (b"node=/dev/a\0node-device=3:1:3:0:0:0\0", "no kind"),
            (b"filter-program=0000000000000006\0", "a program of no filter"),
            (b"filter=0\0filter-program=06\0", "that no filter has"),
            (b"filter=0\0filter-program=000000000000000x\0", "invalid digit"),
            (b"rule=1:0:-1:-1:9\0", "no access"),
        ] {
            let error = Plan::decode(bytes).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
