//! Real blocks of Bitcoin as RUBIN transactions: as many inputs and outputs, the same values, and who spends what.
//!
//! What a block spends from before the file is made up: coins of genesis, which are ripe at height 100, are split there.

use rubin::synthetic::{self as maker, Out, anchor, coin};
use rubin::transaction::{HTLC, P2PK, VAULT};
use rubin::{Genesis, Hash, Outpoint, Transaction};
use serde_json::Value;

use crate::vectors::{list, load_file, number, text};

/// Outputs that a transaction may have.
const OUTPUTS_MAX: usize = 1024;
/// The value of the coin that everything made up comes from.
const RICH: u64 = 1 << 62;
/// Height of the block that splits it.
const FUNDED_AT: u64 = 100;

/// A block of a shape.
#[derive(Clone, Debug)]
pub(crate) struct ShapedBlock {
    /// When it was found.
    pub(crate) timestamp: u64,
    /// What the coinbase makes.
    pub(crate) coinbase: Vec<Out>,
    /// All but the coinbase.
    pub(crate) transactions: Vec<Vec<u8>>,
}

/// Blocks of a file, and what comes before them.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) genesis: Genesis,
    /// Blocks before those of the file.
    pub(crate) before: Vec<ShapedBlock>,
    /// Those of the file.
    pub(crate) blocks: Vec<ShapedBlock>,
    pub(crate) counts: Counts,
}

/// How much of what there is in a file; coinbases have no inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) transactions: usize,
    pub(crate) inputs: usize,
    /// Inputs that spend what the same block makes.
    pub(crate) within: usize,
    pub(crate) outputs: usize,
    /// Outputs that nobody can spend.
    pub(crate) anchors: usize,
}

/// An output that was made, and its value.
type Coin = (Outpoint, u64);

fn outputs(made: &str) -> Vec<Out> {
    let data = |covenant_type: u16, len: usize, value: &str| Out {
        value: value.parse().unwrap(),
        covenant_type,
        data: vec![1; len],
    };
    let one = |made: &str| {
        if let Some(len) = made.strip_prefix('a') {
            return anchor(&vec![7; len.parse().unwrap()]);
        }
        let (value, kind) = made.split_at(made.len() - 1);
        // Every kind has rows of its own length.
        match kind {
            "k" => data(P2PK, 33, value),
            "s" => data(VAULT, 73, value),
            "w" => data(HTLC, 105, value),
            _ => coin(value.parse().unwrap()),
        }
    };
    made.split_whitespace().map(one).collect()
}

fn made_by(transaction: &[u8]) -> Vec<Coin> {
    let transaction = Transaction::decode(transaction).unwrap();
    let values = transaction.outputs.iter().map(|output| output.value);
    values.enumerate().map(|(vout, value)| (transaction.outpoint(vout), value)).collect()
}

/// A transaction as the file has it.
struct Row<'a> {
    /// Output of a transaction of the file, or none.
    inputs: Vec<Option<(usize, usize)>>,
    outputs: Vec<Out>,
    is_coinbase: bool,
    block: &'a Value,
}

impl<'a> Row<'a> {
    fn read(block: &'a Value, place: usize, row: &str) -> Row<'a> {
        let (spent, made) = row.split_once('|').unwrap();
        let mut inputs = Vec::new();
        for input in spent.split_whitespace() {
            match input.split_once(':') {
                Some((number, vout)) => {
                    inputs.push(Some((number.parse().unwrap(), vout.parse().unwrap())));
                }
                None => inputs.extend(vec![None; input.parse().unwrap()]),
            }
        }
        Row { inputs, outputs: outputs(made), is_coinbase: place == 0, block }
    }

    /// What every input from before the file must have at least, given what the others have.
    fn need(&self, values: &dyn Fn((usize, usize)) -> u64) -> u64 {
        let out: u64 = self.outputs.iter().map(|output| output.value).sum();
        let known: u64 = self.inputs.iter().flatten().map(|input| values(*input)).sum();
        let strangers = self.inputs.iter().filter(|input| input.is_none()).count();
        let strangers = u64::try_from(strangers).unwrap();
        if strangers == 0 { 0 } else { out.saturating_sub(known).div_ceil(strangers) }
    }
}

impl Shape {
    /// The shape in a file of `vectors/rubin`.
    pub(crate) fn load(name: &str) -> Shape {
        let file = load_file(name);
        let rows: Vec<Row<'_>> = list(&file["blocks"])
            .iter()
            .flat_map(|block| {
                let rows = list(&block["transactions"]).iter().enumerate();
                rows.map(move |(place, row)| Row::read(block, place, text(row)))
            })
            .collect();
        let value = |(number, vout): (usize, usize)| rows[number].outputs[vout].value;
        let needs: Vec<u64> = rows
            .iter()
            .flat_map(|row| {
                let strangers = row.inputs.iter().filter(|input| input.is_none());
                vec![row.need(&value); strangers.count()]
            })
            .collect();
        let (genesis, before, funds) = fund(&needs);
        let counts = count(&rows);
        let first_height = u64::try_from(before.len()).unwrap() + 1;
        let blocks = translate(&rows, funds, first_height);
        Shape { genesis, before, blocks, counts }
    }
}

fn count(rows: &[Row<'_>]) -> Counts {
    let mut counts = Counts { transactions: rows.len(), ..Counts::default() };
    for row in rows {
        let is_within = |input: &&(usize, usize)| std::ptr::eq(rows[input.0].block, row.block);
        counts.inputs += row.inputs.len();
        counts.within += row.inputs.iter().flatten().filter(is_within).count();
        counts.outputs += row.outputs.len();
        let anchors =
            row.outputs.iter().filter(|output| output.covenant_type == anchor(&[]).covenant_type);
        counts.anchors += anchors.count();
    }
    counts
}

/// A chain that has coins of such values, if there are any.
fn fund(needs: &[u64]) -> (Genesis, Vec<ShapedBlock>, Vec<Coin>) {
    if needs.is_empty() {
        return (maker::genesis(0), Vec::new(), Vec::new());
    }
    let first = maker::coinbase(0, &[coin(RICH)]);
    let genesis = Genesis::new(maker::block(Hash::ZERO, 0, std::slice::from_ref(&first))).unwrap();
    let empty =
        |height| ShapedBlock { timestamp: height, coinbase: Vec::new(), transactions: Vec::new() };
    let mut before: Vec<ShapedBlock> = (1..FUNDED_AT).map(empty).collect();
    let mut block = empty(FUNDED_AT);
    let (mut rest, mut funds) = (made_by(&first)[0], Vec::new());
    for (part, nonce) in needs.chunks(OUTPUTS_MAX - 1).zip(1..) {
        let mut outs: Vec<Out> = part.iter().map(|value| coin(*value)).collect();
        let change = rest.1 - part.iter().sum::<u64>();
        outs.push(coin(change));
        let bytes = maker::spend(nonce, &[rest.0], &outs);
        let mut made = made_by(&bytes);
        rest = made.pop().unwrap();
        funds.extend(made);
        block.transactions.push(bytes);
    }
    before.push(block);
    (genesis, before, funds)
}

fn translate(rows: &[Row<'_>], funds: Vec<Coin>, first_height: u64) -> Vec<ShapedBlock> {
    let mut funds = funds.into_iter();
    let mut made: Vec<Vec<Coin>> = Vec::with_capacity(rows.len());
    let mut blocks: Vec<ShapedBlock> = Vec::new();
    for (row, nonce) in rows.iter().zip(1..) {
        if row.is_coinbase {
            let height = first_height + u64::try_from(blocks.len()).unwrap();
            made.push(made_by(&maker::coinbase(height, &row.outputs)));
            blocks.push(ShapedBlock {
                timestamp: number(&row.block["time"]),
                coinbase: row.outputs.clone(),
                transactions: Vec::new(),
            });
            continue;
        }
        let inputs: Vec<Outpoint> = row
            .inputs
            .iter()
            .map(|input| match input {
                Some((number, vout)) => made[*number][*vout].0,
                None => funds.next().unwrap().0,
            })
            .collect();
        let bytes = maker::spend(nonce, &inputs, &row.outputs);
        made.push(made_by(&bytes));
        blocks.last_mut().unwrap().transactions.push(bytes);
    }
    assert!(funds.next().is_none(), "every coin that was made up is spent");
    blocks
}
