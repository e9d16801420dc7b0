//! A registered segment as readers know it.
//!
//! A view holds the segments it may lead to; the extent of one that compaction emptied is given back when nobody
//! holds it any more.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::core::Fixed;
use crate::error::Result;
use crate::extent::{Extent, Geometry};
use crate::format::roster::{SEGMENT_GUARD, SEGMENT_MOVED, SegmentEntry};
use crate::format::run::{DELTA_FAR, RunEntry};
use crate::log::Log;
use crate::order::{Directory, Order, Place};
use crate::runs::Run;
use crate::walk::rescan;

/// Whoever has a clone may read the segment it belongs to.
pub(crate) type Hold = Arc<()>;

/// Slot hash and seqno of records by their offset.
pub(crate) type ByOffset = HashMap<u64, (u64, u64)>;

/// A registered segment.
#[derive(Debug)]
pub(crate) struct Sealed {
    /// What the table says of it, but for what has died since.
    pub(crate) entry: SegmentEntry,
    /// Held by overlays that name its records.
    pub(crate) hold: Hold,
    /// How many bytes had been given up since open when it was registered.
    born: u64,
    run: OnceLock<Option<Run>>,
    order: OnceLock<Order>,
}

impl Sealed {
    pub(crate) fn new(entry: SegmentEntry, hold: Hold, born: u64) -> Sealed {
        Sealed { entry, hold, born, run: OnceLock::new(), order: OnceLock::new() }
    }

    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// Its records were moved here, in key order.
    pub(crate) fn is_moved(&self) -> bool {
        self.entry.flags.get() & SEGMENT_MOVED != 0
    }

    /// No image names its records.
    pub(crate) fn is_guard(&self) -> bool {
        self.entry.flags.get() & SEGMENT_GUARD != 0
    }

    /// Data and side data.
    pub(crate) fn extent(&self) -> Extent {
        let entry = &self.entry;
        let pages = u64::from(entry.data_page_count.get()) + u64::from(entry.meta_page_count.get());
        Extent::new(entry.start_page.get(), pages)
    }

    /// Where its header stands.
    pub(crate) fn start(&self, geometry: Geometry) -> u64 {
        geometry.paddr(self.entry.start_page.get())
    }

    /// Its run; `None` if it is damaged.
    pub(crate) fn run(&self, log: &Log, fixed: &Fixed) -> Option<&Run> {
        self.run.get_or_init(|| Run::load(log, fixed.geometry, fixed.uuid, &self.entry)).as_ref()
    }

    /// Its records by key: as its directory tells, or sorted here if it has none that holds.
    pub(crate) fn order(&self, log: &Log, fixed: &Fixed) -> Result<Order> {
        if let Some(order) = self.order.get() {
            return Ok(order.clone());
        }
        let order = match Directory::load(log, fixed.geometry, fixed.uuid, &self.entry) {
            Some(directory) => Order::Directory(directory),
            None => {
                let offsets = self.offsets(log, fixed)?;
                Order::Sorted(Order::sort(log, &fixed.hash(), self.start(fixed.geometry), &offsets))
            }
        };
        Ok(self.order.get_or_init(|| order).clone())
    }

    /// Slot hash and seqno of its records by offset, as far as its run tells.
    pub(crate) fn by_offset(&self, log: &Log, fixed: &Fixed) -> ByOffset {
        let Some(run) = self.run(log, fixed) else { return ByOffset::new() };
        let entries = (0..run.count).filter_map(|at| run.entry(log, at));
        let near = entries.filter(|entry| entry.seqno_delta.get() != DELTA_FAR);
        let seqno = |entry: &RunEntry| run.base_seqno + u64::from(entry.seqno_delta.get());
        near.map(|entry| (entry.record_offset(), (entry.slot_hash.get(), seqno(&entry)))).collect()
    }

    /// Offsets of its records in log order.
    fn offsets(&self, log: &Log, fixed: &Fixed) -> Result<Vec<u32>> {
        let offset = |entry: RunEntry| entry.offset.get();
        let mut offsets: Vec<u32> = match self.run(log, fixed) {
            Some(run) => (0..run.count).filter_map(|at| run.entry(log, at)).map(offset).collect(),
            None => {
                let segment = rescan(log, fixed, &self.entry)?;
                segment.entries.iter().copied().map(offset).collect()
            }
        };
        offsets.sort_unstable_by_key(|offset| Place(*offset).offset());
        Ok(offsets)
    }
}
