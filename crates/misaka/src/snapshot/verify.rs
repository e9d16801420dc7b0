//! Checking a snapshot without a store: every byte, every rule, and the root.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use host::Dir;

use super::join::{self, Sink};
use super::{Watch, manifest, read_chunk};
use crate::error::{Error, Rule};
use crate::format::key::Key;
use crate::format::manifest::{Chunk, Manifest};
use crate::format::node::Place;
use crate::format::object::Object;
use crate::format::params::{self, Params, STATE_ROOT_VERSION};
use crate::format::version::Version;
use crate::hash::Hash;
use crate::leaf::{self, Record};
use crate::root2::Leaf;
use crate::settings::{Effort, RootVersion};
use crate::store::{Stage, full};
use crate::{merkle, threads, tree};

/// Objects that are hashed at a time, and their bytes.
const TOGETHER: usize = 512;
const TOGETHER_BYTES: usize = 1 << 20;
/// Chunks of more bytes are checked one after the other.
const LONG: u64 = 16 << 20;

/// What whoever checks a snapshot knows from elsewhere, and trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The digest of its checkpoint: of the state, but of no version older than the newest of its object.
    pub checkpoint: Option<Hash>,
    /// The digest of its manifest: of everything in it.
    pub manifest: Option<Hash>,
    /// The digest of the validator set.
    pub validator_set: Option<Hash>,
}

impl Trust {
    /// Whether versions that are not the newest are to be restored. No root is of them; so who trusts a checkpoint would have to trust
    /// whoever made the snapshot, too.
    pub(super) fn takes_older(&self) -> bool {
        self.checkpoint.is_none() || self.manifest.is_some()
    }

    pub(super) fn check(&self, manifest: &Manifest) -> Result<(), Error> {
        let header = &manifest.header;
        let compare = |rule, trusted: Option<Hash>, found: Hash| match trusted {
            Some(trusted) if trusted != found => {
                Err(Error::refused(rule, format!("the snapshot has {found}, trusted is {trusted}")))
            }
            _ => Ok(()),
        };
        compare(Rule::ManifestDigest, self.manifest, manifest.digest())?;
        compare(Rule::CheckpointDigest, self.checkpoint, header.digest)?;
        compare(Rule::ValidatorSetHash, self.validator_set, header.validator_set_hash)
    }
}

/// What checking a snapshot came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The manifest.
    pub manifest: Manifest,
    /// Objects.
    pub objects: u64,
    /// Versions.
    pub versions: u64,
    /// Parameters.
    pub params: u64,
}

/// Checks a snapshot: its chunks, the rules of all entries, and the root that they make.
pub fn verify(
    dir: &dyn Dir,
    trust: Trust,
    effort: Effort,
    watch: Watch<'_>,
) -> Result<Verified, Error> {
    effort.check()?;
    let manifest = manifest(dir)?;
    trust.check(&manifest)?;
    check_chunks(dir, &manifest, effort.threads, watch)?;
    let entries = manifest.chunks.iter().map(|chunk| chunk.entries).sum::<u64>();
    let root = match manifest.header.state_root_version {
        1 => RootVersion::V1,
        _ => RootVersion::V2,
    };
    let passes = match root {
        RootVersion::V1 => std::iter::once(0..256).collect(),
        RootVersion::V2 => {
            full::passes(usize::try_from(entries).unwrap_or(usize::MAX), effort.sorted())
        }
    };
    let total = manifest.len() * u64::try_from(passes.len()).unwrap_or(1);
    let mut done = 0;
    let mut told = |bytes: usize| {
        done += u64::try_from(bytes).unwrap_or(0);
        watch.tell(Stage::Hashing, done.min(total), total)
    };
    let mut sink = Hasher::new(root);
    let mut growing = tree::Growing::default();
    for pass in passes {
        sink.begin(pass);
        join::join(dir, &manifest, None, &mut sink, &mut told)?;
        sink.flush()?;
        if root == RootVersion::V2 {
            sink.leaves.sort_unstable();
            full::grow(&mut growing, &sink.leaves, effort.threads, &mut None)?;
        }
    }
    let found = match root {
        RootVersion::V1 => sink.root1(),
        RootVersion::V2 => growing.finish(&mut ledger::Batch::new()).digest(),
    };
    if found != manifest.header.state_root {
        let what = format!("the entries have {found}, the header {}", manifest.header.state_root);
        return Err(Error::refused(Rule::StateRoot, what));
    }
    let named = params::state_root_version(&sink.named);
    if named
        .map_err(|rule| Error::refused(rule, "parameters"))?
        .is_some_and(|named| named != manifest.header.state_root_version)
    {
        return Err(Error::refused(Rule::StateRootVersion, "parameters"));
    }
    let Hasher { objects, versions, params, .. } = sink;
    Ok(Verified { manifest, objects, versions, params })
}

/// Every byte of every chunk.
pub(super) fn check_chunks(
    dir: &dyn Dir,
    manifest: &Manifest,
    threads: usize,
    watch: Watch<'_>,
) -> Result<(), Error> {
    let total = manifest.len();
    let done = AtomicU64::new(0);
    let turn = Mutex::new(());
    let chunks: Vec<(usize, &Chunk)> = manifest.chunks.iter().enumerate().collect();
    let checked = threads::over(&chunks, threads, 1, |chunks| {
        for (number, chunk) in chunks {
            // Of long ones memory has one, however many threads there are.
            let _turn = (chunk.len > LONG).then(|| turn.lock());
            let bytes = read_chunk(dir, chunk, *number)?;
            join::check_chunk(manifest, *number, &bytes)?;
            let before = done.fetch_add(chunk.len, Ordering::Relaxed);
            watch.tell(Stage::Reading, before + chunk.len, total)?;
        }
        Ok::<(), Error>(())
    });
    checked.into_iter().collect()
}

/// Makes leaves of entries.
struct Hasher {
    root: RootVersion,
    pass: Range<usize>,
    objects: u64,
    versions: u64,
    params: u64,
    /// The parameter that says which root it is.
    named: Params,
    /// Objects that were not hashed yet: id, version, tombstone, bytes, newest version.
    waiting: Vec<(Hash, u64, Vec<u8>, Version)>,
    waiting_bytes: usize,
    /// v1: what is known of the objects' part, and the leaves of versions, which come after everything.
    growing: merkle::Growing,
    version_leaves: Vec<Hash>,
    /// v2: leaves of this pass.
    leaves: Vec<Leaf>,
}

impl Hasher {
    fn new(root: RootVersion) -> Hasher {
        Hasher {
            root,
            pass: 0..256,
            objects: 0,
            versions: 0,
            params: 0,
            named: Params::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            growing: merkle::Growing::default(),
            version_leaves: Vec::new(),
            leaves: Vec::new(),
        }
    }

    fn begin(&mut self, pass: Range<usize>) {
        self.pass = pass;
        self.objects = 0;
        self.versions = 0;
        self.params = 0;
        self.leaves.clear();
    }

    fn flush(&mut self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let records: Vec<Record<'_>> = waiting
            .iter()
            .map(|(id, version, bytes, newest)| Record {
                id: *id,
                version: *version,
                is_tombstone: newest.is_tombstone,
                seq: newest.seq,
                bytes,
            })
            .collect();
        let hashed = leaf::hash_records(self.root, &records);
        for ((id, _, _, newest), hashed) in waiting.iter().zip(&hashed) {
            if newest.digest != hashed.digest {
                return Err(Error::refused(Rule::VersionMismatch, format!("object {id}")));
            }
        }
        match self.root {
            RootVersion::V1 => {
                hashed.iter().for_each(|hashed| self.growing.push(hashed.object));
                self.version_leaves.extend(hashed.iter().map(|hashed| hashed.version));
            }
            RootVersion::V2 => {
                let names: Vec<(Hash, u64)> =
                    records.iter().map(|record| (record.id, record.version)).collect();
                for ((paths, (id, version)), hashed) in
                    leaf::paths(&names).into_iter().zip(names).zip(hashed)
                {
                    self.add(paths.0, Place::Object(id), hashed.object);
                    self.add(paths.1, Place::Version(id, version), hashed.version);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, path: Hash, place: Place, digest: Hash) {
        if path.0.first().is_some_and(|byte| self.pass.contains(&usize::from(*byte))) {
            self.leaves.push(Leaf { path, place, digest });
        }
    }

    fn root1(&mut self) -> Hash {
        self.version_leaves.iter().for_each(|leaf| self.growing.push(*leaf));
        std::mem::take(&mut self.growing).finish()
    }
}

impl Sink for Hasher {
    fn version(&mut self, _: &Object<'_>, _: u64, _: &Version) -> Result<(), Error> {
        self.versions += 1;
        Ok(())
    }

    fn object(&mut self, object: &Object<'_>, bytes: &[u8], newest: &Version) -> Result<(), Error> {
        self.objects += 1;
        self.waiting.push((object.id, object.version, bytes.to_vec(), *newest));
        self.waiting_bytes += bytes.len();
        match self.waiting.len() == TOGETHER || self.waiting_bytes >= TOGETHER_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn param(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        let key = Key::Param(name.to_owned()).encode();
        let leaf = leaf::leaf(self.root, &key, value);
        match self.root {
            RootVersion::V1 => {
                // All objects come before.
                self.flush()?;
                self.growing.push(leaf);
            }
            RootVersion::V2 => {
                let path = leaf::path(&key);
                self.add(path, Place::Param(path), leaf);
            }
        }
        if name == STATE_ROOT_VERSION {
            self.named.insert(name.to_owned(), value.to_vec());
        }
        self.params += 1;
        Ok(())
    }
}
