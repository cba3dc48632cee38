//! Attacks on a machine's network, while a server has to go on.
//!
//! Each attack takes what is cheap for the attacker and dear for the machine: SYNs from hosts that
//! do not answer, connections whose peer is gone, windows of a byte or none, fragments of packets
//! that never become whole. A client asks a server all the time, which must answer. The memory that
//! an attack takes must stay within a bound, and come back when the attack is over.
//!
//! The attackers are hosts of a network that is reached by the loopback interface and has no
//! machines: what is sent there is lost. Memory is judged where the kernel tells of it exactly
//! (`/proc/hayate`); on another Linux the figures are only shown.

mod attacks;
mod by_hand;
mod wire;

use std::process::exit;
use std::time::{Duration, Instant};

use hayate_stress::balance::{frames_free, frames_free_at_rest, settle};
use hayate_stress::served::Server;
use hayate_stress::{Options, fork, kill, wait, wait_now};

const USAGE: &str = "siege WHAT [--seconds S] [--count N] [--backlog N] [--window N]
  syn-flood   SYNs from hosts that do not answer, to a listener with --backlog (64)
  half-open   --count (200) connections whose peer is gone, found out by keepalive
  windows     --count (200) connections to a peer whose window is --window (1) bytes
  fragments   packets that never become whole, with fragments that overlap
  --seconds S how long an attack takes (8)
It needs root, and should have a network of its own: `unshare -n`, with lo up, or a machine.
Example: siege syn-flood --seconds 10 --backlog 4096";

/// Without an answer for so long the server does not serve.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is half done has timed out after this.
const SETTLED: Duration = Duration::from_secs(20);
/// Frames that may be in use beyond those before: tables keep the size to which they grew.
const TOLERANCE: u64 = 256;

/// The outcome of a step, or why it failed.
pub type Outcome<T> = Result<T, String>;

/// A process that attacks until it is dropped.
pub struct Attacker(i32);

impl Attacker {
    /// Starts one; `attack` is called again and again.
    pub fn start(mut attack: impl FnMut()) -> Outcome<Attacker> {
        match fork().map_err(|error| format!("fork: {error}"))? {
            0 => loop {
                attack();
            },
            pid => Ok(Attacker(pid)),
        }
    }

    /// Starts one that has work with an end.
    pub fn once(work: impl FnOnce() -> Outcome<()>) -> Outcome<Attacker> {
        match fork().map_err(|error| format!("fork: {error}"))? {
            0 => exit(match work() {
                Ok(()) => 0,
                Err(why) => {
                    println!("siege: {why}");
                    1
                }
            }),
            pid => Ok(Attacker(pid)),
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        wait_now(self.0).is_some()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        kill(self.0, libc::SIGKILL);
        wait(self.0);
    }
}

/// What is looked at while an attack goes on.
pub struct Watch {
    before: Option<u64>,
    asked: u64,
    slowest: Duration,
    most: u64,
}

impl Watch {
    fn new() -> Watch {
        Watch { before: frames_free_at_rest(), asked: 0, slowest: Duration::ZERO, most: 0 }
    }

    /// Asks servers once each, and looks at the memory.
    pub fn look(&mut self, servers: &[&Server]) -> Outcome<()> {
        for server in servers {
            let from = Instant::now();
            server.ask(PATIENCE).map_err(|why| format!("the server does not serve: {why}"))?;
            self.slowest = self.slowest.max(from.elapsed());
            self.asked += 1;
        }
        if let (Some(before), Some(now)) = (self.before, frames_free()) {
            self.most = self.most.max(before.saturating_sub(now));
        }
        Ok(())
    }

    /// Looks for so many seconds.
    pub fn look_for(&mut self, seconds: u64, servers: &[&Server]) -> Outcome<()> {
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            self.look(servers)?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// After the attack: the memory that it took, of which at most `bound` bytes, is free again.
    fn end(self, bound: u64) -> Outcome<()> {
        let (asked, slowest, most) = (self.asked, self.slowest.as_millis(), self.most);
        println!("siege: served {asked} times, the slowest in {slowest} ms");
        println!("siege: at most {most} frames in use besides those before");
        if most > bound / 4096 {
            return Err(format!("{most} frames were in use, more than {} MiB", bound >> 20));
        }
        let (now, took) = settle(self.before, TOLERANCE, SETTLED)?;
        println!("siege: {now:?} frames free after {} s, {:?} before", took.as_secs(), self.before);
        Ok(())
    }
}

fn run(options: &Options) -> Outcome<()> {
    wire::silence().map_err(|error| format!("a route to nowhere: {error}"))?;
    let seconds = options.get("seconds", 8);
    let count = options.get("count", 200);
    let server = Server::start(128)?;
    let mut watch = Watch::new();
    let bound = match options.plain.as_deref() {
        Some("syn-flood") => attacks::syn_flood(options, seconds, &server, &mut watch)?,
        Some("fragments") => attacks::fragments(seconds, &server, &mut watch)?,
        Some("half-open") => by_hand::half_open(count, &server, &mut watch)?,
        Some("windows") => {
            by_hand::windows(count, options.get("window", 1), seconds, &server, &mut watch)?
        }
        _ => options.wrong("WHAT is one of syn-flood, half-open, windows, fragments"),
    };
    watch.end(bound)?;
    server.ask(PATIENCE)
}

fn main() {
    let options = Options::parse(USAGE, &["seconds", "count", "backlog", "window"], &[]);
    match run(&options) {
        Ok(()) => println!("siege: the server was served"),
        Err(why) => {
            println!("siege: FAILED: {why}");
            exit(1)
        }
    }
}
