//! Repair: a new bucket of every record that is intact, whatever became of the rest.
//!
//! The damaged file is only read. The new one gets its name when it is whole, synced and verified, so that a repair that is
//! interrupted changes nothing. A bucket in which nothing is wrong is left alone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{Disk, Env, FileDisk, SystemEnv};

use crate::backup::{check, open_locked, write_file, write_over};
use crate::book::{self, BookPlace};
use crate::cipher::BucketKey;
use crate::codec::Codec;
use crate::copier::Copier;
use crate::core::Fixed;
use crate::dictionary::Dictionary;
use crate::error::{Error, Result};
use crate::extent::{Extent, Geometry};
use crate::format::book::BookHead;
use crate::format::journal::{COMMIT, JournalEntry};
use crate::format::meta;
use crate::format::record::{DELETE, ENC_RAW};
use crate::format::roster::NAMED_LOG;
use crate::format::segment::{Kind, SegmentHeader};
use crate::format::superblock::{FLAG_INCREMENT, PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use crate::image::Image;
use crate::key_sort::{Item, chunk, sort_by_key};
use crate::log::Log;
use crate::mount::{self, MountReport, load_image, load_table};
use crate::opened::Opened;
use crate::options::{Compression, Options};
use crate::progress::{Progress, report as tell};
use crate::ring::{Ring, read_ring};
use crate::root::{Root, SEQNO_LIMIT, Unlock, choose, load_copy, load_cut_off};
use crate::salvage::{Found, Lost, Salvage, Site, drop_uncommitted, gaps, walk};
use crate::text::Text;
use crate::vault::{Keys, Vault};
use crate::verify::{Finding, Verification, verify_on};

/// Where a repair writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairTo {
    /// Nowhere: it only tells what it would save.
    DryRun,
    /// A new file; the damaged one stays as it is.
    New(PathBuf),
    /// A new file that takes the place of the damaged one when it is whole.
    InPlace,
}

/// What a repair found and saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// What is wrong with the bucket. If nothing is, nothing was written.
    pub findings: Vec<Finding>,
    /// Nothing is wrong.
    pub is_sound: bool,
    /// Intact records, live or not.
    pub records_found: u64,
    /// Records of a batch that was never completed.
    pub records_uncommitted: u64,
    /// What was lost, and where.
    pub lost: Vec<Lost>,
    /// Keys saved.
    pub keys: u64,
    /// Bytes of their records.
    pub bytes: u64,
    /// Seqno that the new bucket goes on from.
    pub seqno: u64,
}

/// Repairs a bucket that nobody has open. The options need nothing but the keys of an encrypted bucket.
pub fn repair(
    path: impl AsRef<Path>,
    to: &RepairTo,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Repair> {
    let path = &FileDisk::resolve(path).map_err(Error::io("open the bucket"))?;
    let file = Arc::new(open_locked(path, FileDisk::open_read_only)?);
    let disk: Arc<dyn Disk> = Arc::<FileDisk>::clone(&file);
    let env: Arc<dyn Env> = Arc::new(SystemEnv);
    let plan = plan(&disk, &env, options, progress)?;
    let target = match to {
        RepairTo::DryRun => return plan.into_report(),
        RepairTo::New(target) => {
            if file.is_at(target).map_err(Error::io("look at the new file"))? {
                return Err(Error::Invalid("the new file would take the place of the damaged one"));
            }
            target.as_path()
        }
        RepairTo::InPlace => path.as_path(),
    };
    if plan.report.is_sound {
        return Ok(plan.report);
    }
    let repaired = |disk| plan.write(disk, env, progress);
    // What is in the way in place is the damaged file itself, and nobody else has it: it is locked here.
    match to {
        RepairTo::InPlace => write_over(target, repaired),
        _ => write_file(target, repaired),
    }
}

/// The same with disks of the caller's: from one to an empty one, or only to tell what would be saved.
pub fn repair_on(
    source: Arc<dyn Disk>,
    target: Option<Arc<dyn Disk>>,
    env: Arc<dyn Env>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Repair> {
    let plan = plan(&source, &env, options, progress)?;
    match target {
        Some(target) if !plan.report.is_sound => plan.write(target, env, progress),
        _ => plan.into_report(),
    }
}

/// Looks at the bucket, and if something is wrong with it, for every record that is not.
fn plan(
    disk: &Arc<dyn Disk>,
    env: &Arc<dyn Env>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Plan> {
    let found = match verify_on(Arc::clone(disk), Arc::clone(env), options.clone(), progress) {
        Ok(found) => found,
        // Not even a superblock: it may be a bucket all the same.
        Err(error @ Error::Invalid(_)) => {
            let len = disk.len().map_err(Error::io("read the bucket's length"))?;
            if choose(&**disk, len, Unlock::With(options.keys.as_deref())).is_ok() {
                return Err(error);
            }
            Verification::default()
        }
        Err(error) => return Err(error),
    };
    let is_sound = found.is_sound() && found.epoch != 0;
    let report = Repair { is_sound, findings: found.findings, ..Repair::default() };
    Plan::new(Arc::clone(disk), Arc::clone(env), options, report, progress)
}

/// The intact records of a bucket.
struct Plan {
    log: Log,
    options: Options,
    codec: Codec,
    found: Vec<Found>,
    clock_ns: u64,
    report: Repair,
}

/// What is left of the things that lead to records.
struct Remains {
    geometry: Geometry,
    root: Option<Root>,
    /// Roots of both copies, as far as they hold.
    session_salts: Vec<[u8; 16]>,
    uuid: Option<(u64, u64)>,
    sites: Vec<Site>,
    book: Option<BookPlace>,
    /// Bytes that are missing at the end of the file, and whether something was there for certain.
    missing: u64,
    was_used: bool,
}

impl Plan {
    fn new(
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
        report: Repair,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Plan> {
        let len = disk.len().map_err(Error::io("read the bucket's length"))?;
        let unlock = Unlock::With(options.keys.as_deref());
        let root = match choose(&*disk, len, unlock) {
            Ok(root) => Some(root),
            Err(Error::Corrupt(_) | Error::Invalid(_)) => load_cut_off(&*disk, len, unlock)?,
            Err(error) => return Err(error),
        };
        let flags = root.as_ref().map_or(0, |root| root.superblock.flags.get());
        if flags & FLAG_INCREMENT != 0 && !report.is_sound {
            return Err(Error::Invalid(
                "the file has only what changed since a backup: that cannot be repaired, take it anew",
            ));
        }
        let vault = root.as_ref().and_then(|root| root.locked.as_ref());
        let vault = vault.map(|(_, keys)| Vault::new(keys.clone()));
        let plain = Log::new(Arc::clone(&disk), len, None)?;
        let remains = match root {
            Some(root) => with_root(&disk, len, &plain, root, unlock),
            None => without_root(&plain, len)?,
        };
        let vault = match vault {
            None if remains.root.is_none() => guess_keys(&disk, &plain, &remains, &options)?,
            vault => vault,
        };
        let log = Log::new(disk, len, vault)?;
        let fixed = remains.root.as_ref().map(mount::fixed);
        let durable = remains.root.as_ref().map_or(0, |root| durable_seqno(&log, root));
        let mut salvage = Salvage {
            hash: fixed.as_ref().map(Fixed::hash),
            session_salts: remains.session_salts.clone(),
            commit_seqno: remains.root.as_ref().map(|_| durable.max(1)),
            image: remains.root.as_ref().and_then(|root| image(&log, root)),
            journaled: remains.root.as_ref().map_or_else(Vec::new, |root| journaled(&log, root)),
            ..Salvage::new(&log, remains.geometry, remains.uuid)
        };
        let total = remains.sites.iter().map(|site| site.extent.page_count).sum::<u64>();
        let total = remains.geometry.paddr(total);
        let mut done = 0;
        let (known, unknown): (Vec<Site>, Vec<Site>) =
            remains.sites.iter().partition(|site| site.seg_id.is_some());
        for site in &known {
            tell(progress, "looking for records", done, total)?;
            salvage.take(*site);
            done += remains.geometry.paddr(site.extent.page_count);
        }
        // Where nothing tells whether it was free, only what is newer than all the rest was surely not.
        let newest = salvage.found.iter().map(|record| record.seqno).max().unwrap_or(0);
        let (before, lost_before) = (salvage.found.len(), salvage.lost.len());
        unknown.iter().for_each(|site| salvage.take(*site));
        let behind = salvage.found.split_off(before);
        salvage.found.extend(behind.into_iter().filter(|record| record.seqno > newest));
        let has_any = salvage.lost.len() > lost_before;
        salvage.lost.truncate(lost_before);
        for site in unknown.iter().filter(|_| has_any) {
            salvage.lost.push(Lost {
                at: remains.geometry.paddr(site.extent.start_page),
                len: remains.geometry.paddr(site.extent.page_count),
                seqno: None,
                key: None,
                meaning: "nothing tells whether this was in use",
            });
        }
        tell(progress, "looking for records", total, total)?;
        let Salvage { mut found, mut lost, .. } = salvage;
        let newest = found.iter().map(|record| record.seqno).max().unwrap_or(0);
        if remains.missing > 0 && (remains.was_used || newest < durable) {
            let meaning = "the file ends here, and went on once";
            lost.push(Lost { at: len, len: remains.missing, seqno: None, key: None, meaning });
        }
        lost.sort_by_key(|lost| lost.at);
        let mut report = Repair { lost, ..report };
        report.records_uncommitted = drop_uncommitted(&mut found, durable);
        if let Some(root) = &remains.root {
            let gaps = gaps(&found, root.extension.tail_seqno.get(), &report.lost);
            report.lost.extend(gaps);
        }
        report.records_found = u64::try_from(found.len()).unwrap_or(u64::MAX);
        let newest = found.iter().map(|record| record.seqno).max().unwrap_or(0);
        let known = remains.root.as_ref().map_or(0, |root| root.superblock.commit_seqno.get());
        report.seqno = newest.max(known);
        let wall = env.unix_ns();
        let stamps = found.iter().filter_map(|record| log.header(record.paddr));
        let stamps = stamps.map(|header| header.timestamp_ns.get());
        let clock_ns = stamps.filter(|stamp| *stamp <= wall).max().unwrap_or(0);
        let codec = codec(&log, &remains, fixed.as_ref());
        let options = target_options(&log, fixed.as_ref(), &options, &found);
        Ok(Plan { log, options, codec, found, clock_ns, report })
    }

    /// Of every key the newest record that is intact, in the order of keys.
    fn newest(&self) -> Vec<Found> {
        let key = |id: u32| {
            let found = usize::try_from(id).ok().and_then(|id| self.found.get(id));
            found.map_or(Text::lent(&[]), |found| self.log.key(found.paddr))
        };
        let mut items: Vec<Item> = (0_u32..)
            .zip(&self.found)
            .map(|(id, found)| (chunk(&self.log.key(found.paddr), 0), id))
            .collect();
        sort_by_key(&mut items, key);
        let of =
            |item: &Item| usize::try_from(item.1).ok().and_then(|id| self.found.get(id)).copied();
        let mut newest: Vec<Found> = Vec::new();
        for found in items.iter().filter_map(of) {
            let is_same =
                |last: &&mut Found| *self.log.key(last.paddr) == *self.log.key(found.paddr);
            match newest.last_mut().filter(is_same) {
                Some(last) if last.seqno < found.seqno => *last = found,
                Some(_) => {}
                None => newest.push(found),
            }
        }
        newest
    }

    /// The live ones, if their values can be had; the others are lost.
    fn live(&mut self) -> Result<Vec<Found>> {
        let newest = self.newest();
        let mut live = Vec::new();
        for found in newest {
            let record = self.log.record(found.paddr)?;
            if record.header.kind == DELETE {
                continue;
            }
            if record.header.form() == ENC_RAW || self.codec.expand(&record).is_some() {
                self.report.keys += 1;
                self.report.bytes += record.header.record_len();
                live.push(found);
            } else {
                let len = record.header.record_len();
                let lost = Lost {
                    at: found.paddr,
                    len,
                    seqno: Some(found.seqno),
                    key: Some(record.key().to_vec()),
                    meaning: "the record is intact, but its value cannot be expanded",
                };
                self.report.lost.push(lost);
            }
        }
        Ok(live)
    }

    fn into_report(mut self) -> Result<Repair> {
        self.live()?;
        Ok(self.report)
    }

    fn write(
        mut self,
        target: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Repair> {
        let live = self.live()?;
        let total = self.report.bytes;
        let mut copier = Copier::new(
            Arc::clone(&target),
            Arc::clone(&env),
            self.options.clone(),
            total,
            self.report.seqno,
            self.clock_ns,
        )?;
        for found in live {
            let record = self.log.record(found.paddr)?;
            copier.push_opened(&record, || self.expanded(&record))?;
            if copier.records.is_multiple_of(1024) {
                tell(progress, "saving", copier.bytes.min(total), total)?;
            }
        }
        copier.finish(None)?;
        check(&target, env, self.options.clone(), progress)?;
        Ok(self.report)
    }

    fn expanded(&self, record: &Opened<'_>) -> Result<Vec<u8>> {
        match record.header.form() {
            ENC_RAW => Ok(record.stored().to_vec()),
            _ => {
                let value = self.codec.expand(record);
                value.ok_or(Error::Invalid("a value cannot be expanded"))
            }
        }
    }
}

/// Everything a superblock that holds leads to.
fn with_root(disk: &Arc<dyn Disk>, len: u64, log: &Log, root: Root, unlock: Unlock<'_>) -> Remains {
    let fixed = mount::fixed(&root);
    let geometry = fixed.geometry;
    let (from, to) = (fixed.segment_start_page, root.superblock.segment_end_page.get());
    let is_inside = |extent: &Extent| extent.check_within(from, to, 0).is_ok();
    let mut sites: Vec<Site> = Vec::new();
    let table = match root.extension.table_start_page.get() {
        0 => Some(Vec::new()),
        _ => load_table(log, &fixed, &root),
    };
    let is_table_lost = table.is_none();
    match table {
        Some(table) => {
            for entry in table.iter().chain(&root.roster.sealed) {
                let pages = u64::from(entry.data_page_count.get());
                sites.push(Site {
                    extent: Extent::new(entry.start_page.get(), pages),
                    seg_id: Some(entry.seg_id.get()),
                    side_pages: Some(u64::from(entry.meta_page_count.get())),
                    record_count: Some(u64::from(entry.record_count.get())),
                    least_seqno: 0,
                    may_be_unused: false,
                });
            }
        }
        None => sites.extend(walk(log, geometry, from, to).0),
    }
    add_given_up(log, geometry, (from, to), &root, &mut sites);
    for named in root.roster.named.iter().filter(|named| named.kind.get() == NAMED_LOG) {
        let extent = Extent::new(named.start_page.get(), u64::from(named.page_count.get()));
        sites.retain(|site| site.extent.start_page != extent.start_page);
        let bytes = log.bytes(geometry.paddr(extent.start_page), SegmentHeader::SIZE);
        let header = bytes.and_then(SegmentHeader::decode);
        // A header that holds and is of something else: nobody began the segment.
        let is_begun = header.is_none_or(|header| {
            header.kind() == Some(Kind::Data) && header.seg_id == named.seg_id
        });
        if is_begun {
            let seg_id = Some(named.seg_id.get());
            sites.push(Site {
                extent,
                seg_id,
                side_pages: Some(0),
                record_count: None,
                least_seqno: root.extension.tail_seqno.get(),
                may_be_unused: true,
            });
        }
    }
    sites.retain(|site| is_inside(&site.extent));
    // Two that overlap cannot both be right, and a thousand of them must not cost a thousand times as much.
    sites.sort_by_key(|site| (site.extent.start_page, site.may_be_unused));
    let mut end = 0;
    sites.retain(|site| {
        let is_apart = site.extent.start_page >= end;
        end = end.max(if is_apart { site.extent.end_page() } else { 0 });
        is_apart
    });
    let file_pages = len / geometry.page_size;
    let is_cut = |site: &Site| site.extent.end_page() > file_pages && !site.may_be_unused;
    let was_used = is_table_lost || sites.iter().any(is_cut) || len < geometry.paddr(from);
    let missing = geometry.paddr(to).saturating_sub(len);
    let last = file_pages.saturating_sub(1);
    let copies = [0, root.extension.b_page.get(), last]
        .map(|page| load_copy(&**disk, len, page.saturating_mul(geometry.page_size), unlock).ok());
    let salts = copies.into_iter().flatten().filter_map(|copy| copy.locked);
    let session_salts = salts.map(|(block, _)| block.session_salt).collect();
    let book = book::place(log, geometry, &root);
    let uuid = Some(fixed.uuid);
    Remains { geometry, uuid, root: Some(root), session_salts, sites, book, missing, was_used }
}

/// Adds segments that were given up and are not free yet: what they have is copied or hidden elsewhere, unless that is lost.
/// In an encrypted bucket nothing vouches for them.
fn add_given_up(
    log: &Log,
    geometry: Geometry,
    (from, to): (u64, u64),
    root: &Root,
    sites: &mut Vec<Site>,
) {
    if root.locked.is_some() {
        return;
    }
    let known: HashSet<u64> = sites.iter().map(|site| site.extent.start_page).collect();
    // Where headers are lost, one may be taken for part of the other, or for somebody else's.
    let known_ids: HashSet<u64> = sites.iter().filter_map(|site| site.seg_id).collect();
    let named: HashSet<u64> =
        root.roster.named.iter().map(|named| named.start_page.get()).collect();
    let is_new = |site: &Site| {
        let page = site.extent.start_page;
        site.seg_id.is_some_and(|seg_id| !known_ids.contains(&seg_id))
            && !known.contains(&page)
            && !named.contains(&page)
    };
    sites.extend(walk(log, geometry, from, to).0.into_iter().filter(is_new));
}

/// What the segments themselves tell, if no superblock holds.
fn without_root(log: &Log, len: u64) -> Result<Remains> {
    let sizes = std::iter::successors(Some(u64::from(PAGE_SIZE_MIN)), |size| Some(size * 2));
    let sizes = sizes.take_while(|size| *size <= u64::from(PAGE_SIZE_MAX));
    let tries = sizes.map(|page_size| {
        let geometry = Geometry { page_size };
        let pages = len.div_ceil(page_size);
        let is_header = |page: &u64| {
            let bytes = log.bytes(geometry.paddr(*page), SegmentHeader::SIZE);
            bytes.and_then(SegmentHeader::decode).is_some()
        };
        let from = (1..pages).find(is_header).unwrap_or(pages);
        let (sites, covered) = walk(log, geometry, from, pages);
        (covered * page_size, geometry, sites)
    });
    // Of sizes that lead equally far, the first: a larger one only sees less.
    let best = tries.fold(None, |best: Option<(u64, Geometry, Vec<Site>)>, next| match best {
        Some(best) if best.0 >= next.0 => Some(best),
        _ => Some(next),
    });
    let (covered, geometry, sites) =
        best.ok_or(Error::Invalid("nothing in the file looks like a part of a kvb bucket"))?;
    if covered == 0 {
        return Err(Error::Invalid("nothing in the file looks like a part of a kvb bucket"));
    }
    let (uuid, book) = find_meta(log, geometry, len);
    let (root, session_salts) = (None, Vec::new());
    Ok(Remains { geometry, root, session_salts, uuid, sites, book, missing: 0, was_used: false })
}

/// The uuid that derived data tells, and the book.
fn find_meta(log: &Log, geometry: Geometry, len: u64) -> (Option<(u64, u64)>, Option<BookPlace>) {
    let (mut uuid, mut place) = (None, None);
    let mut next = 1;
    while next < len / geometry.page_size {
        let page = next;
        next += 1;
        let Some(bytes) = log.bytes(geometry.paddr(page), geometry.page_len()) else { continue };
        let Some(header) = SegmentHeader::decode(bytes) else { continue };
        // A value may contain what looks like derived data.
        next = page.saturating_add(header.page_count(geometry.page_size).unwrap_or(1)).max(next);
        if header.kind() != Some(Kind::Meta) {
            continue;
        }
        let head: Option<meta::MetaHead> = bytes.get(meta::OFFSET..).and_then(crate::format::read);
        if let Some(head) = head.filter(|head| head.magic.get() == meta::MAGIC) {
            uuid = uuid.or(Some((head.file_uuid_hi.get(), head.file_uuid_lo.get())));
        }
        let copy: Option<BookHead> =
            log.bytes(geometry.paddr(page + 1), BookHead::SIZE).and_then(crate::format::read);
        let is_book = copy.is_some_and(|copy| copy.magic.get() == crate::format::book::MAGIC);
        if let (true, Some(pages)) = (is_book, header.page_count(geometry.page_size)) {
            let extent = Extent::new(page, pages);
            place = (pages >= 3).then_some(BookPlace { extent, key_no: 0 });
        }
    }
    (uuid, place)
}

/// Keys for a bucket that does not tell any more which it used: the one that opens anything.
fn guess_keys(
    disk: &Arc<dyn Disk>,
    log: &Log,
    remains: &Remains,
    options: &Options,
) -> Result<Option<Vault>> {
    let headers = remains.sites.iter().filter_map(|site| {
        let at = remains.geometry.paddr(site.extent.start_page);
        log.bytes(at, SegmentHeader::SIZE).and_then(SegmentHeader::decode)
    });
    let Some(no) = headers.map(|header| header.key_no()).filter(|no| *no != 0).max() else {
        return Ok(None);
    };
    let uuid = remains.uuid.ok_or(Error::Invalid("nothing tells the bucket's uuid any more"))?;
    let provider = options.keys.as_deref();
    let mut ids = provider.map(|provider| provider.ids()).unwrap_or_default();
    ids.sort_unstable();
    // The key that opens the newest segment is the current one; during a rotation another opens older ones.
    let mut right = Vec::new();
    for id in ids {
        let key = Arc::new(BucketKey::find(provider, uuid, no, id)?);
        let keys = Keys { current: Arc::clone(&key), old: None };
        let log = Log::new(Arc::clone(disk), log.len(), Some(Vault::new(keys)))?;
        let salvage = Salvage::new(&log, remains.geometry, Some(uuid));
        let opened = remains.sites.iter().filter(|site| salvage.opens(**site));
        if let Some(newest) = opened.filter_map(|site| site.seg_id).max() {
            right.push((newest, key));
        }
    }
    right.sort_by_key(|(newest, _)| std::cmp::Reverse(*newest));
    let mut right = right.into_iter().map(|(_, key)| key);
    let current = right.next().ok_or(Error::KeyMissing { id: 0 })?;
    Ok(Some(Vault::new(Keys { current, old: right.next() })))
}

/// The index image, if its head holds; encrypted buckets do not need it here.
fn image(log: &Log, root: &Root) -> Option<Image> {
    let fixed = mount::fixed(root);
    let place = load_image(log, &fixed, root, &mut MountReport::default());
    place.filter(|_| root.locked.is_none()).map(|place| Image::new(place, fixed.geometry))
}

/// Where the ring says that records start.
fn journaled(log: &Log, root: &Root) -> Vec<u64> {
    let fixed = mount::fixed(root);
    let ring = Ring::new(fixed.geometry, fixed.journal_start_page, fixed.journal_page_count, 0);
    let entries = ring.offsets().filter_map(|at| log.bytes(at, JournalEntry::SIZE));
    let entries = entries.filter_map(JournalEntry::decode);
    entries.filter(|entry| entry.kind != COMMIT).map(|entry| entry.record_paddr.get()).collect()
}

fn durable_seqno(log: &Log, root: &Root) -> u64 {
    let fixed = mount::fixed(root);
    let ring = read_ring(
        log,
        fixed.geometry,
        fixed.journal_start_page,
        fixed.journal_page_count,
        fixed.uuid,
    );
    root.extension.durable_seqno.get().max(ring.durable_seqno.min(SEQNO_LIMIT))
}

/// What expands values of the damaged bucket.
fn codec(log: &Log, remains: &Remains, fixed: Option<&Fixed>) -> Codec {
    let max_value = fixed.map_or(u32::MAX, |fixed| fixed.max_value);
    let codec = Codec::new(None, 0, max_value);
    if let Some(mut place) = remains.book {
        if let (0, Some(keys)) = (place.key_no, log.keys()) {
            place.key_no = keys.current.no;
        }
        let uuid = remains.uuid.unwrap_or_default();
        let copies = book::copies(log, remains.geometry, uuid, place);
        let prepare = |bytes: Vec<u8>| Dictionary::new(bytes, 3).map(Arc::new);
        let dictionaries = copies
            .filter_map(|(_, copy)| copy)
            .find_map(|copy| copy.into_iter().map(prepare).collect::<Option<Vec<_>>>());
        codec.set_dictionaries(dictionaries.unwrap_or_default());
    }
    codec
}

/// Options for the new bucket: those of the damaged one, as far as they are known.
fn target_options(log: &Log, fixed: Option<&Fixed>, options: &Options, found: &[Found]) -> Options {
    let mut options = match fixed {
        Some(fixed) => Options::like(fixed, options),
        None => {
            let mut headers = found.iter().filter_map(|found| log.header(found.paddr));
            let is_compressed = headers.any(|header| header.form() != ENC_RAW);
            let compression = if is_compressed { Compression::Zstd } else { Compression::None };
            Options { compression, max_value: u32::MAX, ..options.clone() }
        }
    };
    options.key_id = log.keys().map(|keys| keys.current.id);
    options
}
