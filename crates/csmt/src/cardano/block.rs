//! Blocks: their headers, and the inputs and outputs of their transactions.
//!
//! Transactions of Shelley and later have their inputs in a set, so a spend is there once and in the order of the set; those of
//! Byron have a list.

use std::collections::BTreeSet;

use super::{CardanoBlock, CardanoError, Era, key, output};
use crate::cbor::{Encoder, Malformed};
use crate::format::point::Point;
use crate::format::rollback::Operation;
use crate::hash::Hash;
use crate::items::{Items, Left};

/// The tag of a set, from Conway on.
const SET: u64 = 258;

/// An output that a transaction spends.
type Input = (Hash, u16);

/// Reads one block with the number of its era in front.
pub(super) fn decode(
    items: &mut Items<'_>,
    epoch_slots: u64,
) -> Result<CardanoBlock, CardanoError> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let era = Era::from_number(items.uint()?)?;
    items.field(&mut fields)?;
    let block = match era {
        Era::ByronBoundary | Era::Byron => byron(items, era, epoch_slots)?,
        _ => shelley(items, era)?,
    };
    items.close(fields)?;
    Ok(block)
}

fn hash(items: &mut Items<'_>) -> Result<Hash, Malformed> {
    items.array("a digest has 32 bytes").map(Hash)
}

/// What a header says.
struct Header {
    point: Point,
    prev_hash: Option<Hash>,
    height: u64,
}

impl Header {
    fn block(self, era: Era, transactions: u64, operations: Vec<Operation>) -> CardanoBlock {
        let Header { point, prev_hash, height } = self;
        CardanoBlock { point, prev_hash, height, era, transactions, operations }
    }
}

/// `[header, body, extra]`
fn byron(items: &mut Items<'_>, era: Era, epoch_slots: u64) -> Result<CardanoBlock, CardanoError> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let header = byron_header(items, era, epoch_slots)?;
    items.field(&mut fields)?;
    let (mut operations, mut transactions) = (Vec::new(), 0);
    if era == Era::Byron {
        let mut body = items.list()?;
        items.field(&mut body)?;
        let mut payload = items.list()?;
        while items.more(&mut payload)? {
            let mut parts = items.list()?;
            items.field(&mut parts)?;
            byron_transaction(items, &mut operations)?;
            items.skip_list(parts)?;
            transactions += 1;
        }
        items.skip_list(body)?;
    } else {
        items.skip()?;
    }
    items.skip_list(fields)?;
    Ok(header.block(era, transactions, operations))
}

/// `[magic, previous, proof, consensus, extra]` with `[epoch, [height]]` at a boundary, and else
/// `[[epoch, slot], key, [height], signature]`
fn byron_header(items: &mut Items<'_>, era: Era, epoch_slots: u64) -> Result<Header, Malformed> {
    let start = items.clone();
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    items.skip()?;
    items.field(&mut fields)?;
    let prev_hash = Some(hash(items)?);
    items.field(&mut fields)?;
    items.skip()?;
    items.field(&mut fields)?;
    let mut consensus = items.list()?;
    items.field(&mut consensus)?;
    let (epoch, slot) = if era == Era::ByronBoundary {
        (items.uint()?, 0)
    } else {
        let mut slot = items.list()?;
        items.field(&mut slot)?;
        let epoch = items.uint()?;
        items.field(&mut slot)?;
        let number = items.uint()?;
        items.close(slot)?;
        items.field(&mut consensus)?;
        items.skip()?;
        (epoch, number)
    };
    items.field(&mut consensus)?;
    let mut difficulty = items.list()?;
    items.field(&mut difficulty)?;
    let height = items.uint()?;
    items.close(difficulty)?;
    items.skip_list(consensus)?;
    items.skip_list(fields)?;
    let slot = epoch.checked_mul(epoch_slots).and_then(|first| first.checked_add(slot));
    let slot = slot.ok_or_else(|| start.wrong("there is no such slot"))?;
    // What is hashed says which of both kinds of headers it is.
    let mut encoder = Encoder::new();
    encoder.array(2).uint(u64::from(era == Era::Byron)).raw(items.since(start.at()));
    Ok(Header { point: Point::block(slot, Hash::of(&encoder.finish())), prev_hash, height })
}

/// `[[* input], [* output], attributes]`
fn byron_transaction(
    items: &mut Items<'_>,
    operations: &mut Vec<Operation>,
) -> Result<(), Malformed> {
    let start = items.at();
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let mut inputs = items.list()?;
    while items.more(&mut inputs)? {
        let (transaction, index) = byron_input(items)?;
        operations.push(Operation::Delete { key: key(&transaction, index) });
    }
    items.field(&mut fields)?;
    let outputs = items.clone();
    items.skip()?;
    items.skip_list(fields)?;
    let id = Hash::of(items.since(start));
    creates(outputs, &id, operations, output::byron)?;
    Ok(())
}

/// `[0, 24(bytes of [transaction, index])]`
fn byron_input(items: &mut Items<'_>) -> Result<Input, Malformed> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let start = items.clone();
    if items.uint()? != 0 {
        return Err(start.wrong("inputs of this kind are not known"));
    }
    items.field(&mut fields)?;
    let (mut inner, _) = items.encoded()?;
    let found = input(&mut inner)?;
    inner.finish()?;
    items.close(fields)?;
    Ok(found)
}

/// `[transaction, index]`
fn input(items: &mut Items<'_>) -> Result<Input, Malformed> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let transaction = hash(items)?;
    items.field(&mut fields)?;
    let start = items.clone();
    let index = u16::try_from(items.uint()?);
    let index = index.map_err(|_| start.wrong("no output has such an index"))?;
    items.close(fields)?;
    Ok((transaction, index))
}

/// Inserts what a list of outputs makes.
fn creates<'a>(
    mut outputs: Items<'a>,
    id: &Hash,
    operations: &mut Vec<Operation>,
    decode: impl Fn(&mut Items<'a>) -> Result<Vec<u8>, Malformed>,
) -> Result<(), Malformed> {
    let mut left = outputs.list()?;
    let mut number = 0_u64;
    while outputs.more(&mut left)? {
        let index = index(&outputs, number)?;
        operations.push(Operation::Insert { key: key(id, index), value: decode(&mut outputs)? });
        number += 1;
    }
    Ok(())
}

fn index(items: &Items<'_>, number: u64) -> Result<u16, Malformed> {
    u16::try_from(number).map_err(|_| items.wrong("no output has such an index"))
}

/// `[header, [* body], [* witnesses], metadata, failed]`, the last from Alonzo on
fn shelley(items: &mut Items<'_>, era: Era) -> Result<CardanoBlock, CardanoError> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let header = shelley_header(items)?;
    items.field(&mut fields)?;
    let mut bodies = items.clone();
    let transactions = count(items)?;
    items.field(&mut fields)?;
    let start = items.clone();
    if count(items)? != transactions {
        return Err(start.wrong("there are not as many witnesses as transactions").into());
    }
    items.field(&mut fields)?;
    items.skip()?;
    let mut failed = BTreeSet::new();
    if era >= Era::Alonzo {
        items.field(&mut fields)?;
        let mut left = items.list()?;
        while items.more(&mut left)? {
            let start = items.clone();
            let number = items.uint()?;
            if number >= transactions {
                return Err(start.wrong("there is no such transaction").into());
            }
            failed.insert(number);
        }
    }
    items.close(fields)?;
    let mut operations = Vec::new();
    let mut left = bodies.list()?;
    let mut number = 0;
    while bodies.more(&mut left)? {
        let body = Body::decode(&mut bodies)?;
        if failed.contains(&number) {
            body.failed(era, &mut operations)?;
        } else {
            body.done(era, &mut operations)?;
        }
        number += 1;
    }
    Ok(header.block(era, transactions, operations))
}

fn count(items: &mut Items<'_>) -> Result<u64, Malformed> {
    let left = items.list()?;
    items.skip_list(left)
}

/// `[[height, slot, previous or null, ...], signature]`
fn shelley_header(items: &mut Items<'_>) -> Result<Header, Malformed> {
    let start = items.at();
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let mut body = items.list()?;
    items.field(&mut body)?;
    let height = items.uint()?;
    items.field(&mut body)?;
    let slot = items.uint()?;
    items.field(&mut body)?;
    let prev_hash = if items.pass_null() { None } else { Some(hash(items)?) };
    items.skip_list(body)?;
    items.field(&mut fields)?;
    items.skip()?;
    items.close(fields)?;
    let point = Point::block(slot, Hash::of(items.since(start)));
    Ok(Header { point, prev_hash, height })
}

/// The fields of a transaction that change entries, where they begin.
struct Body<'a> {
    id: Hash,
    inputs: Items<'a>,
    outputs: Items<'a>,
    collateral: Option<Items<'a>>,
    collateral_return: Option<Items<'a>>,
}

impl<'a> Body<'a> {
    fn decode(items: &mut Items<'a>) -> Result<Body<'a>, Malformed> {
        let start = items.clone();
        let mut fields = [const { None }; 4];
        let mut pairs: Left = items.map()?;
        while items.more(&mut pairs)? {
            let key = items.clone();
            let [inputs, outputs, collateral, collateral_return] = &mut fields;
            let field = match items.uint()? {
                0 => Some(inputs),
                1 => Some(outputs),
                13 => Some(collateral),
                16 => Some(collateral_return),
                _ => None,
            };
            if let Some(field) = field
                && field.replace(items.clone()).is_some()
            {
                return Err(key.wrong("a field is there twice"));
            }
            items.skip()?;
        }
        let [inputs, outputs, collateral, collateral_return] = fields;
        let missing = || start.wrong("a transaction without inputs or outputs");
        Ok(Body {
            id: Hash::of(items.since(start.at())),
            inputs: inputs.ok_or_else(missing)?,
            outputs: outputs.ok_or_else(missing)?,
            collateral,
            collateral_return,
        })
    }

    fn done(self, era: Era, operations: &mut Vec<Operation>) -> Result<(), Malformed> {
        spends(self.inputs, era, operations)?;
        creates(self.outputs, &self.id, operations, |items| output::shelley(items, era))
    }

    /// Scripts failed: the collateral goes, and what is too much of it comes back behind the outputs that are not made.
    fn failed(mut self, era: Era, operations: &mut Vec<Operation>) -> Result<(), Malformed> {
        if let Some(collateral) = self.collateral {
            spends(collateral, era, operations)?;
        }
        if let Some(mut items) = self.collateral_return
            && era >= Era::Babbage
        {
            let index = index(&items, count(&mut self.outputs)?)?;
            let value = output::shelley(&mut items, era)?;
            operations.push(Operation::Insert { key: key(&self.id, index), value });
        }
        Ok(())
    }
}

/// Deletes what a set of inputs spends.
fn spends(
    mut items: Items<'_>,
    era: Era,
    operations: &mut Vec<Operation>,
) -> Result<(), Malformed> {
    if era >= Era::Conway {
        items.pass_tag(SET);
    }
    let mut set = BTreeSet::new();
    let mut left = items.list()?;
    while items.more(&mut left)? {
        let start = items.clone();
        // Before Conway the ledger takes an input that is there twice as one.
        if !set.insert(input(&mut items)?) && era >= Era::Conway {
            return Err(start.wrong("an input is there twice"));
        }
    }
    let delete = |(transaction, index)| Operation::Delete { key: key(&transaction, index) };
    operations.extend(set.into_iter().map(delete));
    Ok(())
}
