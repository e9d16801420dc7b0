//! `kvb-sim`: runs the simulator.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what a program has to say")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
#[cfg(feature = "planted")]
use host::planted::{Bug, plant};
use sim::{ALL, Tally, Trial, find};

/// Random histories of power loss, failing calls, full disks and rot, checked against models.
#[derive(Parser)]
#[command(name = "kvb-sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs fresh seeds for a time, all systems in turn. A seed that fails is made shorter and shown.
    Run {
        /// How long, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only this system.
        #[arg(long)]
        system: Option<String>,
        /// The first seed; those behind it follow.
        #[arg(long, value_parser = parse_seed)]
        seed: Option<u64>,
    },
    /// Plants bugs one after the other and shows the seed that finds each.
    #[cfg(feature = "planted")]
    Planted {
        /// Only this one.
        #[arg(long, value_parser = parse_bug)]
        bug: Option<Bug>,
        /// Seeds that are tried for each.
        #[arg(long, default_value_t = 3000)]
        seeds: u64,
        /// Says in words what each bug is and what is noticed, as docs/testing.md does.
        #[arg(long)]
        table: bool,
    },
    /// Runs one seed again and shows the shortest history that fails.
    Replay {
        /// Plants this bug before.
        #[cfg(feature = "planted")]
        #[arg(long, value_parser = parse_bug)]
        plant: Option<Bug>,
        system: String,
        #[arg(value_parser = parse_seed)]
        seed: u64,
    },
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run { seconds, system, seed } => {
            let systems: Vec<&dyn Trial> = match system.as_deref().map(find) {
                None => ALL.to_vec(),
                Some(Some(system)) => vec![system],
                Some(None) => return unknown(),
            };
            run(&systems, Duration::from_secs(seconds), seed.unwrap_or_else(|| fastrand::u64(..)))
        }
        #[cfg(feature = "planted")]
        Command::Planted { bug, seeds, table } => planted(bug, seeds, table),
        #[cfg(feature = "planted")]
        Command::Replay { plant: Some(bug), system, seed } => {
            plant(Some(bug));
            replay(&system, seed, &format!(" --plant {bug:?}"))
        }
        Command::Replay { system, seed, .. } => replay(&system, seed, ""),
    }
}

/// The bug of a name.
#[cfg(feature = "planted")]
fn parse_bug(name: &str) -> Result<Bug, String> {
    let names = || Bug::ALL.iter().map(|bug| format!("{bug:?}")).collect::<Vec<_>>().join(", ");
    let found = Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
    found.copied().ok_or_else(|| format!("there is no such bug; these there are: {}", names()))
}

fn unknown() -> ExitCode {
    let names: Vec<&str> = ALL.iter().map(|system| system.name()).collect();
    eprintln!("there is no such system; these there are: {}", names.join(", "));
    ExitCode::from(2)
}

fn replay(system: &str, seed: u64, more: &str) -> ExitCode {
    let Some(system) = find(system) else { return unknown() };
    match system.run_seed(seed) {
        Ok(tally) => {
            println!("{} {seed:#x}: nothing is wrong: {tally}", system.name());
            ExitCode::SUCCESS
        }
        Err(_) => explain(system, seed, more),
    }
}

fn run(systems: &[&dyn Trial], time: Duration, first: u64) -> ExitCode {
    let begin = Instant::now();
    let mut tallies = vec![(0_u64, Tally::default()); systems.len()];
    let mut seed = first;
    while begin.elapsed() < time {
        for (system, (seeds, tally)) in systems.iter().zip(&mut tallies) {
            match system.run_seed(seed) {
                Ok(found) => {
                    *seeds += 1;
                    tally.add(&found);
                }
                Err(_) => return explain(*system, seed, ""),
            }
        }
        seed = seed.wrapping_add(1);
    }
    for (system, (seeds, tally)) in systems.iter().zip(&tallies) {
        println!("{}: {seeds} seeds from {first:#x}: {tally}", system.name());
    }
    ExitCode::SUCCESS
}

fn explain(system: &dyn Trial, seed: u64, more: &str) -> ExitCode {
    let Some(found) = system.explain(seed) else { return ExitCode::SUCCESS };
    println!("{} {seed:#x}: {}", system.name(), found.failure);
    println!("{} of {} steps:", found.steps.len(), found.drawn);
    for (number, step) in found.steps.iter().enumerate() {
        println!("{number:4}  {step}");
    }
    println!("again: kvb-sim replay{more} {} {seed:#x}", system.name());
    ExitCode::FAILURE
}

/// Tries every bug on the systems in turn until one notices.
#[cfg(feature = "planted")]
fn planted(only: Option<Bug>, seeds: u64, is_table: bool) -> ExitCode {
    let mut is_complete = true;
    println!("| bug | system | seed | what is noticed |\n|---|---|---|---|");
    for bug in Bug::ALL {
        let name = if is_table { words(*bug).to_owned() } else { format!("{bug:?}") };
        if only.is_some_and(|only| only != *bug) {
            continue;
        }
        plant(Some(*bug));
        let tries = (0..seeds).flat_map(|seed| ALL.iter().map(move |system| (*system, seed)));
        let mut found =
            tries.filter_map(|(system, seed)| Some((system, seed, system.run_seed(seed).err()?)));
        match found.next() {
            Some((system, seed, failure)) => {
                plant(None);
                let is_sound = system.run_seed(seed).is_ok();
                is_complete &= is_sound;
                let note = if is_sound { "" } else { " **and without the bug too**" };
                let what = failure.what.as_str();
                // Which key or byte it was does not matter there.
                let what =
                    if is_table { what.split([':', ';']).next().unwrap_or(what) } else { what };
                println!("| {name} | {} | {seed:#x} | {what}{note} |", system.name());
            }
            None => {
                is_complete = false;
                println!("| {name} | | | **nothing, in {seeds} seeds** |");
            }
        }
        plant(None);
    }
    if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a bug is, in words.
#[cfg(feature = "planted")]
fn words(bug: Bug) -> &'static str {
    match bug {
        Bug::CommitNotSynced => "a durable commit is not synced",
        Bug::SuperblocksTogether => "both superblocks are written before the first is durable",
        Bug::CheckpointEarly => "a checkpoint names what is not durable",
        Bug::FreedEarly => "extents are used again too early",
        Bug::LengthLate => "a superblock moves to the end of a file before its length is durable",
        Bug::JournalOverrun => "the journal goes on behind its end",
        Bug::JournalEarly => "the journal tells of records that are not durable",
        Bug::HalfABatch => "a batch counts without its last record",
        Bug::TombstoneDropped => "compaction drops a tombstone that hides something",
        Bug::RecordUnchecked => "a record's checksum is not looked at",
        Bug::KeyNotCompared => "keys of one hash are taken for each other",
        Bug::FailureIgnored => "writing goes on after a failure",
        Bug::TwoWriters => "a second writer is let in",
        Bug::ManifestFirst => "RUBIN's manifest names a block before the database has it",
    }
}
