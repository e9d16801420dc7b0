//! A key is not there.

use alloc::vec::Vec;

use super::{Inclusion, Refused};
use crate::cbor::{Decoder, Encoder, Malformed};
use crate::hash::Hash;
use crate::path::Path;

/// That nothing in a tree is under a key, or under any key that begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// The tree has no entries, and so no root.
    Empty,
    /// An entry that leaves the key's way in the middle of a jump: had the key been there, there would be a branch.
    Witness {
        /// The key.
        target: Path,
        /// The first entry below the node in whose jump they part.
        witness: Inclusion,
    },
}

impl Exclusion {
    /// Accepts it only if it proves that the tree with this root has nothing under this key. A tree without entries has no root.
    pub fn verify(&self, root: Option<&Hash>, key: &Path) -> Result<(), Refused> {
        let (target, witness, root) = match (self, root) {
            (Exclusion::Empty, None) => return Ok(()),
            (Exclusion::Empty, Some(_)) | (_, None) => return Err(Refused::Root),
            (Exclusion::Witness { target, witness }, Some(root)) => (target, witness, root),
        };
        if target != key {
            return Err(Refused::Other("key"));
        }
        if witness.root()? != *root {
            return Err(Refused::Root);
        }
        let parting = target.common(0, &witness.key);
        if parting >= target.len().min(witness.key.len()) {
            return Err(Refused::Broken("its key and its witness do not part"));
        }
        if witness.branches().any(|branch| branch == parting) {
            return Err(Refused::Broken("its key and its witness part at a branch"));
        }
        // Below where they part the witness is the first there is, so that there is one proof and no other.
        let below = witness.branches().filter(|branch| *branch > parting);
        if below.into_iter().any(|branch| witness.key.bit(branch)) {
            return Err(Refused::Broken("its witness is not the first"));
        }
        Ok(())
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        self.put(&mut encoder);
        encoder.finish()
    }

    pub(super) fn put(&self, encoder: &mut Encoder) {
        match self {
            Exclusion::Empty => {
                encoder.array(1).uint(0);
            }
            Exclusion::Witness { target, witness } => {
                encoder.array(3).uint(1).path(target);
                witness.put_v4(encoder);
            }
        }
    }

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Exclusion, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let proof = Exclusion::take(&mut decoder)?;
        decoder.finish()?;
        Ok(proof)
    }

    pub(super) fn take(decoder: &mut Decoder<'_>) -> Result<Exclusion, Malformed> {
        let start = decoder.clone();
        match (decoder.array()?, decoder.uint()?) {
            (1, 0) => Ok(Exclusion::Empty),
            (3, 1) => {
                let (target, witness) = (decoder.path()?, Inclusion::take_v4(decoder)?);
                Ok(Exclusion::Witness { target, witness })
            }
            _ => Err(start.wrong("this is not a proof of absence")),
        }
    }
}
