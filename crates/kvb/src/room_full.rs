//! Tests of room on disks that have no block left.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;

use host::{Keep, Limit, ManualEnv, SimDisk};

use crate::bucket::Bucket;
use crate::core::Core;
use crate::error::Error;
use crate::extent::Extent;
use crate::keeper::{Keeper, OUTPUT_PAGES_MIN};
use crate::options::{Durability, Options};
use crate::output::OutputPages;

const BLOCK: u64 = 4096;

fn options() -> Options {
    Options::default().durability(Durability::SyncOnce).background(false)
}

/// A bucket with a few records.
fn bucket(disk: &SimDisk) -> Bucket {
    let env = Arc::new(ManualEnv::new(1 << 60, 5));
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env, options()).unwrap();
    for number in 0..40_u32 {
        bucket.put(number.to_be_bytes(), vec![7; 900]).unwrap();
    }
    bucket.flush().unwrap();
    bucket
}

/// Makes free places of so many pages each, with something between them, and none of them with blocks.
fn make_places<const N: usize>(keeper: &mut Keeper, core: &Core, pages: [u64; N]) -> [Extent; N] {
    let places = pages.map(|pages| {
        let place = keeper.allot(core, pages).unwrap();
        keeper.allot(core, 1).unwrap();
        place
    });
    keeper.checkpoint(core).unwrap();
    for place in places {
        keeper.give_back(core, place).unwrap();
    }
    keeper.cool(core, 0).unwrap();
    places
}

/// Gives a free place its blocks.
fn heat(keeper: &mut Keeper, core: &Core, place: Extent) {
    let taken = keeper.allot(core, place.page_count).unwrap();
    assert_eq!(taken, place);
    keeper.space.give_back(taken);
    keeper.warm.add(taken);
}

fn leave(disk: &SimDisk, blocks: u64) {
    disk.set_limit(Some(Limit::Blocks(disk.block_bytes() + blocks * BLOCK)));
}

/// Whatever the power takes, the bucket opens, and so does the one that is found by walking.
fn check_images(disk: &SimDisk) {
    let trace = disk.trace();
    for keep in [Keep::None, Keep::All, Keep::Random(7)] {
        let image = Arc::new(SimDisk::from_image(trace.image(trace.len(), keep)));
        let env = Arc::new(ManualEnv::new(1 << 60, 6));
        let bucket = Bucket::open_on(image, env, options()).unwrap();
        assert_eq!(bucket.scan(b"").count(), 40, "{keep:?}");
    }
}

/// What a failed attempt took before the disk was full was nobody's afterwards: no compaction gave it back, nor did the next open.
#[test]
fn what_fails_gives_back_what_it_took() {
    let disk = SimDisk::new();
    let bucket = bucket(&disk);
    let core = bucket.core();
    let mut keeper = core.lock_keeper();
    let [place] = make_places(&mut keeper, core, [60]);
    let before = disk.block_bytes();
    for room in [0, 1, 7, 40, 58] {
        leave(&disk, room);
        assert!(matches!(keeper.allot(core, 60), Err(Error::NoSpace)));
        assert_eq!(disk.block_bytes(), before, "{room}: in the place");
        assert!(matches!(keeper.allot(core, 50), Err(Error::NoSpace)) == (room < 50));
        if room >= 50 {
            keeper.give_back(core, Extent::new(place.start_page, 50)).unwrap();
            keeper.cool(core, 0).unwrap();
        }
        assert!(disk.block_bytes() <= before + BLOCK, "{room}: in a part of it");
        // Past the mark.
        let pages = keeper.space.raw_pages();
        if pages > room {
            assert!(matches!(keeper.warm_up(core, pages, pages), Err(Error::NoSpace)));
            assert!(disk.block_bytes() <= before + BLOCK, "{room}: past the mark");
        }
    }
    disk.set_limit(None);
    assert_eq!(keeper.allot(core, 60).unwrap(), place);
    drop(keeper);
    check_images(&disk);
}

/// A longer place was tried first, which cost the one that there was, and came to nothing.
#[test]
fn a_warm_place_is_not_lost_for_a_longer_one() {
    for (cold, warm) in [(60, 41), (41, 30), (64, 5), (300, 200), (300, 13)] {
        let disk = SimDisk::new();
        let bucket = bucket(&disk);
        let core = bucket.core();
        let mut keeper = core.lock_keeper();
        let [_, place] = make_places(&mut keeper, core, [cold, warm]);
        heat(&mut keeper, core, place);
        for room in 0..3 {
            leave(&disk, room);
            let before = keeper.warm_pages();
            let result = keeper.warm_place(core);
            assert!(matches!(result, Ok(()) | Err(Error::NoSpace)), "{result:?}");
            let after = keeper.warm_pages();
            assert!(before <= after, "{cold}, {warm}, {room}: {before} before, {after} after");
        }
        drop(keeper);
        check_images(&disk);
    }
}

/// What was warm was promised with the page of the header behind it, and taking that much took one block more.
#[test]
fn what_is_warm_is_enough_for_what_it_promises() {
    for room in 6..50 {
        let disk = SimDisk::new();
        let bucket = bucket(&disk);
        let core = bucket.core();
        let mut keeper = core.lock_keeper();
        let [place] = make_places(&mut keeper, core, [60]);
        leave(&disk, room);
        keeper.warm_up(core, 60, OUTPUT_PAGES_MIN).unwrap();
        leave(&disk, 0);
        let warm = keeper.warm_pages();
        let pages = OutputPages { wanted: 60, least: OUTPUT_PAGES_MIN };
        let named = keeper.name_output(core, pages, true).unwrap();
        assert_eq!(named.start_page.get(), place.start_page, "{room}");
        assert_eq!(u64::from(named.page_count.get()), warm, "{room}");
    }
}

/// An output was begun in any warm place, and ended where a record did not fit there, whatever else there was.
#[test]
fn an_output_has_room_for_one_record() {
    let disk = SimDisk::new();
    let bucket = bucket(&disk);
    let core = bucket.core();
    let mut keeper = core.lock_keeper();
    let spare = keeper.allot(core, 32).unwrap();
    keeper.allot(core, 1).unwrap();
    let [warm] = make_places(&mut keeper, core, [10]);
    keeper.image_spare = Some(spare);
    heat(&mut keeper, core, warm);
    leave(&disk, 0);
    let pages = OutputPages { wanted: 30, least: 20 };
    let named = keeper.name_output(core, pages, true).unwrap();
    assert_eq!(named.start_page.get(), spare.start_page);
    // What is kept for the next image is no use to a record that is longer.
    disk.set_limit(None);
    let short = keeper.allot(core, 10).unwrap();
    keeper.image_spare = Some(short);
    leave(&disk, 0);
    let named = keeper.name_output(core, OutputPages { wanted: 2000, least: 1900 }, true);
    assert!(matches!(named, Err(Error::NoSpace)));
    assert_eq!(keeper.image_spare, Some(short));
    // Nor is a warm place on a disk that has room.
    disk.set_limit(None);
    let [warm] = make_places(&mut keeper, core, [300]);
    heat(&mut keeper, core, warm);
    let named = keeper.name_output(core, OutputPages { wanted: 420, least: 410 }, false).unwrap();
    assert!(named.page_count.get() >= 410);
}
