//! `apply`: checkpoints from files.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use misaka::format::checkpoint::Header;
use misaka::{Checkpoint, Event, Hash, Rule, Store};
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::json;

use super::Session;
use super::open::{Take, Where, because};
use super::values::{Values, Wrong};
use crate::bar::Bar;
use crate::exit::{Done, Fail};
use crate::feed::{Answers, Feed, Tally};
use crate::input::from_hex;
use crate::{interrupt, show};

/// What a file of encoded checkpoints begins with.
const MAGIC: &[u8; 8] = b"MSKFILE1";
/// Longest checkpoint, encoded or as JSON.
const CHECKPOINT_MAX: usize = 2 << 30;

/// Apply checkpoints from files
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node apply --db node checkpoints.jsonl
  misaka-node apply --db node january.bin february.bin
  zcat checkpoints.gz | misaka-node apply --db node -

A file has a checkpoint a line, as JSON; what it has more is not looked at:
  {\"header_bytes_hex\":HEX,\"tx_digests\":[HEX],\"writes\":[{\"object_bytes_hex\":HEX}],
   \"sys_params\":[{\"name\":TEXT,\"value_hex\":HEX}],\"events\":[{\"tx_index\":N,\"event_index\":N,\"event_hex\":HEX}]}
or an array of them, or {\"checkpoints\":[...]}. A binary file has MSKFILE1, then of each checkpoint u64le length and its encoding.

For each checkpoint its number and the root after it are printed. It is on disk before that, and whoever stops reading does not stop it.
If it is cut off, run it again with the same files: checkpoints up to the newest one are passed over, if they are the same. A checkpoint
that is refused changes nothing and ends it; those before it stay.")]
pub(super) struct Apply {
    #[command(flatten)]
    place: Where,
    /// Files of checkpoints; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    take: Take,
}

const FEED: Feed = Feed { thing: ["checkpoint", "checkpoints"], taken: "applied" };

/// What takes a checkpoint, and how many bytes were read when it was.
type Receive<'a> = dyn FnMut(&Checkpoint, u64) -> Done + 'a;

/// How far applying came.
#[derive(Default)]
struct Progress {
    /// The newest checkpoint of the store.
    tip: Option<u64>,
    tally: Tally,
    /// The last one passed over is so old that nobody can tell whether it is the same.
    unknown: Option<u64>,
}

impl Apply {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.open(self.take.effort())?;
        interrupt::listen();
        let start = Instant::now();
        let tip = store.view().and_then(|view| view.tip()).map_err(because)?;
        let mut progress = Progress { tip: tip.map(|tip| tip.header.seq), ..Progress::default() };
        let mut answers = Answers::default();
        for path in &self.files {
            let total = std::fs::metadata(path).ok().filter(|meta| meta.is_file());
            let bar = Bar::bytes("applying", total.map(|meta| meta.len()), session.common.quiet);
            let mut take = |checkpoint: &Checkpoint, read: u64| {
                step(&store, checkpoint, &mut progress, &mut answers, session)?;
                bar.set(read);
                FEED.go_on()
            };
            for_each_checkpoint(path, &mut take).map_err(|fail| fail.within(path))?;
            bar.clear();
        }
        if let (Some(unknown), Some(tip)) = (progress.unknown, progress.tip) {
            return Err(Fail::failed(format!(
                "nothing tells whether checkpoint {unknown} is the one that was applied: it is not kept any more"
            ))
            .hint(format!("the newest one is {tip}: give files that go on to there at least")));
        }
        FEED.sum_up(session, &progress.tally, ["write", "writes"], start.elapsed());
        Ok(())
    }
}

fn cannot(error: std::io::Error) -> Fail {
    FEED.cannot(error)
}

/// Applies a checkpoint, or passes over it if that was done before.
fn step(
    store: &Store,
    checkpoint: &Checkpoint,
    progress: &mut Progress,
    answers: &mut Answers,
    session: &mut Session<'_>,
) -> Done {
    let seq = checkpoint.header.seq;
    if progress.tip.is_some_and(|tip| seq <= tip) {
        let view = store.view().map_err(because)?;
        progress.tally.passed += 1;
        progress.unknown = match view.checkpoint(seq).map_err(because)? {
            Some((kept, _)) if kept == checkpoint.header => None,
            Some((kept, _)) => {
                return Err(Fail::failed(format!(
                    "checkpoint {seq} is refused: {} (it was applied before, and was another one: there it has the digest {}, here {})",
                    Rule::SeqNotNext,
                    kept.digest(),
                    checkpoint.header.digest()
                ))
                .hint("the file is of another chain, or the database is: look at --db"));
            }
            None => Some(seq),
        };
        return Ok(());
    }
    // That it follows the newest one, its header says.
    progress.unknown = None;
    let applied = store.apply(checkpoint).map_err(|error| refused(seq, error))?;
    progress.tip = Some(applied.seq);
    progress.tally.applied += 1;
    progress.tally.parts += show::wide(checkpoint.writes.len());
    if session.common.json {
        let pruned = applied.pruned;
        let facts = json!({
            "seq": applied.seq,
            "digest": applied.digest.to_string(),
            "root": applied.root.to_string(),
            "pruned": {
                "versions": pruned.versions,
                "checkpoints": pruned.checkpoints,
                "events": pruned.events,
            },
        });
        return answers.line(session, &facts);
    }
    answers.line(session, &format_args!("{} {}", applied.seq, applied.root))
}

fn refused(seq: u64, error: misaka::Error) -> Fail {
    let Some(rule) = error.rule() else { return because(error) };
    let fail = Fail::failed(format!("checkpoint {seq} is refused: {error}"));
    fail.hint(match rule {
        Rule::SeqNotNext => {
            "nothing of it was written; `misaka-node tip` tells what the next one follows"
        }
        Rule::ChainId | Rule::PrevDigest => {
            "nothing of it was written; it is of another chain, or the database is: look at --db"
        }
        _ => "nothing of it was written, and those before it stay",
    })
}

/// Reads the checkpoints of a file one after the other.
fn for_each_checkpoint(path: &Path, take: &mut Receive<'_>) -> Done {
    let mut input = BufReader::with_capacity(1 << 20, FEED.open(path)?);
    match input.fill_buf().map_err(cannot)?.first() {
        None => Ok(()),
        Some(first) if MAGIC.first() == Some(first) => for_each_frame(input, take),
        Some(_) => for_each_value(input, take),
    }
}

/// Encoded checkpoints, each behind its length.
fn for_each_frame(mut input: impl BufRead, take: &mut Receive<'_>) -> Done {
    let mut magic = Vec::new();
    input.by_ref().take(8).read_to_end(&mut magic).map_err(cannot)?;
    if magic != MAGIC {
        return Err(Fail::failed("this is not a file of checkpoints")
            .hint("a binary file begins with MSKFILE1; others are JSON"));
    }
    let mut so_far = 8;
    for number in 1_u64.. {
        let here =
            |wrong: String| Fail::failed(format!("checkpoint number {number} of it {wrong}"));
        let mut head = Vec::new();
        input.by_ref().take(8).read_to_end(&mut head).map_err(cannot)?;
        if head.is_empty() {
            break;
        }
        let head = head.try_into().map_err(|_| here("is cut off".to_owned()))?;
        let len = u64::from_le_bytes(head);
        if len > show::wide(CHECKPOINT_MAX) {
            return Err(here(format!("is too long: {len} bytes are announced")));
        }
        // No more is made room for than there is.
        let mut bytes = Vec::new();
        input.by_ref().take(len).read_to_end(&mut bytes).map_err(cannot)?;
        if show::wide(bytes.len()) < len {
            return Err(here("is cut off".to_owned()));
        }
        let checkpoint =
            Checkpoint::decode(&bytes).map_err(|rule| here(format!("is wrong: {rule}")))?;
        drop(bytes);
        so_far += 8 + len;
        take(&checkpoint, so_far)?;
    }
    Ok(())
}

/// Checkpoints as JSON.
fn for_each_value(input: impl BufRead, take: &mut Receive<'_>) -> Done {
    let mut values = Values::new(input, CHECKPOINT_MAX);
    loop {
        let value = match values.next() {
            Ok(Some(value)) => value,
            Ok(None) => return Ok(()),
            Err(Wrong::Input(error)) => return Err(cannot(error)),
            Err(Wrong::Form(line, wrong)) => {
                return Err(Fail::failed(format!("line {line}: {wrong}")));
            }
        };
        let here = |wrong: String| Fail::failed(format!("line {}: {wrong}", value.line));
        let line: Line = serde_json::from_slice(&value.bytes)
            .map_err(|error| here(format!("this is not a checkpoint: {error}")))?;
        drop(value.bytes);
        let lines = match line.checkpoints {
            Some(lines) => lines,
            None => vec![line],
        };
        for line in lines {
            let checkpoint = line.checkpoint().map_err(here)?;
            take(&checkpoint, values.position())?;
        }
    }
}

/// A checkpoint as it stands in a file, or a list of them. What else there is, is not looked at.
#[derive(Deserialize)]
struct Line {
    seq: Option<u64>,
    #[serde(default)]
    tx_digests: Vec<Hex>,
    #[serde(default)]
    writes: Vec<Write>,
    #[serde(default)]
    sys_params: Vec<Param>,
    #[serde(default)]
    events: Vec<EventLine>,
    header_bytes_hex: Option<Hex>,
    expected: Option<Expected>,
    checkpoints: Option<Vec<Line>>,
}

#[derive(Deserialize)]
struct Write {
    object_bytes_hex: Hex,
}

#[derive(Deserialize)]
struct Param {
    name: String,
    value_hex: Hex,
}

#[derive(Deserialize)]
struct EventLine {
    tx_index: u32,
    event_index: u32,
    event_hex: Hex,
}

#[derive(Deserialize)]
struct Expected {
    header_bytes_hex: Option<Hex>,
}

impl Line {
    fn checkpoint(self) -> Result<Checkpoint, String> {
        let header = self.header_bytes_hex;
        let header = header.or_else(|| self.expected.and_then(|more| more.header_bytes_hex));
        let header = header.ok_or("this checkpoint has no header_bytes_hex")?;
        let header = Header::decode(&header.0).map_err(|rule| format!("the header: {rule}"))?;
        if let Some(seq) = self.seq.filter(|seq| *seq != header.seq) {
            return Err(format!("seq is {seq}, and {} in the header", header.seq));
        }
        let digest = |hex: Hex| {
            Hash::from_slice(&hex.0).ok_or("the digest of a transaction has 64 hex digits")
        };
        Ok(Checkpoint {
            header,
            tx_digests: self.tx_digests.into_iter().map(digest).collect::<Result<_, _>>()?,
            writes: self.writes.into_iter().map(|write| write.object_bytes_hex.0).collect(),
            params: self
                .sys_params
                .into_iter()
                .map(|param| (param.name, param.value_hex.0))
                .collect(),
            events: self
                .events
                .into_iter()
                .map(|event| Event {
                    tx: event.tx_index,
                    number: event.event_index,
                    bytes: event.event_hex.0,
                })
                .collect(),
        })
    }
}

/// Bytes that stand there in hex.
struct Hex(Vec<u8>);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Hex, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = Hex;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("pairs of hex digits")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Hex, E> {
                from_hex(text).map(Hex).ok_or_else(|| {
                    let first: String = text.chars().take(40).collect();
                    let more = if first.len() < text.len() { "..." } else { "" };
                    E::custom(format_args!("not hex: {first:?}{more}"))
                })
            }
        }

        // Without a copy of the digits.
        input.deserialize_str(Digits)
    }
}
