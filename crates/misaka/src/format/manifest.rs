//! The manifest of a snapshot: what it is of, and its chunks. It is written last, and ends with its own digest.

use ledger::Writer;

use super::checkpoint;
use super::mcs::{Decoder, put_bytes, put_list, whole};
use super::snapshot::SnapshotHeader;
use crate::error::Rule;
use crate::hash::Hash;

/// What a manifest begins with.
pub const MAGIC: &[u8; 8] = b"MSKSNAP1";
/// Most bytes of a manifest: it is read whole.
pub const MANIFEST_MAX: usize = 16 << 20;
/// Most bytes of a chunk: whoever reads a snapshot has up to eight of them in memory.
pub const CHUNK_MAX: u64 = 128 << 20;
/// Bytes of a chunk in the manifest, but for its two keys.
pub(crate) const CHUNK_LEAST: usize = 16 + 2 * KEY_LEAST + 32;
/// Fewest bytes of a key as it is encoded: its length.
const KEY_LEAST: usize = 4;

/// A chunk of the stream of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its bytes.
    pub len: u64,
    /// Its entries.
    pub entries: u64,
    /// The first key in it.
    pub first: Vec<u8>,
    /// The last one.
    pub last: Vec<u8>,
    /// SHA3-256 of its bytes.
    pub digest: Hash,
}

/// What a snapshot is of, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// What it is of.
    pub header: SnapshotHeader,
    /// The value of the checkpoint in its store: header and digests.
    pub checkpoint: Vec<u8>,
    /// The chunks, in order.
    pub chunks: Vec<Chunk>,
}

impl Manifest {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.bytes(MAGIC).bytes(&self.header.encode());
        put_bytes(&mut writer, &self.checkpoint);
        put_list(&mut writer, &self.chunks, |writer, chunk| {
            writer.u64_le(chunk.len).u64_le(chunk.entries);
            put_bytes(writer, &chunk.first);
            put_bytes(writer, &chunk.last);
            writer.bytes(&chunk.digest.0);
        });
        let mut bytes = writer.finish();
        let digest = Hash::of(&[&bytes]);
        bytes.extend_from_slice(&digest.0);
        bytes
    }

    /// Reads a manifest, and checks it against itself: its digest, and its two headers against each other.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let (body, digest) = bytes.split_last_chunk::<32>().ok_or("the manifest is cut off")?;
        if !body.starts_with(MAGIC) {
            return Err("this is no manifest of a snapshot".to_owned());
        }
        if Hash::of(&[body]).0 != *digest {
            return Err("the manifest is damaged: its digest does not fit".to_owned());
        }
        let manifest = whole(body, |decoder| {
            decoder.take(MAGIC.len())?;
            Ok(Manifest {
                header: SnapshotHeader::decode(decoder.take(super::snapshot::HEADER_LEN)?)?,
                checkpoint: decoder.bytes()?.to_vec(),
                chunks: decoder.list(CHUNK_LEAST, chunk)?,
            })
        });
        let manifest = manifest.map_err(|rule| format!("the manifest is wrong: {rule}"))?;
        let (header, _) = checkpoint::decode_value(&manifest.checkpoint)
            .map_err(|rule| format!("its checkpoint is wrong: {rule}"))?;
        if header.digest() != manifest.header.digest {
            return Err(Rule::CheckpointDigest.to_string());
        }
        if SnapshotHeader::of(&header, manifest.header.state_root_version) != manifest.header {
            return Err(Rule::SnapshotHeader.to_string());
        }
        if let Some(chunk) = manifest.chunks.iter().find(|chunk| chunk.len > CHUNK_MAX) {
            return Err(format!(
                "a chunk of {} bytes, and no more than {CHUNK_MAX} are one",
                chunk.len
            ));
        }
        Ok(manifest)
    }

    /// Bytes of all chunks.
    pub fn len(&self) -> u64 {
        self.chunks.iter().fold(0, |sum, chunk| sum.saturating_add(chunk.len))
    }

    /// True if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Its own digest: two snapshots with the same one are the same.
    pub fn digest(&self) -> Hash {
        Hash::of(&[&self.encode()])
    }
}

fn chunk(decoder: &mut Decoder<'_>) -> Result<Chunk, Rule> {
    Ok(Chunk {
        len: decoder.u64()?,
        entries: decoder.u64()?,
        first: decoder.bytes()?.to_vec(),
        last: decoder.bytes()?.to_vec(),
        digest: Hash(decoder.array()?),
    })
}
