//! Looking at a byte of the file: which structure it is in, and what every field of that says.
//!
//! Where a byte belongs is told by the survey and by the structures that lead there, as a reader would follow them. In a
//! file that cannot be opened, only what checks itself is recognised, where it begins.

mod parts;
mod sense;

use std::path::Path;
use std::sync::Arc;

use host::{Disk, FileDisk, SystemEnv};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::Field;
use crate::log::Log;
use crate::options::Options;
use crate::reader::Reader;
use crate::survey::{Area, AreaKind, Survey};
use parts::Part;
pub use sense::Sense;

/// Longest value shown of a record, and longest field of any structure.
const VALUE_MAX: usize = 1 << 20;
const FIELD_MAX: usize = 4 << 10;

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldFacts {
    /// Its name, as in `docs/format/kvb.md`.
    pub name: &'static str,
    /// Where it stands in the file.
    pub at: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its bytes; of a very long one the first.
    pub bytes: Vec<u8>,
    /// What they say.
    pub sense: Sense,
}

/// A structure of the file, field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Structure {
    /// Its name, as in `docs/format/kvb.md`.
    pub name: &'static str,
    /// Which one of several, counted from 0.
    pub index: Option<u64>,
    /// Where it begins in the file.
    pub at: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Whether its checksum holds, if it has one of its own.
    pub holds: Option<bool>,
    /// Its fields.
    pub fields: Vec<FieldFacts>,
}

/// A record in the clear.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordFacts {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, decrypted and expanded; of a very long one the beginning.
    pub value: Vec<u8>,
    /// The value's whole length.
    pub value_len: u64,
    /// It is the newest of its key, and not expired: what a lookup finds.
    pub is_current: bool,
}

/// What a byte of the file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The stretch of the file, if the bucket can be opened.
    pub area: Option<Area>,
    /// The structure.
    pub structure: Structure,
    /// The record, if it is one.
    pub record: Option<RecordFacts>,
}

/// Looks at a byte of a bucket's file. If the bucket cannot be opened, the byte must be the first of a structure.
pub fn inspect(path: impl AsRef<Path>, options: Options, at: u64) -> Result<Inspection> {
    let disk = FileDisk::open_read_only(path).map_err(Error::io("open the bucket"))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let options = Options { takes_increments: true, despite_damage: true, ..options };
    match Reader::open_on_with(Arc::clone(&disk), Arc::new(SystemEnv), options) {
        Ok(reader) => reader.inspect(at),
        Err(error @ (Error::Corrupt(_) | Error::Invalid(_))) => {
            let len = disk.len().map_err(Error::io("read the bucket's length"))?;
            let log = Log::new(disk, len, None)?;
            let part = parts::guess(&log, at).ok_or(error)?;
            let structure = lent(&log, &part, at)?;
            Ok(Inspection { area: None, structure, record: None })
        }
        Err(error) => Err(error),
    }
}

impl Reader {
    /// Looks at a byte of the file.
    pub fn inspect(&self, at: u64) -> Result<Inspection> {
        let (pinned, survey) = self.survey_newest()?;
        let core = &pinned.mounted.core;
        let area = *survey.area_of(at).ok_or(Error::Invalid("the file ends before that byte"))?;
        let lost = pinned.mounted.report.damage.map(|damage| damage.at);
        let part = core.part_of(&Look { survey: &survey, area: &area, at, lost });
        let structure = match area.kind {
            // It changes at any moment, so it is not to be lent.
            AreaKind::Bulletin => {
                let mut page = self.bulletin_words().map(u64::to_le_bytes).concat();
                page.resize(usize::try_from(area.len).unwrap_or(0), 0);
                let from = usize::try_from(part.at - area.at).unwrap_or(0);
                structure(page.get(from..).unwrap_or(&[]), &part, at)
            }
            _ => lent(&core.log, &part, at)?,
        };
        let record = if part.is_record() { core.record_facts(structure.at) } else { None };
        Ok(Inspection { area: Some(area), structure, record })
    }

    /// Where the record stands that a lookup of the key finds.
    pub fn locate(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let key = key.as_ref();
        self.look(|core| {
            let (found, _view) = core.find(core.hash.slot_hash(key), key)?;
            Ok(found
                .and_then(|record| core.log.address(zerocopy::IntoBytes::as_bytes(record.header))))
        })
    }
}

impl Core {
    fn record_facts(&self, at: u64) -> Option<RecordFacts> {
        let record = self.log.try_record(at)?;
        let key = record.key().to_vec();
        let (found, _view) = self.find(self.hash.slot_hash(&key), &key).ok()?;
        let is_current = found.is_some_and(|found| found.seqno() == record.seqno());
        let mut value = self.expanded(&record).ok()?;
        let value_len = u64::try_from(value.len()).unwrap_or(u64::MAX);
        value.truncate(VALUE_MAX);
        Some(RecordFacts { key, value, value_len, is_current })
    }

    /// The part of an area that a byte is in.
    fn part_of(&self, look: &Look<'_>) -> Part {
        let (from, to) = self.bounds(look);
        let parts = self.parts(look);
        // What a file says of itself may be wrong.
        let parts: Vec<Part> = parts.iter().filter_map(|part| part.within(to)).collect();
        let holds = |part: &&Part| (part.at..part.end()).contains(&look.at);
        parts.iter().find(holds).copied().unwrap_or_else(|| {
            let ends = parts.iter().map(Part::end).filter(|end| *end <= look.at);
            let starts = parts.iter().map(|part| part.at).filter(|start| *start > look.at);
            let (from, to) = (ends.max().unwrap_or(from), starts.min().unwrap_or(to));
            Part::bytes("(nothing)", from, to - from)
        })
    }
}

/// A byte that is looked at, and what is known of it.
struct Look<'a> {
    survey: &'a Survey,
    area: &'a Area,
    at: u64,
    /// Where a record should be that was durable.
    lost: Option<u64>,
}

/// Reads the one structure of a part that a byte is in, where it lies.
fn lent(log: &Log, part: &Part, at: u64) -> Result<Structure> {
    let len = usize::try_from(part.end() - part.at).unwrap_or(usize::MAX);
    let bytes = log.bytes(part.at, len).ok_or(Error::Invalid("the file ends before that byte"))?;
    Ok(structure(bytes, part, at))
}

/// The one structure of a part that a byte is in, of the bytes of that part.
fn structure(bytes: &[u8], part: &Part, at: u64) -> Structure {
    let index = (at - part.at) / part.stride.max(1);
    let start = part.at + index * part.stride;
    let stride = usize::try_from(part.stride).unwrap_or(usize::MAX);
    let mut all = bytes.chunks(stride.max(1));
    let bytes = all.nth(usize::try_from(index).unwrap_or(usize::MAX)).unwrap_or(&[]);
    let fields = part.fields(bytes);
    let field = |Field { name, offset, len }: Field| {
        let bytes = bytes.get(offset..offset.saturating_add(len)).unwrap_or(&[]);
        let sense = sense::sense(part.name, name, bytes);
        let at = start + u64::try_from(offset).unwrap_or(0);
        let bytes = bytes.get(..len.min(FIELD_MAX)).unwrap_or(bytes).to_vec();
        FieldFacts { name, at, len: u64::try_from(len).unwrap_or(u64::MAX), bytes, sense }
    };
    Structure {
        name: part.name,
        index: (part.count > 1).then_some(part.first + index),
        at: start,
        len: part.stride,
        holds: part.check.and_then(|check| check(bytes)),
        fields: fields.into_iter().map(field).collect(),
    }
}
