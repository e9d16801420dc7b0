//! Getting records out of a file, whatever became of it.
//!
//! What is still known is used first: the superblock's table tells where segments are, runs and directories where their
//! records start. What is lost is found again: segments by walking headers and looking for the next one that leads on,
//! records by hopping over those whose header holds, by the footer's pairs, and at last by looking at every byte.
//!
//! Invariants
//! - A record counts only if all its checks hold, its tag too. Nothing is believed because of where it stands alone.
//! - Nothing inside a record is taken for a record as long as the record can be told: a value may contain a whole bucket.
//!   Where a header is lost, what looks like records must lead, one behind the other, to a place that is known, and have
//!   seqnos that fit between those around them.
//! - Free space is never looked at: it may hold what was deleted long ago.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

use crate::cipher::BucketKey;
use crate::extent::{Extent, Geometry};
use crate::format::footer::{Footer, FooterHead, SparsePair};
use crate::format::index_page::{self, slot_hash};
use crate::format::meta::{self, Meta};
use crate::format::record::{KEY_MAX, RecordHeader};
use crate::format::run::{DELTA_FAR, RunEntry};
use crate::format::segment::{Kind, SALT_LEN, SegmentHeader};
use crate::hash::KeyHash;
use crate::image::Image;
use crate::log::Log;
use crate::opened::Opened;
use crate::order::Place;
use crate::root::SEQNO_LIMIT;

/// A record is never shorter.
const RECORD_MIN: u64 = 48;
/// So many times the length of a segment is read for headers in it that hold and lead nowhere. By accident there are none; somebody who
/// makes them could else make a search take days.
const VAIN_MAX: u64 = 256;

/// A record that is intact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) paddr: u64,
    pub(crate) seqno: u64,
    pub(crate) is_moved: bool,
    pub(crate) is_commit: bool,
}

/// A place where a record was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Where it began.
    pub at: u64,
    /// Bytes that are lost with it, as far as is known.
    pub len: u64,
    /// Its seqno, if something tells it.
    pub seqno: Option<u64>,
    /// Its key, if that is intact.
    pub key: Option<Vec<u8>>,
    /// What became of it.
    pub meaning: &'static str,
}

/// A segment, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) extent: Extent,
    /// Its id, if anything tells it.
    pub(crate) seg_id: Option<u64>,
    /// Pages of side data behind it, if a table tells.
    pub(crate) side_pages: Option<u64>,
    /// Records in it, if a table tells.
    pub(crate) record_count: Option<u64>,
    /// Records with lower seqnos are of something that was here before.
    pub(crate) least_seqno: u64,
    /// Nobody may have written here.
    pub(crate) may_be_unused: bool,
}

/// What looking for records goes by.
pub(crate) struct Salvage<'a> {
    pub(crate) log: &'a Log,
    pub(crate) geometry: Geometry,
    pub(crate) uuid: Option<(u64, u64)>,
    /// The hash of keys, if it is known.
    pub(crate) hash: Option<KeyHash>,
    /// What salts may have been made of.
    pub(crate) session_salts: Vec<[u8; 16]>,
    /// The last commit that is known of, if any is.
    pub(crate) commit_seqno: Option<u64>,
    /// The index image, whose slots tell where records start.
    pub(crate) image: Option<Image>,
    /// Where the ring says that records start.
    pub(crate) journaled: Vec<u64>,
    pub(crate) starts: OnceCell<HashSet<u64>>,
    pub(crate) found: Vec<Found>,
    pub(crate) lost: Vec<Lost>,
}

/// Walks headers from page to page, and on behind those that are lost.
pub(crate) fn walk(log: &Log, geometry: Geometry, from: u64, to: u64) -> (Vec<Site>, u64) {
    let header = |page: u64| {
        let bytes = log.bytes(geometry.paddr(page), SegmentHeader::SIZE)?;
        let header = SegmentHeader::decode(bytes)?;
        let pages = header.page_count(geometry.page_size)?;
        // A file may have lost its end.
        Some((header, page.checked_add(pages)?.min(to)))
    };
    // A header is believed where the way ends if it leads to another, or to the end.
    let leads_on =
        |page: u64| header(page).is_some_and(|(_, end)| end == to || header(end).is_some());
    let (mut sites, mut covered) = (Vec::new(), 0);
    let mut page = from;
    while page < to {
        if let Some((header, end)) = header(page) {
            if header.kind() == Some(Kind::Data) {
                sites.push(Site {
                    extent: Extent::new(page, end - page),
                    seg_id: Some(header.seg_id.get()),
                    side_pages: None,
                    record_count: None,
                    least_seqno: 0,
                    may_be_unused: false,
                });
            }
            covered += end - page;
            page = end;
            continue;
        }
        let next = (page + 1..to).find(|next| leads_on(*next)).unwrap_or(to);
        // Side data stands right behind its segment, and knows whose it is.
        let owner = header(next).filter(|(header, _)| header.kind() == Some(Kind::Meta));
        let owner = owner.map(|(header, _)| header.seg_id.get()).filter(|seg_id| *seg_id != 0);
        sites.push(Site {
            extent: Extent::new(page, next - page),
            seg_id: owner,
            side_pages: None,
            record_count: None,
            least_seqno: 0,
            may_be_unused: owner.is_none(),
        });
        page = next;
    }
    (sites, covered)
}

impl<'a> Salvage<'a> {
    /// Nothing found yet, and nothing known but where to look.
    pub(crate) fn new(log: &'a Log, geometry: Geometry, uuid: Option<(u64, u64)>) -> Salvage<'a> {
        Salvage {
            log,
            geometry,
            uuid,
            hash: None,
            session_salts: Vec::new(),
            commit_seqno: None,
            image: None,
            journaled: Vec::new(),
            starts: OnceCell::new(),
            found: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// True if a segment can be read with the keys there are.
    pub(crate) fn opens(&self, site: Site) -> bool {
        let start = self.geometry.paddr(site.extent.start_page);
        let bytes = self.log.bytes(start, SegmentHeader::SIZE);
        let header = bytes.and_then(SegmentHeader::decode);
        let side = self.side_data(site, site.seg_id);
        self.unlock(site, site.seg_id, header.as_ref(), side.as_ref())
    }
}

impl Salvage<'_> {
    /// Takes every intact record out of a segment.
    pub(crate) fn take(&mut self, site: Site) {
        let (found_before, lost_before) = (self.found.len(), self.lost.len());
        self.take_records(site);
        let own = self.found.split_off(found_before);
        let is_old = own.first().is_some_and(|record| record.seqno < site.least_seqno);
        if is_old {
            self.lost.truncate(lost_before);
            return;
        }
        self.found.extend(own);
        let before = found_before + lost_before;
        let after = self.found.len() + self.lost.len();
        let known = u64::try_from(after - before).unwrap_or(u64::MAX);
        if site.record_count.is_some_and(|count| known < count) && after == before {
            let at = self.geometry.paddr(site.extent.start_page);
            let len = self.geometry.paddr(site.extent.page_count);
            self.lose(at, len, None, "nothing is left of the segment");
        }
    }

    fn take_records(&mut self, site: Site) {
        let start = self.geometry.paddr(site.extent.start_page);
        let len = self.geometry.paddr(site.extent.page_count);
        let bytes = self.log.bytes(start, SegmentHeader::SIZE);
        let header = bytes.and_then(SegmentHeader::decode);
        let header = header.filter(|header| header.kind() == Some(Kind::Data));
        // The last page of the file is a superblock's.
        let is_at_end = site.seg_id.is_none() && start + len >= self.log.len();
        let room = if is_at_end { len - self.geometry.page_size } else { len };
        if header.is_none() && site.may_be_unused && self.is_empty_from(start, start + len, room) {
            return;
        }
        let seg_id = site.seg_id.or_else(|| header.map(|header| header.seg_id.get()));
        let side = self.side_data(site, seg_id);
        if !self.unlock(site, seg_id, header.as_ref(), side.as_ref()) {
            self.lose(start, len, None, "the salt of the segment is lost, and with it all records");
            return;
        }
        let (found, lost) = (self.found.len(), self.lost.len());
        let is_taken = side.is_some_and(|side| self.take_by_side(start, len, &side));
        // With header and table lost, the side data may be of a segment that was here before: then it fits nothing.
        let is_guess = header.is_none() && site.record_count.is_none();
        if is_taken && !(is_guess && self.found.len() == found) {
            return;
        }
        self.lost.truncate(lost);
        self.take_in_turn(start, len, seg_id, header.as_ref());
    }

    fn lose(&mut self, at: u64, len: u64, seqno: Option<u64>, meaning: &'static str) {
        let known = self.hash.as_ref().and_then(|hash| self.log.likely_head(at, hash));
        let key = known.as_ref().map(|head| head.key().to_vec());
        let seqno = seqno.or_else(|| known.as_ref().map(Opened::seqno));
        self.lost.push(Lost { at, len, seqno, key, meaning });
    }

    fn keep(&mut self, paddr: u64, record: &RecordHeader) {
        if record.seqno.get() >= SEQNO_LIMIT {
            return;
        }
        self.found.push(Found {
            paddr,
            seqno: record.seqno.get(),
            is_moved: record.is_moved(),
            is_commit: record.is_commit(),
        });
    }

    /// Takes what side data names, if it has anything that names records.
    fn take_by_side(&mut self, start: u64, len: u64, side: &Side) -> bool {
        match (&side.run, &side.places) {
            (Some(entries), _) => self.take_by_run(start, len, entries, side.base_seqno),
            (None, Some(places)) => self.take_by_places(start, len, places),
            (None, None) => return false,
        }
        true
    }

    /// Where every record is, as the run says.
    fn take_by_run(&mut self, start: u64, len: u64, entries: &[RunEntry], base_seqno: u64) {
        let mut entries = entries.to_vec();
        entries.retain(|entry| entry.record_offset() < len);
        entries.sort_unstable_by_key(RunEntry::record_offset);
        let ends = entries.iter().skip(1).map(RunEntry::record_offset).chain([len]);
        let ends: Vec<u64> = ends.collect();
        for (entry, end) in entries.iter().zip(ends) {
            let offset = entry.record_offset();
            let seqno = match entry.seqno_delta.get() {
                DELTA_FAR => None,
                delta => base_seqno.checked_add(u64::from(delta)),
            };
            let record = self.log.record_within(start + offset, end.saturating_sub(offset));
            let record = record.filter(|record| {
                slot_hash(record.header.hash64.get()) == entry.slot_hash.get()
                    && seqno.is_none_or(|seqno| seqno == record.seqno())
            });
            match record {
                Some(record) => self.keep(start + offset, record.header),
                None => {
                    let known = self.log.header(start + offset).map(RecordHeader::record_len);
                    let lost = known.filter(|len| offset + len <= end).unwrap_or(end - offset);
                    self.lose(start + offset, lost, seqno, "the record does not hold");
                }
            }
        }
    }

    /// Where every record is, as the directory says.
    fn take_by_places(&mut self, start: u64, len: u64, places: &[u32]) {
        let mut offsets: Vec<u64> = places.iter().map(|place| Place(*place).offset()).collect();
        offsets.retain(|offset| *offset < len);
        offsets.sort_unstable();
        let ends: Vec<u64> = offsets.iter().skip(1).copied().chain([len]).collect();
        for (offset, end) in offsets.into_iter().zip(ends) {
            match self.log.record_within(start + offset, end.saturating_sub(offset)) {
                Some(record) => self.keep(start + offset, record.header),
                None => self.lose(start + offset, end - offset, None, "the record does not hold"),
            }
        }
    }

    /// Records one behind the other, as far as they lead to each other.
    fn take_in_turn(
        &mut self,
        start: u64,
        len: u64,
        seg_id: Option<u64>,
        header: Option<&SegmentHeader>,
    ) {
        let footer = self.footer(start, len, seg_id, header);
        let end = footer.as_ref().map_or(len, |(at, _)| *at);
        let anchors: HashSet<u64> = match &footer {
            Some((at, footer)) => {
                let pairs = footer.pairs.iter().map(|pair| pair.paddr.get().wrapping_sub(start));
                pairs.chain([*at]).collect()
            }
            None => HashSet::new(),
        };
        let mut at = match header {
            Some(header) => header.records_at(),
            None if self.log.vault().is_some() => {
                u64::try_from(SegmentHeader::SIZE + SALT_LEN).unwrap_or(0)
            }
            None => u64::try_from(SegmentHeader::SIZE).unwrap_or(0),
        };
        let stretch = Stretch { start, end, anchors: &anchors };
        let (mut last_seqno, mut lost_at_most) = (None, 0);
        while at + RECORD_MIN <= end {
            if let Some(record) = self.log.record_within(start + at, end - at)
                && follows(record.header, last_seqno, lost_at_most)
            {
                self.keep(start + at, record.header);
                last_seqno = Some(record.seqno());
                lost_at_most = 0;
                at += record.header.record_len();
                continue;
            }
            // Zeros are the end of what was written only if nothing is known to come behind them.
            let is_last = self.commit_seqno.is_some_and(|commit| last_seqno >= Some(commit));
            let room = if is_last { RECORD_MIN } else { len };
            if footer.is_none() && self.is_empty_from(start + at, start + len, room) {
                return;
            }
            // A header that holds tells where the next record is, whatever became of this one.
            let bytes = self.log.bytes(start + at, RecordHeader::SIZE);
            let header = bytes.and_then(RecordHeader::decode);
            let is_own = |header: &&RecordHeader| follows(header, last_seqno, lost_at_most);
            if footer.is_none() && header.is_some_and(|header| !is_own(&header)) {
                // Of whatever was here before.
                return;
            }
            let hop = header.map(RecordHeader::record_len).filter(|hop| at + hop <= end);
            let next = match hop {
                Some(hop) => Some(at + hop),
                None => self.resync(&stretch, at, last_seqno, lost_at_most),
            };
            let to = next.unwrap_or(end);
            if next.is_some() || footer.is_some() {
                self.lose(start + at, to - at, None, "the record does not hold");
            }
            lost_at_most += (to - at) / RECORD_MIN + 1;
            at = to;
        }
    }

    /// Where records start that index or ring name.
    fn starts(&self) -> &HashSet<u64> {
        self.starts.get_or_init(|| {
            let journaled = self.journaled.iter().copied();
            let Some(image) = &self.image else { return journaled.collect() };
            let pages =
                (0..image.place.page_count()).filter_map(|page| image.page(self.log, page).ok());
            let slots = pages.flat_map(|page| index_page::slots(page, 0));
            slots.map(|slot| index_page::read_slot(slot).1).chain(journaled).collect()
        })
    }

    fn is_record(&self, paddr: u64, room: u64) -> bool {
        self.log.record_within(paddr, room).is_some()
    }

    /// True if nothing was written from a byte on, as far as one looks.
    fn is_empty_from(&self, from: u64, to: u64, room: u64) -> bool {
        let bytes = self.log.bytes_at_most(from, (to - from).min(room));
        bytes.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// The next place behind the damage at `at` from which on there are records again.
    fn resync(
        &self,
        stretch: &Stretch<'_>,
        at: u64,
        last_seqno: Option<u64>,
        lost_at_most: u64,
    ) -> Option<u64> {
        let Stretch { start, end, .. } = *stretch;
        let mut search = Search::default();
        (at + 1..end.saturating_sub(RECORD_MIN - 1)).find(|offset| {
            let header = self.log.header(start + offset);
            // Cheap to ask, and nearly always no.
            let is_likely = header.is_some_and(|header| {
                header.kind <= 1
                    && header.key_len.get() <= u32::try_from(KEY_MAX).unwrap_or(0)
                    && header.seqno.get() < SEQNO_LIMIT
            });
            let lost = lost_at_most + (offset - at) / RECORD_MIN + 1;
            is_likely && self.is_own(stretch, *offset, last_seqno, lost, &mut search)
        })
    }

    /// True if what stands at an offset is a record of the segment, and not of a bucket that somebody put into a value: its
    /// seqno fits, and either nobody else can have made its hash or its tag, or it leads, one record behind the other, to a
    /// place that is known.
    fn is_own(
        &self,
        stretch: &Stretch<'_>,
        offset: u64,
        last_seqno: Option<u64>,
        lost: u64,
        search: &mut Search,
    ) -> bool {
        let Stretch { start, end, anchors } = *stretch;
        let header = self.log.bytes(start + offset, RecordHeader::SIZE);
        let header = header.and_then(RecordHeader::decode);
        let Some(header) = header.filter(|header| follows(header, last_seqno, lost)) else {
            return false;
        };
        if search.in_vain > end.saturating_mul(VAIN_MAX) {
            return false;
        }
        let Some(first) = self.log.record_within(start + offset, end - offset) else {
            search.in_vain += header.record_len().min(end);
            return false;
        };
        match &self.hash {
            _ if self.log.vault().is_some() => return true,
            Some(hash @ KeyHash::Sip(_)) => {
                return hash.hash64(first.key()) == first.header.hash64.get();
            }
            _ => {}
        }
        let mut way = Vec::new();
        let mut at = offset;
        let mut last = last_seqno.unwrap_or(0);
        let leads_on = loop {
            if anchors.contains(&at) || self.starts().contains(&(start + at)) {
                break true;
            }
            if search.dead_ends.contains(&at) {
                break false;
            }
            way.push(at);
            let Some(bytes) = self.log.bytes(start + at, RecordHeader::SIZE) else { break true };
            match RecordHeader::decode(bytes).filter(|header| at + header.record_len() <= end) {
                Some(header) if header.is_moved() || header.seqno.get() > last => {
                    last = header.seqno.get();
                    at += header.record_len();
                }
                // The end of what was written: behind it is nothing, or what was there before.
                _ => {
                    let is_empty = self.is_empty_from(start + at, end + start, RECORD_MIN);
                    break anchors.is_empty() && (is_empty || Some(last) >= self.commit_seqno);
                }
            }
        };
        if !leads_on {
            search.dead_ends.extend(way);
        }
        leads_on
    }

    /// Offset and contents of the footer, if it can be found from the segment's end.
    fn footer(
        &self,
        start: u64,
        len: u64,
        seg_id: Option<u64>,
        header: Option<&SegmentHeader>,
    ) -> Option<(u64, Footer)> {
        let size =
            header.map(|header| header.segment_size.get()).filter(|size| *size > 0 && *size <= len);
        let ends = match size {
            Some(size) => size..size + 1,
            // In front of the zeros that fill the last page; its CRC may end with some itself.
            None => {
                let page = self.log.bytes_at_most(
                    start + len.saturating_sub(self.geometry.page_size),
                    self.geometry.page_size,
                )?;
                let zeros = page.iter().rev().take_while(|byte| **byte == 0).count();
                let end = len.saturating_sub(u64::try_from(zeros).ok()?);
                end..(end + 4).min(len) + 1
            }
        };
        let head = u64::try_from(FooterHead::SIZE + 4).ok()?;
        let pair = u64::try_from(SparsePair::SIZE).ok()?;
        ends.rev().find_map(|end| {
            (0..(len / RECORD_MIN) / 64 + 2).find_map(|pairs| {
                let at = end.checked_sub(head + pairs * pair)?;
                let count_at = start + at + 24;
                let count = self.log.bytes(count_at, 4)?.try_into().ok().map(u32::from_le_bytes)?;
                if u64::from(count) != pairs {
                    return None;
                }
                let bytes = self.log.bytes(start + at, usize::try_from(end - at).ok()?)?;
                let footer = Footer::decode(bytes)?;
                seg_id.is_none_or(|seg_id| footer.seg_id == seg_id).then_some((at, footer))
            })
        })
    }

    /// What side data says of a segment, as far as it holds.
    fn side_data(&self, site: Site, seg_id: Option<u64>) -> Option<Side> {
        let at = self.geometry.paddr(site.extent.end_page());
        let head = self.log.bytes(at, self.geometry.page_len())?;
        let found = Meta::decode(head, meta::KIND_SIDE, self.uuid.or_else(|| uuid_of(head))?)?;
        if seg_id.is_some_and(|seg_id| found.head.id.get() != seg_id) {
            return None;
        }
        let pages = site.side_pages.unwrap_or(found.head.page_count.get());
        let len = pages.checked_mul(self.geometry.page_size)?;
        let bytes = self.log.bytes(at, usize::try_from(len).ok()?)?;
        let raw = |kind: u32| {
            let section = found.section(kind)?;
            let offset = usize::try_from(section.offset.get()).ok()?;
            let len = usize::try_from(section.length.get()).ok()?;
            let bytes = bytes.get(offset..offset.checked_add(len)?)?;
            (crate::format::crc(bytes) == section.crc32c.get()).then_some(bytes)
        };
        let keys = self.log.keys();
        let keys: Vec<&BucketKey> = match &keys {
            Some(keys) => {
                [Some(&*keys.current), keys.old.as_deref()].into_iter().flatten().collect()
            }
            None => Vec::new(),
        };
        let section = |kind: u32| {
            let bytes = raw(kind)?;
            let is_own = self.log.vault().is_none()
                || raw(meta::SECTION_MAC).is_some_and(|macs| {
                    keys.iter().any(|key| key.vouches(&found, macs, kind, bytes))
                });
            is_own.then_some(bytes)
        };
        let count = usize::try_from(found.head.count.get()).ok()?;
        let run_len = count.checked_mul(RunEntry::SIZE)?;
        let run = section(meta::SECTION_RUN).filter(|bytes| bytes.len() == run_len);
        let run = run.map(|bytes| {
            bytes.chunks_exact(RunEntry::SIZE).filter_map(crate::format::read).collect()
        });
        let places = section(meta::SECTION_DIRECTORY)
            .and_then(|bytes| bytes.get(8..count.checked_mul(4)?.checked_add(8)?));
        let places = places.map(|bytes| {
            bytes
                .chunks_exact(4)
                .filter_map(|place| place.try_into().ok())
                .map(u32::from_le_bytes)
                .collect()
        });
        let salt = section(meta::SECTION_SALT).and_then(|bytes| bytes.try_into().ok());
        Some(Side { run, places, salt, base_seqno: found.head.seqno.get() })
    }

    /// Finds the cipher of a segment, by whichever salt opens any of its records. True if the bucket is not encrypted.
    fn unlock(
        &self,
        site: Site,
        seg_id: Option<u64>,
        header: Option<&SegmentHeader>,
        side: Option<&Side>,
    ) -> bool {
        let (Some(vault), Some(keys)) = (self.log.vault(), self.log.keys()) else { return true };
        let Some(seg_id) = seg_id else { return false };
        let start = self.geometry.paddr(site.extent.start_page);
        let end = self.geometry.paddr(site.extent.end_page());
        let stored = || {
            let at = start + u64::try_from(SegmentHeader::SIZE).ok()?;
            self.log.bytes(at, SALT_LEN)?.try_into().ok()
        };
        let all = [Some(&keys.current), keys.old.as_ref()];
        for key in all.into_iter().flatten() {
            let derived = self.session_salts.iter().map(|session| key.salt(session, seg_id));
            let salts = stored().into_iter().chain(side.and_then(|side| side.salt)).chain(derived);
            let bare = header.is_some_and(|header| !header.is_salted()).then_some(None);
            for salt in bare.into_iter().chain(salts.map(Some)) {
                let cipher = Arc::new(key.segment(seg_id, salt));
                vault.admit(start, end, seg_id, &cipher);
                if self.opens_any(start, end, side) {
                    return true;
                }
            }
        }
        false
    }

    /// True if some record of a segment can be opened.
    fn opens_any(&self, start: u64, end: u64, side: Option<&Side>) -> bool {
        let by_run = side.and_then(|side| side.run.as_ref()).into_iter().flatten();
        let mut offsets: Vec<u64> = by_run.map(RunEntry::record_offset).collect();
        let first = u64::try_from(SegmentHeader::SIZE).unwrap_or(0);
        let salt = u64::try_from(SALT_LEN).unwrap_or(0);
        offsets.extend([first, first + salt]);
        offsets.retain(|offset| *offset < end - start);
        if offsets.iter().any(|offset| self.is_record(start + offset, end - start - offset)) {
            return true;
        }
        let mut candidates = start + first..end.saturating_sub(RECORD_MIN);
        candidates.any(|at| {
            let bytes = self.log.bytes(at, RecordHeader::SIZE);
            bytes.and_then(RecordHeader::decode).is_some() && self.is_record(at, end - at)
        })
    }
}

/// Where records of a segment are looked for.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    /// Where the segment starts.
    start: u64,
    /// Offset behind its last record.
    end: u64,
    /// Offsets at which records start for certain, and where they end.
    anchors: &'a HashSet<u64>,
}

/// A search for the next record behind damage.
#[derive(Default)]
struct Search {
    /// Places from which no way leads on; many ways may meet there.
    dead_ends: HashSet<u64>,
    /// Bytes of what looked like records by their headers and were none.
    in_vain: u64,
}

/// What side data says.
struct Side {
    run: Option<Vec<RunEntry>>,
    places: Option<Vec<u32>>,
    salt: Option<[u8; 16]>,
    base_seqno: u64,
}

/// The uuid that a head of derived data claims.
fn uuid_of(extent: &[u8]) -> Option<(u64, u64)> {
    let head: crate::format::meta::MetaHead = crate::format::read(extent.get(meta::OFFSET..)?)?;
    Some((head.file_uuid_hi.get(), head.file_uuid_lo.get()))
}

/// True if a record may come behind one with a seqno, if at most so many are lost between them.
fn follows(header: &RecordHeader, last_seqno: Option<u64>, lost: u64) -> bool {
    let seqno = header.seqno.get();
    if header.is_moved() || seqno >= SEQNO_LIMIT {
        return seqno < SEQNO_LIMIT;
    }
    last_seqno.is_none_or(|last| seqno > last && seqno - last <= lost + 1)
}

/// Leaves out the records of a last batch that has no end, if they are newer than what is known to be durable. Gives how
/// many. What comes before a commit mark was committed, even if some of it is lost.
pub(crate) fn drop_uncommitted(found: &mut Vec<Found>, durable_seqno: u64) -> u64 {
    let marks = found.iter().filter(|record| record.is_commit).map(|record| record.seqno);
    let committed = marks.max().unwrap_or(0).max(durable_seqno);
    let before = found.len();
    found.retain(|record| record.is_moved || record.seqno <= committed);
    u64::try_from(before - found.len()).unwrap_or(0)
}

/// Seqnos that are missing between the records of the log's end, which has every one from `tail_seqno` on, if nothing that is
/// known to be lost explains them: where sectors were never written, nothing is left that could be damaged.
pub(crate) fn gaps(found: &[Found], tail_seqno: u64, lost: &[Lost]) -> Vec<Lost> {
    let in_tail = |record: &&Found| !record.is_moved && record.seqno >= tail_seqno;
    let mut tail: Vec<Found> = found.iter().filter(in_tail).copied().collect();
    tail.sort_unstable_by_key(|record| record.seqno);
    let mut gaps = Vec::new();
    let (mut expected, mut before) = (tail_seqno, 0);
    for record in tail {
        let missing = expected..record.seqno;
        let explains = |lost: &Lost| {
            let is_between = (before..record.paddr).contains(&lost.at);
            is_between || lost.seqno.is_some_and(|seqno| missing.contains(&seqno))
        };
        if !missing.is_empty() && !lost.iter().any(explains) {
            let meaning =
                "records with lower seqnos, from this one on, are missing before this place";
            gaps.push(Lost { at: record.paddr, len: 0, seqno: Some(expected), key: None, meaning });
        }
        (expected, before) = (record.seqno + 1, record.paddr);
    }
    gaps
}
