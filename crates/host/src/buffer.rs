//! A file in memory: a [`Region`] that is replaced by a larger one when the file outgrows it.
//!
//! Invariants
//! - A mapping made before a replacement goes on showing the file up to its own capacity, as a
//!   mapping of a real file does. Whoever grows a file past `Mapping::capacity` maps it again.
//! - The words of a board are not in the region but beside it, so that they need not move with it
//!   and no read of bytes meets them. They begin as zeros and last as long as the file.

use std::any::Any;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;

use crate::map::{BOARD_BYTES, Board, Mapping, Region};

/// Address space of a file in memory unless its maker says otherwise. It costs nothing until it is written to, and it
/// is so much because a mapping that other threads read through should not have to be replaced.
pub(crate) const REGION: u64 = 16 << 30;

/// The bytes of one file in memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Region,
    /// Regions the file outgrew that mappings still show.
    outgrown: Vec<Region>,
    /// The boards made so far, by offset.
    boards: BTreeMap<u64, Board>,
}

impl Buffer {
    /// An empty file that holds `capacity` bytes before its memory must be replaced.
    pub(crate) fn new(capacity: u64) -> io::Result<Self> {
        let (outgrown, boards) = (Vec::new(), BTreeMap::new());
        Ok(Buffer { region: Region::new(capacity)?, outgrown, boards })
    }

    pub(crate) fn len(&self) -> u64 {
        self.region.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.region.bytes()
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.bytes().get(start..start.checked_add(buf.len())?))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(found);
        Ok(())
    }

    /// Writes, and grows the file if the range ends past its end.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = end_of(offset, u64::try_from(data.len()).unwrap_or(u64::MAX))?;
        if data.is_empty() {
            return Ok(());
        }
        self.reserve(end)?;
        self.region.write(offset, data);
        for region in &mut self.outgrown {
            let room = region.capacity().saturating_sub(offset);
            let fits = usize::try_from(room).map_or(data.len(), |room| room.min(data.len()));
            region.write(offset.min(region.capacity()), data.get(..fits).unwrap_or(data));
        }
        Ok(())
    }

    pub(crate) fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.reserve(len)?;
        self.region.set_len(len);
        for region in &mut self.outgrown {
            region.set_len(len.min(region.capacity()));
        }
        Ok(())
    }

    /// Zeros the part of a range that lies within the file.
    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len());
        for region in std::iter::once(&mut self.region).chain(&mut self.outgrown) {
            let end = end.min(region.len());
            if offset < end {
                region.zero(offset, end);
            }
        }
    }

    /// A view of at least `len` bytes, which keeps `keep` alive.
    pub(crate) fn map(
        &mut self,
        len: u64,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> io::Result<Mapping> {
        self.reserve(len)?;
        self.region.mapping(keep)
    }

    /// The board of a page, which keeps `keep` alive.
    pub(crate) fn board(
        &mut self,
        offset: u64,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> io::Result<Board> {
        check_board(offset, self.len())?;
        match self.boards.entry(offset) {
            Entry::Occupied(found) => Ok(found.get().keeping(keep)),
            Entry::Vacant(free) => Ok(free.insert(Board::in_memory()?).keeping(keep)),
        }
    }

    fn reserve(&mut self, len: u64) -> io::Result<()> {
        if len <= self.region.capacity() {
            return Ok(());
        }
        let mut larger = Region::new(len.max(self.region.capacity().saturating_mul(2)))?;
        larger.write(0, self.region.bytes());
        self.outgrown.push(std::mem::replace(&mut self.region, larger));
        self.outgrown.retain(Region::is_mapped);
        Ok(())
    }
}

/// Refuses what is not a whole page inside a file of `len` bytes.
pub(crate) fn check_board(offset: u64, len: u64) -> io::Result<()> {
    if offset.is_multiple_of(BOARD_BYTES) && end_of(offset, BOARD_BYTES)? <= len {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a page of the file"))
    }
}

/// The end of a range, or `InvalidInput` if it has none.
pub(crate) fn end_of(offset: u64, len: u64) -> io::Result<u64> {
    offset.checked_add(len).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}
