//! Shared code of the stress programs: options, a random generator, processes, memory figures.
//!
//! They use few services of the kernel that they test: `fork`, `wait4`, `execve`, signals and
//! files. Each reports its result by its exit status: 0 nothing wrong, 1 a failure, 2 wrong usage.

pub mod balance;
pub mod served;

use std::collections::HashMap;
use std::ffi::CString;
use std::process::exit;
use std::str::FromStr;

/// A 64-bit xorshift* generator (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled"): small, seedable, and the same on every machine.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A generator for a seed; every seed gives a sequence of its own.
    pub fn new(seed: u64) -> Self {
        // SplitMix64 makes similar seeds differ widely; the state must not be zero.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((z ^ (z >> 31)) | 1)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { (self.bits() >> 11) % limit }
    }

    /// True once in `n` on average.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the values, which must not be empty.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// The command line: `--name value`, `--name` for switches, and one plain word at most.
pub struct Options {
    values: HashMap<String, String>,
    usage: &'static str,
    /// The word that is not an option.
    pub plain: Option<String>,
}

impl Options {
    /// Reads the command line; ends with status 2 and the usage when it is wrong.
    pub fn parse(usage: &'static str, with_value: &[&str], switches: &[&str]) -> Self {
        let mut options = Options { values: HashMap::new(), usage, plain: None };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                Some(name) if with_value.contains(&name) => match words.next() {
                    Some(value) => drop(options.values.insert(name.to_string(), value)),
                    None => options.wrong(&format!("--{name} needs a value")),
                },
                Some(name) if switches.contains(&name) => {
                    options.values.insert(name.to_string(), String::new());
                }
                None if options.plain.is_none() => options.plain = Some(word),
                _ => options.wrong(&format!("there is no option {word}")),
            }
        }
        options
    }

    /// A number or other value by name, or its default.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> T {
        match self.values.get(name).map(|text| text.parse()) {
            None => default,
            Some(Ok(value)) => value,
            Some(Err(_)) => self.wrong(&format!("--{name}: this is not a valid value")),
        }
    }

    /// Whether an option or switch was given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Ends with the usage and status 2.
    pub fn wrong(&self, why: &str) -> ! {
        eprintln!("{why}\nusage: {}", self.usage);
        exit(2)
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ended {
    /// `exit` with this status.
    Exited(i32),
    /// Death by this signal.
    Killed(i32),
}

impl Ended {
    fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Ended::Killed(libc::WTERMSIG(status))
        } else {
            Ended::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// Forks; `Ok(0)` in the child. The program must have one thread.
pub fn fork() -> Result<i32, std::io::Error> {
    // SAFETY: no other thread of this program exists, so the child's memory is consistent.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        pid => Ok(pid),
    }
}

/// Waits for a child, restarting after signals; `None` when there is no such child.
pub fn wait(pid: i32) -> Option<(i32, Ended)> {
    wait_with(pid, 0)
}

/// As [`wait`], without blocking.
pub fn wait_now(pid: i32) -> Option<(i32, Ended)> {
    wait_with(pid, libc::WNOHANG)
}

fn wait_with(pid: i32, flags: i32) -> Option<(i32, Ended)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live integer.
        let got = unsafe { libc::waitpid(pid, &mut status, flags | libc::__WALL) };
        if got > 0 {
            return Some((got, Ended::from_status(status)));
        }
        if got == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// Kills a process, or a group if the number is negative; does nothing if it does not exist.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: a plain call with numbers.
    unsafe { libc::kill(pid, signal) };
}

/// Becomes the parent of all descendants whose parents end (`PR_SET_CHILD_SUBREAPER`).
pub fn adopt_orphans() {
    // SAFETY: a plain call with numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Sleeps at least this long.
pub fn pause(microseconds: u64) {
    std::thread::sleep(std::time::Duration::from_micros(microseconds));
}

/// Sets both values of a resource limit as far as that is allowed.
pub fn limit(resource: libc::c_int, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` is a live structure of the right type.
    unsafe { libc::setrlimit(resource as _, &limit) };
}

/// Converts a path for C; paths of these programs contain no zero byte.
pub fn c_path(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

/// Becomes the user nobody, without supplementary groups, permanently. False when that is not
/// allowed.
pub fn become_nobody() -> bool {
    // SAFETY: plain calls with numbers; an empty list of groups may be null.
    unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(65534, 65534, 65534) == 0
            && libc::setresuid(65534, 65534, 65534) == 0
    }
}
