//! The vault of an encrypted bucket: its keys, and the cipher of every segment by where it lies.
//!
//! Ciphers are made when they are first needed, from what the segment's own header says: opening a bucket does not look at
//! every segment. A header that lies about its salt or key makes a cipher that opens nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;

use crate::cipher::{BucketKey, SegmentCipher};
use crate::error::{Error, Result};
use crate::format::index_page::seal_page;
use crate::format::key_block::{self, KeyBlock};
use crate::format::meta::{MAC_LEN, Meta, MetaHead, SECTION_MAC};
use crate::format::segment::SegmentHeader;
use crate::keys::KeyProvider;
use crate::segment::Part;

use zerocopy::IntoBytes;

/// The keys a bucket is under.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// New segments and checkpoints are under this one.
    pub(crate) current: Arc<BucketKey>,
    /// Some segments may still be under this one.
    pub(crate) old: Option<Arc<BucketKey>>,
}

impl Keys {
    /// Asks for the keys that a key block names, and checks that they are the right ones.
    pub(crate) fn unlock(
        block: &KeyBlock,
        uuid: (u64, u64),
        provider: Option<&dyn KeyProvider>,
    ) -> Result<Keys> {
        let find = |no: u16, id: u64, check: &[u8; 16]| {
            let key = BucketKey::find(provider, uuid, no, id)?;
            if is_same(&key.check(), check) {
                Ok(Arc::new(key))
            } else {
                Err(Error::KeyWrong { id })
            }
        };
        let current = find(block.key_no.get(), block.key_id.get(), &block.key_check)?;
        let old = match block.old_key_no.get() {
            0 => None,
            no => Some(find(no, block.old_key_id.get(), &block.old_key_check)?),
        };
        Ok(Keys { current, old })
    }

    /// The key of a number.
    pub(crate) fn of(&self, no: u16) -> Option<&Arc<BucketKey>> {
        [Some(&self.current), self.old.as_ref()].into_iter().flatten().find(|key| key.no == no)
    }

    /// True if the MAC of a superblock's page holds.
    pub(crate) fn vouch_for_page(&self, page: &[u8], block: &KeyBlock) -> bool {
        key_block::covered(page).is_some_and(|(before, behind)| {
            is_same(&self.current.page_mac(before, behind), &block.mac)
        })
    }
}

impl BucketKey {
    /// The MAC of a superblock's page.
    pub(crate) fn page_mac(&self, before: &[u8], behind: &[u8]) -> [u8; 16] {
        self.mac(b"kvb-checkpoint-v1", &[before, behind])
    }

    /// The MAC of an index page.
    pub(crate) fn image_mac(&self, before: &[u8], behind: &[u8]) -> [u8; 16] {
        self.mac(b"kvb-image-v1", &[before, behind])
    }

    /// The MAC of a section of derived data; the head is section 0.
    pub(crate) fn section_mac(&self, head: &MetaHead, section: u32, bytes: &[u8]) -> [u8; 16] {
        let section = section.to_le_bytes();
        let parts = [head.kind.as_bytes(), head.id.as_bytes(), &section, bytes];
        self.mac(b"kvb-meta-v1", &parts)
    }

    /// The MACs of head and sections, as they are stored.
    pub(crate) fn section_macs(&self, head: &MetaHead, parts: &[Part<'_>]) -> Vec<u8> {
        let mut macs = self.section_mac(head, 0, head.as_bytes()).to_vec();
        for (section, bytes) in parts {
            macs.extend_from_slice(&self.section_mac(head, *section, bytes));
        }
        macs
    }

    /// True if the MAC of a section holds, among the MACs of its extent.
    pub(crate) fn vouches(&self, meta: &Meta, macs: &[u8], section: u32, bytes: &[u8]) -> bool {
        let place = match section {
            0 => Some(0),
            _ => meta.place(section).map(|place| place + 1),
        };
        let stored = place.and_then(|at| macs.get(at * MAC_LEN..(at + 1) * MAC_LEN));
        section != SECTION_MAC
            && stored.is_some_and(|mac| is_same(&self.section_mac(&meta.head, section, bytes), mac))
    }
}

/// Writes header and digest, or MAC, of an index page of which `used` slots are set.
pub(crate) fn seal_index_page(
    page: &mut [u8],
    image_id: u64,
    pageid: u64,
    used: u32,
    key: Option<&BucketKey>,
) -> Option<()> {
    let Some(key) = key else { return seal_page(page, image_id, pageid, used, None) };
    let mac = |before: &[u8], behind: &[u8]| key.image_mac(before, behind);
    seal_page(page, image_id, pageid, used, Some(&mac))
}

/// A segment, and its cipher once it was needed.
#[derive(Debug)]
struct Locked {
    end: u64,
    seg_id: u64,
    cipher: OnceLock<Option<Arc<SegmentCipher>>>,
}

/// Keys and ciphers.
#[derive(Debug)]
pub(crate) struct Vault {
    pub(crate) keys: ArcSwap<Keys>,
    /// By where segments start.
    segments: ArcSwap<BTreeMap<u64, Arc<Locked>>>,
}

impl Vault {
    pub(crate) fn new(keys: Keys) -> Vault {
        Vault { keys: ArcSwap::from_pointee(keys), segments: ArcSwap::default() }
    }

    /// Takes in segments that lie from `start` to `end`, in place of whatever was there.
    pub(crate) fn admit_all(&self, segments: impl IntoIterator<Item = (u64, u64, u64)>) {
        let locked = |(start, end, seg_id)| {
            (start, Arc::new(Locked { end, seg_id, cipher: OnceLock::new() }))
        };
        self.insert(&segments.into_iter().map(locked).collect::<Vec<_>>());
    }

    /// Takes in a segment whose cipher is known.
    pub(crate) fn admit(&self, start: u64, end: u64, seg_id: u64, cipher: &Arc<SegmentCipher>) {
        let cipher = OnceLock::from(Some(Arc::clone(cipher)));
        self.insert(&[(start, Arc::new(Locked { end, seg_id, cipher }))]);
    }

    fn insert(&self, segments: &[(u64, Arc<Locked>)]) {
        // The writer and compaction may do this at the same time.
        self.segments.rcu(|all| {
            let mut all = BTreeMap::clone(all);
            for (start, locked) in segments {
                let stale: Vec<u64> =
                    all.range(start..&locked.end).map(|(start, _)| *start).collect();
                stale.iter().for_each(|start| drop(all.remove(start)));
                all.insert(*start, Arc::clone(locked));
            }
            all
        });
    }

    /// The cipher of the segment that a byte is in, and where that starts. `header` gives first bytes of the segment.
    pub(crate) fn cipher<'a>(
        &self,
        paddr: u64,
        header: impl FnOnce(u64) -> Option<&'a [u8]>,
    ) -> Option<(u64, Arc<SegmentCipher>)> {
        let segments = self.segments.load();
        let (start, locked) = segments.range(..=paddr).next_back()?;
        if paddr >= locked.end {
            return None;
        }
        let make = || self.make(locked.seg_id, header(*start)?);
        let cipher = locked.cipher.get_or_init(make);
        Some((*start, Arc::clone(cipher.as_ref()?)))
    }

    /// The cipher that a segment's first bytes tell of.
    pub(crate) fn make(&self, seg_id: u64, bytes: &[u8]) -> Option<Arc<SegmentCipher>> {
        let header = SegmentHeader::decode(bytes)?;
        let keys = self.keys.load();
        let key = keys.of(header.key_no())?;
        let salt = match header.is_salted() {
            true => Some(*bytes.get(SegmentHeader::SIZE..)?.first_chunk::<16>()?),
            false => None,
        };
        Some(Arc::new(key.segment(seg_id, salt)))
    }
}

/// True if two MACs are equal, in a time that does not tell where they differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
