//! Reading records where they lie, through the mapping.
//!
//! Invariants
//! - Bytes of a committed record never change while anyone may read them, so lending them is sound.
//! - A record is lent only after its CRC held. Values of 4 KiB and more are checked once per open.
//! - Mappings live as long as the bucket, so a borrow of the bucket is a borrow of every mapping.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use host::planted::{Bug, is_planted};
use host::{Disk, Mapping};

use crate::cipher::SegmentCipher;
use crate::error::{Error, Result, What};
use crate::format::index_page::slot_hash;
use crate::format::record::{Framed, KEY_MAX, RecordHeader};
use crate::format::segment::{SALT_LEN, SegmentHeader};
use crate::hash::KeyHash;
use crate::opened::Opened;
use crate::sync::{Words, zeroed};
use crate::text::Text;
use crate::vault::{Keys, Vault};

/// Records at least this long are checked once per open.
const CHECK_ONCE: u64 = 4096;
/// How often a file may outgrow its mapping; each one at least doubles the last.
const MAPPINGS: usize = 64;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The file, mapped.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    mappings: [OnceLock<Mapping>; MAPPINGS],
    current: AtomicUsize,
    checked: Checked,
    /// Where long records do not hold: nobody reads all of one again and again to find that out.
    failed: Checked,
    /// Of an encrypted bucket.
    vault: Option<Vault>,
}

impl Log {
    /// Maps the file.
    pub(crate) fn new(disk: Arc<dyn Disk>, len: u64, vault: Option<Vault>) -> Result<Log> {
        let log = Log {
            disk,
            mappings: [const { OnceLock::new() }; MAPPINGS],
            current: AtomicUsize::new(0),
            checked: Checked::default(),
            failed: Checked::default(),
            vault,
        };
        let first = log.disk.map(len).map_err(Error::io("map the bucket"))?;
        first.advise_random();
        let [slot, ..] = &log.mappings;
        slot.get_or_init(|| first);
        Ok(log)
    }

    /// Makes sure that the first `len` bytes of the file can be read; called by whoever grew it.
    pub(crate) fn cover(&self, len: u64) -> Result<()> {
        let current = self.current.load(Ordering::Acquire);
        let covered =
            self.mappings.get(current).and_then(OnceLock::get).map_or(0, Mapping::capacity);
        if covered >= len {
            return Ok(());
        }
        let mapping =
            self.disk.map(len.max(2 * covered)).map_err(Error::io("map the grown bucket"))?;
        mapping.advise_random();
        let slot = self.mappings.get(current + 1).ok_or(Error::Invalid("too many mappings"))?;
        slot.get_or_init(|| mapping);
        self.current.store(current + 1, Ordering::Release);
        Ok(())
    }

    /// Keys and ciphers, of an encrypted bucket.
    pub(crate) fn vault(&self) -> Option<&Vault> {
        self.vault.as_ref()
    }

    /// The keys now, of an encrypted bucket.
    pub(crate) fn keys(&self) -> Option<Arc<Keys>> {
        self.vault.as_ref().map(|vault| vault.keys.load_full())
    }

    /// The cipher of the segment a byte is in, and where that starts.
    pub(crate) fn cipher(&self, paddr: u64) -> Option<(u64, Arc<SegmentCipher>)> {
        let header = |start| self.bytes(start, SegmentHeader::SIZE + SALT_LEN);
        self.vault.as_ref()?.cipher(paddr, header)
    }

    /// Length of the file, as far as it can be read.
    pub(crate) fn len(&self) -> u64 {
        let current = self.mappings.get(self.current.load(Ordering::Acquire));
        current.and_then(OnceLock::get).map_or(0, Mapping::valid_len)
    }

    /// Bytes of the file.
    #[inline]
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.mappings.get(self.current.load(Ordering::Acquire))?.get()?.bytes(offset, len)
    }

    /// Loads the cache lines of some bytes.
    #[inline]
    pub(crate) fn touch(&self, offset: u64, len: usize) {
        let bytes = self.bytes(offset, len).unwrap_or(&[]);
        bytes.iter().step_by(LINE).for_each(host::prefetch);
    }

    /// Asks the system to have bytes of the file in memory soon, fewer if it ends before.
    pub(crate) fn prefetch(&self, offset: u64, len: usize) {
        let mapping = self.mappings.get(self.current.load(Ordering::Acquire));
        if let Some(mapping) = mapping.and_then(OnceLock::get) {
            let room = mapping.valid_len().saturating_sub(offset);
            mapping.prefetch(offset, len.min(usize::try_from(room).unwrap_or(usize::MAX)));
        }
    }

    /// Bytes of the file, fewer if it ends before.
    pub(crate) fn bytes_at_most(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let len = len.min(self.len().checked_sub(offset)?);
        self.bytes(offset, usize::try_from(len).ok()?)
    }

    /// Where bytes lie that were lent.
    pub(crate) fn address(&self, lent: &[u8]) -> Option<u64> {
        self.mappings.iter().map_while(OnceLock::get).find_map(|mapping| {
            let len = usize::try_from(mapping.valid_len()).ok()?;
            let start = mapping.bytes(0, 0)?.as_ptr().addr();
            let offset = lent.as_ptr().addr().checked_sub(start).filter(|offset| *offset < len)?;
            u64::try_from(offset).ok()
        })
    }

    /// The record at `paddr`, checked.
    #[inline]
    pub(crate) fn record(&self, paddr: u64) -> Result<Opened<'_>> {
        self.try_record(paddr).ok_or_else(|| Error::corrupt(What::Record, paddr))
    }

    /// The record at `paddr`, checked now whatever was known of it, if it is at most so many bytes long.
    pub(crate) fn record_within(&self, paddr: u64, room: u64) -> Option<Opened<'_>> {
        let header = RecordHeader::decode(self.bytes(paddr, RecordHeader::SIZE)?)?;
        let len = Some(header.record_len()).filter(|len| *len <= room)?;
        let bytes = self.bytes(paddr, usize::try_from(len).ok()?)?;
        self.open(paddr, Framed::decode_body(header, bytes)?)
    }

    /// Header of the record at `paddr`, unchecked.
    #[inline]
    pub(crate) fn header(&self, paddr: u64) -> Option<&RecordHeader> {
        RecordHeader::of(self.bytes(paddr, RecordHeader::SIZE)?)
    }

    /// Key of the record at `paddr`, unchecked: for ordering records that are checked when they are lent.
    #[inline]
    pub(crate) fn try_key(&self, paddr: u64) -> Option<Text<'_>> {
        let key = self.lent_key(paddr)?;
        if self.vault.is_none() {
            return Some(Text::lent(key));
        }
        Some(Text::owned(self.cipher(paddr)?.1.peek_key(self.header(paddr)?, key)))
    }

    /// Key of the record at `paddr` as it lies, unchecked.
    #[inline]
    pub(crate) fn lent_key(&self, paddr: u64) -> Option<&[u8]> {
        let header = self.header(paddr)?;
        let key_len = usize::try_from(header.key_len.get()).ok().filter(|len| *len <= KEY_MAX)?;
        self.bytes(paddr + u64::try_from(RecordHeader::SIZE).ok()?, key_len)
    }

    /// Key of the record at `paddr`, unchecked; empty if there can be none.
    #[inline]
    pub(crate) fn key(&self, paddr: u64) -> Text<'_> {
        self.try_key(paddr).unwrap_or(Text::lent(&[]))
    }

    /// Slot hash and seqno of a record that does not hold, if its header does. In an encrypted bucket nothing vouches for a
    /// record but its tag.
    pub(crate) fn lost_record(&self, paddr: u64) -> Option<(u64, u64)> {
        let header = RecordHeader::decode(self.bytes(paddr, RecordHeader::SIZE)?)?;
        let known = (slot_hash(header.hash64.get()), header.seqno.get());
        self.vault.is_none().then_some(known)
    }

    /// The record at `paddr` as far as its key, if the header's CRC holds and the hash in it vouches for the key, whatever became of
    /// the value. In an encrypted bucket nothing vouches for a record but its tag.
    pub(crate) fn plain_head(&self, paddr: u64, hash: &KeyHash) -> Option<Opened<'_>> {
        let head = self.likely_head(paddr, hash).filter(|_| self.vault.is_none());
        head.filter(|head| hash.vouches_for(head.key()))
    }

    /// The record at `paddr` as far as its key, if the hash in its header is the key's, for telling somebody which record was lost. Other
    /// keys may have that hash.
    pub(crate) fn likely_head(&self, paddr: u64, hash: &KeyHash) -> Option<Opened<'_>> {
        let key = self.try_key(paddr)?;
        let header = RecordHeader::decode(self.bytes(paddr, RecordHeader::SIZE)?)?;
        (header.hash64.get() == hash.hash64(&key)).then(|| Opened::new(header, key))
    }

    /// The record at `paddr` as far as its key, if that holds. Of a long one not more is read than that takes.
    pub(crate) fn keyed_record(&self, paddr: u64, hash: &KeyHash) -> Option<Opened<'_>> {
        let is_long = self.header(paddr)?.record_len() >= CHECK_ONCE;
        let head = self.likely_head(paddr, hash).filter(|_| is_long);
        let head = head.filter(|head| hash.vouches_for(head.key()));
        head.or_else(|| self.try_record(paddr))
    }

    /// Forgets which records of a range were found sound; called before others are written there.
    pub(crate) fn forget_checked(&self, from: u64, to: u64) {
        let mut at = from / CHECK_ONCE * CHECK_ONCE;
        while at < to {
            self.checked.remove(at);
            self.failed.remove(at);
            at += CHECK_ONCE;
        }
    }

    /// The record at `paddr`, if it holds.
    #[inline(always)]
    pub(crate) fn try_record(&self, paddr: u64) -> Option<Opened<'_>> {
        self.open(paddr, self.try_framed(paddr)?)
    }

    /// The record at `paddr` as it lies, if its CRCs hold.
    #[inline(always)]
    pub(crate) fn try_framed(&self, paddr: u64) -> Option<Framed<'_>> {
        let header = self.header(paddr)?;
        let len = header.record_len();
        if len >= CHECK_ONCE {
            return self.try_long(paddr);
        }
        let bytes = self.bytes(paddr, usize::try_from(len).ok()?)?;
        if is_planted(Bug::RecordUnchecked) {
            return Framed::split(header, bytes);
        }
        Framed::decode_body(header, bytes)
    }

    fn try_long(&self, paddr: u64) -> Option<Framed<'_>> {
        // A length out of rotten bytes could make the record CRC a scan of the whole file.
        let header = RecordHeader::decode(self.bytes(paddr, RecordHeader::SIZE)?)?;
        let bytes = self.bytes(paddr, usize::try_from(header.record_len()).ok()?)?;
        if self.checked.contains(paddr) {
            return Framed::split(header, bytes);
        }
        if self.failed.contains(paddr) {
            return None;
        }
        // All of it will be read now. From the disk that would be page by page.
        self.prefetch(paddr, bytes.len());
        let record = Framed::decode_body(header, bytes);
        if record.is_some() { &self.checked } else { &self.failed }.insert(paddr);
        record
    }

    /// Opens a record whose CRCs held.
    #[inline(always)]
    fn open<'a>(&'a self, paddr: u64, framed: Framed<'a>) -> Option<Opened<'a>> {
        if self.vault.is_none() {
            return (!framed.header.is_encrypted()).then(|| Opened::plain(framed));
        }
        self.decrypt(paddr, &framed)
    }

    #[cold]
    fn decrypt<'a>(&'a self, paddr: u64, framed: &Framed<'a>) -> Option<Opened<'a>> {
        let (start, cipher) = self.cipher(paddr)?;
        let body = cipher.open(framed, paddr - start)?;
        Some(Opened::new(framed.header, Text::owned(body)))
    }
}

/// Large records of which something was found out. No two of them start in one 4 KiB block, so a bit per block tells.
#[derive(Debug)]
struct Checked {
    /// Part k covers 2^k times 16 MiB, so the parts are few and none is ever moved. Of a long one the system hands out what is touched.
    parts: [OnceLock<Words>; PARTS],
}

impl Default for Checked {
    fn default() -> Checked {
        Checked { parts: [const { OnceLock::new() }; PARTS] }
    }
}

/// Enough parts for any file.
const PARTS: usize = 48;

impl Checked {
    fn place(paddr: u64) -> (usize, usize, u64) {
        let block = paddr / CHECK_ONCE;
        let word = block / 64;
        let group = word / 64 + 1;
        let part = group.ilog2();
        let first = ((1_u64 << part) - 1) * 64;
        let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        (index(u64::from(part)), index(word - first), 1 << (block % 64))
    }

    fn contains(&self, paddr: u64) -> bool {
        let (part, word, bit) = Checked::place(paddr);
        let words = self.parts.get(part).and_then(OnceLock::get);
        words
            .and_then(|words| words.get(word))
            .is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn remove(&self, paddr: u64) {
        let (part, word, bit) = Checked::place(paddr);
        if let Some(word) = self.parts.get(part).and_then(OnceLock::get).and_then(|w| w.get(word)) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn insert(&self, paddr: u64) {
        let (part, word, bit) = Checked::place(paddr);
        if let Some(words) = self.parts.get(part) {
            let words = words.get_or_init(|| zeroed(64 << part));
            if let Some(word) = words.get(word) {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }
}
