//! All nodes in the order of the service's rows, from rows that have several of them.

use std::collections::VecDeque;
use std::ops::Bound;

use ledger::Snapshot;

use crate::error::Error;
use crate::format::tuft::Form;
use crate::hash::Node;
use crate::path::Bits;
use crate::tables::CSMT;

/// All nodes of packed rows with their positions, by depth and then by path: the order of the service's rows.
pub(crate) fn nodes(
    snapshot: &dyn Snapshot,
) -> impl Iterator<Item = Result<(Bits, Node), Error>> + '_ {
    let mut walk = Walk { snapshot, start: 0, depth: 0, rows: None, ready: VecDeque::new() };
    let mut is_over = false;
    std::iter::from_fn(move || {
        let next = if is_over { Ok(None) } else { walk.next() };
        is_over = !matches!(next, Ok(Some(_)));
        next.transpose()
    })
}

/// Where one is among the nodes. Rows of a length are looked at once for each of their depths.
struct Walk<'a> {
    snapshot: &'a dyn Snapshot,
    /// How long the positions of these rows are.
    start: usize,
    /// Which of their depths it is.
    depth: usize,
    rows: Option<ledger::Rows<'a>>,
    ready: VecDeque<(Bits, Node)>,
}

impl Walk<'_> {
    const FORM: Form = Form::Packed;

    fn next(&mut self) -> Result<Option<(Bits, Node)>, Error> {
        loop {
            if let Some(node) = self.ready.pop_front() {
                return Ok(Some(node));
            }
            if self.rows.is_none() {
                let (from, to) = (length(self.start), length(self.start + 1));
                let from =
                    from.as_ref().map_or(Bound::Unbounded, |from| Bound::Included(&from[..]));
                let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(&to[..]));
                self.rows = Some(self.snapshot.scan(CSMT, (from, to))?);
            }
            if let Some(row) = self.rows.as_mut().and_then(Iterator::next) {
                let (key, value) = row?;
                let damaged = |wrong| Error::damaged(CSMT, &key, wrong);
                let position = Walk::FORM.position(&key).map_err(damaged)?;
                let tuft = Walk::FORM.tuft(&value).map_err(damaged)?;
                for (slot, node) in tuft.iter().filter(|(slot, _)| slot.depth() == self.depth) {
                    let mut position = Bits::from(&position);
                    slot.bits().for_each(|bit| position.push(bit));
                    self.ready.push_back((position, node.clone()));
                }
                continue;
            }
            self.rows = None;
            self.depth += 1;
            if self.depth == Walk::FORM.depths() {
                self.depth = 0;
                let Some(start) = self.next_length()? else { return Ok(None) };
                self.start = start;
            }
        }
    }

    /// The next length of positions that any row has.
    fn next_length(&self) -> Result<Option<usize>, Error> {
        let Some(from) = length(self.start + 1) else { return Ok(None) };
        let rest = self.snapshot.scan(CSMT, (Bound::Included(&from), Bound::Unbounded))?.next();
        let Some(row) = rest else { return Ok(None) };
        let (key, _) = row?;
        let position = Walk::FORM.position(&key);
        Ok(Some(position.map_err(|wrong| Error::damaged(CSMT, &key, wrong))?.len()))
    }
}

/// What keys of positions begin with that have so many bits; none if there are no such.
fn length(bits: usize) -> Option<[u8; 2]> {
    u16::try_from(bits).ok().map(u16::to_be_bytes)
}
