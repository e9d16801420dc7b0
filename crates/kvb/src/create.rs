//! Making a bucket: the smallest file that is one.
//!
//! Layout: superblock A, one page of free-space map, the bulletin, the journal ring, the segment region with the first image, superblock B. The log's
//! first extents come with the first commit. Everything is synced before superblock A is written, so a crash leaves either a
//! bucket or a file that is none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use host::{Disk, Env};

use crate::assemble::random_salt;
use crate::cipher::BucketKey;
use crate::core::{Fixed, Position};
use crate::error::{Error, Result};
use crate::extent::{Extent, Geometry};
use crate::format::extension::{HASH_HIDDEN, HASH_SIP, HASH_XXH3};
use crate::format::superblock::{
    FLAG_ENCRYPTED, FLAG_EXTENSION, FLAG_NO_DIRECTORY, FLAG_SIPHASH, FLAG_ZSTD,
};
use crate::hash::HashKey;
use crate::image::ImagePlace;
use crate::keeper::Keeper;
use crate::merge::image_head;
use crate::options::{Compression, HashKind, Options};
use crate::promise::Promise;
use crate::room::no_space_or;
use crate::space::Space;
use crate::vault::{Keys, seal_index_page};
use crate::warm::Warm;

/// Index pages written at once.
const PAGES_AT_ONCE: u64 = 256;

/// Writes an empty bucket to an empty file.
pub(crate) fn create(disk: &Arc<dyn Disk>, env: &Arc<dyn Env>, options: &Options) -> Result<()> {
    options.check()?;
    if !disk.is_empty().map_err(Error::io("look at the new bucket"))? {
        return Err(Error::Invalid("the file exists and is not empty"));
    }
    let geometry = Geometry { page_size: u64::from(options.page_size) };
    let index_pages = geometry.pages(options.index_bytes).max(1).next_power_of_two();
    let sip_key = match options.hash {
        HashKind::Xxh3 => [0; 16],
        HashKind::SipHash => random_salt(&**env),
    };
    let uuid = (env.random_u64(), env.random_u64());
    let keys = match options.key_id {
        Some(id) => {
            let key = BucketKey::find(options.keys.as_deref(), uuid, 1, id)?;
            Some(Keys { current: Arc::new(key), old: None })
        }
        None if options.keys.is_some() => {
            return Err(Error::Invalid("keys were given; say which one to encrypt with"));
        }
        None => None,
    };
    let (hash_kind, hash_key, flags) = match (&keys, options.hash) {
        (Some(keys), _) => {
            (HASH_HIDDEN, keys.current.hash_key(), FLAG_EXTENSION | FLAG_SIPHASH | FLAG_ENCRYPTED)
        }
        (None, HashKind::Xxh3) => (HASH_XXH3, sip_key, FLAG_EXTENSION),
        (None, HashKind::SipHash) => (HASH_SIP, sip_key, FLAG_EXTENSION | FLAG_SIPHASH),
    };
    let flags = if options.directories { flags } else { flags | FLAG_NO_DIRECTORY };
    let flags = match options.compression {
        Compression::None => flags,
        Compression::Zstd => flags | FLAG_ZSTD,
    };
    let journal_start_page = 3;
    let segment_start_page = journal_start_page + options.journal_pages;
    let fixed = Fixed {
        geometry,
        uuid,
        created_unix_ns: env.unix_ns(),
        flags,
        hash_key: HashKey(hash_key),
        hash_kind,
        max_value: options.max_value,
        segment_page_max: geometry.pages(options.segment_bytes_max),
        index_page_min: index_pages,
        journal_start_page,
        journal_page_count: options.journal_pages,
        segment_start_page,
        bulletin_page: 2,
    };
    let image = ImagePlace {
        extent: Extent::new(segment_start_page, index_pages + 1),
        id: env.random_u64(),
        used: 0,
        seqno: 0,
        seg_id: 0,
        key_no: keys.as_ref().map_or(0, |keys| keys.current.no),
    };
    let b_page = image.extent.end_page();
    let keeper = Keeper {
        epoch: 1,
        b_page,
        space: Space::complement(b_page, b_page, b_page, &mut []),
        segments: BTreeMap::new(),
        fresh: Vec::new(),
        table: None,
        table_spare: None,
        promise: Promise::default(),
        image_spare: None,
        is_spare_taken: false,
        warm: Warm::default(),
        raw_warm_end: 0,
        is_raw_warm: true,
        is_table_stale: false,
        named: Vec::new(),
        next_seg_id: 1,
        tail_seqno: 1,
        image,
        image_gone: 0,
        lineage: None,
        book: None,
        dropped_seqno: 0,
        free_map: Extent::new(1, 1),
        retired: Vec::new(),
        damaged: None,
        dead_early: HashMap::new(),
    };
    let sealed = keys.map(|keys| (keys, random_salt(&**env)));
    write(disk, &fixed, &keeper, sealed.as_ref().map(|(keys, salt)| (keys, salt)))
}

fn write(
    disk: &Arc<dyn Disk>,
    fixed: &Fixed,
    keeper: &Keeper,
    sealed: Option<(&Keys, &[u8; 16])>,
) -> Result<()> {
    let key = sealed.map(|(keys, _)| &*keys.current);
    let geometry = fixed.geometry;
    let failed = |error| no_space_or("create the bucket")(error);
    let put = |page: u64, bytes: &[u8]| disk.write_at(geometry.paddr(page), bytes).map_err(failed);
    // Blocks are reserved with the first growth; an empty bucket takes only those it writes.
    disk.set_len(geometry.paddr(keeper.b_page + 1)).map_err(failed)?;
    put(keeper.image.extent.start_page, &image_head(geometry, fixed.uuid, &keeper.image, key))?;
    let mut slice = Vec::new();
    for index in 0..keeper.image.page_count() {
        let mut page = vec![0; geometry.page_len()];
        let pageid = keeper.image.first_page() + index;
        seal_index_page(&mut page, keeper.image.id, pageid, 0, key)
            .ok_or(Error::Invalid("page too small"))?;
        slice.extend_from_slice(&page);
        let is_last = index + 1 == keeper.image.page_count();
        if is_last || index % PAGES_AT_ONCE == PAGES_AT_ONCE - 1 {
            put(keeper.image.first_page() + index / PAGES_AT_ONCE * PAGES_AT_ONCE, &slice)?;
            slice.clear();
        }
    }
    disk.sync().map_err(failed)?;
    for page in [keeper.b_page, 0] {
        let bytes =
            keeper.superblock_page(fixed, Position::default(), fixed.created_unix_ns, page, sealed);
        put(page, &bytes)?;
        disk.sync().map_err(failed)?;
    }
    Ok(())
}
