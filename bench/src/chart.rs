//! Charts: a panel for each measure, a bar for each engine, as SVG that any browser shows.

use std::fmt::Write;

use crate::engines;
use crate::report::{Better, MEASURES, Measure, Results, short};

/// Charts by file name: a title, and what is in it.
const CHARTS: &[(&str, &str, &[&str])] = &[
    (
        "writes.svg",
        "Writing",
        &["load_sync_per_s", "put_p50_us", "writers8_per_s", "writers32_per_s", "block_per_s"],
    ),
    ("reads.svg", "Reading", &["get_per_s", "get2_per_s", "miss_per_s"]),
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
        &["churn_per_s", "churn_p99_us", "churn_p999_us", "latency_p999_us", "churn_device"],
    ),
];

const WIDTH: usize = 760;
const LEFT: usize = 110;
const BAR: usize = 470;
const ROW: usize = 20;
const HEAD: usize = 34;
const TOP: usize = 40;

/// Every chart that something was measured for, by file name.
pub fn all(results: &[Results]) -> Vec<(&'static str, String)> {
    let chart = |(file, title, names): &(&'static str, &str, &[&str])| {
        let panels: Vec<Panel<'_>> =
            names.iter().filter_map(|name| Panel::new(results, name)).collect();
        (!panels.is_empty()).then(|| (*file, draw(title, &panels)))
    };
    CHARTS.iter().filter_map(chart).collect()
}

/// A measure, and what each engine has of it.
struct Panel<'a> {
    measure: &'static Measure,
    bars: Vec<(&'a str, f64)>,
}

impl<'a> Panel<'a> {
    fn new(results: &'a [Results], name: &str) -> Option<Self> {
        let measure = MEASURES.iter().find(|measure| measure.name == name)?;
        let bars: Vec<(&str, f64)> = results
            .iter()
            .filter_map(|results| Some((results.engine.as_str(), results.median(measure)?)))
            .collect();
        (!bars.is_empty()).then_some(Self { measure, bars })
    }

    fn height(&self) -> usize {
        HEAD + self.bars.len() * ROW
    }
}

fn draw(title: &str, panels: &[Panel<'_>]) -> String {
    let height = TOP + panels.iter().map(Panel::height).sum::<usize>() + 10;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"10\" y=\"26\" font-size=\"18\" font-weight=\"bold\">{title}</text>\n"
    );
    let mut y = TOP;
    for panel in panels {
        let better = match panel.measure.better {
            Better::High => "more is better",
            Better::Low => "less is better",
            Better::Neither => "",
        };
        let _ = writeln!(
            text,
            "<text x=\"10\" y=\"{}\"><tspan font-weight=\"bold\">{}</tspan> <tspan fill=\"#718096\">{better}</tspan></text>",
            y + 20,
            panel.measure.title
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
