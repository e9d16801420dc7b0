//! Looking up keys.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Guard;
use zerocopy::IntoBytes;

use crate::ahead::AHEAD;
use crate::core::Core;
use crate::error::{Corrupt, Error, Result, What};
use crate::format::record::ENC_RAW;
use crate::opened::Opened;
use crate::overlay::Sight;
use crate::text::Text;
use crate::value::{Pin, Value};
use crate::view::View;
use crate::writer::Writer;

/// How often a lookup of many keys starts over because a commit came in between, before it keeps commits out.
const RETRIES: usize = 8;
/// One lookup in 64 is timed, going by its hash: the clock costs some of what a lookup does.
const TIMED_SHIFT: u32 = 58;

impl Core {
    /// The values of many keys as of one commit, in their order.
    pub(crate) fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value<'_>>>> {
        for _ in 0..RETRIES {
            let before = self.published.load(Ordering::Acquire);
            match self.get_each(keys) {
                Err(error) if is_index_damage(&error) => self.rebuild(&mut self.lock_writer())?,
                values if self.published.load(Ordering::Acquire) == before => return values,
                values => drop(values?),
            }
        }
        let mut no_commits = self.lock_writer();
        match self.get_each(keys) {
            Err(error) if is_index_damage(&error) => {
                self.rebuild(&mut no_commits)?;
                self.get_each(keys)
            }
            values => values,
        }
    }

    fn get_each<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value<'_>>>> {
        self.check_lookup()?;
        let view = self.view.load_full();
        let mut values = Vec::with_capacity(keys.len());
        let mut hits = 0;
        let mut hashes = Vec::with_capacity(keys.len().min(AHEAD));
        for keys in keys.chunks(AHEAD) {
            hashes.clear();
            hashes.extend(keys.iter().map(|key| self.hash.slot_hash(key.as_ref())));
            let start = self.look_ahead(&view, &hashes);
            for (key, hash) in keys.iter().zip(&hashes) {
                let sight = Sight::Latest(&self.published);
                let found = view.find(&self.log, *hash, key.as_ref(), sight)?;
                let found = found.filter(|record| !self.is_expired(record));
                hits += u64::from(found.is_some());
                if let Some(record) = &found
                    && self.pace.is_slow()
                {
                    self.pace.note_len(record.header.record_len());
                }
                let pin = || Pin::Shared { _view: Arc::clone(&view) };
                values.push(found.map(|record| self.value(record, pin())).transpose()?);
            }
            self.pace.note(keys.len(), self.env.monotonic_ns().saturating_sub(start));
        }
        self.counters.got(u64::try_from(keys.len()).unwrap_or(0), hits);
        Ok(values)
    }

    /// Loads what lookups of some hashes will need, and tells when asking the disk was over: how long that takes says
    /// nothing of whether it was worth it.
    pub(crate) fn look_ahead(&self, view: &View, hashes: &[u64]) -> u64 {
        // Also for one: a record on two pages is two reads otherwise, one behind the other.
        if self.pace.is_slow() {
            view.prefetch(&self.log, hashes, &self.pace);
        }
        let start = self.env.monotonic_ns();
        if hashes.len() > 1 {
            view.touch(&self.log, hashes);
        }
        start
    }

    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        key: &[u8],
    ) -> Result<(Option<Opened<'_>>, Guard<Arc<View>>)> {
        self.check_lookup()?;
        let view = self.view.load();
        let sight = Sight::Latest(&self.published);
        let is_timed = hash >> TIMED_SHIFT == 0 || self.pace.is_slow();
        let start = is_timed.then(|| self.look_ahead(&view, &[hash]));
        let found = match view.find(&self.log, hash, key, sight) {
            Err(error) if is_index_damage(&error) => return self.find_rebuilt(hash, key),
            found => found?,
        };
        if let Some(start) = start {
            self.pace.note(1, self.env.monotonic_ns().saturating_sub(start));
            if let Some(record) = &found {
                self.pace.note_len(record.header.record_len());
            }
        }
        Ok((found.filter(|record| !self.is_expired(record)), view))
    }

    /// The value of a record.
    #[inline]
    pub(crate) fn value<'a>(&self, record: Opened<'a>, pin: Pin) -> Result<Value<'a>> {
        Ok(match self.expand(&record)? {
            Some(expanded) => Value::new(Text::owned(expanded), 0, pin),
            None => {
                let (bytes, from) = record.into_stored();
                Value::new(bytes, from, pin)
            }
        })
    }

    /// The value of a record, in memory of its own.
    pub(crate) fn expanded(&self, record: &Opened<'_>) -> Result<Vec<u8>> {
        Ok(self.expand(record)?.unwrap_or_else(|| record.stored().to_vec()))
    }

    /// The value of a record, if what is stored is not it.
    #[inline]
    pub(crate) fn expand(&self, record: &Opened<'_>) -> Result<Option<Vec<u8>>> {
        if record.header.form() == ENC_RAW {
            return Ok(None);
        }
        let damaged = || {
            let at = self.log.address(record.header.as_bytes());
            Error::corrupt(What::Value, at.unwrap_or(0))
        };
        self.codec.expand(record).map(Some).ok_or_else(damaged)
    }

    #[inline]
    fn is_expired(&self, record: &Opened<'_>) -> bool {
        record.header.ttl_secs.get() != 0 && record.header.is_expired(self.clock.now())
    }

    /// The index turned out to be damaged: rebuild it from the log and look again.
    #[cold]
    fn find_rebuilt(
        &self,
        hash: u64,
        key: &[u8],
    ) -> Result<(Option<Opened<'_>>, Guard<Arc<View>>)> {
        self.rebuild(&mut self.lock_writer())?;
        self.settle();
        let view = self.view.load();
        let sight = Sight::Latest(&self.published);
        let found = view.find(&self.log, hash, key, sight)?;
        Ok((found.filter(|record| !self.is_expired(record)), view))
    }

    /// Rebuilds the index, unless somebody else did while this thread waited for the writer's lock.
    #[cold]
    fn rebuild(&self, writer: &mut Writer) -> Result<()> {
        if self.view.load().image.is_on_disk() {
            let result = self.rebuild_index(writer);
            return match result {
                Err(Error::Corrupt(_)) => result,
                result => self.latch(result),
            };
        }
        Ok(())
    }
}

fn is_index_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(Corrupt { what: What::IndexPage, .. }))
}
