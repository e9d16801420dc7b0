//! Rotating the key of an encrypted bucket by rewriting it, while it is in use.
//!
//! Order: a checkpoint names the new key beside the old one; from then on segments are begun under the new key; compaction
//! moves what is under the old one; index and table are written anew; what is free is overwritten; a checkpoint names the new key
//! alone. After a crash both keys are needed until a rotation to the same key was called again and got to its end.

use std::collections::HashSet;
use std::sync::Arc;

use crate::cipher::BucketKey;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::segment::{Kind, SegmentHeader};
use crate::keeper::Keeper;
use crate::mount::named_extent;
use crate::room::is_full;
use crate::sealed::Sealed;
use crate::segment::write_passive;
use crate::vault::{Keys, Vault};

/// Zeros written at once.
const ZEROS: usize = 64 << 10;
/// Most bytes of free space that have their blocks again while they are overwritten.
const WIPE_BYTES: u64 = 4 << 20;
/// Segments rewritten in one round; the space of those before is there for the next.
const ROUND_BYTES: u64 = 256 << 20;

/// What a rotation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rotation {
    /// Segments rewritten.
    pub segments: u64,
    /// Records in them that were still needed.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Nothing is under the old key any more, and it is not needed to open the bucket. Otherwise somebody still reads what
    /// is; rotate to the same key again when they are done.
    pub is_complete: bool,
}

impl Core {
    /// Rotates to the key of an id.
    pub(crate) fn rotate(&self, key_id: u64) -> Result<Rotation> {
        self.check_writable()?;
        let vault = self.log.vault().ok_or(Error::Invalid("the bucket is not encrypted"))?;
        let _alone = self.lock_compacting();
        self.begin_rotation(vault, key_id)?;
        let mut done = Rotation::default();
        let result = self.rewrite_all(vault, &mut done);
        self.latch_unless_damage(result)?;
        let ended = self.end_rotation(vault);
        done.is_complete = self.latch_unless_damage(ended)?;
        Ok(done)
    }

    /// Makes the key the current one, unless it is already.
    fn begin_rotation(&self, vault: &Vault, key_id: u64) -> Result<()> {
        let keys = vault.keys.load_full();
        if keys.current.id == key_id {
            return Ok(());
        }
        if keys.old.is_some() {
            return Err(Error::Invalid(
                "a rotation to another key is not at its end: rotate to that one first",
            ));
        }
        let no = keys.current.no.checked_add(1).ok_or(Error::Invalid("too many rotations"))?;
        let uuid = self.fixed.uuid;
        let key = Arc::new(BucketKey::find(self.keys.as_deref(), uuid, no, key_id)?);
        let result = self.name_key(vault, &keys, key);
        self.latch(result)
    }

    /// No segment is begun under the new key before a checkpoint that names it is durable: both locks are held.
    fn name_key(&self, vault: &Vault, keys: &Keys, key: Arc<BucketKey>) -> Result<()> {
        let mut writer = self.lock_writer();
        self.roll(&mut writer);
        self.hand_over(&mut writer);
        let mut keeper = self.lock_keeper();
        // What a full disk has no room for must show before anything is under the new key.
        keeper.checkpoint(self)?;
        keeper.write_book_anew(self, &key)?;
        vault.keys.store(Arc::new(Keys { current: key, old: Some(Arc::clone(&keys.current)) }));
        keeper.checkpoint(self).map_err(|error| match error {
            // Too late to go back: opening again finds the old key alone, and everything under it.
            Error::NoSpace => Error::Io {
                doing: "name the new key",
                source: std::io::ErrorKind::StorageFull.into(),
            },
            other => other,
        })
    }

    /// Moves the records of every segment that is under the old key.
    fn rewrite_all(&self, vault: &Vault, done: &mut Rotation) -> Result<()> {
        let Some(old) = vault.keys.load().old.clone() else { return Ok(()) };
        let mut tried = HashSet::new();
        let mut round_bytes = ROUND_BYTES;
        loop {
            self.cover_all()?;
            let mut bytes = 0;
            let mut victims: Vec<Arc<Sealed>> = self.under(old.no);
            victims.retain(|one| !tried.contains(&one.entry.seg_id.get()));
            victims.retain(|one| {
                let is_first = bytes == 0;
                bytes += one.entry.record_bytes.get();
                is_first || bytes <= round_bytes
            });
            if victims.is_empty() {
                return Ok(());
            }
            let ids: Vec<u64> = victims.iter().map(|one| one.entry.seg_id.get()).collect();
            let round = match self.round(victims, false) {
                // A record that cannot be read stays where it is, and its segment with it; the others go one by one.
                Err(Error::Corrupt(_)) if ids.len() > 1 => {
                    round_bytes = 0;
                    continue;
                }
                Err(Error::Corrupt(_)) => {
                    tried.extend(ids);
                    continue;
                }
                round => round?,
            };
            tried.extend(ids);
            done.segments += round.segments_emptied;
            done.records += round.records_moved;
            done.bytes += round.bytes_moved;
        }
    }

    /// Registered segments under a key.
    fn under(&self, key_no: u16) -> Vec<Arc<Sealed>> {
        let keeper = self.lock_keeper();
        let segments = keeper.segments.values().map(|kept| &kept.sealed);
        segments.filter(|one| self.key_no(one.extent()) == Some(key_no)).cloned().collect()
    }

    fn key_no(&self, extent: Extent) -> Option<u16> {
        let at = self.geometry().paddr(extent.start_page);
        let header = self.log.bytes(at, SegmentHeader::SIZE).and_then(SegmentHeader::decode)?;
        Some(header.key_no())
    }

    /// Forgets the old key, if nothing is under it any more. True if there is none.
    fn end_rotation(&self, vault: &Vault) -> Result<bool> {
        let Some(old) = vault.keys.load().old.clone() else { return Ok(true) };
        // The index and the table were written anew, unless nothing has changed since.
        self.cover_all()?;
        let _no_commits = self.lock_writer();
        let mut keeper = self.lock_keeper();
        if keeper.table.is_some_and(|table| table.key_no == old.no) {
            keeper.write_table(self)?;
        }
        keeper.checkpoint(self)?;
        let is_left = keeper
            .segments
            .values()
            .any(|kept| self.key_no(kept.sealed.extent()).is_none_or(|key_no| key_no == old.no));
        if is_left || !keeper.retired.is_empty() || keeper.image.key_no == old.no {
            return Ok(false);
        }
        // Order: as long as the old key is named, the next rotation knows that this is to be done.
        keeper.scrub(self)?;
        let current = Arc::clone(&vault.keys.load().current);
        vault.keys.store(Arc::new(Keys { current, old: None }));
        keeper.checkpoint(self)?;
        Ok(true)
    }
}

/// Writes zeros. The caller syncs.
fn zero(core: &Core, from: u64, to: u64) -> std::io::Result<()> {
    let zeros = vec![0; ZEROS];
    let mut at = from;
    while at < to {
        let len = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS);
        core.disk.write_at(at, zeros.get(..len).unwrap_or(&zeros))?;
        at += u64::try_from(len).unwrap_or(0);
    }
    Ok(())
}

impl Keeper {
    /// Writes the dictionaries under a key.
    fn write_book_anew(&mut self, core: &Core, key: &BucketKey) -> Result<()> {
        if self.book.is_none() {
            return Ok(());
        }
        self.write_book(core, &core.codec.dictionaries(), Some(key))
    }

    /// Overwrites what is free, or kept for later, so that nothing is left of what was there. No commit may begin a segment
    /// meanwhile.
    fn scrub(&mut self, core: &Core) -> Result<()> {
        let geometry = core.geometry();
        let free: Vec<Extent> = self.space.iter().collect();
        for extent in &free {
            // Order: extents that were joined in memory only have headers inside, by which walks go.
            write_passive(&*core.disk, geometry, Kind::Free, *extent)?;
        }
        core.disk.sync().map_err(Error::io("sync free extents"))?;
        let reserve: Vec<Extent> = core.lock_supply().reserve.iter().map(named_extent).collect();
        let kept = [self.table_spare, self.image_spare].into_iter().flatten();
        for extent in reserve.into_iter().chain(kept) {
            self.overwrite(core, extent)?;
        }
        core.disk.sync().map_err(Error::io("sync what was overwritten"))?;
        free.into_iter().try_for_each(|extent| self.wipe(core, extent))
    }

    /// Overwrites a free extent and gives its blocks back, piece by piece: where it has none, it gets them for a moment.
    fn wipe(&mut self, core: &Core, extent: Extent) -> Result<()> {
        let geometry = core.geometry();
        self.warm.forget(extent);
        self.overwrite(core, Extent::new(extent.start_page, 1))?;
        let (mut at, end) =
            (geometry.paddr(extent.start_page + 1), geometry.paddr(extent.end_page()));
        while at < end {
            let len = (end - at).min(WIPE_BYTES);
            match zero(core, at, at + len) {
                // What has blocks can be overwritten. The rest is a hole, and there is nothing to overwrite.
                Err(error) if is_full(&error) => {}
                written => written.map_err(Error::io("overwrite what is free"))?,
            }
            core.disk.sync_range(at, len).map_err(Error::io("sync what was overwritten"))?;
            core.disk.punch(at, len).map_err(Error::io("give space back"))?;
            at += len;
        }
        Ok(())
    }

    /// Writes zeros over an extent that has its blocks, all but its header. The caller syncs.
    pub(crate) fn overwrite(&self, core: &Core, extent: Extent) -> Result<()> {
        let geometry = core.geometry();
        let (from, to) =
            (geometry.paddr(extent.start_page) + 512, geometry.paddr(extent.end_page()));
        zero(core, from, to).map_err(Error::io("overwrite what is free"))
    }
}
