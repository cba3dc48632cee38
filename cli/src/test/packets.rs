//! tcpdump of Debian, in the image with servers: what passes an interface is seen as on Linux.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use crate::image::default;
use anyhow::{Context, Result, ensure};

const CHECKS: [(&str, Check); 4] = [
    ("tcpdump_sees_loopback", loopback),
    ("tcpdump_sees_a_device", device),
    ("tcpdump_sees_all_interfaces", all),
    ("routers_are_told_of_groups", groups),
];

/// Starts tcpdump, waits until it listens, calls `act` and waits for it. What it saw is then read
/// from its file.
const WATCH: &str = r#"
watch() {
    tcpdump -n -U -w /tmp/seen "$@" 2>/tmp/said &
    for _ in $(seq 200); do
        busybox grep -q 'listening on' /tmp/said && break
        sleep 0.1
    done
    act
    wait $! || { cat /tmp/said; exit 1; }
    tcpdump -n -t -r /tmp/seen 2>/dev/null
    tail -n 3 /tmp/said
}
"#;

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("network", &CHECKS, options)
}

/// Returns what a script prints that calls `watch`.
fn seen(hayate: &Hayate, script: &str) -> Result<String> {
    let recipe = default::recipe("servers").context("there is no recipe `servers`")?;
    let image = recipe.get()?;
    let image = image.to_str().context("the image's path is no text")?;
    let options = ["--rootfs", image, "--timeout", "300"];
    let output = hayate.run(&options, &["/bin/bash", "-c", &format!("{WATCH}{script}")])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {text}{errors}", output.status);
    Ok(text)
}

/// Whether the lines are there in this order, maybe with others between them.
fn in_order(text: &str, lines: &[&str]) -> Result<()> {
    let mut rest = text.lines();
    for line in lines {
        ensure!(rest.any(|other| other.contains(line)), "`{line}` is missing in:\n{text}");
    }
    Ok(())
}

/// By an expression, which becomes a filter; the ring is of version 3.
fn loopback(hayate: &Hayate) -> Result<()> {
    let act = "act() { echo other >/dev/udp/127.0.0.1/4241; echo hello >/dev/udp/127.0.0.1/4242; }";
    let watch = "watch -i lo -c 1 udp dst port 4242";
    let text = seen(hayate, &format!("{act}\n{watch}"))?;
    in_order(&text, &["127.0.0.1.4242: UDP, length 6", "1 packet captured"])?;
    ensure!(!text.contains("4241"), "the filter let another packet through:\n{text}");
    Ok(())
}

/// In immediate mode, where the ring is of version 2: the question for the router's address, its
/// answer, and an echo both ways.
fn device(hayate: &Hayate) -> Result<()> {
    let act = "act() { ping -c 1 -W 20 10.0.2.2 >/dev/null; }";
    let watch = "watch -i eth0 --immediate-mode -c 4 arp or icmp";
    let text = seen(hayate, &format!("{act}\n{watch}"))?;
    let lines = [
        "ARP, Request who-has 10.0.2.2 tell 10.0.2.15",
        "ARP, Reply 10.0.2.2 is-at",
        "10.0.2.15 > 10.0.2.2: ICMP echo request",
        "10.0.2.2 > 10.0.2.15: ICMP echo reply",
        "4 packets captured",
    ];
    in_order(&text, &lines)
}

/// Without the link's header, from two interfaces at once. libpcap leaves out what leaves by
/// loopback, because it arrives there too.
fn all(hayate: &Hayate) -> Result<()> {
    let act = "act() { ping -c 1 -W 20 10.0.2.2 >/dev/null; ping -c 1 127.0.0.1 >/dev/null; }";
    let watch = "watch -i any -c 4 icmp";
    let text = seen(hayate, &format!("{act}\n{watch}"))?;
    let lines = ["10.0.2.15 > 10.0.2.2", "10.0.2.2 > 10.0.2.15", "127.0.0.1 > 127.0.0.1"];
    in_order(&text, &lines)
}

/// A program joins a group of IPv4 and one of IPv6, which is told twice, and leaves them; a query
/// that the machine hears from itself is answered.
fn groups(hayate: &Hayate) -> Result<()> {
    const PROGRAM: &str = r#"
import socket, struct, time
index = socket.if_nametoindex("eth0")
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
group = socket.inet_aton("239.192.167.1")
request = struct.pack("4s4si", group, bytes(4), index)
four.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
group = socket.inet_pton(socket.AF_INET6, "ff05::a701")
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("I", index))
time.sleep(2)
query = socket.socket(socket.AF_INET, socket.SOCK_RAW, 2)
place = struct.pack("4s4si", bytes(4), bytes(4), index)
query.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, place)
query.sendto(bytes([0x11, 10, 0xec, 0x78, 0, 0, 0, 0, 2, 125, 0, 0]), ("224.0.0.1", 0))
time.sleep(2)
"#;
    let act = format!("act() {{ python3 -c '{PROGRAM}'; }}");
    let watch = "watch -i eth0 -c 9 igmp or ip6 proto 0";
    let text = seen(hayate, &format!("{act}\n{watch}"))?;
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    let v4 = count("10.0.2.15 > 224.0.0.22: igmp v3 report, 1 group record(s)");
    let v6 = count("> ff02::16: HBH ICMP6, multicast listener report v2, 1 group record(s)");
    ensure!(count("224.0.0.1: igmp query") == 1, "the query is missing in:\n{text}");
    // Joined, twice; the answer; left, once before the machine ends.
    ensure!(v4 >= 4 && v6 >= 3, "{v4} and {v6} reports in:\n{text}");
    Ok(())
}
