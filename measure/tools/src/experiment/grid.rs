//! Tables of an experiment, as Markdown and as HTML.

use super::results::{Curve, Results};
use measure_data::units::size;
use measure_report::escape;
use std::fmt::Write;

/// A table: headings, and rows of which the first cell may have a name below it.
pub struct Grid {
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<(String, Option<String>, Vec<String>)>,
}

impl Grid {
    /// Returns the table of the workload, in every system.
    pub fn of_lines(r: &Results) -> Grid {
        let unit = if r.counting { "Instructions" } else { "Time" };
        let mut headings = vec![match r.best_of {
            Some(rounds) => format!("{unit}, best of {rounds} (and worst)"),
            None => format!("{unit}, median"),
        }];
        let totals = r.has_totals();
        let measured = r.measured();
        for system in &measured {
            headings.push(r.systems[*system].title.clone());
            if totals {
                headings.push("1,000 starts / 1,000".into());
            }
        }
        let baseline = r.baseline();
        let aims = r.lines.iter().any(|line| line.at_most.is_some());
        headings.extend(baseline.map(|_| "times less".into()));
        if aims {
            headings.extend(["aim".into(), String::new()]);
        }
        let rows = r.lines.iter().map(|line| {
            let mut cells = Vec::new();
            for system in &measured {
                let (value, total) = (line.values[*system], line.totals[*system]);
                cells.push(value.map_or("not measured".into(), |v| {
                    if r.best_of.is_some() {
                        return format!("{} ({})", r.show(v.median), r.show(v.high));
                    }
                    let half = if v.median > 0.0 { (v.high - v.low) / 2.0 / v.median } else { 0.0 };
                    format!("{} ± {:.1} %", r.show(v.median), half * 100.0)
                }));
                if totals {
                    cells.push(total.map_or(String::new(), |total| r.show(total)));
                }
            }
            if let Some(other) = baseline {
                let times = match (&line.values[0], &line.values[other]) {
                    (Some(ours), Some(theirs)) if ours.median > 0.0 => {
                        format!("{:.1}", theirs.median / ours.median)
                    }
                    _ => "-".into(),
                };
                cells.push(times);
            }
            if aims {
                cells.push(line.at_most.map_or(String::new(), |limit| r.show(limit)));
                let word = line.met().map_or("", |met| if met { "reached" } else { "not reached" });
                cells.push(word.into());
            }
            (line.title.clone(), Some(line.name.clone()), cells)
        });
        Grid { rows: rows.collect(), headings }
    }

    /// Returns the table of how often each work is done in a second; no rows if that is not asked.
    pub fn of_rates(r: &Results) -> Grid {
        let measured = r.measured();
        let mut headings: Vec<String> = r.rate.iter().cloned().collect();
        headings.extend(measured.iter().map(|system| r.systems[*system].title.clone()));
        let rate = |value: &Option<super::results::Value>| match value {
            Some(value) if value.median > 0.0 => format!("{:.0}", 1e9 / value.median),
            _ => "not measured".into(),
        };
        let rows = r.lines.iter().filter(|_| r.rate.is_some()).map(|line| {
            let cells = measured.iter().map(|system| rate(&line.values[*system]));
            (line.title.clone(), None, cells.collect())
        });
        Grid { rows: rows.collect(), headings }
    }

    /// Returns the table of a curve: a row for each size.
    pub fn of_curve(r: &Results, curve: &Curve) -> Grid {
        let unit = if r.counting { "Instructions" } else { "Time" };
        let mut headings = vec![format!("{unit}, median")];
        let measured = r.measured();
        headings.extend(measured.iter().map(|system| r.systems[*system].title.clone()));
        let rows = curve.points.iter().map(|point| {
            let place = if curve.unit == "bytes" {
                size(point.x)
            } else {
                format!("{:.0} {}", point.x, curve.unit)
            };
            let show = |value: &Option<super::results::Value>| {
                value.map_or("not measured".into(), |v| r.show(v.median))
            };
            (place, None, measured.iter().map(|system| show(&point.values[*system])).collect())
        });
        Grid { rows: rows.collect(), headings }
    }

    /// Returns the table of the counts of single starts.
    pub fn of_counts(r: &Results) -> Grid {
        let headings = [
            "One cold start",
            "faults on program text",
            "on library text",
            "others",
            "text read",
            "read in all",
            "requests",
        ];
        let rows = r.counts.iter().map(|counts| {
            let c = &counts.counted;
            let mut cells: Vec<String> =
                [c.program_text_faults, c.library_text_faults, c.other_faults]
                    .map(|number| number.to_string())
                    .to_vec();
            cells.extend([c.text_kib, c.storage_kib].map(|kib| format!("{kib} KiB")));
            cells.push(c.storage_requests.to_string());
            (format!("{}, {}", counts.name, counts.system), None, cells)
        });
        Grid { rows: rows.collect(), headings: headings.map(String::from).to_vec() }
    }

    /// Returns the table of the images that are kept.
    pub fn of_kept(r: &Results) -> Grid {
        let headings = ["Kept", "images", "in images", "in spaces that wait", "taken at"];
        let rows = r.kept.iter().map(|kept| {
            let mut cells = vec![kept.images.to_string()];
            cells.extend([kept.bytes, kept.heirs].map(|bytes| format!("{} KiB", bytes / 1024)));
            cells.push(kept.horizon.clone());
            (kept.name.clone(), None, cells)
        });
        Grid { rows: rows.collect(), headings: headings.map(String::from).to_vec() }
    }

    /// Returns the table of aims that are a fraction of another system's value.
    pub fn of_aims(r: &Results) -> Grid {
        let unit = if r.counting { "instructions" } else { "time" };
        let part = format!("part of the other's {unit}");
        let headings = ["Aim", &part, "aim", ""].map(String::from).to_vec();
        let rows = r.aims.iter().map(|aim| {
            let met = if aim.ratio <= aim.at_most { "reached" } else { "not reached" };
            let title = format!("{}: {} by {}", aim.name, aim.system, aim.other);
            (title, None, vec![format!("{:.3}", aim.ratio), aim.at_most.to_string(), met.into()])
        });
        Grid { rows: rows.collect(), headings }
    }

    /// Returns the table of other systems' limits.
    pub fn of_limits(r: &Results) -> Grid {
        let headings = ["Aim", "median", "aim", ""].map(String::from).to_vec();
        let rows = r.limits.iter().map(|limit| {
            let met = if limit.met() { "reached" } else { "not reached" };
            let title = format!("{}: {}", limit.name, limit.system);
            (title, None, vec![r.show(limit.value), r.show(limit.at_most), met.into()])
        });
        Grid { rows: rows.collect(), headings }
    }

    /// Returns the table of the numbers of calls after which a change pays off.
    pub fn of_break_even(r: &Results) -> Grid {
        let headings = ["Break-even", "the change costs", "a call before", "after", "calls"];
        let rows = r.break_even.iter().map(|even| {
            let calls = even.calls.map_or("never".into(), |calls| calls.to_string());
            let cells = [even.cost, even.before, even.after].map(|value| r.show(value));
            (even.name.clone(), None, cells.into_iter().chain([calls]).collect())
        });
        Grid { rows: rows.collect(), headings: headings.map(String::from).to_vec() }
    }

    /// Whether it shows anything.
    pub fn has_rows(&self) -> bool {
        !self.rows.is_empty()
    }

    /// As plain text.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.headings.join(" | "));
        for (title, _, cells) in &self.rows {
            let _ = writeln!(out, "{title} | {}", cells.join(" | "));
        }
        out
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("| {} |\n|---|", self.headings.join(" | "));
        out.push_str(&"---:|".repeat(self.headings.len().saturating_sub(1)));
        out.push('\n');
        for (title, name, cells) in &self.rows {
            let name = name.as_ref().map_or(String::new(), |name| format!("<br>`{name}`"));
            let _ = writeln!(out, "| {title}{name} | {} |", cells.join(" | "));
        }
        out
    }

    /// As HTML.
    pub fn html(&self) -> String {
        let mut out = String::from("<div><table><thead><tr>");
        for heading in &self.headings {
            let _ = write!(out, "<th>{}</th>", escape(heading));
        }
        out.push_str("</tr></thead><tbody>\n");
        for (title, name, cells) in &self.rows {
            let name = name
                .as_ref()
                .map_or(String::new(), |name| format!("<br><code>{}</code>", escape(name)));
            let _ = write!(out, "<tr><th>{}{name}</th>", escape(title));
            for cell in cells {
                let _ = write!(out, "<td>{}</td>", escape(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

/// Returns notes on the systems: their versions, and the values that could not be measured and why.
pub fn notes(r: &Results) -> Vec<(String, Vec<String>)> {
    let note = |system: &super::results::System| {
        let release = system.release.as_deref().unwrap_or("unknown");
        let words = if system.words.is_empty() {
            "nothing added to its command line".into()
        } else {
            format!("command line: {}", system.words)
        };
        let text = match &system.missing {
            Some(reason) => format!("{}: not measured: {reason} ({words})", system.title),
            None => format!("{}: release {release}, {words}", system.title),
        };
        let skipped =
            system.skipped.iter().map(|(name, reason)| format!("not measured: {name}: {reason}"));
        (text, skipped.collect())
    };
    let mut notes: Vec<_> = r.systems.iter().map(note).collect();
    if !r.scaling.is_empty() {
        notes.extend(super::scaling::notes(r).into_iter().map(|text| (text, Vec::new())));
    }
    notes
}
