//! The network of a pod: frames pass between the interface of its namespace and its machine.
//!
//! A plugin of CNI, or a hook, puts an interface into the pod's network namespace, with addresses
//! and routes, and expects the programs that run there to answer at it. QEMU, which runs there, has
//! a tap interface; with [`join`] the kernel of the host passes every frame of the one to the other
//! (tc-mirred(8)), and the guest's own interface gets the hardware address, the addresses and the
//! routes. So programs are reached, and reach out, as in a container of `runc`, and nothing on
//! the host copies what they send.
//!
//! The interface may come before the machine (Kubernetes), or between `create` and `start` (hooks,
//! `ctr run --cni`): therefore each start of a container looks for it until there is one.
//!
//! The programs `ip` and `tc` of iproute2 do the work: every host of containers has them, and they
//! say in plain words why something cannot be done.
//!
//! Roads not taken: a bridge between the two, which takes the addresses off the interface, where
//! CNI looks for them (CHECK); passt, which ends every connection on the host, and makes it anew.

use crate::machine::LIBRARIES;
use anyhow::{Context, Result, bail, ensure};
use hayate_cli::tool;
use hayate_container_plan::interface::{Interface, Route, everywhere, hardware, prefix};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The machine's interface in the pod's namespace.
pub const TAP: &str = "hayate0";

/// How long QEMU may take on a busy host until its interface is there.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest packet of the machine's interface (Ethernet's).
const MOST_MTU: u32 = 1500;

/// A pod whose machine has joined its network.
pub struct Joined {
    namespace: File,
    /// The name of the pod's interface.
    name: String,
}

/// Joins the machine, whose QEMU is process `pid`, with the interface of its namespace. Returns
/// `None` if that has none with an address.
///
/// # Errors
/// `ip` or `tc` is missing or fails, or says what this does not understand.
pub fn join(pid: u32) -> Result<Option<(Joined, Interface)>> {
    let path = format!("/proc/{pid}/ns/net");
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    let found = within(&namespace, || {
        if !has_others()? {
            return Ok(None);
        }
        let links = with_tap()?;
        let routes =
            [ask(&["-4", "-j", "route", "show"])?, ask(&["-6", "-j", "route", "show"])?].concat();
        let Some((name, interface)) = interface(&links, &routes)? else { return Ok(None) };
        let link = links.iter().find(|link| link["ifname"] == name[..]);
        connect(&name, link.map_or(MOST_MTU, mtu))?;
        Ok(Some((name, interface)))
    })?;
    Ok(found.map(|(name, interface)| (Joined { namespace, name }, interface)))
}

impl Joined {
    /// Gives the interface back to the namespace, which may outlive the machine.
    pub fn leave(&self) {
        let left = within(&self.namespace, || {
            // It may be gone.
            let _ = run("tc", &["qdisc", "del", "dev", &self.name, "ingress"], "");
            Ok(())
        });
        if let Err(error) = left {
            log::warn!("cannot leave the pod's network: {error:#}");
        }
    }
}

/// Whether the calling thread's namespace has an interface that may be the pod's.
fn has_others() -> Result<bool> {
    let path = "/proc/thread-self/net/dev";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(others(&text))
}

/// Whether proc_pid_net(5)'s list of interfaces has others than the loopback's and QEMU's own.
fn others(text: &str) -> bool {
    let mut names = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    names.any(|name| name != "lo" && name != TAP)
}

/// The interfaces of the namespace, when QEMU has made its own there: it was started a moment ago.
fn with_tap() -> Result<Vec<Value>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let links = ask(&["-j", "address", "show"])?;
        if links.iter().any(|link| link["ifname"] == TAP) {
            return Ok(links);
        }
        ensure!(Instant::now() < end, "QEMU has made no interface {TAP}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Does something in a network namespace, in a thread of its own.
fn within<T: Send>(namespace: &File, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let inside = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the network namespace")?;
        act()
    };
    let done = std::thread::scope(|scope| scope.spawn(inside).join());
    done.unwrap_or_else(|_| bail!("the thread has ended"))
}

/// Lets every frame that comes to one of the two leave by the other.
fn connect(name: &str, mtu: u32) -> Result<()> {
    let one_way = |from: &str, to: &str| {
        format!(
            "qdisc add dev {from} ingress\n\
             filter add dev {from} parent ffff: protocol all u32 match u32 0 0 \
             action mirred egress redirect dev {to}\n"
        )
    };
    run("ip", &["link", "set", "dev", TAP, "mtu", &mtu.to_string(), "up"], "")?;
    // One that a machine before has left, whose shim was killed.
    let _ = run("tc", &["qdisc", "del", "dev", name, "ingress"], "");
    run("tc", &["-batch", "-"], &(one_way(name, TAP) + &one_way(TAP, name))).map(drop)
}

/// The list that `ip` prints.
fn ask(words: &[&str]) -> Result<Vec<Value>> {
    let text = run("ip", words, "")?;
    // Without a route it may print nothing at all.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).with_context(|| format!("ip {}", words.join(" ")))
}

/// Runs a program; returns what it prints.
fn run(program: &str, words: &[&str], input: &str) -> Result<String> {
    let shown = || format!("{program} {}", words.join(" "));
    let mut command = tool::command(program)?;
    command
        .args(words)
        .env_remove(LIBRARIES)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().with_context(shown)?;
    if let Some(mut pipe) = child.stdin.take() {
        // It need not read it.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(shown)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", shown(), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Finds the interface by which the namespace is reached, in what `ip` says: that of the route to
/// everywhere, or the first with an address.
fn interface(links: &[Value], routes: &[Value]) -> Result<Option<(String, Interface)>> {
    let word = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    let default = routes.iter().find(|route| route["dst"] == "default");
    let default = default.map(|route| word(route, "dev"));
    let reached = |link: &&Value| {
        link["link_type"] == "ether" && link["ifname"] != TAP && !addresses(link).is_empty()
    };
    let mut reached: Vec<&Value> = links.iter().filter(reached).collect();
    reached.sort_by_key(|link| Some(word(link, "ifname")) != default);
    let Some(link) = reached.first() else { return Ok(None) };
    let name = word(link, "ifname");
    let mut interface = Interface {
        hardware: hardware(&word(link, "address")).map_err(anyhow::Error::msg)?,
        mtu: mtu(link).min(MOST_MTU),
        addresses: addresses(link),
        routes: routes
            .iter()
            .filter(|route| route["dev"] == name[..] && route["protocol"] != "kernel")
            .filter_map(route)
            .collect(),
    };
    // Routers are found by routes to neighbours.
    interface.routes.sort_by_key(|route| route.by.is_some());
    Ok(Some((name, interface)))
}

/// The longest packet of a link.
fn mtu(link: &Value) -> u32 {
    link["mtu"].as_u64().and_then(|mtu| mtu.try_into().ok()).unwrap_or(MOST_MTU)
}

/// The addresses of a link by which others reach it.
fn addresses(link: &Value) -> Vec<(IpAddr, u8)> {
    let infos = link["addr_info"].as_array().map(Vec::as_slice).unwrap_or_default();
    let global = infos.iter().filter(|info| info["scope"] == "global");
    let address = |info: &Value| {
        let length = info["prefixlen"].as_u64()?.try_into().ok()?;
        Some((info["local"].as_str()?.parse().ok()?, length))
    };
    global.filter_map(address).collect()
}

/// A route that the guest can have: one through a router, or to neighbours.
fn route(value: &Value) -> Option<Route> {
    let by: Option<IpAddr> = match &value["gateway"] {
        Value::Null => None,
        gateway => Some(gateway.as_str()?.parse().ok()?),
    };
    let to = match value["dst"].as_str()? {
        "default" => everywhere(by?),
        to => prefix(to).ok()?,
    };
    // Those of one link that every interface has (RFC 4291, 2.5.6 and 2.7).
    let is_own = matches!(to.0, IpAddr::V6(to) if to.is_unicast_link_local() || to.is_multicast());
    (!is_own).then_some(Route { to, by })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn link(name: &str, kind: &str, addresses: &[(&str, u8, &str)]) -> Value {
        let info = |(local, length, scope): &(&str, u8, &str)| json!({ "local": local, "prefixlen": length, "scope": scope });
        let infos: Vec<Value> = addresses.iter().map(info).collect();
        json!({ "ifname": name, "link_type": kind, "mtu": 1400, "address": "02:00:00:00:00:07",
            "addr_info": infos })
    }

    #[test]
    fn a_namespace_of_ones_own_has_no_others() {
        let head = "Inter-|   Receive  |  Transmit\n face |bytes    packets\n";
        let list = |names: &[&str]| {
            let lines = names.iter().map(|name| format!("{name:>6}: 0 0 0 0\n"));
            format!("{head}{}", lines.collect::<String>())
        };
        assert!(!others(&list(&["lo"])) && !others(&list(&["lo", TAP])) && !others(head));
        assert!(others(&list(&["lo", TAP, "eth0"])) && others(&list(&["eth0"])));
    }

    #[test]
    fn the_interface_with_the_default_route_is_found() {
        let links = [
            link("lo", "loopback", &[("127.0.0.1", 8, "host")]),
            link("net1", "ether", &[("10.9.0.2", 24, "global")]),
            link("eth0", "ether", &[("10.1.0.5", 24, "global"), ("fe80::7", 64, "link")]),
            link(TAP, "ether", &[("10.1.0.9", 24, "global")]),
        ];
        let routes = [
            json!({ "dst": "default", "gateway": "10.1.0.1", "dev": "eth0" }),
            json!({ "dst": "10.1.0.0/24", "dev": "eth0", "protocol": "kernel" }),
            json!({ "dst": "10.9.0.0/24", "dev": "net1" }),
            json!({ "dst": "fe80::/64", "dev": "eth0" }),
        ];
        let (name, found) = interface(&links, &routes).unwrap().unwrap();
        assert_eq!((&name[..], found.mtu, found.hardware), ("eth0", 1400, [2, 0, 0, 0, 0, 7]));
        assert_eq!(found.addresses, [("10.1.0.5".parse().unwrap(), 24)]);
        let by = "10.1.0.1".parse().ok();
        assert_eq!(found.routes, [Route { to: prefix("0.0.0.0/0").unwrap(), by }]);
        let (name, found) = interface(&links, &[]).unwrap().unwrap();
        assert_eq!((&name[..], found.routes), ("net1", vec![]));
    }

    #[test]
    fn a_router_that_is_no_neighbour_comes_after_the_route_to_it() {
        let links = [link("eth0", "ether", &[("10.65.0.3", 32, "global")])];
        let routes = [
            json!({ "dst": "default", "gateway": "169.254.1.1", "dev": "eth0" }),
            json!({ "dst": "169.254.1.1", "dev": "eth0", "scope": "link" }),
        ];
        let (_, found) = interface(&links, &routes).unwrap().unwrap();
        let neighbour = Route { to: prefix("169.254.1.1/32").unwrap(), by: None };
        assert_eq!(found.routes[0], neighbour);
        assert_eq!(found.routes[1].by, Some(neighbour.to.0));
    }

    #[test]
    fn a_namespace_without_an_address_has_none() {
        let links = [
            link("lo", "loopback", &[("127.0.0.1", 8, "host")]),
            link("eth0", "ether", &[("fe80::1", 64, "link")]),
            link(TAP, "ether", &[]),
        ];
        assert!(interface(&links, &[]).unwrap().is_none());
        assert!(interface(&[], &[]).unwrap().is_none());
        assert!(interface(&[json!(7)], &[json!("x")]).unwrap().is_none());
    }
}
