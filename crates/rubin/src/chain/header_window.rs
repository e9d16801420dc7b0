//! Headers before a block, as far as rules ask for them: the last few of every chain stay in memory.

use std::collections::{HashMap, VecDeque};

use crate::error::Error;
use crate::hash::Hash;
use crate::header::Header;
use crate::rules::{MEDIAN, WINDOW};
use crate::store::Store;
use crate::validator::HeaderContext;

/// Headers kept: a window and its neighbours.
const KEPT: usize = 8192;

/// Headers that were read or imported lately.
#[derive(Debug, Default)]
pub(super) struct HeaderWindow {
    headers: HashMap<Hash, Header>,
    order: VecDeque<Hash>,
}

impl HeaderWindow {
    fn get(&mut self, store: Store<'_>, hash: Hash) -> Result<Header, Error> {
        if let Some(header) = self.headers.get(&hash) {
            return Ok(header.clone());
        }
        let header = store.header(hash)?.ok_or(Error::IndexMissing(hash))?;
        self.headers.insert(hash, header.clone());
        self.order.push_back(hash);
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.headers.remove(&oldest);
        }
        Ok(header)
    }

    /// What is before a block of a height whose parent is known.
    pub(super) fn context(
        &mut self,
        store: Store<'_>,
        parent_hash: Hash,
        height: u64,
        local_time: Option<u64>,
    ) -> Result<HeaderContext, Error> {
        let parent = self.get(store, parent_hash)?;
        let mut timestamps = vec![parent.timestamp];
        let mut prev = parent.prev_hash;
        for _ in 1..MEDIAN.min(height) {
            let header = self.get(store, prev)?;
            timestamps.push(header.timestamp);
            prev = header.prev_hash;
        }
        let mut window_start = None;
        if height > 0 && height.is_multiple_of(WINDOW) {
            // From the parent, of height - 1, to the block of height - WINDOW.
            let mut first = parent.clone();
            for _ in 1..WINDOW {
                first = self.get(store, first.prev_hash)?;
            }
            window_start = Some(first.timestamp);
        }
        Ok(HeaderContext { height, parent_hash, parent, timestamps, window_start, local_time })
    }
}
