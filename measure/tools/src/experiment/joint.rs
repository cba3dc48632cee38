//! The joint report: everything in the folder of results, as one self-contained page of HTML, as
//! one JSON file, and as an index in Markdown.

use super::grid::{Grid, notes};
use super::page::{others, said, tables};
use super::results::{FORMAT, Limit, Line, Results, VERSION};
use super::{curves, picture, scaling};
use crate::output::save;
use anyhow::{Context, Result};
use measure_data::scaling::Reach;
use measure_report::escape;
use serde_json::json;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1rem;\
max-width:72rem;color:#222;background:#fff}h1,h2{line-height:1.2}p{max-width:52rem}section{margin:3rem 0}\
div{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;margin:1rem 0}\
th,td{padding:.3rem .45rem;border-bottom:1px solid #8884;text-align:right;vertical-align:top;\
white-space:nowrap}thead th{white-space:normal}tbody th,thead th:first-child{text-align:left;\
font-weight:normal}code{font-size:.8rem;color:#777}svg{display:block;width:100%;max-width:50rem;height:auto;margin:1rem 0}\
li{margin:.2rem 0}@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}}\
@media print{body{font-size:11px;max-width:none}section{break-before:page}\
svg{max-height:14cm;break-inside:avoid}tr{break-inside:avoid}th,td{white-space:normal;padding:.1rem .3rem}}\
@media(max-width:40rem){body{padding:.6rem}tbody th{white-space:normal;min-width:9rem}}";

/// Returns the results of every earlier run in `folder`, in the order of `names`; files of another
/// version or kind are left out.
pub fn earlier(folder: &Path, names: &[String]) -> Vec<Results> {
    let read = |name: &String| {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).ok()?;
        let results: Results = serde_json::from_str(&text).ok()?;
        (results.format == FORMAT && results.version == VERSION).then_some(results)
    };
    names.iter().filter_map(read).collect()
}

/// Writes `report.html`, `report.json` and `README.md`. `failed`: experiments that failed, and why.
pub fn write(folder: &Path, all: &[Results], failed: &[(String, String)]) -> Result<()> {
    save(&folder.join("report.html"), &html(all, failed))?;
    let value = json!({
        "format": "hayate-report",
        "version": 1,
        "experiments": serde_json::to_value(all).context("results")?,
        "failed": failed,
    });
    save(&folder.join("report.json"), &format!("{value:#}\n"))?;
    save(&folder.join("README.md"), &index(folder, all, failed))
}

fn html(all: &[Results], failed: &[(String, String)]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Hayate: experiments</title>\
         <style>{STYLE}</style></head><body><h1>Hayate: experiments</h1>\
         <p>Made by <code>./hayate experiment all</code>.</p><ul>\n"
    );
    for r in all {
        let _ = writeln!(out, "<li><a href=\"#{}\">{}</a></li>", escape(&r.name), escape(&r.title));
    }
    out.push_str("</ul>\n");
    for (name, reason) in failed {
        let _ = writeln!(
            out,
            "<p><strong>{} could not be measured:</strong> {}</p>",
            escape(name),
            escape(reason)
        );
    }
    all.iter().for_each(|r| section(&mut out, r));
    out.push_str("</body></html>\n");
    out
}

/// One experiment.
fn section(out: &mut String, r: &Results) {
    let _ = writeln!(
        out,
        "<section id=\"{}\"><h2>{}</h2><p>{}</p><p>{}</p>",
        escape(&r.name),
        escape(&r.title),
        escape(&r.question),
        escape(&said(r))
    );
    if !r.lines.is_empty() {
        let _ = write!(out, "<div>{}</div>", picture::draw(r));
    }
    tables(r).chain(others(r)).for_each(|table| out.push_str(&table.html()));
    for part in r.parts() {
        let _ = write!(
            out,
            "<h3>{}</h3><p>{}</p><div>{}</div>",
            escape(&part.title),
            escape(&said(part)),
            picture::draw(part)
        );
        tables(part).for_each(|table| out.push_str(&table.html()));
        if part.machine != r.machine {
            machine(out, part);
        }
    }
    if !r.scaling.is_empty() {
        let _ = write!(out, "<div>{}</div>", scaling::draw(r));
    }
    for scaled in &r.scaling {
        out.push_str(&Grid::of_scaling(r, scaled).html());
    }
    for curve in &r.sweeps {
        let _ = write!(out, "<div>{}</div>", curves::draw(r, curve));
        out.push_str(&Grid::of_curve(r, curve).html());
    }
    machine(out, r);
    out.push_str("</section>\n");
}

/// The machine, the systems, and what was not measured.
fn machine(out: &mut String, r: &Results) {
    let _ = write!(out, "<p>{}</p><ul>", escape(&r.machine));
    for (text, skipped) in notes(r) {
        let _ = write!(out, "<li>{}", escape(&text));
        for text in skipped {
            let _ = write!(out, "<br>{}", escape(&text));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>");
}

fn index(folder: &Path, all: &[Results], failed: &[(String, String)]) -> String {
    let mut out = String::from(
        "# Results\n\n`./hayate experiment all` measures everything anew and writes this folder; \
         [report.html](report.html) has all of it on one page.\n\n\
         | experiment | question | aims reached |\n|---|---|---|\n",
    );
    for r in all {
        let met: Vec<bool> = std::iter::once(r).chain(&r.further).flat_map(met).collect();
        let (reached, aims) = (met.iter().filter(|met| **met).count(), met.len());
        let aims = if aims == 0 { "none set".into() } else { format!("{reached} of {aims}") };
        let question = first_sentence(&r.question);
        let _ = writeln!(out, "| [{}]({}.md) | {question} | {aims} |", r.title, r.name);
    }
    if folder.join("compare.md").exists() {
        out.push_str(
            "| [Hayate beside Linux](compare.md) | What does every call and every start cost, by \
             `./hayate compare`? | none set |\n",
        );
    }
    for (name, reason) in failed {
        let _ = writeln!(out, "| {name} | could not be measured: {reason} | |");
    }
    out
}

/// Whether each aim is reached, in the order of the tables.
fn met(r: &Results) -> Vec<bool> {
    let scaling = r.reaches().map(|reach| reach == Reach::Reached);
    let parts = r.aims.iter().map(|aim| aim.ratio <= aim.at_most);
    let lines = r.lines.iter().filter_map(Line::met);
    lines.chain(parts).chain(r.limits.iter().map(Limit::met)).chain(scaling).collect()
}

/// A text up to its first full stop or question mark that ends a sentence.
fn first_sentence(text: &str) -> &str {
    let ends = text.match_indices(['.', '?']).map(|(at, _)| at + 1);
    let mut ends = ends.filter(|&end| text[end..].starts_with(' ') || end == text.len());
    ends.next().map_or(text, |end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::first_sentence;

    #[test]
    fn sentences_end_where_a_space_follows() {
        assert_eq!(first_sentence("Is 1.5 more? It is."), "Is 1.5 more?");
        assert_eq!(first_sentence("It is."), "It is.");
        assert_eq!(first_sentence("no end"), "no end");
        assert_eq!(first_sentence(""), "");
    }
}
