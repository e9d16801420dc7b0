//! The rules of RUBIN, wire version 1, all but signatures. Checks are made in the order of the reference implementations,
//! because a block that breaks several rules must be refused with the same code everywhere.

use std::collections::HashSet;

use num_bigint::BigUint;

use crate::block::Block;
use crate::code::Code;
use crate::coins::Coins;
use crate::entry::UtxoEntry;
use crate::hash::Hash;
use crate::transaction::{
    ANCHOR, HTLC, HTLC_V2, Input, Output, P2PK, TIMELOCK, Transaction, VAULT, WitnessItem,
};
use crate::validator::{HeaderContext, Validator};

/// Blocks between two changes of the target, and the seconds they should take.
pub const WINDOW: u64 = 2016;
const WINDOW_SECONDS: u64 = 1_209_600;
/// Blocks whose median timestamp a block must be above.
pub const MEDIAN: u64 = 11;
/// Seconds that a timestamp may be ahead of the clock here.
const AHEAD_MAX: u64 = 7200;
const COUNT_MAX: usize = 1024;
const WITNESS_MAX: usize = 100_000;
const SEQUENCE_MAX: u32 = 0x7fff_ffff;
const MATURITY: u64 = 100;
const WEIGHT_MAX: u64 = 4_000_000;
const ANCHOR_MAX: usize = 65_536;
const ANCHORS_MAX: u64 = 131_072;
const SUBSIDY: u64 = 7_529_089_664;
/// Below this height the subsidy is one unit more.
const SUBSIDY_MORE: u64 = 806_400;
const SUBSIDY_END: u64 = 1_314_900;

/// Who says whether a signature holds.
pub trait Signatures: Send + Sync {
    /// Checks that an input of a transaction may spend an output that takes a signature.
    fn check(
        &self,
        transaction: &Transaction<'_>,
        input: usize,
        spent: &UtxoEntry<'_>,
        height: u64,
        timestamp: u64,
    ) -> Result<(), Code>;
}

/// No signature holds: outputs that take one cannot be spent.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSignatures;

impl Signatures for NoSignatures {
    fn check(
        &self,
        _transaction: &Transaction<'_>,
        _input: usize,
        _spent: &UtxoEntry<'_>,
        _height: u64,
        _timestamp: u64,
    ) -> Result<(), Code> {
        Err(Code::TxSigInvalid)
    }
}

/// Every signature holds: for chains whose signatures somebody else has checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustSignatures;

impl Signatures for TrustSignatures {
    fn check(
        &self,
        _transaction: &Transaction<'_>,
        _input: usize,
        _spent: &UtxoEntry<'_>,
        _height: u64,
        _timestamp: u64,
    ) -> Result<(), Code> {
        Ok(())
    }
}

/// The rules, with somebody who knows about signatures.
#[derive(Clone, Debug, Default)]
pub struct Rules<S = NoSignatures> {
    signatures: S,
}

impl<S: Signatures> Rules<S> {
    /// The rules with these signatures.
    pub fn new(signatures: S) -> Rules<S> {
        Rules { signatures }
    }
}

impl<S: Signatures> Validator for Rules<S> {
    fn check_header(&self, block: &Block<'_>, context: &HeaderContext) -> Result<(), Code> {
        let header = &block.header;
        if header.prev_hash != context.parent_hash {
            return Err(Code::BlockLinkageInvalid);
        }
        if header.target != expected_target(context) {
            return Err(Code::BlockTargetInvalid);
        }
        self.check_orphan(block)?;
        if !is_above_median(header.timestamp, &context.timestamps) {
            return Err(Code::BlockTimestampOld);
        }
        let limit = context.local_time.map(|now| now.saturating_add(AHEAD_MAX));
        if limit.is_some_and(|limit| header.timestamp > limit) {
            return Err(Code::BlockTimestampFuture);
        }
        Ok(())
    }

    fn check_orphan(&self, block: &Block<'_>) -> Result<(), Code> {
        if !proves_work(block.hash, &block.header.target) {
            return Err(Code::BlockPowInvalid);
        }
        if block.merkle_root() != Some(block.header.merkle_root) {
            return Err(Code::BlockMerkleInvalid);
        }
        Ok(())
    }

    fn check_body<'b>(
        &self,
        block: &'b Block<'b>,
        height: u64,
        coins: &mut Coins<'b>,
    ) -> Result<(), Code> {
        let is_coinbase = |one: &Transaction<'_>| is_coinbase(one, height);
        let mut coinbases = block.transactions.iter().map(is_coinbase);
        if coinbases.next() != Some(true) || coinbases.any(|is| is) {
            return Err(Code::BlockCoinbaseInvalid);
        }
        let mut sums = Sums::default();
        for (number, transaction) in block.transactions.iter().enumerate() {
            if number == 0 {
                check_limits(transaction)?;
                check_outputs(transaction)?;
            } else {
                let fee = self.check_transaction(block, transaction, height, coins, &mut sums)?;
                sums.fees = sums.fees.checked_add(fee).ok_or(Code::TxParse)?;
            }
            sums.weigh(transaction);
            coins.create(transaction, number == 0);
        }
        if sums.weight > WEIGHT_MAX {
            return Err(Code::BlockWeightExceeded);
        }
        if sums.anchor_bytes > ANCHORS_MAX {
            return Err(Code::BlockAnchorBytesExceeded);
        }
        let paid = block.transactions.first().map_or(Ok(0), sum_out)?;
        let due = subsidy(height).checked_add(sums.fees).ok_or(Code::TxParse)?;
        if height > 0 && paid > due {
            return Err(Code::BlockSubsidyExceeded);
        }
        Ok(())
    }
}

/// What adds up over a block.
#[derive(Default)]
struct Sums {
    nonces: HashSet<u64>,
    fees: u64,
    weight: u64,
    anchor_bytes: u64,
}

impl Sums {
    fn weigh(&mut self, transaction: &Transaction<'_>) {
        self.weight = self.weight.saturating_add(weight(transaction));
        for output in transaction.outputs.iter().filter(|one| one.covenant_type == ANCHOR) {
            self.anchor_bytes = self.anchor_bytes.saturating_add(wide(output.covenant_data.len()));
        }
    }
}

impl<S: Signatures> Rules<S> {
    /// Checks a transaction that is no coinbase, and gives its fee.
    fn check_transaction<'b>(
        &self,
        block: &'b Block<'b>,
        transaction: &'b Transaction<'b>,
        height: u64,
        coins: &mut Coins<'b>,
        sums: &mut Sums,
    ) -> Result<u64, Code> {
        if transaction.nonce == 0 {
            return Err(Code::TxNonceInvalid);
        }
        if !sums.nonces.insert(transaction.nonce) {
            return Err(Code::TxNonceReplay);
        }
        check_limits(transaction)?;
        if transaction.witness.len() != transaction.inputs.len() {
            return Err(Code::TxParse);
        }
        check_outputs(transaction)?;
        let mut seen = HashSet::with_capacity(transaction.inputs.len());
        let mut sum_in: u64 = 0;
        for (number, (input, witness)) in
            transaction.inputs.iter().zip(&transaction.witness).enumerate()
        {
            check_input(input)?;
            if !seen.insert(input.outpoint) {
                return Err(Code::TxParse);
            }
            let spent = coins.spend(&input.outpoint).ok_or(Code::TxMissingUtxo)?;
            let timestamp = block.header.timestamp;
            match spent.covenant_type {
                TIMELOCK => check_timelock(input, witness, &spent, height, timestamp)?,
                _ => self.signatures.check(transaction, number, &spent, height, timestamp)?,
            }
            let ripe = spent.creation_height.saturating_add(MATURITY);
            if spent.created_by_coinbase && height < ripe {
                return Err(Code::TxCoinbaseImmature);
            }
            sum_in = sum_in.checked_add(spent.value).ok_or(Code::TxParse)?;
        }
        sum_in.checked_sub(sum_out(transaction)?).ok_or(Code::TxValueConservation)
    }
}

fn sum_out(transaction: &Transaction<'_>) -> Result<u64, Code> {
    let add = |sum: u64, output: &Output<'_>| sum.checked_add(output.value).ok_or(Code::TxParse);
    transaction.outputs.iter().try_fold(0, add)
}

fn is_coinbase(transaction: &Transaction<'_>, height: u64) -> bool {
    let [input] = transaction.inputs.as_slice() else { return false };
    input.outpoint.is_null()
        && input.sequence == u32::MAX
        && input.script_sig.is_empty()
        && transaction.nonce == 0
        && transaction.witness.is_empty()
        && u64::from(transaction.locktime) == height
}

fn check_limits(transaction: &Transaction<'_>) -> Result<(), Code> {
    let is_short = |len: usize| len <= COUNT_MAX;
    let lens = [transaction.inputs.len(), transaction.outputs.len(), transaction.witness.len()];
    if !lens.into_iter().all(is_short) {
        return Err(Code::TxParse);
    }
    if transaction.witness_len > WITNESS_MAX {
        return Err(Code::TxWitnessOverflow);
    }
    Ok(())
}

fn check_outputs(transaction: &Transaction<'_>) -> Result<(), Code> {
    for output in &transaction.outputs {
        let len = output.covenant_data.len();
        let holds = match output.covenant_type {
            P2PK => len == 33,
            TIMELOCK => len == 9,
            ANCHOR => (1..=ANCHOR_MAX).contains(&len) && output.value == 0,
            HTLC | HTLC_V2 => len == 105,
            VAULT => len == 73 || len == 81,
            _ => return Err(Code::TxCovenantTypeInvalid),
        };
        if !holds {
            return Err(match output.covenant_type {
                ANCHOR => Code::TxCovenantTypeInvalid,
                _ => Code::TxParse,
            });
        }
    }
    Ok(())
}

fn check_input(input: &Input<'_>) -> Result<(), Code> {
    if input.sequence > SEQUENCE_MAX {
        return Err(Code::TxSequenceInvalid);
    }
    if input.outpoint.is_null() {
        return Err(Code::TxParse);
    }
    Ok(())
}

/// A timelock takes no signature but an empty witness, and time.
fn check_timelock(
    input: &Input<'_>,
    witness: &WitnessItem<'_>,
    spent: &UtxoEntry<'_>,
    height: u64,
    timestamp: u64,
) -> Result<(), Code> {
    if !input.script_sig.is_empty() {
        return Err(Code::TxParse);
    }
    if witness.suite_id != 0 {
        return Err(Code::TxSigAlgInvalid);
    }
    if !witness.pubkey.is_empty() || !witness.signature.is_empty() {
        return Err(Code::TxParse);
    }
    let (mode, value) = match spent.covenant_data {
        [mode, value @ ..] => (*mode, <[u8; 8]>::try_from(value).map_err(|_| Code::TxParse)?),
        [] => return Err(Code::TxParse),
    };
    let now = match mode {
        0 => height,
        1 => timestamp,
        _ => return Err(Code::TxParse),
    };
    if now < u64::from_le_bytes(value) { Err(Code::TxTimelockNotMet) } else { Ok(()) }
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// What a transaction takes of the room in a block: four for a byte, one for a byte of witness, and more for what it takes to
/// check signatures.
pub fn weight(transaction: &Transaction<'_>) -> u64 {
    let cost = |item: &WitnessItem<'_>| match item.suite_id {
        1 => 8,
        2 => 64,
        _ => 0,
    };
    let signatures: u64 = transaction.witness.iter().map(cost).sum();
    wide(transaction.base_len)
        .saturating_mul(4)
        .saturating_add(wide(transaction.witness_len))
        .saturating_add(signatures)
}

/// A hash proves the work of a target if it is below it, as big-endian numbers. Nothing is below zero.
pub fn proves_work(hash: Hash, target: &[u8; 32]) -> bool {
    hash.0 < *target
}

/// A timestamp must be above the lower median of those before.
pub(crate) fn is_above_median(timestamp: u64, before: &[u64]) -> bool {
    let mut before = before.to_vec();
    before.sort_unstable();
    let middle = before.len().saturating_sub(1) / 2;
    before.get(middle).is_none_or(|median| timestamp > *median)
}

/// What a coinbase may take beside fees.
pub fn subsidy(height: u64) -> u64 {
    match height {
        _ if height >= SUBSIDY_END => 0,
        _ if height < SUBSIDY_MORE => SUBSIDY + 1,
        _ => SUBSIDY,
    }
}

/// The target that a block must have: its parent's, but at the end of a window.
pub fn expected_target(context: &HeaderContext) -> [u8; 32] {
    let old = context.parent.target;
    let Some(start) = context.window_start.filter(|_| context.height.is_multiple_of(WINDOW)) else {
        return old;
    };
    let took = context.parent.timestamp.saturating_sub(start).max(1);
    let number = BigUint::from_bytes_be(&old);
    let least = (&number / 4_u8).max(BigUint::from(1_u8));
    let most = (&number * 4_u8).min(BigUint::from_bytes_be(&[0xff; 32]));
    let new = (&number * took / WINDOW_SECONDS).clamp(least.clone().min(most.clone()), most);
    let bytes = new.to_bytes_be();
    let mut target = [0; 32];
    let from = target.len().saturating_sub(bytes.len());
    if let Some(room) = target.get_mut(from..) {
        room.copy_from_slice(&bytes);
    }
    target
}
