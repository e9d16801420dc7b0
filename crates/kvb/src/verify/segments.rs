//! Every segment: header, records, footer, side data, and what the table says of it.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Result, What};
use crate::extent::Extent;
use crate::format::footer::Footer;
use crate::format::record::DELETE;
use crate::format::roster::{SEGMENT_GUARD, SEGMENT_MOVED, SegmentEntry};
use crate::format::segment::{Kind, SegmentHeader};
use crate::opened::Opened;
use crate::sealed::Sealed;
use crate::segment::Segment;
use crate::unsealed::Unsealed;
use crate::verify::Verifier;
use crate::walk::read_records;

/// What the rules say of one record after another.
#[derive(Default)]
struct Rules {
    last_key: Option<Vec<u8>>,
    last_is_commit: bool,
}

impl Verifier<'_> {
    /// Checks all segments, registered or not.
    pub(super) fn check_segments(&mut self) -> Result<()> {
        let (view, _) = self.core.current();
        let mut sealed = view.segments.sealed.clone();
        sealed.sort_by_key(|one| one.entry.start_page.get());
        let bytes = |one: &Arc<Sealed>| one.entry.record_bytes.get();
        let tail: u64 = view.segments.tail.iter().map(|unsealed| unsealed.record_bytes()).sum();
        let total = sealed.iter().map(bytes).sum::<u64>() + tail;
        let mut done = 0;
        for one in &sealed {
            self.report("segments", done, total)?;
            self.check_segment(one);
            done += bytes(one);
        }
        for (index, unsealed) in view.segments.tail.iter().enumerate() {
            self.report("segments", done, total)?;
            self.check_unsealed(unsealed, index + 1 == view.segments.tail.len());
            done += unsealed.record_bytes();
        }
        self.report("segments", total, total)?;
        self.check_seqnos(&sealed);
        Ok(())
    }

    /// Checks a registered segment.
    fn check_segment(&mut self, sealed: &Sealed) {
        let (core, entry) = (self.core, &sealed.entry);
        let geometry = core.geometry();
        let at = sealed.start(geometry);
        self.found.segments += 1;
        let bytes = core.log.bytes(at, SegmentHeader::SIZE);
        let Some(header) = bytes.and_then(SegmentHeader::decode) else {
            self.damage(
                What::SegmentHeader,
                at,
                "the header of a registered segment does not hold",
            );
            return self.check_by_run(sealed);
        };
        self.check_header(&header, entry, at);
        let data = Extent::new(entry.start_page.get(), u64::from(entry.data_page_count.get()));
        let segment = read_records(&core.log, &core.fixed, data, &header);
        let mut rules = Rules::default();
        for run in &segment.entries {
            if let Some(record) = core.log.try_record(at + run.record_offset()) {
                self.check_record(&record, at + run.record_offset(), sealed.is_moved(), &mut rules);
            }
        }
        if segment.count() != u64::from(entry.record_count.get()) {
            let (found, count) = (segment.count(), entry.record_count.get());
            let end = segment.end_paddr(geometry);
            let meaning = format!("the record does not hold; {found} of {count} come before it");
            self.damage(What::Record, end, meaning);
            return self.check_behind(sealed, segment.len);
        }
        self.check_entry(&segment, entry, at);
        self.check_footer(&segment, &header, at);
        self.check_side_data(&segment, entry);
    }

    fn check_header(&mut self, header: &SegmentHeader, entry: &SegmentEntry, at: u64) {
        let page_size = self.core.geometry().page_size;
        let flags = entry.flags.get();
        let fits = header.kind() == Some(Kind::Data)
            && header.seg_id == entry.seg_id
            && header.base_seqno == entry.base_seqno
            && header.is_moved() == (flags & SEGMENT_MOVED != 0)
            && header.is_guard() == (flags & SEGMENT_GUARD != 0)
            && (header.key_no() != 0) == self.core.fixed.is_encrypted();
        if !fits {
            self.damage(
                What::SegmentHeader,
                at,
                "the header is not that of the segment registered here",
            );
        }
        // A header without a size is one whose sealing was cut short; it is written when the bucket is opened.
        let pages = header.page_count(page_size);
        let is_sealed = header.segment_size.get() != 0;
        if is_sealed && pages != Some(u64::from(entry.data_page_count.get())) {
            self.damage(What::SegmentHeader, at, "the header tells another length than the table");
        }
    }

    /// Checks what every record must be like.
    fn check_record(&mut self, record: &Opened<'_>, at: u64, is_moved: bool, rules: &mut Rules) {
        let core = self.core;
        let header = record.header;
        self.found.records += 1;
        self.found.record_bytes += header.record_len();
        if header.hash64.get() != core.hash.hash64(record.key()) {
            self.damage(What::Record, at, "the hash is not that of the key");
        }
        if header.seqno.get() > core.position().seqno && is_moved {
            self.damage(What::Record, at, "a moved record is newer than the last commit");
        }
        if header.is_moved() != is_moved || header.is_moved() && header.is_commit() {
            self.damage(What::Record, at, "the commit mark is not one for this kind of segment");
        }
        if header.kind != DELETE && core.expand(record).is_err() {
            self.damage(What::Value, at, "the value cannot be expanded");
        }
        if u64::from(header.val_len.get()) > u64::from(core.fixed.max_value) + 16 {
            self.damage(What::Record, at, "the value is longer than the bucket allows");
        }
        if is_moved {
            if rules.last_key.as_deref().is_some_and(|last| last >= record.key()) {
                self.damage(What::Record, at, "moved records are not in the order of their keys");
            }
            rules.last_key = Some(record.key().to_vec());
        }
        rules.last_is_commit = header.is_commit();
    }

    /// A header that is lost leaves the run to tell where records are.
    fn check_by_run(&mut self, sealed: &Sealed) {
        self.check_behind(sealed, 0);
    }

    /// Checks records behind the first damage, one by one, as the run tells where they are.
    fn check_behind(&mut self, sealed: &Sealed, from: u64) {
        let core = self.core;
        let start = sealed.start(core.geometry());
        let Some(run) = sealed.run(&core.log, &core.fixed) else {
            let meaning =
                "the run does not hold, so it cannot be told what comes behind the damage";
            return self.damage(What::Run, start, meaning);
        };
        let entries = (0..run.count).filter_map(|index| run.entry(&core.log, index));
        let mut offsets: Vec<u64> = entries.map(|entry| entry.record_offset()).collect();
        offsets.sort_unstable();
        let mut rules = Rules::default();
        for offset in offsets.into_iter().filter(|offset| *offset >= from) {
            match core.log.try_record(start + offset) {
                Some(record) => {
                    rules.last_key = None;
                    self.check_record(&record, start + offset, sealed.is_moved(), &mut rules);
                }
                None if offset > from => {
                    self.damage(What::Record, start + offset, "the record does not hold");
                }
                None => {}
            }
        }
    }

    /// Compares what the table says with what is there.
    fn check_entry(&mut self, segment: &Segment, entry: &SegmentEntry, at: u64) {
        let bytes = segment.len - segment.header_len();
        if entry.record_bytes.get() != bytes || entry.last_seqno.get() != segment.last_seqno() {
            self.damage(What::Table, at, "the segment is not as the table says");
        }
        if entry.dead_bytes.get() > bytes || entry.delete_bytes.get() > bytes {
            self.derived(What::Table, at, "more is said to be dead than there is");
        }
    }

    fn check_footer(&mut self, segment: &Segment, header: &SegmentHeader, at: u64) {
        let geometry = self.core.geometry();
        let footer_at = segment.end_paddr(geometry);
        let room = geometry.paddr(segment.extent.end_page()) - footer_at;
        let bytes =
            usize::try_from(room).ok().and_then(|room| self.core.log.bytes(footer_at, room));
        let Some(found) = bytes.and_then(Footer::decode) else {
            return self.damage(What::SegmentFooter, footer_at, "the footer does not hold");
        };
        let wanted = segment.footer(&self.core.log, at);
        let len = u64::try_from(wanted.encode().len()).unwrap_or(0);
        let size = header.segment_size.get();
        // How much was live when it was sealed is nobody's to know.
        if (Footer { live_bytes: found.live_bytes, ..wanted }) != found {
            self.damage(What::SegmentFooter, footer_at, "the footer is not that of these records");
        } else if size != 0 && size != segment.len + len {
            self.damage(What::SegmentHeader, at, "the segment does not end behind its footer");
        }
    }

    /// Side data follows from the records, to the byte.
    fn check_side_data(&mut self, segment: &Segment, entry: &SegmentEntry) {
        let core = self.core;
        let geometry = core.geometry();
        let at = geometry.paddr(entry.start_page.get() + u64::from(entry.data_page_count.get()));
        if entry.meta_page_count.get() == 0 {
            return self.derived(What::Run, at, "the segment has no side data");
        }
        let wanted = segment.side_data(&core.log, geometry, core.fixed.uuid);
        let Some(found) = core.log.bytes(at, wanted.len()) else {
            return self.derived(What::Run, at, "the file ends within the side data");
        };
        let differs = wanted.iter().zip(found).position(|(wanted, found)| wanted != found);
        if let Some(offset) = differs {
            let at = at + u64::try_from(offset).unwrap_or(0);
            self.derived(What::Run, at, "run, filter or directory are not those of the records");
        }
    }

    /// Checks a segment that is not sealed, as far as it was found to reach.
    fn check_unsealed(&mut self, unsealed: &Unsealed, is_last: bool) {
        self.found.segments += 1;
        let mut rules = Rules::default();
        for offset in unsealed.offsets(&self.core.log) {
            let at = unsealed.start + offset;
            match self.core.log.try_record(at) {
                Some(record) => self.check_record(&record, at, false, &mut rules),
                None => self.damage(What::Record, at, "the record does not hold"),
            }
        }
        if is_last && !rules.last_is_commit && !self.has_writer {
            self.damage(What::Record, unsealed.start, "the last batch has no end");
        }
    }

    /// No seqno and no id is there twice, and none is newer than it can be.
    fn check_seqnos(&mut self, sealed: &[Arc<Sealed>]) {
        let core = self.core;
        let geometry = core.geometry();
        let next_seg_id = core.lock_keeper().next_seg_id;
        let mut ids = HashSet::new();
        let mut logs: Vec<&Arc<Sealed>> = sealed.iter().filter(|one| !one.is_moved()).collect();
        logs.sort_by_key(|one| one.entry.base_seqno.get());
        for pair in logs.windows(2) {
            if let [a, b] = pair
                && a.entry.last_seqno.get() >= b.entry.base_seqno.get()
            {
                let meaning = "two segments of the log have the same seqnos";
                self.damage(What::SegmentHeader, b.start(geometry), meaning);
            }
        }
        for one in sealed {
            let id = one.entry.seg_id.get();
            if !ids.insert(id) || id >= next_seg_id {
                let meaning = "the id of the segment was given out twice";
                self.damage(What::SegmentHeader, one.start(geometry), meaning);
            }
        }
    }
}
