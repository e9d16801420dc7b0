//! Nodes in memory.

use std::collections::BTreeMap;

use ledger::Snapshot;

use crate::error::Error;
use crate::format::tuft::{Form, Slot, Tuft};
use crate::hash::Node;
use crate::path::{Bits, Path};
use crate::tables::CSMT;

/// Rows of the tree as they are stored.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a> {
    snapshot: &'a dyn Snapshot,
    pub(super) form: Form,
}

impl<'a> Nodes<'a> {
    pub(crate) fn new(snapshot: &'a dyn Snapshot, form: Form) -> Nodes<'a> {
        Nodes { snapshot, form }
    }

    /// The nodes of a row.
    pub(crate) fn tuft(self, position: &Bits) -> Result<Option<Tuft>, Error> {
        let key = self.form.key(position);
        let Some(value) = self.snapshot.get(CSMT, &key)? else { return Ok(None) };
        self.form.tuft(&value).map(Some).map_err(|wrong| Error::damaged(CSMT, &key, wrong))
    }

    /// The node at the top, and what is stored with it.
    pub(crate) fn top(self) -> Result<Option<Twig>, Error> {
        let top = Bits::default();
        let Some(mut tuft) = self.tuft(&top)? else { return Ok(None) };
        self.twig(&mut tuft, self.form.slot(&top), 0)
    }

    /// The nodes on both sides of a branch and what is stored with them; none if there is no branch.
    pub(crate) fn sides(self, base: &mut Bits, turn: u32) -> Result<Option<[Twig; 2]>, Error> {
        let (len, start) = (base.len(), self.form.start(base.len() + 1));
        let mut shared = match start <= len {
            true => match self.tuft(&base.first(start))? {
                Some(tuft) => Some(tuft),
                None => return Ok(None),
            },
            false => None,
        };
        let mut side = |bit| {
            base.push(bit);
            let slot = self.form.slot(base);
            let twig = match &mut shared {
                Some(tuft) => self.twig(tuft, slot, turn),
                None => self.tuft(base).and_then(|tuft| match tuft {
                    Some(mut tuft) => self.twig(&mut tuft, slot, turn),
                    None => Ok(None),
                }),
            };
            base.truncate(len);
            twig
        };
        both(side(false)?, side(true)?)
    }

    /// A node of a tuft, and what is below it there.
    pub(super) fn twig(
        self,
        tuft: &mut Tuft,
        slot: Slot,
        turn: u32,
    ) -> Result<Option<Twig>, Error> {
        let Some(node) = tuft.take(slot) else { return Ok(None) };
        let below = match slot.branch(&node.jump) {
            None => Below::Unknown,
            Some(branch) => match self.sides_in(tuft, branch, turn)? {
                None => Below::Leaf,
                Some(twigs) => Below::Sides(Box::new(Sides { twigs, turn })),
            },
        };
        Ok(Some(Twig { node, below }))
    }

    /// Both sides of a branch in a tuft.
    pub(super) fn sides_in(
        self,
        tuft: &mut Tuft,
        branch: Slot,
        turn: u32,
    ) -> Result<Option<[Twig; 2]>, Error> {
        let left = self.twig(tuft, branch.then(false), turn)?;
        both(left, self.twig(tuft, branch.then(true), turn)?)
    }
}

fn both(left: Option<Twig>, right: Option<Twig>) -> Result<Option<[Twig; 2]>, Error> {
    match (left, right) {
        (Some(left), Some(right)) => Ok(Some([left, right])),
        (None, None) => Ok(None),
        (Some(one), None) | (None, Some(one)) => Err(Error::Inconsistent(format!(
            "a branch has one side only, which has the digest {}",
            one.node.value
        ))),
    }
}

/// A node in memory, and what is below it.
#[derive(Debug, Default)]
pub(crate) struct Twig {
    pub(crate) node: Node,
    pub(crate) below: Below,
}

#[derive(Debug, Default)]
pub(crate) enum Below {
    /// Not in memory; nobody looked whether it is a branch.
    #[default]
    Unknown,
    /// Nothing: it is an entry.
    Leaf,
    /// A branch.
    Sides(Box<Sides>),
}

#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) twigs: [Twig; 2],
    /// When it was used last.
    pub(crate) turn: u32,
}

impl Twig {
    pub(crate) fn leaf(node: Node) -> Twig {
        Twig { node, below: Below::Leaf }
    }

    /// Loads the nodes on some paths into the cache, a level of all paths at a time: to wait for many at once is faster than for one after
    /// the other.
    pub(super) fn touch<'a>(&'a self, paths: impl Iterator<Item = &'a Path>) {
        let mut open: Vec<(&Twig, &Path, usize)> = paths.map(|path| (self, path, 0)).collect();
        let mut sum = 0_u8;
        while !open.is_empty() {
            open.retain_mut(|(twig, path, at)| {
                let Below::Sides(sides) = &twig.below else { return false };
                *at += twig.node.jump.len();
                for twig in &sides.twigs {
                    let [first, ..] = twig.node.value.0;
                    sum ^= first ^ twig.node.jump.bytes().first().unwrap_or(&0);
                }
                let [left, right] = &sides.twigs;
                *twig = if path.bit(*at) { right } else { left };
                *at += 1;
                *at <= path.len()
            });
        }
        std::hint::black_box(sum);
    }

    pub(super) fn bytes(&self) -> usize {
        let own = self.node.jump.bytes().len();
        match &self.below {
            Below::Sides(_) => own + size_of::<Sides>(),
            _ => own,
        }
    }

    /// Bytes of it and of all below it.
    pub(super) fn all_bytes(&self) -> usize {
        self.bytes()
            + match &self.below {
                Below::Sides(sides) => sides.twigs.iter().map(Twig::all_bytes).sum(),
                _ => 0,
            }
    }

    /// How many nodes it and all below it are.
    pub(super) fn count(&self) -> u64 {
        1 + match &self.below {
            Below::Sides(sides) => sides.twigs.iter().map(Twig::count).sum(),
            _ => 0,
        }
    }

    /// Forgets branches that were used longest ago, until what is left has so many bytes.
    pub(super) fn trim(&mut self, bytes: usize) {
        let mut by_turn: BTreeMap<u32, usize> = BTreeMap::new();
        let mut open = vec![&*self];
        while let Some(twig) = open.pop() {
            if let Below::Sides(sides) = &twig.below {
                let [left, right] = &sides.twigs;
                *by_turn.entry(sides.turn).or_default() += left.bytes() + right.bytes();
                open.extend([left, right]);
            }
        }
        let mut kept = 0;
        let first = by_turn.iter().rev().find(|(_, more)| {
            kept += **more;
            kept > bytes
        });
        // Children are never used later than their parents, so whole subtrees go.
        let Some((first, _)) = first else { return };
        let mut open = vec![self];
        while let Some(twig) = open.pop() {
            if matches!(&twig.below, Below::Sides(sides) if sides.turn <= *first) {
                twig.below = Below::Unknown;
            }
            if let Below::Sides(sides) = &mut twig.below {
                open.extend(&mut sides.twigs);
            }
        }
    }
}
