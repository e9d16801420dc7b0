//! A transaction as it stands in a block, wire version 1.

use ledger::{Malformed, Reader};

use crate::hash::Hash;
use crate::outpoint::Outpoint;

/// Fewest bytes of an input, an output, a witness item, and a transaction.
const INPUT_MIN: usize = 41;
const OUTPUT_MIN: usize = 11;
const WITNESS_MIN: usize = 3;
pub(crate) const TRANSACTION_MIN: usize = 19;

/// CORE_P2PK.
pub const P2PK: u16 = 0x0000;
/// CORE_TIMELOCK_V1.
pub const TIMELOCK: u16 = 0x0001;
/// CORE_ANCHOR: the one kind of output that nobody can spend, and that is never stored.
pub const ANCHOR: u16 = 0x0002;
/// CORE_HTLC_V1.
pub const HTLC: u16 = 0x0100;
/// CORE_VAULT_V1.
pub const VAULT: u16 = 0x0101;
/// CORE_HTLC_V2.
pub const HTLC_V2: u16 = 0x0102;

/// An input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// The output it spends.
    pub outpoint: Outpoint,
    /// What goes with that.
    pub script_sig: &'a [u8],
    /// Its sequence number.
    pub sequence: u32,
}

/// An output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// Units.
    pub value: u64,
    /// What it takes to spend it.
    pub covenant_type: u16,
    /// More about that.
    pub covenant_data: &'a [u8],
    /// All of the above as it stands in the transaction, with which a `UtxoEntry` begins.
    pub wire: &'a [u8],
}

impl Output<'_> {
    /// It belongs in the set of outputs that can be spent.
    pub fn is_spendable(&self) -> bool {
        self.covenant_type != ANCHOR
    }
}

/// An item of the witness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessItem<'a> {
    /// Which signatures.
    pub suite_id: u8,
    /// The public key.
    pub pubkey: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction<'a> {
    /// Version of the rules.
    pub version: u32,
    /// Zero only of a coinbase.
    pub nonce: u64,
    /// What it spends.
    pub inputs: Vec<Input<'a>>,
    /// What it makes.
    pub outputs: Vec<Output<'a>>,
    /// The height, of a coinbase.
    pub locktime: u32,
    /// What proves that it may.
    pub witness: Vec<WitnessItem<'a>>,
    /// SHA3-256 of all but the witness.
    pub txid: Hash,
    /// Bytes without the witness, and of the witness.
    pub base_len: usize,
    /// Bytes of the witness section.
    pub witness_len: usize,
}

impl<'a> Transaction<'a> {
    /// Reads one from `bytes`, which the reader stands in.
    pub(crate) fn read(
        bytes: &'a [u8],
        reader: &mut Reader<'a>,
    ) -> Result<Transaction<'a>, Malformed> {
        let start = reader.position();
        let version = reader.u32_le()?;
        let nonce = reader.u64_le()?;
        let count = reader.compact_count(INPUT_MIN)?;
        let mut inputs = Vec::with_capacity(count);
        for _ in 0..count {
            inputs.push(Input {
                outpoint: Outpoint::read(reader)?,
                script_sig: reader.compact_bytes()?,
                sequence: reader.u32_le()?,
            });
        }
        let count = reader.compact_count(OUTPUT_MIN)?;
        let mut outputs = Vec::with_capacity(count);
        for _ in 0..count {
            let from = reader.position();
            let (value, covenant_type) = (reader.u64_le()?, reader.u16_le()?);
            let covenant_data = reader.compact_bytes()?;
            let wire = bytes.get(from..reader.position()).unwrap_or(&[]);
            outputs.push(Output { value, covenant_type, covenant_data, wire });
        }
        let locktime = reader.u32_le()?;
        let base = bytes.get(start..reader.position()).unwrap_or(&[]);
        let witness_at = reader.position();
        let count = reader.compact_count(WITNESS_MIN)?;
        let mut witness = Vec::with_capacity(count);
        for _ in 0..count {
            witness.push(WitnessItem {
                suite_id: reader.u8()?,
                pubkey: reader.compact_bytes()?,
                signature: reader.compact_bytes()?,
            });
        }
        Ok(Transaction {
            version,
            nonce,
            inputs,
            outputs,
            locktime,
            witness,
            txid: Hash::of(&[base]),
            base_len: base.len(),
            witness_len: reader.position() - witness_at,
        })
    }

    /// Decodes one; nothing may be left over.
    pub fn decode(bytes: &'a [u8]) -> Result<Transaction<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let transaction = Transaction::read(bytes, &mut reader)?;
        reader.finish()?;
        Ok(transaction)
    }

    /// An outpoint of this transaction.
    pub fn outpoint(&self, vout: usize) -> Outpoint {
        Outpoint::new(self.txid, u32::try_from(vout).unwrap_or(u32::MAX))
    }
}
