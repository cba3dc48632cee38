//! A picture: shapes with classes.

use svg::node::element::path::Data;
use svg::node::element::{Element, Style};
use svg::node::{Node, Text};

const STYLE: &str = include_str!("picture.css");

/// Which point of a text is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// A place on an axis with its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Where.
    pub at: f64,
    /// The label.
    pub text: String,
    /// Which point of the label is there.
    pub anchor: Anchor,
}

impl Tick {
    /// A label that is centred on its place.
    pub fn new(at: f64, text: impl Into<String>) -> Self {
        Self { at, text: text.into(), anchor: Anchor::Middle }
    }
}

/// A picture that is being drawn. Positions are counted from the upper left corner.
pub struct Picture {
    root: Element,
    /// What follows the element: a file ends with the end of a line.
    end: &'static str,
}

impl Picture {
    /// A picture of its own, with a title and the styles for light and dark backgrounds.
    pub fn alone(width: f64, height: f64, title: &str) -> Self {
        let mut picture = Self::empty(width, height);
        picture.end = "\n";
        picture.root.assign("xmlns", "http://www.w3.org/2000/svg");
        picture.root.assign("role", "img");
        picture.root.append(self::title(title));
        picture.root.append(Style::new(STYLE.trim_end()));
        picture.text("title", (8.0, 22.0), Anchor::Start, title);
        picture
    }

    /// A picture in a page, which has the styles. `content` tells readers who cannot see it.
    pub fn in_page(width: f64, height: f64, content: &str) -> Self {
        let mut picture = Self::empty(width, height);
        picture.root.assign("role", "img");
        picture.root.assign("aria-label", plain(content));
        picture
    }

    /// A picture in a page that only shows what the text beside it says.
    pub fn ornament(width: f64, height: f64) -> Self {
        let mut picture = Self::empty(width, height);
        picture.root.assign("aria-hidden", "true");
        picture
    }

    fn empty(width: f64, height: f64) -> Self {
        let mut root = Element::new("svg");
        root.assign("viewBox", (0.0, 0.0, round(width), round(height)));
        Self { root, end: "" }
    }

    /// Returns the `<svg>` element.
    pub fn finish(self) -> String {
        format!("{}{}", self.root, self.end)
    }

    /// A rectangle from its upper left corner.
    pub fn rectangle(&mut self, class: &str, at: (f64, f64), size: (f64, f64)) {
        self.root.append(rectangle(class, at, size));
    }

    /// A rectangle with rounded corners.
    pub fn rounded(&mut self, class: &str, at: (f64, f64), size: (f64, f64), radius: f64) {
        let mut shape = rectangle(class, at, size);
        shape.assign("rx", round(radius));
        self.root.append(shape);
    }

    /// A rectangle that shows a text when it is pointed at.
    pub fn told(&mut self, class: &str, at: (f64, f64), size: (f64, f64), text: &str) {
        let mut shape = rectangle(class, at, size);
        shape.append(title(text));
        self.root.append(shape);
    }

    /// A line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ends = [("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)];
        self.root.append(shape("line", class, &ends));
    }

    /// A text; `at` is on its base line.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let mut shape = shape("text", class, &[("x", at.0), ("y", at.1)]);
        match anchor {
            Anchor::Start => {}
            Anchor::Middle => shape.assign("text-anchor", "middle"),
            Anchor::End => shape.assign("text-anchor", "end"),
        }
        shape.append(Text::new(plain(text)));
        self.root.append(shape);
    }

    /// Lines from each point to the next.
    pub fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let mut shape = shape("polyline", class, &[]);
        shape.assign("points", list(points));
        self.root.append(shape);
    }

    /// The area between points.
    pub fn polygon(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let mut shape = shape("polygon", class, &[]);
        shape.assign("points", list(points));
        self.root.append(shape);
    }

    /// A filled circle.
    pub fn circle(&mut self, class: &str, middle: (f64, f64), radius: f64) {
        let numbers = [("cx", middle.0), ("cy", middle.1), ("r", radius)];
        self.root.append(shape("circle", class, &numbers));
    }

    /// Columns of one width that stand on a line, each given by its left end and its height: one
    /// element for many.
    pub fn columns(
        &mut self,
        class: &str,
        ground: f64,
        width: f64,
        columns: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let short = |value: f64| round(value) as f32;
        let data = columns.into_iter().fold(Data::new(), |data, (x, height)| {
            data.move_to((short(x), short(ground)))
                .vertical_line_by(short(-height))
                .horizontal_line_by(short(width))
                .vertical_line_by(short(height))
                .close()
        });
        let mut shape = shape("path", class, &[]);
        shape.assign("d", data);
        self.root.append(shape);
    }

    /// A horizontal axis: a line of the grid for each tick, its label `below` the lines.
    pub fn axis_below(&mut self, ticks: &[Tick], (top, bottom): (f64, f64), below: f64) {
        for tick in ticks {
            self.line("grid", (tick.at, top), (tick.at, bottom));
            self.text("tick", (tick.at, bottom + below), tick.anchor, &tick.text);
        }
    }

    /// A vertical axis: a line of the grid for each tick, its label at the left of the lines.
    pub fn axis_left(
        &mut self,
        ticks: impl IntoIterator<Item = (f64, String)>,
        (left, right): (f64, f64),
    ) {
        for (at, text) in ticks {
            self.line("grid", (left, at), (right, at));
            self.text("tick", (left - 8.0, at + 4.0), Anchor::End, &text);
        }
    }
}

/// An element with numbers as attributes.
fn shape(name: &str, class: &str, numbers: &[(&str, f64)]) -> Element {
    let mut shape = Element::new(name);
    if !class.is_empty() {
        shape.assign("class", class);
    }
    for (name, number) in numbers {
        shape.assign(*name, round(*number));
    }
    shape
}

fn rectangle(class: &str, at: (f64, f64), size: (f64, f64)) -> Element {
    let numbers = [("x", at.0), ("y", at.1), ("width", size.0), ("height", size.1)];
    shape("rect", class, &numbers)
}

fn title(text: &str) -> Element {
    let mut title = Element::new("title");
    title.append(Text::new(plain(text)));
    title
}

fn list(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let points = points.into_iter().map(|(x, y)| format!("{},{}", round(x), round(y)));
    points.collect::<Vec<_>>().join(" ")
}

/// A hundredth of a unit is less than anybody sees.
fn round(value: f64) -> f64 {
    // Adding zero makes minus zero plain.
    (value * 100.0).round() / 100.0 + 0.0
}

/// SVG has no control characters, not even as entities.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut picture = Picture::in_page(9.0, 9.0, "a \"b\" & <c>");
        picture.text("tick", (1.0, 2.0), Anchor::End, "<script>&\u{7}");
        let svg = picture.finish();
        assert!(svg.contains("&lt;script&gt;&amp; </text>"), "{svg}");
        assert!(svg.contains("aria-label=") && !svg.contains("<c>"), "{svg}");
        assert!(!svg.contains("\"b\""), "{svg}");
    }

    #[test]
    fn numbers_are_short_and_finite_zero_is_plain() {
        let mut picture = Picture::ornament(10.0, 5.5);
        picture.line("grid", (-0.001, 1.0 / 3.0), (100.0, 2.5));
        let svg = picture.finish();
        assert!(svg.contains("viewBox=\"0 0 10 5.5\""), "{svg}");
        assert!(svg.contains("x1=\"0\" x2=\"100\" y1=\"0.33\" y2=\"2.5\""), "{svg}");
    }

    #[test]
    fn equal_drawings_give_equal_bytes() {
        let draw = || {
            let mut picture = Picture::alone(100.0, 50.0, "title");
            picture.told("f0", (1.0, 2.0), (3.0, 4.0), "about");
            picture.columns("f1", 9.0, 2.0, [(0.0, 1.0), (3.0, 2.5)]);
            picture.axis_below(&[Tick::new(5.0, "5")], (0.0, 40.0), 9.0);
            picture.finish()
        };
        assert_eq!(draw(), draw());
        assert!(draw().starts_with("<svg ") && draw().ends_with("</svg>\n"));
        assert!(draw().contains("prefers-color-scheme:dark"));
    }
}
