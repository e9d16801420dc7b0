//! Nodes read into memory before they are needed, as many as there is memory for.
//!
//! Rows are in the order of depth, and those of both sides of a branch are next to each other. So one look at the table from its front
//! takes the upper levels in, which are used the most, and where it ends there is nothing half read.

use std::ops::Bound;

use ledger::Snapshot;

use super::Tree;
use super::apply::LEVELS;
use super::twig::{Below, Nodes, Sides, Twig};
use crate::error::Error;
use crate::path::{Bits, Path};
use crate::tables::CSMT;

impl Tree {
    /// Reads nodes. Gives how many.
    pub(crate) fn warm(&mut self, snapshot: &dyn Snapshot) -> Result<u64, Error> {
        self.forget();
        let nodes = Nodes::new(snapshot, self.form);
        self.read_top(nodes)?;
        let Some(top) = &mut self.top else { return Ok(0) };
        let (mut bytes, mut count) = (top.all_bytes(), top.count());
        let mut left: Option<(Path, Twig)> = None;
        for row in snapshot.scan(CSMT, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, value) = row?;
            let damaged = |wrong| Error::damaged(CSMT, &key, wrong);
            let mut position = self.form.position(&key).map_err(damaged)?;
            let Some(last) = position.len().checked_sub(1) else { continue };
            let mut tuft = self.form.tuft(&value).map_err(damaged)?;
            // What does not fit together, whoever needs it will find.
            let slot = self.form.slot(&Bits::from(&position));
            let (base, twigs) = match (tuft.branch(), nodes.twig(&mut tuft, slot, self.turn)) {
                (_, Ok(Some(twig))) if position.bit(last) => match left.take() {
                    Some((beside, left)) if beside.common(0, &position) == last => {
                        (last, [left, twig])
                    }
                    _ => continue,
                },
                (_, Ok(Some(twig))) => {
                    left = Some((position, twig));
                    continue;
                }
                (Some(branch), Ok(None)) => match nodes.sides_in(&mut tuft, branch, self.turn) {
                    Ok(Some(twigs)) => {
                        let mut base = Bits::from(&position);
                        branch.bits().for_each(|bit| base.push(bit));
                        position = base.finish()?;
                        (position.len(), twigs)
                    }
                    _ => continue,
                },
                _ => continue,
            };
            let more = size_of::<Sides>() + twigs.iter().map(Twig::all_bytes).sum::<usize>();
            let nodes = twigs.iter().map(Twig::count).sum::<u64>();
            if attach(top, &position, base, Sides { twigs, turn: self.turn }) {
                bytes += more;
                count += nodes;
            }
            if bytes >= self.memory / 4 * 3 {
                break;
            }
        }
        Ok(count)
    }
}

/// Hangs both sides of a branch below the node that ends where they begin, unless that is not in memory or too deep for it.
fn attach(top: &mut Twig, position: &Path, base: usize, sides: Sides) -> bool {
    let (mut twig, mut at) = (top, 0);
    for _ in 0..LEVELS {
        at += twig.node.jump.len();
        if at == base {
            twig.below = Below::Sides(Box::new(sides));
            return true;
        }
        let Below::Sides(below) = &mut twig.below else { return false };
        let [left, right] = &mut below.twigs;
        twig = if position.bit(at) { right } else { left };
        at += 1;
        if at > base {
            return false;
        }
    }
    false
}
