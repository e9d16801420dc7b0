//! All entries that begin with a prefix.

use alloc::vec::Vec;

use super::inclusion::{climb, put_steps, take_steps};
use super::{Exclusion, Refused, Step};
use crate::cbor::{Decoder, Encoder, Malformed};
use crate::hash::{Hash, Node, join};
use crate::path::Path;

/// An entry: the way to it, and the digest of its value.
pub type Leaf = (Path, Hash);

/// That some entries are all there are under a prefix. They and the prefix are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// There are some.
    Leaves {
        /// Which subtrees are joined, by the numbers of their first leaves, the children before their parents.
        merges: Vec<(usize, usize)>,
        /// From the node above all of them to the root, the deepest first.
        steps: Vec<Step>,
    },
    /// There are none.
    Nothing(Exclusion),
}

impl Completeness {
    /// Accepts it only if it proves that these leaves, in the order of the tree, are all under the prefix.
    pub fn verify(
        &self,
        root: Option<&Hash>,
        prefix: &Path,
        leaves: &[Leaf],
    ) -> Result<(), Refused> {
        let (merges, steps) = match self {
            Completeness::Nothing(_) if !leaves.is_empty() => {
                return Err(Refused::Other("number of leaves"));
            }
            Completeness::Nothing(proof) => return proof.verify(root, prefix),
            Completeness::Leaves { merges, steps } => (merges, steps),
        };
        let root = root.ok_or(Refused::Root)?;
        if !leaves.iter().all(|(path, _)| path.starts_with(prefix)) {
            return Err(Refused::Broken("a leaf does not begin with the prefix"));
        }
        let mut found = Vec::new();
        let (end, value) = subtree(leaves, 0, &mut found)?;
        if found != *merges {
            return Err(Refused::Broken("its merges are not those of its leaves"));
        }
        let (path, _) = leaves.first().ok_or(Refused::Other("number of leaves"))?;
        let path = path.part(0, end);
        // The node must be the one in which the prefix ends: with a branch below that, leaves could hide behind it.
        let branch = steps.first().map(|step| path.len().saturating_sub(step.consumed));
        if branch.is_some_and(|branch| branch >= prefix.len()) {
            return Err(Refused::Broken("it leaves out what is beside its leaves"));
        }
        let used: usize = steps.iter().map(|step| step.consumed).sum();
        let top = path.len().checked_sub(used);
        let top = top.ok_or(Refused::Broken("its steps do not cover its prefix"))?;
        let value = climb(&path, top, value, steps)?;
        match (Node { jump: path.part(0, top), value }).root() == *root {
            true => Ok(()),
            false => Err(Refused::Root),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        match self {
            Completeness::Nothing(proof) => {
                encoder.array(2).uint(1);
                proof.put(&mut encoder);
            }
            Completeness::Leaves { merges, steps } => {
                encoder.array(3).uint(0).array(merges.len());
                for (left, right) in merges {
                    encoder.array(2).uint(wide(*left)).uint(wide(*right));
                }
                put_steps(&mut encoder, steps);
            }
        }
        encoder.finish()
    }

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Completeness, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let start = decoder.clone();
        let proof = match (decoder.array()?, decoder.uint()?) {
            (2, 1) => Completeness::Nothing(Exclusion::take(&mut decoder)?),
            (3, 0) => {
                let count = decoder.array()?;
                let mut merges = Vec::new();
                for _ in 0..count {
                    decoder.array_of(2, "a merge has two fields")?;
                    merges.push((take_number(&mut decoder)?, take_number(&mut decoder)?));
                }
                Completeness::Leaves { merges, steps: take_steps(&mut decoder)? }
            }
            _ => return Err(start.wrong("this is not a proof of completeness")),
        };
        decoder.finish()?;
        Ok(proof)
    }
}

fn take_number(decoder: &mut Decoder<'_>) -> Result<usize, Malformed> {
    let start = decoder.clone();
    usize::try_from(decoder.uint()?).map_err(|_| start.wrong("there are not so many leaves"))
}

/// The node above all leaves, as the bits that they share and its digest, with the merges that come to it. They are in order,
/// and none begins with another.
///
/// One pass with a stack of subtrees that may still get a sibling: a hostile number of leaves costs no depth.
pub(crate) fn subtree(
    leaves: &[Leaf],
    first: usize,
    merges: &mut Vec<(usize, usize)>,
) -> Result<(usize, Hash), Refused> {
    /// A subtree that is done: the number of its first leaf, how many bits its leaves share, its digest.
    struct Done {
        number: usize,
        end: usize,
        value: Hash,
    }
    // Each with the bits that it shares with the next one; these grow from the bottom to the top.
    let mut open: Vec<(Done, usize)> = Vec::new();
    let mut last: Option<(Done, &Path)> = None;
    let fold = |open: &mut Vec<(Done, usize)>,
                mut done: Done,
                path: &Path,
                down_to: Option<usize>,
                merges: &mut Vec<(usize, usize)>| {
        while let Some((left, branch)) = open.pop_if(|(_, branch)| Some(*branch) > down_to) {
            let node = |done: &Done, path: &Path| Node {
                jump: path.part(branch + 1, done.end),
                value: done.value,
            };
            let left_path = leaves.get(left.number - first).map(|(path, _)| path);
            let value = join(&node(&left, left_path.unwrap_or(path)), &node(&done, path));
            merges.push((left.number, done.number));
            done = Done { number: left.number, end: branch, value };
        }
        done
    };
    for (number, (path, value)) in (first..).zip(leaves) {
        if let Some((done, before)) = last.take() {
            let branch = before.common(0, path);
            if branch >= before.len().min(path.len()) || before.bit(branch) {
                return Err(Refused::Broken(
                    "its leaves are not in order, or one begins with another",
                ));
            }
            // Whatever branches below that is done.
            let done = fold(&mut open, done, before, Some(branch), merges);
            open.push((done, branch));
        }
        last = Some((Done { number, end: path.len(), value: *value }, path));
    }
    let (done, path) = last.ok_or(Refused::Other("number of leaves"))?;
    let done = fold(&mut open, done, path, None, merges);
    Ok((done.end, done.value))
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
