//! A whole tree from its entries in order, with memory for one path only.
//!
//! A node is known as soon as the next entry tells where it branches, and is handed over then. What is kept of a left side is its
//! part of the branch's digest.

use crate::error::Error;
use crate::hash::{Hash, Joining, Node};
use crate::path::{Bits, Path};

/// A tree that grows entry by entry.
pub(crate) struct Grower {
    /// Branches whose right side is not done, from the top down.
    open: Vec<(usize, Joining)>,
    /// The entry that came last.
    last: Option<(Path, Hash)>,
}

/// How far a tree has come, so that it can be gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) last: Path,
    pub(crate) value: Hash,
    pub(crate) branches: Vec<u16>,
}

impl Grower {
    pub(crate) fn new() -> Grower {
        Grower { open: Vec::new(), last: None }
    }

    /// Goes on where it was left. Nodes of left sides are asked for.
    pub(crate) fn resume(
        progress: Progress,
        mut node: impl FnMut(&Bits) -> Result<Option<Node>, Error>,
    ) -> Result<Grower, Error> {
        let mut open = Vec::new();
        for branch in progress.branches.into_iter().map(usize::from) {
            let mut position = Bits::from(&progress.last.part(0, branch));
            position.push(false);
            let left = node(&position)?.ok_or_else(|| {
                Error::Inconsistent("a bootstrap cannot be gone on with: wipe it".to_owned())
            })?;
            open.push((branch, Joining::left(&left)));
        }
        Ok(Grower { open, last: Some((progress.last, progress.value)) })
    }

    /// How far it has come.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let (last, value) = self.last.clone()?;
        let branches = self.open.iter().filter_map(|(branch, _)| u16::try_from(*branch).ok());
        Some(Progress { last, value, branches: branches.collect() })
    }

    /// The next entry.
    pub(crate) fn push(
        &mut self,
        path: Path,
        value: Hash,
        take: &mut dyn FnMut(&Bits, &Node),
    ) -> Result<(), Error> {
        if let Some((last, last_value)) = self.last.take() {
            let branch = last.common(0, &path);
            if branch >= last.len().min(path.len()) {
                return Err(Error::Prefix(path));
            }
            if last.bit(branch) {
                return Err(Error::Inconsistent("entries do not come in order".to_owned()));
            }
            let (end, value) = self.close(&last, last_value, Some(branch), take);
            let left = Node { jump: last.part(branch + 1, end), value };
            let mut position = Bits::from(&last.part(0, branch));
            position.push(false);
            take(&position, &left);
            self.open.push((branch, Joining::left(&left)));
        }
        self.last = Some((path, value));
        Ok(())
    }

    /// Closes all branches below a bit on the path of the last entry. Gives where the node that is left ends, and its digest.
    fn close(
        &mut self,
        path: &Path,
        value: Hash,
        down_to: Option<usize>,
        take: &mut dyn FnMut(&Bits, &Node),
    ) -> (usize, Hash) {
        let (mut end, mut value) = (path.len(), value);
        while let Some((branch, left)) = self.open.pop_if(|(branch, _)| Some(*branch) > down_to) {
            let right = Node { jump: path.part(branch + 1, end), value };
            let mut position = Bits::from(&path.part(0, branch));
            position.push(true);
            take(&position, &right);
            (end, value) = (branch, left.right(&right));
        }
        (end, value)
    }

    /// No more entries. Gives the root; none of an empty tree.
    pub(crate) fn finish(mut self, take: &mut dyn FnMut(&Bits, &Node)) -> Option<Hash> {
        let (path, value) = self.last.take()?;
        let (end, value) = self.close(&path, value, None, take);
        let top = Node { jump: path.part(0, end), value };
        take(&Bits::default(), &top);
        Some(top.root())
    }
}
