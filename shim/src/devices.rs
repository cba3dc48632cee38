//! The devices of a specification: nodes that are made in the container, and rules about which
//! devices it may use.

use anyhow::{Context, Result, bail, ensure};
use hayate_container_plan::device::{Kind, MAKE, Node, READ, Rule, WRITE};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceCgroup, LinuxDeviceType};
use std::os::unix::ffi::OsStrExt;

/// Major numbers from here on are given out as drivers come, and so mean another device in a
/// machine (Documentation/admin-guide/devices.txt).
const FIRST_DYNAMIC: u32 = 234;
/// The same of minor numbers of the major number 10: those that are registered.
const MISC: u32 = 10;
const REGISTERED: std::ops::Range<u32> = 128..255;

/// What each container may use, whatever its rules say, as with runc: it makes any node, and uses
/// the default devices and terminals.
const ALWAYS: [Rule; 9] = [
    Rule { access: MAKE, ..Rule::ALL },
    character(1, Some(3)),
    character(1, Some(5)),
    character(1, Some(7)),
    character(1, Some(8)),
    character(1, Some(9)),
    character(5, Some(0)),
    character(5, Some(2)),
    character(136, None),
];

/// A rule that allows all of a character device.
const fn character(major: u32, minor: Option<u32>) -> Rule {
    let (kind, major) = (Some(Kind::Character), Some(major));
    Rule { kind, major, minor, ..Rule::ALL }
}

/// Reads a node.
///
/// # Errors
/// It is of no device that a machine could have.
pub fn node(device: &LinuxDevice) -> Result<Node> {
    let path = device.path();
    let shown = path.display();
    ensure!(path.is_absolute(), "{shown} is no path of a device");
    let kind = match device.typ() {
        LinuxDeviceType::C | LinuxDeviceType::U => Kind::Character,
        LinuxDeviceType::B => Kind::Block,
        LinuxDeviceType::P | LinuxDeviceType::A => bail!("{shown} is no device"),
    };
    let number = |number: i64| {
        let number = u32::try_from(number).ok().filter(|&number| number < 1 << 20);
        number.with_context(|| format!("{shown}: {} is no number", device.major()))
    };
    let (major, minor) = (number(device.major())?, number(device.minor())?);
    let moves = major >= FIRST_DYNAMIC || major == MISC && !REGISTERED.contains(&minor);
    ensure!(
        !moves,
        "the device {shown} is asked for, and a machine has no device of the host; its number, \
         {major}:{minor}, is another one's there"
    );
    Ok(Node {
        path: path.as_os_str().as_bytes().to_vec(),
        kind,
        major,
        minor,
        mode: device.file_mode().unwrap_or(0o666),
        user: device.uid().unwrap_or_default(),
        group: device.gid().unwrap_or_default(),
    })
}

/// Reads rules; [`ALWAYS`] comes behind them.
pub fn rules(list: &[LinuxDeviceCgroup]) -> Result<Vec<Rule>> {
    let mut rules = list.iter().map(rule).collect::<Result<Vec<_>>>()?;
    rules.extend(ALWAYS);
    Ok(rules)
}

fn rule(wanted: &LinuxDeviceCgroup) -> Result<Rule> {
    let number = |number: Option<i64>| match number {
        None | Some(-1) => Ok(None),
        Some(number) => {
            let found = u32::try_from(number).ok().filter(|&number| number < 1 << 31);
            found.map(Some).with_context(|| format!("a rule about devices has the number {number}"))
        }
    };
    let kind = match wanted.typ() {
        None | Some(LinuxDeviceType::A) => None,
        Some(LinuxDeviceType::B) => Some(Kind::Block),
        Some(LinuxDeviceType::C | LinuxDeviceType::U) => Some(Kind::Character),
        Some(LinuxDeviceType::P) => bail!("a rule is about FIFOs, which are no devices"),
    };
    let mut access = 0;
    for letter in wanted.access().as_deref().unwrap_or("rwm").chars() {
        access |= match letter {
            'r' => READ,
            'w' => WRITE,
            'm' => MAKE,
            _ => bail!("a rule about devices has the right {letter:?}"),
        };
    }
    let (major, minor) = (number(wanted.major())?, number(wanted.minor())?);
    Ok(Rule { allow: wanted.allow(), kind, major, minor, access })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_device_of_every_machine_has_a_node() {
        let wanted = |device: Value| node(&serde_json::from_value(device).unwrap());
        let zero = json!({ "path": "/dev/z", "type": "c", "major": 1, "minor": 5, "gid": 7 });
        let found = wanted(zero).unwrap();
        assert_eq!(
            (&found.path[..], found.kind, found.mode),
            (&b"/dev/z"[..], Kind::Character, 0o666)
        );
        assert_eq!((found.major, found.minor, found.user, found.group), (1, 5, 0, 7));
        for (kind, path, major, minor) in [
            ("b", "/dev/vda", 254, 0),
            ("c", "/dev/rtc0", 250, 0),
            ("c", "/dev/cpu_dma_latency", 10, 61),
            ("c", "/dev/large", 1_i64 << 40, 0),
            ("c", "/dev/less", -1, 0),
            ("p", "/dev/fifo", 0, 0),
            ("c", "dev/relative", 1, 5),
        ] {
            let device = json!({ "path": path, "type": kind, "major": major, "minor": minor });
            let error = wanted(device).unwrap_err().to_string();
            assert!(error.contains(path), "{path}: {error}");
        }
    }

    #[test]
    fn rules_are_read_and_some_devices_are_always_there() {
        let list: Vec<LinuxDeviceCgroup> = serde_json::from_value(json!([
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw" },
            { "allow": true, "type": "b", "major": -1, "access": "" },
        ]))
        .unwrap();
        let found = rules(&list).unwrap();
        assert_eq!(found[0], Rule { allow: false, ..Rule::ALL });
        let fuse = Rule {
            allow: true,
            kind: Some(Kind::Character),
            major: Some(10),
            minor: Some(229),
            access: READ | WRITE,
        };
        assert_eq!(found[1], fuse);
        let none = Rule { kind: Some(Kind::Block), access: 0, ..Rule::ALL };
        assert_eq!((found[2], found.len()), (none, 3 + ALWAYS.len()));
        for wrong in [
            json!({ "allow": true, "access": "x" }),
            json!({ "allow": true, "type": "p" }),
            json!({ "allow": true, "major": -2 }),
        ] {
            assert!(rules(&[serde_json::from_value(wrong).unwrap()]).is_err());
        }
    }
}
