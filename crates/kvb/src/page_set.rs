//! A set of pages of the file.

use crate::extent::Extent;

/// Pages, a bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet {
    words: Vec<u64>,
}

impl PageSet {
    /// All pages below this one.
    pub(crate) fn below(page: u64) -> PageSet {
        let words = usize::try_from(page.div_ceil(64)).unwrap_or(0);
        PageSet { words: vec![u64::MAX; words] }
    }

    fn each(&mut self, extent: Extent, change: impl Fn(&mut u64, u64)) {
        let end = usize::try_from(extent.end_page().div_ceil(64)).unwrap_or(0);
        if self.words.len() < end {
            self.words.resize(end, 0);
        }
        for page in extent.start_page..extent.end_page() {
            let word = usize::try_from(page / 64).ok().and_then(|word| self.words.get_mut(word));
            if let Some(word) = word {
                change(word, 1 << (page % 64));
            }
        }
    }

    /// Adds the pages of an extent.
    pub(crate) fn add(&mut self, extent: Extent) {
        self.each(extent, |word, bit| *word |= bit);
    }

    /// Takes the pages of an extent out.
    pub(crate) fn remove(&mut self, extent: Extent) {
        self.each(extent, |word, bit| *word &= !bit);
    }

    /// True if the page is in the set.
    #[inline]
    pub(crate) fn contains(&self, page: u64) -> bool {
        let word = usize::try_from(page / 64).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (page % 64) & 1 == 1)
    }
}
