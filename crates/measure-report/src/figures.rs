//! Pictures: curves for results that belong to one, bars for results that are shown together.

use crate::chart::{Bar, BarChart, COLOURS, LineChart, Mark, Point, Series};
use crate::markup::escape;
use measure_data::Run;
use measure_data::run::{Measurement, Quantity};
use measure_data::units::{size, value};

/// The curve on which caches are marked.
const LATENCY: &str = "load latency, stride ";

/// The figures of an area.
pub fn of_area(runs: &[Run], area: &str) -> String {
    let mut out = String::from("<div class=\"figures\">");
    if area == "memory" {
        out.push_str(&latency(runs));
    }
    for (title, names) in groups(runs, area) {
        out.push_str(&bars(runs, &title, &names));
    }
    for (title, series) in curves(runs, area) {
        out.push_str(&curve(runs, &title, &series));
    }
    out.push_str("</div>");
    out
}

fn figure(class: &str, title: &str, legend: &str, svg: &str, caption: &str) -> String {
    format!(
        "<figure class=\"{class}\"><h3>{}</h3>{legend}<div class=\"scroll\">{svg}</div>\
         <figcaption>{}</figcaption></figure>",
        escape(title),
        escape(caption)
    )
}

fn legend(names: &[String], predicted: bool) -> String {
    if names.len() < 2 && !predicted {
        return String::new();
    }
    let mut out = String::from("<div class=\"legend\">");
    for (i, name) in names.iter().enumerate() {
        out.push_str(&format!("<span><i class=\"b{}\"></i>{}</span>", i % COLOURS, escape(name)));
    }
    if predicted {
        out.push_str("<span><i class=\"p\"></i>predicted</span>");
    }
    out.push_str("</div>");
    out
}

/// The points of one series of one run, by position.
fn points(run: &Run, series: &str) -> Vec<Point> {
    let mut points: Vec<Point> = run
        .results
        .iter()
        .filter(|r| r.axis.as_ref().is_some_and(|a| a.series == series))
        .filter(|r| r.summary.median > 0.0)
        .filter_map(|r| {
            let s = &r.summary;
            let x = r.axis.as_ref()?.x;
            Some(Point { x, y: s.median, low: s.interval.low, high: s.interval.high })
        })
        .collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    points
}

/// All series that appear in `runs` for `area`, in their order.
fn all_series(runs: &[Run], area: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for result in runs.iter().flat_map(|r| &r.results).filter(|r| r.area() == area) {
        if let Some(axis) = &result.axis
            && !found.contains(&axis.series)
        {
            found.push(axis.series.clone());
        }
    }
    found
}

/// Returns the lines of a set of series, for each run, named after what distinguishes them.
fn lines(runs: &[Run], series: &[String], short: impl Fn(&str) -> String) -> Vec<Series> {
    let mut all = Vec::new();
    for name in series {
        for (run, run_name) in runs.iter().zip(crate::names(runs)) {
            let points = points(run, name);
            if points.is_empty() {
                continue;
            }
            let name = match (runs.len(), series.len()) {
                (1, _) => short(name),
                (_, 1) => run_name,
                _ => format!("{}, {run_name}", short(name)),
            };
            all.push(Series { name, points });
        }
    }
    all
}

/// The latency curve, with the caches marked.
fn latency(runs: &[Run]) -> String {
    let mut series: Vec<String> =
        all_series(runs, "memory").into_iter().filter(|s| s.starts_with(LATENCY)).collect();
    if runs.len() > 1 {
        // Several runs: only the stride that shows the caches, or the picture has too many lines.
        series.retain(|s| s.ends_with(" 64"));
    }
    let lines = lines(runs, &series, |s| format!("stride {}", s.trim_start_matches(LATENCY)));
    if lines.is_empty() {
        return String::new();
    }
    let mut marks = Vec::new();
    if let [run] = runs {
        for i in run.inferred.iter().filter(|i| i.unit == "bytes" && i.what.starts_with('L')) {
            let level = i.what.split(' ').next().unwrap_or_default();
            marks.push(Mark {
                x: i.value,
                text: format!("{level} by the curve: {}", size(i.value)),
                found: true,
            });
        }
        // If the machine reports another value, that value is marked as well.
        for (i, cache) in run.machine.caches.iter().enumerate() {
            let found = run.inferred.get(i).is_some_and(|f| f.reported == Some(f.value));
            if !found {
                let text = format!("L{} reported: {}", cache.level, size(cache.bytes as f64));
                marks.push(Mark { x: cache.bytes as f64, text, found: false });
            }
        }
    }
    let names: Vec<String> = lines.iter().map(|s| s.name.clone()).collect();
    let svg = LineChart {
        title: "Load latency over the size of the array",
        x_name: "size of the array",
        x_log: true,
        y_log: true,
        x_text: &size,
        y_text: &|v| value(Quantity::Time, v),
        series: &lines,
        marks: &marks,
        width: 960.0,
        height: 440.0,
    }
    .draw();
    figure(
        "wide",
        "Load latency over size and stride",
        &legend(&names, false),
        &svg,
        "Each load needs the one before; the order is random. Bands are 95 % intervals. A step \
         marks the end of a cache.",
    )
}

/// Curves other than latency: a title and the series that belong into one picture.
fn curves(runs: &[Run], area: &str) -> Vec<(String, Vec<String>)> {
    const FAMILIES: [(&str, &str); 6] = [
        ("switch, ", "Context switch by number of processes"),
        ("exec by ", "exec by the size of a part of the program"),
        ("memory ", "Memory bandwidth by threads"),
        ("sequential read", "Reading past the cache"),
        ("random read", "Reading past the cache"),
        ("one line per page", "Load latency, one line in each page"),
    ];
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for series in all_series(runs, area).into_iter().filter(|s| !s.starts_with(LATENCY)) {
        // Fewer than three points make no curve; the bars show them.
        if runs.iter().all(|r| points(r, &series).len() < 2) {
            continue;
        }
        let title = FAMILIES
            .iter()
            .find(|(prefix, _)| series.starts_with(prefix))
            .map_or_else(|| capitalised(&series), |(_, title)| (*title).to_owned());
        match found.iter_mut().find(|(t, _)| *t == title) {
            Some((_, all)) => all.push(series),
            None => found.push((title, vec![series])),
        }
    }
    found
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

fn curve(runs: &[Run], title: &str, series: &[String]) -> String {
    let lines = lines(runs, series, str::to_owned);
    // One of each series.
    let examples: Vec<&Measurement> = series
        .iter()
        .filter_map(|name| {
            let mut all = runs.iter().flat_map(|r| &r.results);
            all.find(|r| r.axis.as_ref().is_some_and(|a| a.series == *name))
        })
        .collect();
    // Where they differ, as for threads and processes, the method of the majority.
    let common = |method: &str| examples.iter().filter(|r| r.method == method).count();
    let Some(example) = examples.iter().rev().max_by_key(|r| common(&r.method)) else {
        return String::new();
    };
    let quantity = example.quantity;
    let mut units: Vec<&str> = Vec::new();
    for axis in examples.iter().filter_map(|r| r.axis.as_ref()) {
        if !units.contains(&axis.unit.as_str()) {
            units.push(&axis.unit);
        }
    }
    let unit = units.join(" or ");
    let all = || lines.iter().flat_map(|s| &s.points);
    let (low, high) = all().fold((f64::INFINITY, 0.0f64), |(l, h), p| (l.min(p.y), h.max(p.y)));
    let widest = all().map(|p| p.x).fold(0.0, f64::max);
    let bytes = unit == "bytes";
    let marks: Vec<Mark> = match runs {
        [run] if unit == "pages" => run
            .inferred
            .iter()
            .filter(|i| i.unit == "pages")
            .map(|i| Mark {
                x: i.value,
                text: format!("{}: {:.0} pages", i.what, i.value),
                found: true,
            })
            .collect(),
        _ => Vec::new(),
    };
    let names: Vec<String> = lines.iter().map(|s| s.name.clone()).collect();
    let svg = LineChart {
        title,
        x_name: &unit,
        x_log: bytes || widest > 64.0,
        y_log: high > low * 20.0,
        x_text: &|v| if bytes { size(v) } else { format!("{v:.0}") },
        y_text: &|v| if v == 0.0 { "0".into() } else { value(quantity, v) },
        series: &lines,
        marks: &marks,
        width: 480.0,
        height: 280.0,
    }
    .draw();
    let method = example.method.as_str();
    // The name of a call keeps its small letter.
    let first = method.split(' ').next().unwrap_or_default();
    let method = if first.contains('(') { method.to_owned() } else { capitalised(method) };
    figure("", title, &legend(&names, false), &svg, &format!("{method}."))
}

/// Returns the results that are shown as bars together: those of one subject that are not on a
/// curve.
fn groups(runs: &[Run], area: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Quantity, Vec<String>)> = Vec::new();
    for result in runs.iter().flat_map(|r| &r.results).filter(|r| r.area() == area) {
        if result.axis.is_some() {
            continue;
        }
        let title = group_title(result);
        match found.iter_mut().find(|(t, q, _)| *t == title && *q == result.quantity) {
            Some((_, _, names)) if names.contains(&result.name) => {}
            Some((_, _, names)) => names.push(result.name.clone()),
            None => found.push((title, result.quantity, vec![result.name.clone()])),
        }
    }
    found.into_iter().filter(|g| g.2.len() > 1).map(|(t, _, names)| (t, names)).collect()
}

fn group_title(result: &Measurement) -> String {
    let mut parts = result.name.split('/');
    let (area, subject) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match (area, subject, result.quantity) {
        ("cpu", "syscall", _) => "System calls".into(),
        ("cpu", "process" | "thread", _) => "Processes and threads".into(),
        ("cpu", "switch" | "pipe" | "signal", _) => "Signals and switches".into(),
        ("cpu", _, _) => "Time, loop and CPUID".into(),
        ("memory", "fault", _) => "Page faults".into(),
        ("memory", "map", _) => "Mappings".into(),
        ("net", _, Quantity::Time) => "Round trips and connections".into(),
        ("net", _, Quantity::Bandwidth) => "Bandwidth".into(),
        ("file", _, _) => "Names and durability".into(),
        _ => capitalised(area),
    }
}

fn bars(runs: &[Run], title: &str, names: &[String]) -> String {
    let bars: Vec<Bar> = names
        .iter()
        .map(|name| {
            let values = runs.iter().map(|run| {
                let s = &run.result(name)?.summary;
                Some((s.median, s.interval.low, s.interval.high))
            });
            let predicted = match runs {
                [one] => one.result(name).and_then(|r| Some(r.prediction.as_ref()?.value)),
                _ => None,
            };
            let short = name.splitn(3, '/').skip(1).collect::<Vec<_>>().join("/");
            let subject = short.split('/').next().unwrap_or_default();
            // Within one subject its name need not be repeated in every row.
            let one_subject = names.iter().all(|n| n.split('/').nth(1) == Some(subject));
            let label = if one_subject && short.contains('/') {
                short.split_once('/').map_or(short.clone(), |(_, rest)| rest.to_owned())
            } else {
                // The commonest subject has the longest names.
                short.trim_start_matches("process/").to_owned()
            };
            Bar { name: label, values: values.collect(), predicted }
        })
        .collect();
    let quantity =
        runs.iter().find_map(|r| r.result(names.first()?)).map_or(Quantity::Time, |r| r.quantity);
    let text = |v: f64| if v == 0.0 { "0".into() } else { value(quantity, v) };
    let svg = BarChart { title, bars: &bars, text: &text }.draw();
    let predicted = bars.iter().any(|b| b.predicted.is_some());
    let labels: Vec<String> = match runs {
        [_] => vec!["measured".into()],
        _ => crate::names(runs),
    };
    figure(
        "",
        title,
        &legend(&labels, predicted),
        &svg,
        "Medians; the thin line is the 95 % interval.",
    )
}
