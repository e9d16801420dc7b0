//! What a reader sees: the layers of the index, newest first.
//!
//! A view is immutable but for the active overlay, which only gains entries that `published` guards. A reader
//! holds a view while it uses bytes it found through it; what a view names is reused only when no one holds it.

use std::sync::{Arc, OnceLock};

use crate::core::Fixed;
use crate::error::Result;
use crate::format::record::DELETE;
use crate::image::Image;
use crate::late_run::LateRun;
use crate::level::Level;
use crate::log::Log;
use crate::opened::Opened;
use crate::overlay::{DELETE_BIT, Lookup, Marks, Overlay, Sight};
use crate::page_set::PageSet;
use crate::sealed::Sealed;
use crate::unsealed::Unsealed;

/// Overlay entries that are looked up to estimate something of all.
const SAMPLE: usize = 256;

/// What died with the changes in overlays, estimated.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    /// Where the image names a record that was replaced, and for how many bytes it stands.
    pub(crate) replaced: Vec<(u64, u64)>,
    /// Bytes of which no image knows yet.
    pub(crate) hidden: u64,
}

/// An overlay that takes no more entries.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) overlay: Arc<Overlay>,
    /// With the image below it holds every record up to this seqno.
    pub(crate) seqno: u64,
    /// And every record moved to segments with ids up to this.
    pub(crate) seg_id: u64,
}

/// Where records are, for scans.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Registered, in no order.
    pub(crate) sealed: Vec<Arc<Sealed>>,
    /// Written or waiting to be sealed, oldest first.
    pub(crate) tail: Vec<Arc<Unsealed>>,
    /// The registered ones by key, once somebody scans.
    levels: OnceLock<Vec<Arc<Level>>>,
}

impl Segments {
    pub(crate) fn new(sealed: Vec<Arc<Sealed>>, tail: Vec<Arc<Unsealed>>) -> Segments {
        Segments { sealed, tail, levels: OnceLock::new() }
    }

    /// The registered segments by key.
    pub(crate) fn levels(&self, log: &Log, fixed: &Fixed) -> Result<&[Arc<Level>]> {
        if self.levels.get().is_none() {
            let _ = self.levels.set(Level::arrange(log, fixed, &self.sealed)?);
        }
        Ok(self.levels.get().map_or(&[], Vec::as_slice))
    }
}

impl Clone for Segments {
    /// A copy to be changed, so nothing is known of its levels.
    fn clone(&self) -> Segments {
        Segments::new(self.sealed.clone(), self.tail.clone())
    }
}

/// The layers of the index.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Takes new entries.
    pub(crate) active: Arc<Overlay>,
    /// Being merged into the next image.
    pub(crate) frozen: Option<Frozen>,
    /// Runs not folded in yet, newest first.
    pub(crate) runs: Arc<[LateRun]>,
    /// The image.
    pub(crate) image: Arc<Image>,
    /// Pages of segments that are gone since the image was made.
    pub(crate) gone: Option<Arc<PageSet>>,
    /// All that the layers may lead to, and more.
    pub(crate) segments: Arc<Segments>,
}

impl View {
    /// The newest record of a key in sight, DELETEs left out.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        sight: Sight<'_>,
    ) -> Result<Option<Opened<'a>>> {
        let found = self.find_any(log, hash, key, sight)?;
        Ok(found.filter(|record| record.header.kind != DELETE))
    }

    /// The newest record of a key in sight.
    #[inline]
    pub(crate) fn find_any<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        sight: Sight<'_>,
    ) -> Result<Option<Opened<'a>>> {
        if !self.runs.is_empty() {
            return self.find_beside_runs(log, hash, key, sight);
        }
        for overlay in self.overlays() {
            if let Lookup::Found(record) = overlay.find(log, hash, key, sight)? {
                return Ok(Some(record));
            }
        }
        self.image.find(log, hash, key, self.gone.as_deref())
    }

    /// While there are runs, an overlay may hold an older record than a run that is not folded in yet.
    #[cold]
    fn find_beside_runs<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        sight: Sight<'_>,
    ) -> Result<Option<Opened<'a>>> {
        let mut newest: Option<Opened<'a>> = None;
        let mut consider = |record: Opened<'a>| {
            if newest.as_ref().is_none_or(|newest| newest.seqno() < record.seqno()) {
                newest = Some(record);
            }
        };
        for overlay in self.overlays() {
            if let Lookup::Found(record) = overlay.find(log, hash, key, sight)? {
                consider(record);
                break;
            }
        }
        LateRun::prefetch_first(&self.runs, log);
        for run in self.runs.iter() {
            if let Some(record) = run.find(log, hash, key)? {
                consider(record);
            }
        }
        match newest {
            Some(_) => Ok(newest),
            None => self.image.find(log, hash, key, self.gone.as_deref()),
        }
    }

    /// The layers in memory, newest first.
    pub(crate) fn overlays(&self) -> impl Iterator<Item = &Overlay> {
        let frozen = self.frozen.as_ref().map(|frozen| &*frozen.overlay);
        std::iter::once(&*self.active).chain(frozen)
    }

    /// True if some key of this hash is in an overlay or the image.
    pub(crate) fn has_hash(&self, log: &Log, hash: u64) -> Result<bool> {
        Ok(self.overlays().any(|overlay| overlay.has_hash(hash))
            || self.image.has_hash(log, hash)?)
    }

    /// How many keys of an overlay a layer below it has too, by a sample.
    fn known(&self, log: &Log, overlay: &Overlay) -> u64 {
        let mut known = 0;
        let shown = overlay
            .sample(SAMPLE, |hash, _| known += u64::from(self.has_below(log, overlay, hash)));
        u64::try_from(overlay.len()).unwrap_or(0).saturating_mul(known) / shown.max(1)
    }

    fn has_below(&self, log: &Log, overlay: &Overlay, hash: u64) -> bool {
        let frozen = self.frozen.as_ref().map(|frozen| &*frozen.overlay);
        let below = frozen.filter(|frozen| !std::ptr::eq(*frozen, overlay));
        self.image.may_have_hash(log, hash).unwrap_or(false)
            || below.is_some_and(|below| below.has_hash(hash))
    }

    /// What died with what is in the overlays, going by about so many entries of each.
    pub(crate) fn deaths(&self, log: &Log, sample: usize) -> Deaths {
        let mut deaths = Deaths::default();
        for overlay in self.overlays() {
            let mut here = Deaths::default();
            let shown = overlay.sample(sample, |hash, entry| {
                self.note_death(log, overlay, hash, entry, &mut here)
            });
            let len = u64::try_from(overlay.len()).unwrap_or(0);
            let scaled = |bytes: u64| bytes.saturating_mul(len) / shown.max(1);
            let replaced = here.replaced.iter().map(|&(paddr, bytes)| (paddr, scaled(bytes)));
            deaths.replaced.extend(replaced);
            deaths.hidden += scaled(here.hidden) + overlay.dead_bytes();
        }
        deaths
    }

    /// What died with one entry of an overlay.
    fn note_death(&self, log: &Log, overlay: &Overlay, hash: u64, entry: u64, deaths: &mut Deaths) {
        let Some(header) = log.header(entry & !DELETE_BIT) else { return };
        if entry & DELETE_BIT != 0 {
            deaths.hidden += header.record_len();
        }
        let frozen = self.frozen.as_ref().map(|frozen| &*frozen.overlay);
        let below = frozen.filter(|frozen| !std::ptr::eq(*frozen, overlay));
        if below.is_some_and(|below| below.has_hash(hash)) {
            deaths.hidden += header.record_len();
            return;
        }
        let is_gone = |paddr: &u64| {
            let page = self.image.page_of(*paddr);
            self.gone.as_ref().is_some_and(|gone| gone.contains(page))
        };
        let Some(paddr) = self.image.peek(log, hash).filter(|paddr| !is_gone(paddr)) else {
            return;
        };
        // One record in two places was moved, or was in the tail when the bucket was opened. And one of another key with the
        // same hash, of which there are many only if somebody wants that, says nothing.
        let replaced = log.header(paddr).filter(|found| found.seqno != header.seqno);
        let key = || log.try_key(entry & !DELETE_BIT);
        if let Some(replaced) = replaced.filter(|_| log.try_key(paddr) == key()) {
            deaths.replaced.push((paddr, replaced.record_len()));
        }
    }

    /// About how many keys the next image will have.
    pub(crate) fn key_count(&self, log: &Log) -> u64 {
        let new = |overlay: &Overlay| {
            u64::try_from(overlay.len()).unwrap_or(0).saturating_sub(self.known(log, overlay))
        };
        self.image.place.used + self.overlays().map(new).sum::<u64>()
    }

    /// How many keys there are, taking equal hashes for equal keys. Costs a probe per overlay entry.
    pub(crate) fn count_keys(&self, log: &Log) -> Result<u64> {
        let mut count = i128::from(self.image.place.used);
        let mut failed = None;
        let mut add = |hash: u64, entry: u64| match self.image.has_hash(log, hash) {
            Ok(below) => count += i128::from(entry & DELETE_BIT == 0) - i128::from(below),
            Err(error) => failed = Some(error),
        };
        // What the layer above had when it was counted: compaction may enter what it moves meanwhile, and that would be counted
        // in neither.
        let mut above = Marks::default();
        let frozen = self.frozen.as_ref().map(|frozen| &frozen.overlay);
        self.active.for_each(|hash, entry| {
            add(hash, entry);
            frozen.iter().for_each(|frozen| frozen.mark(hash, &mut above));
        });
        frozen.iter().for_each(|frozen| frozen.for_each_beside(&above, &mut add));
        match failed {
            Some(error) => Err(error),
            None => Ok(u64::try_from(count).unwrap_or(0)),
        }
    }
}
