//! What may happen to a bucket.

use fastrand::Rng;
use host::Fault;
use kvb::{Compact, Durability};

use super::model::{Change, Value};
use super::plan::Plan;
use crate::Harm;
use crate::dice::{clock_jump, one_of};

/// Steps of a history to which one harm comes.
const QUIET: usize = 12;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Commit(Vec<Change>, Durability),
    /// Looks a few keys up.
    Look(Vec<u16>),
    /// Reads everything, forwards or backwards.
    Scan {
        is_reverse: bool,
    },
    Flush,
    Compact(Compact),
    /// A snapshot is held while other things are done to the bucket, and then perhaps backed up.
    Hold {
        meanwhile: Vec<Step>,
        is_backed_up: bool,
    },
    /// Closes the bucket and opens it again.
    Close,
    /// The process dies.
    Kill,
    /// Power fails so many calls from now, and leaves one of the images that may be left; perhaps once more so many calls into the recovery.
    PowerLoss {
        calls: u64,
        image: u64,
        again: Option<u64>,
    },
    /// A call fails, so many from now, or all from then on.
    Fail {
        calls: u64,
        fault: Fault,
        is_lasting: bool,
    },
    /// A read fails, so many from now.
    FailRead {
        reads: u64,
    },
    /// The disk has so many bytes of room, then none.
    Full {
        room: u64,
    },
    /// The disk has room again, and calls do not fail any more.
    Relief,
    /// A bit of the closed file is flipped, looked at what comes of it, and flipped back.
    Rot {
        place: u64,
        bit: u8,
    },
    /// The wall clock jumps.
    Clock {
        seconds: i64,
    },
    /// Others open it: somebody who wants to write, and a reader.
    Second,
}

/// The history of a seed.
pub(crate) fn history(seed: u64) -> Vec<Step> {
    let plan = Plan::draw(seed);
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let count = rng.usize(20..160);
    (0..count).map(|_| draw(&mut rng, &plan)).collect()
}

/// What is done under a seed, with one harm.
pub(crate) fn harmed(seed: u64, harm: Harm) -> Vec<Step> {
    let first = match harm {
        Harm::Fail { call: calls, fault, is_lasting } => Step::Fail { calls, fault, is_lasting },
        // There is none beside it.
        Harm::FailFile { .. } => Step::Relief,
        Harm::PowerLoss { step: calls, image, again } => {
            Step::PowerLoss { calls, image, again: Some(again) }
        }
    };
    let is_quiet = |step: &Step| {
        matches!(step, Step::Commit(..) | Step::Flush | Step::Compact(_) | Step::Close)
    };
    let steps = history(seed).into_iter().filter(is_quiet).take(QUIET);
    std::iter::once(first).chain(steps).collect()
}

fn draw(rng: &mut Rng, plan: &Plan) -> Step {
    match rng.u8(..103) {
        100.. => {
            let meanwhile = (0..rng.usize(..8)).map(|_| draw_change(rng, plan)).collect();
            Step::Hold { meanwhile, is_backed_up: rng.bool() }
        }
        0..50 => draw_commit(rng, plan),

        50..55 => Step::Look((0..rng.usize(1..6)).map(|_| rng.u16(..plan.keys)).collect()),
        55..59 => Step::Scan { is_reverse: rng.bool() },
        59..62 => Step::Flush,
        62..68 => Step::Compact(one_of(rng, Compact::Auto, &[Compact::Full, Compact::LowSpace])),
        68..71 => Step::Close,
        71..75 => Step::Kill,
        75..83 => {
            let again = (rng.u8(..3) == 0).then(|| rng.u64(..40));
            Step::PowerLoss { calls: soon(rng), image: rng.u64(..), again }
        }
        83..87 => {
            let others = [Fault::Enospc, Fault::ShortWrite, Fault::SyncFailsThenLies];
            let fault = one_of(rng, Fault::Eio, &others);
            Step::Fail { calls: soon(rng), fault, is_lasting: rng.bool() }
        }
        87 => Step::FailRead { reads: rng.u64(..20) },
        88..90 => Step::Full { room: rng.u64(..200_000) },
        90..93 => Step::Relief,
        93..96 => Step::Rot { place: rng.u64(..), bit: rng.u8(..8) },
        96..98 => Step::Clock { seconds: clock_jump(rng) },
        _ => Step::Second,
    }
}

/// What changes a bucket, or where its rows are.
fn draw_change(rng: &mut Rng, plan: &Plan) -> Step {
    match rng.u8(..8) {
        0 => Step::Flush,
        1 | 2 => Step::Compact(one_of(rng, Compact::Auto, &[Compact::Full, Compact::LowSpace])),
        _ => draw_commit(rng, plan),
    }
}

fn draw_commit(rng: &mut Rng, plan: &Plan) -> Step {
    let is_large = plan.fills_journal || rng.u8(..8) == 0;
    let count = if is_large { rng.usize(10..80) } else { rng.usize(1..8) };
    let changes = (0..count).map(|_| change(rng, plan)).collect();
    let durability = match rng.u8(..3) {
        _ if plan.fills_journal => Durability::Sync,
        0 => Durability::Relaxed,
        1 => Durability::SyncOnce,
        _ => Durability::Sync,
    };
    Step::Commit(changes, durability)
}

/// Mostly within the next call of the bucket, sometimes within the next few.
fn soon(rng: &mut Rng) -> u64 {
    match rng.u8(..4) {
        0 => 0,
        1 => rng.u64(..5),
        2 => rng.u64(..30),
        _ => rng.u64(..200),
    }
}

fn change(rng: &mut Rng, plan: &Plan) -> Change {
    let key = rng.u16(..plan.keys);
    let len = match rng.u8(..40) {
        0 => rng.u32(..120_000),
        1..8 => rng.u32(..6000),
        8..12 => 0,
        _ => rng.u32(..200),
    };
    let ttl = (rng.u8(..6) == 0).then(|| rng.u32(1..8000));
    let value = (rng.u8(..4) > 0).then(|| Value { len, fill: rng.u8(..), ttl });
    Change { key, value }
}
