//! Which options make a machine what it is, and which are about one clone.

use crate::arguments::network::Net;
use crate::arguments::{Accel, Machine, Mode, Monitor, Run};
use crate::failure::{Failure, USAGE};
use anyhow::Result;
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

/// Options of `run` that a clone takes: the names of their fields. All others define the machine.
const OF_CLONES: [&str; 20] = [
    "from",
    "boot",
    "entrypoint",
    "env",
    "directory",
    "user",
    "tty",
    "no_tty",
    "log",
    "timing",
    "timeout",
    "mode",
    "command",
    "net",
    "publish",
    "publish_all",
    "ip",
    "gateway",
    "dns",
    "mac",
];
/// Options of `start`.
const OF_START: [&str; 3] = ["name", "owner", "rm"];

/// Devices by which QEMU drops memory of the guest: it would be dropped from the snapshot.
const DROPPING: [&str; 2] = ["virtio-balloon", "virtio-mem"];

/// QEMU refuses to save such a machine, too: the files that the guest has open are its own.
const NO_VOLUMES: &str = "the files that a guest has open in a folder of the host are no part of a \
                          snapshot: leave --volume out";

/// The options that define a machine, by their fields' names: what the user writes, and its value.
pub fn defining(run: &Run) -> BTreeMap<&'static str, (&'static str, String)> {
    let machine = &run.machine;
    let path = |path: &Path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        real.to_string_lossy().into_owned()
    };
    let folder = |with: &OsStr| {
        let text = with.to_string_lossy().into_owned();
        match text.rsplit_once(":/") {
            Some((folder, place)) => format!("{}:/{place}", path(Path::new(folder))),
            None => text,
        }
    };
    let flag = |is: bool| if is { "yes" } else { "no" }.to_string();
    let words = |words: &[std::ffi::OsString]| {
        let words = words.iter().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    };
    let list = [
        ("rootfs", "--rootfs", run.rootfs.as_deref().map(path).unwrap_or_default()),
        ("image", "--image", run.image.clone().unwrap_or_default()),
        ("in_memory", "--in-memory", flag(run.in_memory)),
        ("off2f", "--off2f", run.off2f.clone().unwrap_or_default()),
        ("template", "--template", run.template.join(" ")),
        ("with", "--with", run.with.iter().map(|with| folder(with)).collect::<Vec<_>>().join(" ")),
        ("disk", "--disk", words(&run.disk)),
        ("persist", "--persist", run.persist.clone().unwrap_or_default()),
        ("volume", "--volume", words(&run.volume)),
        ("recycle", "--recycle", run.recycle.clone().unwrap_or_else(|| "full".into())),
        ("cpus", "--cpus", machine.cpus.to_string()),
        ("processor", "--cpu", machine.processor.clone().unwrap_or_else(|| "max".into())),
        ("memory", "--memory", format!("{}M", machine.memory)),
        ("accel", "--accel", name(machine.accel)),
        ("vmm", "--vmm", name(machine.vmm)),
        ("board", "--machine", name(machine.board)),
        ("aslr", "--aslr", machine.aslr.map_or_else(|| "as usual".into(), name)),
        (
            "nvm",
            "--nvm",
            machine.nvm.as_deref().map(OsStr::to_string_lossy).unwrap_or_default().into(),
        ),
        ("deterministic", "--deterministic", flag(machine.deterministic)),
        ("append", "--append", machine.append.join(" ")),
        ("qemu", "--qemu", words(&machine.qemu)),
        ("kernel", "--kernel", machine.kernel.as_deref().map(path).unwrap_or_default()),
        ("linux", "--linux", flag(machine.linux)),
        ("profile", "--profile", name(machine.profile)),
    ];
    list.into_iter().map(|(field, option, value)| (field, (option, value))).collect()
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

/// Refuses options with which no snapshot is made.
pub fn check_make(run: &Run) -> Result<()> {
    let machine = &run.machine;
    let drops = machine.qemu.iter().any(|word| {
        let word = word.to_string_lossy();
        DROPPING.iter().any(|device| word.contains(device))
    });
    let text = if run.from.is_some() {
        "a snapshot is made of a machine that boots: leave --from out"
    } else if !run.command.is_empty() {
        "a snapshot runs no program: say --warm 'CMD', and give CMD to ./hayate run --from"
    } else if run.tty || run.no_tty || run.log.is_some() || run.timing {
        "--tty, --no-tty, --log and --timing are for ./hayate run --from"
    } else if run.mode == Mode::Supervisor {
        "--mode is for ./hayate run --from"
    } else if machine.deterministic {
        "--deterministic counts from a machine's first instruction: no snapshot is made of one"
    } else if machine.linux {
        "snapshots are made of Hayate's kernel: leave --linux out"
    } else if machine.vmm != Monitor::Qemu {
        "only QEMU makes snapshots: leave --vmm out"
    } else if !run.volume.is_empty() {
        NO_VOLUMES
    } else if machine.nvm.is_some() || run.off2f.is_some() {
        "no snapshot is made of non-volatile memory: leave --nvm and --off2f out"
    } else if !run.template.is_empty() {
        "a snapshot has its templates in its own memory: instead of --template say \
         --warm 'template make ...' (docs/snapshots.md)"
    } else if run.persist.is_some() {
        "a snapshot does not hold what is kept on a disk: leave --persist out"
    } else if !run.disk.is_empty() {
        "a snapshot does not hold what is on a disk of the user: leave --disk out"
    } else if drops {
        "--qemu: a device that drops memory would drop it from the snapshot: leave it out"
    } else if !matches!(machine.network.net(), Net::None | Net::User) {
        "a snapshot is made with --net user or none; clones take others"
    } else if machine.network.is_described() {
        "--publish, --publish-all, --ip, --gateway, --dns and --mac are for ./hayate run --from and start --from"
    } else {
        return Ok(());
    };
    Err(Failure::error(USAGE, text))
}

/// Refuses options of a clone that are not those of its snapshot.
pub fn check_clone(run: &Run, snapshot: &str, made_with: &BTreeMap<String, String>) -> Result<()> {
    if !run.volume.is_empty() {
        return Err(Failure::error(USAGE, NO_VOLUMES));
    }
    if run.given.contains("boot") {
        let text = "a machine that begins at a snapshot does not boot: leave --boot or --from out";
        return Err(Failure::error(USAGE, text));
    }
    let mine = defining(run);
    for given in &run.given {
        let given = given.as_str();
        if OF_CLONES.contains(&given) || OF_START.contains(&given) {
            continue;
        }
        // A field of a group, which is no option.
        let Some((option, value)) = mine.get(given) else { continue };
        let known = made_with.get(given).map(String::as_str).unwrap_or_default();
        if value != known && !(given == "accel" && run.machine.accel == Accel::Auto) {
            let known = if known.is_empty() { "none" } else { known };
            let text = format!(
                "the snapshot {snapshot} was made with another {option} ({known}): leave {option} \
                 out, or make another snapshot"
            );
            return Err(Failure::error(USAGE, text));
        }
    }
    Ok(())
}

/// Chooses the network of a clone: the snapshot has a device or none.
pub fn choose_network(machine: &mut Machine, snapshot: &str, has_device: bool) -> Result<()> {
    let network = &mut machine.network;
    if !network.is_chosen() {
        network.choose(if has_device { Net::User } else { Net::None });
    }
    let text = match (network.net(), has_device) {
        (Net::None, false)
        | (Net::User | Net::Passt | Net::Listen(_) | Net::Connect(_) | Net::Multicast(_), true) => {
            return Ok(());
        }
        (Net::None, true) => {
            format!("the snapshot {snapshot} has a network device: leave --net none out")
        }
        (_, false) => format!("the snapshot {snapshot} was made with --net none: leave --net out"),
        (Net::Tap(_) | Net::OwnTap(_) | Net::Pair, true) => {
            "--net tap and --net pair need a machine that boots: \
                                            QEMU's device has other features there"
                .to_string()
        }
    };
    Err(Failure::error(USAGE, text))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Words {
        #[command(flatten)]
        run: Run,
    }

    /// The options of a command line; `given`: the names of those that count as given.
    pub fn run(words: &[&str], given: &[&str]) -> Run {
        let mut run = Words::try_parse_from(words).unwrap().run;
        run.given = given.iter().map(ToString::to_string).collect();
        run
    }

    fn made(words: &[&str]) -> BTreeMap<String, String> {
        let all = defining(&run(words, &[])).into_iter();
        all.map(|(field, (_, value))| (field.to_string(), value)).collect()
    }

    #[test]
    fn options_that_differ_are_named() {
        let made = made(&["--memory=512M", "--accel=tcg"]);
        let told = |words: &[&str], given: &[&str]| {
            check_clone(&run(words, given), "s", &made).map_err(|error| error.to_string())
        };
        assert_eq!(told(&["--memory=512"], &["memory"]), Ok(()));
        assert_eq!(told(&["--accel=auto"], &["accel"]), Ok(()));
        // The usual value, not given.
        assert_eq!(told(&["--env=A=1"], &["env"]), Ok(()));
        assert!(told(&["--boot"], &["boot"]).unwrap_err().contains("leave --boot or --from out"));
        for (words, field, option) in [
            ("--memory=1G", "memory", "--memory (512M)"),
            ("--cpus=2", "cpus", "--cpus (1)"),
            ("--machine=microvm", "board", "--machine (q35)"),
            ("--cpu=Haswell", "processor", "--cpu (max)"),
            ("--accel=kvm", "accel", "--accel (tcg)"),
            ("--rootfs=/tmp", "rootfs", "--rootfs (none)"),
            ("--recycle=none", "recycle", "--recycle (full)"),
        ] {
            let told = told(&[words], &[field]).unwrap_err();
            assert!(told.contains(&format!("another {option}")), "{told}");
        }
    }

    #[test]
    fn every_option_is_the_machines_or_the_clones() {
        use clap::CommandFactory;
        let mine = defining(&run(&[], &[]));
        for argument in Words::command().get_arguments() {
            let id = argument.get_id().as_str();
            assert!(OF_CLONES.contains(&id) != mine.contains_key(id) || id == "help", "{id}");
        }
    }

    #[test]
    fn no_snapshot_is_made_with_these() {
        let wrong = [
            "--tty",
            "--deterministic",
            "--linux",
            "--nvm=64M",
            "--off2f",
            "--volume=/tmp:/tmp",
            "--mode=supervisor",
            "--publish=80:80",
            "--net=tap:t0",
            "--ip=10.0.0.1/8",
            "--qemu=-device,virtio-balloon",
            "--log=-",
            "--from=s",
            "--vmm=firecracker",
        ];
        for words in wrong {
            assert!(check_make(&run(&[words], &[])).is_err(), "{words}");
        }
        assert!(check_make(&run(&["--net=user", "--cpus=2"], &[])).is_ok());
    }

    #[test]
    fn a_clone_has_a_device_if_its_snapshot_has_one() {
        let chosen = |words: &[&str], has_device| {
            let mut machine = run(words, &[]).machine;
            choose_network(&mut machine, "s", has_device)
                .ok()
                .map(|()| machine.network.net().clone())
        };
        assert_eq!(chosen(&[], true), Some(Net::User));
        assert_eq!(chosen(&[], false), Some(Net::None));
        assert!(chosen(&["--net=socket:mcast=230.0.0.1:9000"], true).is_some());
        assert_eq!(chosen(&["--net=none"], true), None);
        assert_eq!(chosen(&["--net=user"], false), None);
        assert_eq!(chosen(&["--net=tap:t0"], true), None);
    }
}
