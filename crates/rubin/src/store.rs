//! Reading rows as what they are. Whatever is read is checked: a block must have the hash that it is stored under.

use ledger::{Bytes, Snapshot};

use crate::code::Code;
use crate::error::Error;
use crate::hash::Hash;
use crate::header::Header;
use crate::index::BlockIndex;
use crate::tables::{BLOCKS, HEADERS, INDEX, META, REASONS, UNDO};
use crate::undo::UndoRecord;

/// Keys of the store's own table.
pub(crate) const APPLIED: &[u8] = b"applied";
pub(crate) const UTXO_COUNT: &[u8] = b"utxo_count";
pub(crate) const REORG_TARGET: &[u8] = b"reorg_target";
pub(crate) const FIRST_BLOCK: &[u8] = b"first_block";

/// A snapshot, read as what it holds.
#[derive(Clone, Copy)]
pub(crate) struct Store<'a> {
    pub(crate) snapshot: &'a dyn Snapshot,
}

impl<'a> Store<'a> {
    pub(crate) fn new(snapshot: &'a dyn Snapshot) -> Store<'a> {
        Store { snapshot }
    }

    pub(crate) fn index(&self, hash: Hash) -> Result<Option<BlockIndex>, Error> {
        let Some(bytes) = self.snapshot.get(INDEX, hash.as_bytes())? else { return Ok(None) };
        let index = BlockIndex::decode(&bytes);
        index.map(Some).map_err(|wrong| Error::damaged(INDEX, hash.as_bytes(), wrong))
    }

    pub(crate) fn need_index(&self, hash: Hash) -> Result<BlockIndex, Error> {
        self.index(hash)?.ok_or(Error::IndexMissing(hash))
    }

    pub(crate) fn header(&self, hash: Hash) -> Result<Option<Header>, Error> {
        let Some(bytes) = self.snapshot.get(HEADERS, hash.as_bytes())? else { return Ok(None) };
        check_identity("headers_by_hash", hash, &bytes)?;
        let header = Header::decode(&bytes);
        header.map(Some).map_err(|wrong| Error::damaged(HEADERS, hash.as_bytes(), wrong))
    }

    pub(crate) fn block(&self, hash: Hash) -> Result<Option<Bytes<'a>>, Error> {
        let Some(bytes) = self.snapshot.get(BLOCKS, hash.as_bytes())? else { return Ok(None) };
        check_identity("blocks_by_hash", hash, bytes.get(..Header::LEN).unwrap_or(&[]))?;
        Ok(Some(bytes))
    }

    pub(crate) fn need_block(&self, hash: Hash) -> Result<Bytes<'a>, Error> {
        self.block(hash)?.ok_or(Error::BlockMissing(hash))
    }

    pub(crate) fn need_undo(&self, hash: Hash) -> Result<Bytes<'a>, Error> {
        let undo = self.snapshot.get(UNDO, hash.as_bytes())?.ok_or(Error::UndoMissing(hash))?;
        UndoRecord::decode(&undo).map_err(|wrong| Error::damaged(UNDO, hash.as_bytes(), wrong))?;
        Ok(undo)
    }

    /// The rule that an invalid block breaks, if it was noted.
    pub(crate) fn reason(&self, hash: Hash) -> Result<Option<Code>, Error> {
        let reason = self.snapshot.get(REASONS, hash.as_bytes())?;
        Ok(reason.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()))
    }

    /// The block that the set of outputs is of.
    pub(crate) fn applied(&self) -> Result<Option<Hash>, Error> {
        let bytes = self.snapshot.get(META, APPLIED)?;
        Ok(bytes.and_then(|bytes| Hash::from_slice(&bytes)))
    }

    /// How many outputs there are.
    pub(crate) fn utxo_count(&self) -> Result<u64, Error> {
        let bytes = self.snapshot.get(META, UTXO_COUNT)?;
        let count = bytes.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok());
        Ok(count.map_or(0, u64::from_le_bytes))
    }

    /// The height from which on the applied chain has all its blocks and undo records. A chain from an export has not more,
    /// beside genesis.
    pub(crate) fn first_block(&self) -> Result<u64, Error> {
        let bytes = self.snapshot.get(META, FIRST_BLOCK)?;
        let height = bytes.and_then(|bytes| <[u8; 8]>::try_from(&*bytes).ok());
        Ok(height.map_or(0, u64::from_le_bytes))
    }

    /// The block that a reorg was on its way to.
    pub(crate) fn reorg_target(&self) -> Result<Option<Hash>, Error> {
        let bytes = self.snapshot.get(META, REORG_TARGET)?;
        Ok(bytes.and_then(|bytes| Hash::from_slice(&bytes)))
    }
}

fn check_identity(table: &'static str, hash: Hash, header: &[u8]) -> Result<(), Error> {
    if Hash::of(&[header]) == hash {
        return Ok(());
    }
    Err(Error::Damaged {
        table,
        key: hash.to_string(),
        wrong: "the bytes have another hash".to_owned(),
    })
}
