//! Verifying a chain: every block from the tip to genesis, and the set against all of them.

use std::collections::HashMap;
use std::ops::Bound;

use crate::block::Block;
use crate::chain::ChainView;
use crate::coins::{Before, Source};
use crate::entry::UtxoEntry;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::Status;
use crate::outpoint::Outpoint;
use crate::store::Store;
use crate::tables::{HEIGHTS, UTXO};
use crate::transition::Transition;
use crate::undo::UndoRecord;
use crate::work::Work;

use ledger::Bytes;

/// What verifying a chain found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainCheck {
    /// What is wrong, block by block.
    pub findings: Vec<String>,
    /// Blocks looked at.
    pub blocks: u64,
    /// Outputs looked at.
    pub outputs: u64,
    /// The set was compared with what all blocks make of it.
    pub is_replayed: bool,
}

/// The set, as blocks make it.
#[derive(Default)]
struct Replay {
    entries: HashMap<Outpoint, Vec<u8>>,
}

impl Source for Replay {
    fn entry(&self, outpoint: &Outpoint) -> Result<Option<Bytes<'_>>, Error> {
        Ok(self.entries.get(outpoint).map(|entry| Bytes::Borrowed(entry.as_slice())))
    }
}

impl ChainView<'_> {
    /// Verifies the applied chain: links, heights, work, identity of headers and blocks, the index by height, undo records. With
    /// `replay` also applies all blocks in memory, and compares every undo record and the set with what comes of it; that takes
    /// as much memory as the set, and all blocks, which a chain from an export has not. `progress` is told how many blocks are
    /// done, of how many.
    pub fn verify(
        &self,
        genesis: Hash,
        replay: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<ChainCheck, Error> {
        let first = Store::new(self.snapshot()).first_block()?;
        let replay = replay && first <= 1;
        let mut check = ChainCheck { is_replayed: replay, ..ChainCheck::default() };
        let hashes = self.walk_back(genesis, &mut check)?;
        let total = u64::try_from(hashes.len()).unwrap_or(u64::MAX);
        let mut set = Replay::default();
        let mut work = Work::zero();
        let mut prev = Hash::ZERO;
        for (height, hash) in (0_u64..).zip(hashes.iter().rev()) {
            self.check_header(height, *hash, prev, &mut work, &mut check)?;
            prev = *hash;
            if height == 0 || height >= first {
                self.check_block(height, *hash, replay.then_some(&mut set), &mut check)?;
            }
            check.blocks += 1;
            progress(check.blocks, total);
        }
        self.check_set(replay.then_some(&set), &mut check)?;
        Ok(check)
    }

    /// The hashes of the applied chain, the tip first. Headers are followed, not the index: they cannot go in a circle.
    fn walk_back(&self, genesis: Hash, check: &mut ChainCheck) -> Result<Vec<Hash>, Error> {
        let store = Store::new(self.snapshot());
        let mut hashes = Vec::new();
        let mut hash = self.tip().hash;
        let mut height = self.tip().height;
        loop {
            hashes.push(hash);
            let Some(index) = store.index(hash)? else {
                check.findings.push(format!("block {hash}: the index does not know it"));
                return Ok(hashes);
            };
            if index.height != height || index.status != Status::Valid {
                check.findings.push(format!(
                    "block {hash}: the index says height {} and {}, and it is applied at height {height}",
                    index.height,
                    index.status.name()
                ));
            }
            if height == 0 || hash == genesis {
                if height != 0 || hash != genesis {
                    check.findings.push(format!(
                        "block {hash} is at height {height}, and genesis is {genesis}"
                    ));
                }
                return Ok(hashes);
            }
            let Ok(Some(header)) = store.header(hash) else {
                check.findings.push(format!(
                    "block {hash}: without its header, nothing before it can be found"
                ));
                return Ok(hashes);
            };
            hash = header.prev_hash;
            height -= 1;
        }
    }

    fn check_header(
        &self,
        height: u64,
        hash: Hash,
        prev: Hash,
        work: &mut Work,
        check: &mut ChainCheck,
    ) -> Result<(), Error> {
        let store = Store::new(self.snapshot());
        let mut find =
            |what: String| check.findings.push(format!("block {hash} at height {height}: {what}"));
        let by_height = self.snapshot().get(HEIGHTS, &height.to_be_bytes())?;
        if by_height.as_deref() != Some(hash.as_bytes().as_slice()) {
            find("the index by height names another".to_owned());
        }
        match store.header(hash) {
            Ok(Some(header)) => {
                let index = store.index(hash)?;
                let is_linked = index.as_ref().is_none_or(|index| index.prev_hash == prev);
                if header.prev_hash != prev || !is_linked {
                    find("its header follows another block than the index says".to_owned());
                }
                *work = work.plus(&Work::of_target(&header.target).unwrap_or_default());
                if index.is_some_and(|index| index.work != *work) {
                    find(format!("the index has other work than {work}"));
                }
            }
            Ok(None) => find("its header is missing".to_owned()),
            Err(error) => find(error.to_string()),
        }
        Ok(())
    }

    fn check_block(
        &self,
        height: u64,
        hash: Hash,
        set: Option<&mut Replay>,
        check: &mut ChainCheck,
    ) -> Result<(), Error> {
        let store = Store::new(self.snapshot());
        let mut find =
            |what: String| check.findings.push(format!("block {hash} at height {height}: {what}"));
        let bytes = match store.block(hash) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                find("its bytes are missing".to_owned());
                return Ok(());
            }
            Err(error) => {
                find(error.to_string());
                return Ok(());
            }
        };
        let undo = match store.need_undo(hash) {
            Ok(undo) => undo,
            Err(error) => {
                find(error.to_string());
                return Ok(());
            }
        };
        let Ok(block) = Block::decode(&bytes) else {
            find("its bytes are not a block".to_owned());
            return Ok(());
        };
        if block.merkle_root() != Some(block.header.merkle_root) {
            find("its transactions are not those of its header".to_owned());
        }
        if let Some(set) = set {
            let mut changes = Vec::new();
            {
                let before = Before::read(set, &block)?;
                match Transition::of(&block, height, &before) {
                    Ok(transition) => {
                        if transition.undo().encode() != *undo {
                            find("its undo record is not what it changes".to_owned());
                        }
                        transition.for_each(|outpoint, entry| changes.push((outpoint, entry)));
                    }
                    Err(code) => find(format!("it spends what is not there: {code}")),
                }
            }
            for (outpoint, entry) in changes {
                match entry {
                    Some(entry) => set.entries.insert(outpoint, entry),
                    None => set.entries.remove(&outpoint),
                };
            }
        } else if let Ok(undo) = UndoRecord::decode(&undo)
            && !Transition::may_be_undone_by(&block, height, &undo)
        {
            find("its undo record is not what it changes".to_owned());
        }
        Ok(())
    }

    /// Every output is well formed, counted, and one that the blocks make.
    fn check_set(&self, set: Option<&Replay>, check: &mut ChainCheck) -> Result<(), Error> {
        for row in self.snapshot().scan(UTXO, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, entry) = row?;
            check.outputs += 1;
            let Some(outpoint) = Outpoint::from_slice(&key) else {
                check.findings.push("an output has a key that is not 36 bytes".to_owned());
                continue;
            };
            if let Err(wrong) = UtxoEntry::decode(&entry) {
                check.findings.push(format!("output {outpoint}: {wrong}"));
            }
            if let Some(set) = set
                && set.entries.get(&outpoint).map(Vec::as_slice) != Some(&*entry)
            {
                check.findings.push(format!("output {outpoint} is not what the blocks make of it"));
            }
        }
        let count = self.utxo_count()?;
        if count != check.outputs {
            check
                .findings
                .push(format!("{} outputs are there, and the store counts {count}", check.outputs));
        }
        if let Some(set) = set
            && u64::try_from(set.entries.len()).is_ok_and(|wanted| wanted != check.outputs)
        {
            check.findings.push(format!(
                "{} outputs are there, and the blocks make {}",
                check.outputs,
                set.entries.len()
            ));
        }
        Ok(())
    }
}
