//! What a bucket should hold, as far as that can be known.

use std::collections::BTreeMap;

/// A change of a key, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: u16,
    /// `None` deletes it.
    pub(crate) value: Option<Value>,
}

/// A value, by what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) len: u32,
    pub(crate) fill: u8,
    /// Seconds for which it counts.
    pub(crate) ttl: Option<u32>,
}

impl Value {
    /// Its bytes. Half of all values can be compressed.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(u64::from(self.fill));
        let byte = |_| if self.fill.is_multiple_of(2) { self.fill } else { random.u8(..) };
        (0..self.len).map(byte).collect()
    }
}

/// A time known to lie between two nanoseconds. A bucket's clock goes by the wall's or by stamps it gave before, whichever
/// is later, and leaves out stamps that are absurd; so it lies between the wall's time and the latest the wall ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    fn plus_secs(self, secs: u32) -> Span {
        let later = |ns: u64| ns.saturating_add(u64::from(secs) * 1_000_000_000);
        Span { from: later(self.from), to: later(self.to) }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: Value,
    /// When it expires, if it does.
    deadline: Option<Span>,
}

/// What a scan found of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) value: Vec<u8>,
    /// When it expires, if it does.
    pub(crate) deadline: Option<u64>,
}

impl Entry {
    /// True if this is what was found. Two commits may give a key the same value, and then its deadline tells which of them
    /// is there.
    fn is_found(&self, found: &Found) -> bool {
        let is_due = match (self.deadline, found.deadline) {
            (Some(span), Some(deadline)) => (span.from..=span.to).contains(&deadline),
            (None, None) => true,
            _ => false,
        };
        is_due && found.value == self.value.bytes()
    }
}

/// What a lookup may find.
pub(crate) enum Expected {
    Nothing,
    Value(Value),
    Either(Value),
}

/// What is there, by the number of its key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows(BTreeMap<u16, Entry>);

impl Rows {
    fn apply(&mut self, commit: &Commit) {
        for change in &commit.changes {
            match change.value {
                None => drop(self.0.remove(&change.key)),
                Some(value) => {
                    let deadline = value.ttl.map(|ttl| commit.at.plus_secs(ttl));
                    self.0.insert(change.key, Entry { value, deadline });
                }
            }
        }
    }

    pub(crate) fn expect(&self, key: u16, now: Span) -> Expected {
        let Some(entry) = self.0.get(&key) else { return Expected::Nothing };
        match entry.deadline {
            Some(deadline) if deadline.to <= now.from => Expected::Nothing,
            Some(deadline) if deadline.from <= now.to => Expected::Either(entry.value),
            _ => Expected::Value(entry.value),
        }
    }

    /// The first key, of so many, at which what was found cannot be.
    pub(crate) fn differs(
        &self,
        found: &BTreeMap<u16, Found>,
        keys: u16,
        now: Span,
    ) -> Option<u16> {
        (0..keys).find(|key| {
            let entry = self.0.get(key);
            let is_found = found.get(key).map(|found| entry.is_some_and(|it| it.is_found(found)));
            match self.expect(*key, now) {
                Expected::Nothing => is_found.is_some(),
                Expected::Value(_) => is_found != Some(true),
                Expected::Either(_) => is_found == Some(false),
            }
        })
    }

    /// Takes deadlines for what they turned out to be.
    fn learn(&mut self, found: &BTreeMap<u16, Found>) {
        for (key, found) in found {
            if let (Some(entry), Some(deadline)) = (self.0.get_mut(key), found.deadline) {
                entry.deadline = Some(Span { from: deadline, to: deadline });
            }
        }
    }
}

/// A commit, and when it was made.
#[derive(Clone, Debug)]
struct Commit {
    changes: Vec<Change>,
    at: Span,
}

/// What was committed. Behind what is surely durable stand commits that may be lost with the power, in their order; the last may be
/// one that failed, which nobody may see before the bucket is opened again, and then all of it or nothing.
#[derive(Debug, Default)]
pub(crate) struct Model {
    durable: Rows,
    later: Vec<Commit>,
    doubtful: Option<Commit>,
}

impl Model {
    pub(crate) fn commit(&mut self, changes: &[Change], at: Span, is_durable: bool) {
        self.later.push(Commit { changes: changes.to_vec(), at });
        if is_durable {
            self.settle();
        }
    }

    pub(crate) fn doubt(&mut self, changes: &[Change], at: Span) {
        self.doubtful = Some(Commit { changes: changes.to_vec(), at });
    }

    /// Everything that was committed is durable.
    pub(crate) fn settle(&mut self) {
        let later = std::mem::take(&mut self.later);
        later.iter().for_each(|commit| self.durable.apply(commit));
    }

    /// What is to be seen now.
    pub(crate) fn visible(&self) -> Rows {
        let mut rows = self.durable.clone();
        self.later.iter().for_each(|commit| rows.apply(commit));
        rows
    }

    /// Decides by what was found after a restart which commits survived; all of them if only the process died. Gives how many
    /// were lost, or nothing if no choice explains what was found.
    pub(crate) fn recover(
        &mut self,
        found: &BTreeMap<u16, Found>,
        keys: u16,
        now: Span,
        is_power_lost: bool,
    ) -> Option<usize> {
        let count = self.later.len();
        let all: Vec<Commit> = self.later.drain(..).chain(self.doubtful.take()).collect();
        let least = if is_power_lost { 0 } else { count };
        let mut rows = self.durable.clone();
        let mut last = None;
        for kept in 0..=all.len() {
            if kept >= least && rows.differs(found, keys, now).is_none() {
                last = Some((kept, rows.clone()));
            }
            if let Some(commit) = all.get(kept) {
                rows.apply(commit);
            }
        }
        let (kept, mut rows) = last?;
        rows.learn(found);
        self.durable = rows;
        Some(count.saturating_sub(kept))
    }
}
