//! What is hashed: never the rows as they are stored, but packed paths and digests with their lengths.

use alloc::vec::Vec;
use core::fmt;

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};

use crate::path::Path;

/// A digest of 32 bytes, BLAKE2b-256.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

/// The length that digests are hashed with.
const LEN: [u8; 2] = [0, 32];

impl Hash {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(Blake2b::<U32>::digest(bytes).into())
    }

    /// From exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Hash> {
        bytes.try_into().ok().map(Hash)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// A node as its parent sees it: bits without a branch, and then a digest. That of a leaf is of its value, that of a branch
/// of both its children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Bits from its position on that everything below it shares.
    pub jump: Path,
    /// Its digest.
    pub value: Hash,
}

impl Node {
    fn absorb(&self, digest: &mut Blake2b<U32>) {
        digest.update(self.jump.head());
        digest.update(self.jump.bytes());
        digest.update(LEN);
        digest.update(self.value.0);
    }

    /// The root of a tree with this node at the top.
    pub fn root(&self) -> Hash {
        let mut digest = Blake2b::<U32>::new();
        self.absorb(&mut digest);
        Hash(digest.finalize().into())
    }

    /// What is hashed of it.
    pub fn preimage(&self) -> Vec<u8> {
        let mut bytes = packed(&self.jump);
        bytes.extend_from_slice(&LEN);
        bytes.extend_from_slice(&self.value.0);
        bytes
    }
}

/// The digest of a branch.
pub fn join(left: &Node, right: &Node) -> Hash {
    let mut digest = Blake2b::<U32>::new();
    left.absorb(&mut digest);
    right.absorb(&mut digest);
    Hash(digest.finalize().into())
}

/// A branch whose left side is known and whose right one is not yet.
#[cfg(feature = "store")]
#[derive(Clone)]
pub(crate) struct Joining(Blake2b<U32>);

#[cfg(feature = "store")]
impl Joining {
    pub(crate) fn left(left: &Node) -> Joining {
        let mut digest = Blake2b::<U32>::new();
        left.absorb(&mut digest);
        Joining(digest)
    }

    /// The digest of the branch.
    pub(crate) fn right(mut self, right: &Node) -> Hash {
        right.absorb(&mut self.0);
        Hash(self.0.finalize().into())
    }
}

/// A path as it is hashed: the number of bits, u16be, and the bits.
pub fn packed(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + path.bytes().len() + 34);
    bytes.extend_from_slice(&path.head());
    bytes.extend_from_slice(path.bytes());
    bytes
}

/// A path from the bytes that are hashed of it, strictly.
pub fn unpacked(bytes: &[u8]) -> Option<Path> {
    let (head, bits) = bytes.split_first_chunk()?;
    let len = usize::from(u16::from_be_bytes(*head));
    let path = Path::new(bits.into(), len).ok()?;
    (path.bytes() == bits).then_some(path)
}
