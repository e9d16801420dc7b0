//! `docs/format/kvb.md` says what the code does.
//!
//! Every byte table is compared with the `LAYOUT` of its structure, every constant with the code's, every quoted byte
//! of the worked example with the golden bucket. A structure in `src/format` that the page or this test does not know
//! is a failure too.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/structures.rs"]
mod structures;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvb::format::{
    Field, book, directory, extension, filter, footer, free_map, index_page, journal, key_block,
    lineage, meta, record, roster, run, segment, stored, superblock,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/format/kvb.md")).expect("docs/format/kvb.md is there")
}

type Layout = &'static [Field];

/// Size and layout of every structure, by name.
fn structures() -> BTreeMap<&'static str, (usize, Layout)> {
    structures::ALL.iter().map(|known| (known.name, (known.size, known.layout))).collect()
}

/// Value of every constant, by module and name.
fn constants() -> BTreeMap<&'static str, u64> {
    macro_rules! constants {
        ($($module:ident::$name:ident),* $(,)?) => {
            BTreeMap::from([$( (
                concat!(stringify!($module), "::", stringify!($name)),
                u64::try_from($module::$name).expect("fits"),
            ), )*])
        };
    }
    constants![
        superblock::MAGIC,
        superblock::VERSION_MAJOR,
        superblock::VERSION_MINOR,
        superblock::FLAG_ZSTD,
        superblock::FLAG_EXTENSION,
        superblock::FLAG_SIPHASH,
        superblock::FLAG_NO_DIRECTORY,
        superblock::FLAG_LINEAGE,
        superblock::FLAG_ENCRYPTED,
        superblock::FLAG_DICTIONARY,
        superblock::FLAG_INCREMENT,
        superblock::FLAGS_REQUIRED,
        superblock::FLAGS_KNOWN_REQUIRED,
        superblock::PAGE_SIZE_MIN,
        superblock::PAGE_SIZE_MAX,
        extension::MAGIC,
        extension::OFFSET,
        extension::HASH_XXH3,
        extension::HASH_SIP,
        extension::HASH_HIDDEN,
        key_block::MAGIC,
        key_block::OFFSET,
        lineage::MAGIC,
        lineage::OFFSET,
        roster::MAGIC,
        roster::OFFSET,
        roster::NAMED_LOG,
        roster::NAMED_OUTPUT,
        roster::SEGMENT_MOVED,
        roster::SEGMENT_GUARD,
        roster::SEGMENT_FLAGS,
        segment::FLAG_DATA,
        segment::FLAG_FREE,
        segment::FLAG_META,
        segment::FLAG_MOVED,
        segment::FLAG_GUARD,
        segment::FLAG_SALTED,
        segment::KEY_NO_SHIFT,
        segment::SALT_LEN,
        segment::FLAGS_REQUIRED,
        record::PUT,
        record::DELETE,
        record::ENC_RAW,
        record::ENC_ZSTD,
        record::ENC_DICTIONARY,
        record::ENC_AEAD,
        record::TAG,
        record::MARK_COMMIT,
        record::MARK_MOVED,
        record::TRAILER,
        record::KEY_MAX,
        stored::VARINT_MAX,
        stored::FRAME_MAGIC,
        stored::WINDOW_MAX,
        stored::BLOCK_MAX,
        stored::BLOCK_MIN,
        book::MAGIC,
        book::COUNT_MAX,
        book::LEN_MAX,
        footer::STRIDE,
        meta::MAGIC,
        meta::OFFSET,
        meta::KIND_IMAGE,
        meta::KIND_SIDE,
        meta::KIND_TABLE,
        meta::SECTION_RUN,
        meta::SECTION_FILTER,
        meta::SECTION_TABLE,
        meta::SECTION_DIRECTORY,
        meta::SECTION_MAC,
        meta::SECTION_SALT,
        meta::MAC_LEN,
        run::DELETE_BIT,
        run::DELTA_FAR,
        run::OFFSET_MAX,
        directory::STRIDE,
        filter::BITS_PER_KEY,
        free_map::MAGIC,
        index_page::EMPTY,
        index_page::SENTINEL,
        journal::INDEX_INSERT,
        journal::INDEX_UPDATE,
        journal::INDEX_DELETE,
        journal::COMMIT,
    ]
}

/// Cells of a table row; `None` for other lines and for the rule below a table's head.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    (!cells.iter().all(|cell| cell.chars().all(|c| c == '-'))).then_some(cells)
}

/// The rows of the first table with this head behind a line, without the head.
fn table<'a>(lines: impl Iterator<Item = &'a str>, head: &[&str]) -> Vec<Vec<&'a str>> {
    let mut rows = lines
        .skip_while(|line| cells(line).is_none_or(|cells| cells != head))
        .take_while(|line| line.starts_with('|'))
        .filter_map(cells);
    rows.next();
    rows.collect()
}

fn parse(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|error| panic!("{text} is no number: {error}"))
}

/// Name and size in a heading such as `### IndexSlot (16 bytes)`.
fn heading(line: &str) -> Option<(&str, usize)> {
    let (name, size) = line.strip_prefix("### ")?.split_once(" (")?;
    Some((name, size.strip_suffix(" bytes)")?.parse().ok()?))
}

/// A structure's table in the page: name, offset and size of each field.
fn documented(page: &str, at: usize) -> Vec<(String, usize, usize)> {
    let section = page.lines().skip(at + 1).take_while(|line| !line.starts_with('#'));
    table(section, &["offset", "size", "field", "meaning"])
        .into_iter()
        .map(|row| match row[..] {
            [offset, size, name, _] => {
                (name.to_owned(), offset.parse().unwrap(), size.parse().unwrap())
            }
            _ => panic!("a row of {} cells: {row:?}", row.len()),
        })
        .collect()
}

#[test]
fn byte_tables_are_the_layouts() {
    let page = page();
    let mut structures = structures();
    for (at, line) in page.lines().enumerate() {
        let Some((name, size)) = heading(line) else {
            continue;
        };
        let Some((code_size, layout)) = structures.remove(name) else {
            panic!("the page describes {name}, twice or for nothing");
        };
        assert_eq!(size, code_size, "size of {name}");
        let layout: Vec<(String, usize, usize)> =
            layout.iter().map(|field| (field.name.to_owned(), field.offset, field.len)).collect();
        assert_eq!(documented(&page, at), layout, "fields of {name} (left: the page)");
        let end = layout.last().map_or(0, |(_, offset, len)| offset + len);
        assert_eq!(end, size, "the fields of {name} do not fill it");
    }
    assert!(structures.is_empty(), "the page lacks {:?}", structures.keys());
}

/// Names of the structures that the sources define.
fn defined() -> Vec<(String, usize)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in source.lines() {
            let definition = line.trim().strip_prefix("pub struct ").and_then(|rest| {
                let (name, size) = rest.strip_suffix(" bytes) {")?.split_once(" (")?;
                Some((name.to_owned(), size.parse().ok()?))
            });
            found.extend(definition);
        }
    }
    found.sort();
    found
}

#[test]
fn every_structure_is_known_here() {
    let known: Vec<(String, usize)> =
        structures().into_iter().map(|(name, (size, _))| (name.to_owned(), size)).collect();
    assert_eq!(defined(), known, "structures in src/format (left) and in this test");
}

#[test]
fn constants_are_the_codes() {
    let page = page();
    let rows = table(page.lines(), &["constant", "value", "meaning"]);
    let documented: BTreeMap<&str, u64> = rows.iter().map(|row| (row[0], parse(row[1]))).collect();
    assert_eq!(documented.len(), rows.len(), "a constant is there twice");
    assert_eq!(documented, constants(), "constants on the page (left) and in the code");
}

/// Names of the public constants that the sources define, by module.
fn defined_constants() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            // Not those of a structure, which are indented, nor functions.
            let name = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(':'));
            let name = name.filter(|(name, _)| !name.starts_with("fn "));
            found.extend(name.map(|(name, _)| format!("{module}::{name}")));
        }
    }
    found.sort();
    found
}

#[test]
fn every_constant_is_known_here() {
    let known: Vec<String> = constants().into_keys().map(str::to_owned).collect();
    assert_eq!(defined_constants(), known, "constants in src/format (left) and in this test");
}

#[test]
fn quoted_bytes_are_the_golden_buckets() {
    let page = page();
    let golden = std::fs::read(root().join("vectors/kvb/golden.kvb")).unwrap();
    let mut is_quote = false;
    let (mut quoted, mut wrong) = (0, Vec::new());
    for line in page.lines() {
        if line.starts_with("```") {
            is_quote = line == "```hex";
        } else if is_quote {
            let mut words = line.split_whitespace();
            let at = usize::from_str_radix(words.next().unwrap(), 16).unwrap();
            let bytes: Vec<u8> = words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect();
            let actual = golden.get(at..at + bytes.len()).unwrap_or_default();
            if actual != bytes {
                wrong.push(format!("{line}\n   now: {actual:02x?}"));
            }
            quoted += bytes.len();
        }
    }
    assert!(wrong.is_empty(), "quoted bytes that are no longer there:\n{}", wrong.join("\n"));
    assert!(quoted > 500, "only {quoted} bytes quoted; where is the example?");
}

/// Links within the page lead somewhere.
#[test]
fn links_have_targets() {
    let page = page();
    let anchor = |title: &str| -> String {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let titles = page.lines().filter(|line| line.starts_with('#'));
    let anchors: Vec<String> =
        titles.map(|line| anchor(line.trim_start_matches('#').trim())).collect();
    for link in page.split("](#").skip(1) {
        let target = link.split(')').next().unwrap();
        assert!(anchors.iter().any(|anchor| anchor == target), "no heading for #{target}");
    }
}
