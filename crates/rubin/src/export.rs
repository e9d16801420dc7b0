//! The chainstate in one file: all headers, the set with its hash, and the newest blocks with their undo records, so that a node
//! that starts from it can go on, and back as far as those blocks.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `RUBNSNP1` |
//! | 32 | chain id |
//! | 8 | tip height, u64le |
//! | 32 | tip hash |
//! | 8 | outputs, u64le |
//! | 32 | utxo_set_hash |
//! | 4 | blocks, u32le |
//! | 116 each | headers from genesis to the tip |
//! | 36 + 4 + n each | outputs in key order: outpoint, length u32le, `UtxoEntry` |
//! | 4 + n + 4 + m each | the newest blocks, the oldest first: length u32le, block, length u32le, undo record |
//! | 32 | SHA3-256 of everything before |

use std::io::{self, Read, Write};
use std::ops::{Bound, RangeInclusive};

use host::Dir;
use ledger::{Batch, Engine};
use sha3::{Digest, Sha3_256};

use crate::block::Block;
use crate::chain::ChainView;
use crate::coins::Before;
use crate::entry::UtxoEntry;
use crate::error::Error;
use crate::genesis::Genesis;
use crate::hash::Hash;
use crate::header::Header;
use crate::index::{BlockIndex, Status};
use crate::manifest::{Manifest, SCHEMA_VERSION, Tip};
use crate::outpoint::Outpoint;
use crate::rules::{MEDIAN, WINDOW, expected_target, is_above_median, proves_work};
use crate::set_hash::SetHash;
use crate::store::{APPLIED, FIRST_BLOCK, Store, UTXO_COUNT};
use crate::tables::{BLOCKS, HEADERS, HEIGHTS, INDEX, META, UNDO, UTXO};
use crate::transition::Transition;
use crate::undo::UndoRecord;
use crate::validator::HeaderContext;
use crate::work::Work;

const MAGIC: &[u8; 8] = b"RUBNSNP1";
/// Rows written in one batch.
const BATCH_ROWS: usize = 50_000;
/// Longest entry, block or undo record that is believed.
const LEN_MAX: u32 = 64 << 20;

/// What an export is of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Export {
    /// The tip.
    pub tip_hash: Hash,
    /// Its height.
    pub tip_height: u64,
    /// Outputs.
    pub utxo_count: u64,
    /// The hash over them.
    pub utxo_set_hash: Hash,
    /// Blocks in it.
    pub blocks: u32,
    /// SHA3-256 of all bytes of the file.
    pub digest: Hash,
}

struct Out<'a> {
    out: &'a mut dyn Write,
    digest: Sha3_256,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.digest.update(bytes);
        self.out.write_all(bytes).map_err(Error::io("write the export"))
    }

    fn put_long(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.put(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        self.put(bytes)
    }
}

impl ChainView<'_> {
    /// Writes the chainstate, with at most so many of the newest blocks and at least the tip's.
    pub fn export(
        &self,
        genesis: &Genesis,
        blocks_max: u32,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Export, Error> {
        let store = Store::new(self.snapshot());
        let (utxo_count, utxo_set_hash) = self.utxo_set_hash()?;
        let tip = self.tip();
        let there = tip.height.saturating_add(1).saturating_sub(store.first_block()?);
        let blocks = u64::from(blocks_max).min(there).max(1);
        let block_count = u32::try_from(blocks).unwrap_or(u32::MAX);
        let mut out = Out { out, digest: Sha3_256::new() };
        out.put(MAGIC)?;
        out.put(genesis.chain_id().as_bytes())?;
        out.put(&tip.height.to_le_bytes())?;
        out.put(tip.hash.as_bytes())?;
        out.put(&utxo_count.to_le_bytes())?;
        out.put(utxo_set_hash.as_bytes())?;
        out.put(&block_count.to_le_bytes())?;
        for height in 0..=tip.height {
            let hash = self.hash_at(height)?;
            let header = store.header(hash)?.ok_or(Error::BlockMissing(hash))?;
            out.put(&header.encode())?;
        }
        let mut done = 0;
        for row in self.snapshot().scan(UTXO, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, entry) = row?;
            out.put(&key)?;
            out.put_long(&entry)?;
            done += 1;
            progress(done, utxo_count);
        }
        for height in tip.height + 1 - blocks..=tip.height {
            let hash = self.hash_at(height)?;
            out.put_long(&store.need_block(hash)?)?;
            out.put_long(&store.need_undo(hash)?)?;
        }
        let seal = out.digest.clone().finalize();
        out.put(&seal)?;
        Ok(Export {
            tip_hash: tip.hash,
            tip_height: tip.height,
            utxo_count,
            utxo_set_hash,
            blocks: block_count,
            digest: Hash(out.digest.finalize().into()),
        })
    }

    /// The block of the applied chain at a height.
    pub fn hash_at(&self, height: u64) -> Result<Hash, Error> {
        let hash = self.snapshot().get(HEIGHTS, &height.to_be_bytes())?;
        let hash = hash.and_then(|hash| Hash::from_slice(&hash));
        hash.ok_or_else(|| Error::Inconsistent(format!("there is no block at height {height}")))
    }
}

struct In<'a> {
    input: &'a mut dyn Read,
    digest: Sha3_256,
}

impl In<'_> {
    fn take(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => wrong("it ends too early"),
            _ => Error::Io { doing: "read the export", source: error },
        })?;
        self.digest.update(&*bytes);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.take(&mut bytes)?;
        Ok(bytes)
    }

    fn long(&mut self) -> Result<Vec<u8>, Error> {
        let len = u32::from_le_bytes(self.array()?);
        if len > LEN_MAX {
            return Err(wrong("a length is beyond all bounds"));
        }
        // What is announced is not reserved before it is there.
        let mut bytes = Vec::new();
        let mut left = usize::try_from(len).unwrap_or(usize::MAX);
        while left > 0 {
            let from = bytes.len();
            bytes.resize(from + left.min(1 << 20), 0);
            self.take(bytes.get_mut(from..).unwrap_or(&mut []))?;
            left -= bytes.len() - from;
        }
        Ok(bytes)
    }
}

fn wrong(what: &str) -> Error {
    Error::Export(what.to_owned())
}

/// Puts an export into an engine that has nothing, and writes the manifest when all of it is there and its hashes hold. If
/// `expected` is given, the set or the whole file must have that hash.
pub fn restore_on(
    engine: &dyn Engine,
    home: &dyn Dir,
    genesis: &Genesis,
    input: &mut dyn Read,
    expected: Option<Hash>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Export, Error> {
    let mut input = In { input, digest: Sha3_256::new() };
    if &input.array::<8>()? != MAGIC {
        return Err(wrong("it is not an export of this kind"));
    }
    let chain_id = Hash(input.array()?);
    if chain_id != genesis.chain_id() {
        return Err(Error::ForeignChain {
            found: chain_id.to_string(),
            wanted: genesis.chain_id().to_string(),
        });
    }
    let tip_height = u64::from_le_bytes(input.array()?);
    let tip_hash = Hash(input.array()?);
    let utxo_count = u64::from_le_bytes(input.array()?);
    let utxo_set_hash = Hash(input.array()?);
    let blocks = u32::from_le_bytes(input.array()?);
    if blocks == 0 || u64::from(blocks) > tip_height.saturating_add(1) {
        return Err(wrong("it has no blocks, or more than there are"));
    }
    let mut loader = Loader { engine, batch: Batch::new() };
    let tip = import_headers(&mut input, &mut loader, genesis, tip_height)?;
    if tip.hash != tip_hash {
        return Err(wrong("its headers do not end in its tip"));
    }
    let mut set = SetHash::new(utxo_count);
    let mut last: Option<Outpoint> = None;
    for done in 0..utxo_count {
        let key = input.array::<{ Outpoint::LEN }>()?;
        let outpoint = Outpoint::from_slice(&key).filter(|one| last.is_none_or(|last| last < *one));
        let outpoint = outpoint.ok_or_else(|| wrong("its outputs are not in order"))?;
        last = Some(outpoint);
        let entry = input.long()?;
        UtxoEntry::decode(&entry).map_err(|_| wrong("an output is not well formed"))?;
        set.add(&key, &entry);
        loader.put(UTXO, &key, &entry)?;
        progress(done + 1, utxo_count);
    }
    if set.finish() != utxo_set_hash {
        return Err(wrong("its outputs do not have the hash that it says"));
    }
    let first = tip_height.saturating_add(1).saturating_sub(blocks.into());
    if import_blocks(&mut input, &mut loader, first..=tip_height)? != tip_hash {
        return Err(wrong("its blocks do not end in its tip"));
    }
    let seal: [u8; 32] = input.digest.clone().finalize().into();
    if input.array::<32>()? != seal {
        return Err(wrong("its last hash is not that of the rest"));
    }
    let digest = Hash(input.digest.clone().finalize().into());
    if input.input.read(&mut [0]).map_err(Error::io("read the export"))? > 0 {
        return Err(wrong("bytes are left over"));
    }
    if expected.is_some_and(|expected| expected != utxo_set_hash && expected != digest) {
        return Err(wrong("neither the file nor its set has the hash that was expected"));
    }
    put_genesis(&mut loader, genesis)?;
    loader.put(META, FIRST_BLOCK, &first.to_le_bytes())?;
    loader.put(META, UTXO_COUNT, &utxo_count.to_le_bytes())?;
    loader.put(META, APPLIED, tip_hash.as_bytes())?;
    loader.finish()?;
    // Order: whoever sees the manifest sees everything else.
    Manifest { schema_version: SCHEMA_VERSION, chain_id, tip }.write(home)?;
    Ok(Export { tip_hash, tip_height, utxo_count, utxo_set_hash, blocks, digest })
}

/// Blocks of these heights, each following the one before, with what it takes to take them back. Gives the last one.
fn import_blocks(
    input: &mut In<'_>,
    loader: &mut Loader<'_>,
    heights: RangeInclusive<u64>,
) -> Result<Hash, Error> {
    let mut newest = Hash::ZERO;
    for height in heights {
        let (bytes, undo_bytes) = (input.long()?, input.long()?);
        let block = Block::decode(&bytes).map_err(|_| wrong("a block is not well formed"))?;
        let undo = UndoRecord::decode(&undo_bytes)
            .map_err(|_| wrong("an undo record is not well formed"))?;
        let is_next = newest == Hash::ZERO || block.header.prev_hash == newest;
        if !is_next || block.merkle_root() != Some(block.header.merkle_root) {
            return Err(wrong("its blocks do not follow each other"));
        }
        if !Transition::may_be_undone_by(&block, height, &undo) {
            return Err(wrong("an undo record is not that of its block"));
        }
        newest = block.hash;
        loader.put(BLOCKS, newest.as_bytes(), &bytes)?;
        loader.put(UNDO, newest.as_bytes(), &undo_bytes)?;
    }
    Ok(newest)
}

/// The first block, which is always there: it says which chain this is.
fn put_genesis(loader: &mut Loader<'_>, genesis: &Genesis) -> Result<(), Error> {
    let hash = genesis.hash();
    let block = Block::decode(genesis.bytes()).map_err(|_| wrong("genesis is not well formed"))?;
    let before = Before::default();
    let transition =
        Transition::of(&block, 0, &before).map_err(|_| wrong("genesis spends something"))?;
    loader.put(BLOCKS, hash.as_bytes(), genesis.bytes())?;
    loader.put(UNDO, hash.as_bytes(), &transition.undo().encode())
}

/// Rows on their way into an engine.
struct Loader<'a> {
    engine: &'a dyn Engine,
    batch: Batch,
}

impl Loader<'_> {
    fn put(&mut self, table: ledger::Table, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.batch.put(table, key, value);
        if self.batch.len() >= BATCH_ROWS || self.batch.byte_len() >= 16 << 20 {
            self.finish()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(self.engine.commit(std::mem::take(&mut self.batch))?)
    }
}

/// Headers from genesis to the tip, each following the one before by the rules.
fn import_headers(
    input: &mut In<'_>,
    loader: &mut Loader<'_>,
    genesis: &Genesis,
    tip_height: u64,
) -> Result<Tip, Error> {
    let mut tip = Tip { hash: Hash::ZERO, height: 0, work: Work::zero() };
    let mut before: Option<HeaderContext> = None;
    for height in 0..=tip_height {
        let bytes = input.array::<{ Header::LEN }>()?;
        let header = Header::decode(&bytes).map_err(|_| wrong("a header is not well formed"))?;
        let hash = Hash::of(&[&bytes]);
        let own = Work::of_target(&header.target).ok_or_else(|| wrong("a header has no work"))?;
        let is_first = height > 0 || hash == genesis.hash();
        if header.prev_hash != tip.hash || !is_first {
            return Err(wrong("its headers do not follow each other from genesis on"));
        }
        if let Some(context) = &before {
            check_header(hash, &header, context)?;
        }
        tip = Tip { hash, height, work: tip.work.plus(&own) };
        let index = BlockIndex {
            height,
            prev_hash: header.prev_hash,
            status: Status::Valid,
            work: tip.work.clone(),
        };
        loader.put(HEADERS, hash.as_bytes(), &bytes)?;
        loader.put(INDEX, hash.as_bytes(), &index.encode())?;
        loader.put(HEIGHTS, &height.to_be_bytes(), hash.as_bytes())?;
        before = Some(after(before, height, hash, header));
    }
    Ok(tip)
}

/// The rules of headers, but for the clock of whoever imports.
fn check_header(hash: Hash, header: &Header, context: &HeaderContext) -> Result<(), Error> {
    if !proves_work(hash, &header.target) {
        return Err(wrong("a header has not the work that it says"));
    }
    if header.target != expected_target(context) {
        return Err(wrong("a header has another target than it should have"));
    }
    if !is_above_median(header.timestamp, &context.timestamps) {
        return Err(wrong("a header has an old timestamp"));
    }
    Ok(())
}

/// What is before the next header.
fn after(
    before: Option<HeaderContext>,
    height: u64,
    parent_hash: Hash,
    parent: Header,
) -> HeaderContext {
    let (mut timestamps, mut window_start) = match before {
        Some(before) => (before.timestamps, before.window_start),
        None => (Vec::new(), None),
    };
    timestamps.insert(0, parent.timestamp);
    timestamps.truncate(usize::try_from(MEDIAN).unwrap_or(usize::MAX));
    if height.is_multiple_of(WINDOW) {
        window_start = Some(parent.timestamp);
    }
    let height = height.saturating_add(1);
    HeaderContext { height, parent_hash, parent, timestamps, window_start, local_time: None }
}
