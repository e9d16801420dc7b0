//! Keeping dictionaries: reading the book when a bucket is opened, training a dictionary, writing the next book.
//!
//! Invariants
//! - A value is compressed with a dictionary only when the book that has it is named by a durable superblock.
//! - A book has every dictionary of the one before. So any value can be expanded, whichever it was compressed with.

use std::sync::Arc;

use zerocopy::little_endian::{U32, U64};

use crate::assemble::random_salt;
use crate::cipher::BucketKey;
use crate::core::{Core, Fixed};
use crate::dictionary::{Dictionary, ID_END, ID_MIN};
use crate::error::{Error, Result, What};
use crate::extent::{Extent, Geometry};
use crate::format::book::{self, BookHead, COUNT_MAX};
use crate::format::index_page::SENTINEL;
use crate::format::segment::{Kind, SegmentHeader};
use crate::keeper::Keeper;
use crate::log::Log;
use crate::room::Retired;
use crate::root::Root;
use crate::segment::write_passive;
use crate::squeeze;

/// Samples should be this many times as long as the dictionary made of them.
const SAMPLE_TIMES: usize = 100;
/// Fewer samples make no dictionary.
const SAMPLES_MIN: usize = 16;
/// Longest value that is taken for a sample.
const SAMPLE_MAX: usize = 16 << 10;

/// Where the book lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BookPlace {
    pub(crate) extent: Extent,
    /// Number of the key it is under, if there is one.
    pub(crate) key_no: u16,
}

/// What training made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Training {
    /// The id by which compressed values name the dictionary.
    pub id: u32,
    /// Its length in bytes.
    pub bytes: u64,
    /// Values it was made of.
    pub samples: u64,
}

/// Pages of each copy in a book of so many pages.
fn copy_pages(extent: Extent) -> u64 {
    (extent.page_count - 1) / 2
}

/// Where the book is that the superblock names, by either of two places that tell how long it is.
pub(crate) fn place(log: &Log, geometry: Geometry, root: &Root) -> Option<BookPlace> {
    let start_page = root.extension.book_start_page.get();
    let region = root.superblock.segment_start_page.get()..root.superblock.segment_end_page.get();
    if !region.contains(&start_page) {
        return None;
    }
    let key_no = root.locked.as_ref().map_or(0, |(block, _)| block.book_key_no.get());
    let by_header = || {
        let bytes = log.bytes(geometry.paddr(start_page), SegmentHeader::SIZE)?;
        let header = SegmentHeader::decode(bytes)?;
        (header.kind() == Some(Kind::Meta)).then(|| header.page_count(geometry.page_size))?
    };
    let by_copy = || {
        let at = geometry.paddr(start_page.saturating_add(1));
        let head: BookHead = log.bytes(at, BookHead::SIZE).and_then(crate::format::read)?;
        let is_copy = head.magic.get() == book::MAGIC && head.length.get() < 1 << 32;
        let tag = if key_no == 0 { 0 } else { 16 };
        let around = u64::try_from(BookHead::SIZE + tag + 4).ok()?;
        is_copy.then(|| 1 + 2 * geometry.pages(around + head.length.get()))
    };
    let pages = [by_header(), by_copy()].into_iter().flatten();
    let mut extents = pages.map(|pages| Extent::new(start_page, pages));
    let extent = extents.find(|extent| {
        extent.page_count >= 3 && extent.check_within(region.start, region.end, 0).is_ok()
    })?;
    Some(BookPlace { extent, key_no })
}

/// Where the two copies of a book are, and the dictionaries in each that holds.
pub(crate) fn copies(
    log: &Log,
    geometry: Geometry,
    uuid: (u64, u64),
    place: BookPlace,
) -> impl Iterator<Item = (u64, Option<Vec<Vec<u8>>>)> {
    let pages = copy_pages(place.extent);
    (0..2).map(move |index| {
        let at = geometry.paddr(place.extent.start_page + 1 + index * pages);
        let copy = || {
            let bytes = log.bytes_at_most(at, geometry.paddr(pages))?;
            let keys = log.keys();
            let (head, body, tag) = book::decode(bytes, uuid, keys.is_some())?;
            let body = match keys {
                Some(keys) => keys.of(place.key_no)?.open_book(&head, body, tag)?,
                None => body.to_vec(),
            };
            book::split(&head, &body)
        };
        (at, copy())
    })
}

/// The dictionaries in a book, from whichever copy holds.
pub(crate) fn read(
    log: &Log,
    fixed: &Fixed,
    place: BookPlace,
    level: i32,
) -> Result<Vec<Arc<Dictionary>>> {
    let prepare = |bytes: Vec<u8>| Dictionary::new(bytes, level).map(Arc::new);
    let at = fixed.geometry.paddr(place.extent.start_page);
    copies(log, fixed.geometry, fixed.uuid, place)
        .filter_map(|(_, copy)| copy)
        .find_map(|copy| copy.into_iter().map(prepare).collect())
        .ok_or_else(|| Error::corrupt(What::Dictionary, at))
}

impl Keeper {
    /// Writes a book of these dictionaries under a key. The checkpoint that follows syncs and names it.
    pub(crate) fn write_book(
        &mut self,
        core: &Core,
        dictionaries: &[Arc<Dictionary>],
        key: Option<&BucketKey>,
    ) -> Result<()> {
        let geometry = core.geometry();
        let lens = dictionaries.iter().map(|dictionary| dictionary.bytes.len());
        let len = book::encoded_len(lens, key.is_some());
        let pages = geometry.pages(u64::try_from(len).unwrap_or(u64::MAX));
        let extent = self.allot(core, 1 + 2 * pages)?;
        let body = book::body(dictionaries.iter().map(|dictionary| dictionary.bytes.as_slice()));
        for index in 0..2 {
            let mut nonce = [0; 24];
            if key.is_some() {
                let (head, tail) = nonce.split_at_mut(16);
                head.copy_from_slice(&random_salt(&*core.env));
                tail.copy_from_slice(&core.env.random_u64().to_le_bytes());
            }
            let head = BookHead {
                magic: U32::new(book::MAGIC),
                count: U32::new(u32::try_from(dictionaries.len()).unwrap_or(u32::MAX)),
                file_uuid_hi: U64::new(core.fixed.uuid.0),
                file_uuid_lo: U64::new(core.fixed.uuid.1),
                length: U64::new(u64::try_from(body.len()).unwrap_or(u64::MAX)),
                nonce,
            };
            let mut copy = book::encode(head, body.clone(), |head, body| {
                key.map(|key| key.seal_book(&nonce, head, body))
            });
            copy.resize(copy.len().next_multiple_of(geometry.page_len()), 0);
            let at = geometry.paddr(extent.start_page + 1 + index * pages);
            core.disk.write_at(at, &copy).map_err(Error::io("write the dictionaries"))?;
        }
        write_passive(&*core.disk, geometry, Kind::Meta, extent)?;
        let place = BookPlace { extent, key_no: key.map_or(0, |key| key.no) };
        let epoch = self.epoch + 1;
        let old = self.book.replace(place).map(|old| old.extent);
        self.retired.extend(old.map(|extent| Retired { extent, image: None, sealed: None, epoch }));
        Ok(())
    }
}

impl Core {
    /// Trains a dictionary of at most so many bytes and uses it from now on.
    pub(crate) fn train(&self, max_bytes: usize) -> Result<Training> {
        self.check_writable()?;
        let Some(level) = self.codec.level() else {
            return Err(Error::Invalid("the bucket does not compress values"));
        };
        if !(256..=1 << 20).contains(&max_bytes) {
            return Err(Error::Invalid("a dictionary has 256 bytes to 1 MiB"));
        }
        let (samples, lens) = self.samples(max_bytes)?;
        if lens.len() < SAMPLES_MIN {
            return Err(Error::Invalid("there are too few values to learn from"));
        }
        let dictionary = squeeze::train(&samples, &lens, max_bytes)
            .and_then(|bytes| Dictionary::renamed(bytes, self.fresh_id(), level))
            .ok_or(Error::Invalid("the values have too little in common"))?;
        let training = Training {
            id: dictionary.id(),
            bytes: u64::try_from(dictionary.bytes.len()).unwrap_or(u64::MAX),
            samples: u64::try_from(lens.len()).unwrap_or(u64::MAX),
        };
        let installed = self.install(dictionary);
        self.latch(installed)?;
        Ok(training)
    }

    /// An id that no dictionary of the bucket has.
    fn fresh_id(&self) -> u32 {
        let known = self.codec.dictionaries();
        loop {
            let random = u32::try_from(self.env.random_u64() >> 32).unwrap_or(0);
            let id = ID_MIN + random % (ID_END - ID_MIN);
            if known.iter().all(|known| known.id() != id) {
                return id;
            }
        }
    }

    fn install(&self, dictionary: Dictionary) -> Result<()> {
        let mut keeper = self.lock_keeper();
        let mut dictionaries = Vec::clone(&self.codec.dictionaries());
        let count = u32::try_from(dictionaries.len()).unwrap_or(u32::MAX);
        if count >= COUNT_MAX {
            return Err(Error::Invalid(
                "the bucket has 16 dictionaries; a copy of it begins with none",
            ));
        }
        dictionaries.push(Arc::new(dictionary));
        let key = self.log.keys().map(|keys| Arc::clone(&keys.current));
        keeper.write_book(self, &dictionaries, key.as_deref())?;
        keeper.checkpoint(self)?;
        // Order: durable, and known to readers of other processes, before any value needs it.
        if let Some(bulletin) = &self.bulletin {
            bulletin.retire();
        }
        self.codec.set_dictionaries(dictionaries);
        Ok(())
    }

    /// Values from all over the bucket, one behind the other, and their lengths.
    fn samples(&self, max_bytes: usize) -> Result<(Vec<u8>, Vec<usize>)> {
        let view = self.view.load_full();
        let wanted = max_bytes.saturating_mul(SAMPLE_TIMES);
        let (mut samples, mut lens) = (Vec::new(), Vec::new());
        let mut take = |paddr: u64| -> Result<bool> {
            let record = self.log.record(paddr)?;
            let value = self.value(record, crate::value::Pin::Elsewhere)?;
            if (8..=SAMPLE_MAX).contains(&value.len()) {
                samples.extend_from_slice(&value);
                lens.push(value.len());
            }
            Ok(samples.len() < wanted)
        };
        // Slots stand in the order of hashes, so any part of the table is a fair sample.
        let mut position = 0;
        let step = (view.image.slot_count() / (64 << 10)).max(1) | 1;
        while view.image.is_on_disk() && position < view.image.slot_count() {
            let slot = view.image.slot(&self.log, position)?;
            let paddr = slot.record_paddr.get();
            let page = self.geometry().page(paddr);
            let is_gone = view.gone.as_ref().is_some_and(|gone| gone.contains(page));
            if slot.hash64.get() > SENTINEL && !is_gone && !take(paddr)? {
                return Ok((samples, lens));
            }
            position += step;
        }
        let mut failed = Ok(());
        for overlay in view.overlays() {
            overlay.sample(64 << 10, |_, entry| {
                if entry & crate::overlay::DELETE_BIT == 0 && failed.is_ok() {
                    failed = take(entry).map(drop);
                }
            });
        }
        failed.map(|()| (samples, lens))
    }
}
