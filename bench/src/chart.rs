//! Charts: a panel for each measure, a bar for each engine, as SVG that any browser shows.

mod growth;

use std::fmt::Write;

use crate::engines;
use crate::ledger::Figures;
use crate::measure::{self, Better};
use crate::report::short;
use crate::results::Results;

pub use growth::{Lines, growth};

/// Charts by file name: a title, and what is in it.
const CHARTS: &[(&str, &str, &[&str])] = &[
    (
        "writes.svg",
        "Writing",
        &[
            "load_sync_per_s",
            "load_rest_s",
            "put_p50_us",
            "writers8_per_s",
            "writers32_per_s",
            "block_per_s",
        ],
    ),
    ("reads.svg", "Reading", &["get_per_s", "get2_per_s", "miss_per_s", "miss2_per_s"]),
    (
        "scans.svg",
        "Scanning",
        &[
            "scan_full_loaded_per_s",
            "scan_full_compact_per_s",
            "scan10_compact_per_s",
            "scan100_compact_per_s",
        ],
    ),
    (
        "space.svg",
        "Opening, memory, space",
        &["reopen_clean_ms", "reopen_killed_ms", "anon_mb", "disk_load_mb", "churn_space_max"],
    ),
    (
        "churn.svg",
        "Under churn",
        &[
            "churn_per_s",
            "churn_p99_us",
            "churn_p999_us",
            "churn_scan_per_s",
            "churn_device",
            "churn_anon_max_mb",
        ],
    ),
    (
        "busy.svg",
        "With work in the background",
        &[
            "latency_p50_us",
            "latency_p999_us",
            "mixed_commit_per_s",
            "mixed_commit_p999_us",
            "mixed_get_per_s",
            "mixed_get_p999_us",
        ],
    ),
    ("cold.svg", "Not in the page cache", &["reopen_cold_ms", "cold_get_per_s", "cold_many_per_s"]),
    (
        "limited.svg",
        "Twice as much data as memory",
        &["limited_load_per_s", "limited_get_per_s", "limited_block_per_s"],
    ),
];

/// What every workload measures: a chart of nothing else is not drawn.
const ALWAYS: &[&str] = &["load_sync_per_s", "load_rest_s", "disk_load_mb"];

/// What is drawn of each ledger: the name of a figure, and which way it is good.
const LEDGERS: &[(&str, &[(&str, Better)])] = &[
    ("rubin", &[("changes per second", Better::High)]),
    (
        "csmt",
        &[
            ("changes per second, blocks of 300", Better::High),
            ("changes per second, blocks of 1000", Better::High),
        ],
    ),
    ("misaka", &[("v1 worst block, s", Better::Low), ("v2 worst block, s", Better::Low)]),
];

const WIDTH: usize = 760;
const LEFT: usize = 110;
const BAR: usize = 470;
const ROW: usize = 20;
const HEAD: usize = 34;
const TOP: usize = 40;

/// Every chart that something of its own was measured for, by file name.
pub fn all(results: &[Results]) -> Vec<(&'static str, String)> {
    let chart = |(file, title, names): &(&'static str, &str, &[&str])| {
        let panel = |name: &&str| Some((ALWAYS.contains(name), Panel::new(results, name)?));
        let (always, panels): (Vec<bool>, Vec<Panel>) = names.iter().filter_map(panel).unzip();
        always.contains(&false).then(|| (*file, draw(title, &panels)))
    };
    CHARTS.iter().filter_map(chart).collect()
}

/// The chart of a ledger, if there is something to draw.
pub fn ledger(name: &str, title: &str, all: &[Figures]) -> Option<String> {
    let (_, figures) = LEDGERS.iter().find(|(ledger, _)| *ledger == name)?;
    let panel = |(figure, better): &(&'static str, Better)| {
        let bar = |of: &'_ Figures| Some((of.engine.clone(), of.get(figure)?));
        let bars: Vec<(String, f64)> = all.iter().filter_map(bar).collect();
        (!bars.is_empty()).then_some(Panel { title: figure, better: *better, bars })
    };
    let panels: Vec<Panel> = figures.iter().filter_map(panel).collect();
    (!panels.is_empty()).then(|| draw(title, &panels))
}

/// Something measured, and what each engine has of it.
struct Panel {
    title: &'static str,
    better: Better,
    bars: Vec<(String, f64)>,
}

impl Panel {
    fn new(results: &[Results], name: &str) -> Option<Self> {
        let measure = measure::find(name)?;
        let bar = |results: &Results| Some((results.engine.clone(), results.figure(measure)?));
        let bars: Vec<(String, f64)> = results.iter().filter_map(bar).collect();
        (!bars.is_empty()).then_some(Self { title: measure.title, better: measure.better, bars })
    }

    fn height(&self) -> usize {
        HEAD + self.bars.len() * ROW
    }
}

/// The beginning of a chart.
fn open(title: &str, width: usize, height: usize) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"26\" font-size=\"18\" font-weight=\"bold\">{title}</text>\n"
    )
}

fn better_text(better: Better) -> &'static str {
    match better {
        Better::High => "more is better",
        Better::Low => "less is better",
        Better::Neither => "",
    }
}

fn draw(title: &str, panels: &[Panel]) -> String {
    let height = TOP + panels.iter().map(Panel::height).sum::<usize>() + 10;
    let mut text = open(title, WIDTH, height);
    let mut y = TOP;
    for panel in panels {
        let better = better_text(panel.better);
        let _ = writeln!(
            text,
            "<text x=\"10\" y=\"{}\"><tspan font-weight=\"bold\">{}</tspan> <tspan fill=\"#718096\">{better}</tspan></text>",
            y + 20,
            panel.title
        );
        y += HEAD - 6;
        let most = panel.bars.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
        for (engine, value) in &panel.bars {
            let width = (value / most * BAR as f64).max(1.0);
            let _ = writeln!(
                text,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{engine}</text>\
                 <rect x=\"{LEFT}\" y=\"{}\" width=\"{width:.1}\" height=\"14\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{}</text>",
                LEFT - 8,
                y + 12,
                y + 1,
                color(engine),
                LEFT as f64 + width + 6.0,
                y + 12,
                short(*value)
            );
            y += ROW;
        }
        y += 6;
    }
    text.push_str("</svg>\n");
    text
}

fn color(engine: &str) -> &'static str {
    match engine {
        name if engines::is_peer(name) => "#a0aec0",
        "floor" => "#e2e8f0",
        _ => "#2b6cb0",
    }
}
