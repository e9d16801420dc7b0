//! Leaves: the digests of entries that roots are made of.
//!
//! The entry of an object and that of its newest version are made from one row, and many rows are hashed beside each other.

use crate::format::version::Version;
use crate::format::{key, snapshot};
use crate::hash::Hash;
use crate::settings::RootVersion;

/// Rows that are hashed at a time.
const TOGETHER: usize = 512;
/// Bytes of their messages, at most, unless a row alone has more.
const TOGETHER_BYTES: usize = 1 << 20;

/// The newest record of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) id: Hash,
    pub(crate) version: u64,
    pub(crate) is_tombstone: bool,
    /// The checkpoint that wrote it.
    pub(crate) seq: u64,
    pub(crate) bytes: &'a [u8],
}

/// What a record comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed {
    /// The digest of the object.
    pub(crate) digest: Hash,
    /// The leaf of the object.
    pub(crate) object: Hash,
    /// The leaf of its version.
    pub(crate) version: Hash,
}

/// The bytes in front of an entry where its leaf is hashed.
pub(crate) fn tag(root: RootVersion) -> &'static [u8] {
    match root {
        RootVersion::V1 => &[],
        RootVersion::V2 => &[0],
    }
}

/// The leaf of an entry.
pub(crate) fn leaf(root: RootVersion, key: &[u8], value: &[u8]) -> Hash {
    let mut message = tag(root).to_vec();
    snapshot::put_entry(&mut message, key, value);
    Hash::of(&[&message])
}

/// Messages one behind the other.
#[derive(Default)]
struct Messages {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Messages {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn add(&mut self, tag: &[u8], key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(tag);
        snapshot::put_entry(&mut self.bytes, key, value);
        self.ends.push(self.bytes.len());
    }

    fn digests(&self) -> Vec<Hash> {
        let mut start = 0;
        Hash::of_each(self.ends.iter().map(|end| {
            let message = self.bytes.get(start..*end).unwrap_or(&[]);
            start = *end;
            message
        }))
    }
}

/// Digests and leaves of records, in their order.
pub(crate) fn hash_records(root: RootVersion, records: &[Record<'_>]) -> Vec<Hashed> {
    let tag = tag(root);
    let mut hashed = Vec::with_capacity(records.len());
    let (mut objects, mut versions) = (Messages::default(), Messages::default());
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let few = rest.iter().take(TOGETHER).take_while(|record| {
            bytes += record.bytes.len();
            bytes <= TOGETHER_BYTES
        });
        let (part, others) = rest.split_at_checked(few.count().max(1)).unwrap_or((rest, &[]));
        rest = others;
        let digests = Hash::of_each(part.iter().map(|record| record.bytes));
        objects.clear();
        versions.clear();
        for (record, digest) in part.iter().zip(&digests) {
            objects.add(tag, &key::object(&record.id), record.bytes);
            let version =
                Version { digest: *digest, is_tombstone: record.is_tombstone, seq: record.seq };
            versions.add(tag, &key::version(&record.id, record.version), &version.encode());
        }
        let leaves = objects.digests().into_iter().zip(versions.digests());
        hashed.extend(digests.into_iter().zip(leaves).map(|(digest, (object, version))| Hashed {
            digest,
            object,
            version,
        }));
    }
    hashed
}

/// Paths of the two entries of each object in a version.
pub(crate) fn paths(objects: &[(Hash, u64)]) -> Vec<(Hash, Hash)> {
    let keys: Vec<([u8; 36], [u8; 45])> =
        objects.iter().map(|(id, version)| (key::object(id), key::version(id, *version))).collect();
    let objects = Hash::of_each(keys.iter().map(|(key, _)| key.as_slice()));
    let versions = Hash::of_each(keys.iter().map(|(_, key)| key.as_slice()));
    objects.into_iter().zip(versions).collect()
}

/// The path of a key.
pub(crate) fn path(key: &[u8]) -> Hash {
    Hash::of(&[key])
}
