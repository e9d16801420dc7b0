//! Proofs from the tree.

use super::twig::{Below, Nodes, Twig};
use crate::error::Error;
use crate::hash::{Hash, Node};
use crate::path::{Bits, Path};
use crate::proof::{Completeness, Exclusion, Inclusion, Leaf, Step};

/// A place in the tree: from memory as far as it is there, then from rows.
pub(crate) struct Place<'a> {
    nodes: Nodes<'a>,
    node: Node,
    below: Known<'a>,
    /// Where the node ends: its position and its jump.
    base: Bits,
}

/// What is known of that which is below a node.
enum Known<'a> {
    /// In memory.
    Kept(&'a Below),
    /// Read for this.
    Read(Below),
}

impl<'a> Place<'a> {
    /// The top of a tree.
    pub(crate) fn top(nodes: Nodes<'a>, top: &'a Twig) -> Self {
        let node = top.node.clone();
        Place { nodes, base: Bits::from(&node.jump), node, below: Known::Kept(&top.below) }
    }

    /// What is on both sides of it, the left first; none if it is an entry.
    fn sides(&mut self) -> Result<Option<[Place<'a>; 2]>, Error> {
        let read = |twig: Twig| (twig.node, Known::Read(twig.below));
        let [left, right] = match std::mem::replace(&mut self.below, Known::Kept(&Below::Unknown)) {
            Known::Kept(Below::Leaf) | Known::Read(Below::Leaf) => return Ok(None),
            Known::Kept(Below::Sides(sides)) => {
                let [left, right] = &sides.twigs;
                [left, right].map(|twig| (twig.node.clone(), Known::Kept(&twig.below)))
            }
            Known::Read(Below::Sides(sides)) => sides.twigs.map(read),
            Known::Kept(Below::Unknown) | Known::Read(Below::Unknown) => {
                match self.nodes.sides(&mut self.base, 0)? {
                    Some(twigs) => twigs.map(read),
                    None => return Ok(None),
                }
            }
        };
        let side = |(node, below): (Node, Known<'a>), bit: bool| {
            let mut base = self.base.clone();
            base.push(bit);
            base.append(&node.jump);
            Place { nodes: self.nodes, node, below, base }
        };
        Ok(Some([side(left, false), side(right, true)]))
    }

    fn step(own: &Place<'_>, other: &Place<'_>) -> Step {
        Step { consumed: 1 + own.node.jump.len(), sibling: other.node.clone() }
    }
}

/// Goes down a path as far as the tree does. Gives where that ended, how many bits of the path lead there, and the steps so far,
/// the deepest last.
fn descend<'a>(top: Place<'a>, path: &Path) -> Result<(Place<'a>, usize, Vec<Step>), Error> {
    let (mut place, mut at, mut steps) = (top, 0, Vec::new());
    loop {
        let shared = path.common(at, &place.node.jump);
        if shared < place.node.jump.len() || at + shared == path.len() {
            return Ok((place, at + shared, steps));
        }
        let Some([left, right]) = place.sides()? else { return Ok((place, at + shared, steps)) };
        at += shared;
        let (own, other) = if path.bit(at) { (right, left) } else { (left, right) };
        steps.push(Place::step(&own, &other));
        place = own;
        at += 1;
    }
}

/// The entry that is reached by going left from a place, and the steps to it.
fn first_below<'a>(mut place: Place<'a>, steps: &mut Vec<Step>) -> Result<Place<'a>, Error> {
    while let Some([left, right]) = place.sides()? {
        steps.push(Place::step(&left, &right));
        place = left;
    }
    Ok(place)
}

fn inclusion(key: Path, value: Hash, mut steps: Vec<Step>) -> Inclusion {
    steps.reverse();
    let used: usize = steps.iter().map(|step| step.consumed).sum();
    let root_jump = key.part(0, key.len().saturating_sub(used));
    Inclusion { key, value, steps, root_jump }
}

/// That an entry is there; none if it is not.
pub(crate) fn include(top: Option<Place<'_>>, key: &Path) -> Result<Option<Inclusion>, Error> {
    let Some(top) = top else { return Ok(None) };
    let (place, at, steps) = descend(top, key)?;
    if at < key.len() || place.base.len() != key.len() {
        return Ok(None);
    }
    Ok(Some(inclusion(key.clone(), place.node.value, steps)))
}

/// That nothing is there that begins with a path; none if something does, or if an entry stands on the way to it.
pub(crate) fn exclude(top: Option<Place<'_>>, key: &Path) -> Result<Option<Exclusion>, Error> {
    let Some(top) = top else { return Ok(Some(Exclusion::Empty)) };
    let (place, at, mut steps) = descend(top, key)?;
    // They must part in the middle of a jump.
    if at == key.len() || at >= place.base.len() {
        return Ok(None);
    }
    let place = first_below(place, &mut steps)?;
    let value = place.node.value;
    // It is as long as the path of an entry.
    let path = place.base.finish()?;
    let witness = inclusion(path, value, steps);
    Ok(Some(Exclusion::Witness { target: key.clone(), witness }))
}

/// All entries that begin with a prefix, and the proof of it; no proof if the tree is empty.
pub(crate) fn complete(
    top: Option<Place<'_>>,
    prefix: &Path,
) -> Result<(Vec<Leaf>, Option<Completeness>), Error> {
    let Some(top) = top else { return Ok((Vec::new(), None)) };
    let (place, at, mut steps) = descend(top, prefix)?;
    if at < prefix.len() {
        let nothing = match at < place.base.len() {
            true => {
                let place = first_below(place, &mut steps)?;
                let value = place.node.value;
                let witness = inclusion(place.base.finish()?, value, steps);
                Some(Exclusion::Witness { target: prefix.clone(), witness })
            }
            // An entry stands on the way to the prefix; no proof has a form for that.
            false => None,
        };
        return Ok((Vec::new(), nothing.map(Completeness::Nothing)));
    }
    let leaves = leaves(place)?;
    let mut merges = Vec::new();
    crate::proof::subtree(&leaves, 0, &mut merges)
        .map_err(|wrong| Error::Inconsistent(wrong.to_string()))?;
    steps.reverse();
    Ok((leaves, Some(Completeness::Leaves { merges, steps })))
}

/// All entries at a place and below it, in order.
pub(crate) fn leaves(place: Place<'_>) -> Result<Vec<Leaf>, Error> {
    let (mut leaves, mut open) = (Vec::new(), vec![place]);
    while let Some(mut place) = open.pop() {
        match place.sides()? {
            Some([left, right]) => open.extend([right, left]),
            None => leaves.push((place.base.finish()?, place.node.value)),
        }
    }
    Ok(leaves)
}
