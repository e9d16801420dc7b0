//! Every structure of the format, as the code has it. `tests/docs.rs` fails if one is missing here.

#![allow(dead_code, reason = "every test file uses a part of this")]

use kvb::format::Field;
use kvb::format::book::BookHead;
use kvb::format::directory::DirectoryHead;
use kvb::format::extension::Extension;
use kvb::format::footer::{FooterHead, SparsePair};
use kvb::format::free_map::{FreeExtent, FreeMapHead};
use kvb::format::index_page::{IndexPageHeader, IndexSlot};
use kvb::format::journal::JournalEntry;
use kvb::format::key_block::KeyBlock;
use kvb::format::lineage::Lineage;
use kvb::format::meta::{MetaHead, Section};
use kvb::format::record::RecordHeader;
use kvb::format::roster::{NamedExtent, RosterHead, SegmentEntry};
use kvb::format::run::RunEntry;
use kvb::format::segment::SegmentHeader;
use kvb::format::superblock::Superblock;
use zerocopy::{FromBytes, IntoBytes};

pub(crate) struct Structure {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) layout: &'static [Field],
    /// Bytes read and written again.
    pub(crate) round_trip: fn(&[u8]) -> Option<Vec<u8>>,
}

macro_rules! structures {
    ($($name:ident),* $(,)?) => {
        [$( Structure {
            name: stringify!($name),
            size: $name::SIZE,
            layout: $name::LAYOUT,
            round_trip: |bytes| {
                $name::read_from_bytes(bytes).ok().map(|value| value.as_bytes().to_vec())
            },
        }, )*]
    };
}

pub(crate) const ALL: &[Structure] = &structures![
    Superblock,
    Extension,
    KeyBlock,
    BookHead,
    Lineage,
    RosterHead,
    NamedExtent,
    SegmentEntry,
    SegmentHeader,
    RecordHeader,
    FooterHead,
    SparsePair,
    MetaHead,
    Section,
    RunEntry,
    DirectoryHead,
    FreeMapHead,
    FreeExtent,
    IndexPageHeader,
    IndexSlot,
    JournalEntry,
];
