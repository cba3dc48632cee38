//! Servers of Debian in a machine, unmodified: each is asked from inside the machine, and from this
//! host by a published port.
//!
//! They share one machine, because its start and theirs are most of the work. A script in the
//! machine starts them and asks from inside (`servers.sh`); when it says that all serve, this side
//! asks, and closes the script's input.

use super::command::{Check, Hayate, expect, trials_of};
use super::report::{Case, Verdict, judge};
use super::{Report, Trial};
use crate::arguments::Test;
use crate::image::default;
use crate::{compile, tool};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the trial moves.
struct Load {
    /// Length of the large file, in bytes.
    large: usize,
    /// Connections in a row.
    connections: u32,
    /// Memory of the machine, which holds the file twice.
    memory: &'static str,
    /// The machine's time limit in seconds, on a busy host.
    limit: &'static str,
}

const SHORT: Load = Load { large: 64 << 20, connections: 2_000, memory: "1G", limit: "900" };
const LONG: Load = Load { large: 1 << 30, connections: 200_000, memory: "4G", limit: "3600" };
/// The longest wait for a byte from a server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The servers that are asked from the host: the case, the guest's port, a request, and what its
/// answer contains.
const ASKED: [(&str, u16, &str, &str); 9] = [
    ("nginx_from_the_host", 80, GET, "It works"),
    ("apache_prefork_from_the_host", 8081, GET, "It works"),
    ("apache_event_from_the_host", 8082, GET, "It works"),
    ("python_http_server_from_the_host", 8000, GET, "It works"),
    ("python_asyncio_from_the_host", 8001, GET, "asyncio\n"),
    ("go_net_http_from_the_host", 8003, GET, "It works"),
    ("node_http_from_the_host", 8004, GET, "node\n"),
    ("tokio_from_the_host", 8005, GET, "tokio\n"),
    ("redis_from_the_host", 6379, "GET from-the-host\r\nQUIT\r\n", "answered by redis"),
];
const GET: &str = "GET / HTTP/1.0\r\n\r\n";

const CHECKS: [(&str, Check); 8] = [
    ("two_machines_on_one_network", two_machines),
    ("two_machines_over_a_bad_network", two_machines_over_a_bad_network),
    ("nginx_of_the_default_image_serves_the_host", nginx_of_the_default_image),
    ("curl_of_the_default_image_fetches_from_the_host", curl_of_the_default_image),
    ("the_first_packet_is_answered", the_first_packet),
    ("the_network_gives_an_address", the_network_gives_an_address),
    ("names_of_the_host_resolve_in_an_image_without_files", names_without_files),
    ("apache_starts_programs", requests_cost),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let trial = |name: &str, load: &'static Load| {
        let hayate = Hayate::new(options);
        Trial::new(name, move |_| servers(&hayate, load))
    };
    let mut trials = vec![trial("network/servers", &SHORT)];
    const MUCH: &str = "network/servers_with_a_gigabyte_and_200000_connections";
    if options.includes_long(MUCH) {
        trials.push(trial(MUCH, &LONG));
    }
    trials.extend(trials_of("network", &CHECKS, options));
    let hayate = Hayate::new(options);
    let asked = Trial::new("network/apache_is_timed_from_the_host", move |_| timed(&hayate));
    trials.push(asked);
    trials
}

/// The experiment that asks from the host measures; it needs a client, which is no part of Hayate.
fn timed(hayate: &Hayate) -> Result<Report> {
    if Command::new("ab").arg("-V").output().is_err() {
        let why = "no ApacheBench; to have it: apt-get install apache2-utils";
        let skipped = Case::new("", Verdict::Skipped(why.into()));
        return Ok(Report { cases: vec![skipped], output: String::new() });
    }
    let folder = tempfile::tempdir()?;
    let mut command = hayate.any("experiment")?;
    command.args(["web-host", "--only", "full,c-16", "-o"]).arg(folder.path());
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let text = std::fs::read_to_string(folder.path().join("web-host.json"))?;
    let found: serde_json::Value = serde_json::from_str(&text)?;
    let value = &found["lines"][0]["values"][0];
    let (best, worst) = (value["median"].as_f64(), value["high"].as_f64());
    let (best, worst) = (best.context("no value")?, worst.context("no value")?);
    // Nanoseconds: no answer comes in a microsecond.
    ensure!(best > 1e3 && worst >= best, "{best}, {worst}");
    let release = found["systems"][0]["release"].as_str();
    ensure!(release.is_some_and(|release| release.contains("hayate")), "{release:?}");
    Ok(Report { cases: vec![Case::new("", Verdict::Passed)], output: String::new() })
}

/// Starts the servers in a machine, and asks them.
fn servers(hayate: &Hayate, load: &Load) -> Result<Report> {
    let image = default::SERVERS.get()?;
    let image = image.to_string_lossy();
    let large = large(load.large);
    let file = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // QEMU's network shows the host's own address as 10.0.2.2.
    let host = format!("10.0.2.2:{}", file.local_addr()?.port());
    let ports = free_ports(ASKED.len())?;
    let published: Vec<String> = ports
        .iter()
        .zip(ASKED)
        .map(|(port, (_, guest, ..))| format!("127.0.0.1:{port}:{guest}"))
        .collect();
    let folder = tempfile::tempdir()?;
    std::fs::copy(compile::tokio_server()?, folder.path().join("hayate-tokio-server"))?;
    let with = format!("{}:/servers", folder.path().display());
    let mut options = vec!["--timeout", load.limit, "--memory", load.memory];
    options.extend(["--rootfs", &image, "--with", &with]);
    for published in &published {
        options.extend(["--publish", published]);
    }
    let (length, connections) = (load.large.to_string(), load.connections.to_string());
    let script = include_str!("servers.sh");
    let program = ["sh", "-c", script, "servers.sh", &host, &length, &connections];
    let mut command = hayate.command(&options, &program)?;
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let input = child.stdin.take().context("no input")?;
    let mut said = child.stderr.take().context("no error output")?;
    let said = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = said.read_to_string(&mut text);
        text
    });
    let content = large.clone();
    // Left behind if the machine never asks; it ends with this process.
    std::thread::spawn(move || serve_once(&file, &content));
    let mut cases = Vec::new();
    let mut output = String::new();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        if line == "serving" {
            break;
        }
        cases.extend(Case::of_line(&line));
        let _ = writeln!(output, "{line}");
    }
    let mut case = |name: &str, result: Result<()>| {
        let verdict = match result {
            Ok(()) => Verdict::Passed,
            Err(error) => Verdict::Failed(format!("{error:#}")),
        };
        cases.push(Case::new(name, verdict));
    };
    for (port, (name, _, request, answer)) in ports.iter().zip(ASKED) {
        case(name, asked(*port, request, answer));
    }
    case("a_large_file_to_the_host", fetched(ports[0], &large));
    drop(input);
    let status = child.wait()?;
    output.push_str(&said.join().unwrap_or_default());
    let end = if status.success() { Ok(()) } else { Err(format!("the machine ended: {status}")) };
    Ok(Report { cases: judge(cases, end), output })
}

/// The numbers from 1 on, a line each: a lost, repeated or exchanged piece shows.
fn large(length: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(length + 16);
    for number in 1u32.. {
        if content.len() >= length {
            break;
        }
        let _ = writeln!(content, "{number}");
    }
    content.truncate(length);
    content
}

/// Answers one request with this content.
fn serve_once(listener: &TcpListener, content: &[u8]) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    while lines.next().context("no request")??.trim() != "" {}
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", content.len())?;
    Ok(stream.write_all(content)?)
}

/// Returns ports that nobody has. Another program may take one before the machine does; then the
/// machine says so.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let taken: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<std::io::Result<_>>()?;
    Ok(taken
        .iter()
        .map(|one| one.local_addr().map(|place| place.port()))
        .collect::<Result<_, _>>()?)
}

/// Sends a request to a port of this host, and returns the whole answer.
fn answer(port: u16, request: &str) -> Result<Vec<u8>> {
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&place, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Checks that twenty requests are answered with this text.
fn asked(port: u16, request: &str, text: &str) -> Result<()> {
    for number in 0..20 {
        let answer = answer(port, request).with_context(|| format!("request {number}"))?;
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.contains(text), "request {number} is answered with {answer:?}");
    }
    Ok(())
}

/// Checks that the large file comes whole.
fn fetched(port: u16, large: &[u8]) -> Result<()> {
    let answer = answer(port, "GET /big HTTP/1.0\r\n\r\n")?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no header")?;
    let body = &answer[head + 4..];
    ensure!(body.len() == large.len(), "{} bytes instead of {}", body.len(), large.len());
    match body.iter().zip(large).position(|(one, other)| one != other) {
        Some(place) => bail!("byte {place} is another"),
        None => Ok(()),
    }
}

/// Starts two machines on one network: the first serves, the second asks once the first is ready.
/// Checks what the second says.
fn pair(hayate: &Hayate, append: &[&str], serve: &str, ask: &str, answer: &str) -> Result<()> {
    // Made now, so that no message about it is among the machines' own.
    default::DEFAULT.get()?;
    let port = free_ports(1)?[0];
    let listen = format!("socket:listen=127.0.0.1:{port}");
    let connect = format!("socket:connect=127.0.0.1:{port}");
    let first = [&["--net", &listen, "--ip", "10.9.0.1/24"], append].concat();
    let mut server = hayate.command(&first, &["python3", "-c", serve])?.spawn()?;
    let mut ready = [0; 6];
    server.stdout.as_mut().context("no output")?.read_exact(&mut ready)?;
    let second = [&["--net", &connect, "--ip", "10.9.0.2/24"], append].concat();
    let asked = hayate.run(&second, &["python3", "-c", ask])?;
    if asked.stdout.is_empty() {
        let _ = server.kill();
    }
    let served = server.wait_with_output()?;
    expect(&asked, 0, answer, "")?;
    expect(&served, 0, "", "")
}

/// A machine connects to another.
fn two_machines(hayate: &Hayate) -> Result<()> {
    let serve = "import socketserver
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())
server = socketserver.TCPServer(('10.9.0.1', 7), Echo)
print('ready', flush=True)
server.handle_request()";
    let ask = "import socket
with socket.create_connection(('10.9.0.1', 7), 60) as s:
    s.sendall(b'across\\n')
    print(s.makefile().readline(), end='')";
    pair(hayate, &[], serve, ask, "ACROSS\n")
}

/// Datagrams in fragments and a stream pass between two machines whose devices lose, repeat,
/// reorder and damage packets. Nothing befalls what a machine sends to itself.
fn two_machines_over_a_bad_network(hayate: &Hayate) -> Result<()> {
    let faults = "net.fault=on:devices,loss:4,repeat:3,reorder:3,corrupt:3,delay:1ms-3ms";
    let (serve, ask) = (include_str!("bad_network_serve.py"), include_str!("bad_network_ask.py"));
    let answer = "datagrams in fragments\na stream\nloopback\n";
    pair(hayate, &["--append", faults], serve, ask, answer)
}

/// The README's command: no option but the port.
fn nginx_of_the_default_image(hayate: &Hayate) -> Result<()> {
    default::DEFAULT.get()?;
    let port = free_ports(1)?[0];
    let published = format!("127.0.0.1:{port}:80");
    let program = ["nginx", "-g", "daemon off;"];
    let mut machine = hayate.command(&["-p", &published], &program)?.spawn()?;
    let began = Instant::now();
    // QEMU takes a connection before the guest listens, and closes it then.
    while !answer(port, GET).is_ok_and(|answer| answer.ends_with(b"<h1>It works</h1>\n")) {
        ensure!(machine.try_wait()?.is_none(), "the machine ended");
        ensure!(began.elapsed() < PATIENCE, "no answer");
        std::thread::sleep(Duration::from_millis(100));
    }
    asked(port, GET, "It works")?;
    rustix::process::kill_process(Pid::from_child(&machine), rustix::process::Signal::INT)?;
    // It passes the interrupt on, and nginx ends by it.
    expect(&machine.wait_with_output()?, 0, "", "")
}

/// A machine without options fetches from the host, and resolves its own name and the host's.
fn curl_of_the_default_image(hayate: &Hayate) -> Result<()> {
    default::DEFAULT.get()?;
    let file = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // QEMU's network shows the host's own address as 10.0.2.2.
    let url = format!("http://10.0.2.2:{}/", file.local_addr()?.port());
    std::thread::spawn(move || serve_once(&file, b"from the host\n"));
    let script = "curl -sS --max-time 60 \"$0\" && getent hosts localhost hayate";
    let output = hayate.run(&[], &["sh", "-c", script, &url])?;
    let names = "::1             localhost ip6-localhost ip6-loopback\n10.0.2.15       hayate\n";
    expect(&output, 0, &format!("from the host\n{names}"), "")
}

/// An image of one program, without a folder `/etc`.
fn names_without_files(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let busybox = default::packages(&["busybox-static"])?;
    let (_, package) = busybox.first().context("no package")?;
    let mut unpack = tool::command("dpkg-deb")?;
    tool::run(unpack.arg("--extract").arg(package).arg(folder.path()))?;
    let path = folder.path().to_string_lossy().into_owned();
    let script = "busybox ping -c 1 -W 30 localhost >/dev/null && \
                  busybox ping -c 1 -W 30 hayate >/dev/null && echo both";
    for net in ["user", "none"] {
        let options = ["--rootfs", path.as_str(), "--net", net];
        let output = hayate.run(&options, &["/bin/busybox", "sh", "-c", script])?;
        expect(&output, 0, "both\n", "").with_context(|| format!("--net {net}"))?;
    }
    Ok(())
}

/// In the machine's first second, when no host is known: one packet, which is not sent again.
fn the_first_packet(hayate: &Hayate) -> Result<()> {
    default::DEFAULT.get()?;
    let script = "ping -q -c 1 -W 30 10.0.2.2 >/dev/null && echo answered";
    expect(&hayate.run(&[], &["sh", "-c", script])?, 0, "answered\n", "")
}

/// QEMU's network has a server of DHCP.
fn the_network_gives_an_address(hayate: &Hayate) -> Result<()> {
    default::DEFAULT.get()?;
    let script = "ip -4 -brief addr show eth0; ip -4 route show default; cat /etc/resolv.conf";
    let output = hayate.run(&["--ip", "dhcp"], &["sh", "-c", script])?;
    let said: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let wanted = ["eth0 UP 10.0.2.15/24", "default via 10.0.2.2 dev eth0", "nameserver 10.0.2.3"];
    ensure!(said == wanted && output.stderr.is_empty(), "{output:?}");
    Ok(())
}

/// The experiment with a web server measures requests, of two kinds in two systems.
fn requests_cost(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = hayate.any("experiment")?;
    command.args(["tender-web", "--only", "full,none,counter,c-4", "-o"]).arg(folder.path());
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    let text = std::fs::read_to_string(folder.path().join("tender-web.json"))?;
    let found: serde_json::Value = serde_json::from_str(&text)?;
    let value = |line: usize, system: usize| {
        let value = found["lines"][line]["values"][system]["median"].as_f64();
        value.with_context(|| format!("no value: {said}{text}"))
    };
    for system in [0, 1] {
        let (counter, small) = (value(0, system)?, value(1, system)?);
        // A connection alone takes more than this, and Perl many times what the small program does.
        ensure!(small > 20_000.0 && counter > 3.0 * small, "{counter}, {small}");
    }
    let (full, none) = (value(0, 0)?, value(0, 1)?);
    ensure!(full < none, "recycling costs: {full} instead of {none}");
    ensure!(folder.path().join("tender-web.svg").exists(), "no picture");
    Ok(())
}
