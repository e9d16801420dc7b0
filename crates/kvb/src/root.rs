//! Finding the superblock that counts.
//!
//! A copy counts only whole: superblock, extension and roster of one epoch. Of those that count, the greater epoch
//! wins. Copies stand in page 0, in the page that page 0 names, and in the file's last page; if page 0 is lost, the
//! search goes back from the end.

use host::Disk;
use zerocopy::IntoBytes;

use crate::error::{Error, Result, What};
use crate::extent::Extent;
use crate::format::extension::{self, Extension};
use crate::format::key_block::KeyBlock;
use crate::format::lineage::Lineage;
use crate::format::roster::{self, Roster};
use crate::format::superblock::{
    FLAG_ENCRYPTED, FLAG_LINEAGE, MAGIC, PAGE_SIZE_MIN, Refused, Superblock, VERSION_MAJOR,
};
use crate::keys::KeyProvider;
use crate::options::JOURNAL_PAGES;
use crate::vault::Keys;

/// How far back from the end a lost superblock is looked for.
const SEARCH_MAX: u64 = 256 << 20;

/// No bucket lives to see this seqno; sums with smaller ones do not overflow.
pub(crate) const SEQNO_LIMIT: u64 = 1 << 62;

/// No file has as many pages.
const PAGES_LIMIT: u64 = 1 << 46;

/// Ordinary segments are at most 8 MiB; more than this is no bucket of ours.
const SEGMENT_LIMIT: u64 = 1 << 30;

/// A superblock with what stands behind it.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) superblock: Superblock,
    pub(crate) extension: Extension,
    pub(crate) roster: Roster,
    /// Of an encrypted bucket.
    pub(crate) locked: Option<(KeyBlock, Keys)>,
    /// Of a backup.
    pub(crate) lineage: Option<Lineage>,
}

/// Where the keys of an encrypted bucket come from.
#[derive(Clone, Copy)]
pub(crate) enum Unlock<'a> {
    /// From the caller, if at all.
    With(Option<&'a dyn KeyProvider>),
    /// They are known.
    Known(&'a Keys),
}

/// Finds the superblock that counts, and tells how long the file was, beside a writer too. Whoever grows the file moves
/// superblock B and takes the old one away: who knows only the old length then finds none, and has to look again.
pub(crate) fn choose_steadily(disk: &dyn Disk, unlock: Unlock<'_>) -> Result<(Root, u64)> {
    let glance = || -> Result<(u64, [u8; 512])> {
        let len = disk.len().map_err(Error::io("read the bucket's length"))?;
        let mut sector = [0; 512];
        if len >= 512 {
            disk.read_at(0, &mut sector).map_err(Error::io("read a superblock"))?;
        }
        Ok((len, sector))
    };
    let mut before = glance()?;
    loop {
        let found = choose(disk, before.0, unlock);
        if !matches!(found, Err(Error::Corrupt(_))) {
            return found.map(|root| (root, before.0));
        }
        let now = glance()?;
        if now == before {
            return found.map(|root| (root, before.0));
        }
        before = now;
    }
}

/// Finds the superblock that counts in a file of this length.
pub(crate) fn choose(disk: &dyn Disk, file_len: u64, unlock: Unlock<'_>) -> Result<Root> {
    let mut key_error = None;
    let (first, page_size) = match load(disk, file_len, 0, unlock) {
        Ok(root) => {
            let page_size = u64::from(root.superblock.page_size.get());
            (Some(root), Some(page_size))
        }
        Err(Loss::Version(error)) => return Err(error),
        Err(Loss::Incomplete(page_size)) => (None, Some(page_size)),
        Err(Loss::Damaged) => (None, None),
        Err(Loss::Io(error)) => return Err(error),
        Err(Loss::Key(page_size, error)) => {
            key_error = Some(error);
            (None, Some(page_size))
        }
    };
    let mut candidates: Vec<u64> = Vec::new();
    if let (Some(root), Some(page_size)) = (&first, page_size) {
        candidates.push(root.extension.b_page.get().saturating_mul(page_size));
    }
    if let Some(page_size) = page_size {
        candidates.push((file_len / page_size).saturating_sub(1) * page_size);
    }
    let mut best = first;
    for at in candidates {
        let root = match load(disk, file_len, at, unlock) {
            Ok(root) => root,
            // A copy that cannot be read may be the newer one.
            Err(Loss::Io(error)) => return Err(error),
            Err(Loss::Key(_, error)) => {
                key_error = Some(error);
                continue;
            }
            Err(_) => continue,
        };
        let is_sibling = best.as_ref().is_none_or(|best| {
            (best.superblock.file_uuid_hi, best.superblock.file_uuid_lo)
                == (root.superblock.file_uuid_hi, root.superblock.file_uuid_lo)
        });
        let is_newer = best
            .as_ref()
            .is_none_or(|best| root.superblock.epoch.get() > best.superblock.epoch.get());
        if is_sibling && is_newer {
            best = Some(root);
        }
    }
    match (best, key_error) {
        (Some(root), _) => Ok(root),
        (None, Some(error)) => Err(error),
        (None, None) => search(disk, file_len, unlock),
    }
}

/// Makes the superblock that counts durable, and superblock A a copy of it if it stands elsewhere. A checkpoint begins
/// by overwriting one copy and trusts the other one; but who wrote what is seen here may have died before the sync, or
/// stopped because the sync failed, and then the disk may hold nothing whole where the system shows it. It is written
/// again, because no sync covers what an earlier one failed to write.
pub(crate) fn secure(disk: &dyn Disk, root: &Root) -> Result<()> {
    let page_size = u64::from(root.superblock.page_size.get());
    let mut page = vec![0; usize::try_from(page_size).unwrap_or(0)];
    let at = root.extension.self_page.get() * page_size;
    disk.read_at(at, &mut page).map_err(Error::io("read a superblock"))?;
    disk.write_at(at, &page).map_err(Error::io("write a superblock"))?;
    disk.sync_range(at, page_size).map_err(Error::io("sync a superblock"))?;
    if at == 0 {
        return Ok(());
    }
    let mut extension = root.extension;
    extension.self_page.set(0);
    let end = extension::OFFSET + Extension::SIZE;
    if let Some(bytes) = page.get_mut(extension::OFFSET..end) {
        bytes.copy_from_slice(extension.seal().as_bytes());
    }
    if let Some((block, keys)) = &root.locked {
        block.place(&mut page, |before, behind| keys.current.page_mac(before, behind));
    }
    disk.write_at(0, &page).map_err(Error::io("write a superblock"))?;
    disk.sync_range(0, page_size).map_err(Error::io("sync a superblock"))
}

/// The copy of a superblock at a byte, or what is wrong with it.
pub(crate) fn load_copy(
    disk: &dyn Disk,
    file_len: u64,
    at: u64,
    unlock: Unlock<'_>,
) -> std::result::Result<Root, String> {
    load(disk, file_len, at, unlock).map_err(|loss| match loss {
        Loss::Damaged => "this copy of the superblock does not hold".to_owned(),
        Loss::Incomplete(_) => {
            "what belongs to this copy of the superblock does not hold, or is not of it".to_owned()
        }
        Loss::Version(error) | Loss::Io(error) | Loss::Key(_, error) => error.to_string(),
    })
}

/// Looks for superblock B from the end of the file.
fn search(disk: &dyn Disk, file_len: u64, unlock: Unlock<'_>) -> Result<Root> {
    let step = u64::from(PAGE_SIZE_MIN);
    let mut at = file_len / step * step;
    let stop = file_len.saturating_sub(SEARCH_MAX);
    while at >= step && at > stop {
        at -= step;
        match load(disk, file_len, at, unlock) {
            Ok(root) => return Ok(root),
            Err(Loss::Version(error) | Loss::Io(error) | Loss::Key(_, error)) => return Err(error),
            Err(_) => {}
        }
    }
    if load_cut_off(disk, file_len, unlock)?.is_some() {
        return Err(Error::corrupt(What::FileEnd, file_len));
    }
    let mut magic = [0; 4];
    let is_ours =
        file_len >= 4 && disk.read_at(0, &mut magic).is_ok() && u32::from_le_bytes(magic) == MAGIC;
    if is_ours {
        Err(Error::corrupt(What::Superblock, 0))
    } else {
        Err(Error::Invalid("the file is not a kvb bucket"))
    }
}

enum Loss {
    Damaged,
    /// The superblock holds, but not what belongs to it; its page size is known.
    Incomplete(u64),
    Version(Error),
    Io(Error),
    /// It may hold, but its key is not there.
    Key(u64, Error),
}

fn load(
    disk: &dyn Disk,
    file_len: u64,
    at: u64,
    unlock: Unlock<'_>,
) -> std::result::Result<Root, Loss> {
    let root = load_any(disk, file_len, at, unlock)?;
    let page_size = u64::from(root.superblock.page_size.get());
    if regions_hold(&root, file_len / page_size) {
        Ok(root)
    } else {
        Err(Loss::Incomplete(page_size))
    }
}

/// The superblock of a file whose end is missing, if its first page holds: what it leads to may be gone.
pub(crate) fn load_cut_off(
    disk: &dyn Disk,
    file_len: u64,
    unlock: Unlock<'_>,
) -> Result<Option<Root>> {
    match load_any(disk, file_len, 0, unlock) {
        // As large as if nothing were missing.
        Ok(root) => Ok(Some(root).filter(|root| {
            let pages = root.extension.b_page.get().saturating_add(1);
            pages < PAGES_LIMIT && regions_hold(root, pages)
        })),
        Err(Loss::Key(_, error) | Loss::Io(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

fn load_any(
    disk: &dyn Disk,
    file_len: u64,
    at: u64,
    unlock: Unlock<'_>,
) -> std::result::Result<Root, Loss> {
    let mut sector = [0; 512];
    if at.checked_add(512).is_none_or(|end| end > file_len) {
        return Err(Loss::Damaged);
    }
    let read = |at, buf: &mut [u8]| {
        disk.read_at(at, buf).map_err(|error| Loss::Io(Error::io("read a superblock")(error)))
    };
    read(at, &mut sector)?;
    let superblock = Superblock::decode(&sector).map_err(|refused| match refused {
        Refused::Damaged => Loss::Damaged,
        Refused::Version(found) => version(format!("version {found}")),
        Refused::Flags(flags) => version(format!("with unknown features {flags:#x}")),
    })?;
    let page_size = u64::from(superblock.page_size.get());
    let incomplete = || Loss::Incomplete(page_size);
    if at.checked_add(page_size).is_none_or(|end| end > file_len) || !at.is_multiple_of(page_size) {
        return Err(incomplete());
    }
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    let epoch = superblock.epoch.get();
    let extension = sector
        .get(extension::OFFSET..)
        .and_then(|bytes| Extension::decode(bytes, epoch, uuid))
        .ok_or_else(incomplete)?;
    if extension.self_page.get() != at / page_size {
        return Err(incomplete());
    }
    let mut page = vec![0; usize::try_from(page_size).unwrap_or(0)];
    read(at, &mut page)?;
    let roster = page
        .get(roster::OFFSET..)
        .and_then(|bytes| Roster::decode(bytes, epoch, uuid, extension.roster_crc32c.get()))
        .ok_or_else(incomplete)?;
    let locked = match superblock.flags.get() & FLAG_ENCRYPTED {
        0 => None,
        _ => {
            let block = KeyBlock::decode(&page).ok_or_else(incomplete)?;
            let keys = match unlock {
                Unlock::With(provider) => Keys::unlock(&block, uuid, provider)
                    .map_err(|error| Loss::Key(page_size, error))?,
                Unlock::Known(keys) => keys.clone(),
            };
            if !keys.vouch_for_page(&page, &block) {
                return Err(incomplete());
            }
            Some((block, keys))
        }
    };
    let lineage = match superblock.flags.get() & FLAG_LINEAGE {
        0 => None,
        _ => Some(Lineage::decode(&page).ok_or_else(incomplete)?),
    };
    Ok(Root { superblock, extension, roster, locked, lineage })
}

fn version(found: String) -> Loss {
    Loss::Version(Error::Version { found, supported: VERSION_MAJOR })
}

/// Encrypted buckets hide the key of their hash, and only they do.
fn is_hash_known(root: &Root) -> bool {
    match root.extension.hash_kind.get() {
        extension::HASH_XXH3 | extension::HASH_SIP => root.locked.is_none(),
        extension::HASH_HIDDEN => root.locked.is_some(),
        _ => false,
    }
}

/// A writer stores to the bulletin's page: it must be nobody else's.
fn is_bulletin_apart(root: &Root) -> bool {
    let superblock = &root.superblock;
    let page = root.extension.bulletin_page.get();
    let map_start = superblock.fsm_start_page.get();
    let map_end = map_start.saturating_add(superblock.fsm_page_count.get());
    page > 0
        && page < superblock.journal_start_page.get()
        && page < superblock.segment_start_page.get()
        && !(map_start..map_end).contains(&page)
}

/// Every region must be inside the file, in its order.
fn regions_hold(root: &Root, file_pages: u64) -> bool {
    let (superblock, extension) = (&root.superblock, &root.extension);
    let b_page = extension.b_page.get();
    let segment_start = superblock.segment_start_page.get();
    let segment_end = superblock.segment_end_page.get();
    let within = |start: u64, count: u64, from: u64, to: u64| {
        Extent::new(start, count).check_within(from, to, 0).is_ok()
    };
    let free_map = (superblock.fsm_start_page.get(), superblock.fsm_page_count.get());
    b_page < file_pages
        && segment_start <= segment_end
        && segment_end <= b_page
        && within(
            superblock.journal_start_page.get(),
            superblock.journal_page_count.get(),
            1,
            segment_start,
        )
        && (within(free_map.0, free_map.1, 1, superblock.journal_start_page.get())
            || within(free_map.0, free_map.1, segment_start + 1, segment_end))
        // All of it is read at an open.
        && JOURNAL_PAGES.contains(&superblock.journal_page_count.get())
        && is_bulletin_apart(root)
        && extension.segment_page_max.get() > 0
        && extension.index_page_min.get() < 1 << 40
        && is_hash_known(root)
        && superblock.commit_seqno.get() < SEQNO_LIMIT
        && extension.tail_seqno.get() < SEQNO_LIMIT
        && extension.durable_seqno.get() < SEQNO_LIMIT
        && extension.next_seg_id.get() < SEQNO_LIMIT
        && extension.image_seg_id.get() < extension.next_seg_id.get()
        && superblock.epoch.get() < SEQNO_LIMIT
        && u64::from(extension.segment_page_max.get()) * u64::from(superblock.page_size.get())
            <= SEGMENT_LIMIT
}
