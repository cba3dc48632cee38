//! Self-contained HTML reports of measurement runs: one file, no network, no JavaScript.
//!
//! [`html`] takes one run, or several to show side by side; the others are compared with the first.
//! From top to bottom: `lib` assembles the page, `tables` and `figures` select the results to show,
//! `chart` draws them with the shapes of `measure-chart`, `markup` escapes. Colours are classes
//! that the style sheet resolves for light, dark and paper.
#![forbid(unsafe_code)]

mod chart;
mod figures;
mod machines;
mod markup;
mod overview;
mod tables;

pub use markup::escape;
use measure_data::Run;

const STYLE: &str = include_str!("style.css");

/// The report of `runs` as one HTML page.
pub fn html(runs: &[Run]) -> String {
    let title = match runs {
        [] => "no runs".to_owned(),
        [one] => one.label.clone(),
        [first, ..] => format!("{} and {} more", first.label, runs.len() - 1),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>measure: {}</title><style>{STYLE}</style></head><body><main>\n",
        escape(&title)
    );
    page.push_str(&overview::section(runs));
    for area in areas(runs) {
        let name = match area.as_str() {
            "cpu" => "Processor and system calls",
            "memory" => "Memory",
            "net" => "Network",
            "file" => "Files",
            other => other,
        };
        page.push_str(&format!("<section id=\"{0}\"><h2>{1}</h2>\n", escape(&area), escape(name)));
        page.push_str(&figures::of_area(runs, &area));
        page.push_str(&tables::of_area(runs, &area));
        page.push_str("</section>\n");
    }
    page.push_str(&tables::skipped(runs));
    page.push_str(&machines::section(runs));
    page.push_str(
        "<footer><p>Times are medians with their 95 % bootstrap interval over processes and \
         samples. A prediction is the sum of base hardware cost and estimated software cost, \
         computed from primitives measured on the same machine in the same run.</p></footer>\
         </main></body></html>\n",
    );
    page
}

/// Returns short names for runs in legends and headings: their labels if those are short and
/// distinct, otherwise letters, which the head of the page explains.
fn names(runs: &[Run]) -> Vec<String> {
    let short = |i: usize, run: &Run| {
        let alone = runs.iter().filter(|r| r.label == run.label).count() == 1;
        let letter = char::from(b'A' + (i % 26) as u8);
        match run.label.chars().count() {
            1..=20 if alone => run.label.clone(),
            _ => format!("{letter}{}", if i < 26 { String::new() } else { (i / 26).to_string() }),
        }
    };
    runs.iter().enumerate().map(|(i, run)| short(i, run)).collect()
}

/// The areas that any run has results in, in the order of the first.
fn areas(runs: &[Run]) -> Vec<String> {
    let mut areas: Vec<String> = Vec::new();
    for result in runs.iter().flat_map(|r| &r.results) {
        if !areas.iter().any(|a| a == result.area()) {
            areas.push(result.area().to_owned());
        }
    }
    areas
}
