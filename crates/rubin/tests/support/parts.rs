//! An export taken apart, to be put together again as somebody else would like it, with every hash in its place.

#![allow(dead_code, reason = "not everybody needs everything")]

use rubin::synthetic as maker;
use rubin::{Chain, Export, Genesis, Hash, Header, Outpoint};

/// An export in its parts.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) genesis: Genesis,
    pub(crate) tip_height: u64,
    pub(crate) tip_hash: Hash,
    pub(crate) utxo_count: u64,
    pub(crate) utxo_set_hash: Hash,
    pub(crate) headers: Vec<Vec<u8>>,
    /// Outputs as they stand there.
    pub(crate) outputs: Vec<u8>,
    /// Blocks with their undo records.
    pub(crate) blocks: Vec<(Vec<u8>, Vec<u8>)>,
}

fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

fn take_long<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = u32::from_le_bytes(take(bytes, 4).try_into().unwrap());
    take(bytes, usize::try_from(len).unwrap())
}

impl Parts {
    /// Of what a chain writes, with so many blocks.
    pub(crate) fn of(chain: &Chain, blocks: u32) -> Parts {
        let mut bytes = Vec::new();
        let genesis = chain.genesis().clone();
        let view = chain.view().unwrap();
        let done = view.export(&genesis, blocks, &mut bytes, &mut |_, _| {}).unwrap();
        let mut rest = &bytes[8 + 32 + 8 + 32 + 8 + 32 + 4..];
        let headers = (0..=done.tip_height).map(|_| take(&mut rest, Header::LEN).to_vec());
        let headers = headers.collect();
        let mut outputs = Vec::new();
        for _ in 0..done.utxo_count {
            outputs.extend_from_slice(take(&mut rest, Outpoint::LEN));
            long(&mut outputs, take_long(&mut rest));
        }
        let blocks = (0..done.blocks)
            .map(|_| (take_long(&mut rest).to_vec(), take_long(&mut rest).to_vec()))
            .collect();
        let Export { tip_height, tip_hash, utxo_count, utxo_set_hash, .. } = done;
        let parts = Parts {
            genesis,
            tip_height,
            tip_hash,
            utxo_count,
            utxo_set_hash,
            headers,
            outputs,
            blocks,
        };
        assert_eq!(parts.bytes(), bytes, "nothing is forged yet");
        parts
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = b"RUBNSNP1".to_vec();
        out.extend_from_slice(self.genesis.chain_id().as_bytes());
        out.extend_from_slice(&self.tip_height.to_le_bytes());
        out.extend_from_slice(self.tip_hash.as_bytes());
        out.extend_from_slice(&self.utxo_count.to_le_bytes());
        out.extend_from_slice(self.utxo_set_hash.as_bytes());
        out.extend_from_slice(&u32::try_from(self.blocks.len()).unwrap().to_le_bytes());
        self.headers.iter().for_each(|header| out.extend_from_slice(header));
        out.extend_from_slice(&self.outputs);
        for (block, undo) in &self.blocks {
            long(&mut out, block);
            long(&mut out, undo);
        }
        let digest = Hash::of(&[&out]);
        out.extend_from_slice(digest.as_bytes());
        out
    }

    /// The same with another tip.
    pub(crate) fn with_tip(&self, block: Vec<u8>) -> Parts {
        let mut parts = self.clone();
        parts.tip_hash = maker::hash_of(&block);
        *parts.headers.last_mut().unwrap() = block[..Header::LEN].to_vec();
        parts.blocks.last_mut().unwrap().0 = block;
        parts
    }
}
