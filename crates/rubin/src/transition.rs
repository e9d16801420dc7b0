//! What a block does to the set: the difference between before and after, and how to take it back.

use std::collections::HashSet;

use ledger::Batch;

use crate::block::Block;
use crate::code::Code;
use crate::coins::{Before, Coins, Made, Now};
use crate::entry::UtxoEntry;
use crate::outpoint::Outpoint;
use crate::tables::UTXO;
use crate::undo::UndoRecord;

/// The difference a block makes.
#[derive(Debug)]
pub(crate) struct Transition<'b> {
    height: u64,
    /// What was there before and is gone or another, with the entry it had.
    spent: Vec<(Outpoint, &'b [u8])>,
    /// What was not there before, with what it is.
    created: Vec<(Outpoint, Made<'b>)>,
    /// What was there before and is another now.
    replaced: Vec<(Outpoint, Made<'b>)>,
}

impl<'b> Transition<'b> {
    /// Goes through a block. Fails where it spends what is not there.
    pub(crate) fn of(
        block: &'b Block<'b>,
        height: u64,
        before: &'b Before<'b>,
    ) -> Result<Transition<'b>, Code> {
        let mut coins = Coins::new(before, height);
        let mut touched = Vec::new();
        let mut made = Vec::new();
        for (number, transaction) in block.transactions.iter().enumerate() {
            let is_coinbase = number == 0;
            if !is_coinbase {
                for input in &transaction.inputs {
                    coins.spend(&input.outpoint).ok_or(Code::TxMissingUtxo)?;
                    touched.push(input.outpoint);
                }
            }
            for (vout, output) in transaction.outputs.iter().enumerate() {
                if output.is_spendable() {
                    let outpoint = transaction.outpoint(vout);
                    touched.push(outpoint);
                    made.push(outpoint);
                }
            }
            coins.create(transaction, is_coinbase);
        }
        let mut transition = Transition {
            height,
            spent: Vec::new(),
            created: Vec::with_capacity(made.len()),
            replaced: Vec::new(),
        };
        let mut seen = HashSet::new();
        for outpoint in touched {
            if let Some(entry) = before.get(&outpoint)
                && seen.insert(outpoint)
            {
                transition.spent.push((outpoint, entry));
                if let Some(Now::Made(made)) = coins.now.get(&outpoint) {
                    transition.replaced.push((outpoint, *made));
                }
            }
        }
        for outpoint in made {
            // The same txid twice in one block is one output.
            if before.get(&outpoint).is_none()
                && let Some(Now::Made(made)) = coins.now.remove(&outpoint)
            {
                transition.created.push((outpoint, made));
            }
        }
        Ok(transition)
    }

    /// What it takes to take it back.
    pub(crate) fn undo(&self) -> UndoRecord<'b> {
        UndoRecord {
            spent: self.spent.clone(),
            created: self.created.iter().map(|(outpoint, _)| *outpoint).collect(),
        }
    }

    /// True if an undo record can be that of a block: it spends and makes what the block does, and nothing else. What the spent
    /// outputs were, only a set from before the block can tell.
    pub(crate) fn may_be_undone_by(block: &Block<'_>, height: u64, undo: &UndoRecord<'_>) -> bool {
        let is_before = |entry: &[u8]| {
            UtxoEntry::decode(entry).is_ok_and(|entry| entry.creation_height < height)
        };
        let spent = undo.spent.iter().map(|(outpoint, entry)| (*outpoint, entry.to_vec()));
        let before = Before::of(spent);
        undo.spent.iter().all(|(_, entry)| is_before(entry))
            && Transition::of(block, height, &before).is_ok_and(|made| made.undo() == *undo)
    }

    /// How many outputs more there are afterwards, and how many fewer.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let wide = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        (wide(self.created.len()), wide(self.spent.len() - self.replaced.len()))
    }

    /// The changes, in a batch.
    pub(crate) fn write(&self, batch: &mut Batch) {
        let replaced: HashSet<Outpoint> =
            self.replaced.iter().map(|(outpoint, _)| *outpoint).collect();
        for (outpoint, _) in &self.spent {
            if !replaced.contains(outpoint) {
                batch.delete(UTXO, outpoint.as_bytes());
            }
        }
        for (outpoint, made) in self.created.iter().chain(&self.replaced) {
            let height = self.height.to_le_bytes();
            let flag = [u8::from(made.is_coinbase)];
            batch.put_parts(UTXO, &[outpoint.as_bytes()], &[made.output.wire, &height, &flag]);
        }
    }

    /// The entries it makes, and those it takes away, for whoever keeps the set in memory.
    pub(crate) fn for_each(&self, mut change: impl FnMut(Outpoint, Option<Vec<u8>>)) {
        for (outpoint, _) in &self.spent {
            change(*outpoint, None);
        }
        for (outpoint, made) in self.created.iter().chain(&self.replaced) {
            let flag = [u8::from(made.is_coinbase)];
            let parts = [made.output.wire, &self.height.to_le_bytes(), &flag];
            change(*outpoint, Some(parts.concat()));
        }
    }
}
