//! Tables: prediction against measurement for one run, the runs next to each other for several.

use crate::chart::histogram;
use crate::markup::escape;
use measure_data::compare::{Limits, compare};
use measure_data::run::{Measurement, TermKind};
use measure_data::statistics::Noise;
use measure_data::units::{change, time, value};
use measure_data::{Run, Verdict};

/// Points of curves with more points than this are folded away.
const LONG_CURVE: usize = 12;

/// The tables of an area.
pub fn of_area(runs: &[Run], area: &str) -> String {
    let names = names(runs, area);
    let (long, short): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| on_long_curve(runs, name));
    let mut out = String::new();
    if !short.is_empty() {
        out.push_str(&table(runs, &short));
    }
    if !long.is_empty() {
        out.push_str(&format!(
            "<details class=\"more\"><summary>All {} points of the curves as a table</summary>{}</details>",
            long.len(),
            table(runs, &long)
        ));
    }
    out
}

fn names<'a>(runs: &'a [Run], area: &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for result in runs.iter().flat_map(|r| &r.results).filter(|r| r.area() == area) {
        if !names.contains(&result.name.as_str()) {
            names.push(&result.name);
        }
    }
    names
}

fn on_long_curve(runs: &[Run], name: &str) -> bool {
    runs.iter().any(|run| {
        let Some(axis) = run.result(name).and_then(|r| r.axis.as_ref()) else { return false };
        let same = |r: &&Measurement| r.axis.as_ref().is_some_and(|a| a.series == axis.series);
        run.results.iter().filter(same).count() > LONG_CURVE
    })
}

fn table(runs: &[Run], names: &[&str]) -> String {
    let mut out = String::from("<div class=\"scroll t\"><table><thead><tr><th>result</th>");
    match runs {
        [_] => out.push_str(
            "<th class=\"n\">predicted</th><th class=\"n\">measured</th><th class=\"n\">95 %</th>\
             <th class=\"n\">ratio</th><th>distribution</th><th class=\"n\">p5 to p95</th><th>noise</th>",
        ),
        _ => {
            let names = crate::names(runs);
            for (i, name) in names.iter().enumerate() {
                out.push_str(&format!("<th class=\"n\">{}</th>", escape(name)));
                if i > 0 {
                    out.push_str(&format!("<th class=\"n\">against {}</th>", escape(&names[0])));
                }
            }
            out.push_str("<th>distributions</th>");
        }
    }
    out.push_str("</tr></thead><tbody>");
    for name in names {
        match runs {
            [one] => {
                if let Some(result) = one.result(name) {
                    out.push_str(&row(one, result));
                }
            }
            _ => out.push_str(&side_by_side(runs, name)),
        }
    }
    out.push_str("</tbody></table></div>");
    out
}

/// Name, title, method and the terms of the prediction.
fn head(result: &Measurement) -> String {
    let mut out = format!(
        "<td class=\"k\"><details><summary>{}</summary><p><code>{}</code></p><p>{}.</p>",
        escape(&result.title),
        escape(&result.name),
        escape(&result.method)
    );
    if let Some(p) = &result.prediction {
        out.push_str("<p>Predicted from:</p><ul>");
        for term in &p.terms {
            let kind = match term.kind {
                TermKind::Hardware => "hardware",
                TermKind::Software => "software",
            };
            out.push_str(&format!(
                "<li>{} × {} ({}), {kind}: {}</li>",
                count(term.count),
                escape(&term.primitive),
                if term.each_ns < 0.1 {
                    format!("{:.1} ps", term.each_ns * 1e3)
                } else {
                    time(term.each_ns)
                },
                escape(&term.why)
            ));
        }
        out.push_str("</ul>");
    }
    if let Some(note) = &result.note {
        out.push_str(&format!("<p>{}</p>", escape(note)));
    }
    out.push_str("</details></td>");
    out
}

fn count(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn row(run: &Run, result: &Measurement) -> String {
    let s = &result.summary;
    let show = |v| value(result.quantity, v);
    let half = s.interval.relative_half_width(s.median).min(9.99) * 100.0;
    let predicted = result.prediction.as_ref().map_or("-".into(), |p| show(p.value));
    let ratio = match result.ratio() {
        Some(ratio) if result.mispredicted() => format!(
            "<span class=\"tag warn\" title=\"the prediction is off by more than a factor of \
             three\">{ratio:.2}</span>"
        ),
        Some(ratio) => format!("{ratio:.2}"),
        None => "-".into(),
    };
    let class = match s.noise {
        Noise::Exact | Noise::Quiet => "good",
        Noise::Fair => "soft",
        Noise::Noisy => "warn",
        Noise::TooNoisy => "bad",
    };
    let o = &s.outliers;
    let about = format!(
        "{} samples, mean {}, deviation {}, minimum {}; outliers: {} low, {} high, {} of them severe; \
         drift between passes {:.0} %",
        s.n,
        show(s.mean),
        show(s.deviation),
        show(s.minimum),
        o.low_mild + o.low_severe,
        o.high_mild + o.high_severe,
        o.low_severe + o.high_severe,
        s.drift * 100.0
    );
    format!(
        "<tr>{}<td class=\"n\">{predicted}</td><td class=\"n\"><b>{}</b></td>\
         <td class=\"n\">± {half:.1} %</td><td class=\"n\">{ratio}</td><td>{}</td>\
         <td class=\"n\">{} to {}</td>\
         <td title=\"{}\"><span class=\"tag {class}\">{}</span></td></tr>",
        head(result),
        show(s.median),
        histogram(&result.values(&run.clock).concat(), 0),
        show(s.p5),
        show(s.p95),
        escape(&about),
        s.noise.word()
    )
}

fn side_by_side(runs: &[Run], name: &str) -> String {
    let Some(any) = runs.iter().find_map(|r| r.result(name)) else { return String::new() };
    let mut out = format!("<tr>{}", head(any));
    let first = runs.first().and_then(|r| Some((r.result(name)?, &r.clock)));
    let mut distributions = String::new();
    for (i, run) in runs.iter().enumerate() {
        let Some(result) = run.result(name) else {
            out.push_str("<td class=\"n soft\">not measured</td>");
            out.push_str(if i > 0 { "<td></td>" } else { "" });
            continue;
        };
        let s = &result.summary;
        let half = s.interval.relative_half_width(s.median).min(9.99) * 100.0;
        out.push_str(&format!(
            "<td class=\"n\"><b>{}</b> <span class=\"soft\">± {half:.1} %</span></td>",
            value(result.quantity, s.median)
        ));
        distributions
            .push_str(&histogram(&result.values(&run.clock).concat(), i % crate::chart::COLOURS));
        if i == 0 {
            continue;
        }
        match first {
            Some(first) if first.0.quantity == result.quantity => {
                let c = compare(first, (result, &run.clock), &Limits::default());
                let class = match c.verdict {
                    Verdict::Better => "good",
                    Verdict::Worse => "bad",
                    Verdict::NoDifference => "soft",
                    Verdict::TooNoisy => "warn",
                };
                let ratio = if c.ratio > 1e6 { "-".into() } else { change(c.ratio) };
                out.push_str(&format!(
                    "<td class=\"n {class}\">{ratio}<br><span class=\"tag\">{}</span></td>",
                    c.verdict.words()
                ));
            }
            _ => out.push_str("<td class=\"n soft\">-</td>"),
        }
    }
    out.push_str(&format!("<td>{distributions}</td></tr>"));
    out
}

/// Returns the list of experiments that were not measured, with the reasons.
pub fn skipped(runs: &[Run]) -> String {
    if runs.iter().all(|r| r.skipped.is_empty()) {
        return String::new();
    }
    let mut out = String::from("<section><h2>Not measured</h2>");
    let named = runs.iter().zip(crate::names(runs));
    for (run, name) in named.filter(|(r, _)| !r.skipped.is_empty()) {
        if runs.len() > 1 {
            out.push_str(&format!("<h3>{}</h3>", escape(&name)));
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for s in &run.skipped {
            match reasons.iter_mut().find(|(r, _)| *r == s.reason) {
                Some((_, names)) => names.push(&s.name),
                None => reasons.push((&s.reason, vec![&s.name])),
            }
        }
        out.push_str("<ul>");
        for (reason, names) in reasons {
            out.push_str(&format!(
                "<li><code>{}</code>: {}</li>",
                escape(&names.join(", ")),
                escape(reason)
            ));
        }
        out.push_str("</ul>");
    }
    out.push_str("</section>");
    out
}
