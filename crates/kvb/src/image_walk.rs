//! Walking an image in the order of a table of another size.

use std::ops::Range;
use std::slice::ChunksExact;

use crate::error::Result;
use crate::format::index_page::{self, EMPTY, IndexSlot, SENTINEL};
use crate::image::Image;
use crate::log::Log;
use crate::page_set::PageSet;

/// Entries of an image, by their home slot in a table of `new_slots`, then by hash, then as they stood.
pub(crate) struct ImageWalk<'a> {
    image: &'a Image,
    log: &'a Log,
    new_slots: u64,
    /// Slots that lead here are passed over.
    gone: Option<&'a PageSet>,
    /// Which part of a larger table is being filled.
    pass: u64,
    passes: u64,
    /// One cursor per part of a table that shrinks, else one.
    cursors: Vec<Cursor<'a>>,
}

/// Walks the entries whose home slots are in a range.
#[derive(Debug)]
struct Cursor<'a> {
    homes: Range<u64>,
    position: u64,
    /// What is left of the page at `position`.
    slots: ChunksExact<'a, u8>,
    head: Option<(u64, u64)>,
}

impl<'a> ImageWalk<'a> {
    pub(crate) fn new(
        image: &'a Image,
        log: &'a Log,
        new_slots: u64,
        gone: Option<&'a PageSet>,
    ) -> ImageWalk<'a> {
        let passes = (new_slots / image.slot_count()).max(1);
        let mut walk =
            ImageWalk { image, log, new_slots, gone, pass: 0, passes, cursors: Vec::new() };
        walk.restart();
        walk
    }

    fn restart(&mut self) {
        let part = self.new_slots.min(self.image.slot_count());
        let parts = self.image.slot_count() / part;
        let cursor = |index| Cursor {
            homes: index * part..(index + 1) * part,
            position: index * part,
            slots: [].chunks_exact(IndexSlot::SIZE),
            head: None,
        };
        self.cursors = (0..parts).map(cursor).collect();
    }

    fn order(&self, hash: u64) -> (u64, u64) {
        (hash & (self.new_slots - 1), hash)
    }

    /// The next entry.
    pub(crate) fn peek(&mut self) -> Result<Option<(u64, u64)>> {
        loop {
            for index in 0..self.cursors.len() {
                self.fill(index)?;
            }
            if let Some(head) = self.front().and_then(|at| self.cursors.get(at)?.head) {
                return Ok(Some(head));
            }
            if self.pass + 1 >= self.passes {
                return Ok(None);
            }
            self.pass += 1;
            self.restart();
        }
    }

    /// The cursor whose entry comes next.
    fn front(&self) -> Option<usize> {
        match self.cursors.as_slice() {
            [only] => only.head.map(|_| 0),
            several => {
                let heads =
                    several.iter().enumerate().filter_map(|(at, cursor)| Some((at, cursor.head?)));
                heads.min_by_key(|(_, (hash, _))| self.order(*hash)).map(|(at, _)| at)
            }
        }
    }

    /// Goes past the entry that `peek` gave.
    pub(crate) fn advance(&mut self) {
        if let Some(cursor) = self.front().and_then(|at| self.cursors.get_mut(at)) {
            cursor.head = None;
        }
    }

    /// Moves a cursor to its next entry, if it has none.
    #[inline]
    fn fill(&mut self, index: usize) -> Result<()> {
        let Some(cursor) = self.cursors.get_mut(index) else {
            return Ok(());
        };
        let slots = self.image.slot_count();
        while cursor.head.is_none() && cursor.position < cursor.homes.end.saturating_add(slots) {
            let Some(slot) = cursor.slots.next() else {
                if !self.image.is_on_disk() {
                    cursor.position = u64::MAX;
                    break;
                }
                cursor.slots = self.image.slots_from(self.log, cursor.position)?;
                continue;
            };
            let (hash, paddr) = index_page::read_slot(slot);
            let position = cursor.position;
            cursor.position += 1;
            if hash == EMPTY && position < cursor.homes.end {
                continue;
            }
            // How far an entry stands behind its home tells its home even past the end of the table.
            let distance = position.wrapping_sub(hash) & (slots - 1);
            let home = position.checked_sub(distance).filter(|_| hash > SENTINEL);
            if position >= cursor.homes.end
                && (hash == EMPTY || home.is_some_and(|home| home >= cursor.homes.end))
            {
                cursor.position = u64::MAX;
                break;
            }
            let is_in_pass = self.passes == 1 || (hash & (self.new_slots - 1)) / slots == self.pass;
            let is_gone = self.gone.is_some_and(|gone| gone.contains(self.image.page_of(paddr)));
            if is_in_pass && !is_gone && home.is_some_and(|home| cursor.homes.contains(&home)) {
                cursor.head = Some((hash, paddr));
            }
        }
        Ok(())
    }
}
