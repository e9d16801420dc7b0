//! Finding a key among entries of one hash.
//!
//! Entries with equal hashes stand side by side, ordered by key bytes. Almost always there is one. When
//! somebody floods a bucket with keys of one hash, the first few are compared in turn and the rest are
//! searched by halving, so the cost grows with the logarithm of the flood.

use crate::error::Result;
use crate::format::record::Record;
use crate::log::Log;

/// How many entries are compared in turn.
const IN_TURN: u64 = 8;

/// Finds `key` in a group. `paddr_at(i)` is the record of the i-th entry, `None` behind the last.
#[inline]
pub(crate) fn find_in_group<'a>(
    log: &'a Log,
    key: &[u8],
    paddr_at: impl Fn(u64) -> Result<Option<u64>>,
) -> Result<Option<Record<'a>>> {
    for index in 0..IN_TURN {
        match paddr_at(index)? {
            None => return Ok(None),
            Some(paddr) => {
                let record = log.record(paddr)?;
                if record.key == key {
                    return Ok(Some(record));
                }
            }
        }
    }
    find_by_halving(log, key, paddr_at)
}

#[cold]
fn find_by_halving<'a>(
    log: &'a Log,
    key: &[u8],
    paddr_at: impl Fn(u64) -> Result<Option<u64>>,
) -> Result<Option<Record<'a>>> {
    // True from the first entry whose key is not below the wanted one.
    let reached = |index| -> Result<bool> {
        Ok(match paddr_at(index)? {
            None => true,
            Some(paddr) => log.record(paddr)?.key >= key,
        })
    };
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
    match paddr_at(low)? {
        Some(paddr) => Ok(Some(log.record(paddr)?).filter(|record| record.key == key)),
        None => Ok(None),
    }
}
