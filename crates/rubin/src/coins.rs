//! The set of outputs while a block is applied to it.
//!
//! [`Before`] holds what the set had before the block, as far as the block touches it: every input's entry, and whatever an
//! output of the block would take the place of. It is read once. [`Coins`] goes through the block on top of that, as often as
//! somebody wants: the validator does, and then the store itself.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ledger::Bytes;

use crate::block::Block;
use crate::entry::UtxoEntry;
use crate::error::Error;
use crate::outpoint::Outpoint;
use crate::tables::UTXO;
use crate::transaction::{Output, Transaction};

/// Where entries are read from.
pub(crate) trait Source {
    /// The entry of an outpoint.
    fn entry(&self, outpoint: &Outpoint) -> Result<Option<Bytes<'_>>, Error>;
}

/// What the set had before a block.
#[derive(Debug, Default)]
pub struct Before<'a> {
    entries: HashMap<Outpoint, Bytes<'a>>,
}

impl<'a> Before<'a> {
    /// Reads what a block touches.
    pub(crate) fn read(source: &'a dyn Source, block: &Block<'_>) -> Result<Before<'a>, Error> {
        let inputs: usize = block.transactions.iter().map(|one| one.inputs.len()).sum();
        let mut before = Before { entries: HashMap::with_capacity(inputs) };
        for (number, transaction) in block.transactions.iter().enumerate() {
            if number > 0 {
                for input in &transaction.inputs {
                    before.load(source, &input.outpoint)?;
                }
            }
            for (vout, output) in transaction.outputs.iter().enumerate() {
                if output.is_spendable() {
                    // A transaction without inputs may come again.
                    before.load(source, &transaction.outpoint(vout))?;
                }
            }
        }
        Ok(before)
    }

    fn load(&mut self, source: &'a dyn Source, outpoint: &Outpoint) -> Result<(), Error> {
        if let Entry::Vacant(vacant) = self.entries.entry(*outpoint)
            && let Some(bytes) = source.entry(outpoint)?
        {
            UtxoEntry::decode(&bytes)
                .map_err(|wrong| Error::damaged(UTXO, outpoint.as_bytes(), wrong))?;
            vacant.insert(bytes);
        }
        Ok(())
    }

    /// A set of given entries, for whoever has no store.
    pub fn of(entries: impl IntoIterator<Item = (Outpoint, Vec<u8>)>) -> Before<'static> {
        let entries = entries.into_iter().map(|(outpoint, entry)| (outpoint, Bytes::Owned(entry)));
        Before { entries: entries.collect() }
    }

    pub(crate) fn get(&self, outpoint: &Outpoint) -> Option<&[u8]> {
        self.entries.get(outpoint).map(|entry| &**entry)
    }
}

/// An output that a block makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'b> {
    pub(crate) output: &'b Output<'b>,
    pub(crate) is_coinbase: bool,
}

/// What became of an outpoint in the block so far.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Now<'b> {
    Gone,
    Made(Made<'b>),
}

/// The set as it is somewhere within a block.
#[derive(Debug)]
pub struct Coins<'b> {
    before: &'b Before<'b>,
    height: u64,
    pub(crate) now: HashMap<Outpoint, Now<'b>>,
}

impl<'b> Coins<'b> {
    /// The set before the block of a height.
    pub fn new(before: &'b Before<'b>, height: u64) -> Coins<'b> {
        Coins { before, height, now: HashMap::with_capacity(before.entries.len()) }
    }

    /// Takes an output out of the set; none if it is not there.
    pub fn spend(&mut self, outpoint: &Outpoint) -> Option<UtxoEntry<'b>> {
        match self.now.get(outpoint) {
            Some(Now::Gone) => None,
            Some(Now::Made(made)) => {
                let entry = self.entry_of(*made);
                self.now.insert(*outpoint, Now::Gone);
                Some(entry)
            }
            None => {
                let bytes = self.before.get(outpoint)?;
                self.now.insert(*outpoint, Now::Gone);
                // It was checked when it was read.
                UtxoEntry::decode(bytes).ok()
            }
        }
    }

    /// Puts the outputs of a transaction into the set, but for those that nobody can spend.
    pub fn create(&mut self, transaction: &'b Transaction<'b>, is_coinbase: bool) {
        for (vout, output) in transaction.outputs.iter().enumerate() {
            if output.is_spendable() {
                let made = Made { output, is_coinbase };
                self.now.insert(transaction.outpoint(vout), Now::Made(made));
            }
        }
    }

    fn entry_of(&self, made: Made<'b>) -> UtxoEntry<'b> {
        UtxoEntry {
            value: made.output.value,
            covenant_type: made.output.covenant_type,
            covenant_data: made.output.covenant_data,
            creation_height: self.height,
            created_by_coinbase: made.is_coinbase,
        }
    }
}
