//! Two processes against one, on two processors: runs `measure scaling` in each system and shows
//! the results. `measure_data::scaling` explains the numbers.

use super::bars::{self, Bar, Bars, Group};
use super::describe::{Description, Scaling as Wanted};
use super::grid::Grid;
use super::results::Results;
use crate::boot::{Missing, Setup, System};
use anyhow::{Context, Result, ensure};
use hayate_cli::progress::Progress;
use measure_chart::{Scale, Tick};
use measure_data::scaling::{CEILING, FORMAT, Middle, Reach, Scaling, TWO_FREE, VERSION};
use serde::{Deserialize, Serialize};

/// The text above the numbers, in place of that for times.
pub const KIND: &str = "Numbers are starts by second of the guest's clock, on this host, with all \
    that disturbs it. In each round one process and two processes work for the same time, one after \
    the other, and only the ratio of a round is used. The loop makes no system call: the work of \
    two loops by that of one tells how much of two processors the host had in the same rounds. Where \
    that is below 1.9 the host had no two free processors, and no system could have shown more.";
/// The text below them.
const PINNED: &str = "Each process is pinned to a processor of its own, together with what it \
    starts, but where it says \"not pinned\". There a system may send what one process starts to the \
    other, sleeping processor; where waking that takes longer than the start, one process alone is \
    slower than when it is pinned, and the ratio says more about that than about two at once.";

/// The results of one system.
#[derive(Clone, Serialize, Deserialize)]
pub struct Scaled {
    /// Its index among the systems.
    pub system: usize,
    /// The works that were run.
    pub lines: Vec<Line>,
}

/// One work that was run.
#[derive(Clone, Serialize, Deserialize)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// Starts per second, one process.
    pub one: Middle,
    /// Starts per second, two processes together.
    pub two: Middle,
    /// The ratio of two processes to one, over the rounds.
    pub ratio: Middle,
    /// That ratio divided by the loop's, over the rounds.
    pub of_loop: Middle,
    /// The ratio that must be reached.
    pub at_least: Option<f64>,
    /// Whether it is reached.
    pub reach: Option<Reach>,
}

/// Measures a system, the `at`-th: returns its release and results, or [`Missing`] with what it
/// lacks.
pub fn measured(
    setup: &Setup,
    wanted: &Wanted,
    (at, system): (usize, &System),
) -> Result<(String, Scaled)> {
    let _step = Progress::new(format!("Measuring {} on two processors", system.title));
    let rounds = wanted.rounds.to_string();
    let time = wanted.milliseconds.to_string();
    let words = ["/usr/bin/measure", "scaling", "--json", "--dir", "/tmp"];
    let words = words.into_iter().chain(["--rounds", &rounds, "--milliseconds", &time]);
    let ended = setup.run(system, words.map(String::from).collect())?;
    let (status, output, error) = (ended.status, ended.output.trim(), ended.error.trim());
    ensure!(status == 0, "measure ended with status {status}. {output} {error}");
    let found: Scaling = serde_json::from_str(output).context("what measure says")?;
    ensure!(found.format == FORMAT && found.version == VERSION, "another version of measure");
    if found.processors < 2 {
        return Err(Missing(format!("it has {} processor", found.processors)).into());
    }
    // Aims are for the first system only.
    let aims = if at == 0 { Some(wanted) } else { None };
    Ok((found.release.clone(), Scaled { system: at, lines: lines(&found, aims) }))
}

fn lines(found: &Scaling, wanted: Option<&Wanted>) -> Vec<Line> {
    let ceiling = found.ceiling().map(|work| Middle::of(&work.ratios()));
    let line = |work: &measure_data::scaling::Work| {
        let ratio = Middle::of(&work.ratios());
        let at_least = wanted.and_then(|wanted| wanted.at_least.get(&work.name).copied());
        Line {
            name: work.name.clone(),
            title: work.title.clone(),
            one: Middle::of(&work.one),
            two: Middle::of(&work.two),
            ratio,
            of_loop: Middle::of(&found.shares(work)),
            at_least,
            reach: at_least.zip(ceiling).map(|(aim, ceiling)| Reach::of(&ratio, &ceiling, aim)),
        }
    };
    found.works.iter().map(line).collect()
}

/// Returns a sentence about the machine and the rounds.
pub fn machine(what: &Description, wanted: &Wanted) -> String {
    let host = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} MiB of memory, two processors; one boot of each system, {} rounds of {} ms. The host has \
         {host} {}.",
        what.memory,
        wanted.rounds,
        wanted.milliseconds,
        if host == 1 { "processor" } else { "processors" },
    )
}

/// Returns the text below table and picture.
pub fn notes(r: &Results) -> Vec<String> {
    let mut notes = vec![PINNED.to_owned()];
    for scaled in &r.scaling {
        let ceiling = scaled.lines.iter().find(|line| line.name == CEILING);
        if let Some(line) = ceiling.filter(|line| line.ratio.median < TWO_FREE) {
            notes.push(format!(
                "While {} was measured, the host had no two free processors: two loops did {} times \
                 what one did, in half of the rounds less.",
                r.systems[scaled.system].title,
                line.ratio.text()
            ));
        }
    }
    notes
}

impl Grid {
    /// Returns the table of each system's results.
    pub fn of_scaling(r: &Results, scaled: &Scaled) -> Grid {
        let mut headings = vec![r.systems[scaled.system].title.clone()];
        headings
            .extend(["one process", "two", "two by one (95 %)", "by the loop's"].map(String::from));
        let aims = scaled.lines.iter().any(|line| line.at_least.is_some());
        if aims {
            headings.extend(["at least".into(), String::new()]);
        }
        let rows = scaled.lines.iter().map(|line| {
            let mut cells = vec![
                format!("{:.0}", line.one.median),
                format!("{:.0}", line.two.median),
                line.ratio.text(),
                line.of_loop.text(),
            ];
            if aims {
                cells.push(line.at_least.map_or(String::new(), |aim| format!("{aim:.1}")));
                cells.push(line.reach.map_or("", Reach::word).into());
            }
            (line.title.clone(), Some(line.name.clone()), cells)
        });
        Grid { rows: rows.collect(), headings }
    }
}

/// Draws the picture: the ratios on a linear scale, with the interval and the aim.
pub fn draw(r: &Results) -> String {
    /// A larger ratio says nothing about two processors, and would take space from the others.
    const MOST: f64 = 2.5;
    /// Room for ratios beside the bars.
    const RIGHT: f64 = 60.0;
    let measured: Vec<usize> = r.scaling.iter().map(|scaled| scaled.system).collect();
    let (from, to) = bars::span(RIGHT);
    let scale = Scale::linear(0.0, MOST, from, to);
    let ticks =
        scale.ticks(5).into_iter().map(|ratio| Tick::new(scale.at(ratio), ratio.to_string()));
    let rows = r.scaling.first().map_or(0, |scaled| scaled.lines.len());
    Bars {
        title: r.title.clone(),
        legend: bars::legend(r, &measured),
        note: "two processors by one; the mark is the aim; thin lines are 95 % intervals".into(),
        ticks: ticks.collect(),
        scale,
        groups: (0..rows).map(|row| group(r, row)).collect(),
    }
    .draw()
}

/// The ratios of one work in every system.
fn group(r: &Results, row: usize) -> Group {
    let lines = || r.scaling.iter().filter_map(|scaled| Some((scaled, scaled.lines.get(row)?)));
    let bar = |(scaled, line): (&Scaled, &Line)| Bar {
        system: scaled.system,
        value: line.ratio.median,
        interval: Some((line.ratio.low, line.ratio.high)),
        text: format!("{:.2}", line.ratio.median),
    };
    let first = lines().next().map(|(_, line)| line);
    Group {
        name: first.map_or_else(String::new, |line| line.title.clone()),
        bars: lines().map(bar).collect(),
        aim: first.and_then(|line| line.at_least),
    }
}
