//! The network of a machine: QEMU's options for it, its part of the guest's job, and the checks
//! before a machine starts.
//!
//! The guest's addresses, routers and name servers come with the job, so that its start waits for
//! no answer.
//!
//! Road not taken: a taken port or a missing interface as QEMU reports it. It does so in the middle
//! of its start, in words that name none of this command's options.

use crate::arguments::network::{Mac, Net, Network, Published};
use crate::arguments::{Board, Machine};
use crate::failure::{Failure, USAGE};
use crate::guest::{inquiry, qemu};
use crate::tool;
use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The address that QEMU's own network gives its guest, and those of its router and its name server
/// (QEMU's `-netdev user`: the defaults of `net`, `dhcpstart`, `host`, `dns`).
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 3);
/// The same of IPv6, where the network is `fec0::/64` (`ipv6-net`) and the router's link-local
/// address `fe80::2`.
const GUEST6: Ipv6Addr = Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0x15);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

/// A tap interface's flag that it has several queues (`IFF_MULTI_QUEUE`), and those of its kind.
const MULTI_QUEUE: u32 = 0x100;
const TAP: u32 = 2;

/// The network device of a machine.
pub struct Link {
    network: Network,
    mac: Option<Mac>,
    /// Pairs of queues.
    queues: u8,
}

/// Chooses the network of a machine of `run` for which no option names one: QEMU's own, if it has
/// it. A deterministic machine gets none, because packets come when the host brings them, and so
/// does one for which the user gives QEMU a network. An option that is about the device asks for it
/// in every case.
///
/// Errors: the program is missing or cannot be examined.
pub fn choose(options: &mut Machine) -> Result<()> {
    let network = &options.network;
    if network.is_chosen() {
        return Ok(());
    }
    let own = |word: &OsString| {
        let word = word.to_string_lossy();
        ["-netdev", "-nic", "-net"].contains(&word.replacen("--", "-", 1).as_str())
    };
    let asked = network.is_described();
    let open = !options.deterministic && !options.qemu.iter().any(own);
    if asked || open && inquiry::has_own_network(&qemu::program()?)? {
        options.network.choose(Net::User);
    }
    Ok(())
}

impl Link {
    /// Returns the device that the options ask for, if any, after looking whether there can be one.
    pub fn requested(options: &Machine) -> Result<Option<Link>> {
        let network = &options.network;
        check(network)?;
        if *network.net() == Net::None {
            return Ok(None);
        }
        let mut queues = 1;
        match network.net() {
            Net::Tap(name) => queues = tap(name, Path::new("/sys/class/net"), options.cpus)?,
            Net::Passt => {
                tool::command("passt").context("--net passt")?;
            }
            Net::Listen(place) => {
                free(place, false).with_context(|| said(place, "--net socket"))?
            }
            _ => {}
        }
        for published in &network.publish {
            let place = SocketAddrV4::new(
                published.address.unwrap_or(Ipv4Addr::UNSPECIFIED),
                published.host,
            );
            free(&place, published.udp).with_context(|| said(&place, "--publish"))?;
        }
        let mac = match (network.mac, network.net()) {
            (Some(mac), _) => Some(mac),
            // QEMU's usual one: nobody else is on that network, and runs are alike.
            (None, Net::User | Net::Pair) => None,
            (None, _) => Some(any_mac()?),
        };
        Ok(Some(Link { network: network.clone(), mac, queues }))
    }

    /// The network's part of the job.
    pub fn configuration(&self) -> hayate_job::Network {
        let network = &self.network;
        let dhcp = network.has_dhcp();
        // passt sends frames to no address at all until the guest has sent one.
        let speaks_first = *network.net() == Net::Passt && !dhcp;
        let mut told = hayate_job::Network { dhcp, speaks_first, ..Default::default() };
        let is_known = matches!(network.net(), Net::User | Net::Passt);
        if is_known && !dhcp {
            told.addresses.push((GUEST.into(), 24));
            told.gateways.push(ROUTER.into());
            told.name_servers.push(NAME_SERVER.into());
        }
        if *network.net() == Net::User {
            told.addresses.push((GUEST6.into(), 64));
            told.gateways.push(ROUTER6.into());
        }
        if !is_known {
            told.addresses = network.addresses().map(|ip| (ip.0, ip.1)).collect();
            told.gateways = network.gateway.clone();
        }
        if !network.dns.is_empty() {
            told.name_servers = network.dns.clone();
            told.own_name_servers = true;
        }
        told
    }

    /// Adds QEMU's options. `first` is the number of the descriptor that follows `sockets` in QEMU.
    /// Returns the program that the network needs beside QEMU, which runs already.
    pub fn add(
        &self,
        command: &mut Command,
        board: Board,
        events: &str,
        first: i32,
        sockets: &mut Vec<OwnedFd>,
    ) -> Result<Option<Helper>> {
        let mut helper = None;
        let backend = match self.network.net() {
            Net::None => return Ok(None),
            Net::User => format!("user,id=net{}", forwards(&self.network.publish)),
            Net::Tap(name) => {
                let queues = if self.queues > 1 {
                    format!(",queues={}", self.queues)
                } else {
                    String::new()
                };
                format!("tap,id=net,ifname={name},script=no,downscript=no{queues}")
            }
            Net::OwnTap(name) => format!("tap,id=net,ifname={name},script=no,downscript=no"),
            Net::Listen(place) => format!("socket,id=net,listen={place}"),
            Net::Connect(place) => format!("socket,id=net,connect={place}"),
            Net::Multicast(place) => format!("socket,id=net,mcast={place}"),
            Net::Pair => {
                self.add_pair(command, board, events);
                return Ok(None);
            }
            Net::Passt => {
                let (ours, theirs) = UnixStream::pair().context("cannot make a socket pair")?;
                helper = Some(passt(&self.network.publish, theirs)?);
                let descriptor = first + sockets.len() as i32;
                sockets.push(ours.into());
                format!("socket,id=net,fd={descriptor}")
            }
        };
        command.args(["-netdev", &backend]);
        command.args(["-device", &self.device(board, events)]);
        Ok(helper)
    }

    /// Adds two devices, joined by a hub of QEMU's. What one sends the other has a nanosecond of
    /// the guest's time later, in the thread that executes the guest. (Otherwise another thread of
    /// QEMU passes it on, when the host gives that a processor.)
    fn add_pair(&self, command: &mut Command, board: Board, events: &str) {
        let first = format!("{},tx=timer,x-txtimer=1", self.device(board, events));
        let mut second = Link { mac: None, network: self.network.clone(), queues: self.queues }
            .device(board, events);
        second = format!("{second},tx=timer,x-txtimer=1").replace("netdev=net", "netdev=net1");
        for (name, device) in [("net", first), ("net1", second)] {
            command.args(["-netdev", &format!("hubport,id={name},hubid=0")]);
            command.args(["-device", &device]);
        }
    }

    fn device(&self, board: Board, events: &str) -> String {
        let mac = self.mac.map(|mac| format!(",mac={mac}")).unwrap_or_default();
        match board {
            // Its boot program is for firmware that starts from a network.
            Board::Q35 => {
                let queues = match self.queues {
                    1 => String::new(),
                    // One interrupt for each queue, one for commands, one for changes.
                    several => format!(",mq=on,vectors={}", 2 * u32::from(several) + 2),
                };
                format!("virtio-net-pci,netdev=net,romfile={mac}{queues}{events}")
            }
            Board::Microvm => format!("virtio-net-device,netdev=net{mac}"),
        }
    }
}

/// Refuses options that do not go together.
fn check(network: &Network) -> Result<()> {
    let forwards = matches!(network.net(), Net::User | Net::Passt);
    let other =
        matches!(network.net(), Net::Tap(_) | Net::Listen(_) | Net::Connect(_) | Net::Multicast(_));
    let reaches =
        |gateway: &IpAddr| network.addresses().any(|ip| ip.0.is_ipv4() == gateway.is_ipv4());
    let text = if !network.publish.is_empty() && !forwards {
        "--publish goes with --net user or --net passt"
    } else if network.addresses().next().is_some() && !other {
        "--ip ADDR/PREFIX goes with --net tap or --net socket; the other networks have addresses of \
         their own"
    } else if network.has_dhcp() && *network.net() == Net::None {
        "--ip dhcp needs a network: say --net user"
    } else if !network.gateway.iter().all(reaches) {
        "--gateway needs an --ip of the same kind"
    } else if *network.net() == Net::None && (!network.dns.is_empty() || network.mac.is_some()) {
        "--dns and --mac need a network: say --net user"
    } else if twice(&network.publish) {
        "two --publish name the same port of the host"
    } else {
        return Ok(());
    };
    Err(Failure::error(USAGE, text))
}

fn twice(published: &[Published]) -> bool {
    published.iter().enumerate().any(|(index, one)| {
        published[..index].iter().any(|other| {
            let same =
                one.address.is_none() || other.address.is_none() || one.address == other.address;
            same && (one.host, one.udp) == (other.host, other.udp)
        })
    })
}

/// `,hostfwd=tcp::8080-:80` for each port.
fn forwards(published: &[Published]) -> String {
    let one = |published: &Published| {
        let kind = if published.udp { "udp" } else { "tcp" };
        let address = published.address.map(|address| address.to_string()).unwrap_or_default();
        format!(",hostfwd={kind}:{address}:{}-:{}", published.host, published.guest)
    };
    published.iter().map(one).collect()
}

/// Checks that a port can be taken, by taking it for a moment.
fn free(place: &SocketAddrV4, udp: bool) -> std::io::Result<()> {
    if udp { UdpSocket::bind(place).map(drop) } else { TcpListener::bind(place).map(drop) }.map_err(
        |error| match error.kind() {
            ErrorKind::AddrInUse => std::io::Error::new(error.kind(), "another program has it"),
            ErrorKind::PermissionDenied => {
                std::io::Error::new(error.kind(), "only root may use ports below 1024")
            }
            ErrorKind::AddrNotAvailable => {
                std::io::Error::new(error.kind(), "this host has no such address")
            }
            _ => error,
        },
    )
}

fn said(place: &SocketAddrV4, option: &str) -> String {
    format!("{option}: cannot use port {} of {}", place.port(), place.ip())
}

/// Checks that there is a tap interface of this name; returns with how many pairs of queues a
/// machine of so many processors uses it.
fn tap(name: &str, interfaces: &Path, cpus: u8) -> Result<u8> {
    let folder = interfaces.join(name);
    if !folder.exists() {
        bail!(
            "--net tap:{name}: the host has no interface {name}; make one: \
               ip tuntap add dev {name} mode tap user \"$USER\"; ip link set {name} up"
        );
    }
    let flags = std::fs::read_to_string(folder.join("tun_flags")).ok();
    let flags =
        flags.and_then(|text| u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok());
    match flags {
        // QEMU opens an interface with several queues only for at least two.
        Some(flags) if flags & TAP != 0 && flags & MULTI_QUEUE != 0 => Ok(cpus.max(2)),
        Some(flags) if flags & TAP != 0 => Ok(1),
        _ => bail!("--net tap:{name}: {name} is not a tap interface"),
    }
}

/// Returns an address that no other machine is likely to have: locally administered, by chance.
pub fn any_mac() -> Result<Mac> {
    let mut bytes = [0; 6];
    let mut random = File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    random.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    bytes[0] = bytes[0] & !1 | 2;
    Ok(Mac(bytes))
}

/// A program that runs beside QEMU, as long as this exists.
pub struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts passt with one end of a socket pair. It gives the guest the addresses of QEMU's network,
/// so that the guest need not ask for them.
fn passt(published: &[Published], socket: UnixStream) -> Result<Helper> {
    const DESCRIPTOR: i32 = 3;
    let passt = tool::command("passt")?;
    let mut command = tool::command("setpriv")?;
    command.args(["--pdeathsig", "KILL", "--"]).arg(passt.get_program());
    command.args(passt_arguments(published, DESCRIPTOR));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mapping = FdMapping { parent_fd: socket.into(), child_fd: DESCRIPTOR };
    command.fd_mappings(vec![mapping]).context("cannot hand a descriptor to passt")?;
    Ok(Helper(command.spawn().context("cannot start passt")?))
}

fn passt_arguments(published: &[Published], descriptor: i32) -> Vec<String> {
    let mut words: Vec<String> =
        ["--foreground", "--quiet", "--ipv4-only"].map(String::from).into();
    let mut option = |name: &str, value: String| words.extend([name.to_string(), value]);
    option("--fd", descriptor.to_string());
    option("--address", GUEST.to_string());
    option("--netmask", "24".into());
    option("--gateway", ROUTER.to_string());
    option("--dns-forward", NAME_SERVER.to_string());
    for published in published {
        let address = published.address.map(|address| format!("{address}/")).unwrap_or_default();
        let name = if published.udp { "--udp-ports" } else { "--tcp-ports" };
        option(name, format!("{address}{}:{}", published.host, published.guest));
    }
    words
}

#[cfg(test)]
mod tests;
