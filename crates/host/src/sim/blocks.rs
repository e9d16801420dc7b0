//! Which blocks of a simulated file are there. A file may have holes, and writing to one takes a block of the disk.

use std::ops::Range;

use crate::buffer::end_of;

/// Bytes of a block, as most file systems have them.
pub(super) const BLOCK: u64 = 4096;

/// Blocks, a bit each.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    words: Vec<u64>,
    count: u64,
}

impl Blocks {
    /// All of a file of so many bytes.
    pub(super) fn of_len(len: u64) -> Blocks {
        let mut blocks = Blocks::default();
        blocks.add(touched(0, len));
        blocks
    }

    /// Bytes that all of them have.
    pub(super) fn bytes(&self) -> u64 {
        self.count * BLOCK
    }

    /// How many of a range are not there.
    pub(super) fn missing(&self, range: Range<u64>) -> u64 {
        let is_missing = |block: &u64| !self.has(*block);
        u64::try_from(range.filter(is_missing).count()).unwrap_or(u64::MAX)
    }

    pub(super) fn add(&mut self, range: Range<u64>) {
        for block in range {
            if !self.has(block) {
                let word = usize::try_from(block / 64).expect("a simulated file fits in memory");
                if self.words.len() <= word {
                    self.words.resize(word + 1, 0);
                }
                self.flip(block);
                self.count += 1;
            }
        }
    }

    pub(super) fn remove(&mut self, range: Range<u64>) {
        let end = u64::try_from(self.words.len()).unwrap_or(u64::MAX).saturating_mul(64);
        for block in range.start..range.end.min(end) {
            if self.has(block) {
                self.flip(block);
                self.count -= 1;
            }
        }
    }

    fn has(&self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    fn flip(&mut self, block: u64) {
        let word = usize::try_from(block / 64).ok().and_then(|word| self.words.get_mut(word));
        if let Some(word) = word {
            *word ^= 1 << (block % 64);
        }
    }
}

/// Blocks of which a range of bytes has some.
pub(super) fn touched(offset: u64, len: u64) -> Range<u64> {
    match end_of(offset, len) {
        Ok(end) if len > 0 => offset / BLOCK..end.div_ceil(BLOCK),
        _ => 0..0,
    }
}

/// Blocks of which a range of bytes has all.
pub(super) fn covered(offset: u64, len: u64) -> Range<u64> {
    offset.div_ceil(BLOCK)..offset.saturating_add(len) / BLOCK
}
