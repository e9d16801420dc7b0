//! `snapshot create`, `snapshot verify`, `snapshot restore`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand};
use host::FileDir;
use ledger::EngineKind;
use misaka::Hash;
use misaka::snapshot::{self, CHUNK_BYTES, Trust, Watch};
use serde_json::json;

use super::Session;
use super::open::{Stages, Take, Where, Windows, because_or, hash};
use crate::exit::{Done, Fail, say};
use crate::{engine, interrupt, show};

/// Make, check and use snapshots: the state after a checkpoint in files
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node snapshot create --db node snap
  misaka-node snapshot verify snap
  misaka-node snapshot restore snap --db other")]
pub(super) struct Snapshot {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(Create),
    Verify(Verify),
    Restore(Restore),
}

impl Snapshot {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        match self.command {
            Command::Create(args) => args.run(session),
            Command::Verify(args) => args.run(session),
            Command::Restore(args) => args.run(session),
        }
    }
}

/// Write the state after the newest checkpoint to a directory
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node snapshot create --db node snap

The directory is made if it is not there, and must be empty. Checkpoints can be applied meanwhile. If it is cut off, run it again: as
long as the newest checkpoint is the same, it goes on; else it begins anew. The manifest is written last: without it, it is not one.")]
struct Create {
    #[command(flatten)]
    place: Where,
    /// The directory of the snapshot
    #[arg(value_name = "DIRECTORY")]
    dir: PathBuf,
    #[command(flatten)]
    take: Take,
}

impl Create {
    fn run(self, session: &mut Session<'_>) -> Done {
        let effort = self.take.effort();
        let store = self.place.look_with(effort)?;
        FileDir::make(&self.dir).map_err(|error| {
            Fail::failed(format!("cannot make the directory {}: {error}", self.dir.display()))
        })?;
        interrupt::listen();
        let start = Instant::now();
        let stages = Stages::of_store(session.common.quiet);
        let watch = Watch {
            progress: &|stage, done, total| stages.show(stage, done, total),
            stop: &interrupt::is_asked,
        };
        let dir = FileDir::new(&self.dir);
        let created = snapshot::create(&store, &dir, CHUNK_BYTES, effort.threads, watch);
        drop(stages);
        let words = "interrupted; run it again, and it goes on if no checkpoint came meanwhile";
        let created = created.map_err(because_or(words)).map_err(|fail| fail.within(&self.dir))?;
        let (manifest, header) = (&created.manifest, &created.manifest.header);
        let facts = json!({
            "seq": header.seq,
            "digest": header.digest.to_string(),
            "state_root": header.state_root.to_string(),
            "state_root_version": header.state_root_version,
            "validator_set_hash": header.validator_set_hash.to_string(),
            "entries": manifest.chunks.iter().map(|chunk| chunk.entries).sum::<u64>(),
            "bytes": manifest.len(),
            "chunks": manifest.chunks.len(),
            "resumed": created.resumed,
            "manifest_digest": manifest.digest().to_string(),
        });
        session.tell(&facts, || format!("{} {}\n", header.seq, header.digest))?;
        if !session.common.quiet && !session.common.json {
            let took = show::seconds(start.elapsed());
            say(format_args!("{} in {took}", show::size(manifest.len())));
        }
        Ok(())
    }
}

/// What is known from elsewhere.
#[derive(Args, Clone, Copy)]
struct Trusted {
    /// The digest of its checkpoint, as somebody trusted says it is
    #[arg(long, value_name = "HEX", value_parser = hash)]
    checkpoint_digest: Option<Hash>,
    /// The digest of its manifest, as whoever made it says it is: that is of every byte of it
    #[arg(long, value_name = "HEX", value_parser = hash)]
    manifest_digest: Option<Hash>,
    /// The hash of the validator set, as somebody trusted says it is
    #[arg(long, value_name = "HEX", value_parser = hash)]
    validator_set_hash: Option<Hash>,
}

impl From<Trusted> for Trust {
    fn from(given: Trusted) -> Trust {
        Trust {
            checkpoint: given.checkpoint_digest,
            manifest: given.manifest_digest,
            validator_set: given.validator_set_hash,
        }
    }
}

/// The directory of a snapshot that is there.
fn existing(path: &Path) -> Done<FileDir> {
    let hint = "a snapshot is a directory that `misaka-node snapshot create` made";
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(FileDir::new(path)),
        Ok(_) => Err(Fail::failed(format!("{} is not a directory", path.display())).hint(hint)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Fail::failed(format!("there is no directory {}", path.display())).hint(hint))
        }
        Err(error) => Err(Fail::failed(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Check a snapshot: every byte, every rule, and the root; this needs no database
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node snapshot verify snap
  misaka-node snapshot verify snap --checkpoint-digest 7ad1... --validator-set-hash 01ab...

A snapshot that fits together can still be of a chain that nobody else has: only a digest from elsewhere tells that. The digest of a
checkpoint is of objects, parameters and the newest version of each object; of older versions only that of the manifest is. Exit code 1
with the rule if anything is wrong.")]
struct Verify {
    /// The directory of the snapshot
    #[arg(value_name = "DIRECTORY")]
    dir: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
    #[command(flatten)]
    take: Take,
}

impl Verify {
    fn run(self, session: &mut Session<'_>) -> Done {
        let dir = existing(&self.dir)?;
        interrupt::listen();
        let stages = Stages::of_files(session.common.quiet);
        let watch = Watch {
            progress: &|stage, done, total| stages.show(stage, done, total),
            stop: &interrupt::is_asked,
        };
        let verified = snapshot::verify(&dir, self.trusted.into(), self.take.effort(), watch);
        drop(stages);
        let verified =
            verified.map_err(because_or("interrupted")).map_err(|fail| fail.within(&self.dir))?;
        let (manifest, header) = (&verified.manifest, &verified.manifest.header);
        let facts = json!({
            "seq": header.seq,
            "digest": header.digest.to_string(),
            "state_root": header.state_root.to_string(),
            "state_root_version": header.state_root_version,
            "validator_set_hash": header.validator_set_hash.to_string(),
            "chain_id": header.chain_id,
            "manifest_digest": manifest.digest().to_string(),
            "objects": verified.objects,
            "versions": verified.versions,
            "params": verified.params,
            "bytes": manifest.len(),
            "chunks": manifest.chunks.len(),
        });
        session.tell(&facts, || {
            show::list(&[
                ("checkpoint", format!("{} {}", header.seq, header.digest)),
                ("state root", format!("{} (v{})", header.state_root, header.state_root_version)),
                ("validator set", header.validator_set_hash.to_string()),
                ("manifest", manifest.digest().to_string()),
                ("objects", show::count(verified.objects)),
                ("versions", show::count(verified.versions)),
                ("parameters", show::count(verified.params)),
            ])
        })
    }
}

/// Make a database from a snapshot
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node snapshot restore snap --db other
  misaka-node snapshot restore snap --db other --v2-at 260 --checkpoint-digest 7ad1...
  misaka-node snapshot restore snap --db other --checkpoint-digest 7ad1... --manifest-digest 90c2...

Everything is checked, and the root made anew, before the database has its name: it is there whole or not at all. If it is cut off, run it
again: it goes on. The next checkpoint follows that of the snapshot; events of before are not in it.

With --checkpoint-digest only what that is of is restored: of each object the newest version, and no entries of older ones, which anybody
could have made up. --manifest-digest is of those, too; `snapshot create --json` and `snapshot verify` print it.")]
struct Restore {
    /// The directory of the snapshot
    #[arg(value_name = "DIRECTORY")]
    dir: PathBuf,
    #[command(flatten)]
    place: Where,
    /// Where the tables are
    #[arg(long, default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
    #[command(flatten)]
    windows: Windows,
    #[command(flatten)]
    trusted: Trusted,
    #[command(flatten)]
    take: Take,
}

impl Restore {
    fn run(self, session: &mut Session<'_>) -> Done {
        const WORDS: &str = "interrupted; run it again, and it goes on";
        let dir = existing(&self.dir)?;
        interrupt::listen();
        let start = Instant::now();
        let stages = Stages::of_store(session.common.quiet);
        let show_progress = |stage, done, total| {
            stages.show(stage, done, total);
            // The stages after reading ask nobody.
            if interrupt::is_asked() {
                interrupt::end(WORDS);
            }
        };
        let watch = Watch { progress: &show_progress, stop: &interrupt::is_asked };
        let restored = snapshot::restore(
            &dir,
            &self.place.database(),
            self.engine,
            self.windows.settings(None),
            self.trusted.into(),
            self.take.effort(),
            watch,
        );
        drop(stages);
        let restored = restored.map_err(because_or(WORDS))?;
        let facts = json!({
            "seq": restored.seq,
            "root": restored.root.to_string(),
            "objects": restored.objects,
            "older_versions": restored.has_older_versions,
            "resumed": restored.is_resumed,
        });
        session.tell(&facts, || format!("{} {}\n", restored.seq, restored.root))?;
        if !restored.has_older_versions && !session.common.json {
            session.notice(
                "versions that are not the newest were left out: --checkpoint-digest is not of them, --manifest-digest is",
            );
        }
        if !session.common.quiet && !session.common.json {
            let objects = show::many(restored.objects, "object", "objects");
            say(format_args!("{objects} in {}", show::seconds(start.elapsed())));
        }
        Ok(())
    }
}
