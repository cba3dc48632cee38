//! Throws random, mutated and cut packets at the kernel's network, while a server has to go on.
//!
//! Throwers send packets on the loopback interface, by packet sockets and by raw sockets that write
//! their own headers: IPv4 and IPv6 with extension headers, ICMP, IGMP, neighbour discovery, TCP
//! and UDP with ports that are open, fragments that overlap, and frames that are no packets. They
//! have connections of their own in every state, see the packets of these, and throw them again,
//! changed. A client asks a server over TCP and UDP meanwhile. The server and its client must not
//! notice; nothing claims to come from the server, because that would be allowed to break them.
//!
//! Memory must stay bounded, and come back when what is half done has timed out (fragments of IPv6:
//! a minute, RFC 8200, 4.5). Memory is judged where the kernel tells of it exactly
//! (`/proc/hayate`); on another Linux the figures are only shown.

mod packets;
mod served;
mod thrower;

use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hayate_stress::balance::{frames_free, frames_free_at_rest, settle};
use hayate_stress::{Ended, Options, fork, kill, pause, wait, wait_now};
use served::Doors;

const USAGE: &str = "packetfuzz [--seed N] [--seconds S] [--procs P]
  --seed N       the seed that all others come from (1)
  --seconds S    how long packets are thrown (20)
  --procs P      throwers at the same time (2)
It needs root, and should have a network of its own: `unshare -n`, with lo up, or a machine.
Example: packetfuzz --seed 7 --seconds 60";

/// Without an answer of the server for so long it is not served.
const SILENCE: Duration = Duration::from_secs(90);
/// What is half done has timed out after this.
const SETTLED: Duration = Duration::from_secs(150);
/// Frames that may be in use beyond those before: tables keep the size to which they grew.
const TOLERANCE: u64 = 512;
/// The most frames that all this may use at once: bounds of sockets, fragments and lists.
const BOUND: u64 = (192 << 20) / 4096;

/// What the processes tell each other.
#[derive(Default)]
pub struct Shared {
    /// Everybody stops.
    pub stop: AtomicBool,
    /// Rounds of the client.
    pub served: AtomicU64,
    /// Packets that the kernel took.
    pub taken: AtomicU64,
    /// Packets that a call refused.
    pub refused: AtomicU64,
}

/// Allocates memory that children share.
fn shared() -> Option<&'static Shared> {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), protection, flags, -1, 0) };
    // SAFETY: zeroes are a valid value, and the mapping is never removed.
    (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast::<Shared>() })
}

/// Starts a process. It ends with status 1 if its work fails.
fn start(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<i32, String> {
    match fork().map_err(|error| format!("fork: {error}"))? {
        0 => exit(match work() {
            Ok(()) => 0,
            Err(why) => {
                println!("packetfuzz: {name}: {why}");
                1
            }
        }),
        pid => Ok(pid),
    }
}

/// Looks after the others while packets are thrown. Returns the most frames that were in use beyond
/// those before.
fn watch(seconds: u64, pids: &[i32], shared: &Shared, before: Option<u64>) -> Result<u64, String> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut moved, mut most) = (0, Instant::now(), 0);
    while Instant::now() < end {
        pause(250_000);
        if let Some((_, ended)) = pids.iter().find_map(|&pid| wait_now(pid)) {
            return Err(format!("a process ended too early: {ended:?}"));
        }
        let now = shared.served.load(Ordering::Relaxed);
        if now != rounds {
            (rounds, moved) = (now, Instant::now());
        } else if moved.elapsed() > SILENCE {
            return Err(format!("the server has not answered for {} s", SILENCE.as_secs()));
        }
        let used = |now| before.unwrap_or(now).saturating_sub(now);
        most = most.max(frames_free().map_or(0, used));
        if most > BOUND {
            return Err(format!("{most} frames are in use"));
        }
    }
    Ok(most)
}

fn run(options: &Options, shared: &'static Shared) -> Result<(), String> {
    let (seed, seconds): (u64, u64) = (options.get("seed", 1), options.get("seconds", 20));
    let before = frames_free_at_rest();
    let doors = Doors::open().map_err(|error| format!("sockets: {error}"))?;
    let server = start("server", || served::serve(&doors))?;
    let client = start("client", || served::use_server(&doors, seed, shared))?;
    let mut pids = vec![client];
    for number in 0..options.get("procs", 2) {
        let seed = seed.wrapping_mul(1000).wrapping_add(number);
        pids.push(start("thrower", || {
            thrower::throw(seed, doors.ports(), shared).map_err(|error| error.to_string())
        })?);
    }
    let result = watch(seconds, &[&pids[..], &[server]].concat(), shared, before);
    shared.stop.store(true, Ordering::Relaxed);
    if result.is_err() {
        pids.iter().for_each(|&pid| kill(pid, libc::SIGKILL));
    }
    let ends: Vec<_> = pids.into_iter().map(wait).collect();
    kill(server, libc::SIGKILL);
    wait(server);
    drop(doors);
    let most = result?;
    if let Some(wrong) = ends.iter().flatten().find(|(_, end)| *end != Ended::Exited(0)) {
        return Err(format!("a process ended with {:?}", wrong.1));
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let (taken, refused, rounds) =
        (count(&shared.taken), count(&shared.refused), count(&shared.served));
    println!("packetfuzz: {taken} packets taken, {refused} refused, server used {rounds} times");
    println!("packetfuzz: at most {most} frames in use besides those before");
    if taken < 100 * seconds {
        return Err("hardly a packet was taken".into());
    }
    let (free, took) = settle(before, TOLERANCE, SETTLED)?;
    if let (Some(free), Some(before)) = (free, before) {
        let seconds = took.as_secs();
        println!("packetfuzz: {free} of {before} frames are free again after {seconds} s");
    }
    Ok(())
}

fn main() {
    let options = Options::parse(USAGE, &["seed", "seconds", "procs"], &[]);
    let Some(shared) = shared() else {
        eprintln!("packetfuzz: shared memory: {}", std::io::Error::last_os_error());
        exit(1);
    };
    match run(&options, shared) {
        Ok(()) => println!("packetfuzz: the server was served"),
        Err(why) => {
            println!("packetfuzz: FAILED: {why}");
            exit(1)
        }
    }
}
