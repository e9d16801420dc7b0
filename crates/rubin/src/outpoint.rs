//! An outpoint: which output of which transaction.

use std::fmt;

use ledger::{Malformed, Reader};

use crate::hash::Hash;

/// An output of a transaction, as the key of `utxo_by_outpoint`: txid, then the output's number as u32le. So keys are not in
/// the order of the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Outpoint([u8; 36]);

impl Outpoint {
    /// Bytes of the key.
    pub const LEN: usize = 36;

    /// Output `vout` of a transaction.
    pub fn new(txid: Hash, vout: u32) -> Outpoint {
        let mut bytes = [0; 36];
        let (hash, number) = bytes.split_at_mut(32);
        hash.copy_from_slice(&txid.0);
        number.copy_from_slice(&vout.to_le_bytes());
        Outpoint(bytes)
    }

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Outpoint, Malformed> {
        reader.array().map(Outpoint)
    }

    /// From a key; none if it has not 36 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Outpoint> {
        bytes.try_into().ok().map(Outpoint)
    }

    /// The key.
    pub fn as_bytes(&self) -> &[u8; 36] {
        &self.0
    }

    /// The transaction.
    pub fn txid(&self) -> Hash {
        let mut txid = Hash::ZERO;
        txid.0.iter_mut().zip(&self.0).for_each(|(to, from)| *to = *from);
        txid
    }

    /// The output's number.
    pub fn vout(&self) -> u32 {
        self.0.last_chunk().copied().map_or(0, u32::from_le_bytes)
    }

    /// What a coinbase has for its input.
    pub fn is_null(&self) -> bool {
        self.txid() == Hash::ZERO && self.vout() == u32::MAX
    }
}

impl fmt::Display for Outpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.txid(), self.vout())
    }
}

impl fmt::Debug for Outpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
