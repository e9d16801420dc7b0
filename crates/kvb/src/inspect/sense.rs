//! What the bytes of a field say.

use crate::format::{
    book, extension, free_map, key_block, lineage, meta, record, roster, segment, superblock,
};

/// What the bytes of a field say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sense {
    /// Bytes.
    Bytes,
    /// A number.
    Number(u64),
    /// A number whose digits say more in hexadecimal: a hash, a checksum, an id.
    Word(u64),
    /// Nanoseconds since 1970.
    Time(u64),
    /// The number of a page.
    Page(u64),
    /// A byte of the file.
    Offset(u64),
    /// A number that stands for something.
    Named(u64, &'static str),
    /// Flags that are set.
    Flags(u64, Vec<&'static str>),
}

/// Names of bits.
type Bits = &'static [(u64, &'static str)];

const SUPERBLOCK_FLAGS: Bits = &[
    (superblock::FLAG_ZSTD, "zstd"),
    (superblock::FLAG_EXTENSION, "extension"),
    (superblock::FLAG_SIPHASH, "siphash"),
    (superblock::FLAG_NO_DIRECTORY, "no directories"),
    (superblock::FLAG_LINEAGE, "lineage"),
    (superblock::FLAG_ENCRYPTED, "encrypted"),
    (superblock::FLAG_DICTIONARY, "dictionaries"),
    (superblock::FLAG_INCREMENT, "increment"),
];
const SEGMENT_FLAGS: Bits = &[
    (segment::FLAG_DATA, "DATA"),
    (segment::FLAG_FREE, "FREE"),
    (segment::FLAG_META, "META"),
    (segment::FLAG_MOVED, "MOVED"),
    (segment::FLAG_GUARD, "GUARD"),
    (segment::FLAG_SALTED, "SALTED"),
];
const ENTRY_FLAGS: Bits = &[(1, "moved"), (2, "guard")];
const MARKS: Bits = &[(1, "commit"), (2, "moved")];

/// What a field of a structure says.
pub(super) fn sense(structure: &str, field: &str, bytes: &[u8]) -> Sense {
    let Some(value) = number(bytes) else { return Sense::Bytes };
    match (structure, field) {
        ("Superblock", "flags") => flags(value, SUPERBLOCK_FLAGS),
        ("SegmentHeader", "flags") => flags(value, SEGMENT_FLAGS),
        ("SegmentEntry", "flags") => flags(value, ENTRY_FLAGS),
        ("Record", "reserved16") => flags(value, MARKS),
        (_, "magic") => match magic(value) {
            Some(name) => Sense::Named(value, name),
            None => Sense::Word(value),
        },
        (_, "kind" | "enc" | "hash_kind") => match kind(structure, field, value) {
            Some(name) => Sense::Named(value, name),
            None => Sense::Number(value),
        },
        (_, "paddr" | "record_paddr" | "commit_paddr") => Sense::Offset(value),
        (_, "reserved" | "salt" | "tag" | "nonce" | "bytes") | ("Record", "key" | "value") => {
            Sense::Bytes
        }
        (_, name) if is_time(name) => Sense::Time(value),
        (_, name) if is_page(name) => Sense::Page(value),
        (_, name) if is_word(name) => Sense::Word(value),
        _ => Sense::Number(value),
    }
}

fn is_time(name: &str) -> bool {
    name.ends_with("_ns")
}

fn is_page(name: &str) -> bool {
    name.ends_with("start_page")
        || matches!(name, "segment_end_page" | "pageid" | "self_page" | "b_page" | "first_page")
        || matches!(name, "bulletin_page" | "index_pageid")
}

fn is_word(name: &str) -> bool {
    name.contains("crc32c")
        || name.contains("uuid")
        || name.contains("hash")
        || matches!(name, "image_id" | "table_id" | "digest" | "session" | "key_id" | "old_key_id")
}

/// Bytes of a length that numbers have.
fn number(bytes: &[u8]) -> Option<u64> {
    if !matches!(bytes.len(), 1 | 2 | 4 | 8) {
        return None;
    }
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn flags(value: u64, bits: Bits) -> Sense {
    let set = bits.iter().filter(|(bit, _)| value & bit != 0).map(|(_, name)| *name);
    Sense::Flags(value, set.collect())
}

fn magic(value: u64) -> Option<&'static str> {
    let value = u32::try_from(value).ok()?;
    let known = [
        (superblock::MAGIC, "a bucket"),
        (extension::MAGIC, "extension"),
        (key_block::MAGIC, "key block"),
        (lineage::MAGIC, "lineage"),
        (roster::MAGIC, "roster"),
        (free_map::MAGIC, "free-space map"),
        (meta::MAGIC, "derived data"),
        (book::MAGIC, "book"),
    ];
    known.iter().find(|(magic, _)| *magic == value).map(|(_, name)| *name)
}

fn kind(structure: &str, field: &str, value: u64) -> Option<&'static str> {
    let names: &[&'static str] = match (structure, field) {
        ("Record", "kind") => &["PUT", "DELETE"],
        ("Record", "enc") => {
            let form = usize::try_from(value & !u64::from(record::ENC_AEAD)).ok()?;
            let is_encrypted = value & u64::from(record::ENC_AEAD) != 0;
            let plain = ["raw", "zstd", "zstd with a dictionary"];
            let sealed = ["encrypted", "zstd, encrypted", "zstd with a dictionary, encrypted"];
            return (if is_encrypted { sealed } else { plain }).get(form).copied();
        }
        ("JournalEntry", "kind") => {
            &["never written", "index insert", "index update", "index delete", "commit"]
        }
        ("NamedExtent", "kind") => &["log", "output of compaction"],
        ("MetaHead", "kind") => &["", "index image", "side data", "segment table"],
        ("Section", "kind") => {
            &["", "run", "filter", "segment entries", "key directory", "MACs", "salt"]
        }
        ("Extension", "hash_kind") => &["XXH3-64", "SipHash-2-4", "SipHash-2-4, key hidden"],
        _ => return None,
    };
    names.get(usize::try_from(value).ok()?).copied().filter(|name| !name.is_empty())
}
