//! A finished start as lines of text, and back.
//!
//! A line is a keyword, a space and its values; `start` begins a start and `end` ends it. A reader
//! refuses unknown keywords: kernel and reader are built from one source tree.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::{Account, Began, Fault, Image, StartPart};

/// A finished start, with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The path that was executed.
    pub program: String,
    /// The process.
    pub pid: u32,
    /// Where it began.
    pub began: Began,
    /// What was known of its program's image at its beginning.
    pub image: Image,
    /// Programs that the process executed, one after the other.
    pub executed: u64,
    /// Whether there was a dynamic linker and the program's entry was observed.
    pub linked: bool,
    /// The rate of the clock's counter; under `--deterministic` a tick is an instruction.
    pub hertz: u64,
    /// Processes and threads that were started meanwhile.
    pub started: u64,
    /// Where the time went.
    pub account: Account,
    /// Program records: (reused, made).
    pub records: (u64, u64),
    /// Spaces with their attachments: (reused, made).
    pub spaces: (u64, u64),
    /// Spaces kept at the end.
    pub kept: u64,
    /// Pages of a kept space that were (copied, zeroed, left unchanged).
    pub restored: (u64, u64, u64),
    /// Other pages that exec filled: (copied, zeroed).
    pub filled: (u64, u64),
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = &self.account;
        writeln!(f, "start {}", self.pid)?;
        f.write_str("program ")?;
        put(f, &self.program)?;
        f.write_str("\n")?;
        writeln!(f, "began {}", self.began.key())?;
        writeln!(f, "image {}", self.image)?;
        writeln!(f, "executed {}", self.executed)?;
        writeln!(f, "linked {}", u8::from(self.linked))?;
        writeln!(f, "hertz {}", self.hertz)?;
        writeln!(f, "started {}", self.started)?;
        for &part in StartPart::ALL {
            let (time, entered) = (account.time(part), account.entered(part));
            writeln!(f, "part {} {time} {entered}", part.key())?;
        }
        for &fault in Fault::ALL {
            let (count, time) = account.faults(fault);
            writeln!(f, "fault {} {count} {time}", fault.key())?;
        }
        writeln!(f, "idle {}", account.idle())?;
        writeln!(f, "tracing {}", account.tracing())?;
        writeln!(f, "whole {}", account.whole())?;
        writeln!(f, "records {} {}", self.records.0, self.records.1)?;
        writeln!(f, "spaces {} {}", self.spaces.0, self.spaces.1)?;
        writeln!(f, "kept {}", self.kept)?;
        let (copied, zeroed, left) = self.restored;
        writeln!(f, "restored {copied} {zeroed} {left}")?;
        writeln!(f, "filled {} {}", self.filled.0, self.filled.1)?;
        writeln!(f, "end")
    }
}

/// Writes a text that fits into a line.
pub(crate) fn put(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|c| write!(f, "{}", if c.is_control() { '?' } else { c }))
}

/// The part of a start that was read so far.
struct Reading {
    start: Start,
    times: [u64; StartPart::COUNT],
    entered: [u64; StartPart::COUNT],
    faults: [(u64, u64); Fault::COUNT],
    idle: u64,
    tracing: u64,
    whole: u64,
}

impl Reading {
    fn new(pid: u32) -> Reading {
        let (times, entered, faults) =
            ([0; StartPart::COUNT], [0; StartPart::COUNT], [(0, 0); Fault::COUNT]);
        let start = Start {
            program: String::new(),
            pid,
            began: Began::default(),
            image: Image::default(),
            executed: 0,
            linked: false,
            hertz: 1_000_000_000,
            started: 0,
            account: Account::from_sums(times, entered, faults, 0, 0, 0),
            records: (0, 0),
            spaces: (0, 0),
            kept: 0,
            restored: (0, 0, 0),
            filled: (0, 0),
        };
        Reading { start, times, entered, faults, idle: 0, tracing: 0, whole: 0 }
    }

    /// Adds a line; `None` if it is invalid.
    fn take(&mut self, word: &str, rest: &str) -> Option<()> {
        let mut words = rest.split(' ');
        let start = &mut self.start;
        match word {
            "program" => {
                start.program = rest.into();
                return Some(());
            }
            "image" => {
                let (key, text) = rest.split_once(' ').unwrap_or((rest, ""));
                start.image = Image::from_parts(key, text)?;
                return Some(());
            }
            "began" => start.began = Began::from_key(words.next()?)?,
            "executed" => start.executed = next(&mut words)?,
            "linked" => start.linked = next::<u8>(&mut words)? != 0,
            "hertz" => start.hertz = next(&mut words)?,
            "started" => start.started = next(&mut words)?,
            "part" => {
                let part = StartPart::from_key(words.next()?)?;
                *self.times.get_mut(part as usize)? = next(&mut words)?;
                *self.entered.get_mut(part as usize)? = next(&mut words)?;
            }
            "fault" => {
                let kind = Fault::from_key(words.next()?)?;
                *self.faults.get_mut(kind as usize)? = (next(&mut words)?, next(&mut words)?);
            }
            "idle" => self.idle = next(&mut words)?,
            "tracing" => self.tracing = next(&mut words)?,
            "whole" => self.whole = next(&mut words)?,
            "records" => start.records = (next(&mut words)?, next(&mut words)?),
            "spaces" => start.spaces = (next(&mut words)?, next(&mut words)?),
            "kept" => start.kept = next(&mut words)?,
            "restored" => {
                start.restored = (next(&mut words)?, next(&mut words)?, next(&mut words)?);
            }
            "filled" => start.filled = (next(&mut words)?, next(&mut words)?),
            _ => return None,
        }
        words.next().is_none().then_some(())
    }

    fn finish(self) -> Result<Start, String> {
        let Reading { mut start, times, entered, faults, idle, tracing, whole } = self;
        start.account = Account::from_sums(times, entered, faults, idle, tracing, whole);
        if start.account.is_balanced() {
            Ok(start)
        } else {
            Err(format!("the parts of start {} do not add up to the whole", start.pid))
        }
    }
}

fn next<T: FromStr>(words: &mut core::str::Split<'_, char>) -> Option<T> {
    words.next()?.parse().ok()
}

/// Parses starts.
///
/// # Errors
/// Says which line is wrong, or that the parts of a start do not add up.
pub fn parse(text: &str) -> Result<Vec<Start>, String> {
    let mut starts = Vec::new();
    let mut reading: Option<Reading> = None;
    for line in text.lines() {
        let wrong = || format!("not a line of a start: {line:?}");
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, &mut reading) {
            ("start", None) => reading = Some(Reading::new(rest.parse().map_err(|_| wrong())?)),
            ("end", Some(_)) => starts.extend(reading.take().map(Reading::finish).transpose()?),
            (_, Some(reading)) => reading.take(word, rest).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
    }
    match reading {
        None => Ok(starts),
        Some(_) => Err("the last start has no end".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Moment, Runner};

    fn start() -> Start {
        let mut account = Account::begin(Moment { now: 10, child: 0, parent: 3, idle: 0 });
        account.pass(Moment { now: 110, child: 20, parent: 80, idle: 0 });
        account.enter(StartPart::LinkFaults);
        account.skip(115, Runner::Child);
        account.pass(Moment { now: 200, child: 80, parent: 80, idle: 20 });
        account.fault(Fault::Zeroed, 55);
        Start {
            program: "/bin/a \"b\"".into(),
            pid: 12,
            began: Began::Image,
            image: Image::Taken("openat(/job/main.py)".into()),
            executed: 1,
            linked: true,
            hertz: 999_999_999,
            started: 3,
            account,
            records: (1, 2),
            spaces: (0, 1),
            kept: 1,
            restored: (4, 5, 6),
            filled: (7, 8),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let one = start();
        let read = parse(&format!("{one}{one}")).unwrap();
        assert_eq!(read.len(), 2);
        for again in read {
            assert_eq!(again, Start { account: again.account.clone(), ..one.clone() });
            assert_eq!(again.account.total(), one.account.total());
            assert_eq!(again.account.time(StartPart::LinkFaults), 55);
            assert_eq!(again.account.faults(Fault::Zeroed), (1, 55));
        }
        let odd = Start { program: "/a\nend".into(), ..one };
        assert_eq!(parse(&odd.to_string()).unwrap()[0].program, "/a?end");
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn a_wrong_text_is_refused() {
        let good = start().to_string();
        assert!(parse(&good.replace("part link ", "part sink ")).is_err());
        assert!(parse(&good.replace("restored 4 5 6", "restored 4 5")).is_err());
        assert!(parse(&good.replace("kept 1", "kept 1 1")).is_err());
        assert!(parse(&good.replace("began image", "began elsewhere")).is_err());
        assert!(parse(&good.replace("image taken ", "image given ")).is_err());
        assert!(parse(&good.replace("end", "")).is_err());
        assert!(parse(good.trim_start_matches("start 12\n")).is_err());
        assert!(parse("start twelve\nend\n").is_err());
        // A part whose time is too small.
        assert!(parse(&good.replace("part fork 77", "part fork 76")).is_err());
        assert!(parse(&good.replace("idle 20", "idle 18446744073709551615")).is_err());
    }
}
