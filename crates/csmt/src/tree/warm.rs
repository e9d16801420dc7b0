//! Nodes read into memory before they are needed, as many as there is memory for.
//!
//! Rows are in the order of depth, and both sides of a branch are next to each other. So one look at the table from its front takes the
//! upper levels in, which are used the most, and where it ends there is nothing half read.

use std::ops::Bound;

use ledger::Snapshot;

use super::Tree;
use super::twig::{Below, Nodes, Sides, Twig};
use crate::error::Error;
use crate::path::Path;
use crate::tables::CSMT;

impl Tree {
    /// Reads nodes. Gives how many.
    pub(crate) fn warm(&mut self, snapshot: &dyn Snapshot) -> Result<u64, Error> {
        self.forget();
        self.read_top(Nodes::new(snapshot, self.form))?;
        let Some(top) = &mut self.top else { return Ok(0) };
        let (mut bytes, mut nodes) = (0, 1);
        let mut left: Option<(Path, Twig)> = None;
        for row in snapshot.scan(CSMT, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, value) = row?;
            let damaged = |wrong| Error::damaged(CSMT, &key, wrong);
            let position = self.form.position(&key).map_err(damaged)?;
            let Some(last) = position.len().checked_sub(1) else { continue };
            let twig = Twig::unknown(self.form.node(&value).map_err(damaged)?);
            if !position.bit(last) {
                left = Some((position, twig));
                continue;
            }
            // What does not fit together, whoever needs it will find.
            let Some((beside, left)) = left.take() else { continue };
            if beside.len() == position.len() && beside.common(0, &position) == last {
                bytes += left.bytes() + twig.bytes() + size_of::<Sides>();
                nodes += 2;
                let sides = Sides { twigs: [left, twig], turn: self.turn };
                attach(top, &position, last, sides);
            }
            if bytes >= self.memory / 4 * 3 {
                break;
            }
        }
        Ok(nodes)
    }
}

/// Hangs both sides of a branch below the node that ends where they begin.
fn attach(top: &mut Twig, position: &Path, base: usize, sides: Sides) {
    let (mut twig, mut at) = (top, 0);
    loop {
        at += twig.node.jump.len();
        if at == base {
            twig.below = Below::Sides(Box::new(sides));
            return;
        }
        let Below::Sides(below) = &mut twig.below else { return };
        let [left, right] = &mut below.twigs;
        twig = if position.bit(at) { right } else { left };
        at += 1;
        if at > base {
            return;
        }
    }
}
