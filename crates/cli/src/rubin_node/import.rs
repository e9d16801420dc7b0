//! `import-block` and `import`.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rubin::Chain;
use serde_json::json;

use super::Session;
use super::blocks::Blocks;
use super::open::{Trust, Where, because, text_of};
use crate::bar::Bar;
use crate::exit::{Done, Fail, say};
use crate::input::from_hex;
use crate::{interrupt, show};

/// Import one block, and print what became of it
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node import-block --datadir data --block-hex 0100...
  rubin-node import-block --datadir data --block-hex-file block.hex --local-time 1700000000

Prints ORPHANED, INVALID_ANCESTRY, STORED_NOT_SELECTED or APPLIED_AS_NEW_TIP. A block that breaks a rule gives exit code 1 and
the code of the rule on standard error.")]
pub(super) struct ImportBlock {
    #[command(flatten)]
    chain: Where,
    /// The block in hex
    #[arg(
        long,
        value_name = "HEX",
        conflicts_with = "block_hex_file",
        required_unless_present = "block_hex_file"
    )]
    block_hex: Option<String>,
    /// A file with the block in hex
    #[arg(long, value_name = "FILE")]
    block_hex_file: Option<PathBuf>,
    /// Seconds since 1970: blocks too far ahead of this are rejected
    #[arg(long, value_name = "SECONDS")]
    local_time: Option<u64>,
    #[command(flatten)]
    trust: Trust,
}

impl ImportBlock {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let text = match (&self.block_hex, &self.block_hex_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => text_of(path).map_err(|error| {
                Fail::failed(format!("cannot read {}: {error}", path.display()))
            })?,
            (None, None) => return Err(Fail::usage("give --block-hex or --block-hex-file")),
        };
        let digits: String = text.split_whitespace().collect();
        let bytes = from_hex(&digits).ok_or_else(|| Fail::usage("the block is not hex"))?;
        let chain = self.chain.open(self.trust)?;
        match chain.import(&bytes, self.local_time).map_err(because)? {
            Ok(import) => {
                let facts = json!({
                    "decision": import.decision.as_str(),
                    "block_hash_hex": import.hash.to_string(),
                    "disconnected": import.disconnected,
                    "connected": import.connected,
                });
                session.tell(&facts, || format!("{}\n", import.decision.as_str()))
            }
            Err(rejected) => {
                say(format_args!("import-block error: {}", rejected.code));
                Err(Fail::silent(1))
            }
        }
    }
}

/// Import many blocks from files
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node import --datadir data blocks.hex
  rubin-node import --datadir data part1.bin part2.bin
  cat blocks.hex | rubin-node import --datadir data -

A file has one block a line in hex, or binary blocks, each with its length in front as four bytes, little-endian. For each block
a line says what became of it: a decision, or the code of the rule it breaks. A rejected block does not stop the others, but
the exit code is 1. Every block is on disk before the next is taken; if it is cut off, run it again with the same files.")]
pub(super) struct ImportFiles {
    #[command(flatten)]
    chain: Where,
    /// Files of blocks; - is standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Seconds since 1970: blocks too far ahead of this are rejected
    #[arg(long, value_name = "SECONDS")]
    local_time: Option<u64>,
    #[command(flatten)]
    trust: Trust,
}

impl ImportFiles {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.open(self.trust)?;
        interrupt::listen();
        let start = Instant::now();
        let (mut count, mut rejected) = (0, 0);
        let mut tell = Tell::default();
        for path in &self.files {
            let (input, total): (Box<dyn Read>, _) = if path.as_os_str() == "-" {
                (Box::new(interrupt::Stdin), None)
            } else {
                let file = File::open(path).map_err(|error| {
                    Fail::failed(format!("cannot read {}: {error}", path.display()))
                })?;
                let len = file.metadata().ok().map(|meta| meta.len());
                (Box::new(file), len)
            };
            let bar = Bar::bytes("importing", total, session.common.quiet);
            let mut blocks = Blocks::new(input)?;
            while let Some(block) = blocks.next()? {
                let (line, is_taken) = self.import(&chain, &block, session.common.json)?;
                tell.line(session, &line, total.is_none())?;
                rejected += u64::from(!is_taken);
                count += 1;
                bar.set(blocks.bytes);
                if interrupt::is_asked() {
                    return Err(Fail::interrupted(format!(
                        "interrupted; {count} blocks are imported and safe"
                    )));
                }
            }
            bar.clear();
        }
        tell.done(session)?;
        if !session.common.quiet && !session.common.json {
            let took = start.elapsed();
            say(format_args!(
                "{} in {}, {}",
                show::many(count, "block", "blocks"),
                show::seconds(took),
                show::rate(count, took)
            ));
        }
        if rejected > 0 {
            return Err(Fail::failed(format!(
                "{} rejected",
                show::many(rejected, "block was", "blocks were")
            )));
        }
        Ok(())
    }

    /// Imports a block and says what became of it. False if it breaks a rule.
    fn import(&self, chain: &Chain, block: &[u8], is_json: bool) -> Done<(String, bool)> {
        let verdict = chain.import(block, self.local_time).map_err(because)?;
        let (word, hash, is_taken) = match &verdict {
            Ok(import) => (import.decision.as_str(), Some(import.hash), true),
            Err(rejected) => (rejected.code.as_str(), rejected.hash, false),
        };
        if is_json {
            let facts = json!({
                "block_hash_hex": hash.map(|hash| hash.to_string()),
                "decision": is_taken.then_some(word),
                "error": (!is_taken).then_some(word),
            });
            return Ok((facts.to_string(), is_taken));
        }
        Ok((word.to_owned(), is_taken))
    }
}

/// Tells what became of blocks. Whoever has heard enough does not stop the import.
#[derive(Default)]
struct Tell {
    is_alone: bool,
}

impl Tell {
    /// Whoever sends blocks one by one hears of each at once.
    fn line(&mut self, session: &mut Session<'_>, line: &str, at_once: bool) -> Done {
        if self.is_alone {
            return Ok(());
        }
        let written = writeln!(session.out, "{line}");
        self.see(written.and_then(|()| if at_once { session.out.flush() } else { Ok(()) }))
    }

    fn done(&mut self, session: &mut Session<'_>) -> Done {
        if self.is_alone { Ok(()) } else { self.see(session.out.flush()) }
    }

    fn see(&mut self, written: std::io::Result<()>) -> Done {
        match written {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => self.is_alone = true,
            written => written?,
        }
        Ok(())
    }
}
