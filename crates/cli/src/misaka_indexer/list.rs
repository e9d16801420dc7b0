//! Lists: `owner`, `type`, `history`, `events`. They are read a page at a time, however long they are.

use clap::Args;
use misaka::Hash;
use misaka::format::object;
use misaka_indexer::{EventKey, EventsOf, Holder, Live, Page, Record};
use serde_json::{Value, json};

use super::Session;
use super::open::{Where, absent, because, event_key, hash};
use crate::exit::{Done, Fail, say};
use crate::input::to_hex;
use crate::show;

/// Things of one page. Those with bodies are fewer, because a body has up to 64 KiB.
const PAGE: u32 = 1000;
const PAGE_WITH_BODIES: u32 = 64;
/// Bytes of a payload or an event that are shown.
const SHOWN: usize = 32;

/// How much of a list is wanted.
#[derive(Args, Clone, Copy)]
struct Limit {
    /// Print so many at most
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
}

impl Limit {
    /// Goes through a list page by page. Gives what the next call must begin after, if there may be more.
    fn go<T, K: Copy>(
        self,
        after: Option<K>,
        most: u32,
        mut page: impl FnMut(Page<K>) -> Result<Vec<T>, misaka_indexer::Error>,
        key: impl Fn(&T) -> K,
        mut each: impl FnMut(&T) -> Done,
    ) -> Done<Option<K>> {
        let (mut after, mut left) = (after, self.limit);
        while left > 0 {
            let limit = u32::try_from(left).unwrap_or(u32::MAX).min(most);
            let found = page(Page { after, limit }).map_err(because)?;
            let is_last = u32::try_from(found.len()).is_ok_and(|len| len < limit);
            found.iter().try_for_each(&mut each)?;
            left -= show::wide(found.len()).min(left);
            after = found.last().map(&key).or(after);
            if is_last {
                return Ok(None);
            }
        }
        // Whether there is one more, one more question tells.
        let more = page(Page { after, limit: 1 }).map_err(because)?;
        Ok(after.filter(|_| !more.is_empty()))
    }
}

/// Tells how to go on, after the list.
fn tell_more(session: &mut Session<'_>, next: Option<String>) -> Done {
    session.out.flush()?;
    if let Some(next) = next
        && !session.common.quiet
    {
        say(format_args!("there are more: go on with --after {next}, or give another --limit"));
    }
    Ok(())
}

/// Prints objects, a line each.
fn print_live(session: &mut Session<'_>, live: &Live) -> Done {
    let Live { id, version, seq } = live;
    match session.common.json {
        true => {
            let facts = json!({"id": id.to_string(), "version": version, "checkpoint_seq": seq});
            writeln!(session.out, "{facts}")?;
        }
        false => writeln!(session.out, "{id} {version} {seq}")?,
    }
    Ok(())
}

/// Print the objects of an owner
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer owner --index index d23f37e7...
  misaka-indexer owner --index index --object 7a11c0de... --limit 10
  misaka-indexer owner --index index d23f37e7... --after 00c4e5a3... --json

A line for each, by id: its id, its version, the checkpoint that wrote that. What is shared or immutable has no owner.")]
pub(super) struct Owner {
    #[command(flatten)]
    place: Where,
    /// The owner, 64 hex digits
    #[arg(value_name = "ADDRESS", value_parser = hash)]
    owner: Hash,
    /// The owner is an object, not an address
    #[arg(long)]
    object: bool,
    /// Begin after this object
    #[arg(long, value_name = "ID", value_parser = hash)]
    after: Option<Hash>,
    #[command(flatten)]
    limit: Limit,
}

impl Owner {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let holder = match self.object {
            true => Holder::Object(self.owner.0),
            false => Holder::Address(self.owner.0),
        };
        let page = |page| index.owned(&holder, page);
        let each = |live: &Live| print_live(session, live);
        let next = self.limit.go(self.after, PAGE, page, |live| live.id, each)?;
        tell_more(session, next.map(|id| id.to_string()))
    }
}

/// Print the objects of a type
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer type --index index 0x2::coin::Coin
  misaka-indexer type --index index 0x2::coin::Coin --limit 1000000 --json

A line for each, by id: its id, its version, the checkpoint that wrote that. The tag is the whole one.")]
pub(super) struct Type {
    #[command(flatten)]
    place: Where,
    /// The type tag
    #[arg(value_name = "TAG")]
    tag: String,
    /// Begin after this object
    #[arg(long, value_name = "ID", value_parser = hash)]
    after: Option<Hash>,
    #[command(flatten)]
    limit: Limit,
}

impl Type {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let page = |page| index.of_type(&self.tag, page);
        let each = |live: &Live| print_live(session, live);
        let next = self.limit.go(self.after, PAGE, page, |live| live.id, each)?;
        tell_more(session, next.map(|id| id.to_string()))
    }
}

/// Print the versions of an object, the oldest first
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer history --index index d23f37e7...
  misaka-indexer history --index index d23f37e7... --as-of 120
  misaka-indexer history --index index d23f37e7... --after 1000 --limit 50 --json

A line for each: its version, the checkpoint that wrote it, live or tombstone, its owner, its type, its payload. With --as-of only the one
that was the newest after a checkpoint. --json has the whole object in hex.")]
pub(super) struct History {
    #[command(flatten)]
    place: Where,
    /// The object, 64 hex digits
    #[arg(value_name = "ID", value_parser = hash)]
    id: Hash,
    /// Only the version that was the newest after this checkpoint
    #[arg(long, value_name = "CHECKPOINT", conflicts_with_all = ["after", "limit"])]
    as_of: Option<u64>,
    /// Begin after this version
    #[arg(long, value_name = "VERSION")]
    after: Option<u64>,
    #[command(flatten)]
    limit: Limit,
}

impl History {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        if let Some(seq) = self.as_of {
            let found = index.as_of(&self.id, seq).map_err(because)?;
            let what = format!("there was no object {} after checkpoint {seq}", self.id);
            let record = found.ok_or_else(|| absent(&*index, &what))?;
            return print_record(session, &record);
        }
        if index.newest(&self.id).map_err(because)?.is_none() {
            return Err(absent(&*index, &format!("there is no object {}", self.id)));
        }
        let page = |page| index.history(&self.id, page);
        let each = |record: &Record| print_record(session, record);
        let key = |record: &Record| record.version;
        let next = self.limit.go(self.after, PAGE_WITH_BODIES, page, key, each)?;
        tell_more(session, next.map(|version| version.to_string()))
    }
}

/// Who owns an object: the kind, and which one.
fn owner(owner: &object::Owner) -> (&'static str, Option<Value>) {
    match owner {
        object::Owner::Address(id) => ("address", Some(json!(to_hex(id)))),
        object::Owner::Object(id) => ("object", Some(json!(to_hex(id)))),
        object::Owner::Shared(version) => ("shared", Some(json!(version))),
        object::Owner::Immutable => ("immutable", None),
    }
}

fn print_record(session: &mut Session<'_>, record: &Record) -> Done {
    let Record { id, version, seq, bytes } = record;
    let object = record.object().map_err(|rule| {
        Fail::failed(format!("version {version} of object {id} is damaged: {rule}"))
            .hint("`misaka-indexer rebuild` builds the index anew")
    })?;
    let (kind, of) = owner(&object.owner);
    let state = if object.is_tombstone { "tombstone" } else { "live" };
    if session.common.json {
        let facts = json!({
            "id": id.to_string(),
            "version": version,
            "checkpoint_seq": seq,
            "lifecycle": state,
            "owner": {"kind": kind, "of": of},
            "type_tag": object.type_tag,
            "payload": to_hex(object.payload),
            "bytes": to_hex(bytes),
        });
        return Ok(writeln!(session.out, "{facts}")?);
    }
    let of = match of {
        Some(Value::String(text)) => format!(":{text}"),
        Some(other) => format!(":{other}"),
        None => String::new(),
    };
    let type_tag = object.type_tag.escape_debug();
    let payload = match object.payload {
        [] => "-".to_owned(),
        payload => show::short_of(payload, SHOWN),
    };
    Ok(writeln!(session.out, "{version} {seq} {state} {kind}{of} {type_tag} {payload}")?)
}

/// Print events in the order of execution
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer events --index index --checkpoint 17
  misaka-indexer events --index index --checkpoint 17 --tx 3
  misaka-indexer events --index index --after 17:3:0 --limit 1000

A line for each: checkpoint, transaction and number of the event as in 17:3:0, then its bytes in hex.")]
pub(super) struct Events {
    #[command(flatten)]
    place: Where,
    /// Only those of this checkpoint
    #[arg(long, value_name = "CHECKPOINT")]
    checkpoint: Option<u64>,
    /// Only those of this transaction, by its place in the checkpoint
    #[arg(long, value_name = "N", requires = "checkpoint")]
    tx: Option<u32>,
    /// Begin after this event
    #[arg(long, value_name = "CHECKPOINT:TX:NUMBER", value_parser = event_key)]
    after: Option<EventKey>,
    #[command(flatten)]
    limit: Limit,
}

impl Events {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let of = match (self.checkpoint, self.tx) {
            (Some(seq), Some(tx)) => EventsOf::Transaction(seq, tx),
            (Some(seq), None) => EventsOf::Checkpoint(seq),
            (None, _) => EventsOf::All,
        };
        if let Some(seq) = self.checkpoint
            && index.summary(seq).map_err(because)?.is_none()
        {
            return Err(absent(&*index, &format!("checkpoint {seq} is not known")));
        }
        let page = |page| index.events(of, page);
        let place = |key: &EventKey| format!("{}:{}:{}", key.seq, key.tx, key.number);
        let each = |row: &misaka_indexer::EventRow| {
            let bytes = to_hex(&row.bytes);
            let EventKey { seq, tx, number } = row.key;
            match session.common.json {
                true => {
                    let facts = json!({
                        "checkpoint_seq": seq,
                        "tx_index": tx,
                        "event_index": number,
                        "event": bytes,
                    });
                    writeln!(session.out, "{facts}")?;
                }
                false => writeln!(session.out, "{} {bytes}", place(&row.key))?,
            }
            Ok(())
        };
        let next = self.limit.go(self.after, PAGE_WITH_BODIES, page, |row| row.key, each)?;
        tell_more(session, next.as_ref().map(place))
    }
}
