//! Suites one after the other, each written as soon as it is done.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::compare::Comparison;
use crate::ledger::{Ledger, Rounds};
use crate::suite::{self, Stores, Suite, Work};
use crate::workload::{Plan, gets};
use crate::{USAGE, document, engines, help, results, split};

/// What `quick` divides sizes by, and how long it measures what is measured for a time.
const QUICK_PART: usize = 20;
const QUICK_SECONDS: u64 = 2;
/// What part of a round's time it takes: not everything shrinks with the sizes.
const QUICK_TIME: f64 = 0.2;

/// What is to be run, and where to.
pub struct All {
    out: PathBuf,
    dir: PathBuf,
    suites: Vec<&'static Suite>,
    rounds: Option<usize>,
    engines: Option<Vec<String>>,
    is_quick: bool,
    cgroup: Option<PathBuf>,
    readme: Option<PathBuf>,
}

impl All {
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut all = Self {
            out: PathBuf::new(),
            dir: Plan::default().dir,
            suites: suite::ALL.iter().collect(),
            rounds: None,
            engines: None,
            is_quick: false,
            cgroup: None,
            readme: None,
        };
        while let Some(name) = words.next() {
            match name.as_str() {
                "--help" => help(),
                "--quick" => {
                    all.is_quick = true;
                    continue;
                }
                _ => (),
            }
            let value = words.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
            match name.as_str() {
                "--out" => all.out = value.into(),
                "--dir" => all.dir = value.into(),
                "--suites" => {
                    all.suites =
                        split(&value).iter().map(|name| find(name)).collect::<Result<_>>()?;
                }
                "--rounds" => all.rounds = Some(value.parse()?),
                "--engines" => all.engines = Some(split(&value)),
                "--cgroup" => all.cgroup = Some(value.into()),
                "--readme" => all.readme = Some(value.into()),
                _ => bail!("unknown option {name} {value}\n{USAGE}"),
            }
        }
        ensure!(!all.out.as_os_str().is_empty(), "--out is needed\n{USAGE}");
        ensure!(all.rounds != Some(0), "counts must not be zero");
        for name in all.engines.iter().flatten() {
            engines::find(name)?;
        }
        Ok(all)
    }

    /// Runs all suites. One that fails does not keep the others from being run.
    pub fn run(&self) -> Result<()> {
        std::fs::create_dir_all(&self.out)?;
        let existed = self.dir.exists();
        std::fs::create_dir_all(&self.dir)?;
        let mut failed = Vec::new();
        let begin = Instant::now();
        let total: f64 = self.suites.iter().map(|suite| self.minutes(suite)).sum();
        eprintln!("{} suites, about {total:.0} min in all", self.suites.len());
        for suite in &self.suites {
            eprintln!("suite {}, about {:.0} min", suite.name, self.minutes(suite));
            let start = Instant::now();
            let path = self.out.join(format!("{}.json", suite.name));
            let done = match &suite.work {
                Work::Stores(stores) => self.stores(stores, &path),
                Work::Ledger(ledger) => self.ledger(ledger, &path),
            };
            let minutes = |since: Instant| since.elapsed().as_secs_f64() / 60.0;
            let (took, all) = (minutes(start), minutes(begin));
            eprintln!("suite {} took {took:.1} min, all so far {all:.0} min", suite.name);
            if let Err(error) = done {
                eprintln!("    FAILED: {error:#}");
                failed.push(suite.name);
            }
        }
        if !existed {
            std::fs::remove_dir_all(&self.dir)?;
        }
        document::write(&self.out, self.readme.as_deref())?;
        ensure!(failed.is_empty(), "suites that failed: {}", failed.join(", "));
        Ok(())
    }

    /// About how long a suite takes, on a machine like the one that the numbers of minutes are from.
    fn minutes(&self, suite: &Suite) -> f64 {
        match self.is_quick {
            true => suite.minutes() * QUICK_TIME,
            false => suite.minutes() * self.rounds.unwrap_or(suite.rounds()) as f64,
        }
    }

    fn ledger(&self, ledger: &'static Ledger, path: &Path) -> Result<()> {
        let mut rounds = Rounds::new(ledger, self.is_quick);
        rounds.dir.clone_from(&self.dir);
        rounds.engines.clone_from(&self.engines);
        rounds.rounds = self.rounds.unwrap_or(rounds.rounds);
        results::write_json(path, &rounds.run()?)
    }

    fn stores(&self, stores: &Stores, path: &Path) -> Result<()> {
        let mut sets = Vec::new();
        for size in stores.sizes {
            sets.push(self.comparison(stores, *size).run()?);
            // What there is of several sizes is kept, whatever becomes of the next.
            results::write_sets(path, &sets)?;
        }
        Ok(())
    }

    fn comparison(&self, stores: &Stores, size: usize) -> Comparison {
        let keys = if self.is_quick { size / QUICK_PART } else { size };
        let plan = Plan { dir: self.dir.clone(), keys, value: stores.value, ..Plan::default() };
        let mut plan = Plan {
            gets: gets(keys),
            workloads: stores.workloads.iter().map(|name| (*name).to_owned()).collect(),
            ..plan
        };
        if self.is_quick {
            plan.seconds = QUICK_SECONDS;
        }
        let mut engines = self.engines.clone().unwrap_or_else(engines::names);
        engines.retain(|name| stores.engines.has(name));
        let usual = if self.is_quick { 1 } else { stores.rounds };
        let rounds = self.rounds.unwrap_or(usual);
        Comparison { plan, rounds, engines, cgroup: self.cgroup.clone() }
    }
}

/// The directory that `report` is about, and the document that gets a table.
pub fn parse_report(words: impl Iterator<Item = String>) -> Result<(PathBuf, Option<PathBuf>)> {
    let words: Vec<String> = words.collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--out", out] => Ok((out.into(), None)),
        ["--out", out, "--readme", readme] => Ok((out.into(), Some(readme.into()))),
        ["--help"] => help(),
        _ => bail!("report needs --out DIR, and takes --readme FILE behind it\n{USAGE}"),
    }
}

fn find(name: &str) -> Result<&'static Suite> {
    let found = suite::ALL.iter().find(|suite| suite.name == name);
    found.with_context(|| format!("unknown suite {name}\n{USAGE}"))
}
