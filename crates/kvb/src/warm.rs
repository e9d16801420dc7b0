//! Free pages whose blocks were not given back to the disk, because they will soon be used again.
//!
//! Giving blocks back and taking others makes the file system write its own log, and the next sync of the bucket waits for
//! that. Where records keep dying, what compaction frees is what the log needs next.
//!
//! Invariants
//! - Only free pages are warm. Whoever takes pages says so here first.
//! - A page with the header of a free extent is never among those to be given back: walks go by it.

use std::collections::VecDeque;

use crate::extent::Extent;
use crate::page_set::PageSet;

/// What was known of pages that are about to be taken.
#[derive(Debug)]
pub(crate) struct Known {
    warm: Vec<Extent>,
    heads: Vec<Extent>,
}

/// Warm pages.
#[derive(Debug, Default)]
pub(crate) struct Warm {
    pages: PageSet,
    count: u64,
    /// Pages with headers, and maybe some that had one.
    heads: PageSet,
    /// As they came; parts may have been taken since, but of none all.
    extents: VecDeque<Extent>,
}

impl Warm {
    /// Adds a free extent, with a header in its first page.
    pub(crate) fn add(&mut self, extent: Extent) {
        self.forget(extent);
        self.pages.add(extent);
        self.count += extent.page_count;
        self.heads.add(Extent::new(extent.start_page, 1));
        self.extents.push_back(extent);
    }

    /// The header of a free extent was written to its first page, which has its block then.
    pub(crate) fn add_head(&mut self, extent: Extent) {
        self.add(Extent::new(extent.start_page, 1));
    }

    /// True if all pages of an extent are warm.
    pub(crate) fn has(&self, extent: Extent) -> bool {
        extent.page_count <= self.count && self.count_in(extent) == extent.page_count
    }

    /// Pages at the beginning of an extent that are warm.
    pub(crate) fn count_first(&self, extent: Extent) -> u64 {
        let mut pages = extent.start_page..extent.end_page();
        let cold = pages.find(|page| !self.pages.contains(*page));
        cold.unwrap_or(extent.end_page()) - extent.start_page
    }

    /// Pages of an extent that are warm.
    fn count_in(&self, extent: Extent) -> u64 {
        let pages = extent.start_page..extent.end_page();
        let warm = pages.filter(|page| self.pages.contains(*page)).count();
        u64::try_from(warm).unwrap_or(u64::MAX)
    }

    /// The pages of an extent are taken.
    pub(crate) fn forget(&mut self, extent: Extent) {
        self.count -= self.count_in(extent);
        self.pages.remove(extent);
        self.heads.remove(extent);
        let (from, to) = (extent.start_page, extent.end_page());
        let mut extents = std::mem::take(&mut self.extents);
        extents.retain(|one| {
            one.end_page() <= from || to <= one.start_page || self.count_in(*one) > 0
        });
        self.extents = extents;
    }

    /// The pages of an extent are taken, if nothing comes between.
    pub(crate) fn lift(&mut self, extent: Extent) -> Known {
        let known = |set: &PageSet| {
            let pages = (extent.start_page..extent.end_page()).filter(|page| set.contains(*page));
            runs(pages)
        };
        let lifted = Known { warm: known(&self.pages), heads: known(&self.heads) };
        self.forget(extent);
        lifted
    }

    /// They were not taken after all.
    pub(crate) fn put_back(&mut self, known: Known) {
        for extent in known.warm {
            self.pages.add(extent);
            self.count += extent.page_count;
            self.extents.push_back(extent);
        }
        known.heads.iter().for_each(|head| self.heads.add(*head));
    }

    /// All pages of a free extent have their blocks now.
    pub(crate) fn heat(&mut self, extent: Extent) {
        self.count += extent.page_count - self.count_in(extent);
        self.pages.add(extent);
        self.extents.push_back(extent);
    }

    /// Pages of an extent that are not warm. None of them has a header any more.
    pub(crate) fn cold(&mut self, extent: Extent) -> Vec<Extent> {
        self.heads.remove(extent);
        runs((extent.start_page..extent.end_page()).filter(|page| !self.pages.contains(*page)))
    }

    /// True if no page is warm.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What to give back so that no more than so many pages stay warm: those first that came first.
    pub(crate) fn cool(&mut self, most: u64) -> Vec<Extent> {
        let mut cooled = Vec::new();
        while self.count > most
            && let Some(extent) = self.extents.pop_front()
        {
            for page in extent.start_page..extent.end_page() {
                if !self.pages.contains(page) {
                    continue;
                }
                self.pages.remove(Extent::new(page, 1));
                self.count -= 1;
                if !self.heads.contains(page) {
                    cooled.push(page);
                }
            }
        }
        runs(cooled)
    }
}

/// Extents of pages that follow each other.
fn runs(pages: impl IntoIterator<Item = u64>) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some(last) if last.end_page() == page => last.page_count += 1,
            _ => runs.push(Extent::new(page, 1)),
        }
    }
    runs
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_came_first_goes_first_without_its_header() {
        let mut warm = Warm::default();
        warm.add(Extent::new(10, 4));
        warm.add(Extent::new(14, 4));
        assert!(warm.has(Extent::new(10, 8)));
        assert!(!warm.has(Extent::new(9, 2)));
        assert_eq!(warm.count_first(Extent::new(12, 9)), 6);
        assert_eq!(warm.count_first(Extent::new(9, 2)), 0);
        assert_eq!(warm.cool(4), [Extent::new(11, 3)]);
        assert!(!warm.has(Extent::new(10, 1)));
        assert!(warm.has(Extent::new(14, 4)));
    }

    #[test]
    fn what_is_taken_is_not_given_back() {
        let mut warm = Warm::default();
        warm.add(Extent::new(10, 10));
        warm.forget(Extent::new(10, 4));
        warm.add_head(Extent::new(14, 6));
        assert!(warm.has(Extent::new(14, 6)));
        assert_eq!(warm.cool(0), [Extent::new(15, 5)]);
        assert_eq!(warm.cool(0), []);
    }

    #[test]
    fn what_was_not_taken_after_all_is_as_it_was() {
        let mut warm = Warm::default();
        warm.add(Extent::new(10, 4));
        warm.add(Extent::new(16, 4));
        let lifted = warm.lift(Extent::new(10, 8));
        assert!(!warm.has(Extent::new(10, 1)) && warm.has(Extent::new(18, 2)));
        warm.put_back(lifted);
        assert!(warm.has(Extent::new(10, 4)) && warm.has(Extent::new(16, 4)));
        let cooled = warm.cool(0);
        assert_eq!(cooled.iter().map(|extent| extent.page_count).sum::<u64>(), 6);
        assert!(cooled.iter().all(|extent| ![10, 16].contains(&extent.start_page)));
        assert!(warm.is_empty());
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing_behind() {
        let mut warm = Warm::default();
        for _ in 0..100 {
            warm.add(Extent::new(10, 4));
            warm.add(Extent::new(20, 4));
            warm.forget(Extent::new(10, 2));
            warm.forget(Extent::new(12, 2));
        }
        assert_eq!(warm.extents, [Extent::new(20, 4)]);
        warm.forget(Extent::new(20, 4));
        assert!(warm.is_empty() && warm.extents.is_empty());
    }

    #[test]
    fn what_comes_again_counts_once() {
        let mut warm = Warm::default();
        warm.add(Extent::new(10, 2));
        warm.add(Extent::new(10, 4));
        assert_eq!(warm.cool(4), []);
        assert_eq!(warm.cool(0), [Extent::new(11, 3)]);
    }
}
