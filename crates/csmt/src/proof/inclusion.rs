//! An entry is there.

use alloc::vec::Vec;

use super::Refused;
use crate::cbor::{Decoder, Encoder, Malformed};
use crate::hash::{Hash, Node, join, packed, unpacked};
use crate::path::Path;

/// A branch on the way from a leaf to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bits of the key from the branch to the next: one for the direction, and the jump below it.
    pub consumed: usize,
    /// The node on the other side.
    pub sibling: Node,
}

/// That a key is in a tree, with the digest of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inclusion {
    /// The way to the leaf.
    pub key: Path,
    /// The digest of the value.
    pub value: Hash,
    /// The branches on the way, the deepest first.
    pub steps: Vec<Step>,
    /// The bits in front of the first branch.
    pub root_jump: Path,
}

/// How a proof that an entry is there is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Four fields.
    #[default]
    V4,
    /// Five fields, the root among them.
    V5,
    /// Without key and value.
    Compact,
    /// The same as Plutus data.
    Plutus,
}

/// Accepts bytes only if they prove that the tree with this root has this value under this key.
pub fn verify(
    form: Form,
    bytes: &[u8],
    root: &Hash,
    key: &Path,
    value: &Hash,
) -> Result<(), Refused> {
    let proof = match form {
        Form::V4 => Inclusion::from_v4(bytes)?,
        Form::V5 => {
            let (proof, named) = Inclusion::from_v5(bytes)?;
            if named != *root {
                return Err(Refused::Root);
            }
            proof
        }
        Form::Compact => Inclusion::from_compact(bytes, key.clone(), *value)?,
        Form::Plutus => Inclusion::from_plutus(bytes, key.clone(), *value)?,
    };
    proof.verify(root, key, value)
}

/// Plutus data: a list whose end is marked, under tag 121.
const PLUTUS_OPEN: [u8; 3] = [0xd8, 0x79, 0x9f];
const PLUTUS_CLOSE: u8 = 0xff;

impl Inclusion {
    /// The root that it comes to, if it holds together.
    pub fn root(&self) -> Result<Hash, Refused> {
        if !self.key.starts_with(&self.root_jump) {
            return Err(Refused::Broken("its key does not begin with the root's jump"));
        }
        let value = climb(&self.key, self.root_jump.len(), self.value, &self.steps)?;
        Ok(Node { jump: self.root_jump.clone(), value }.root())
    }

    /// Accepts it only if it proves that the tree with this root has this value under this key.
    pub fn verify(&self, root: &Hash, key: &Path, value: &Hash) -> Result<(), Refused> {
        if self.key != *key {
            return Err(Refused::Other("key"));
        }
        if self.value != *value {
            return Err(Refused::Other("value"));
        }
        match self.root()? == *root {
            true => Ok(()),
            false => Err(Refused::Root),
        }
    }

    /// Where its branches are, counted in bits from the root.
    pub(super) fn branches(&self) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.root_jump.len();
        self.steps.iter().rev().map(move |step| {
            let branch = at;
            at += step.consumed;
            branch
        })
    }

    /// In a form; the root is needed for one of them.
    pub fn to_form(&self, form: Form, root: &Hash) -> Vec<u8> {
        match form {
            Form::V4 => self.to_v4(),
            Form::V5 => self.to_v5(root),
            Form::Compact => self.to_compact(),
            Form::Plutus => self.to_plutus(),
        }
    }

    /// The form with four fields.
    pub fn to_v4(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        self.put_v4(&mut encoder);
        encoder.finish()
    }

    pub(super) fn put_v4(&self, encoder: &mut Encoder) {
        encoder.array(4).path(&self.key).bytes(&self.value.0);
        put_steps(encoder, &self.steps);
        encoder.path(&self.root_jump);
    }

    /// The form with five fields, the root among them.
    pub fn to_v5(&self, root: &Hash) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.array(5).path(&self.key).bytes(&self.value.0).bytes(&root.0);
        put_steps(&mut encoder, &self.steps);
        encoder.path(&self.root_jump);
        encoder.finish()
    }

    /// From the form with four fields.
    pub fn from_v4(bytes: &[u8]) -> Result<Inclusion, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let proof = Inclusion::take_v4(&mut decoder)?;
        decoder.finish()?;
        Ok(proof)
    }

    pub(super) fn take_v4(decoder: &mut Decoder<'_>) -> Result<Inclusion, Malformed> {
        decoder.array_of(4, "a proof has four fields")?;
        let (key, value) = (decoder.path()?, decoder.hash()?);
        let steps = take_steps(decoder)?;
        Ok(Inclusion { key, value, steps, root_jump: decoder.path()? })
    }

    /// From the form with five fields, and the root that it names.
    pub fn from_v5(bytes: &[u8]) -> Result<(Inclusion, Hash), Malformed> {
        let mut decoder = Decoder::new(bytes);
        decoder.array_of(5, "a proof with its root has five fields")?;
        let (key, value, root) = (decoder.path()?, decoder.hash()?, decoder.hash()?);
        let steps = take_steps(&mut decoder)?;
        let proof = Inclusion { key, value, steps, root_jump: decoder.path()? };
        decoder.finish()?;
        Ok((proof, root))
    }

    /// The short form, which leaves out what whoever checks it knows: key and value.
    pub fn to_compact(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.array(1 + self.steps.len()).bytes(&packed(&self.root_jump));
        for step in &self.steps {
            encoder.array(3).uint(wide(step.consumed));
            encoder.bytes(&packed(&step.sibling.jump)).bytes(&step.sibling.value.0);
        }
        encoder.finish()
    }

    /// From the short form, of a key and a value.
    pub fn from_compact(bytes: &[u8], key: Path, value: Hash) -> Result<Inclusion, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let start = decoder.clone();
        let count = decoder.array()?;
        let count =
            count.checked_sub(1).ok_or_else(|| start.wrong("a proof has a field at least"))?;
        let root_jump = take_packed(&mut decoder)?;
        let mut steps = Vec::new();
        for _ in 0..count {
            decoder.array_of(3, "a step has three fields")?;
            steps.push(take_packed_step(&mut decoder)?);
        }
        decoder.finish()?;
        Ok(Inclusion { key, value, steps, root_jump })
    }

    /// The short form as Plutus data.
    pub fn to_plutus(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.raw(&PLUTUS_OPEN).bytes(&packed(&self.root_jump));
        for step in &self.steps {
            encoder.raw(&PLUTUS_OPEN).uint(wide(step.consumed));
            encoder.bytes(&packed(&step.sibling.jump)).bytes(&step.sibling.value.0);
            encoder.raw(&[PLUTUS_CLOSE]);
        }
        encoder.raw(&[PLUTUS_CLOSE]);
        encoder.finish()
    }

    /// From Plutus data, of a key and a value.
    pub fn from_plutus(bytes: &[u8], key: Path, value: Hash) -> Result<Inclusion, Malformed> {
        let mut decoder = Decoder::new(bytes);
        take_raw(&mut decoder, &PLUTUS_OPEN)?;
        let root_jump = take_packed(&mut decoder)?;
        let mut steps = Vec::new();
        while decoder.left() > 1 {
            take_raw(&mut decoder, &PLUTUS_OPEN)?;
            steps.push(take_packed_step(&mut decoder)?);
            take_raw(&mut decoder, &[PLUTUS_CLOSE])?;
        }
        take_raw(&mut decoder, &[PLUTUS_CLOSE])?;
        decoder.finish()?;
        Ok(Inclusion { key, value, steps, root_jump })
    }
}

/// From a digest at the end of a path up to bit `top`, branch by branch. The steps must use exactly the bits between.
pub(super) fn climb(path: &Path, top: usize, value: Hash, steps: &[Step]) -> Result<Hash, Refused> {
    let (mut at, mut value) = (path.len(), value);
    for step in steps {
        let branch = at.checked_sub(step.consumed).filter(|branch| *branch >= top && *branch < at);
        let branch = branch.ok_or(Refused::Broken("its steps do not cover its key"))?;
        let own = Node { jump: path.part(branch + 1, at), value };
        value = match path.bit(branch) {
            false => join(&own, &step.sibling),
            true => join(&step.sibling, &own),
        };
        at = branch;
    }
    match at == top {
        true => Ok(value),
        false => Err(Refused::Broken("its steps do not cover its key")),
    }
}

pub(super) fn put_steps(encoder: &mut Encoder, steps: &[Step]) {
    encoder.array(steps.len());
    for step in steps {
        encoder.array(2).uint(wide(step.consumed)).node(&step.sibling);
    }
}

pub(super) fn take_steps(decoder: &mut Decoder<'_>) -> Result<Vec<Step>, Malformed> {
    let count = decoder.array()?;
    let mut steps = Vec::new();
    for _ in 0..count {
        decoder.array_of(2, "a step has two fields")?;
        let consumed = take_consumed(decoder)?;
        steps.push(Step { consumed, sibling: decoder.node()? });
    }
    Ok(steps)
}

fn take_consumed(decoder: &mut Decoder<'_>) -> Result<usize, Malformed> {
    let start = decoder.clone();
    let consumed = u16::try_from(decoder.uint()?).ok().filter(|consumed| *consumed > 0);
    consumed.map(usize::from).ok_or_else(|| start.wrong("a step takes 1 to 65,535 bits"))
}

fn take_packed(decoder: &mut Decoder<'_>) -> Result<Path, Malformed> {
    let start = decoder.clone();
    unpacked(decoder.bytes()?).ok_or_else(|| start.wrong("a packed path is not as it should be"))
}

fn take_packed_step(decoder: &mut Decoder<'_>) -> Result<Step, Malformed> {
    let consumed = take_consumed(decoder)?;
    let sibling = Node { jump: take_packed(decoder)?, value: decoder.hash()? };
    Ok(Step { consumed, sibling })
}

fn take_raw(decoder: &mut Decoder<'_>, wanted: &[u8]) -> Result<(), Malformed> {
    let start = decoder.clone();
    match decoder.raw(wanted.len())? == wanted {
        true => Ok(()),
        false => Err(start.wrong("this is not Plutus data of a proof")),
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
