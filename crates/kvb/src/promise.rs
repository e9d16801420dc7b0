//! Room for a group larger than a segment, set aside before its first byte is written: such a group is refused whole, or finds what it
//! needs, whatever merges and compaction take meanwhile.
//!
//! Until a piece takes one, these extents are marked free on disk; after a crash they are.

use crate::core::Core;
use crate::error::Result;
use crate::extent::Extent;
use crate::format::roster::{NAMED_LOG, NamedExtent};
use crate::keeper::Keeper;

/// Pieces that a segment table is certain to be good for, before the next one must be written.
const PIECES_PER_TABLE: usize = 8;

/// What is set aside. Nothing most of the time.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    /// One for each piece of the group.
    pieces: Vec<Extent>,
    /// For the segment tables that registering the pieces takes.
    tables: Vec<Extent>,
}

impl Promise {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.pieces.iter().chain(&self.tables).copied()
    }

    /// Room for a segment table.
    pub(crate) fn table(&mut self, pages: u64) -> Option<Extent> {
        take_smallest(&mut self.tables, pages)
    }
}

fn take_smallest(extents: &mut Vec<Extent>, pages: u64) -> Option<Extent> {
    let fitting = extents.iter().enumerate().filter(|(_, extent)| extent.page_count >= pages);
    let (at, _) = fitting.min_by_key(|(_, extent)| extent.page_count)?;
    Some(extents.swap_remove(at))
}

impl Keeper {
    /// Sets room aside for pieces of so many pages, and for the segment tables that registering them takes. If there is too
    /// little, nothing is.
    pub(crate) fn promise(&mut self, core: &Core, pieces: &[u64]) -> Result<()> {
        let result = self.try_promise(core, pieces);
        if result.is_err() {
            self.end_promise(core)?;
        }
        result
    }

    fn try_promise(&mut self, core: &Core, pieces: &[u64]) -> Result<()> {
        let table = self.table_pages(core, pieces.len());
        let tables = vec![table; 2 + pieces.len() / PIECES_PER_TABLE];
        // The file grows once and not for each.
        let mut space = self.space.clone();
        let mut missing = 0;
        for pages in pieces.iter().chain(&tables) {
            if space.take(*pages, |extent| self.warm.has(extent)).is_none() {
                missing += pages;
            }
        }
        if self.space.raw_pages() < missing {
            self.grow(core, missing)?;
        }
        for pages in pieces {
            let extent = self.allot(core, *pages)?;
            self.promise.pieces.push(extent);
        }
        for pages in tables {
            let extent = self.allot(core, pages)?;
            self.promise.tables.push(extent);
        }
        Ok(())
    }

    /// The group is written, or will not be: gives back what it did not need.
    pub(crate) fn end_promise(&mut self, core: &Core) -> Result<()> {
        let left = std::mem::take(&mut self.promise);
        left.iter().try_for_each(|extent| self.give_back(core, extent))
    }

    /// An extent for a piece that takes at least so many pages, noted to be named by the next checkpoint.
    pub(crate) fn name_piece(&mut self, core: &Core, pages: u64) -> Result<NamedExtent> {
        match take_smallest(&mut self.promise.pieces, pages) {
            Some(extent) => self.name(extent, NAMED_LOG),
            // Never seen: the same rule cuts a group into pieces when they are counted and when they are written.
            None => self.name_extent(core, pages, NAMED_LOG),
        }
    }
}
