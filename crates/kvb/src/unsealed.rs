//! A segment of the log that is not registered yet, as scans know it.
//!
//! Scans sort what was written to it since the last one looked, and keep the sorted parts for the next. A part is
//! joined with the one before it when that is not much larger, so there are few, and every record is sorted a
//! logarithmic number of times.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::lock;
use crate::format::record::{DELETE, RecordHeader};
use crate::format::run::DELETE_BIT;
use crate::hash::KeyHash;
use crate::log::Log;
use crate::order::{self, Order, Place};
use crate::sealed::Hold;

/// A segment of the tail.
#[derive(Debug)]
pub(crate) struct Unsealed {
    pub(crate) seg_id: u64,
    /// Where its header stands.
    pub(crate) start: u64,
    /// Held by overlays that name its records.
    pub(crate) hold: Hold,
    /// Where its first record stands.
    records_at: u64,
    /// Bytes of header and records written.
    end: AtomicU64,
    sorted: Mutex<Parts>,
}

#[derive(Debug)]
struct Parts {
    /// Up to where the parts reach.
    end: u64,
    parts: Vec<order::Sorted>,
}

impl Unsealed {
    /// A segment written up to `end`, with records from an offset on.
    pub(crate) fn new(seg_id: u64, start: u64, records_at: u64, end: u64) -> Unsealed {
        let sorted = Parts { end: records_at, parts: Vec::new() };
        Unsealed {
            seg_id,
            start,
            hold: Hold::default(),
            records_at,
            end: AtomicU64::new(end),
            sorted: Mutex::new(sorted),
        }
    }

    /// Its records up to here are written, which a scan needs to know; whether it may see them, their seqnos tell.
    pub(crate) fn reach(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Bytes of records written.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.end.load(Ordering::Acquire) - self.records_at
    }

    /// Where its records start, as far as they can be followed.
    pub(crate) fn offsets(&self, log: &Log) -> Vec<u64> {
        let end = self.end.load(Ordering::Acquire);
        let next = |at: &u64| Some(at + log.header(self.start + at)?.record_len());
        std::iter::successors(Some(self.records_at), next).take_while(|at| *at < end).collect()
    }

    /// Everything written, in parts that are each in key order.
    pub(crate) fn orders(&self, log: &Log, hash: &KeyHash) -> Vec<Order> {
        let mut sorted = lock(&self.sorted);
        let end = self.end.load(Ordering::Acquire);
        let mut offsets = Vec::new();
        let mut at = sorted.end;
        while at < end {
            let bytes = log.bytes(self.start + at, RecordHeader::SIZE);
            let header: Option<RecordHeader> = bytes.and_then(crate::format::read);
            let (Some(header), Ok(offset)) = (header, u32::try_from(at)) else { break };
            offsets.push(if header.kind == DELETE { offset | DELETE_BIT } else { offset });
            at += header.record_len();
        }
        sorted.end = at.max(sorted.end);
        if !offsets.is_empty() {
            while let Some(last) =
                sorted.parts.pop_if(|last| last.all().count() / 2 <= offsets.len())
            {
                // Back in log order, of which the sort makes use.
                offsets.extend(last.all());
                offsets.sort_unstable_by_key(|offset| Place(*offset).offset());
            }
            sorted.parts.push(Order::sort(log, hash, self.start, &offsets));
        }
        sorted.parts.iter().cloned().map(Order::Sorted).collect()
    }
}
