use super::*;
use crate::arguments::network::{Address, Ip, Net};
use crate::arguments::{Accel, Monitor, Profile};
use std::fs;

fn link(network: Network, queues: u8) -> Link {
    Link { network, mac: None, queues }
}

/// The words that a machine with this link gets.
fn words(link: &Link, board: Board) -> Vec<String> {
    let mut command = Command::new("qemu");
    let mut sockets = Vec::new();
    assert!(link.add(&mut command, board, "", 3, &mut sockets).unwrap().is_none());
    command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn published(host: u16, guest: u16) -> Published {
    Published { address: None, host, guest, udp: false }
}

#[test]
fn qemus_options() {
    let plain = "virtio-net-pci,netdev=net,romfile=";
    let mut user = Network::of(Net::User);
    assert_eq!(
        words(&link(user.clone(), 1), Board::Q35),
        ["-netdev", "user,id=net", "-device", plain]
    );
    user.publish = vec![
        published(8080, 80),
        Published { address: Some(Ipv4Addr::LOCALHOST), udp: true, ..published(5353, 53) },
    ];
    assert_eq!(
        words(&link(user, 1), Board::Microvm),
        [
            "-netdev",
            "user,id=net,hostfwd=tcp::8080-:80,hostfwd=udp:127.0.0.1:5353-:53",
            "-device",
            "virtio-net-device,netdev=net",
        ]
    );
    let tap = Network::of(Net::Tap("tap0".into()));
    assert_eq!(
        words(&link(tap, 4), Board::Q35),
        [
            "-netdev",
            "tap,id=net,ifname=tap0,script=no,downscript=no,queues=4",
            "-device",
            "virtio-net-pci,netdev=net,romfile=,mq=on,vectors=10",
        ]
    );
    let joined = words(&link(Network::of(Net::Pair), 1), Board::Q35);
    let end = ",tx=timer,x-txtimer=1";
    assert_eq!(
        joined,
        [
            "-netdev",
            "hubport,id=net,hubid=0",
            "-device",
            &format!("{plain}{end}"),
            "-netdev",
            "hubport,id=net1,hubid=0",
            "-device",
            &format!("virtio-net-pci,netdev=net1,romfile={end}"),
        ]
    );
    for (net, backend) in [
        (Net::Listen as fn(SocketAddrV4) -> Net, "socket,id=net,listen=127.0.0.1:9000"),
        (Net::Connect, "socket,id=net,connect=127.0.0.1:9000"),
        (Net::Multicast, "socket,id=net,mcast=127.0.0.1:9000"),
    ] {
        let place = "127.0.0.1:9000".parse().unwrap();
        assert_eq!(words(&link(Network::of(net(place)), 1), Board::Q35)[1], backend);
    }
    let named = Link { mac: Some(Mac([2, 0, 0, 0, 0, 9])), ..link(Network::of(Net::User), 1) };
    assert_eq!(words(&named, Board::Q35)[3], format!("{plain},mac=02:00:00:00:00:09"));
}

#[test]
fn passts_options() {
    let local = Published { address: Some(Ipv4Addr::LOCALHOST), ..published(8080, 80) };
    let udp = Published { udp: true, ..published(53, 53) };
    assert_eq!(
        passt_arguments(&[local, udp], 3).join(" "),
        "--foreground --quiet --ipv4-only --fd 3 --address 10.0.2.15 --netmask 24 --gateway 10.0.2.2 \
         --dns-forward 10.0.2.3 --tcp-ports 127.0.0.1/8080:80 --udp-ports 53:53"
    );
}

#[test]
fn what_the_guest_is_told() {
    let mut user = Network::of(Net::User);
    let told = link(user.clone(), 1).configuration();
    assert_eq!(
        told.addresses,
        [("10.0.2.15".parse().unwrap(), 24), ("fec0::15".parse().unwrap(), 64)]
    );
    assert!(!told.own_name_servers);
    user.dns = vec!["9.9.9.9".parse().unwrap()];
    let told = link(user, 1).configuration();
    assert_eq!(told.name_servers, ["9.9.9.9".parse::<IpAddr>().unwrap()]);
    assert!(told.own_name_servers);
    let mut asks = Network::of(Net::User);
    asks.ip = vec![Ip::Dhcp];
    let told = link(asks, 1).configuration();
    assert!(told.dhcp && told.name_servers.is_empty());
    assert_eq!(told.addresses, [("fec0::15".parse().unwrap(), 64)]);
    let mut tap = Network::of(Net::Tap("tap0".into()));
    assert_eq!(link(tap.clone(), 1).configuration(), hayate_job::Network::default());
    tap.ip = vec![Ip::Of(Address("192.168.7.2".parse().unwrap(), 24))];
    tap.gateway = vec!["192.168.7.1".parse().unwrap()];
    let told = link(tap.clone(), 1).configuration();
    assert_eq!(told.addresses, [("192.168.7.2".parse().unwrap(), 24)]);
    assert_eq!(told.gateways, tap.gateway);
}

#[test]
fn a_machine_for_which_no_option_names_a_network() {
    let with = |deterministic: bool, qemu: &[&str], network: Network| {
        let mut machine = Machine {
            cpus: 1,
            memory: 64,
            accel: Accel::Tcg,
            board: Board::Q35,
            aslr: None,
            deterministic,
            nvm: None,
            network,
            append: Vec::new(),
            qemu: qemu.iter().map(Into::into).collect(),
            kernel: None,
            background: false,
            vmm: Monitor::Qemu,
            linux: false,
            processor: None,
            profile: Profile::Release,
        };
        choose(&mut machine).unwrap();
        machine.network.net().clone()
    };
    let publishes = || {
        let mut network = Network::default();
        network.publish.push(published(8080, 80));
        network
    };
    assert_eq!(with(true, &[], Network::default()), Net::None);
    assert_eq!(with(true, &[], publishes()), Net::User);
    assert_eq!(with(true, &[], Network::of(Net::Passt)), Net::Passt);
    assert_eq!(with(false, &["-nic", "user"], Network::default()), Net::None);
    assert_eq!(with(false, &["--netdev", "user,id=x"], Network::default()), Net::None);
    assert_eq!(with(false, &["-nic", "user"], publishes()), Net::User);
    assert_eq!(with(false, &[], Network::of(Net::None)), Net::None);
}

#[test]
fn options_that_do_not_go_together() {
    let refused = |network: &Network, said: &str| {
        let error = check(network).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let with = |net: Net, change: fn(&mut Network)| {
        let mut network = Network::of(net);
        change(&mut network);
        network
    };
    let publishes = |network: &mut Network| network.publish = vec![published(8080, 80)];
    let addressed =
        |network: &mut Network| network.ip = vec![Ip::Of(Address("10.0.0.1".parse().unwrap(), 8))];
    let routed = |network: &mut Network| network.gateway = vec!["fe80::1".parse().unwrap()];
    refused(&with(Net::None, publishes), "--publish goes with");
    refused(&with(Net::Tap("tap0".into()), publishes), "--publish goes with");
    refused(&with(Net::User, addressed), "--ip ADDR/PREFIX goes with");
    refused(&with(Net::None, addressed), "--ip ADDR/PREFIX goes with");
    refused(&with(Net::None, |network| network.ip = vec![Ip::Dhcp]), "needs a network");
    refused(&with(Net::Tap("tap0".into()), routed), "--gateway needs an --ip");
    refused(&with(Net::None, |network| network.mac = Some(Mac([2; 6]))), "need a network");
    let double = |network: &mut Network| {
        let local = Published { address: Some(Ipv4Addr::LOCALHOST), ..published(8080, 81) };
        network.publish = vec![published(8080, 80), local];
    };
    refused(&with(Net::User, double), "the same port");
    assert!(check(&with(Net::User, publishes)).is_ok());
    assert!(check(&with(Net::Tap("tap0".into()), addressed)).is_ok());
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let std::net::SocketAddr::V4(place) = taken.local_addr().unwrap() else { panic!() };
    assert_eq!(free(&place, false).unwrap_err().to_string(), "another program has it");
    drop(taken);
    assert!(free(&place, false).is_ok());
    // An address of documentation (RFC 5737), which no host has.
    let strange = "192.0.2.1:9000".parse().unwrap();
    assert_eq!(free(&strange, true).unwrap_err().to_string(), "this host has no such address");
}

#[test]
fn an_interface_that_is_no_tap_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let add = |name: &str, flags: Option<&str>| {
        fs::create_dir(folder.path().join(name)).unwrap();
        if let Some(flags) = flags {
            fs::write(folder.path().join(name).join("tun_flags"), flags).unwrap();
        }
    };
    add("eth0", None);
    add("tun0", Some("0x1001\n"));
    add("tap0", Some("0x1002\n"));
    add("tap1", Some("0x1102\n"));
    let tap = |name| tap(name, folder.path(), 4).map_err(|error| error.to_string());
    assert!(
        tap("tap9").unwrap_err().contains("the host has no interface tap9; make one: ip tuntap")
    );
    assert!(tap("eth0").unwrap_err().contains("eth0 is not a tap interface"));
    assert!(tap("tun0").is_err());
    assert_eq!(tap("tap0"), Ok(1));
    assert_eq!(tap("tap1"), Ok(4));
}

#[test]
fn addresses_of_chance_are_locally_administered() {
    let (one, other) = (any_mac().unwrap().0, any_mac().unwrap().0);
    assert_ne!(one, other);
    assert_eq!((one[0] & 3, other[0] & 3), (2, 2));
}
