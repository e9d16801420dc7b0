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
    let mut hashed = Vec::with_capacity(records.len());
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
        let leaves = object_leaves(root, part).into_iter().zip(leaves_of(root, part, &digests));
        hashed.extend(digests.iter().zip(leaves).map(|(digest, (object, version))| Hashed {
            digest: *digest,
            object,
            version,
        }));
    }
    hashed
}

/// Leaves of objects alone, of a few records.
pub(crate) fn object_leaves(root: RootVersion, records: &[Record<'_>]) -> Vec<Hash> {
    let mut messages = Messages::default();
    for record in records {
        messages.add(tag(root), &key::object(&record.id), record.bytes);
    }
    messages.digests()
}

/// Leaves of versions alone, of a few records.
pub(crate) fn version_leaves(root: RootVersion, records: &[Record<'_>]) -> Vec<Hash> {
    leaves_of(root, records, &Hash::of_each(records.iter().map(|record| record.bytes)))
}

/// Leaves of versions of objects with these digests.
fn leaves_of(root: RootVersion, records: &[Record<'_>], digests: &[Hash]) -> Vec<Hash> {
    let mut messages = Messages::default();
    for (record, digest) in records.iter().zip(digests) {
        let version =
            Version { digest: *digest, is_tombstone: record.is_tombstone, seq: record.seq };
        let key = key::version(&record.id, record.version);
        messages.add(tag(root), &key, &version.encode());
    }
    messages.digests()
}

/// Paths of the entries of objects.
pub(crate) fn object_paths(objects: &[(Hash, u64)]) -> Vec<Hash> {
    let keys: Vec<[u8; 36]> = objects.iter().map(|(id, _)| key::object(id)).collect();
    Hash::of_each(keys.iter().map(<[u8; 36]>::as_slice))
}

/// Paths of the entries of versions of objects.
pub(crate) fn version_paths(objects: &[(Hash, u64)]) -> Vec<Hash> {
    let keys: Vec<[u8; 45]> =
        objects.iter().map(|(id, version)| key::version(id, *version)).collect();
    Hash::of_each(keys.iter().map(<[u8; 45]>::as_slice))
}

/// Both.
pub(crate) fn paths(objects: &[(Hash, u64)]) -> Vec<(Hash, Hash)> {
    object_paths(objects).into_iter().zip(version_paths(objects)).collect()
}

/// The path of a key.
pub(crate) fn path(key: &[u8]) -> Hash {
    Hash::of(&[key])
}
