//! The picture: a bar for each start, from left to right in order of time, and the second start
//! again in a scale of its own.

use super::account::Explained;
use crate::experiment::picture::{COLOURS, STYLE, escape};
use crate::numbers::grouped;
use hayate_start_account::{Part, Stage, Start};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 8.0;
const BAR: f64 = 34.0;
const STEP: f64 = 74.0;
const TOP: f64 = 74.0;

/// The picture.
pub fn draw(explained: &Explained) -> String {
    let most = explained.starts.iter().map(|start| explained.total(start)).max().unwrap_or(0);
    let mut bars: Vec<(String, &Start, u64)> = Vec::new();
    for (start, name) in explained.starts.iter().zip(["First start", "Second start"]) {
        bars.push((name.into(), start, most));
    }
    if let [_, second] = explained.starts.as_slice() {
        bars.push(("Second start, enlarged".into(), second, explained.total(second)));
    }
    let rows = Stage::ALL.len().div_ceil(4) as f64;
    let height = TOP + STEP * bars.len() as f64 + 20.0 * rows + 12.0;
    let unit = if explained.counting { "instructions" } else { "ns" };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>Two starts of {0}</title><style>{STYLE}.b{{stroke:#8888;stroke-width:.5}}</style>\
         <text class=\"t\" x=\"{LEFT}\" y=\"22\">Two starts of {0}, by {1}</text>\
         <text class=\"n\" x=\"{LEFT}\" y=\"42\">{unit} from left to right; thin lines part the steps \
         of a stage</text>\n",
        escape(&shortened(&explained.command)),
        explained.how,
    );
    for (index, (name, start, scale)) in bars.iter().enumerate() {
        let y = TOP + STEP * index as f64;
        let total = grouped(explained.total(start));
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">{name}: {total} {unit}</text>", y - 6.0);
        bar(&mut out, explained, start, *scale, y);
    }
    for (index, stage) in Stage::ALL.iter().enumerate() {
        let x = LEFT + (index % 4) as f64 * (WIDTH - 2.0 * LEFT) / 4.0;
        let y = TOP + STEP * bars.len() as f64 + 20.0 * (index / 4) as f64;
        let _ = writeln!(
            out,
            "<rect class=\"s{}\" x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\"/>\
             <text x=\"{}\" y=\"{y}\">{}</text>",
            index % COLOURS,
            y - 11.0,
            x + 17.0,
            stage.title()
        );
    }
    out.push_str("</svg>\n");
    out
}

/// One start, from left to right.
fn bar(out: &mut String, explained: &Explained, start: &Start, scale: u64, y: f64) {
    let scale = (WIDTH - 2.0 * LEFT) / scale.max(1) as f64;
    let mut x = LEFT;
    for (colour, stage) in Stage::ALL.iter().enumerate() {
        let parts = Part::ALL.iter().filter(|part| part.stage() == *stage);
        for part in parts {
            let value = explained.part(start, *part);
            if value == 0 {
                continue;
            }
            let width = value as f64 * scale;
            let _ = writeln!(
                out,
                "<rect class=\"b s{}\" x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{BAR}\">\
                 <title>{}: {}, {}</title></rect>",
                colour % COLOURS,
                stage.title(),
                part.title(),
                grouped(value)
            );
            x += width;
        }
    }
}

/// Returns a command shortened to fit into the title.
fn shortened(command: &str) -> String {
    const FITS: usize = 70;
    if command.chars().count() <= FITS {
        return command.into();
    }
    command.chars().take(FITS - 1).chain(['…']).collect()
}
