//! A run as a table: for a terminal, as Markdown, as comma-separated values.

use measure_data::run::{Completion, Measurement, Run};
use measure_data::units::value;
use std::fmt::Write;

/// Curves with more points than this are shortened in the terminal.
const CURVE: usize = 12;

/// Writes to a String, which cannot fail; the result is ignored in this one place.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        let _ = writeln!($out, $($arg)*);
    }};
}

/// The row of one result: name, median, interval, prediction, measured against predicted,
/// noise.
fn cells(r: &Measurement) -> [String; 6] {
    let s = &r.summary;
    let half = s.interval.relative_half_width(s.median);
    let half = if half > 9.99 { "over 999 %".into() } else { format!("± {:.1} %", half * 100.0) };
    let predicted = r.prediction.as_ref().map_or("-".into(), |p| value(r.quantity, p.value));
    let ratio = r.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}"));
    [r.name.clone(), value(r.quantity, s.median), half, predicted, ratio, s.noise.word().into()]
}

const HEADINGS: [&str; 6] = ["result", "median", "95 %", "predicted", "ratio", "noise"];

/// The table for a terminal.
pub fn text(run: &Run) -> String {
    let mut out = String::new();
    put!(out, "{}", run.label);
    put!(
        out,
        "clock {}: {:.0} ticks per second, {} ticks to read it (taken off)\n",
        run.clock.name,
        run.clock.ticks_per_second,
        run.clock.overhead_ticks
    );
    let shown: Vec<&Measurement> = run.results.iter().filter(|r| in_short_table(run, r)).collect();
    let rows: Vec<[String; 6]> = shown.iter().map(|r| cells(r)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|r| r[column].chars().count());
        cells.chain([HEADINGS[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    let line = |row: &[String]| {
        let mut line = format!("{:<w$}", row[0], w = widths[0]);
        for (cell, width) in row[1..5].iter().zip(&widths[1..5]) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let _ = write!(line, "  {}", row[5]);
        line
    };
    put!(out, "{}", line(&HEADINGS.map(String::from)));
    for row in &rows {
        put!(out, "{}", line(row));
    }
    let hidden = run.results.len() - shown.len();
    if hidden > 0 {
        put!(
            out,
            "... and {hidden} more points of curves, in --json, --csv, --markdown and --html"
        );
    }
    ending(&mut out, run, "");
    out
}

/// Long curves are shown at powers of four only.
fn in_short_table(run: &Run, r: &Measurement) -> bool {
    let Some(axis) = &r.axis else { return true };
    let on_curve =
        |other: &&Measurement| other.axis.as_ref().is_some_and(|a| a.series == axis.series);
    let power = axis.x.log2() / 2.0;
    run.results.iter().filter(on_curve).count() <= CURVE || power.fract() == 0.0
}

fn ending(out: &mut String, run: &Run, bullet: &str) {
    if !run.inferred.is_empty() {
        put!(out, "");
    }
    for i in &run.inferred {
        put!(out, "{bullet}{}", i.sentence(&run.machine));
    }
    let wrong = mispredicted(run);
    if !wrong.is_empty() {
        put!(out, "\npredictions off by more than a factor of three, measured / predicted:\n");
    }
    for line in wrong {
        put!(out, "{bullet}{line}");
    }
    if !run.skipped.is_empty() {
        put!(out, "\nnot measured:\n");
    }
    // One line for many experiments with the same reason.
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for s in &run.skipped {
        match reasons.iter_mut().find(|(r, _)| *r == s.reason) {
            Some((_, names)) => names.push(&s.name),
            None => reasons.push((&s.reason, vec![&s.name])),
        }
    }
    for (reason, names) in reasons {
        let names = match names.as_slice() {
            [first, .., last] if names.len() > 4 => format!("{first} ... {last} ({})", names.len()),
            _ => names.join(", "),
        };
        put!(out, "{bullet}{names}: {reason}");
    }
    if run.completion == Completion::Interrupted {
        put!(out, "\nstopped before the end: intervals are wider than they could be");
    }
}

/// Returns the badly predicted results; consecutive points of one curve share a line.
fn mispredicted(run: &Run) -> Vec<String> {
    let series = |r: &Measurement| r.axis.as_ref().map(|a| a.series.clone());
    let wrong: Vec<&Measurement> = run.results.iter().filter(|r| r.mispredicted()).collect();
    let together = wrong.chunk_by(|a, b| series(a).is_some() && series(a) == series(b));
    let line = |group: &[&Measurement]| {
        let ratios = || group.iter().filter_map(|r| r.ratio());
        let (low, high) = ratios().fold((f64::MAX, 0.0f64), |(l, h), r| (l.min(r), h.max(r)));
        match group {
            [] => String::new(),
            [one] => format!("{}: {high:.2}", one.name),
            [first, .., last] => {
                format!("{} ... {} ({}): {low:.2} to {high:.2}", first.name, last.name, group.len())
            }
        }
    };
    together.map(line).collect()
}

/// The table as Markdown.
pub fn markdown(run: &Run) -> String {
    let mut out = format!("# {}\n\n", run.label.replace(['\n', '|'], " "));
    put!(out, "| result | what | median | 95 % | predicted | ratio | p5 | p95 | min | n | noise |");
    put!(out, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|");
    for r in &run.results {
        let [name, median, half, predicted, ratio, noise] = cells(r);
        let s = &r.summary;
        let v = |x| value(r.quantity, x);
        put!(
            out,
            "| {name} | {} | {median} | {half} | {predicted} | {ratio} | {} | {} | {} | {} | {noise} |",
            r.title,
            v(s.p5),
            v(s.p95),
            v(s.minimum),
            s.n
        );
    }
    ending(&mut out, run, "- ");
    out
}

/// The table as comma-separated values (RFC 4180), in nanoseconds and bytes per second.
pub fn csv(run: &Run) -> String {
    let mut out = String::from(
        "name,unit,samples,median,low,high,p5,p95,minimum,mean,deviation,predicted,noise,reason\r\n",
    );
    let mut row = |fields: &[String]| {
        let quoted: Vec<String> = fields.iter().map(|f| quoted(f)).collect();
        out.push_str(&quoted.join(","));
        out.push_str("\r\n");
    };
    for r in &run.results {
        let s = &r.summary;
        let unit = match r.quantity {
            measure_data::run::Quantity::Time => "ns",
            measure_data::run::Quantity::Bandwidth => "B/s",
        };
        let predicted = r.prediction.as_ref().map_or(String::new(), |p| p.value.to_string());
        let mut fields = vec![r.name.clone(), unit.into(), s.n.to_string()];
        let numbers = [
            s.median,
            s.interval.low,
            s.interval.high,
            s.p5,
            s.p95,
            s.minimum,
            s.mean,
            s.deviation,
        ];
        fields.extend(numbers.map(|v| v.to_string()));
        fields.extend([predicted, s.noise.word().into(), String::new()]);
        row(&fields);
    }
    for s in &run.skipped {
        let mut fields = vec![s.name.clone()];
        fields.extend(vec![String::new(); 12]);
        fields.push(s.reason.clone());
        row(&fields);
    }
    out
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_that_need_it_are_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
