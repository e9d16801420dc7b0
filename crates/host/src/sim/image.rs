//! The images power loss may leave of a file.
//!
//! An image is built by choosing, sector by sector, the durable contents or those of one pending
//! change, and one of the lengths the file has had since the last sync.

use super::dice::Dice;
use super::point::{Change, Point, UNIT};

/// Which of the pending changes survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// None of them; the old length too.
    None,
    /// All of them: the live file.
    All,
    /// The newest change of contents alone, and the newest length if it needs one.
    OnlyLast,
    /// All but the one with this number, counted from 0 in the order of the pending changes.
    DropOne(usize),
    /// The first so many.
    Prefix(usize),
    /// Any mixture of versions of every sector, and any length; chosen by the seed.
    Random(u64),
}

impl Point {
    /// One legal image of the file if power is lost at this point.
    pub fn image(&self, keep: Keep) -> Vec<u8> {
        match keep {
            Keep::None => self.blank(self.durable_len),
            Keep::All => self.live.get(..self.live_len).unwrap_or_default().to_vec(),
            Keep::OnlyLast => {
                let with_contents = |change: &&Change| !change.states.is_empty();
                let last = self.pending.iter().rev().find(with_contents);
                let end = last.map_or(0, |change| (change.first + change.states.len()) * UNIT);
                let short = end.min(self.live_len) > self.durable_len;
                let mut image = self.blank(if short { self.live_len } else { self.durable_len });
                last.into_iter().for_each(|change| put_all(&mut image, change));
                image
            }
            Keep::DropOne(number) => self.whole(|at| at != number),
            Keep::Prefix(count) => self.whole(|at| at < count),
            Keep::Random(seed) => self.random(&mut Dice::new(seed)),
        }
    }

    /// The durable contents, cut or extended to a length.
    fn blank(&self, len: usize) -> Vec<u8> {
        let mut image = Vec::with_capacity(len);
        image.extend_from_slice(self.durable.get(..len).unwrap_or(&self.durable));
        image.resize(len, 0);
        image
    }

    /// Keeps the chosen changes as wholes, newer ones over older ones.
    fn whole(&self, chosen: impl Fn(usize) -> bool) -> Vec<u8> {
        let kept = || self.pending.iter().zip(0..).filter(|(_, at)| chosen(*at));
        let len = kept().filter_map(|(change, _)| change.len).last();
        let mut image = self.blank(len.unwrap_or(self.durable_len));
        kept().for_each(|(change, _)| put_all(&mut image, change));
        image
    }

    fn random(&self, dice: &mut Dice) -> Vec<u8> {
        // Uniform choices alone would hardly ever lose or keep just a few of many sectors.
        match dice.below(5) {
            0 => {
                let kept: Vec<bool> = self.pending.iter().map(|_| dice.roll(1, 2)).collect();
                self.whole(|at| kept.get(at).copied().unwrap_or_default())
            }
            1 => self.scattered(dice, |dice, _| dice.roll(15, 16)),
            2 => self.scattered(dice, |dice, _| dice.roll(1, 16)),
            // The n-th version replaces the choice among those before it in one of n+1 cases: in
            // the end every version, the durable one included, is as likely as any other.
            _ => self.scattered(dice, |dice, nth| dice.roll(1, nth + 1)),
        }
    }

    /// Keeps single sectors: `takes` decides if a sector's `nth` pending version, counted from 1,
    /// replaces the version chosen before.
    fn scattered(&self, dice: &mut Dice, takes: impl Fn(&mut Dice, u32) -> bool) -> Vec<u8> {
        let mut len = self.durable_len;
        for (pending, nth) in self.pending.iter().filter_map(|change| change.len).zip(1..) {
            if takes(dice, nth) {
                len = pending;
            }
        }
        let mut image = self.blank(len);
        let mut versions = vec![0_u32; len.div_ceil(UNIT)];
        for change in &self.pending {
            for (sector, contents) in change.open() {
                // Sectors past the surviving length are gone whichever version was chosen.
                let Some(nth) = versions.get_mut(sector) else {
                    break;
                };
                *nth += 1;
                if takes(dice, *nth) {
                    put(&mut image, sector, contents);
                }
            }
        }
        image
    }
}

fn put_all(image: &mut [u8], change: &Change) {
    for (sector, contents) in change.open() {
        put(image, sector, contents);
    }
}

/// Copies a sector into an image, as far as the image reaches.
fn put(image: &mut [u8], sector: usize, contents: &[u8]) {
    let tail = image.get_mut(sector * UNIT..).unwrap_or_default();
    for (to, from) in tail.chunks_mut(UNIT).take(1).zip([contents]) {
        to.copy_from_slice(from.get(..to.len()).expect("contents are a whole sector"));
    }
}
