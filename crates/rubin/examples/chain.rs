//! A RUBIN node in a directory: import blocks, meet a better chain, look, and open it again.
//!
//! `cargo run --release -p kvb-rubin --example chain`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use rubin::rules::Rules;
use rubin::synthetic::Generator;
use rubin::{Datadir, EngineKind};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    // Blocks come from the network; here from a generator, which can be cloned to make a fork.
    let mut ours = Generator::new(1);
    let genesis = ours.genesis().clone();
    let datadir = Datadir::new(dir.path(), genesis.chain_id());
    let chain = datadir.init(genesis.clone(), EngineKind::Kvb, Box::<Rules>::default())?;

    chain.import(&ours.make_coins(5_000), None)??;
    let mut theirs = ours.clone();
    theirs.skip_nonces();
    for _ in 0..3 {
        let import = chain.import(&ours.spend_coins(200), None)??;
        println!("ours:   {} {}", import.decision.as_str(), import.hash);
    }
    for _ in 0..4 {
        let import = chain.import(&theirs.spend_coins(200), None)??;
        println!(
            "theirs: {} {} ({} taken back, {} applied)",
            import.decision.as_str(),
            import.hash,
            import.disconnected,
            import.connected
        );
    }

    // What breaks a rule is told by its code, and changes nothing.
    let mut broken = theirs.spend_coins(200);
    if let Some(byte) = broken.last_mut() {
        *byte ^= 1;
    }
    match chain.import(&broken, None)? {
        Ok(import) => println!("taken: {}", import.hash),
        Err(rejected) => println!("broken: {}", rejected.code),
    }

    let (outputs, hash) = chain.view()?.utxo_set_hash()?;
    println!("height {}, {outputs} outputs, utxo_set_hash {hash}", chain.tip().height);
    drop(chain);

    // Everything was on disk when `import` returned.
    let chain = datadir.open(genesis.clone(), Box::<Rules>::default())?;
    let check = chain.view()?.verify(genesis.hash(), true, &mut |_, _| {})?;
    println!("{} blocks verified, {} findings", check.blocks, check.findings.len());
    assert_eq!(chain.view()?.utxo_set_hash()?, (outputs, hash));
    Ok(())
}
