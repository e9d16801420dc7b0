//! Following another process's log: what it has published since is taken up into the overlay of a read-only bucket.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::error::Result;
use crate::format::index_page::slot_hash;
use crate::format::record::DELETE;
use crate::format::roster::{NAMED_LOG, NamedExtent};
use crate::overlay::DELETE_BIT;
use crate::root::{Unlock, choose_steadily};
use crate::tail::{begun_segment, next_record};
use crate::unsealed::Unsealed;
use crate::view::{Segments, View};
use crate::writer::Writer;

impl Core {
    /// Takes up the log to a seqno that was published. False if the way there is lost: the bucket must be mounted again.
    pub(crate) fn follow(&self, target: u64) -> Result<bool> {
        let mut writer = self.lock_writer();
        if self.published.load(Ordering::Acquire) >= target {
            return Ok(true);
        }
        writer.changes.clear();
        while writer.next_seqno <= target {
            if !self.take_up(&mut writer) && !self.go_to_next_segment(&mut writer)? {
                writer.next_seqno = self.published.load(Ordering::Acquire) + 1;
                return Ok(false);
            }
        }
        self.secure_overlay(writer.changes.len())?;
        self.publish(&writer)?;
        writer.filled.clear();
        Ok(true)
    }

    /// Takes up the next record of the segment the log is in.
    fn take_up(&self, writer: &mut Writer) -> bool {
        let geometry = self.geometry();
        let seqno = writer.next_seqno;
        let Some(active) = &mut writer.active else { return false };
        let Some(record) = next_record(&self.log, geometry, active, Some(seqno)) else {
            return false;
        };
        let is_delete = record.header.kind == DELETE;
        let paddr = active.end_paddr(geometry);
        let entry = if is_delete { paddr | DELETE_BIT } else { paddr };
        writer.changes.push((slot_hash(record.header.hash64.get()), entry));
        active.len += record.header.record_len();
        if let Some(unsealed) = &active.unsealed {
            unsealed.reach(active.len);
        }
        writer.next_seqno += 1;
        true
    }

    /// Goes to the segment that begins with the next seqno; false if no named extent has it.
    fn go_to_next_segment(&self, writer: &mut Writer) -> Result<bool> {
        let keys = self.log.keys();
        let unlock = keys.as_deref().map_or(Unlock::With(None), Unlock::Known);
        let (root, len) = choose_steadily(&*self.disk, unlock)?;
        self.log.cover(len)?;
        let geometry = self.geometry();
        let is_log = |named: &&NamedExtent| named.kind.get() == NAMED_LOG;
        let next = root.roster.named.iter().filter(is_log).find_map(|named| {
            let segment = begun_segment(&self.log, geometry, named, self.fixed.style())?;
            (segment.base_seqno == writer.next_seqno).then_some(segment)
        });
        let Some(mut segment) = next else { return Ok(false) };
        let start = geometry.paddr(segment.extent.start_page);
        let unsealed = Arc::new(Unsealed::new(segment.seg_id, start, segment.len, segment.len));
        segment.unsealed = Some(Arc::clone(&unsealed));
        self.change_view(|view| {
            let mut segments = Segments::clone(&view.segments);
            segments.tail.push(unsealed);
            View { segments: Arc::new(segments), ..view.clone() }
        });
        writer.filled.extend(writer.active.replace(segment));
        Ok(true)
    }
}
