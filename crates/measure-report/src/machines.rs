//! The fingerprints of the machines, side by side, and the primitives of the predictions.

use crate::markup::escape;
use measure_data::Run;
use measure_data::units::time;

/// The section.
pub fn section(runs: &[Run]) -> String {
    let mut out =
        String::from("<section id=\"machine\"><h2>Machine</h2><div class=\"scroll t\"><table>");
    out.push_str("<thead><tr><th></th>");
    for name in crate::names(runs) {
        out.push_str(&format!("<th>{}</th>", escape(&name)));
    }
    out.push_str("</tr></thead><tbody>");
    for (group, name) in names(runs) {
        let values: Vec<&str> =
            runs.iter().map(|r| r.machine.fact(&group, &name).unwrap_or("not known")).collect();
        let differs = values.windows(2).any(|w| w[0] != w[1]);
        row(&mut out, &format!("{group}: {name}"), &values, differs);
    }
    let clocks: Vec<String> = runs
        .iter()
        .map(|r| {
            format!(
                "{}, {:.3} GHz, {} to read",
                r.clock.name,
                r.clock.ticks_per_second / 1e9,
                time(r.clock.overhead_ticks / r.clock.ticks_per_second * 1e9)
            )
        })
        .collect();
    row(&mut out, "clock", &clocks.iter().map(String::as_str).collect::<Vec<_>>(), false);
    let hashes: Vec<&str> =
        runs.iter().map(|r| r.suite.binary_sha256.as_deref().unwrap_or("not known")).collect();
    let differs = hashes.windows(2).any(|w| w[0] != w[1]);
    row(&mut out, "SHA-256 of measure", &hashes, differs);
    out.push_str("</tbody></table></div>");
    out.push_str(&primitives(runs));
    out.push_str("</section>");
    out
}

fn row(out: &mut String, name: &str, values: &[&str], differs: bool) {
    out.push_str(&format!("<tr><th>{}</th>", escape(name)));
    for value in values {
        let class = if differs { "k warn" } else { "k" };
        out.push_str(&format!("<td class=\"{class}\">{}</td>", escape(value)));
    }
    out.push_str("</tr>");
}

fn names(runs: &[Run]) -> Vec<(String, String)> {
    let mut names = Vec::new();
    for fact in runs.iter().flat_map(|r| &r.machine.facts) {
        let name = (fact.group.clone(), fact.name.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn primitives(runs: &[Run]) -> String {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for p in runs.iter().flat_map(|r| &r.primitives) {
        if !names.iter().any(|(n, _)| *n == p.name) {
            names.push((&p.name, &p.method));
        }
    }
    if names.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<details class=\"more\"><summary>What the predictions are made of</summary>\
         <div class=\"scroll t\"><table><thead><tr><th>primitive</th><th>method</th>",
    );
    for name in crate::names(runs) {
        out.push_str(&format!("<th class=\"n\">{}</th>", escape(&name)));
    }
    out.push_str("</tr></thead><tbody>");
    for (name, method) in names {
        out.push_str(&format!("<tr><th>{}</th><td>{}</td>", escape(name), escape(method)));
        for run in runs {
            let value = run.primitives.iter().find(|p| p.name == name);
            let text = value.map_or("-".into(), |p| {
                if p.ns < 0.1 { format!("{:.1} ps", p.ns * 1e3) } else { time(p.ns) }
            });
            out.push_str(&format!("<td class=\"n\">{text}</td>"));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></details>");
    out
}
