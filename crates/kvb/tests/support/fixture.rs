//! A bucket in memory with a clock that moves when told, and rows to compare.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::ops::RangeBounds;
use std::sync::Arc;

use host::{ManualEnv, MemoryDisk};
use kvb::{Bucket, Durability, Options, Reader, Result, Row, Scan, Snapshot};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const DAY: u64 = 24 * 3600 * SECOND;
/// Where the clock begins.
pub(crate) const START: u64 = 20_000 * DAY;
/// The smallest segments there are.
pub(crate) const SEGMENT: u64 = 16 << 10;

/// Keys and values.
pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A place for a bucket.
pub(crate) struct Fixture {
    pub(crate) disk: MemoryDisk,
    pub(crate) env: Arc<ManualEnv>,
    pub(crate) options: Options,
}

impl Fixture {
    /// Small segments, no threads, no syncs.
    pub(crate) fn new() -> Fixture {
        let options = Options::default()
            .background(false)
            .durability(Durability::Relaxed)
            .segment_bytes_max(SEGMENT);
        Fixture::with(options)
    }

    pub(crate) fn with(options: Options) -> Fixture {
        let env = Arc::new(ManualEnv::new(START, 7));
        Fixture { disk: MemoryDisk::new(), env, options }
    }

    pub(crate) fn without_directories() -> Fixture {
        let fixture = Fixture::new();
        Fixture { options: fixture.options.clone().directories(false), ..fixture }
    }

    /// One with key directories and one without.
    pub(crate) fn both() -> [Fixture; 2] {
        [Fixture::new(), Fixture::without_directories()]
    }

    pub(crate) fn create(&self) -> Bucket {
        let env = Arc::<ManualEnv>::clone(&self.env);
        Bucket::create_on(Arc::new(self.disk.reopen()), env, self.options.clone()).unwrap()
    }

    pub(crate) fn open(&self) -> Bucket {
        let env = Arc::<ManualEnv>::clone(&self.env);
        Bucket::open_on(Arc::new(self.disk.reopen()), env, self.options.clone()).unwrap()
    }

    /// What a reader sees in a copy of the bytes.
    pub(crate) fn read_only(&self) -> Snapshot<'static> {
        read_only(self.disk.to_bytes())
    }

    /// Goes on from a copy of the bytes, as if the process that has `bucket` open were killed.
    pub(crate) fn kill(&mut self, bucket: Bucket) -> Bucket {
        self.disk = MemoryDisk::from_bytes(self.disk.to_bytes());
        drop(bucket);
        self.open()
    }
}

/// What a reader sees in these bytes.
pub(crate) fn read_only(bytes: Vec<u8>) -> Snapshot<'static> {
    let env = Arc::new(ManualEnv::new(START, 8));
    Reader::open_on(Arc::new(MemoryDisk::from_bytes(bytes)), env).unwrap().snapshot().unwrap()
}

/// Whatever can be scanned.
pub(crate) trait Scanned {
    fn prefix(&self, prefix: &[u8]) -> Scan<'_>;
    fn between(&self, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Scan<'_>;
}

impl Scanned for Bucket {
    fn prefix(&self, prefix: &[u8]) -> Scan<'_> {
        self.scan(prefix)
    }

    fn between(&self, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Scan<'_> {
        self.range((from, to))
    }
}

impl Scanned for Snapshot<'_> {
    fn prefix(&self, prefix: &[u8]) -> Scan<'_> {
        self.scan(prefix)
    }

    fn between(&self, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Scan<'_> {
        self.range((from, to))
    }
}

/// The rows of a scan.
pub(crate) fn rows(scan: Scan<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    scan.map(owned).collect()
}

/// The rows of a scan from the back.
pub(crate) fn rows_back(scan: Scan<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    scan.rev().map(owned).collect()
}

/// The keys of a scan, as text.
pub(crate) fn keys(scan: Scan<'_>) -> Vec<String> {
    let text = |(key, _): (Vec<u8>, Vec<u8>)| String::from_utf8(key).unwrap();
    rows(scan).into_iter().map(text).collect()
}

/// Panics unless two lists of rows are equal, and says where they part.
pub(crate) fn assert_rows<'a>(
    found: &[(Vec<u8>, Vec<u8>)],
    expected: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    context: &str,
) {
    let expected: Vec<_> = expected.collect();
    let short = |row: (&[u8], &[u8])| {
        let cut = |bytes: &[u8]| bytes[..bytes.len().min(24)].to_vec();
        (row.0.len(), cut(row.0), row.1.len(), cut(row.1))
    };
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (found, expected) = ((&*found.0, &*found.1), (&**expected.0, &**expected.1));
        assert!(
            found == expected,
            "{context}: row {at}: {:?}, {:?}",
            short(found),
            short(expected)
        );
    }
    assert_eq!(found.len(), expected.len(), "{context}: how many rows");
}

/// Compares all there is with a map, both ways.
pub(crate) fn assert_all(bucket: &impl Scanned, map: &Map, context: &str) {
    assert_rows(&rows(bucket.prefix(b"")), map.iter(), &format!("{context}, forwards"));
    let back = format!("{context}, backwards");
    assert_rows(&rows_back(bucket.prefix(b"")), map.iter().rev(), &back);
}

/// Compares what begins and ends at a key, or right beside it.
pub(crate) fn assert_around(bucket: &impl Scanned, map: &Map, key: &[u8], context: &str) {
    let key = key.to_vec();
    for from in [Included(key.clone()), Excluded(key.clone()), Unbounded] {
        for to in [Included(key.clone()), Excluded(key.clone()), Unbounded] {
            let inside = map.iter().filter(|(key, _)| {
                RangeBounds::<Vec<u8>>::contains(&(from.clone(), to.clone()), *key)
            });
            let limit = 20;
            let scan = || bucket.between(from.clone(), to.clone());
            let front: Vec<_> = scan().take(limit).map(owned).collect();
            let back: Vec<_> = scan().rev().take(limit).map(owned).collect();
            let cut = |key: &Vec<u8>| key[..key.len().min(24)].to_vec();
            let ends = (from.as_ref().map(cut), to.as_ref().map(cut));
            let context = format!("{context}, {ends:x?}");
            assert_rows(&front, inside.clone().take(limit), &context);
            assert_rows(&back, inside.rev().take(limit), &format!("{context}, backwards"));
        }
    }
}

/// A copy of a row.
pub(crate) fn owned(row: Result<Row<'_>>) -> (Vec<u8>, Vec<u8>) {
    let row = row.unwrap();
    (row.key().to_vec(), row.value().to_vec())
}
