//! Finding a key among entries of one hash.
//!
//! Entries with equal hashes stand side by side, ordered by key bytes. Almost always there is one. When
//! somebody floods a bucket with keys of one hash, the first few are compared in turn and the rest are
//! searched by halving, so the cost grows with the logarithm of the flood.

use host::planted::{Bug, is_planted};

use crate::error::{Error, Result, What};
use crate::format::index_page::slot_hash;
use crate::log::Log;
use crate::opened::Opened;

/// How many entries are compared in turn.
pub(crate) const IN_TURN: u64 = 8;

/// An entry of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// Its record is here.
    At(u64),
    /// Its record is not there any more.
    Gone,
    /// There are no more entries.
    End,
}

/// Finds `key` in the group of a slot hash; `member(i)` is its i-th entry.
#[inline]
pub(crate) fn find_in_group<'a>(
    log: &'a Log,
    hash: u64,
    key: &[u8],
    member: impl Fn(u64) -> Result<Member>,
) -> Result<Option<Opened<'a>>> {
    for index in 0..IN_TURN {
        match member(index)? {
            Member::End => return Ok(None),
            Member::Gone => {}
            Member::At(paddr) => {
                let record = log.record(paddr)?;
                // A sound record of another hash is not the one that was put there.
                if slot_hash(record.header.hash64.get()) != hash {
                    return Err(Error::corrupt(What::Record, paddr));
                }
                if record.key() == key || is_planted(Bug::KeyNotCompared) {
                    return Ok(Some(record));
                }
            }
        }
    }
    find_by_halving(log, key, member)
}

#[cold]
fn find_by_halving<'a>(
    log: &'a Log,
    key: &[u8],
    member: impl Fn(u64) -> Result<Member>,
) -> Result<Option<Opened<'a>>> {
    // The first entry from here on that has a record, which tells about those before it too.
    let standing = |mut index: u64| -> Result<Option<Opened<'a>>> {
        loop {
            match member(index)? {
                Member::End => return Ok(None),
                Member::Gone => index += 1,
                Member::At(paddr) => return log.record(paddr).map(Some),
            }
        }
    };
    // True from the first entry behind which no record has a key below the wanted one.
    let reached =
        |index| -> Result<bool> { Ok(standing(index)?.is_none_or(|record| record.key() >= key)) };
    let mut low = IN_TURN;
    let mut step = IN_TURN;
    while !reached(low + step)? {
        low += step;
        step *= 2;
    }
    let mut high = low + step;
    while low < high {
        let middle = low + (high - low) / 2;
        if reached(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(standing(low)?.filter(|record| record.key() == key))
}
