//! The options of a machine's network.

use clap::Args;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

/// The network of a machine.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Network")]
pub struct Network {
    /// The other end of the machine's network device: user (QEMU's own network), passt, tap:NAME
    /// (an interface of the host), socket:listen=ADDR:PORT, socket:connect=ADDR:PORT or
    /// socket:mcast=ADDR:PORT (other machines), pair (a second device of the machine), or none: no
    /// device [default: user, if this QEMU has it; with --deterministic none]
    #[arg(long, value_name = "KIND", value_parser = net)]
    net: Option<Net>,

    /// Pass connections to a port of the host on to a port of the guest, or with /udp datagrams;
    /// with --net user, the default, or passt (can be repeated)
    #[arg(long, short, value_name = "[ADDR:]HOST:GUEST[/udp]", value_parser = published)]
    pub publish: Vec<Published>,

    /// Publish each port that the container image says it listens on, on a free port of this host,
    /// which is said
    #[arg(long, short = 'P')]
    pub publish_all: bool,

    /// The guest's address, with --net tap or socket (can be repeated), or dhcp: the network gives
    /// one
    #[arg(long, value_name = "ADDR/PREFIX|dhcp", value_parser = ip)]
    pub ip: Vec<Ip>,

    /// The router that the guest uses, with --ip (can be repeated)
    #[arg(long, value_name = "ADDR")]
    pub gateway: Vec<IpAddr>,

    /// A name server for the guest instead of the network's (can be repeated)
    #[arg(long, value_name = "ADDR")]
    pub dns: Vec<IpAddr>,

    /// The Ethernet address of the guest's device [default: with --net user always the same, else
    /// another in each run]
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub mac: Option<Mac>,
}

impl Network {
    /// The network of this kind, with the usual options.
    pub fn of(net: Net) -> Network {
        Network { net: Some(net), ..Network::default() }
    }

    /// Returns the network of the machine. Without `--net` there is none, unless
    /// [`Network::choose`] has chosen.
    pub fn net(&self) -> &Net {
        self.net.as_ref().unwrap_or(&Net::None)
    }

    /// Whether `--net` names a network or none.
    pub fn is_chosen(&self) -> bool {
        self.net.is_some()
    }

    /// The addresses that the user gives the guest.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.ip.iter().filter_map(|ip| match ip {
            Ip::Of(address) => Some(*address),
            Ip::Dhcp => None,
        })
    }

    /// Whether the guest asks the network for an address.
    pub fn has_dhcp(&self) -> bool {
        self.ip.contains(&Ip::Dhcp)
    }

    /// Whether another option says something about the device.
    pub fn is_described(&self) -> bool {
        let lists_are_empty = self.publish.is_empty()
            && self.ip.is_empty()
            && self.gateway.is_empty()
            && self.dns.is_empty();
        !lists_are_empty || self.mac.is_some() || self.publish_all
    }

    /// Sets what `--net` would set.
    pub fn choose(&mut self, net: Net) {
        self.net = Some(net);
    }
}

/// The other end of the machine's network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Net {
    /// There is no device.
    None,
    /// QEMU's own network, behind which it speaks for the guest as an ordinary program.
    User,
    /// passt, a program that does the same.
    Passt,
    /// An interface of the host.
    Tap(String),
    /// An interface of this name that QEMU makes where it runs, and that goes with it. No option
    /// asks for it: the shim of containerd does.
    OwnTap(String),
    /// Another machine, which connects here.
    Listen(SocketAddrV4),
    /// Another machine, which listens there.
    Connect(SocketAddrV4),
    /// All machines with this group.
    Multicast(SocketAddrV4),
    /// A second device of the same machine. Packets wait for nothing outside of it, so this is the
    /// one network in which instructions can be counted.
    Pair,
}

/// A port of the host, and the guest's that answers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The host's address; `None`: all of them.
    pub address: Option<Ipv4Addr>,
    /// The host's port.
    pub host: u16,
    /// The guest's port.
    pub guest: u16,
    /// Whether it is one of UDP.
    pub udp: bool,
}

/// Where an address of the guest comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// The user.
    Of(Address),
    /// The network.
    Dhcp,
}

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub IpAddr, pub u8);

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Parses the value of `--net`.
fn net(text: &str) -> Result<Net, String> {
    if let Some(name) = text.strip_prefix("tap:") {
        return interface(name).map(Net::Tap);
    }
    if let Some(socket) = text.strip_prefix("socket:") {
        return self::socket(socket);
    }
    match text {
        "none" => Ok(Net::None),
        "user" => Ok(Net::User),
        "passt" => Ok(Net::Passt),
        "pair" => Ok(Net::Pair),
        "tap" => Err("name the interface: tap:NAME".into()),
        _ => Err("use user, passt, tap:NAME, socket:listen=ADDR:PORT, socket:connect=ADDR:PORT, \
                  socket:mcast=ADDR:PORT, pair or none"
            .into()),
    }
}

/// Accepts the names that Linux accepts for an interface (`dev_valid_name`).
fn interface(name: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_graphic() && !"/:,".contains(c);
    if name.is_empty() || name.len() > 15 || [".", ".."].contains(&name) || !name.chars().all(good)
    {
        return Err("an interface's name has 1 to 15 characters, without / : ,".into());
    }
    Ok(name.into())
}

fn socket(text: &str) -> Result<Net, String> {
    const FORM: &str = "write it as socket:listen=127.0.0.1:9000, socket:connect=... or \
                        socket:mcast=230.0.0.1:9000";
    let (kind, place) = text.split_once('=').ok_or(FORM)?;
    let place: SocketAddrV4 = place.parse().map_err(|_| FORM)?;
    if place.port() == 0 {
        return Err("port 0 is none".into());
    }
    match kind {
        "listen" => Ok(Net::Listen(place)),
        "connect" => Ok(Net::Connect(place)),
        "mcast" if place.ip().is_multicast() => Ok(Net::Multicast(place)),
        "mcast" => Err("the address of a group is one from 224.0.0.0 to 239.255.255.255".into()),
        _ => Err(FORM.into()),
    }
}

/// Parses `[ADDR:]HOST:GUEST[/udp]`.
fn published(text: &str) -> Result<Published, String> {
    const FORM: &str = "write it as 8080:80, 127.0.0.1:8080:80 or 5353:53/udp";
    let (ports, udp) = match text.split_once('/') {
        None => (text, false),
        Some((ports, "tcp")) => (ports, false),
        Some((ports, "udp")) => (ports, true),
        Some(_) => return Err(FORM.into()),
    };
    let (host, guest) = ports.rsplit_once(':').ok_or(FORM)?;
    let (address, host) = match host.rsplit_once(':') {
        None => (None, host),
        Some((address, host)) => (Some(address.parse().map_err(|_| FORM)?), host),
    };
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port != 0 && !text.starts_with('+') => Ok(port),
        _ => Err(format!("a port is a number from 1 to 65535; {FORM}")),
    };
    Ok(Published { address, host: port(host)?, guest: port(guest)?, udp })
}

/// Parses `ADDR/PREFIX` or `dhcp`.
fn ip(text: &str) -> Result<Ip, String> {
    if text == "dhcp" { Ok(Ip::Dhcp) } else { address(text).map(Ip::Of) }
}

/// Parses `ADDR/PREFIX`.
fn address(text: &str) -> Result<Address, String> {
    const FORM: &str = "write it as 192.168.7.2/24 or fd00::2/64, or say dhcp";
    let (address, prefix) = text.split_once('/').ok_or(FORM)?;
    let address: IpAddr = address.parse().map_err(|_| FORM)?;
    let prefix = prefix.parse::<u8>().map_err(|_| FORM)?;
    if prefix > if address.is_ipv4() { 32 } else { 128 } {
        return Err(FORM.into());
    }
    if address.is_unspecified() || address.is_multicast() || address.is_loopback() {
        return Err("no device can have this address".into());
    }
    Ok(Address(address, prefix))
}

/// Parses `52:54:00:12:34:56`.
fn mac(text: &str) -> Result<Mac, String> {
    const FORM: &str = "write it as 52:54:00:12:34:56";
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2).ok_or(FORM)?;
        if !part.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(FORM.into());
        }
        *byte = u8::from_str_radix(part, 16).map_err(|_| FORM)?;
    }
    if parts.next().is_some() {
        return Err(FORM.into());
    }
    if bytes[0] & 1 != 0 || bytes == [0; 6] {
        return Err("no device can have this address: it is that of a group, or zero".into());
    }
    Ok(Mac(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_network() {
        assert_eq!(net("none"), Ok(Net::None));
        assert_eq!(net("user"), Ok(Net::User));
        assert_eq!(net("pair"), Ok(Net::Pair));
        assert_eq!(net("tap:tap0"), Ok(Net::Tap("tap0".into())));
        let place = "127.0.0.1:9000".parse().unwrap();
        assert_eq!(net("socket:listen=127.0.0.1:9000"), Ok(Net::Listen(place)));
        assert_eq!(net("socket:connect=127.0.0.1:9000"), Ok(Net::Connect(place)));
        let group = "230.0.0.1:9000".parse().unwrap();
        assert_eq!(net("socket:mcast=230.0.0.1:9000"), Ok(Net::Multicast(group)));
        for wrong in [
            "",
            "tap",
            "tap:",
            "tap:a/b",
            "tap:a,script=x",
            "tap:0123456789abcdef",
            "users",
            "socket:",
            "socket:listen",
            "socket:listen=9000",
            "socket:listen=127.0.0.1:0",
            "socket:dial=1.2.3.4:5",
            "socket:mcast=127.0.0.1:9000",
            "socket:listen=127.0.0.1:9000,fd=3",
        ] {
            assert!(net(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports() {
        let tcp = Published { address: None, host: 8080, guest: 80, udp: false };
        assert_eq!(published("8080:80"), Ok(tcp));
        assert_eq!(published("8080:80/tcp"), Ok(tcp));
        assert_eq!(published("8080:80/udp"), Ok(Published { udp: true, ..tcp }));
        let local = Published { address: Some(Ipv4Addr::LOCALHOST), ..tcp };
        assert_eq!(published("127.0.0.1:8080:80"), Ok(local));
        for wrong in [
            "",
            "80",
            "0:80",
            "80:0",
            "80:65536",
            "a:80",
            "80:",
            ":80",
            "+1:80",
            "80:80/sctp",
            "localhost:80:80",
            "1.2.3:80:80",
            "80:80,id=x",
            "1:2:3:4",
        ] {
            assert!(published(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(ip("dhcp"), Ok(Ip::Dhcp));
        assert_eq!(ip("fd00::2/64"), address("fd00::2/64").map(Ip::Of));
        assert!(ip("DHCP").is_err() && ip("auto").is_err());
        assert_eq!(address("10.1.2.3/8"), Ok(Address("10.1.2.3".parse().unwrap(), 8)));
        assert_eq!(address("fd00::2/64"), Ok(Address("fd00::2".parse().unwrap(), 64)));
        for wrong in ["10.1.2.3", "10.1.2.3/33", "::1/128", "fd00::2/129", "0.0.0.0/0", "x/8", "/8"]
        {
            assert!(address(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            mac("52:54:00:12:34:5F").map(|mac| mac.to_string()),
            Ok("52:54:00:12:34:5f".into())
        );
        for wrong in
            ["", "52:54:00:12:34", "52:54:00:12:34:56:78", "5:5:0:1:3:5", "+2:54:00:12:34:56"]
        {
            assert!(mac(wrong).is_err(), "{wrong}");
        }
        assert!(mac("01:00:5e:00:00:01").is_err() && mac("00:00:00:00:00:00").is_err());
    }
}
