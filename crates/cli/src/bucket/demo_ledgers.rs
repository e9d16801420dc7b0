//! The ledgers of the tour: a chain with a reorg, a UTxO set with a proof, a validator with a snapshot.
//!
//! Each is on disk under the engine kvb, and its root is compared with that of the same state made another way.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use csmt::PathKind;
use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use host::{FileDir, MemoryDir};
use ledger::{EngineKind, MemoryEngine};
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::snapshot::{self, Trust, Watch};
use misaka::{Checkpoint, RootVersion};
use rubin::rules::Rules;
use rubin::synthetic::Generator;
use rubin::{Chain, Datadir};

use crate::exit::{Done, Fail};
use crate::show;

/// Blocks of a chain before it forks, and of both its ends.
const BLOCKS: usize = 100;
const GIVEN_UP: u64 = 5;
const BETTER: usize = 6;
/// Outputs that a block spends, and makes.
const SPENDS: usize = 500;

/// Blocks of the UTxO set, and outputs that each makes; half as many are spent.
const SLOTS: u64 = 100;
const OUTPUTS: u64 = 200;

/// Checkpoints of the validator, and objects that each makes and changes.
const CHECKPOINTS: u64 = 100;
const OBJECTS: u64 = 200;
const CHUNK_BYTES: usize = 1 << 20;

/// What a ledger showed.
pub(super) struct Shown {
    pub(super) took: Duration,
    pub(super) words: String,
}

fn because(error: impl Display) -> Fail {
    Fail::failed(error.to_string())
}

fn check(holds: bool, what: &str) -> Done {
    if holds { Ok(()) } else { Err(Fail::failed(format!("{what}; please report this"))) }
}

/// A node imports a chain, and then a better one that leaves it five blocks back.
pub(super) fn rubin(dir: &Path) -> Done<Shown> {
    let mut ours = Generator::new(1);
    let genesis = ours.genesis().clone();
    let mut common = vec![ours.make_coins(20_000)];
    common.extend((1..BLOCKS).map(|_| ours.spend_coins(SPENDS)));
    let mut rival = ours.clone();
    rival.skip_nonces();
    let given_up: Vec<Vec<u8>> = (0..GIVEN_UP).map(|_| ours.spend_coins(SPENDS)).collect();
    let better: Vec<Vec<u8>> = (0..BETTER).map(|_| rival.spend_coins(SPENDS)).collect();

    let start = Instant::now();
    let datadir = Datadir::new(dir.join("rubin"), genesis.chain_id());
    let chain = datadir.init(genesis.clone(), EngineKind::Kvb, Box::<Rules>::default());
    let chain = chain.map_err(because)?;
    let import = |chain: &Chain, block: &Vec<u8>| {
        chain.import(block, None).map_err(because)?.map_err(|rejected| because(rejected.code))
    };
    let (mut count, mut taken_back) = (0, 0);
    for block in common.iter().chain(&given_up).chain(&better) {
        taken_back += import(&chain, block)?.disconnected;
        count += 1;
    }
    check(taken_back == GIVEN_UP, "the better chain was not chosen")?;
    let (outputs, hash) = chain.view().and_then(|view| view.utxo_set_hash()).map_err(because)?;
    let took = start.elapsed();

    // A node that never saw the blocks which were given up.
    let memory: Box<MemoryEngine> = Box::new(MemoryEngine::new());
    let model = Chain::init(memory, Arc::new(MemoryDir::new()), Box::<Rules>::default(), genesis);
    let model = model.map_err(because)?;
    for block in common.iter().chain(&better) {
        import(&model, block)?;
    }
    let (_, wanted) = model.view().and_then(|view| view.utxo_set_hash()).map_err(because)?;
    check(hash == wanted, "after the reorg the outputs are not those of the better chain")?;
    let words = format!(
        "{count} blocks, {} of them taken back for a better chain, in {}; utxo_set_hash of {} outputs {}, as without the detour",
        taken_back,
        show::seconds(took),
        show::count(outputs),
        short(&hash),
    );
    Ok(Shown { took, words })
}

/// A follower applies blocks, proves an output, and the proof is checked without the store.
pub(super) fn csmt(dir: &Path) -> Done<Shown> {
    let settings = csmt::Settings { path: PathKind::Raw, ..csmt::Settings::default() };
    let mut random = fastrand::Rng::with_seed(1);
    let mut there: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut blocks = Vec::new();
    for _ in 0..SLOTS {
        let mut operations = Vec::new();
        for _ in 0..OUTPUTS {
            let entry = (random_bytes(&mut random, 34), random_bytes(&mut random, 80));
            operations.push(Operation::Insert { key: entry.0.clone(), value: entry.1.clone() });
            there.push(entry);
        }
        for _ in 0..OUTPUTS / 2 {
            let (key, _) = there.swap_remove(random.usize(..there.len()));
            operations.push(Operation::Delete { key });
        }
        blocks.push(operations);
    }

    let start = Instant::now();
    let database = csmt::Database::new(dir.join("csmt"));
    let effort = csmt::Effort::default();
    let store = database.init(EngineKind::Kvb, settings, effort).map_err(because)?;
    let mut root = None;
    for (slot, operations) in (1_u64..).zip(&blocks) {
        let point = Point::block(slot, csmt::Hash::of(&slot.to_le_bytes()));
        root = store.forward(point, operations).map_err(because)?.root;
    }
    let took = start.elapsed();
    let root = root.ok_or_else(|| Fail::failed("there is no root"))?;
    let entry = there.first().ok_or_else(|| Fail::failed("there is no output"))?;
    let proof = store.view().and_then(|mut view| view.prove(&entry.0)).map_err(because)?;
    let proof = proof.ok_or_else(|| Fail::failed("there is no proof"))?;
    let value = csmt::Hash::of(&entry.1);
    proof.verify(&root, &proof.key, &value).map_err(because)?;
    let other = csmt::Hash::of(b"another value");
    check(proof.verify(&root, &proof.key, &other).is_err(), "a proof of another value held")?;

    // The same outputs, in one block.
    let model = csmt::Store::init(Box::new(MemoryEngine::new()), settings, effort);
    let all: Vec<Operation> = there
        .iter()
        .map(|(key, value)| Operation::Insert { key: key.clone(), value: value.clone() })
        .collect();
    let point = Point::block(1, csmt::Hash::of(b"all"));
    let wanted = model.and_then(|model| model.forward(point, &all)).map_err(because)?.root;
    check(wanted == Some(root), "the root depends on the way to it")?;
    let words = format!(
        "{SLOTS} blocks, {} outputs left, in {}; root {}, as in one go; a proof of {} bytes holds",
        show::count(u64::try_from(there.len()).unwrap_or(0)),
        show::seconds(took),
        short(&root),
        proof.to_v4().len(),
    );
    Ok(Shown { took, words })
}

/// A validator applies checkpoints; another one begins from its snapshot.
pub(super) fn misaka(dir: &Path) -> Done<Shown> {
    let settings = misaka::Settings { v2_at: Some(1), ..misaka::Settings::default() };
    let effort = misaka::Effort::default();
    let start = Instant::now();
    let database = misaka::Database::new(dir.join("misaka"));
    let store = database.init(EngineKind::Kvb, settings, effort).map_err(because)?;
    let mut prev = misaka::Hash::ZERO;
    let mut root = misaka::Hash::ZERO;
    for seq in 1..=CHECKPOINTS {
        let mut checkpoint = checkpoint(seq, prev);
        root = store.root_after(&checkpoint).map_err(because)?;
        checkpoint.header.state_root = root;
        store.apply(&checkpoint).map_err(because)?;
        prev = checkpoint.header.digest();
    }
    let took = start.elapsed();
    let full = store.view().and_then(|view| view.full_root(RootVersion::V2, &|_, _, _| {}));
    check(full.map_err(because)? == root, "the root is not that of the objects")?;

    let start = Instant::now();
    FileDir::make(dir.join("snapshot")).map_err(because)?;
    let files = FileDir::new(dir.join("snapshot"));
    snapshot::create(&store, &files, CHUNK_BYTES, 1, Watch::NOBODY).map_err(because)?;
    let other = misaka::Database::new(dir.join("misaka-restored"));
    let trust = Trust { checkpoint: Some(prev), ..Trust::default() };
    let restored =
        snapshot::restore(&files, &other, EngineKind::Kvb, settings, trust, effort, Watch::NOBODY);
    let restored = restored.map_err(because)?;
    let copying = start.elapsed();
    check(restored.root == root, "the restored state has another root")?;
    let words = format!(
        "{CHECKPOINTS} checkpoints, {} objects, in {}; state_root {}; a snapshot of it restored in {} with the same root",
        show::count(restored.objects),
        show::seconds(took),
        short(&root),
        show::seconds(copying),
    );
    Ok(Shown { took: took + copying, words })
}

/// A checkpoint that makes objects and changes as many; its root is still to come.
fn checkpoint(seq: u64, prev: misaka::Hash) -> Checkpoint {
    let digests = vec![misaka::Hash::of(&[b"transaction", &seq.to_le_bytes()])];
    let write = |made: u64, version| {
        let payload = misaka::Hash::of(&[&made.to_le_bytes(), &seq.to_le_bytes()]);
        let object = Object {
            id: misaka::Hash::of(&[b"object", &made.to_le_bytes()]),
            version,
            owner: Owner::Address([7; 32]),
            type_tag: "0x2::coin::Coin",
            payload: &payload.0,
            is_tombstone: false,
        };
        object.encode()
    };
    let new = (0..OBJECTS).map(|at| write(seq * OBJECTS + at, 1));
    // Those of the checkpoint before.
    let changed = (0..OBJECTS).filter(|_| seq > 1).map(|at| write((seq - 1) * OBJECTS + at, 2));
    let params = match seq {
        1 => vec![("state_root_version".to_owned(), vec![2, 0])],
        _ => Vec::new(),
    };
    Checkpoint {
        header: Header {
            chain_id: 7,
            epoch: 0,
            seq,
            prev_digest: prev,
            timestamp_ms: 1_700_000_000_000 + seq,
            tx_count: 1,
            tx_root: tx_root(&digests),
            state_root: misaka::Hash::ZERO,
            validator_set_hash: misaka::Hash::of(&[b"validators"]),
        },
        tx_digests: digests,
        writes: new.chain(changed).collect(),
        params,
        events: Vec::new(),
    }
}

fn random_bytes(random: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

/// The beginning of a hash, to look at.
fn short(hash: &impl Display) -> String {
    let mut text = hash.to_string();
    text.truncate(16);
    text
}
