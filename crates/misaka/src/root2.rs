//! StateRoot-v2 as a function of a set: nothing is 32 zeros, one entry its leaf, more a node of sixteen ways by the next half byte of
//! their paths.
//!
//! `Made` are nodes of a part of the tree that nobody has hashed yet. All of one depth are hashed beside each other, the deepest first.

use crate::error::Rule;
use crate::format::node::{Child, Children, Place};
use crate::hash::Hash;
use crate::leaf;
use crate::settings::RootVersion;

/// Half bytes of a path.
pub(crate) const DEPTH_MAX: usize = 64;
/// Nodes that are hashed at a time.
const TOGETHER: usize = 512;
/// Bytes that are hashed of a node.
const NODE_LEN: usize = 1 + 16 * 32;

/// An entry of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Leaf {
    pub(crate) path: Hash,
    pub(crate) place: Place,
    pub(crate) digest: Hash,
}

/// The root of a set of keys and values, each key once.
pub fn root_of(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<Hash, Rule> {
    let mut leaves: Vec<Leaf> = entries
        .iter()
        .map(|(key, value)| {
            let path = leaf::path(key);
            let digest = leaf::leaf(RootVersion::V2, key, value);
            Leaf { path, place: Place::Param(path), digest }
        })
        .collect();
    leaves.sort_unstable();
    if leaves.windows(2).any(|two| matches!(two, [a, b] if a.path == b.path)) {
        return Err(Rule::DuplicatePath);
    }
    let mut made = Made::default();
    let top = made.build(&leaves, 0);
    made.hash();
    Ok(made.child(&top).digest())
}

/// The same for v1.
pub fn root1_of(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<Hash, Rule> {
    let mut sorted: Vec<&(Vec<u8>, Vec<u8>)> = entries.iter().collect();
    sorted.sort_unstable();
    if sorted.windows(2).any(|two| matches!(two, [a, b] if a.0 == b.0)) {
        return Err(Rule::DuplicateKey);
    }
    let leaves: Vec<Hash> =
        sorted.iter().map(|(key, value)| leaf::leaf(RootVersion::V1, key, value)).collect();
    Ok(crate::merkle(&leaves))
}

/// What a node that is being made has at one of its places.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Twig {
    /// Something that is known.
    Known(Child),
    /// Another one that is being made.
    Made(usize),
}

/// A node that is being made.
#[derive(Debug)]
pub(crate) struct NewNode {
    pub(crate) depth: usize,
    /// A path that leads to it.
    pub(crate) path: Hash,
    pub(crate) twigs: Vec<(usize, Twig)>,
    digest: Hash,
}

/// Nodes that are being made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) nodes: Vec<NewNode>,
}

impl Made {
    /// A node, or less if it is not needed: a leaf alone stands at the highest place where it is alone.
    pub(crate) fn node(&mut self, depth: usize, path: Hash, twigs: Vec<(usize, Twig)>) -> Twig {
        match twigs.as_slice() {
            [] => Twig::Known(Child::Empty),
            [(_, Twig::Known(leaf @ Child::Leaf(..)))] => Twig::Known(*leaf),
            _ => {
                self.nodes.push(NewNode { depth, path, twigs, digest: Hash::ZERO });
                Twig::Made(self.nodes.len() - 1)
            }
        }
    }

    /// The tree over leaves, in the order of their paths, from a depth on.
    pub(crate) fn build(&mut self, leaves: &[Leaf], depth: usize) -> Twig {
        match leaves {
            [] => Twig::Known(Child::Empty),
            [leaf] => Twig::Known(Child::Leaf(leaf.place, leaf.digest)),
            [Leaf { path, .. }, ..] => {
                let twigs = by_nibble(leaves, depth, |leaf| &leaf.path)
                    .map(|(nibble, part)| (nibble, self.build(part, depth + 1)))
                    .collect();
                self.node(depth, *path, twigs)
            }
        }
    }

    /// Hashes all of them.
    pub(crate) fn hash(&mut self) {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        let depth = |at: &usize| self.nodes.get(*at).map_or(0, |node| node.depth);
        order.sort_by_key(|at| std::cmp::Reverse(depth(at)));
        let mut messages: Vec<[u8; NODE_LEN]> = Vec::new();
        let groups: Vec<&[usize]> = order
            .chunk_by(|a, b| depth(a) == depth(b))
            .flat_map(|same| same.chunks(TOGETHER))
            .collect();
        for group in groups {
            messages.clear();
            for at in group {
                let mut message = [0; NODE_LEN];
                if let (Some(node), Some((first, places))) =
                    (self.nodes.get(*at), message.split_first_mut())
                {
                    *first = 1;
                    for (nibble, twig) in &node.twigs {
                        if let Some(place) = places.get_mut(32 * nibble..32 * (nibble + 1)) {
                            place.copy_from_slice(&self.child(twig).digest().0);
                        }
                    }
                }
                messages.push(message);
            }
            let digests = Hash::of_each(messages.iter().map(<[u8; NODE_LEN]>::as_slice));
            for (at, digest) in group.iter().zip(digests) {
                if let Some(node) = self.nodes.get_mut(*at) {
                    node.digest = digest;
                }
            }
        }
    }

    /// What became of a twig, once all are hashed.
    pub(crate) fn child(&self, twig: &Twig) -> Child {
        match twig {
            Twig::Known(child) => *child,
            Twig::Made(at) => {
                Child::Inner(self.nodes.get(*at).map_or(Hash::ZERO, |node| node.digest))
            }
        }
    }

    /// The children of a node, each with its place, once all are hashed.
    pub(crate) fn children<'a>(
        &'a self,
        node: &'a NewNode,
    ) -> impl Iterator<Item = (usize, Child)> + 'a {
        node.twigs.iter().map(|(nibble, twig)| (*nibble, self.child(twig)))
    }
}

/// The digest of a node with these children.
pub(crate) fn digest(children: &Children) -> Hash {
    let mut message = [0; NODE_LEN];
    if let Some((first, places)) = message.split_first_mut() {
        *first = 1;
        for (place, child) in places.chunks_exact_mut(32).zip(children) {
            place.copy_from_slice(&child.digest().0);
        }
    }
    Hash::of(&[&message])
}

/// Things in the order of their paths, in groups of those that have the same half byte at a depth.
pub(crate) fn by_nibble<'a, T>(
    things: &'a [T],
    depth: usize,
    path: impl Fn(&T) -> &Hash + 'a,
) -> impl Iterator<Item = (usize, &'a [T])> {
    let nibble = move |thing: &T| path(thing).nibble(depth);
    let mut rest = things;
    std::iter::from_fn(move || {
        let first = nibble(rest.first()?);
        let len = rest.partition_point(|thing| nibble(thing) <= first);
        let (part, others) = rest.split_at_checked(len)?;
        rest = others;
        Some((first, part))
    })
}
