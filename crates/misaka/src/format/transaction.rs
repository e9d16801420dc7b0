//! A transaction. The store keeps digests only; whoever has the bytes checks them here.

use ledger::Writer;

use super::mcs::{Decoder, put_bytes, put_list};
use crate::error::Rule;
use crate::hash::Hash;

/// How an input is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Owned, in this version with this digest.
    Owned(u64, Hash),
    /// Shared: in whatever version it is in.
    Shared,
    /// Immutable, in this version with this digest.
    Immutable(u64, Hash),
}

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Which object.
    pub id: Hash,
    /// How it is used.
    pub kind: InputKind,
    /// It may be changed.
    pub is_mutable: bool,
}

impl Input {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Input, Rule> {
        let id = Hash(decoder.array()?);
        let kind = decoder.u8()?;
        let access = decoder.u8()?;
        if kind > 2 {
            return Err(Rule::BadInputKind);
        }
        if access > 1 {
            return Err(Rule::BadAccess);
        }
        let version = if decoder.bool()? { Some(decoder.u64()?) } else { None };
        let digest = if decoder.bool()? { Some(Hash(decoder.array()?)) } else { None };
        let kind = match (kind, version, digest) {
            (0, Some(version), Some(digest)) => InputKind::Owned(version, digest),
            (1, None, None) => InputKind::Shared,
            (2, Some(version), Some(digest)) => InputKind::Immutable(version, digest),
            _ => return Err(Rule::BadInputPresence),
        };
        Ok(Input { id, kind, is_mutable: access == 1 })
    }

    fn encode(&self, writer: &mut Writer) {
        let (kind, known) = match self.kind {
            InputKind::Owned(version, digest) => (0, Some((version, digest))),
            InputKind::Shared => (1, None),
            InputKind::Immutable(version, digest) => (2, Some((version, digest))),
        };
        writer.bytes(&self.id.0).u8(kind).u8(u8::from(self.is_mutable));
        match known {
            Some((version, digest)) => {
                writer.u8(1).u64_le(version).u8(1).bytes(&digest.0);
            }
            None => {
                writer.u8(0).u8(0);
            }
        }
    }
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives an object to an address.
    Transfer {
        /// Which object.
        object: Hash,
        /// To whom.
        to: [u8; 32],
    },
    /// Calls a function.
    Call {
        /// The package.
        package: Hash,
        /// The module.
        module: String,
        /// The function.
        function: String,
        /// Types.
        type_args: Vec<String>,
        /// Arguments, by the number of the input.
        arg_refs: Vec<u16>,
    },
    /// Publishes a package.
    Publish(Vec<u8>),
    /// Deletes an object.
    Delete(Hash),
}

impl Action {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Action, Rule> {
        Ok(match decoder.u8()? {
            1 => Action::Transfer { object: Hash(decoder.array()?), to: decoder.array()? },
            2 => Action::Call {
                package: Hash(decoder.array()?),
                module: decoder.string()?.to_owned(),
                function: decoder.string()?.to_owned(),
                type_args: decoder.list(4, |item| item.string().map(str::to_owned))?,
                arg_refs: decoder.list(2, Decoder::u16)?,
            },
            3 => Action::Publish(decoder.bytes()?.to_vec()),
            4 => Action::Delete(Hash(decoder.array()?)),
            _ => return Err(Rule::ActionKind),
        })
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Action::Transfer { object, to } => {
                writer.u8(1).bytes(&object.0).bytes(to);
            }
            Action::Call { package, module, function, type_args, arg_refs } => {
                writer.u8(2).bytes(&package.0);
                put_bytes(writer, module.as_bytes());
                put_bytes(writer, function.as_bytes());
                put_list(writer, type_args, |writer, tag| put_bytes(writer, tag.as_bytes()));
                put_list(writer, arg_refs, |writer, arg| {
                    writer.u16_le(*arg);
                });
            }
            Action::Publish(package) => {
                writer.u8(3);
                put_bytes(writer, package);
            }
            Action::Delete(object) => {
                writer.u8(4).bytes(&object.0);
            }
        }
    }
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The chain.
    pub chain_id: u32,
    /// Who sends it.
    pub sender: [u8; 32],
    /// Its number among those of the sender.
    pub nonce: u64,
    /// Gas at most.
    pub gas_budget: u64,
    /// What gas costs.
    pub gas_price: u64,
    /// What pays for it.
    pub gas_payment_object_id: Hash,
    /// The last checkpoint it may be in.
    pub expiration_checkpoint: u64,
    /// What it uses.
    pub inputs: Vec<Input>,
    /// What it does.
    pub actions: Vec<Action>,
    /// Ed25519 over the rest.
    pub signature: [u8; 64],
}

/// Fewest bytes of an input and of an action.
const INPUT_LEAST: usize = 36;
const ACTION_LEAST: usize = 5;

impl Transaction {
    /// Reads a transaction.
    pub fn decode(bytes: &[u8]) -> Result<Transaction, Rule> {
        let mut decoder = Decoder::new(bytes);
        if decoder.u16()? != 1 {
            return Err(Rule::BadFormatVersion);
        }
        let chain_id = decoder.u32()?;
        let sender = decoder.array()?;
        let [nonce, gas_budget, gas_price] = [decoder.u64()?, decoder.u64()?, decoder.u64()?];
        let gas_payment_object_id = Hash(decoder.array()?);
        let expiration_checkpoint = decoder.u64()?;
        let inputs = decoder.list(INPUT_LEAST, Input::decode)?;
        let actions = decoder.list(ACTION_LEAST, Action::decode)?;
        if decoder.u8()? != 1 {
            return Err(Rule::BadSignatureScheme);
        }
        let signature = decoder.array()?;
        decoder.finish()?;
        let transaction = Transaction {
            chain_id,
            sender,
            nonce,
            gas_budget,
            gas_price,
            gas_payment_object_id,
            expiration_checkpoint,
            inputs,
            actions,
            signature,
        };
        transaction.check()?;
        Ok(transaction)
    }

    fn check(&self) -> Result<(), Rule> {
        if self.actions.is_empty() {
            return Err(Rule::NoActions);
        }
        for action in &self.actions {
            if let Action::Call { arg_refs, .. } = action
                && arg_refs.iter().any(|arg| usize::from(*arg) >= self.inputs.len())
            {
                return Err(Rule::BadArgRef);
            }
        }
        let pays = |input: &Input| {
            input.id == self.gas_payment_object_id
                && matches!(input.kind, InputKind::Owned(..))
                && input.is_mutable
        };
        if self.inputs.iter().any(pays) { Ok(()) } else { Err(Rule::GasPayment) }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(256);
        writer.u16_le(1).u32_le(self.chain_id).bytes(&self.sender);
        writer.u64_le(self.nonce).u64_le(self.gas_budget).u64_le(self.gas_price);
        writer.bytes(&self.gas_payment_object_id.0).u64_le(self.expiration_checkpoint);
        put_list(&mut writer, &self.inputs, |writer, input| input.encode(writer));
        put_list(&mut writer, &self.actions, |writer, action| action.encode(writer));
        writer.u8(1).bytes(&self.signature);
        writer.finish()
    }

    /// The smallest id of a shared input.
    pub fn primary_shared_id(&self) -> Option<Hash> {
        let shared = self.inputs.iter().filter(|input| input.kind == InputKind::Shared);
        shared.map(|input| input.id).min()
    }
}

/// Checks that digests stand in the order DET_ORDER_V1. Each transaction is given by its digest and its smallest shared id.
pub fn check_order(transactions: &[(Hash, Option<Hash>)]) -> Result<(), Rule> {
    let place = |(digest, shared): &(Hash, Option<Hash>)| (shared.is_none(), *shared, *digest);
    match transactions.is_sorted_by_key(place) {
        true => Ok(()),
        false => Err(Rule::DetOrder),
    }
}
