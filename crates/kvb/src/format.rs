//! The bytes of a bucket. One file a structure, bytes in and bytes out, nothing else.
//!
//! Invariants
//! - Every structure is packed little-endian in field order; `on_disk!` refuses to compile otherwise.
//! - `LAYOUT` is derived from the definition, and `docs/format/kvb.md` is tested against it.
//! - Decoding checks before it believes: a value of a decoded type has passed its CRC.
//! - Nothing here knows about files; nothing outside knows about offsets of fields.

#![allow(clippy::as_conversions)]

pub mod book;
pub mod directory;
pub mod extension;
pub mod filter;
pub mod footer;
pub mod free_map;
pub mod index_page;
pub mod journal;
pub mod key_block;
pub mod lineage;
pub mod meta;
pub mod record;
pub mod roster;
pub mod run;
pub mod segment;
pub mod stored;
pub mod superblock;

use std::fmt;

use crc_fast::CrcAlgorithm;

/// Defines a packed structure: its derives, its size, and a table of its fields.
macro_rules! on_disk {
    (
        $(#[$meta:meta])*
        pub struct $name:ident ($size:literal bytes) {
            $( $(#[$field_meta:meta])* pub $field:ident : $type:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
            zerocopy::KnownLayout, zerocopy::Unaligned,
        )]
        #[repr(C)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
        }

        impl $name {
            /// Size on disk in bytes.
            pub const SIZE: usize = $size;

            /// Name, offset and length of every field.
            pub const LAYOUT: &'static [$crate::format::Field] = &[
                $( $crate::format::Field {
                    name: stringify!($field),
                    offset: std::mem::offset_of!($name, $field),
                    len: size_of::<$type>(),
                }, )*
            ];
        }

        const _: () = assert!(size_of::<$name>() == $size);
    };
}
pub(crate) use on_disk;

/// One field of an on-disk structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The field's name, as in the specification.
    pub name: &'static str,
    /// Offset from the start of the structure.
    pub offset: usize,
    /// Length in bytes.
    pub len: usize,
}

/// What was found damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum What {
    /// Neither superblock can be used.
    Superblock,
    /// The file is shorter than its superblock says.
    FileEnd,
    /// The superblock names a region outside the file, or regions that overlap.
    Region,
    /// A page of the index image.
    IndexPage,
    /// A segment header.
    SegmentHeader,
    /// A segment footer.
    SegmentFooter,
    /// A record that was durable once.
    Record,
    /// A sealed segment's run.
    Run,
    /// The table of segments.
    Table,
    /// The free-space map.
    FreeMap,
    /// The journal ring.
    Journal,
    /// A compressed value, in a record that holds.
    Value,
    /// The dictionaries that compressed values need.
    Dictionary,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Superblock => "superblock",
            What::FileEnd => "end of the file (it was cut off)",
            What::Region => "region bounds",
            What::IndexPage => "index page",
            What::SegmentHeader => "segment header",
            What::SegmentFooter => "segment footer",
            What::Record => "record",
            What::Run => "run",
            What::Table => "segment table",
            What::FreeMap => "free-space map",
            What::Journal => "journal",
            What::Value => "compressed value",
            What::Dictionary => "book of dictionaries",
        })
    }
}

/// Damage: what, and at which byte of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corrupt {
    /// The structure that failed its check.
    pub what: What,
    /// Byte offset of that structure in the file.
    pub at: u64,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged {} at byte {}", self.what, self.at)
    }
}

/// CRC-32C (Castagnoli) with the usual initial value.
#[inline]
pub fn crc(bytes: &[u8]) -> u32 {
    // A CRC of 32 bits comes in the lower half.
    let any = || crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    host::crc32c_short(bytes).unwrap_or_else(any)
}

/// Reads a packed structure from the start of `bytes`.
pub(crate) fn read<T>(bytes: &[u8]) -> Option<T>
where
    T: zerocopy::FromBytes + zerocopy::Immutable,
{
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

/// Reads a packed structure whose last four bytes are the CRC-32C of all before them.
pub(crate) fn read_sealed<T>(bytes: &[u8]) -> Option<T>
where
    T: zerocopy::FromBytes + zerocopy::Immutable,
{
    let body = bytes.get(..size_of::<T>())?;
    let (covered, stored) = body.split_at_checked(body.len().checked_sub(4)?)?;
    let stored = u32::from_le_bytes(stored.try_into().ok()?);
    if crc(covered) == stored { read(body) } else { None }
}

/// Sets the CRC in the last four bytes of an encoded structure.
pub(crate) fn seal(bytes: &mut [u8]) {
    if let Some((covered, stored)) =
        bytes.len().checked_sub(4).and_then(|at| bytes.split_at_mut_checked(at))
    {
        stored.copy_from_slice(&crc(covered).to_le_bytes());
    }
}
