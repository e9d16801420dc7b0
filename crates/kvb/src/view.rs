//! What a reader sees: the layers of the index, newest first.
//!
//! A view is immutable but for the active overlay, which only gains entries that `published` guards. A reader
//! holds a view while it uses bytes it found through it; what a view names is reused only when no one holds it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Result;
use crate::format::record::{DELETE, Record};
use crate::image::Image;
use crate::log::Log;
use crate::overlay::{Lookup, Overlay};
use crate::runs::Run;

/// An overlay that takes no more entries.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) overlay: Arc<Overlay>,
    /// With the image below it holds every record up to this seqno.
    pub(crate) seqno: u64,
}

/// The layers of the index.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Takes new entries.
    pub(crate) active: Arc<Overlay>,
    /// Being merged into the next image.
    pub(crate) frozen: Option<Frozen>,
    /// Runs not folded in yet, newest first.
    pub(crate) runs: Arc<[Run]>,
    /// The image.
    pub(crate) image: Arc<Image>,
}

impl View {
    /// The newest visible record of a key, DELETEs left out.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        published: &AtomicU64,
    ) -> Result<Option<Record<'a>>> {
        let found = self.find_any(log, hash, key, published)?;
        Ok(found.filter(|record| record.header.kind != DELETE))
    }

    #[inline]
    fn find_any<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        published: &AtomicU64,
    ) -> Result<Option<Record<'a>>> {
        for overlay in self.overlays() {
            if let Lookup::Found(record) = overlay.find(log, hash, key, published)? {
                return Ok(Some(record));
            }
        }
        for run in self.runs.iter() {
            if let Some(record) = run.find(log, hash, key)? {
                return Ok(Some(record));
            }
        }
        self.image.find(log, hash, key)
    }

    fn overlays(&self) -> impl Iterator<Item = &Overlay> {
        let frozen = self.frozen.as_ref().map(|frozen| &*frozen.overlay);
        std::iter::once(&*self.active).chain(frozen)
    }

    /// True if some key of this hash is in an overlay or the image.
    pub(crate) fn has_hash(&self, log: &Log, hash: u64) -> Result<bool> {
        Ok(self.overlays().any(|overlay| overlay.has_hash(hash))
            || self.image.has_hash(log, hash)?)
    }

    /// How many keys there are, taking equal hashes for equal keys. Costs a probe per overlay entry.
    pub(crate) fn count_keys(&self, log: &Log) -> Result<u64> {
        let mut count = i128::from(self.image.place.used);
        let mut failed = None;
        let layers: Vec<&Overlay> = self.overlays().collect();
        for (depth, overlay) in layers.iter().enumerate() {
            overlay.for_each(|hash, entry| {
                let above = layers.iter().take(depth).any(|upper| upper.has_hash(hash));
                if above || failed.is_some() {
                    return;
                }
                match self.image.has_hash(log, hash) {
                    Ok(below) => {
                        count +=
                            i128::from(entry & crate::overlay::DELETE_BIT == 0) - i128::from(below);
                    }
                    Err(error) => failed = Some(error),
                }
            });
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(u64::try_from(count).unwrap_or(0)),
        }
    }
}
