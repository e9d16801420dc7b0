//! Rows of a tree that is built in order.

use ledger::Batch;

use super::put;
use super::twig::Nodes;
use crate::error::Error;
use crate::format::tuft::{Form, Tuft};
use crate::hash::Node;
use crate::path::Bits;

/// Nodes on their way into rows. They come in the order of a [`Grower`](super::Grower): what is below a node before it, and left before right.
/// So rows that wait for more are above each other.
pub(crate) struct Gatherer {
    form: Form,
    /// Rows that are not whole, from the top down.
    open: Vec<(Bits, Tuft)>,
}

impl Gatherer {
    pub(crate) fn new(form: Form) -> Gatherer {
        Gatherer { form, open: Vec::new() }
    }

    /// Goes on where it was left: a node was written whose other side is still to come, and maybe its row is not whole. Gives the
    /// node. The highest is to be asked for first.
    pub(crate) fn resume(&mut self, left: &Bits, nodes: Nodes<'_>) -> Result<Option<Node>, Error> {
        let start = self.form.start(left.len());
        let slot = self.form.slot(left);
        let find = |tuft: &Tuft| tuft.clone().take(slot);
        if let Some((_, tuft)) = self.open.last().filter(|(row, _)| row.len() == start) {
            return Ok(find(tuft));
        }
        let position = left.first(start);
        let Some(tuft) = nodes.tuft(&position)? else { return Ok(None) };
        let node = find(&tuft);
        if start < left.len() {
            self.open.push((position, tuft));
        }
        Ok(node)
    }

    /// Takes a node, and writes the rows that are whole now.
    pub(crate) fn take(&mut self, position: &Bits, node: &Node, batch: &mut Batch) {
        let len = position.len();
        // All that is below it has come.
        while let Some((row, tuft)) = self.open.pop_if(|(row, _)| row.len() > len) {
            put(batch, self.form, &row, &tuft.to_bytes(self.form));
        }
        let start = self.form.start(len);
        if self.open.last().is_none_or(|(row, _)| row.len() < start) {
            self.open.push((position.first(start), Tuft::default()));
        }
        let slot = self.form.slot(position);
        if let Some((_, tuft)) = self.open.last_mut() {
            tuft.add(slot, node.clone());
        }
        if start == len
            && let Some((row, tuft)) = self.open.pop()
        {
            put(batch, self.form, &row, &tuft.to_bytes(self.form));
        }
    }

    /// Writes what there is of the rows that are not whole, to go on from.
    pub(crate) fn write_open(&self, batch: &mut Batch) {
        for (row, tuft) in &self.open {
            put(batch, self.form, row, &tuft.to_bytes(self.form));
        }
    }
}
