//! What a writer does to the file before it goes on: the cut of the tail made physical, a gap in the seqnos, a checkpoint.
//!
//! Everything here may be done again after a crash in it.

use crate::core::Core;
use crate::error::{Error, Result, What};
use crate::extent::Extent;
use crate::format::free_map::{self, FreeMapHead};
use crate::format::segment::Kind;
use crate::keeper::Keeper;
use crate::mount::{Parts, named_extent, segment_extent};
use crate::root::secure;
use crate::segment::{Segment, write_passive};
use crate::walk::header_at;

/// Writes a segment's bytes once more, as they are. If the last writer stopped because a sync failed, the system may show
/// bytes that it will never write by itself; no later sync covers them unless they are written again.
fn rewrite(core: &Core, segment: &Segment) -> Result<()> {
    let start = core.geometry().paddr(segment.extent.start_page);
    let len = usize::try_from(segment.len).map_err(|_| Error::corrupt(What::Record, start))?;
    let bytes = core.log.bytes(start, len).ok_or_else(|| Error::corrupt(What::Record, start))?;
    // Copied first: what is borrowed from the mapping must not be written to.
    let copy = bytes.to_vec();
    core.disk.write_at(start, &copy).map_err(Error::io("write the tail once more"))
}

/// Frees segments on disk that were given up in the table only: their records must not come back when it is lost. What is
/// free already is written once more: if a sync failed, that may be seen and not be on disk.
fn free_stale(core: &Core, keeper: &Keeper) -> Result<()> {
    let geometry = core.geometry();
    for free in keeper.space.iter() {
        let mut page = free.start_page;
        while page < free.end_page() {
            // Whoever takes the extent writes what a walk needs.
            let Ok(header) = header_at(&core.log, geometry, page) else { break };
            let Some(page_count) = header.page_count(geometry.page_size) else { break };
            let extent = Extent::new(page, page_count);
            if header.kind() != Some(Kind::Meta) && extent.end_page() <= free.end_page() {
                write_passive(&*core.disk, geometry, Kind::Free, extent)?;
            }
            page = extent.end_page();
        }
    }
    Ok(())
}

/// Takes the stamps away from pages of the free-space map that are of a checkpoint which was never finished: the next one
/// takes the same epoch, and would seem to vouch for them.
fn blank_map(core: &Core, keeper: &Keeper) -> Result<()> {
    let geometry = core.geometry();
    for page in keeper.free_map.start_page..keeper.free_map.end_page() {
        let at = geometry.paddr(page);
        let stamp = core.log.bytes(at, FreeMapHead::SIZE).and_then(free_map::stamp_of);
        if stamp.is_some_and(|stamp| stamp.epoch > keeper.epoch) {
            core.disk
                .write_at(at, &[0; FreeMapHead::SIZE])
                .map_err(Error::io("write the free-space map"))?;
        }
    }
    Ok(())
}

/// Makes the cut physical and the gap durable.
pub(crate) fn recover(core: &Core, parts: &Parts) -> Result<()> {
    let geometry = core.geometry();
    secure(&*core.disk, &parts.root)?;
    let mut keeper = core.lock_keeper();
    blank_map(core, &keeper)?;
    let mut freed = Vec::new();
    for segment in &parts.tail.segments {
        if segment.last_seqno() > parts.root.extension.durable_seqno.get() {
            rewrite(core, segment)?;
        }
        freed.extend(keeper.register(core, segment)?);
    }
    free_stale(core, &keeper)?;
    let pieces = parts.aborted.iter().map(segment_extent);
    for extent in parts.tail.abandoned.iter().map(named_extent).chain(pieces) {
        write_passive(&*core.disk, geometry, Kind::Free, extent)?;
        freed.push(extent);
    }
    // A write that was cut short may have left half a header, which leads no walk on.
    for extent in parts.tail.untouched.iter().map(named_extent) {
        if header_at(&core.log, geometry, extent.start_page).is_err() {
            write_passive(&*core.disk, geometry, Kind::Free, extent)?;
        }
    }
    // Extents nobody began stay in reserve, under new ids: a torn header may have used up the old one.
    keeper.named = parts.tail.untouched.clone();
    let mut next_seg_id = keeper.next_seg_id;
    for named in &mut keeper.named {
        named.seg_id.set(next_seg_id);
        next_seg_id += 1;
    }
    keeper.next_seg_id = next_seg_id;
    keeper.tail_seqno = parts.next_seqno();
    if !parts.aborted.is_empty() {
        // The table on disk may list them, and would go on doing so.
        keeper.write_table(core)?;
    }
    keeper.checkpoint(core)?;
    for extent in freed {
        keeper.space.give_back(extent);
    }
    core.lock_supply().reserve.extend(keeper.named.iter().copied());
    Ok(())
}
