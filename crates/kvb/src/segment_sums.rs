//! Sums over records, by the segment each is in.

use std::collections::HashMap;

use crate::extent::{Extent, Geometry};
use crate::keeper::Keeper;

/// Sums by first page of a segment, and where the segments are.
pub(crate) struct SegmentSums {
    geometry: Geometry,
    extents: Vec<Extent>,
    pub(crate) sums: HashMap<u64, u64>,
}

impl SegmentSums {
    /// Nothing yet, of the segments there are now, registered or being written.
    pub(crate) fn new(keeper: &Keeper, geometry: Geometry) -> SegmentSums {
        let registered = keeper.segments.values().map(|kept| {
            let entry = &kept.entry;
            Extent::new(entry.start_page.get(), u64::from(entry.data_page_count.get()))
        });
        let named = keeper
            .named
            .iter()
            .map(|extent| Extent::new(extent.start_page.get(), u64::from(extent.page_count.get())));
        let mut extents: Vec<Extent> = registered.chain(named).collect();
        extents.sort_unstable();
        SegmentSums { geometry, extents, sums: HashMap::new() }
    }

    /// Adds to the sum of the segment in which a record is, if it is in one.
    pub(crate) fn add(&mut self, paddr: u64, amount: u64) {
        let page = self.geometry.page(paddr);
        let at = self.extents.partition_point(|extent| extent.start_page <= page);
        let extent = at.checked_sub(1).and_then(|at| self.extents.get(at));
        if let Some(extent) = extent.filter(|extent| page < extent.end_page()) {
            *self.sums.entry(extent.start_page).or_default() += amount;
        }
    }
}
