//! Making a bucket: the smallest file that is one.
//!
//! Layout: superblock A, one page of free-space map, the bulletin, the journal ring, the segment region with the first image, superblock B. The log's
//! first extents come with the first commit. Everything is synced before superblock A is written, so a crash leaves either a
//! bucket or a file that is none.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use host::{Disk, Env};

use crate::core::{Fixed, Position};
use crate::error::{Error, Result};
use crate::extent::{Extent, Geometry};
use crate::format::extension::{HASH_SIP, HASH_XXH3};
use crate::format::index_page::seal_page;
use crate::format::superblock::{FLAG_EXTENSION, FLAG_NO_DIRECTORY, FLAG_SIPHASH};
use crate::image::ImagePlace;
use crate::keeper::{Keeper, no_space_or};
use crate::merge::image_head;
use crate::options::{HashKind, Options};
use crate::space::Space;

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
    let (hash_kind, hash_key, flags) = match options.hash {
        HashKind::Xxh3 => (HASH_XXH3, [0; 16], FLAG_EXTENSION),
        HashKind::SipHash => {
            let key = u128::from(env.random_u64()) << 64 | u128::from(env.random_u64());
            (HASH_SIP, key.to_le_bytes(), FLAG_EXTENSION | FLAG_SIPHASH)
        }
    };
    let flags = if options.directories { flags } else { flags | FLAG_NO_DIRECTORY };
    let journal_start_page = 3;
    let segment_start_page = journal_start_page + options.journal_pages;
    let fixed = Fixed {
        geometry,
        uuid: (env.random_u64(), env.random_u64()),
        created_unix_ns: env.unix_ns(),
        flags,
        hash_key,
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
        image_spare: None,
        is_spare_taken: false,
        is_table_stale: false,
        named: Vec::new(),
        next_seg_id: 1,
        tail_seqno: 1,
        image,
        image_gone: 0,
        free_map: Extent::new(1, 1),
        retired: Vec::new(),
        damaged: None,
        dead_early: HashMap::new(),
    };
    write(disk, &fixed, &keeper)
}

fn write(disk: &Arc<dyn Disk>, fixed: &Fixed, keeper: &Keeper) -> Result<()> {
    let geometry = fixed.geometry;
    let failed = |error| no_space_or("create the bucket")(error);
    let put = |page: u64, bytes: &[u8]| disk.write_at(geometry.paddr(page), bytes).map_err(failed);
    // Blocks are reserved with the first growth; an empty bucket takes only those it writes.
    disk.set_len(geometry.paddr(keeper.b_page + 1)).map_err(failed)?;
    put(keeper.image.extent.start_page, &image_head(geometry, fixed.uuid, &keeper.image))?;
    let mut slice = Vec::new();
    for index in 0..keeper.image.page_count() {
        let mut page = vec![0; geometry.page_len()];
        let pageid = keeper.image.first_page() + index;
        seal_page(&mut page, keeper.image.id, pageid, 0).ok_or(Error::Invalid("page too small"))?;
        slice.extend_from_slice(&page);
        let is_last = index + 1 == keeper.image.page_count();
        if is_last || index % PAGES_AT_ONCE == PAGES_AT_ONCE - 1 {
            put(keeper.image.first_page() + index / PAGES_AT_ONCE * PAGES_AT_ONCE, &slice)?;
            slice.clear();
        }
    }
    disk.sync().map_err(failed)?;
    for page in [keeper.b_page, 0] {
        let bytes = keeper.superblock_page(fixed, Position::default(), fixed.created_unix_ns, page);
        put(page, &bytes)?;
        disk.sync().map_err(failed)?;
    }
    Ok(())
}
