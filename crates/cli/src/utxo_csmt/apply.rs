//! `apply`: blocks from files.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use csmt::cardano::CardanoBlock;
use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::{Hash, Store};
use serde::Deserialize;
use serde_json::json;

use super::Session;
use super::open::{Take, Where, because, hex};
use crate::bar::Bar;
use crate::exit::{Done, Fail};
use crate::feed::{Answers, Feed, Tally};
use crate::{interrupt, show};

/// Longest line of a file of blocks, and longest file of blocks of Cardano; a chunk has a tenth of that.
const LINE_MAX: u64 = 256 << 20;
const FILE_MAX: u64 = 2 << 30;
/// Bytes of blocks for which it is worth it to read as much of the tree as memory takes, before the first.
const WARM_FROM: u64 = 64 << 20;

/// Apply blocks from files
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt apply --db utxos blocks.jsonl
  utxo-csmt apply --db utxos --cardano 01285.chunk
  cat blocks.jsonl | utxo-csmt apply --db utxos -

A file has a block a line, as JSON:
  {\"slot\":120,\"hash\":\"HEX\",\"ops\":[[\"insert\",\"KEYHEX\",\"VALUEHEX\"],[\"delete\",\"KEYHEX\"]]}
With --cardano it has blocks as the node stores them: a chunk of them one behind the other, or one in hex. Each must be the next one
behind the one applied last.

For each block its point and the root after it are printed. Every block is on disk before that, and whoever stops reading does not stop
it. If it is cut off, run it again with the same files: blocks up to the last one applied are passed over. A block that cannot be applied
changes nothing and ends it.")]
pub(super) struct Apply {
    #[command(flatten)]
    place: Where,
    /// The files have blocks of Cardano
    #[arg(long)]
    cardano: bool,
    /// Files of blocks; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    take: Take,
}

/// A block as it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    slot: u64,
    hash: String,
    ops: Vec<Vec<String>>,
}

const FEED: Feed = Feed { thing: ["block", "blocks"], taken: "applied" };

/// A block that was read.
struct Block<'a> {
    point: Point,
    /// The block before it, if the file says so.
    prev_hash: Option<Hash>,
    operations: &'a [Operation],
}

/// What takes a block, and how many bytes were read when it was.
type Receive<'a> = dyn FnMut(&Block<'_>, u64) -> Done + 'a;

/// How far applying came.
#[derive(Default)]
struct Progress {
    tally: Tally,
    /// Blocks were passed over, and the last one that is applied was not among them yet.
    is_before_tip: bool,
}

impl Apply {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.open(self.take.effort())?;
        interrupt::listen();
        let start = Instant::now();
        let sizes = self.files.iter().filter_map(|path| std::fs::metadata(path).ok());
        if sizes.map(|meta| meta.len()).sum::<u64>() >= WARM_FROM {
            store.warm().map_err(because)?;
        }
        let (mut progress, mut answers) = (Progress::default(), Answers::default());
        for path in &self.files {
            let total = std::fs::metadata(path).ok().filter(|meta| meta.is_file());
            let bar = Bar::bytes("applying", total.map(|meta| meta.len()), session.common.quiet);
            let mut take = |block: &Block<'_>, read: u64| {
                step(&store, block, &mut progress, &mut answers, session)?;
                bar.set(read);
                FEED.go_on()
            };
            self.for_each_block(path, &mut take).map_err(|fail| fail.within(path))?;
            bar.clear();
        }
        FEED.sum_up(session, &progress.tally, ["operation", "operations"], start.elapsed());
        Ok(())
    }

    /// Reads the blocks of a file one after the other.
    fn for_each_block(&self, path: &Path, take: &mut Receive<'_>) -> Done {
        let mut input = FEED.open(path)?;
        if !self.cardano {
            return for_each_line(BufReader::with_capacity(1 << 20, input), take);
        }
        let mut bytes = Vec::new();
        input.by_ref().take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
        if show::wide(bytes.len()) > FILE_MAX {
            return Err(Fail::failed(format!(
                "the file is too long: no more than {} are read at once",
                show::size(FILE_MAX)
            )));
        }
        let mut blocks = csmt::cardano::blocks(&bytes);
        while let Some(block) = blocks.next() {
            let block = block.map_err(|error| Fail::failed(error.to_string()))?;
            let CardanoBlock { point, prev_hash, operations, .. } = &block;
            let block = Block { point: *point, prev_hash: *prev_hash, operations };
            take(&block, show::wide(blocks.position()))?;
        }
        Ok(())
    }
}

fn cannot(error: std::io::Error) -> Fail {
    FEED.cannot(error)
}

/// Applies a block, or passes over it if that was done before.
fn step(
    store: &Store,
    block: &Block<'_>,
    progress: &mut Progress,
    answers: &mut Answers,
    session: &mut Session<'_>,
) -> Done {
    let (point, last) = (block.point, store.tip().map_err(because)?);
    let Point::Block { slot, .. } = point else {
        return Err(Fail::failed("a block has a slot"));
    };
    let is_old = match last {
        Point::Block { slot: newest, .. } if slot == newest && point != last => {
            progress.is_before_tip || is_kept(store, point, slot)?
        }
        Point::Block { slot: newest, .. } => slot <= newest,
        Point::Origin => false,
    };
    if is_old && progress.tally.applied == 0 {
        progress.tally.passed += 1;
        progress.is_before_tip = point != last;
        return Ok(());
    }
    if progress.is_before_tip {
        return Err(Fail::failed(format!(
            "the block applied last is {last}, and not in the file: its blocks are of another chain"
        ))
        .hint("`utxo-csmt rollback --to` goes back to a block that is, if it is kept"));
    }
    if let (Some(prev_hash), Point::Block { hash, .. }) = (block.prev_hash, last)
        && prev_hash != hash
    {
        return Err(Fail::failed(format!(
            "the block {point} comes behind {prev_hash}, and the one applied last is {last}: others are missing, or it is of another chain"
        ))
        .hint("apply those between them first, or go back to where the chains part with `utxo-csmt rollback --to`"));
    }
    let applied = store.forward(point, block.operations).map_err(because)?;
    progress.tally.applied += 1;
    progress.tally.parts += u64::try_from(applied.operations).unwrap_or(0);
    let root = applied.root.map(|root| root.to_string());
    if session.common.json {
        let Point::Block { slot, hash } = point else { return Ok(()) };
        let facts = json!({"slot": slot, "hash": hash.to_string(), "root": root});
        return answers.line(session, &facts);
    }
    answers.line(session, &format_args!("{point} {}", root.as_deref().unwrap_or("none")))
}

/// True if a block was applied that has the slot of the last one. An epoch of Byron begins with two.
fn is_kept(store: &Store, block: Point, slot: u64) -> Done<bool> {
    for facts in store.view().map_err(because)?.points() {
        match facts.map_err(because)?.point {
            point if point == block => return Ok(true),
            Point::Block { slot: other, .. } if other == slot => {}
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Blocks of lines of JSON.
fn for_each_line(mut input: impl BufRead, take: &mut Receive<'_>) -> Done {
    let mut so_far = 0;
    for number in 1_u64.. {
        let mut line = Vec::new();
        let read =
            Read::take(&mut input, LINE_MAX + 1).read_until(b'\n', &mut line).map_err(cannot)?;
        if read == 0 {
            break;
        }
        if show::wide(read) > LINE_MAX {
            return Err(Fail::failed(format!(
                "line {number} is too long: no more than {} are read",
                show::size(LINE_MAX)
            )));
        }
        so_far += show::wide(read);
        if line.trim_ascii().is_empty() {
            continue;
        }
        let here = |wrong: String| Fail::failed(format!("line {number}: {wrong}"));
        let (point, operations) = parse(&line).map_err(here)?;
        take(&Block { point, prev_hash: None, operations: &operations }, so_far)?;
    }
    Ok(())
}

fn parse(line: &[u8]) -> Result<(Point, Vec<Operation>), String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| format!("this is not a block: {error}"))?;
    let hash = hex(&line.hash).ok().and_then(|bytes| Hash::from_slice(&bytes));
    let hash = hash.ok_or("the hash of a block has 64 hex digits")?;
    let operation = |parts: Vec<String>| -> Result<Operation, String> {
        let bytes = |text: &String| hex(text).map_err(|_| format!("not hex: {text:.40}"));
        match parts.as_slice() {
            [word, key, value] if word == "insert" => {
                Ok(Operation::Insert { key: bytes(key)?, value: bytes(value)? })
            }
            [word, key] if word == "delete" => Ok(Operation::Delete { key: bytes(key)? }),
            _ => Err("an operation is [\"insert\", KEY, VALUE] or [\"delete\", KEY]".to_owned()),
        }
    };
    let operations = line.ops.into_iter().map(operation).collect::<Result<_, _>>()?;
    Ok((Point::block(line.slot, hash), operations))
}
