//! The picture: a bar for each start that is shown, from left to right in order of time, and the
//! second start again in a scale of its own.

use super::account::Explained;
use crate::numbers::grouped;
use hayate_start_account::{Began, Stage, Start, StartPart};
use measure_chart::{Anchor, COLOURS, LEGEND_LINE, Picture, Scale};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 8.0;
const BAR: f64 = 34.0;
const STEP: f64 = 74.0;
const TOP: f64 = 74.0;
/// Names in a line of the legend.
const COLUMNS: usize = 4;

/// The picture.
pub fn draw(explained: &Explained) -> String {
    let bars = bars(explained);
    let bottom = TOP + STEP * bars.len() as f64;
    let height = bottom + LEGEND_LINE * Stage::ALL.len().div_ceil(COLUMNS) as f64 + 12.0;
    let unit = if explained.counting { "instructions" } else { "ns" };
    let command = shortened(&explained.command);
    let title = format!("Starts of {command}, by {}", explained.how);
    let mut picture = Picture::alone(WIDTH, height, &title);
    let note = format!("{unit} from left to right; thin lines part the steps of a stage");
    picture.text("tick", (LEFT, 42.0), Anchor::Start, &note);
    for (index, (name, start, most)) in bars.into_iter().enumerate() {
        let y = TOP + STEP * index as f64;
        let name = format!("{name}: {} {unit}", grouped(explained.total(start)));
        picture.text("", (LEFT, y - 6.0), Anchor::Start, &name);
        bar(&mut picture, explained, start, most, y);
    }
    for (index, stage) in Stage::ALL.iter().enumerate() {
        let x = LEFT + (index % COLUMNS) as f64 * (WIDTH - 2.0 * LEFT) / COLUMNS as f64;
        let y = bottom - 11.0 + LEGEND_LINE * (index / COLUMNS) as f64;
        picture.legend_name((x, y), index, stage.title());
    }
    picture.finish()
}

/// The bars from above: name, start, and what would fill the width.
fn bars(explained: &Explained) -> Vec<(&'static str, &Start, u64)> {
    let most = explained.starts.iter().map(|start| explained.total(start)).max().unwrap_or(0);
    let title = |start: &Start, index| match (start.began, index) {
        (Began::Image, _) => "Start from the image",
        (_, 0) => "First start",
        _ => "Second start",
    };
    let starts = explained.starts.iter().enumerate();
    let mut bars: Vec<_> =
        starts.map(|(index, start)| (title(start, index), start, most)).collect();
    if let Some(second) = explained.starts.get(1).filter(|start| start.began != Began::Image) {
        bars.push(("Second start, enlarged", second, explained.total(second)));
    }
    bars
}

/// One start, from left to right.
fn bar(picture: &mut Picture, explained: &Explained, start: &Start, most: u64, y: f64) {
    let scale = Scale::linear(0.0, most as f64, LEFT, WIDTH - LEFT);
    let mut before = 0;
    for (index, stage) in Stage::ALL.iter().enumerate() {
        let class = format!("part f{}", index % COLOURS);
        for part in StartPart::ALL.iter().filter(|part| part.stage() == *stage) {
            let value = explained.part(start, *part);
            if value == 0 {
                continue;
            }
            let (from, to) = (scale.at(before as f64), scale.at((before + value) as f64));
            let text = format!("{}: {}, {}", stage.title(), part.title(), grouped(value));
            picture.told(&class, (from, y), (to - from, BAR), &text);
            before += value;
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
