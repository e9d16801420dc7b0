//! Everything checked against everything: nodes against each other and against entries, points against the root.
//!
//! Every leaf must have its entry, with the digest of its value and the path that it should have; and there must be as many of
//! one as of the other, and no row besides. So the tree is the one that the entries make, without making it again.

use std::ops::Bound;

use ledger::{Snapshot, Table};

use super::Store;
use super::open::read_config;
use super::rollback::point_of;
use crate::error::{Error, hex};
use crate::format::rollback;
use crate::hash::{Hash, join};
use crate::path::{Bits, Path};
use crate::tables::{ARRIVALS, CONFIG, CSMT, KV, ROLLBACKS};
use crate::tree::{Below, Nodes, Twig};

/// Findings that are listed; there may be more.
const FINDINGS: usize = 1000;

/// What was looked at, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Entries.
    pub entries: u64,
    /// Nodes of the tree.
    pub nodes: u64,
    /// Points that can be gone back to.
    pub points: u64,
    /// The root; none of an empty tree.
    pub root: Option<Hash>,
    /// What is wrong, each with its place.
    pub findings: Vec<String>,
}

impl Check {
    fn find(&mut self, what: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(what);
        }
    }
}

impl Store {
    /// Looks at everything. The number of nodes looked at so far is told now and then.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<Check, Error> {
        let snapshot = self.engine.snapshot()?;
        let mut check = Check::default();
        let leaves = self.check_tree(&*snapshot, &mut check, progress)?;
        check.entries = count(&*snapshot, KV)?;
        if leaves != check.entries {
            check.find(format!("there are {} entries and {leaves} leaves", check.entries));
        }
        let nodes = self.count_nodes(&*snapshot, &mut check)?;
        if nodes != check.nodes {
            check.find(format!("there are {nodes} nodes, and {} are of the tree", check.nodes));
        }
        check_points(&*snapshot, &mut check)?;
        Ok(check)
    }

    /// Walks the tree. Gives how many leaves it has.
    fn check_tree(
        &self,
        snapshot: &dyn Snapshot,
        check: &mut Check,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, Error> {
        let nodes = Nodes::new(snapshot, self.form);
        let mut leaves = 0;
        let mut open: Vec<(Bits, Twig)> = Vec::new();
        match nodes.top() {
            Ok(Some(top)) => {
                check.root = Some(top.node.root());
                open.push((Bits::default(), top));
            }
            Ok(None) => {}
            Err(error @ Error::Engine(_)) => return Err(error),
            Err(error) => check.find(error.to_string()),
        }
        while let Some((position, Twig { node, below })) = open.pop() {
            check.nodes += 1;
            if check.nodes.is_multiple_of(4096) {
                progress(check.nodes);
            }
            let mut base = position;
            base.append(&node.jump);
            let Ok(path) = base.to_path() else {
                check.find("a node is deeper than a path can be".to_owned());
                continue;
            };
            let sides = match below {
                Below::Leaf => Ok(None),
                Below::Sides(sides) => Ok(Some(sides.twigs)),
                Below::Unknown => nodes.sides(&mut base, 0),
            };
            match sides {
                Ok(Some([left, right])) => {
                    if join(&left.node, &right.node) != node.value {
                        check.find(format!(
                            "the branch at {path} has another digest than its sides make"
                        ));
                    }
                    for (bit, side) in [(true, right), (false, left)] {
                        let mut position = base.clone();
                        position.push(bit);
                        open.push((position, side));
                    }
                }
                Ok(None) => {
                    leaves += 1;
                    self.check_leaf(snapshot, &path, node.value, check)?;
                }
                Err(error @ Error::Engine(_)) => return Err(error),
                Err(error) => check.find(error.to_string()),
            }
        }
        progress(check.nodes);
        Ok(leaves)
    }

    /// How many nodes are in rows, whether the tree has them or not.
    fn count_nodes(&self, snapshot: &dyn Snapshot, check: &mut Check) -> Result<u64, Error> {
        let mut nodes = 0;
        for row in snapshot.scan(CSMT, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, value) = row?;
            match self.form.position(&key).and_then(|_| self.form.tuft(&value)) {
                Ok(tuft) => nodes += tuft.iter().map(|_| 1).sum::<u64>(),
                Err(wrong) => check.find(Error::damaged(CSMT, &key, wrong).to_string()),
            }
        }
        Ok(nodes)
    }

    fn check_leaf(
        &self,
        snapshot: &dyn Snapshot,
        path: &Path,
        digest: Hash,
        check: &mut Check,
    ) -> Result<(), Error> {
        let Some(key) = self.settings.path.key(path) else {
            check.find(format!("the leaf at {path} is under no key"));
            return Ok(());
        };
        let Some(value) = snapshot.get(KV, &key)? else {
            check.find(format!("the leaf of {} has no entry", hex(&key)));
            return Ok(());
        };
        if Hash::of(&value) != digest {
            check.find(format!("the entry {} has another value than its leaf says", hex(&key)));
        }
        match self.settings.path.path(&key, &value) {
            Ok(wanted) if wanted == *path => {}
            Ok(_) => check.find(format!("the entry {} is at another place of the tree", hex(&key))),
            Err(error) => check.find(error.to_string()),
        }
        Ok(())
    }
}

fn count(snapshot: &dyn Snapshot, table: Table) -> Result<u64, Error> {
    let mut rows = 0;
    for row in snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded))? {
        row?;
        rows += 1;
    }
    Ok(rows)
}

/// Every point has its row, every row its point, and the newest has the root.
fn check_points(snapshot: &dyn Snapshot, check: &mut Check) -> Result<(), Error> {
    let mut last = None;
    let mut expected: Option<u64> = None;
    for row in snapshot.scan(ARRIVALS, (Bound::Unbounded, Bound::Unbounded))? {
        let (number, _) = row?;
        let Ok(number) = <[u8; 8]>::try_from(&*number).map(u64::from_be_bytes) else {
            check.find(format!("a rollback point has the number {}", hex(&number)));
            continue;
        };
        if expected.is_some_and(|expected| expected != number) {
            check.find(format!("rollback points are missing before number {number}"));
        }
        expected = number.checked_add(1);
        match point_of(snapshot, number) {
            Ok((key, point)) => {
                check.points += 1;
                last = Some((key, point));
            }
            Err(error @ Error::Engine(_)) => return Err(error),
            Err(error) => check.find(error.to_string()),
        }
    }
    let rows = count(snapshot, ROLLBACKS)?;
    if rows != check.points {
        check.find(format!("there are {rows} rollback points, and {} have a number", check.points));
    }
    let config = match read_config(snapshot) {
        Ok(config) => config,
        Err(error @ Error::Engine(_)) => return Err(error),
        Err(error) => {
            check.find(error.to_string());
            return Ok(());
        }
    };
    let others = count(snapshot, CONFIG)?.saturating_sub(1);
    if others > 0 {
        check.find(format!("config has {others} rows that nobody knows"));
    }
    let Some((key, point)) = last else {
        check.find("there is no rollback point".to_owned());
        return Ok(());
    };
    if config.in_progress {
        check.find("a bootstrap is not done".to_owned());
    } else if point.root != check.root {
        check.find("the newest rollback point has another root than the tree".to_owned());
    }
    match rollback::point(&key) {
        Ok(tip) if config.base.unwrap_or_default() != tip => {
            check.find(format!("config says that the chain is elsewhere than at {tip}"));
        }
        Ok(_) => {}
        Err(wrong) => check.find(Error::damaged(ROLLBACKS, &key, wrong).to_string()),
    }
    Ok(())
}
