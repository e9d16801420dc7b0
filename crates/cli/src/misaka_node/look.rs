//! Commands that only look: `tip`, `state-root`, `object`, `versions`, `checkpoint`, `events`, `params`, `dump`.

use clap::{Args, ValueEnum};
use ledger::Table;
use misaka::format::object::{Object, Owner};
use misaka::format::params;
use misaka::tables::{CHECKPOINTS, EVENTS, OBJECTS, PARAMS, VERSIONS};
use misaka::{Error, Hash, RootVersion, Settings};
use serde_json::{Value, json};

use super::Session;
use super::open::{Stages, Take, Where, because, hash};
use crate::exit::{Done, Fail};
use crate::input::to_hex;
use crate::show;

/// Bytes of a payload that are shown.
const SHOWN: usize = 64;

/// The newest checkpoint as JSON; null if there is none.
pub(super) fn tip(tip: Option<&misaka::Tip>, settings: Settings) -> Value {
    let Some(tip) = tip else { return Value::Null };
    json!({
        "seq": tip.header.seq,
        "digest": tip.digest.to_string(),
        "state_root": tip.header.state_root.to_string(),
        "state_root_version": settings.root_version(tip.header.seq).number(),
        "chain_id": tip.header.chain_id,
        "epoch": tip.header.epoch,
        "timestamp_ms": tip.header.timestamp_ms,
        "objects": tip.objects,
    })
}

/// Print the newest checkpoint: its number and its digest
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node tip --db node
  misaka-node tip --db node --json")]
pub(super) struct Tip {
    #[command(flatten)]
    place: Where,
}

impl Tip {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let now = store.view().and_then(|view| view.tip()).map_err(because)?;
        session.tell(&json!({"tip": tip(now.as_ref(), store.settings())}), || match &now {
            Some(tip) => format!("{} {}\n", tip.header.seq, tip.digest),
            None => "none\n".to_owned(),
        })
    }
}

/// A version of the state root, as an argument.
#[derive(Clone, Copy, ValueEnum)]
enum VersionArg {
    /// StateRoot-v1: a Merkle tree over the sorted list
    #[value(name = "1")]
    V1,
    /// StateRoot-v2: a tree of sixteen ways
    #[value(name = "2")]
    V2,
}

/// Print the root of the state
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node state-root --db node
  misaka-node state-root --db node --v 2
  misaka-node state-root --db node --full

Without --v the root is of the version that the newest checkpoint has, and what its header says, because that was checked when it was
applied. --full makes it anew from every object, compares it with the header, and gives exit code 1 if they differ.")]
pub(super) struct StateRoot {
    #[command(flatten)]
    place: Where,
    /// Which root. Default: that of the newest checkpoint
    #[arg(long = "v", value_name = "VERSION", value_enum)]
    version: Option<VersionArg>,
    /// Make it anew from every object
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    take: Take,
}

impl StateRoot {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look_with(self.take.effort())?;
        let view = store.view().map_err(because)?;
        let now = view.tip().map_err(because)?;
        let seq = now.as_ref().map(|tip| tip.header.seq);
        let own = store.settings().root_version(seq.unwrap_or(0));
        let version = match self.version {
            Some(VersionArg::V1) => RootVersion::V1,
            Some(VersionArg::V2) => RootVersion::V2,
            None => own,
        };
        let header = now.filter(|_| version == own).map(|tip| tip.header.state_root);
        let known = match (header, version) {
            (Some(root), _) => Some(root),
            (None, RootVersion::V2) => view.tree_root().map_err(because)?,
            (None, RootVersion::V1) => None,
        };
        let root = match known {
            Some(root) if !self.full => root,
            _ => {
                let stages = Stages::of_store(session.common.quiet);
                let show = |stage, done, total| stages.show(stage, done, total);
                view.full_root(version, &show).map_err(because)?
            }
        };
        let is_right = header.is_none_or(|header| header == root);
        let facts = json!({
            "seq": seq,
            "version": version.number(),
            "root": root.to_string(),
            "header": header.map(|root| root.to_string()),
            "sound": is_right,
        });
        session.tell(&facts, || format!("{root}\n"))?;
        match (is_right, header) {
            (false, Some(header)) => {
                Err(Fail::failed(format!("the state has {root}, the newest header {header}"))
                    .hint("`misaka-node verify` tells more; restore the database from a snapshot"))
            }
            _ => Ok(()),
        }
    }
}

/// Print the newest version of an object
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node object --db node d23f37e7...
  misaka-node object --db node d23f37e7... --json

An object that was deleted is there as a tombstone.")]
pub(super) struct ObjectOf {
    #[command(flatten)]
    place: Where,
    /// The id of the object, 64 hex digits
    #[arg(value_name = "ID", value_parser = hash)]
    id: Hash,
}

fn no_object(id: &Hash) -> Fail {
    Fail::failed(format!("not found: there is no object {id}"))
}

impl ObjectOf {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let found = store.view().and_then(|view| view.object(&self.id)).map_err(because)?;
        let (bytes, seq) = found.ok_or_else(|| no_object(&self.id))?;
        let object = Object::decode(&bytes)
            .map_err(|rule| Fail::failed(format!("object {} is damaged: {rule}", self.id)))?;
        let (kind, of) = owner(&object.owner);
        let digest = Hash::of(&[&bytes]);
        let state = if object.is_tombstone { "tombstone" } else { "live" };
        let facts = json!({
            "id": object.id.to_string(),
            "version": object.version,
            "owner": {"kind": kind, "of": of},
            "type_tag": object.type_tag,
            "payload": to_hex(object.payload),
            "lifecycle": state,
            "digest": digest.to_string(),
            "checkpoint_seq": seq,
            "bytes": to_hex(&bytes),
        });
        session.tell(&facts, || {
            let of = of.as_ref().map_or_else(String::new, |of| format!(" {}", plain(of)));
            show::list(&[
                ("id", object.id.to_string()),
                ("version", object.version.to_string()),
                ("owner", format!("{kind}{of}")),
                ("type", object.type_tag.escape_debug().to_string()),
                ("payload", payload(object.payload)),
                ("lifecycle", state.to_owned()),
                ("digest", digest.to_string()),
                ("checkpoint", seq.to_string()),
            ])
        })
    }
}

/// Who owns an object: the kind, and which one.
fn owner(owner: &Owner) -> (&'static str, Option<Value>) {
    match owner {
        Owner::Address(id) => ("address", Some(json!(to_hex(id)))),
        Owner::Object(id) => ("object", Some(json!(to_hex(id)))),
        Owner::Shared(version) => ("shared", Some(json!(version))),
        Owner::Immutable => ("immutable", None),
    }
}

/// Without the quotes of JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("from version {value}"), str::to_owned)
}

/// Hex always: what is binary now can look like text with the next version.
fn payload(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        _ if bytes.is_empty() => "none".to_owned(),
        Some(first) if bytes.len() > SHOWN => {
            format!("{}... ({} bytes)", to_hex(first), bytes.len())
        }
        _ => to_hex(bytes),
    }
}

/// Print the versions of an object that are kept, the oldest first
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node versions --db node d23f37e7...

A line for each: its number, the checkpoint that wrote it, its digest, live or tombstone. The newest one is always kept, the others as
long as their checkpoint is.")]
pub(super) struct Versions {
    #[command(flatten)]
    place: Where,
    /// The id of the object, 64 hex digits
    #[arg(value_name = "ID", value_parser = hash)]
    id: Hash,
}

impl Versions {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let mut is_there = false;
        for row in view.versions(&self.id).map_err(because)? {
            let (number, version) = row.map_err(because)?;
            is_there = true;
            let state = if version.is_tombstone { "tombstone" } else { "live" };
            if session.common.json {
                let facts = json!({
                    "version": number,
                    "checkpoint_seq": version.seq,
                    "digest": version.digest.to_string(),
                    "lifecycle": state,
                });
                writeln!(session.out, "{facts}")?;
            } else {
                writeln!(session.out, "{number} {} {} {state}", version.seq, version.digest)?;
            }
        }
        if is_there { Ok(()) } else { Err(no_object(&self.id)) }
    }
}

/// Print a checkpoint: its header, and the digests of its transactions
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node checkpoint --db node 250
  misaka-node checkpoint --db node 250 --json")]
pub(super) struct CheckpointOf {
    #[command(flatten)]
    place: Where,
    /// The number of the checkpoint
    #[arg(value_name = "SEQ")]
    seq: u64,
}

impl CheckpointOf {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let Some((header, digests)) = view.checkpoint(self.seq).map_err(because)? else {
            let kept = match view.checkpoints().map_err(because)? {
                Some((from, to)) => format!("there are {from} to {to}"),
                None => "there is none yet".to_owned(),
            };
            return Err(because(Error::NotKept { seq: self.seq, kept }));
        };
        let texts: Vec<String> = digests.iter().map(Hash::to_string).collect();
        let facts = json!({
            "seq": header.seq,
            "digest": header.digest().to_string(),
            "chain_id": header.chain_id,
            "epoch": header.epoch,
            "timestamp_ms": header.timestamp_ms,
            "prev_digest": header.prev_digest.to_string(),
            "state_root": header.state_root.to_string(),
            "state_root_version": store.settings().root_version(header.seq).number(),
            "validator_set_hash": header.validator_set_hash.to_string(),
            "tx_count": header.tx_count,
            "tx_root": header.tx_root.to_string(),
            "tx_digests": texts,
            "header_bytes_hex": to_hex(&header.encode()),
        });
        session.tell(&facts, || {
            let version = store.settings().root_version(header.seq).number();
            let mut facts = vec![
                ("seq", header.seq.to_string()),
                ("digest", header.digest().to_string()),
                ("chain", header.chain_id.to_string()),
                ("epoch", header.epoch.to_string()),
                ("time", time(header.timestamp_ms)),
                ("previous", header.prev_digest.to_string()),
                ("state root", format!("{} (v{version})", header.state_root)),
                ("validator set", header.validator_set_hash.to_string()),
                ("transactions", format!("{}, root {}", header.tx_count, header.tx_root)),
            ];
            facts.extend(texts.into_iter().map(|digest| ("", digest)));
            show::list(&facts)
        })
    }
}

/// Milliseconds since 1970; only the number if that is in no calendar.
fn time(timestamp_ms: u64) -> String {
    match timestamp_ms.checked_mul(1_000_000) {
        Some(unix_ns) => show::time(unix_ns),
        None => format!("{timestamp_ms} ms"),
    }
}

/// Print the events of a checkpoint, in the order of execution
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node events --db node 263
  misaka-node events --db node 263 --tx 300

A line for each: the transaction, the number of the event, its bytes in hex.")]
pub(super) struct Events {
    #[command(flatten)]
    place: Where,
    /// The number of the checkpoint
    #[arg(value_name = "SEQ")]
    seq: u64,
    /// Only those of one transaction, by its place in the checkpoint
    #[arg(long, value_name = "N")]
    tx: Option<u32>,
}

impl Events {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let Some(events) = view.events(self.seq).map_err(because)? else {
            let retention = store.settings().event_retention;
            let newest = view.tip().map_err(because)?.map(|tip| tip.header.seq);
            let newest = newest.map_or_else(|| "none".to_owned(), |seq| seq.to_string());
            return Err(Fail::failed(format!("events of checkpoint {} are not kept", self.seq))
                .hint(format!(
                    "they are kept for {}, and the newest one is {newest}",
                    show::many(retention, "checkpoint", "checkpoints")
                )));
        };
        for event in events.iter().filter(|event| self.tx.is_none_or(|tx| event.tx == tx)) {
            let bytes = to_hex(&event.bytes);
            if session.common.json {
                let facts =
                    json!({"tx_index": event.tx, "event_index": event.number, "event": bytes});
                writeln!(session.out, "{facts}")?;
            } else {
                writeln!(session.out, "{} {} {bytes}", event.tx, event.number)?;
            }
        }
        Ok(())
    }
}

/// Print the parameters of the chain, or check them
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node params --db node
  misaka-node params --db node committee_n
  misaka-node params --db node --check

A line for each: its name and its value in hex; of one, only the value. --check tells whether those whose meaning is known fit
together, and gives exit code 1 with the rule if not.")]
pub(super) struct ParamsOf {
    #[command(flatten)]
    place: Where,
    /// Only this one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Whether they fit together
    #[arg(long, conflicts_with = "name")]
    check: bool,
}

impl ParamsOf {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        if let Some(name) = &self.name {
            let name = name.strip_prefix("sys/params/").unwrap_or(name);
            let value = view.param(name).map_err(because)?;
            let value = value.ok_or_else(|| {
                let name = show::bytes(name.as_bytes());
                Fail::failed(format!("not found: there is no parameter {name}"))
                    .hint("`misaka-node params` lists them")
            })?;
            let value = to_hex(&value);
            return session.tell(&json!({"name": name, "value": value}), || format!("{value}\n"));
        }
        let params = view.params().map_err(because)?;
        if self.check {
            let rule = params::check(&params).err();
            let facts = json!({"sound": rule.is_none(), "rule": rule.map(misaka::Rule::token)});
            session.tell(&facts, || match rule {
                None => "OK\n".to_owned(),
                Some(_) => String::new(),
            })?;
            return rule.map_or(Ok(()), |rule| Err(Fail::failed(rule.to_string())));
        }
        for (name, value) in params {
            let value = to_hex(&value);
            match session.common.json {
                true => writeln!(session.out, "{}", json!({"name": name, "value": value}))?,
                false => writeln!(session.out, "{name} {value}")?,
            }
        }
        Ok(())
    }
}

/// A store, as an argument.
#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum TableArg {
    ObjectStore,
    VersionIndex,
    CheckpointStore,
    EventLogStoreRecent,
    SysParams,
}

impl From<TableArg> for Table {
    fn from(argument: TableArg) -> Table {
        match argument {
            TableArg::ObjectStore => OBJECTS,
            TableArg::VersionIndex => VERSIONS,
            TableArg::CheckpointStore => CHECKPOINTS,
            TableArg::EventLogStoreRecent => EVENTS,
            TableArg::SysParams => PARAMS,
        }
    }
}

/// Print all keys and values of a store in hex, in the order of the bytes of the keys
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node dump --db node --table object_store > objects.txt
  misaka-node dump --db node --table version_index | wc -l

Keys and values are those of the specification. Numbers in keys are little-endian, so their order is not that of the numbers.")]
pub(super) struct Dump {
    #[command(flatten)]
    place: Where,
    /// Which store
    #[arg(long, value_enum)]
    table: TableArg,
}

impl Dump {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let mut unwritten = None;
        let done = view.for_each(self.table.into(), &mut |key, value| {
            session.row(key, value).map_err(|error| {
                unwritten = Some(error);
                Error::Interrupted
            })
        });
        match unwritten {
            Some(error) => Err(error.into()),
            None => done.map_err(because),
        }
    }
}
