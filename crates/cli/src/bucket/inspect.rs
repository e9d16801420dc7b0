//! `kvb inspect`: any structure of the file, field by field.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use kvb::{FieldFacts, Inspection, Options, Reader, Sense};
use serde_json::{Value, json};

use super::info::area_name;
use super::{KEYS_AND_VALUES, Session};
use crate::exit::{Done, Fail, about};
use crate::input::{self, Input, to_hex};
use crate::show;

/// Bytes of a field or value that are shown.
const SHOWN: usize = 32;

/// Decode the structure that a byte of the file belongs to, or the record of a key
#[derive(Args)]
#[command(after_help = format!("\
{KEYS_AND_VALUES}

Examples:
  kvb inspect bucket.kvb 0                      superblock A
  kvb inspect bucket.kvb 0x14034
  kvb inspect -t bucket.kvb --key alice         the record that a lookup finds
  kvb inspect bucket.kvb 4096 --json

Names of structures and fields are those of docs/format/kvb.md. A bucket that cannot be opened can still be inspected where
a structure begins that checks itself."))]
pub(super) struct Inspect {
    /// The bucket
    bucket: PathBuf,
    /// A byte of the file, decimal or hex
    #[arg(value_parser = input::offset, required_unless_present = "key", conflicts_with = "key")]
    offset: Option<u64>,
    /// The record of a key
    #[arg(long, value_name = "KEY")]
    key: Option<OsString>,
    /// The key is the word itself
    #[arg(long, short)]
    text: bool,
}

impl Inspect {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let found = match (self.offset, &self.key) {
            (Some(at), _) => session
                .with_keys(path, &Options::default(), |options| kvb::inspect(path, options, at))?,
            (None, Some(key)) => {
                let key = Input::new(self.text).key("key", key)?;
                let reader = session.reader(path)?;
                let at = locate(&reader, &key, path)?;
                reader.inspect(at).map_err(about(path))?
            }
            (None, None) => return Err(Fail::usage("give a byte of the file, or --key")),
        };
        session.tell(&as_json(&found), || as_text(&found))
    }
}

fn locate(reader: &Reader, key: &[u8], path: &std::path::Path) -> Done<u64> {
    let found = reader.locate(key).map_err(about(path))?;
    found.ok_or_else(|| Fail::failed(format!("not found: {}", show::short_of(key, 64))))
}

fn as_text(found: &Inspection) -> String {
    let structure = &found.structure;
    let mut text = String::new();
    if let Some(area) = found.area {
        let _ = writeln!(
            text,
            "{} of {} from byte {}",
            area_name(area.kind),
            show::size(area.len),
            area.at
        );
    }
    let index = structure.index.map_or_else(String::new, |index| format!(" {index}"));
    let state = match structure.holds {
        Some(true) => ", checksum holds",
        Some(false) => ", CHECKSUM DOES NOT HOLD",
        None => "",
    };
    let _ = writeln!(
        text,
        "{}{index} at byte {} (0x{:x}), {} bytes{state}",
        structure.name, structure.at, structure.at, structure.len
    );
    let mut rows = vec![["byte", "field", "value", ""].map(str::to_owned).to_vec()];
    for field in &structure.fields {
        let (value, meaning) = describe(field);
        rows.push(vec![format!("0x{:x}", field.at), field.name.to_owned(), value, meaning]);
    }
    text.push_str(&show::table(&rows, &[0]));
    if let Some(record) = &found.record {
        let _ = writeln!(text, "key    {}", show::short_of(&record.key, 256));
        let _ = writeln!(text, "value  {}", show::short(&record.value, record.value_len, 256));
        let state =
            if record.is_current { "a lookup finds it" } else { "no lookup finds it any more" };
        let _ = writeln!(text, "state  {state}");
    }
    text
}

fn describe(field: &FieldFacts) -> (String, String) {
    match &field.sense {
        Sense::Number(value) => (value.to_string(), String::new()),
        Sense::Word(value) => (format!("0x{value:x}"), String::new()),
        Sense::Time(0) => ("0".to_owned(), String::new()),
        Sense::Time(value) => (value.to_string(), show::time(*value)),
        Sense::Page(value) => (value.to_string(), "page".to_owned()),
        Sense::Offset(value) => (format!("0x{value:x}"), "byte".to_owned()),
        Sense::Named(value, name) => (format!("0x{value:x}"), (*name).to_owned()),
        Sense::Flags(value, names) => (format!("0x{value:x}"), names.join(", ")),
        _ => (show::short(&field.bytes, field.len, SHOWN), String::new()),
    }
}

fn as_json(found: &Inspection) -> Value {
    let structure = &found.structure;
    let fields: Vec<Value> = structure
        .fields
        .iter()
        .map(|field| {
            let (value, meaning) = match &field.sense {
                Sense::Number(value) | Sense::Word(value) | Sense::Time(value) => {
                    (Some(*value), Value::Null)
                }
                Sense::Page(value) | Sense::Offset(value) => (Some(*value), Value::Null),
                Sense::Named(value, name) => (Some(*value), json!(name)),
                Sense::Flags(value, names) => (Some(*value), json!(names)),
                _ => (None, Value::Null),
            };
            json!({
                "name": field.name,
                "at": field.at,
                "len": field.len,
                "hex": to_hex(&field.bytes),
                "value": value,
                "meaning": meaning,
            })
        })
        .collect();
    json!({
        "area": found.area.map(|area| json!({
            "at": area.at, "len": area.len, "use": area_name(area.kind),
        })),
        "structure": structure.name,
        "index": structure.index,
        "at": structure.at,
        "len": structure.len,
        "holds": structure.holds,
        "fields": fields,
        "record": found.record.as_ref().map(|record| json!({
            "key": to_hex(&record.key),
            "value": to_hex(&record.value),
            "value_len": record.value_len,
            "is_current": record.is_current,
        })),
    })
}
