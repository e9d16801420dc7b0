//! The growth: a small panel of lines for each measure, both axes logarithmic.

use std::fmt::Write;

use super::{better_text, open};
use crate::document::count;
use crate::measure::Better;
use crate::report::short;

const COLUMNS: usize = 2;
const CELL_WIDTH: usize = 440;
const CELL_HEIGHT: usize = 250;
const TOP: usize = 44;
/// Where the lines are in a cell.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 420.0;
const UPPER: f64 = 36.0;
const LOWER: f64 = 214.0;
/// Values below this share of the largest are drawn there: a logarithm needs a floor.
const LEAST: f64 = 1e-6;

/// A measure, and the line of each engine: a value for each size, or none.
pub struct Lines<'a> {
    pub title: &'a str,
    pub better: Better,
    pub lines: Vec<(&'a str, Vec<Option<f64>>)>,
}

/// Where a value is between two limits, on a logarithmic axis from `start` to `end`.
struct Axis {
    least: f64,
    most: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let span = (self.most / self.least).ln();
        let part = if span > 0.0 { (value.max(self.least) / self.least).ln() / span } else { 0.5 };
        self.start + part * (self.end - self.start)
    }
}

/// All panels, and in the cell after the last what the colors mean.
pub fn growth(title: &str, keys: &[u64], panels: &[Lines<'_>]) -> String {
    let rows = (panels.len() + 1).div_ceil(COLUMNS);
    let mut text = open(title, COLUMNS * CELL_WIDTH, TOP + rows * CELL_HEIGHT);
    let corner =
        |number: usize| (number % COLUMNS * CELL_WIDTH, TOP + number / COLUMNS * CELL_HEIGHT);
    for (number, panel) in panels.iter().enumerate() {
        let (x, y) = corner(number);
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">");
        draw(&mut text, keys, panel);
        text.push_str("</g>\n");
    }
    let mut engines: Vec<&str> = Vec::new();
    for (engine, _) in panels.iter().flat_map(|panel| &panel.lines) {
        if !engines.contains(engine) {
            engines.push(engine);
        }
    }
    let (x, y) = corner(panels.len());
    for (number, engine) in engines.iter().enumerate() {
        let y = y + 44 + number * 22;
        let (color, width) = style(engine);
        let _ = writeln!(
            text,
            "<line x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{color}\" \
             stroke-width=\"{width}\"/><text x=\"{}\" y=\"{}\">{engine}</text>",
            x + 70,
            x + 110,
            x + 120,
            y + 4
        );
    }
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, keys: &[u64], panel: &Lines<'_>) {
    let better = better_text(panel.better);
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"20\"><tspan font-weight=\"bold\">{}</tspan> \
         <tspan fill=\"#718096\">{better}</tspan></text>",
        panel.title
    );
    let values = panel.lines.iter().flat_map(|(_, values)| values.iter().flatten().copied());
    let most = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    let least = values.filter(|value| *value > 0.0).fold(most, f64::min).max(most * LEAST);
    // Whole decades, so that the axis has numbers that mean something.
    let least = 10f64.powf(least.log10().floor());
    let most = 10f64.powf(most.log10().ceil()).max(least * 10.0);
    let up = Axis { least, most, start: LOWER, end: UPPER };
    let sizes = keys.iter().map(|keys| *keys as f64);
    let along = Axis {
        least: sizes.clone().fold(f64::MAX, f64::min),
        most: sizes.fold(1.0, f64::max),
        start: LEFT + 20.0,
        end: RIGHT - 20.0,
    };
    let decades = (most / least).log10().round() as i32;
    // No more numbers than have room.
    let step = (decades as usize).div_ceil(6).max(1);
    for decade in (0..=decades).step_by(step) {
        let value = least * 10f64.powi(decade);
        let y = up.at(value);
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\" stroke=\"#e2e8f0\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"11\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            short(value)
        );
    }
    for keys in keys {
        let x = along.at(*keys as f64);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\">{}</text>",
            LOWER + 18.0,
            count(*keys)
        );
    }
    // The first is ours: drawn last, it is above the others.
    for (engine, values) in panel.lines.iter().rev() {
        let (color, width) = style(engine);
        let points: Vec<(f64, f64)> = keys
            .iter()
            .zip(values)
            .filter_map(|(keys, value)| Some((along.at(*keys as f64), up.at((*value)?))))
            .collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>",
            path.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{width}\" fill=\"{color}\"/>"
            );
        }
    }
}

/// The color and the width of an engine's line.
fn style(engine: &str) -> (&'static str, f64) {
    match engine {
        "kvb" | "kvb-sync" => ("#2b6cb0", 3.5),
        "lmdb" => ("#c05621", 1.5),
        "rocksdb" => ("#b7791f", 1.5),
        "redb" => ("#c53030", 1.5),
        "fjall" => ("#2f855a", 1.5),
        "sqlite" => ("#4a5568", 1.5),
        "parity-db" => ("#b83280", 1.5),
        "candystore" => ("#6b46c1", 1.5),
        _ => ("#a0aec0", 1.5),
    }
}
