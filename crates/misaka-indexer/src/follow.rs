//! Following a validator: every item of its feed that the index does not have, one after the other.

use misaka::{Hash, Store, View};

use crate::error::Error;
use crate::index::{Index, Step};
use crate::rows::Tip;

/// Checkpoints that are read from one view. A view that is held for long keeps the validator from giving space back.
const TOGETHER: u64 = 64;

/// Who is told how far something is, and who can end it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told how much is done, of how much; 0 if nobody knows.
    pub progress: &'a dyn Fn(u64, u64),
    /// Asked now and then.
    pub stop: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch<'_> {
    /// Nobody.
    pub const NOBODY: Watch<'static> = Watch { progress: &|_, _| {}, stop: &|| false };

    pub(crate) fn tell(&self, done: u64, total: u64) -> Result<(), Error> {
        (self.progress)(done, total);
        if (self.stop)() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// What following came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Checkpoints that were applied.
    pub checkpoints: u64,
    /// Versions of objects in them.
    pub writes: u64,
    /// Events in them.
    pub events: u64,
}

/// Applies everything that the feed of a validator has and the index has not. Somebody else may write to the validator meanwhile.
pub fn follow(index: &dyn Index, store: &Store, watch: Watch<'_>) -> Result<Followed, Error> {
    let mut followed = Followed::default();
    let mut total = None;
    loop {
        let view = store.view()?;
        let Some((next, last)) = missing(index, &view)? else { return Ok(followed) };
        let total = *total.get_or_insert((last - next).saturating_add(1));
        for seq in next..=last.min(next.saturating_add(TOGETHER - 1)) {
            let step = index.apply(&view.change(seq)?)?;
            if let Step::Applied(summary) = step {
                followed.checkpoints += 1;
                followed.writes += summary.writes;
                followed.events += summary.events;
            }
            watch.tell(followed.checkpoints, total.max(followed.checkpoints))?;
        }
    }
}

/// The numbers of the checkpoints that the index lacks; none if it has all.
fn missing(index: &dyn Index, view: &View<'_>) -> Result<Option<(u64, u64)>, Error> {
    let Some(newest) = view.tip()? else { return Ok(None) };
    let last = newest.header.seq;
    let feed = view.feed()?;
    let tip = index.tip()?;
    let next = match tip {
        Some(tip) if tip.seq >= last => {
            check_same(index, tip, last, newest.digest)?;
            return Ok(None);
        }
        Some(tip) => tip.seq + 1,
        // Whoever was restored has no feed of the checkpoint that it began with.
        None => newest.first,
    };
    match feed {
        Some((first, _)) if first <= next => Ok(Some((next, last))),
        Some((first, _)) => Err(Error::Gap { tip: tip.map(|tip| tip.seq), next: first }),
        None => Err(Error::Gap { tip: tip.map(|tip| tip.seq), next: last.saturating_add(1) }),
    }
}

/// Of a validator that has nothing new, the newest checkpoint must be one that the index has, as far as it knows.
fn check_same(index: &dyn Index, tip: Tip, seq: u64, given: Hash) -> Result<(), Error> {
    let known = match tip.seq == seq {
        true => Some(tip.digest),
        false => index.summary(seq)?.map(|summary| summary.digest),
    };
    match known {
        Some(known) if known != given => Err(Error::Fork { seq, known, given }),
        _ => Ok(()),
    }
}
