//! The simulated disk against its own contract: every image is legal, and everything the contract
//! leaves open does happen.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::atomic::Ordering::SeqCst;

use host::{Dir, Disk, Fault, Keep, Limit, Op, SimDir, SimDisk, Trace};

const SECTOR: usize = 512;

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}

/// An independent and slow statement of the contract: whole copies of the file after every
/// operation since the last sync, and for every sector the copy from which on it may be found.
struct Oracle {
    copies: Vec<Vec<u8>>,
    since: BTreeMap<usize, usize>,
    /// The lengths that may be found.
    lengths: BTreeSet<usize>,
}

impl Oracle {
    fn new(file: Vec<u8>) -> Self {
        let lengths = BTreeSet::from([file.len()]);
        Oracle { copies: vec![file], since: BTreeMap::new(), lengths }
    }

    fn apply(&mut self, op: &Op) {
        let mut file = self.copies.last().unwrap().clone();
        let at = |offset: &u64| usize::try_from(*offset).unwrap();
        match op {
            Op::Write { data, .. } if data.is_empty() => {}
            Op::Write { offset, data } => {
                let end = at(offset) + data.len();
                file.resize(file.len().max(end), 0);
                file[at(offset)..end].copy_from_slice(data);
            }
            Op::SetLen(len) => file.resize(at(len), 0),
            Op::Allocate { len: 0, .. } => {}
            Op::Allocate { offset, len } => file.resize(file.len().max(at(offset) + at(len)), 0),
            Op::Punch { offset, len } => {
                let end = (at(offset) + at(len)).min(file.len());
                file.get_mut(at(offset)..end).unwrap_or_default().fill(0);
            }
            Op::Sync => *self = Oracle::new(file.clone()),
            Op::SyncRange { len: 0, .. } => {}
            Op::SyncRange { offset, len } => {
                let end = at(offset) + at(len);
                let now = self.copies.len();
                for sector in at(offset) / SECTOR..end.div_ceil(SECTOR) {
                    self.since.insert(sector, now);
                }
                self.lengths.retain(|len| *len >= end.min(file.len()));
            }
            Op::SyncFailed { .. } | Op::Mark(_) => {}
        }
        self.lengths.insert(file.len());
        self.copies.push(file);
    }

    fn check(&self, image: &[u8]) {
        assert!(self.lengths.contains(&image.len()), "{} of {:?}", image.len(), self.lengths);
        for (sector, found) in image.chunks(SECTOR).enumerate() {
            let from = self.since.get(&sector).copied().unwrap_or(0);
            let legal = self.copies[from..].iter().any(|copy| {
                let start = (sector * SECTOR).min(copy.len());
                let end = (start + found.len()).min(copy.len());
                let mut version = copy[start..end].to_vec();
                version.resize(found.len(), 0);
                version == found
            });
            assert!(legal, "sector {sector} holds what was never written there");
        }
    }
}

/// Many different operations on a small file.
fn busy(seed: u64, cut: bool) -> Trace {
    let mut dice = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::with_region(vec![0xAA; 5000], 1);
    for value in 0..60 {
        let offset = dice.u64(..12_000);
        let len = if dice.bool() { dice.u64(..40) } else { dice.u64(..3000) };
        match dice.u32(..20) {
            0 | 1 => disk.sync().unwrap(),
            2..=4 => disk.sync_range(offset, len).unwrap(),
            5 if cut => disk.set_len(offset).unwrap(),
            5 | 6 => disk.set_len(disk.len().unwrap() + len).unwrap(),
            7 => disk.allocate(offset, len).unwrap(),
            8 => disk.punch(offset, len).unwrap(),
            9 => disk.mark(value),
            _ => {
                let byte = u8::try_from(value).unwrap() + 1;
                disk.write_at(offset, &vec![byte; usize::try_from(len).unwrap()]).unwrap();
            }
        }
    }
    disk.trace()
}

#[test]
fn every_image_is_legal_at_every_point() {
    let mut images = 0;
    for seed in 0..60 {
        let trace = busy(seed, seed % 2 == 0);
        let mut oracle = Oracle::new(vec![0xAA; 5000]);
        let mut points = trace.points();
        while let Some(point) = points.advance() {
            if let Some(op) = point.upto().checked_sub(1) {
                oracle.apply(&trace.ops()[op]);
            }
            let mut keeps = vec![Keep::None, Keep::All, Keep::OnlyLast];
            keeps.extend((0..point.pending()).flat_map(|n| [Keep::DropOne(n), Keep::Prefix(n)]));
            keeps.extend((0..20).map(|n| Keep::Random(seed * 1000 + n)));
            for keep in keeps {
                oracle.check(&point.image(keep));
                images += 1;
            }
            assert_eq!(point.image(Keep::All), *oracle.copies.last().unwrap());
            assert_eq!(point.image(Keep::Prefix(point.pending())), point.image(Keep::All));
            assert_eq!(point.image(Keep::Prefix(0)), point.image(Keep::None));
        }
    }
    assert!(images > 50_000, "{images}");
}

#[test]
fn walking_and_replaying_agree() {
    let trace = busy(7, true);
    let keeps = [Keep::None, Keep::All, Keep::OnlyLast, Keep::DropOne(1), Keep::Random(3)];
    let mut points = trace.points();
    let mut count = 0;
    while let Some(point) = points.advance() {
        for keep in keeps {
            assert_eq!(trace.image(point.upto(), keep), point.image(keep));
        }
        count += 1;
    }
    assert_eq!(count, trace.len() + 1);
    assert!(points.advance().is_none());
}

/// The distinct images of the crash after everything.
fn outcomes(disk: &SimDisk, seeds: u64) -> BTreeSet<Vec<u8>> {
    let trace = disk.trace();
    let point = trace.point(trace.len());
    (0..seeds).map(|seed| point.image(Keep::Random(seed))).collect()
}

#[test]
fn all_combinations_of_two_versions_of_two_sectors_are_found() {
    let disk = SimDisk::from_image(vec![0; 2 * SECTOR]);
    disk.write_at(0, &[1; 2 * SECTOR]).unwrap();
    disk.write_at(0, &[2; 2 * SECTOR]).unwrap();
    let found = outcomes(&disk, 2000);
    assert_eq!(found.len(), 9, "each sector is old, first or second");
    for image in found {
        for sector in image.chunks(SECTOR) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a torn sector");
        }
    }
}

#[test]
fn many_sectors_are_lost_singly_and_nearly_all() {
    let disk = SimDisk::from_image(vec![0; 100 * SECTOR]);
    disk.write_at(0, &[1; 100 * SECTOR]).unwrap();
    let counts: BTreeSet<usize> = outcomes(&disk, 1000)
        .iter()
        .map(|image| image.chunks(SECTOR).filter(|sector| sector[0] == 1).count())
        .collect();
    assert!(counts.contains(&0) && counts.contains(&100));
    assert!(counts.range(1..15).next().is_some(), "few");
    assert!(counts.range(40..60).next().is_some(), "half");
    assert!(counts.range(86..100).next().is_some(), "most");
}

#[test]
fn a_version_is_the_whole_sector_as_it_was() {
    let disk = SimDisk::from_image(vec![0; SECTOR]);
    disk.write_at(10, b"a").unwrap();
    disk.write_at(20, b"b").unwrap();
    for image in outcomes(&disk, 300) {
        assert!(image[20] == 0 || image[10] == b'a', "the second write carried the first");
    }
    let image = disk.trace().image(2, Keep::OnlyLast);
    assert_eq!((image[10], image[20]), (b'a', b'b'));
}

#[test]
fn what_was_synced_is_in_every_image() {
    let disk = SimDisk::new();
    disk.write_at(0, &[1; 5000]).unwrap();
    disk.sync().unwrap();
    disk.write_at(4000, &[2; 9000]).unwrap();
    disk.mark(1);
    let found = outcomes(&disk, 3000);
    assert!(found.len() > 100, "{}", found.len());
    // The write begins inside a sector, whose first bytes it does not change.
    assert!(found.iter().all(|image| image[..4000] == [1; 4000]));
    let lost = found.iter().filter(|image| image.len() == 5000).count();
    assert!(lost > 0 && lost < found.len(), "the new length is lost sometimes");
    assert_eq!(disk.trace().point(3).mark(), None);
    assert_eq!(disk.trace().point(4).mark(), Some(1));
}

#[test]
fn the_named_choices_do_what_they_say() {
    let disk = SimDisk::from_image(vec![0; 4 * SECTOR]);
    for (sector, value) in [(0, 1), (1, 2), (2, 3), (0, 4)] {
        disk.write_at(wide(sector * SECTOR), &[value; SECTOR]).unwrap();
    }
    let trace = disk.trace();
    let point = trace.point(4);
    let first_bytes =
        |keep| -> Vec<u8> { point.image(keep).chunks(SECTOR).map(|sector| sector[0]).collect() };
    assert_eq!(point.pending(), 4);
    assert_eq!(first_bytes(Keep::None), [0, 0, 0, 0]);
    assert_eq!(first_bytes(Keep::All), [4, 2, 3, 0]);
    assert_eq!(first_bytes(Keep::OnlyLast), [4, 0, 0, 0]);
    assert_eq!(first_bytes(Keep::DropOne(1)), [4, 0, 3, 0]);
    assert_eq!(first_bytes(Keep::DropOne(3)), [1, 2, 3, 0]);
    assert_eq!(first_bytes(Keep::DropOne(9)), [4, 2, 3, 0]);
    assert_eq!(first_bytes(Keep::Prefix(2)), [1, 2, 0, 0]);
    assert_eq!(point.image(Keep::Random(5)), trace.image(4, Keep::Random(5)), "reproducible");
}

#[test]
fn lengths_are_pending_until_synced() {
    let disk = SimDisk::from_image(vec![7; 1000]);
    disk.set_len(3000).unwrap();
    disk.allocate(3000, 1000).unwrap();
    disk.set_len(600).unwrap();
    let lengths: BTreeSet<usize> = outcomes(&disk, 500).iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([600, 1000, 3000, 4000]));
    let trace = disk.trace();
    assert_eq!(trace.image(3, Keep::None), [7; 1000]);
    assert_eq!(trace.image(3, Keep::DropOne(2)).len(), 4000);
    disk.sync().unwrap();
    assert_eq!(outcomes(&disk, 100), BTreeSet::from([vec![7; 600]]));
    disk.set_len(1000).unwrap();
    let mut grown = vec![7; 600];
    grown.resize(1000, 0);
    assert_eq!(outcomes(&disk, 100), BTreeSet::from([vec![7; 600], grown]));
}

#[test]
fn only_the_last_write_can_survive_with_the_length_it_needs() {
    let disk = SimDisk::new();
    disk.set_len(4096).unwrap();
    disk.write_at(0, &[1; SECTOR]).unwrap();
    disk.write_at(1024, &[2; SECTOR]).unwrap();
    let image = disk.trace().image(3, Keep::OnlyLast);
    assert_eq!(image.len(), 4096);
    assert_eq!((image[0], image[1024]), (0, 2));
}

#[test]
fn a_range_sync_covers_its_sectors_and_the_length_it_needs() {
    let disk = SimDisk::from_image(vec![0; 2 * SECTOR]);
    disk.write_at(0, &[1; 8 * SECTOR]).unwrap();
    disk.set_len(wide(20 * SECTOR)).unwrap();
    // One byte of the third sector and one of the fourth.
    disk.sync_range(wide(4 * SECTOR - 1), 2).unwrap();
    let found = outcomes(&disk, 1000);
    for image in &found {
        assert!(image.len() == 8 * SECTOR || image.len() == 20 * SECTOR);
        assert!(image[3 * SECTOR..5 * SECTOR].iter().all(|byte| *byte == 1));
    }
    for sector in [0, 1, 2, 5, 6, 7] {
        assert!(found.iter().any(|image| image[sector * SECTOR] == 0), "sector {sector} is open");
    }
    disk.sync().unwrap();
    assert_eq!(outcomes(&disk, 100).len(), 1);
}

#[test]
fn a_store_that_forgets_a_sync_is_caught_and_a_correct_one_is_not() {
    for careful in [true, false] {
        let disk = SimDisk::from_image(vec![0; 8 * SECTOR]);
        disk.write_at(512, &[9; 4 * SECTOR]).unwrap();
        if careful {
            disk.sync().unwrap();
        }
        disk.write_at(0, b"commit").unwrap();
        disk.sync().unwrap();
        let trace = disk.trace();
        let mut points = trace.points();
        let mut broken = 0;
        while let Some(point) = points.advance() {
            let random = (0..200).map(Keep::Random);
            for keep in random.chain([Keep::OnlyLast, Keep::DropOne(0)]) {
                let image = point.image(keep);
                let committed = image.starts_with(b"commit");
                broken += usize::from(committed && image[512..512 * 5] != [9; 4 * SECTOR]);
            }
        }
        assert_eq!(broken == 0, careful, "{broken} broken images");
    }
}

#[test]
fn faults_hit_the_call_they_were_planned_for() {
    let disk = SimDisk::from_image(vec![0; 100]);
    disk.fail(1, Fault::Eio);
    disk.fail(2, Fault::Enospc);
    disk.fail(3, Fault::ShortWrite);
    disk.fail(4, Fault::ShortWrite);
    disk.write_at(0, &[1; 10]).unwrap();
    assert_eq!(disk.write_at(10, &[2; 10]).unwrap_err().kind(), ErrorKind::Other);
    assert_eq!(disk.allocate(0, 1000).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(disk.write_at(20, &[3; 10]).unwrap_err().kind(), ErrorKind::Other);
    disk.set_len(5).unwrap_err();
    disk.write_at(40, &[4; 10]).unwrap();
    assert_eq!(disk.op_count(), 6);
    let mut expected = vec![0; 100];
    expected[..10].fill(1);
    expected[20..25].fill(3);
    expected[40..50].fill(4);
    assert_eq!(disk.to_bytes(), expected);
    assert_eq!(disk.trace().len(), 3);

    disk.fail_from(7, Fault::Enospc);
    disk.sync().unwrap();
    for _ in 0..3 {
        assert_eq!(disk.set_len(200).unwrap_err().kind(), ErrorKind::StorageFull);
    }
    disk.clear_faults();
    disk.set_len(200).unwrap();
}

#[test]
fn reads_fail_by_their_own_count() {
    let disk = SimDisk::from_image(vec![5; 10]);
    disk.fail_read(1, Fault::Eio);
    let mut byte = [0];
    disk.read_at(0, &mut byte).unwrap();
    disk.write_at(0, &[6]).unwrap();
    disk.read_at(0, &mut byte).unwrap_err();
    disk.read_at(0, &mut byte).unwrap();
    assert_eq!((byte, disk.read_count()), ([6], 3));
    disk.fail_read(3, Fault::PowerLoss);
    disk.read_at(0, &mut byte).unwrap_err();
    disk.read_at(0, &mut byte).unwrap_err();
    disk.write_at(0, &[6]).unwrap_err();
}

#[test]
fn a_full_disk_changes_nothing() {
    let disk = SimDisk::from_image(vec![1; 1000]);
    disk.set_capacity(Some(1500));
    disk.write_at(1000, &[2; 500]).unwrap();
    for result in [disk.write_at(1499, &[3; 2]), disk.set_len(1501), disk.allocate(1000, 501)] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
    }
    assert_eq!((disk.len().unwrap(), disk.to_bytes()[1499]), (1500, 2));
    disk.set_capacity(Some(100));
    disk.write_at(1200, &[4]).unwrap();
    disk.set_len(1400).unwrap();
    disk.set_capacity(None);
    disk.set_len(5000).unwrap();
}

#[test]
fn writing_to_a_hole_takes_a_block() {
    const BLOCK: usize = 4096;
    let bytes = |blocks: usize| u64::try_from(blocks * BLOCK).unwrap();
    let disk = SimDisk::from_image(vec![1; 3 * BLOCK]);
    disk.set_limit(Some(Limit::Blocks(bytes(4))));
    disk.set_len(bytes(100)).unwrap();
    assert_eq!(disk.block_bytes(), bytes(3), "length alone takes nothing");
    disk.write_at(bytes(50) + 4000, &[2; 90]).unwrap();
    for result in [disk.write_at(bytes(51) - 1, &[3; 2]), disk.allocate(bytes(50), bytes(2))] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::StorageFull);
    }
    disk.write_at(0, &[4; 3 * BLOCK]).unwrap();
    // A hole is as large as the whole blocks in it.
    disk.punch(100, bytes(3) - 101).unwrap();
    assert_eq!(disk.block_bytes(), bytes(3));
    disk.punch(bytes(1), bytes(1)).unwrap();
    assert_eq!(disk.block_bytes(), bytes(3));
    disk.allocate(bytes(60), bytes(1)).unwrap();
    let next = disk.after_death();
    assert_eq!(next.block_bytes(), bytes(4));
    next.set_limit(Some(Limit::Blocks(bytes(4))));
    next.write_at(bytes(1), &[5]).unwrap_err();
    next.set_len(bytes(55)).unwrap();
    next.write_at(bytes(1), &[5]).unwrap();
}

#[test]
fn after_a_failed_sync_success_means_nothing_until_written_again() {
    let disk = SimDisk::from_image(vec![0; 4 * SECTOR]);
    disk.write_at(0, &[1; SECTOR]).unwrap();
    disk.fail(1, Fault::SyncFailsThenLies);
    disk.sync().unwrap_err();
    disk.write_at(1024, &[2; SECTOR]).unwrap();
    disk.sync().unwrap();
    disk.sync().unwrap();
    disk.sync_range(0, 512).unwrap();
    let found = outcomes(&disk, 200);
    assert!(found.iter().all(|image| image[1024] == 2), "the later write is safe");
    let kinds: BTreeSet<u8> = found.iter().map(|image| image[0]).collect();
    assert_eq!(kinds, BTreeSet::from([0, 1]), "the earlier one is not");

    disk.write_at(5, &[3]).unwrap();
    disk.sync().unwrap();
    let found = outcomes(&disk, 200);
    assert_eq!(found.len(), 1);
    assert_eq!(found.first().unwrap()[..7], [1, 1, 1, 1, 1, 3, 1]);
}

#[test]
fn a_failed_range_sync_forgets_only_its_range() {
    let disk = SimDisk::from_image(vec![0; 4 * SECTOR]);
    disk.write_at(0, &[1; 4 * SECTOR]).unwrap();
    disk.fail(1, Fault::SyncFailsThenLies);
    disk.sync_range(0, 512).unwrap_err();
    disk.sync().unwrap();
    let found = outcomes(&disk, 200);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|image| image[512..] == [1; 3 * SECTOR]));
}

#[test]
fn what_a_durable_cut_removed_stays_removed_even_if_it_was_forgotten() {
    let disk = SimDisk::from_image(vec![5; 3 * SECTOR]);
    disk.write_at(0, &[6; 3 * SECTOR]).unwrap();
    disk.set_len(700).unwrap();
    disk.fail(2, Fault::SyncFailsThenLies);
    disk.sync().unwrap_err();
    disk.sync().unwrap();
    disk.set_len(wide(3 * SECTOR)).unwrap();
    disk.sync().unwrap();
    for image in outcomes(&disk, 200) {
        assert_eq!(image.len(), 3 * SECTOR);
        assert!(image[700..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn after_power_loss_nothing_works_and_the_dying_write_may_be_found() {
    let disk = SimDisk::from_image(vec![0; 4 * SECTOR]);
    let mapping = disk.map(10).unwrap();
    disk.fail(1, Fault::PowerLoss);
    disk.write_at(0, &[1; SECTOR]).unwrap();
    disk.write_at(1024, &[2; 2 * SECTOR]).unwrap_err();
    disk.write_at(0, &[3]).unwrap_err();
    disk.sync().unwrap_err();
    disk.len().unwrap_err();
    disk.read_at(0, &mut [0]).unwrap_err();
    disk.map(1).unwrap_err();
    disk.reopen().lock().unwrap_err();
    assert!(mapping.bytes(0, 10).is_some(), "memory stays readable");
    let found = outcomes(&disk, 500);
    let halves: BTreeSet<(u8, u8)> =
        found.iter().map(|image| (image[1024], image[1024 + SECTOR])).collect();
    assert_eq!(halves, BTreeSet::from([(0, 0), (0, 2), (2, 0), (2, 2)]));

    let disk = SimDisk::from_image(vec![0; 4 * SECTOR]);
    disk.write_at(0, &[1; SECTOR]).unwrap();
    disk.fail(1, Fault::PowerLoss);
    disk.sync().unwrap_err();
    assert_eq!(outcomes(&disk, 100).len(), 2, "an interrupted sync promises nothing");
}

#[test]
fn power_can_be_cut_between_calls() {
    let disk = SimDisk::new();
    disk.write_at(0, b"x").unwrap();
    disk.power_off();
    disk.sync().unwrap_err();
    assert_eq!(outcomes(&disk, 100), BTreeSet::from([vec![], vec![0], vec![b'x']]));
}

#[test]
fn boards_and_pins_leave_no_trace_and_meet_no_fault() {
    let disk = SimDisk::from_image(vec![7; 8192]);
    disk.fail_from(0, Fault::Eio);
    disk.fail_read(0, Fault::Eio);
    let board = disk.board(4096).unwrap();
    assert_eq!(board.load(0, SeqCst), 0, "the bytes are elsewhere");
    board.store(0, 1, SeqCst);
    let _pin = disk.pin(3).unwrap();
    assert!(disk.reopen().is_pinned(4).unwrap());
    assert_eq!((disk.op_count(), disk.read_count(), disk.trace().len()), (0, 0, 0));
    assert_eq!(disk.to_bytes(), [7; 8192]);
    assert_eq!(disk.trace().image(0, Keep::All), [7; 8192]);
}

#[test]
fn boards_and_pins_end_with_the_power() {
    let disk = SimDisk::from_image(vec![0; 4096]);
    let board = disk.board(0).unwrap();
    board.store(0, 1, SeqCst);
    let _pin = disk.pin(0).unwrap();
    disk.power_off();
    disk.board(0).unwrap_err();
    disk.pin(0).unwrap_err();
    disk.reopen().is_pinned(1).unwrap_err();
    assert_eq!(board.load(0, SeqCst), 1, "memory stays readable");
    let found = SimDisk::from_image(disk.trace().image(0, Keep::All));
    assert_eq!(found.board(0).unwrap().load(0, SeqCst), 0);
    assert!(!found.is_pinned(1).unwrap());
}

#[test]
fn a_directory_found_after_power_loss_has_no_boards_and_no_pins() {
    let dir = SimDir::new();
    let disk = dir.create("a").unwrap();
    disk.set_len(4096).unwrap();
    disk.sync().unwrap();
    let steps = dir.step_count();
    disk.board(0).unwrap().store(0, 1, SeqCst);
    let _pin = disk.pin(0).unwrap();
    assert_eq!(dir.step_count(), steps);
    let again = dir.open("a").unwrap();
    assert_eq!(again.board(0).unwrap().load(0, SeqCst), 1);
    assert!(again.is_pinned(1).unwrap());
    let found = dir.after_power_loss(1).open("a").unwrap();
    assert_eq!(found.board(0).unwrap().load(0, SeqCst), 0);
    assert!(!found.is_pinned(1).unwrap());
}
