//! Pods in networks: an interface in the pod's namespace, and a host that reaches the pod by it.

use super::super::command::Hayate;
use super::super::links::ip;
use super::checks::same;
use super::daemon::Daemon;
use super::{PATIENCE, RUNTIME};
use crate::tool;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The port of the pod's server.
const PORT: u16 = 8080;
/// The Ethernet address of the pod's interface.
const HARDWARE: &str = "02:68:79:74:00:01";

/// A pair of interfaces, one of them in a network namespace of its own.
struct Network {
    /// Of the namespace.
    name: String,
    /// The host's interface.
    link: String,
    host: Ipv4Addr,
    pod: Ipv4Addr,
    host6: Ipv6Addr,
    pod6: Ipv6Addr,
}

impl Network {
    /// Addresses for benchmarks (RFC 2544, RFC 5180), by which no host is reached.
    fn new(number: u8) -> Network {
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let four = |host| Ipv4Addr::new(198, 18 | (middle & 1), low, (number << 3) + host);
        let six = |host| {
            let own = u16::from_be_bytes([high, number]);
            Ipv6Addr::new(0x2001, 2, 0, own, u16::from_be_bytes([middle, low]), 0, 0, host)
        };
        Network {
            name: format!("hayate-{}-{number}", std::process::id()),
            link: format!("hy{number}-{}", std::process::id()),
            host: four(1),
            pod: four(2),
            host6: six(1),
            pod6: six(2),
        }
    }

    /// The commands that make the pod's side of the network in a namespace.
    fn commands(&self, namespace: &str) -> Vec<String> {
        let Network { link, host, pod, host6, pod6, .. } = self;
        let inside = format!("-n {namespace}");
        vec![
            format!(
                "link add {link} type veth peer name eth0 address {HARDWARE} netns {namespace}"
            ),
            format!("address add {host}/29 dev {link}"),
            format!("address add {host6}/64 dev {link} nodad"),
            format!("link set {link} up"),
            format!("{inside} address add {pod}/29 dev eth0"),
            format!("{inside} address add {pod6}/64 dev eth0 nodad"),
            format!("{inside} link set eth0 up"),
            format!("{inside} route add default via {host}"),
            format!("{inside} -6 route add default via {host6}"),
        ]
    }

    fn make(&self) -> Result<()> {
        ip(&["netns", "add", &self.name])?;
        for command in self.commands(&self.name) {
            ip(&command.split_whitespace().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Asks the pod's server for a file; it may not listen yet.
    fn fetch(&self, from: IpAddr, path: &str) -> Result<Vec<u8>> {
        let end = Instant::now() + PATIENCE;
        let mut stream = loop {
            match TcpStream::connect_timeout(&(from, PORT).into(), Duration::from_secs(2)) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > end => {
                    return Err(error).with_context(|| format!("nothing answers at {from}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let at = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        Ok(answer.split_off(at.context("no answer of HTTP")? + 4))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = ip(&["link", "delete", &self.link]);
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// A server in a container: makes a file of 3 MB, and serves it.
fn server() -> String {
    format!(
        "mkdir -p /www; cd /www; busybox seq 400000 >numbers; busybox httpd -f -p {PORT} -h /www"
    )
}

/// The file that the server serves.
fn numbers() -> Vec<u8> {
    (1..=400_000).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

/// As in Kubernetes, the interface is there before the machine.
pub fn reached(_: &Hayate) -> Result<()> {
    let network = Network::new(0);
    network.make()?;
    let daemon = Daemon::start()?;
    let namespace = format!("network:/run/netns/{}", network.name);
    daemon.keep(&["--with-ns", &namespace], "web", &server())?;
    for address in [network.pod.into(), network.pod6.into()] {
        let found = network.fetch(address, "/numbers")?;
        ensure!(found == numbers(), "{} bytes of the wrong content from {address}", found.len());
    }
    let known = tool::run(tool::command("ip")?.args(["neighbor", "show", "dev", &network.link]))?;
    let known = String::from_utf8_lossy(&known.stdout).into_owned();
    ensure!(known.contains(HARDWARE), "another Ethernet address answers: {known}");
    // The other way: by the pod's address, as many bytes as one asks for.
    let listener = TcpListener::bind((network.host, 0))?;
    let port = listener.local_addr()?.port();
    let text = format!("busybox nc {} {port} </www/numbers; echo sent", network.host);
    std::thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(|| daemon.exec("web", &text, 0));
        let (mut stream, peer) = listener.accept()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        drop(stream);
        ensure!(bytes == numbers(), "{} bytes of the wrong content", bytes.len());
        ensure!(peer.ip() == IpAddr::from(network.pod), "the pod speaks as {peer}");
        same(&sender.join().map_err(|_| anyhow::anyhow!("a panic"))??, "sent\n")
    })?;
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "web"], 0)?;
    daemon.await_state("web", "STOPPED")?;
    daemon.remove("web")?;
    daemon.is_clean()?;
    // The namespace outlives the pod, and is as it was.
    let left = tool::run(tool::command("tc")?.args(["-n", &network.name, "qdisc", "show"]))?;
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    ensure!(!left.contains("ingress"), "frames are still taken away: {left}");
    Ok(())
}

/// As with nerdctl, a hook puts the interface into the namespace of a machine that runs.
pub fn made_by_a_hook(_: &Hayate) -> Result<()> {
    let network = Network::new(1);
    let daemon = Daemon::start()?;
    let attach = format!("ip netns attach {} $pid", network.name);
    let commands = network.commands(&network.name);
    let mut script = vec!["pid=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/')".to_string(), attach];
    script.extend(commands.into_iter().map(|command| format!("ip {command}")));
    let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    let hook =
        json!([{ "path": "/bin/sh", "args": ["sh", "-ec", script.join("; ")], "env": [path] }]);
    let spec = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": 0, "gid": 0 }, "cwd": "/", "args": ["/bin/sh", "-c", server()],
            "env": ["PATH=/bin"]
        },
        "root": { "path": daemon.made.path("lower") },
        "mounts": [{ "destination": "/www", "type": "tmpfs", "source": "none" }],
        "hooks": { "createRuntime": hook },
        "linux": { "namespaces": [{ "type": "mount" }, { "type": "network" }] },
    });
    let config = daemon.path("config.json");
    std::fs::write(&config, spec.to_string())?;
    let config = config.display().to_string();
    daemon.ctr(&["run", "--detach", "--runtime", RUNTIME, "--config", &config, "web"], 0)?;
    let found = network.fetch(network.pod.into(), "/numbers")?;
    ensure!(found == numbers(), "{} bytes of the wrong content", found.len());
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "web"], 0)?;
    daemon.await_state("web", "STOPPED")?;
    daemon.remove("web")?;
    daemon.is_clean()
}
