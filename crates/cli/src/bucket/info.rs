//! `kvb info`: what a bucket's file consists of.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use kvb::{
    AreaKind, Compression, HashKind, Options, Reader, SegmentFacts, SegmentKind, Settings, Survey,
};
use serde_json::{Value, json};

use super::{Session, map};
use crate::exit::{Done, about};
use crate::input::to_hex;
use crate::{secret, show};

/// Segments listed unless all are asked for.
const SEGMENTS_SHOWN: usize = 16;

/// Show what a bucket's file consists of: superblocks, regions, segments, index, journal, and a map
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb info bucket.kvb
  kvb info bucket.kvb --segments                every segment
  kvb info bucket.kvb --json | jq '.segments[] | select(.live_ratio < 0.5)'

The map is the whole file from its first byte to its last, each character an equal part of it. How full a segment is of live
records shows as @ (nearly all), %, + and - (hardly any).")]
pub(super) struct Info {
    /// The bucket
    bucket: PathBuf,
    /// List all segments
    #[arg(long, short)]
    segments: bool,
    /// No map
    #[arg(long)]
    no_map: bool,
}

impl Info {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let options = Options::default().takes_increments(true);
        let reader =
            session.with_keys(path, &options, |options| Reader::open_with(path, options))?;
        let survey = reader.survey().map_err(about(path))?;
        session.tell(&survey_json(&survey), || {
            let mut text = summary(&survey);
            text.push('\n');
            text.push_str(&regions(&survey));
            text.push('\n');
            text.push_str(&segments(&survey, self.segments));
            if !self.no_map {
                text.push('\n');
                text.push_str(&map::draw(&survey));
            }
            text
        })
    }
}

fn summary(survey: &Survey) -> String {
    let settings = &survey.settings;
    let copy = |index: usize| match survey.superblocks.get(index).map(|copy| (copy.at, &copy.state))
    {
        Some((at, Ok(found))) => format!(
            "byte {at}, epoch {}, commit {} up to byte {}",
            found.epoch, found.commit_seqno, found.commit_paddr
        ),
        Some((at, Err(wrong))) => format!("byte {at}, {wrong}"),
        None => String::new(),
    };
    let (index, journal) = (&survey.index, &survey.journal);
    let encryption = match settings.key_id {
        Some(id) => format!("XChaCha20-Poly1305, key {}", secret::name_of(id)),
        None => "none".to_owned(),
    };
    let mut facts = vec![
        ("uuid", to_hex(&settings.uuid.to_be_bytes())),
        ("created", show::time(settings.created_unix_ns)),
        ("page size", settings.page_size.to_string()),
        ("hash", hash_name(settings.hash).to_owned()),
        ("compression", compression_name(settings.compression).to_owned()),
        ("encryption", encryption),
        ("key directories", if settings.directories { "yes" } else { "no" }.to_owned()),
        ("largest value", show::size(settings.max_value.into())),
        ("file", show::size(survey.file_bytes)),
        ("superblock A", copy(0)),
        ("superblock B", copy(1)),
        ("last commit", survey.commit_seqno.to_string()),
        (
            "index",
            format!(
                "{} of {} slots in use ({}), knows the log up to {}",
                show::count(index.used),
                show::count(index.slots),
                show::percent(share(index.used, index.slots)),
                index.seqno
            ),
        ),
        (
            "journal",
            format!(
                "entry {} of {} is next, {} hold, durable up to {}",
                journal.next, journal.capacity, journal.entries, journal.durable_seqno
            ),
        ),
        ("writer", if survey.has_writer { "has it open" } else { "none" }.to_owned()),
    ];
    if survey.is_increment {
        facts.push(("increment", "only what changed since a backup".to_owned()));
    }
    show::list(&facts)
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How much of the file each use takes.
fn regions(survey: &Survey) -> String {
    let mut rows = vec![
        vec!["use", "places", "bytes", "share"]
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<String>>(),
    ];
    let mut kinds: Vec<AreaKind> = survey.areas.iter().map(|area| area.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let areas = survey.areas.iter().filter(|area| area.kind == kind);
        let (count, bytes) =
            areas.fold((0, 0), |(count, bytes), area| (count + 1, bytes + area.len));
        rows.push(vec![
            area_name(kind).to_owned(),
            show::count(count),
            show::count(bytes),
            show::percent(share(bytes, survey.file_bytes)),
        ]);
    }
    show::table(&rows, &[1, 2, 3])
}

fn segments(survey: &Survey, is_all: bool) -> String {
    if survey.segments.is_empty() {
        return "no segments\n".to_owned();
    }
    let heading = ["segment", "kind", "byte", "length", "records", "seqnos", "live"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let shown = if is_all { survey.segments.len() } else { SEGMENTS_SHOWN };
    // The emptiest say most about what compaction would gain.
    let mut sorted: Vec<&SegmentFacts> = survey.segments.iter().collect();
    if sorted.len() > shown {
        sorted.sort_by(|a, b| a.live_ratio().total_cmp(&b.live_ratio()));
        sorted.truncate(shown);
        sorted.sort_by_key(|facts| facts.at);
    }
    for facts in sorted {
        let none = || "-".to_owned();
        rows.push(vec![
            facts.seg_id.to_string(),
            kind_name(facts.kind).to_owned(),
            facts.at.to_string(),
            show::count(facts.len),
            facts.records.map_or_else(none, show::count),
            facts.seqnos.map_or_else(none, |(first, last)| format!("{first}-{last}")),
            show::percent(facts.live_ratio()),
        ]);
    }
    let mut text = show::table(&rows, &[0, 2, 3, 4, 6]);
    if let Some(more) = survey.segments.len().checked_sub(shown).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} that are fuller; --segments lists all");
    }
    text
}

fn survey_json(survey: &Survey) -> Value {
    let copies: Vec<Value> = survey
        .superblocks
        .iter()
        .map(|copy| match &copy.state {
            Ok(found) => json!({
                "at": copy.at,
                "epoch": found.epoch,
                "commit_seqno": found.commit_seqno,
                "commit_paddr": found.commit_paddr,
            }),
            Err(wrong) => json!({ "at": copy.at, "error": wrong }),
        })
        .collect();
    let segments: Vec<Value> = survey
        .segments
        .iter()
        .map(|facts| {
            json!({
                "seg_id": facts.seg_id,
                "kind": kind_name(facts.kind),
                "at": facts.at,
                "len": facts.len,
                "side_len": facts.side_len,
                "records": facts.records,
                "record_bytes": facts.record_bytes,
                "dead_bytes": facts.dead_bytes,
                "live_ratio": facts.live_ratio(),
                "first_seqno": facts.seqnos.map(|(first, _)| first),
                "last_seqno": facts.seqnos.map(|(_, last)| last),
            })
        })
        .collect();
    let areas: Vec<Value> = survey
        .areas
        .iter()
        .map(|area| json!({ "at": area.at, "len": area.len, "use": area_name(area.kind) }))
        .collect();
    let (index, journal) = (&survey.index, &survey.journal);
    json!({
        "settings": settings_json(&survey.settings),
        "file_bytes": survey.file_bytes,
        "epoch": survey.epoch,
        "commit_seqno": survey.commit_seqno,
        "has_writer": survey.has_writer,
        "is_increment": survey.is_increment,
        "superblocks": copies,
        "index": {
            "at": index.at,
            "len": index.len,
            "slots": index.slots,
            "used": index.used,
            "load": share(index.used, index.slots),
            "seqno": index.seqno,
        },
        "journal": {
            "at": journal.at,
            "len": journal.len,
            "capacity": journal.capacity,
            "entries": journal.entries,
            "next": journal.next,
            "durable_seqno": journal.durable_seqno,
        },
        "segments": segments,
        "areas": areas,
    })
}

fn settings_json(settings: &Settings) -> Value {
    json!({
        "uuid": to_hex(&settings.uuid.to_be_bytes()),
        "created_unix_ns": settings.created_unix_ns,
        "page_size": settings.page_size,
        "hash": hash_name(settings.hash),
        "compression": compression_name(settings.compression),
        "directories": settings.directories,
        "key_id": settings.key_id.map(|id| id.to_string()),
        "max_value": settings.max_value,
        "segment_bytes_max": settings.segment_bytes_max,
        "journal_pages": settings.journal_pages,
        "index_bytes_min": settings.index_bytes_min,
    })
}

pub(super) fn hash_name(hash: HashKind) -> &'static str {
    match hash {
        HashKind::Xxh3 => "xxh3",
        HashKind::SipHash => "siphash",
    }
}

pub(super) fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::Zstd => "zstd",
        _ => "none",
    }
}

fn kind_name(kind: SegmentKind) -> &'static str {
    match kind {
        SegmentKind::Tail => "tail",
        SegmentKind::Log => "log",
        SegmentKind::Moved => "moved",
        SegmentKind::Guard => "guard",
        _ => "unknown",
    }
}

/// What a stretch of the file is called.
pub(super) fn area_name(kind: AreaKind) -> &'static str {
    match kind {
        AreaKind::Superblock => "superblock",
        AreaKind::FreeMap => "free-space map",
        AreaKind::Bulletin => "bulletin",
        AreaKind::Journal => "journal",
        AreaKind::Segment(SegmentKind::Tail) => "tail of the log",
        AreaKind::Segment(SegmentKind::Log) => "log segment",
        AreaKind::Segment(SegmentKind::Moved) => "compacted segment",
        AreaKind::Segment(_) => "guard segment",
        AreaKind::Side => "side data",
        AreaKind::Index => "index",
        AreaKind::Table => "segment table",
        AreaKind::Book => "dictionaries",
        AreaKind::Reserved => "reserved",
        AreaKind::Retired => "given up",
        AreaKind::Free => "free",
        _ => "unused",
    }
}
