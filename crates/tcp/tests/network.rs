//! Two ends over a network that loses, duplicates, delays and reorders: every byte arrives once and
//! in order, both ends finish, and none of them ever waits for nothing.

mod common;

use common::{Faults, Network};
use hayate_tcp::{Config, MILLISECOND, SECOND, State};
use proptest::prelude::*;

/// Runs until both ends are over. Returns the simulated time.
/// With `pauses`, programs stop reading now and then.
fn run(network: &mut Network, limit: u64, pauses: bool) -> u64 {
    let mut steps = 0u64;
    loop {
        network.program(0);
        network.program(1);
        let done = |side: usize| network.ends[side].as_ref().is_some_and(|end| end.over);
        if done(0) && done(1) {
            // The rest can still be read.
            for side in 0..2 {
                network.ends[side].as_mut().unwrap().reads = true;
                network.program(side);
            }
            break;
        }
        if pauses {
            for side in 0..2 {
                let pause = network.random.one_in(40);
                let time = network.random.below(3000) as u64 * MILLISECOND;
                if let Some(end) = network.ends[side].as_mut().filter(|end| pause && end.reads) {
                    (end.reads, end.resumes) = (false, network.now + time);
                }
            }
        }
        let due = network.step();
        assert!(due, "nothing is due, nothing is over: {:#?}", state(network));
        steps += 1;
        assert!(steps < limit, "{:#?}", state(network));
    }
    network.now - SECOND
}

fn state(network: &Network) -> Vec<String> {
    network
        .ends
        .iter()
        .flatten()
        .map(|end| format!("given {} got {} {:?}", end.given, end.got, end.connection.info()))
        .collect()
}

fn check(network: &mut Network) {
    let sent: Vec<u64> = network.ends.iter().flatten().map(|end| end.to_send).collect();
    for (side, end) in network.ends.iter_mut().flatten().enumerate() {
        assert_eq!(end.connection.error(), None);
        assert_eq!(end.got, sent[1 - side]);
        assert!(matches!(end.connection.state(), State::Closed | State::TimeWait));
    }
}

#[test]
fn a_clean_path() {
    let mut network = Network::new(1, Faults::default(), Default::default(), [1_000_000, 300_000]);
    let time = run(&mut network, 1_000_000, false);
    check(&mut network);
    assert!(time < 2 * SECOND, "{}", time / MILLISECOND);
}

#[test]
fn a_large_transfer_over_a_lossy_path() {
    let config = Config { segment_limit: 65_000, ..Config::default() };
    // Lossy: near MSS / RTT * 1.22 / sqrt(loss) (Mathis and others, 1997).
    for (loss, least, bytes) in
        [(0, 50_000_000, 256 << 20), (10, 1_400_000, 32 << 20), (50, 400_000, 256 << 20)]
    {
        let faults =
            Faults { loss, delay: 5 * MILLISECOND, rate: 125_000_000, ..Faults::default() };
        let mut network = Network::new(7, faults, [config.clone(), config.clone()], [bytes, 0]);
        let time = run(&mut network, 100_000_000, false);
        check(&mut network);
        let rate = bytes * SECOND / time;
        println!("loss {loss}/1000: {rate} bytes/s, {} segments", network.carried);
        println!("{:?}", network.ends[0].as_ref().unwrap().connection.info());
        assert!(rate > least, "{rate} bytes/s at a loss of {loss}/1000");
    }
}

fn config() -> impl Strategy<Value = Config> {
    (
        any::<(bool, bool, bool, bool, bool)>(),
        prop_oneof![Just(1460u32), Just(48), Just(536), Just(8960), Just(65_495)],
        prop_oneof![Just(0u32), Just(65_000)],
        prop_oneof![Just(2048usize), Just(65_536), Just(8192)],
        prop_oneof![Just(4096usize), Just(65_536)],
    )
        .prop_map(|(flags, mss, segment_limit, receive_limit, send_limit)| Config {
            timestamps: flags.0,
            sack: flags.1,
            window_scaling: flags.2,
            nodelay: flags.3,
            algorithm: if flags.4 {
                hayate_tcp::Algorithm::Reno
            } else {
                hayate_tcp::Algorithm::Cubic
            },
            mss,
            segment_limit,
            receive_limit,
            send_limit,
            ..Config::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn every_byte_arrives_once(
        seed in any::<u64>(),
        configs in [config(), config()],
        bytes in [0u64..200_000, 0u64..200_000],
        chunks in [1usize..20_000, 1usize..20_000],
        loss in 0usize..150,
        duplicates in 0usize..50,
        reorder in 0usize..300,
        jitter in 0u64..100,
        pauses in any::<bool>(),
    ) {
        let mtu = configs.iter().map(|c| c.mss).min().unwrap() + 40;
        let faults = Faults {
            loss, duplicates, reorder, jitter: jitter * MILLISECOND, mtu: mtu.max(100),
            ..Faults::default()
        };
        let mut network = Network::new(seed, faults, configs, bytes);
        network.ends[0].as_mut().unwrap().chunk = chunks[0];
        run(&mut network, 5_000_000, pauses);
        check(&mut network);
    }
}
