//! A scan beside the rows it should give, from both ends.
//!
//! Where the time of the scan is known only roughly, a row that expires about then may be there or
//! not; what the scan once showed of it must stay so.
//!
//! Between a seek and the first row it leads to, this knows nothing of the other end: whether that
//! may go past the place sought is not for a test to say.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use kvb::{Row, Scan};

/// Which keys a scan is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Those that begin so.
    Prefix(Vec<u8>),
    /// Those between; the ends may be in the wrong order.
    Range(Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Of {
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        match self {
            Of::Prefix(prefix) => key.starts_with(prefix),
            Of::Range(from, to) => {
                let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
                RangeBounds::<[u8]>::contains(&bounds, key)
            }
        }
    }
}

/// A row that a scan should give.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Arc<[u8]>,
    /// The earliest and latest moment at which it may expire; `None` if it never does.
    pub(crate) expires: Option<(u64, u64)>,
    pub(crate) presence: Presence,
}

/// Whether a row is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Certain,
    Unknown,
    /// It was unknown, and the scan did not show it.
    Absent,
}

/// Bytes, cut short for a message.
pub(crate) fn short(bytes: &[u8]) -> String {
    format!("{} bytes {:x?}", bytes.len(), &bytes[..bytes.len().min(24)])
}

/// What is left between the two ends of a scan.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    rows: Vec<Expected>,
    front: usize,
    back: usize,
    /// No row may be newer.
    seqno_max: u64,
}

impl Walk {
    /// A walk over rows in key order, none newer than `seqno_max`.
    pub(crate) fn new(rows: Vec<Expected>, seqno_max: u64) -> Walk {
        assert!(rows.windows(2).all(|pair| pair[0].key < pair[1].key), "a test in disorder");
        let back = rows.len();
        Walk { rows, front: 0, back, seqno_max }
    }

    /// Compares the scan's next row, and tells whether there was one.
    pub(crate) fn next(&mut self, scan: &mut Scan<'_>, context: &str) -> bool {
        let row = scan.next().map(|row| row.unwrap_or_else(|error| panic!("{context}: {error}")));
        let Some(row) = row else {
            self.skip(self.front, self.back, context);
            self.front = self.front.max(self.back);
            return false;
        };
        let at = self.find(&row, context);
        self.skip(self.front, at, context);
        self.front = at + 1;
        true
    }

    /// Compares the scan's next row from the back, and tells whether there was one.
    pub(crate) fn next_back(&mut self, scan: &mut Scan<'_>, context: &str) -> bool {
        let row =
            scan.next_back().map(|row| row.unwrap_or_else(|error| panic!("{context}: {error}")));
        let Some(row) = row else {
            self.skip(self.front, self.back, context);
            self.back = self.back.min(self.front);
            return false;
        };
        let at = self.find(&row, context);
        self.skip(at + 1, self.back, context);
        self.back = at;
        true
    }

    /// Compares everything that is left, from the front.
    pub(crate) fn drain(&mut self, scan: &mut Scan<'_>, context: &str) {
        while self.next(scan, context) {}
        assert!(scan.next().is_none(), "{context}: a row behind the end");
    }

    /// Compares everything that is left, from the back.
    pub(crate) fn drain_back(&mut self, scan: &mut Scan<'_>, context: &str) {
        while self.next_back(scan, context) {}
        assert!(scan.next_back().is_none(), "{context}: a row before the start");
    }

    /// Seeks, and compares the row that leads to.
    pub(crate) fn seek(&mut self, scan: &mut Scan<'_>, key: &[u8], context: &str) -> bool {
        scan.seek(key);
        self.front = self.rows.partition_point(|row| row.key.as_slice() < key);
        self.next(scan, context)
    }

    /// Seeks from the back, and compares the row that leads to.
    pub(crate) fn seek_back(&mut self, scan: &mut Scan<'_>, key: &[u8], context: &str) -> bool {
        scan.seek_back(key);
        self.back = self.rows.partition_point(|row| row.key.as_slice() <= key);
        self.next_back(scan, context)
    }

    /// How many rows there certainly are, and how many there may be.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let count = |presence| self.rows.iter().filter(|row| row.presence == presence).count();
        let wide = |count: usize| u64::try_from(count).unwrap();
        (wide(count(Presence::Certain)), wide(count(Presence::Unknown)))
    }

    /// Where a row stands.
    fn find(&mut self, row: &Row<'_>, context: &str) -> usize {
        let found = self.rows.binary_search_by(|expected| expected.key.as_slice().cmp(row.key()));
        let Ok(at) = found else {
            panic!("{context}: a row that should not be there, key {}", short(row.key()));
        };
        assert!(
            (self.front..self.back).contains(&at),
            "{context}: row {at} of {} is not between {} and {}, key {}",
            self.rows.len(),
            self.front,
            self.back,
            short(row.key()),
        );
        let expected = &mut self.rows[at];
        assert!(expected.presence != Presence::Absent, "{context}: a row came back");
        expected.presence = Presence::Certain;
        assert!(
            row.value() == &*expected.value,
            "{context}: key {}, found {}, expected {}",
            short(row.key()),
            short(row.value()),
            short(&expected.value),
        );
        let fits = match (row.expires_unix_ns(), expected.expires) {
            (None, None) => true,
            (Some(at), Some((earliest, latest))) => (earliest..=latest).contains(&at),
            _ => false,
        };
        let times = (row.expires_unix_ns(), expected.expires);
        assert!(fits, "{context}: key {} expires {times:?}", short(row.key()));
        let seqno = row.seqno();
        assert!((1..=self.seqno_max).contains(&seqno), "{context}: seqno {seqno}");
        at
    }

    /// The scan left out these rows.
    fn skip(&mut self, from: usize, to: usize, context: &str) {
        for row in self.rows.get_mut(from..to).into_iter().flatten() {
            assert!(
                row.presence != Presence::Certain,
                "{context}: a row is missing, key {}",
                short(&row.key)
            );
            row.presence = Presence::Absent;
        }
    }
}
