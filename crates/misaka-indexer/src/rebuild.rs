//! Building an index anew: of the objects that a validator has, or of those of a snapshot. From there the feed goes on.
//!
//! Only the newest version of an object is known to either, so the history, the transactions and the events of an index that was built
//! this way begin there. An index that is cut off in the middle says that it is not whole until it is built again, from the beginning.

use host::Dir;
use misaka::format::object::Object;
use misaka::{View, snapshot};

use crate::error::Error;
use crate::follow::Watch;
use crate::index::Index;
use crate::rows::{Record, Tip};

/// Objects that are written together, and their bytes.
const TOGETHER: usize = 8192;
const TOGETHER_BYTES: usize = 4 << 20;

/// What building an index came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuilt {
    /// The checkpoint that it is of.
    pub tip: Tip,
    /// Objects, tombstones included.
    pub objects: u64,
}

/// Builds an index of the objects that a validator has.
pub fn from_view(index: &dyn Index, view: &View<'_>, watch: Watch<'_>) -> Result<Rebuilt, Error> {
    let newest = view.tip()?.ok_or(misaka::Error::NoCheckpoint)?;
    index.forget()?;
    let mut loader = Loader::new(index, watch, newest.objects);
    let given = view.for_each_record(&mut |object, bytes, seq| loader.take(object, bytes, seq));
    loader.check(given)?;
    loader.finish(newest.header.seq, newest.digest)
}

/// Builds an index of the objects of a snapshot. Its chunks are checked, but not the root of its state, for which there is
/// [`misaka::snapshot::verify`].
pub fn from_snapshot(index: &dyn Index, dir: &dyn Dir, watch: Watch<'_>) -> Result<Rebuilt, Error> {
    // Nothing is forgotten for something that is no snapshot.
    let manifest = snapshot::manifest(dir)?;
    index.forget()?;
    let mut loader = Loader::new(index, watch, 0);
    let given =
        snapshot::for_each_object(dir, &mut |object, bytes, seq| loader.take(object, bytes, seq));
    let found = loader.check(given)?;
    if found != manifest {
        let wrong = "it became another one while it was read";
        return Err(misaka::Error::Snapshot(wrong.to_owned()).into());
    }
    loader.finish(manifest.header.seq, manifest.header.digest)
}

/// Gathers objects, and writes as many as fit together.
struct Loader<'a> {
    index: &'a dyn Index,
    watch: Watch<'a>,
    records: Vec<Record>,
    bytes: usize,
    objects: u64,
    total: u64,
    /// Why it ended, if that was not the fault of whoever gives.
    failed: Option<Error>,
}

impl<'a> Loader<'a> {
    fn new(index: &'a dyn Index, watch: Watch<'a>, total: u64) -> Loader<'a> {
        Loader { index, watch, records: Vec::new(), bytes: 0, objects: 0, total, failed: None }
    }

    fn take(&mut self, object: &Object<'_>, bytes: &[u8], seq: u64) -> Result<(), misaka::Error> {
        let (id, version) = (object.id, object.version);
        self.records.push(Record { id, version, seq, bytes: bytes.to_vec() });
        self.bytes += bytes.len();
        self.objects += 1;
        if self.records.len() < TOGETHER && self.bytes < TOGETHER_BYTES {
            return Ok(());
        }
        self.write().map_err(|error| {
            self.failed = Some(error);
            misaka::Error::Interrupted
        })
    }

    fn write(&mut self) -> Result<(), Error> {
        self.index.load(&self.records)?;
        self.records.clear();
        self.bytes = 0;
        self.watch.tell(self.objects, self.total)
    }

    /// What giving came to.
    fn check<T>(&mut self, given: Result<T, misaka::Error>) -> Result<T, Error> {
        match (self.failed.take(), given) {
            (Some(error), _) => Err(error),
            (None, given) => Ok(given?),
        }
    }

    fn finish(mut self, seq: u64, digest: misaka::Hash) -> Result<Rebuilt, Error> {
        if !self.records.is_empty() {
            self.write()?;
        }
        let tip = Tip { seq, digest, base: Some(seq) };
        self.index.finish(tip)?;
        Ok(Rebuilt { tip, objects: self.objects })
    }
}
