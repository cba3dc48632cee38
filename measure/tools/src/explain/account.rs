//! The kernel's record of starts, as lines of numbers.

use crate::arguments::Explain;
use hayate_start_account::{Began, Fault, Image, Stage, Start, StartPart};
use serde_json::{Value, json};

/// Starts of one program, and the meaning of their numbers.
pub struct Explained {
    /// The command.
    pub command: String,
    /// Whether numbers are instructions; otherwise nanoseconds.
    pub counting: bool,
    /// How processes were made.
    pub how: &'static str,
    /// The starts that are shown: the first two, and one that began at an image, if one did.
    pub starts: Vec<Start>,
    /// What is known of the program's image.
    pub image: Image,
    /// How many starts were made in all.
    pub made: usize,
}

/// A line of the table: a title, and a number for each start.
pub struct Line {
    /// The title.
    pub title: String,
    /// The level of indentation.
    pub depth: usize,
    /// The numbers.
    pub values: Vec<u64>,
}

impl Explained {
    /// Combines the request and its results.
    pub fn new(options: &Explain, all: Vec<Start>) -> Explained {
        let words: Vec<_> = options.run.command.iter().map(|word| word.to_string_lossy()).collect();
        Explained {
            command: words.join(" "),
            counting: !options.time,
            how: if options.fork { "fork" } else { "vfork" },
            image: all.last().map(|last| last.image.clone()).unwrap_or_default(),
            made: all.len(),
            starts: shown(all),
        }
    }

    /// The names of the starts that are shown.
    pub fn names(&self) -> Vec<&'static str> {
        let name = |(index, start): (usize, &Start)| match (index, start.began) {
            (_, Began::Image) => "from image",
            (0, _) => "first start",
            _ => "second start",
        };
        self.starts.iter().enumerate().map(name).collect()
    }

    /// How much less a start from an image takes than the second start did.
    pub fn saved(&self) -> Option<u64> {
        let image = self.starts.iter().find(|start| start.began == Began::Image)?;
        let second = self.starts.get(1).filter(|start| start.began != Began::Image)?;
        Some(self.total(second).saturating_sub(self.total(image)))
    }

    /// Converts time of the kernel's clock to the unit that is shown.
    fn in_unit(&self, start: &Start, time: u64) -> u64 {
        if !self.counting {
            return time;
        }
        // To the nearest tick; each instruction is one tick.
        let ticks = (u128::from(time) * u128::from(start.hertz) + 500_000_000) / 1_000_000_000;
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Returns the time of a part of a start.
    pub fn part(&self, start: &Start, part: StartPart) -> u64 {
        self.in_unit(start, start.account.time(part))
    }

    /// Returns the time of a stage of a start: the sum of its parts.
    pub fn stage(&self, start: &Start, stage: Stage) -> u64 {
        let parts = StartPart::ALL.iter().filter(|part| part.stage() == stage);
        parts.map(|part| self.part(start, *part)).sum()
    }

    /// Returns the time of all stages of a start.
    pub fn total(&self, start: &Start) -> u64 {
        Stage::ALL.iter().map(|stage| self.stage(start, *stage)).sum()
    }

    /// A number for each start.
    pub fn each(&self, number: impl Fn(&Start) -> u64) -> Vec<u64> {
        self.starts.iter().map(number).collect()
    }

    /// Returns where the time went: each stage, and its parts below it if it has several. The
    /// stages add up to the total, the parts to their stage.
    pub fn times(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        for stage in Stage::ALL {
            let whole = self.each(|start| self.stage(start, stage));
            let linking = stage == Stage::Link && self.starts.iter().any(|start| start.linked);
            if whole.iter().all(|value| *value == 0) && !linking {
                continue;
            }
            lines.push(Line { title: stage.title().into(), depth: 0, values: whole });
            let of_stage = StartPart::ALL.iter().copied().filter(|part| part.stage() == stage);
            let parts: Vec<_> = of_stage
                .map(|part| (part, self.each(|start| self.part(start, part))))
                .filter(|(_, values)| values.iter().any(|value| *value > 0))
                .collect();
            for (part, values) in parts {
                let mut title = part.title().to_string();
                if matches!(part, StartPart::LinkCalls | StartPart::ProgramCalls) {
                    let counts = self.each(|start| start.account.entered(part));
                    title = format!("{title} ({})", join(&counts));
                }
                lines.push(Line { title, depth: 1, values });
            }
        }
        lines
    }

    /// Returns the page faults by kind: their numbers, and their time.
    pub fn faults(&self) -> Vec<(Line, Vec<u64>)> {
        let line = |kind: Fault| {
            let values = self.each(|start| start.account.faults(kind).0);
            let times = self.each(|start| self.in_unit(start, start.account.faults(kind).1));
            (Line { title: kind.title().into(), depth: 1, values }, times)
        };
        let lines = Fault::ALL.iter().copied().map(line);
        lines.filter(|(line, _)| line.values.iter().any(|value| *value > 0)).collect()
    }

    /// Returns the pages that were copied and zeroed, by fault or exec, and those that were left
    /// unchanged.
    pub fn pages(&self) -> Vec<Line> {
        let faults = |start: &Start, kinds: &[Fault]| -> u64 {
            kinds.iter().map(|kind| start.account.faults(*kind).0).sum()
        };
        let copied = |start: &Start| faults(start, &[Fault::FileCopied, Fault::Copied]);
        let zeroed = |start: &Start| faults(start, &[Fault::Zeroed]);
        let line = |title: &str, depth, values| Line { title: title.into(), depth, values };
        vec![
            line(
                "pages copied",
                0,
                self.each(|start| copied(start) + start.restored.0 + start.filled.0),
            ),
            line("by page faults", 1, self.each(copied)),
            line("by exec", 1, self.each(|start| start.filled.0)),
            line("restoring a kept space", 1, self.each(|start| start.restored.0)),
            line(
                "pages zeroed",
                0,
                self.each(|start| zeroed(start) + start.restored.1 + start.filled.1),
            ),
            line("by page faults", 1, self.each(zeroed)),
            line("by exec", 1, self.each(|start| start.filled.1)),
            line("restoring a kept space", 1, self.each(|start| start.restored.1)),
            line("kept writable pages left as they were", 0, self.each(|start| start.restored.2)),
        ]
    }

    /// Resources that were reused and made.
    pub fn resources(&self) -> Vec<Line> {
        let line = |title: &str, values| Line { title: title.into(), depth: 1, values };
        vec![
            line("program records reused", self.each(|start| start.records.0)),
            line("program records made", self.each(|start| start.records.1)),
            line("spaces reused, with all that is attached", self.each(|start| start.spaces.0)),
            line("spaces made", self.each(|start| start.spaces.1)),
            line("spaces kept at the end", self.each(|start| start.kept)),
        ]
    }
}

/// The starts that are shown of all.
fn shown(all: Vec<Start>) -> Vec<Start> {
    let from_image = all.iter().position(|start| start.began == Began::Image);
    let wanted = |index: &usize| *index < 2 || Some(*index) == from_image;
    let starts = all.into_iter().enumerate().filter(|(index, _)| wanted(index));
    starts.map(|(_, start)| start).collect()
}

/// Joins numbers with separators.
fn join(numbers: &[u64]) -> String {
    let words: Vec<_> = numbers.iter().map(u64::to_string).collect();
    words.join(", ")
}

/// Returns all numbers as JSON.
pub fn json(explained: &Explained) -> Value {
    let start = |start: &Start| {
        let account = &start.account;
        let parts = StartPart::ALL.iter().map(|part| {
            json!({
                "part": part.key(),
                "stage": part.stage().key(),
                "value": explained.part(start, *part),
                "entered": account.entered(*part),
            })
        });
        let faults = Fault::ALL.iter().map(|kind| {
            let (count, time) = account.faults(*kind);
            json!({"kind": kind.key(), "count": count, "value": explained.in_unit(start, time)})
        });
        let (copied, zeroed, left) = start.restored;
        json!({
            "program": start.program,
            "pid": start.pid,
            "began": start.began.key(),
            "total": explained.total(start),
            "idle-ns": account.idle(),
            "tracing": explained.in_unit(start, account.tracing()),
            "parts": parts.collect::<Vec<_>>(),
            "faults": faults.collect::<Vec<_>>(),
            "entry-seen": start.linked,
            "programs-executed": start.executed,
            "processes-and-threads-started": start.started,
            "program-records": {"reused": start.records.0, "made": start.records.1},
            "spaces": {"reused": start.spaces.0, "made": start.spaces.1, "kept": start.kept},
            "pages-restored": {"copied": copied, "zeroed": zeroed, "left": left},
            "pages-filled-by-exec": {"copied": start.filled.0, "zeroed": start.filled.1},
        })
    };
    let (state, text) = explained.image.parts();
    let about = if state == "taken" { "horizon" } else { "reason" };
    json!({
        "command": explained.command,
        "starts-made": explained.made,
        "image": {"state": state, about: text, "saved": explained.saved()},
        "made-by": explained.how,
        "unit": if explained.counting { "instructions" } else { "nanoseconds" },
        "starts": explained.starts.iter().map(start).collect::<Vec<_>>(),
    })
}
