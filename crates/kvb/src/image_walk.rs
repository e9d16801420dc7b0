//! Walking an image in the order of a table of another size.

use std::ops::Range;

use crate::error::Result;
use crate::format::index_page::{EMPTY, SENTINEL};
use crate::image::Image;
use crate::log::Log;

/// Entries of an image, by their home slot in a table of `new_slots`, then by hash, then as they stood.
pub(crate) struct ImageWalk<'a> {
    image: &'a Image,
    log: &'a Log,
    new_slots: u64,
    /// Which part of a larger table is being filled.
    pass: u64,
    passes: u64,
    /// One cursor per part of a table that shrinks, else one.
    cursors: Vec<Cursor>,
}

/// Walks the entries whose home slots are in a range.
#[derive(Debug)]
struct Cursor {
    homes: Range<u64>,
    position: u64,
    head: Option<(u64, u64)>,
}

impl<'a> ImageWalk<'a> {
    pub(crate) fn new(image: &'a Image, log: &'a Log, new_slots: u64) -> ImageWalk<'a> {
        let passes = (new_slots / image.slot_count()).max(1);
        let mut walk = ImageWalk { image, log, new_slots, pass: 0, passes, cursors: Vec::new() };
        walk.restart();
        walk
    }

    fn restart(&mut self) {
        let part = self.new_slots.min(self.image.slot_count());
        let parts = self.image.slot_count() / part;
        let cursor = |index| Cursor {
            homes: index * part..(index + 1) * part,
            position: index * part,
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
            let heads = self.cursors.iter().filter_map(|cursor| cursor.head);
            if let Some(head) = heads.min_by_key(|&(hash, _)| self.order(hash)) {
                return Ok(Some(head));
            }
            if self.pass + 1 >= self.passes {
                return Ok(None);
            }
            self.pass += 1;
            self.restart();
        }
    }

    /// Goes past the entry that `peek` gave.
    pub(crate) fn advance(&mut self) {
        let next = self.cursors.iter().filter_map(|cursor| cursor.head).map(|(hash, _)| self.order(hash)).min();
        let new_slots = self.new_slots;
        let order = |hash: u64| (hash & (new_slots - 1), hash);
        let front = self
            .cursors
            .iter_mut()
            .find(|cursor| cursor.head.map(|(hash, _)| order(hash)) == next && next.is_some());
        if let Some(cursor) = front {
            cursor.head = None;
        }
    }

    /// Moves a cursor to its next entry, if it has none.
    fn fill(&mut self, index: usize) -> Result<()> {
        let slots = self.image.slot_count();
        let Some(cursor) = self.cursors.get_mut(index) else { return Ok(()) };
        while cursor.head.is_none() && cursor.position < cursor.homes.end.saturating_add(slots) {
            let position = cursor.position;
            let slot = self.image.slot(self.log, position)?;
            let hash = slot.hash64.get();
            let past = position >= cursor.homes.end;
            if hash == EMPTY && past {
                cursor.position = u64::MAX;
                break;
            }
            cursor.position += 1;
            if hash <= SENTINEL {
                continue;
            }
            // How far the entry stands behind its home tells its home even past the end of the table.
            let distance = position.wrapping_sub(hash) & (slots - 1);
            let Some(home) = position.checked_sub(distance) else { continue };
            if past && home >= cursor.homes.end {
                cursor.position = u64::MAX;
                break;
            }
            let is_in_pass = (hash & (self.new_slots - 1)) / slots.min(self.new_slots) == self.pass
                || self.passes == 1;
            if cursor.homes.contains(&home) && is_in_pass {
                cursor.head = Some((hash, slot.record_paddr.get()));
            }
        }
        Ok(())
    }
}
