//! A block: a header and transactions, the value of `blocks_by_hash`.

use ledger::{Malformed, Reader};

use crate::hash::Hash;
use crate::header::Header;
use crate::transaction::{TRANSACTION_MIN, Transaction};

/// A block, lent from its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Its hash.
    pub hash: Hash,
    /// Its header.
    pub header: Header,
    /// Its transactions, the coinbase first.
    pub transactions: Vec<Transaction<'a>>,
}

impl<'a> Block<'a> {
    /// Decodes one; nothing may be left over.
    pub fn decode(bytes: &'a [u8]) -> Result<Block<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let header = Header::read(&mut reader)?;
        let hash = Hash::of(&[bytes.get(..Header::LEN).unwrap_or(&[])]);
        let count = reader.compact_count(TRANSACTION_MIN)?;
        let mut transactions = Vec::with_capacity(count);
        for _ in 0..count {
            transactions.push(Transaction::read(bytes, &mut reader)?);
        }
        reader.finish()?;
        Ok(Block { bytes, hash, header, transactions })
    }

    /// The header's bytes.
    pub fn header_bytes(&self) -> &'a [u8] {
        self.bytes.get(..Header::LEN).unwrap_or(&[])
    }

    /// The root over the transactions; none of a block without any.
    pub fn merkle_root(&self) -> Option<Hash> {
        let leaves = self.transactions.iter().map(|transaction| transaction.txid);
        merkle_root(leaves.collect())
    }
}

/// The root over txids: leaves and nodes are told apart by their first byte, and an odd one moves up as it is.
pub fn merkle_root(txids: Vec<Hash>) -> Option<Hash> {
    let mut level: Vec<Hash> =
        txids.into_iter().map(|txid| Hash::of(&[&[0], txid.as_ref()])).collect();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => Hash::of(&[&[1], left.as_ref(), right.as_ref()]),
                [odd, ..] => *odd,
                [] => Hash::ZERO,
            })
            .collect();
    }
    level.first().copied()
}
