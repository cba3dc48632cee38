//! Networks of a machine that are not the usual one: two devices of its own, a tap interface, which
//! root makes, and passt.
//!
//! passt is unpacked from Debian's package, and nothing is installed. A host that does not let
//! these rows have what they need (no root, no `/dev/net/tun`, no name spaces for passt's sandbox)
//! skips them, and says so.

use super::command::Hayate;
use super::report::{Case, Verdict};
use super::{Report, Trial};
use crate::arguments::Test;
use crate::image::default;
use crate::tool;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A check that may find that the host does not let it have what it needs.
type Check = fn(&Hayate) -> Result<Verdict>;

/// Bytes that go each way.
const LENGTH: usize = 64 << 20;
/// The longest wait for a peer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Takes as many bytes as `sys.argv` says from the host and port there, and sends them back.
const MIRROR: &str = "import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 60) as s:
    s.settimeout(120)
    data = s.makefile('rb').read(int(sys.argv[3]))
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    s.recv(1)
print(len(data))";

/// Sends datagrams and a stream by one of two joined devices to the address of the other, and says
/// how long that took.
const ACROSS: &str = r#"import socket, subprocess, threading, time
for at in (0, 1):
    subprocess.run(["ip", "link", "set", f"eth{at}", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"fe80::{at + 1}/64", "dev", f"eth{at}"], check=True)
datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
listener = socket.socket(socket.AF_INET6)
for server in (datagrams, listener):
    server.bind(("fe80::2", 7, 0, socket.if_nametoindex("eth1")))
listener.listen()
def serve():
    for _ in range(20):
        datagrams.sendto(*datagrams.recvfrom(100))
    stream, _ = listener.accept()
    while data := stream.recv(65536):
        stream.sendall(data)
    stream.close()
threading.Thread(target=serve).start()
other = ("fe80::2", 7, 0, socket.if_nametoindex("eth0"))
began = time.monotonic_ns()
asker = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for number in range(20):
    asker.sendto(bytes([number]), other)
    assert asker.recv(2) == bytes([number])
stream = socket.socket(socket.AF_INET6)
stream.connect(other)
data = bytes(range(256)) * 4096
sender = threading.Thread(target=lambda: (stream.sendall(data), stream.shutdown(socket.SHUT_WR)))
sender.start()
back = b""
while part := stream.recv(65536):
    back += part
sender.join()
assert back == data
took = time.monotonic_ns() - began
counts = {line.split(":")[0].strip(): line.split(":")[1].split() for line in open("/proc/net/dev")
          if ":" in line}
assert int(counts["lo"][1]) == 0, counts
assert int(counts["eth1"][1]) > 700 and int(counts["eth0"][1]) > 700, counts
print(took)
"#;

/// Sends a large stream by one of two joined devices to the address of the other, with both ends on
/// one processor, and says how many segments the machine sent, how many of them again, and how many
/// frames its devices dropped.
const LARGE: &str = r#"import os, socket, subprocess
for at in (0, 1):
    subprocess.run(["ip", "link", "set", f"eth{at}", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"fe80::{at + 1}/64", "dev", f"eth{at}", "nodad"],
                   check=True)
length = 48 << 20
listener = socket.socket(socket.AF_INET6)
listener.bind(("fe80::2", 7, 0, socket.if_nametoindex("eth1")))
listener.listen()
if os.fork() == 0:
    stream, _ = listener.accept()
    got = 0
    while data := stream.recv(1 << 18):
        got += len(data)
    stream.sendall(b"%d" % got)
    os._exit(0)
stream = socket.socket(socket.AF_INET6)
stream.connect(("fe80::2", 7, 0, socket.if_nametoindex("eth0")))
data = bytes(1 << 20)
for _ in range(length >> 20):
    stream.sendall(data)
stream.shutdown(socket.SHUT_WR)
assert int(stream.recv(20)) == length
assert os.wait()[1] == 0
tcp = [line.split()[1:] for line in open("/proc/net/snmp") if line.startswith("Tcp:")]
tcp = dict(zip(*tcp))
dropped = 0
for line in open("/proc/net/dev"):
    name, _, counts = line.partition(":")
    if name.strip() in ("eth0", "eth1"):
        counts = [int(count) for count in counts.split()]
        dropped += counts[2] + counts[3] + counts[10] + counts[11]
print(tcp["OutSegs"], tcp["RetransSegs"], dropped)
"#;

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let checks: [(&str, Check); 4] = [
        ("network/two_devices_of_a_machine_count_the_same", pair),
        ("network/a_connection_does_not_fill_the_queues_of_its_device", large),
        ("network/a_tap_interface_and_segments_that_stand_for_several", tap),
        ("network/passt_passes_connections_on", passt),
    ];
    let trial = |(name, check): (&str, Check)| {
        let hayate = Hayate::new(options);
        Trial::new(name, move |_| {
            let (verdict, output) = match check(&hayate) {
                Ok(verdict) => (verdict, String::new()),
                Err(error) => (Verdict::Failed(String::new()), format!("{error:#}")),
            };
            Ok(Report { cases: vec![Case::new("", verdict)], output })
        })
    };
    checks.into_iter().map(trial).collect()
}

/// What one device sends the other has, after equally many instructions in each run.
fn pair(hayate: &Hayate) -> Result<Verdict> {
    default::DEFAULT.get()?;
    let mut taken = Vec::new();
    for _ in 0..2 {
        let mut command =
            hayate.command(&["--deterministic", "--net", "pair"], &["python3", "-c", ACROSS])?;
        // Instructions are counted in software.
        let output = command.env("HAYATE_ACCEL", "tcg").output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
        taken.push(String::from_utf8_lossy(&output.stdout).trim().parse::<u64>()?);
    }
    ensure!(taken[0] == taken[1], "{} and {} instructions", taken[0], taken[1]);
    Ok(Verdict::Passed)
}

/// A stream whose ends share a processor drops no frame in the queues of the machine itself, and
/// few of its segments are sent again (QEMU's hub lets frames overtake others where a receive
/// queue was full).
fn large(hayate: &Hayate) -> Result<Verdict> {
    default::DEFAULT.get()?;
    let mut command =
        hayate.command(&["--deterministic", "--net", "pair"], &["python3", "-c", LARGE])?;
    let output = command.env("HAYATE_ACCEL", "tcg").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    let said = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<u64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [sent, again, dropped] = counts[..] else { bail!("it said {said}") };
    ensure!(dropped == 0, "{dropped} frames of {sent} were dropped");
    ensure!(again * 100 < sent, "{again} segments of {sent} were sent again");
    Ok(Verdict::Passed)
}

/// A tap interface of this host, which goes when this is dropped.
struct Tap {
    name: String,
    address: Ipv4Addr,
    guest: Ipv4Addr,
}

impl Tap {
    /// Makes one with an address of the networks for benchmarks (RFC 2544), by which no host is
    /// reached.
    fn make() -> Result<Tap> {
        let number = std::process::id();
        let [_, _, high, low] = number.to_be_bytes();
        let of = |host| Ipv4Addr::new(198, 18 | (high & 1), low, host);
        let tap = Tap { name: format!("hayate{number}"), address: of(1), guest: of(2) };
        ip(&["tuntap", "add", "dev", &tap.name, "mode", "tap"])?;
        ip(&["address", "add", &format!("{}/24", tap.address), "dev", &tap.name])?;
        ip(&["link", "set", &tap.name, "up"])?;
        Ok(tap)
    }

    /// A count of the interface's, such as `rx_packets`.
    fn count(&self, what: &str) -> Result<usize> {
        let file = format!("/sys/class/net/{}/statistics/{what}", self.name);
        let text = std::fs::read_to_string(&file).with_context(|| format!("no {file}"))?;
        Ok(text.trim().parse()?)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = ip(&["link", "delete", &self.name]);
    }
}

/// Runs ip(8).
pub fn ip(words: &[&str]) -> Result<()> {
    tool::run(tool::command("ip")?.args(words)).map(drop)
}

/// Both sides cut segments only where the link needs it, which a tap interface does not: far fewer
/// packets pass than segments of its MTU, and every byte arrives.
fn tap(hayate: &Hayate) -> Result<Verdict> {
    let lacking = if !rustix::process::geteuid().is_root() {
        "only root makes tap interfaces"
    } else if !Path::new("/dev/net/tun").exists() {
        "there is no /dev/net/tun"
    } else if tool::find("ip").is_none() {
        "ip(8) is not installed"
    } else {
        ""
    };
    if !lacking.is_empty() {
        return Ok(Verdict::Skipped(lacking.into()));
    }
    let tap = match Tap::make() {
        Ok(tap) => tap,
        Err(error) => return Ok(Verdict::Skipped(format!("no tap interface: {error:#}"))),
    };
    default::DEFAULT.get()?;
    let listener = TcpListener::bind((tap.address, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let (net, address) = (format!("tap:{}", tap.name), format!("{}/24", tap.guest));
    let host = tap.address.to_string();
    let length = LENGTH.to_string();
    let program = ["python3", "-c", MIRROR, &host, &port, &length];
    let mut command = hayate.command(&["--net", &net, "--ip", &address], &program)?;
    let machine = command.spawn()?;
    let mirrored = accept(&listener).and_then(mirrored);
    let output = machine.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    mirrored.with_context(|| format!("{}: {said}", output.status))?;
    ensure!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
    // Segments of the usual MTU would be some 46,000 each way.
    let (to_host, to_guest) = (tap.count("rx_packets")?, tap.count("tx_packets")?);
    ensure!(to_host < 20_000, "{to_host} packets came from the guest for {LENGTH} bytes");
    ensure!(to_guest < 20_000, "{to_guest} packets went to the guest for {LENGTH} bytes");
    Ok(Verdict::Passed)
}

/// Waits for a connection.
fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                ensure!(Instant::now() < end, "the guest does not connect");
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends bytes and checks that the same come back.
fn mirrored(mut stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // Each four bytes are others: one that is lost, repeated or exchanged shows.
    let sent: Vec<u8> = (0..LENGTH as u32 / 4).flat_map(u32::to_be_bytes).collect();
    stream.write_all(&sent)?;
    let mut back = Vec::with_capacity(LENGTH);
    stream.read_to_end(&mut back)?;
    stream.shutdown(Shutdown::Both)?;
    ensure!(back.len() == LENGTH, "{} bytes came back of {LENGTH}", back.len());
    ensure!(back == sent, "other bytes came back");
    Ok(())
}

/// A server of the guest is reached by a published port.
fn passt(hayate: &Hayate) -> Result<Verdict> {
    default::DEFAULT.get()?;
    let folder = tempfile::tempdir()?;
    let packages = default::packages(&["passt"])?;
    let named =
        |file: &Path| file.file_name().is_some_and(|name| name.as_bytes().starts_with(b"passt"));
    let (_, package) = packages.iter().find(|(_, file)| named(file)).context("no package")?;
    let mut unpack = tool::command("dpkg-deb")?;
    tool::run(unpack.arg("--extract").arg(package).arg(folder.path()))?;
    let programs = folder.path().join("usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(programs.clone()).chain(std::env::split_paths(&path)),
    )?;
    let port = {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        free.local_addr()?.port()
    };
    let published = format!("127.0.0.1:{port}:80");
    let serve = "import socket
with socket.create_server(('0.0.0.0', 80)) as server:
    print('serving', flush=True)
    while True:
        with server.accept()[0] as s:
            if s.recv(4) == b'ask\\n':
                s.sendall(b'answer\\n')
                break";
    let mut command =
        hayate.command(&["--net", "passt", "-p", &published], &["python3", "-c", serve])?;
    let mut machine = command.env("PATH", path).spawn()?;
    let end = Instant::now() + PATIENCE;
    let answer = loop {
        if let Some(status) = machine.try_wait()? {
            break Err(status);
        }
        match ask(port) {
            Ok(answer) if !answer.is_empty() => break Ok(answer),
            _ => ensure!(Instant::now() < end, "nobody answers at the published port"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let output = machine.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    match answer {
        // It locks itself into name spaces of its own, which a container's host may forbid.
        Err(_) if ["namespace", "unshare", "sandbox"].iter().any(|why| said.contains(why)) => {
            Ok(Verdict::Skipped(format!("passt cannot run here: {}", said.trim())))
        }
        Err(status) => Err(anyhow::anyhow!("the machine ended: {status}; {said}")),
        Ok(answer) => {
            ensure!(answer == b"answer\n", "the answer is {answer:?}");
            // passt says that root should not start it, and that there is no syslog.
            ensure!(output.status.success(), "{}: {said}", output.status);
            Ok(Verdict::Passed)
        }
    }
}

/// Asks at a port of this host. passt takes a connection before the guest listens.
fn ask(port: u16) -> Result<Vec<u8>> {
    let place = (Ipv4Addr::LOCALHOST, port).into();
    let mut stream = TcpStream::connect_timeout(&place, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(b"ask\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}
