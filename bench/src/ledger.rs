//! The ledgers: programs beside this one, with figures of their own.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Engines that ledgers stand on.
const ENGINES: &[&str] = &["kvb", "redb", "fjall", "rocksdb"];
/// How many of what there were: the same for all engines, so no figure.
const SIZES: &[&str] = &["coins", "entries", "objects"];

/// The figures of one engine, by their names.
pub struct Figures {
    pub engine: String,
    /// What there was, and how many.
    pub size: (String, u64),
    pub figures: Vec<(String, f64)>,
}

impl Figures {
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(figure, _)| figure == name).map(|(_, value)| *value)
    }
}

/// Runs the ledger called `name`, which writes its figures to `path`.
pub fn run(
    name: &str,
    options: &[&str],
    engines: Option<&[String]>,
    dir: &Path,
    path: &Path,
) -> Result<()> {
    let program = std::env::current_exe()?.with_file_name(name);
    let part = path.with_extension("part");
    let mut command = Command::new(&program);
    command.args(options).arg("--dir").arg(dir).arg("--json").arg(&part);
    if let Some(engines) = engines {
        let known: Vec<&str> =
            engines.iter().map(String::as_str).filter(|name| ENGINES.contains(name)).collect();
        if known.is_empty() {
            eprintln!("    on none of these engines");
            return Ok(());
        }
        command.args(["--engines", &known.join(",")]);
    }
    // What it prints is in the report too.
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| program.display().to_string())?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(std::fs::rename(part, path)?)
}

/// Reads what a ledger wrote.
pub fn read(path: &Path) -> Result<Vec<Figures>> {
    let value: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    value.as_array().context("no list")?.iter().map(parse).collect()
}

fn parse(value: &Value) -> Result<Figures> {
    let engine = value["engine"].as_str().context("no engine")?.to_owned();
    let size = SIZES.iter().find_map(|name| Some(((*name).to_owned(), value[*name].as_u64()?)));
    let mut figures = Vec::new();
    for (name, value) in value.as_object().context("no figures")? {
        let title = name.replace('_', " ");
        match value {
            _ if SIZES.contains(&name.as_str()) => (),
            Value::Number(_) => figures.push((title, value)),
            // Rates by the size of blocks.
            Value::Array(rates) => figures.extend(
                rates
                    .iter()
                    .map(|rate| (format!("{title}, blocks of {}", rate["block"]), &rate["rate"])),
            ),
            Value::Object(more) => figures.extend(more.iter().map(|(name, v)| (name.clone(), v))),
            _ => (),
        }
    }
    let number = |(name, value): (String, &Value)| Some((name, value.as_f64()?));
    let figures = figures.into_iter().filter_map(number).collect();
    Ok(Figures { engine, size: size.context("no size")?, figures })
}
