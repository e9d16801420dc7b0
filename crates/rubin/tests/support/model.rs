//! A tree of blocks, and what a chain should make of it: maps, and everything computed from the start.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use fastrand::Rng;
use ledger::{Snapshot, Table};
use rubin::tables::{UNDO, UTXO};
use rubin::{Block, Chain, Genesis, Hash, Outpoint, UndoRecord, UtxoEntry};

use rubin::synthetic::{self as maker, Out, anchor, coin};

type Set = BTreeMap<Outpoint, Vec<u8>>;

/// A block of a tree.
pub(crate) struct Node {
    pub(crate) bytes: Vec<u8>,
    pub(crate) hash: Hash,
    pub(crate) height: u64,
    /// The block before; none for genesis.
    pub(crate) parent: Option<usize>,
    /// It follows the rules, if the block before does.
    pub(crate) is_valid: bool,
    /// The set after it, if it is valid.
    set: Set,
}

/// Blocks on top of one genesis.
pub(crate) struct Tree {
    pub(crate) genesis: Genesis,
    genesis_set: Set,
    pub(crate) blocks: Vec<Node>,
}

impl Tree {
    /// A random tree of so many blocks.
    pub(crate) fn grow(rng: &mut Rng, count: usize) -> Tree {
        let mut tree = Tree::on(maker::genesis(rng.u64(..4)));
        // Transactions without inputs, which may come again.
        let again: Vec<Vec<u8>> = (0..3)
            .map(|number| maker::spend(1_000_000 + number, &[], &[coin(0), coin(0)]))
            .collect();
        for number in 0..count {
            let parent = match number {
                0 => None,
                // Mostly near the newest, so that chains grow.
                _ if rng.u8(..10) > 0 => Some(number - 1 - rng.usize(..number.min(4))),
                _ => rng.usize(..=number).checked_sub(1),
            };
            let node = tree.make(rng, parent, u64::try_from(number).unwrap(), &again);
            tree.blocks.push(node);
        }
        tree
    }

    /// A tree of nothing but genesis.
    pub(crate) fn on(genesis: Genesis) -> Tree {
        let genesis_set = apply(&Set::new(), genesis.bytes(), 0);
        Tree { genesis, genesis_set, blocks: Vec::new() }
    }

    /// Adds a block that follows the rules. Gives its number.
    pub(crate) fn add(&mut self, parent: Option<usize>, bytes: Vec<u8>) -> usize {
        let height = parent.map_or(1, |parent| self.blocks[parent].height + 1);
        let set = apply(self.set(parent), &bytes, height);
        let hash = maker::hash_of(&bytes);
        self.blocks.push(Node { bytes, hash, height, parent, is_valid: true, set });
        self.blocks.len() - 1
    }

    /// The hash of a block, or of genesis.
    pub(crate) fn hash(&self, node: Option<usize>) -> Hash {
        node.map_or(self.genesis.hash(), |node| self.blocks[node].hash)
    }

    fn set(&self, node: Option<usize>) -> &Set {
        node.map_or(&self.genesis_set, |node| &self.blocks[node].set)
    }

    fn make(&self, rng: &mut Rng, parent: Option<usize>, number: u64, again: &[Vec<u8>]) -> Node {
        let (prev_hash, height) = match parent {
            Some(parent) => (self.blocks[parent].hash, self.blocks[parent].height + 1),
            None => (self.genesis.hash(), 1),
        };
        let set = self.set(parent);
        let outs = |rng: &mut Rng| -> Vec<Out> {
            let count = rng.usize(1..4);
            (0..count)
                .map(|_| match rng.u8(..5) {
                    0 => anchor(&[rng.u8(..)]),
                    _ => coin(0),
                })
                .collect()
        };
        let mut transactions = vec![maker::coinbase(height, &[coin(rng.u64(..2)), coin(0)])];
        let mut free: Vec<Outpoint> = set
            .iter()
            .filter(|(_, entry)| {
                let entry = UtxoEntry::decode(entry).unwrap();
                !entry.created_by_coinbase && entry.value == 0
            })
            .map(|(outpoint, _)| *outpoint)
            .collect();
        for turn in 0..rng.u64(..6) {
            let nonce = 1 + number * 100 + turn;
            let bytes = match rng.u8(..4) {
                0 if rng.bool() => again[rng.usize(..again.len())].clone(),
                0 | 1 => maker::spend(nonce, &[], &outs(rng)),
                _ => {
                    let count = rng.usize(..3).min(free.len());
                    let inputs: Vec<Outpoint> =
                        (0..count).map(|_| free.swap_remove(rng.usize(..free.len()))).collect();
                    maker::spend(nonce, &inputs, &outs(rng))
                }
            };
            let is_there = transactions.contains(&bytes);
            if is_there {
                // One nonce must not come twice in a block.
                continue;
            }
            let transaction = rubin::Transaction::decode(&bytes).unwrap();
            for (vout, output) in transaction.outputs.iter().enumerate() {
                let outpoint = transaction.outpoint(vout);
                if output.is_spendable() && !free.contains(&outpoint) {
                    free.push(outpoint);
                }
            }
            transactions.push(bytes);
        }
        let is_bad = rng.u8(..8) == 0;
        if is_bad {
            let missing = Outpoint::new(Hash::of(&[&number.to_le_bytes()]), 0);
            transactions.push(maker::spend(99 + number * 100, &[missing], &[coin(0)]));
        }
        let bytes = maker::block(prev_hash, 1 + number * 10 + height, &transactions);
        let hash = maker::hash_of(&bytes);
        let is_valid = !is_bad && parent.is_none_or(|parent| self.blocks[parent].is_valid);
        let set = if is_valid { apply(set, &bytes, height) } else { Set::new() };
        Node { bytes, hash, height, parent, is_valid, set }
    }
}

/// The set after a block.
fn apply(before: &Set, bytes: &[u8], height: u64) -> Set {
    let block = Block::decode(bytes).unwrap();
    let mut set = before.clone();
    for (number, transaction) in block.transactions.iter().enumerate() {
        if number > 0 {
            for input in &transaction.inputs {
                set.remove(&input.outpoint).unwrap();
            }
        }
        for (vout, output) in transaction.outputs.iter().enumerate() {
            // Not what the code says of it, but the type itself.
            if output.covenant_type != 0x0002 {
                let entry = UtxoEntry {
                    value: output.value,
                    covenant_type: output.covenant_type,
                    covenant_data: output.covenant_data,
                    creation_height: height,
                    created_by_coinbase: number == 0,
                };
                set.insert(transaction.outpoint(vout), entry.encode());
            }
        }
    }
    set
}

/// What a chain should be after some blocks of a tree.
pub(crate) struct Model<'a> {
    tree: &'a Tree,
    known: HashSet<usize>,
}

impl<'a> Model<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Model<'a> {
        Model { tree, known: HashSet::new() }
    }

    pub(crate) fn import(&mut self, block: usize) {
        self.known.insert(block);
    }

    fn is_connected(&self, mut block: usize) -> bool {
        loop {
            if !self.known.contains(&block) {
                return false;
            }
            match self.tree.blocks[block].parent {
                Some(parent) => block = parent,
                None => return true,
            }
        }
    }

    /// The best block: the highest that is valid, and of those the one with the smallest hash.
    pub(crate) fn best(&self) -> Option<usize> {
        let candidates = self.known.iter().copied();
        let valid = candidates
            .filter(|block| self.tree.blocks[*block].is_valid && self.is_connected(*block));
        valid.max_by_key(|block| {
            let node = &self.tree.blocks[*block];
            (node.height, std::cmp::Reverse(node.hash))
        })
    }

    /// How good a block is that is valid and connected.
    pub(crate) fn rank(&self, hash: Hash) -> Option<(u64, std::cmp::Reverse<Hash>)> {
        if hash == self.tree.genesis.hash() {
            return Some((0, std::cmp::Reverse(hash)));
        }
        let number = self.tree.blocks.iter().position(|node| node.hash == hash)?;
        let node = &self.tree.blocks[number];
        (node.is_valid && self.is_connected(number))
            .then_some((node.height, std::cmp::Reverse(hash)))
    }

    /// The hash of the best block.
    pub(crate) fn tip(&self) -> Hash {
        self.best().map_or(self.tree.genesis.hash(), |best| self.tree.blocks[best].hash)
    }

    #[track_caller]
    pub(crate) fn check_tip(&self, chain: &Chain, when: &str) {
        let (hash, height) = match self.best() {
            Some(best) => (self.tree.blocks[best].hash, self.tree.blocks[best].height),
            None => (self.tree.genesis.hash(), 0),
        };
        let tip = chain.tip();
        assert_eq!((tip.hash, tip.height), (hash, height), "{when}");
        assert_eq!(tip.work.to_string(), (height + 1).to_string());
    }

    /// The set, and the undo record of every block that is applied.
    #[track_caller]
    pub(crate) fn check_all(&self, chain: &Chain) {
        self.check_tip(chain, "at the end");
        let view = chain.view().unwrap();
        let best = self.best();
        let wanted: Vec<(Vec<u8>, Vec<u8>)> = self
            .tree
            .set(best)
            .iter()
            .map(|(outpoint, entry)| (outpoint.as_bytes().to_vec(), entry.clone()))
            .collect();
        assert_eq!(dump(view.snapshot(), UTXO), wanted);
        assert_eq!(view.utxo_count().unwrap(), u64::try_from(wanted.len()).unwrap());
        let mut next = best;
        while let Some(number) = next {
            let node = &self.tree.blocks[number];
            let found = view.snapshot().get(UNDO, node.hash.as_bytes()).unwrap().unwrap();
            let wanted = undo(self.tree.set(node.parent), &node.set, &node.bytes);
            assert_eq!(*found, wanted, "undo of block {number}");
            next = node.parent;
        }
    }
}

/// The difference between two sets, in the order in which a block names what it touches.
fn undo(before: &Set, after: &Set, bytes: &[u8]) -> Vec<u8> {
    let block = Block::decode(bytes).unwrap();
    let mut touched = Vec::new();
    for (number, transaction) in block.transactions.iter().enumerate() {
        if number > 0 {
            touched.extend(transaction.inputs.iter().map(|input| input.outpoint));
        }
        touched.extend((0..transaction.outputs.len()).map(|vout| transaction.outpoint(vout)));
    }
    let mut record = UndoRecord::default();
    let mut seen = HashMap::new();
    for outpoint in touched {
        if seen.insert(outpoint, ()).is_some() {
            continue;
        }
        match (before.get(&outpoint), after.get(&outpoint)) {
            (Some(old), new) if new != Some(old) => record.spent.push((outpoint, old.as_slice())),
            (None, Some(_)) => record.created.push(outpoint),
            _ => {}
        }
    }
    record.encode()
}

/// All rows of a table.
pub(crate) fn dump(snapshot: &dyn Snapshot, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    rows.map(|row| row.unwrap())
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}
