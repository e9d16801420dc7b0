//! Blocks of any transactions, in any tree, to a RUBIN chain: refused or taken, and every row can be checked afterwards.

#![no_main]

use std::sync::Arc;

use host::MemoryDir;
use kvb_fuzz::Choices;
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::{Block, Chain, Genesis, Hash, Outpoint, Transaction};

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let chain = Chain::init(
        Box::new(MemoryEngine::new()),
        Arc::new(MemoryDir::new()),
        Box::<Rules>::default(),
        Genesis::devnet(),
    );
    let chain = chain.unwrap();
    let mut blocks: Vec<(Hash, u64)> = vec![(Genesis::devnet().hash(), 0)];
    let mut coins: Vec<Outpoint> = Vec::new();
    let mut count = 0;
    while choices.is_left() && count < 24 {
        count += 1;
        let (parent, height) = blocks[usize::from(choices.byte()) % blocks.len()];
        let mut transactions = vec![maker::coinbase(height + 1, &[maker::coin(0)])];
        for _ in 0..choices.byte() % 4 {
            let made = match choices.byte() % 3 {
                // As people make them.
                0 => {
                    let inputs: Vec<Outpoint> = (0..choices.byte() % 3)
                        .filter_map(|_| coins.get(usize::from(choices.byte())).copied())
                        .collect();
                    let outs: Vec<_> = (0..choices.byte() % 4)
                        .map(|_| maker::coin(choices.number() % 9))
                        .collect();
                    maker::spend(choices.number(), &inputs, &outs)
                }
                // A changed one.
                1 => {
                    let mut bytes = maker::spend(choices.number(), &[], &[maker::coin(0)]);
                    for _ in 0..choices.byte() % 4 {
                        let at = choices.short() % bytes.len();
                        bytes[at] = choices.byte();
                    }
                    bytes
                }
                _ => {
                    let len = choices.short() % 300;
                    choices.bytes(len).to_vec()
                }
            };
            if let Ok(transaction) = Transaction::decode(&made) {
                coins.extend((0..transaction.outputs.len()).map(|vout| transaction.outpoint(vout)));
            }
            transactions.push(made);
        }
        let mut block = maker::block(parent, u64::from(choices.byte()), &transactions);
        if choices.byte() == 255 {
            let at = choices.short() % block.len();
            block[at] ^= 1;
        }
        let _ = Block::decode(&block);
        let local_time = (choices.byte() == 1).then_some(choices.number());
        if let Ok(import) = chain.import(&block, local_time).expect("memory does not fail") {
            blocks.push((import.hash, height + 1));
        }
    }
    let genesis = Genesis::devnet().hash();
    let check =
        chain.view().unwrap().verify(genesis, true, &mut |_, _| {}).expect("rows can be read");
    assert!(check.findings.is_empty(), "{:?}", check.findings);
});
