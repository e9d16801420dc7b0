//! What the values of parameters mean, and what must be true of them together. The store keeps them as bytes; this is for whoever lets
//! them in, after all changes of a checkpoint.

use std::collections::BTreeMap;

use super::mcs::{Decoder, whole};
use crate::error::Rule;
use crate::hash::Hash;

/// The parameter that says how the root of the state is made.
pub const STATE_ROOT_VERSION: &str = "state_root_version";
/// Parts of ten thousand.
const WHOLE: u32 = 10_000;

/// Parameters by name.
pub type Params = BTreeMap<String, Vec<u8>>;

fn get<'a, T>(
    params: &'a Params,
    name: &str,
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, Rule>,
) -> Result<Option<T>, Rule> {
    params.get(name).map(|bytes| whole(bytes, read)).transpose()
}

/// The version of the state root that the parameters ask for; none if they do not say.
pub fn state_root_version(params: &Params) -> Result<Option<u16>, Rule> {
    match get(params, STATE_ROOT_VERSION, Decoder::u16)? {
        Some(version) if version != 1 && version != 2 => Err(Rule::StateRootVersion),
        version => Ok(version),
    }
}

/// Fewest members of a committee that decide.
pub fn committee_m_min(n: u32) -> u32 {
    u32::try_from((2 * u64::from(n)).div_ceil(3)).unwrap_or(n)
}

/// Checks all parameters that have a meaning. Those that are not there, and those that nobody knows, are left alone.
pub fn check(params: &Params) -> Result<(), Rule> {
    state_root_version(params)?;
    check_committee(params)?;
    let bps = |name| get(params, name, Decoder::u16);
    bps("r_annual")?;
    let parts = [bps("p_validator")?, bps("p_grants")?, bps("p_treasury")?];
    if parts.iter().any(Option::is_some)
        && parts.iter().flatten().map(|part| u32::from(*part)).sum::<u32>() != WHOLE
    {
        return Err(Rule::SplitSum);
    }
    get(params, "weak_subjectivity_period_ms", Decoder::u64)?;
    get(params, "timelock_checkpoints", Decoder::u64)?;
    Ok(())
}

/// The committee is one thing in four parameters.
fn check_committee(params: &Params) -> Result<(), Rule> {
    let keys = get(params, "committee_pubkeys", |decoder| {
        decoder.list(32, |item: &mut Decoder<'_>| item.array::<32>())
    })?;
    let n = get(params, "committee_n", Decoder::u32)?;
    let m = get(params, "committee_m", Decoder::u32)?;
    let id = get(params, "committee_id", |decoder| decoder.array().map(Hash))?;
    let (keys, n, m, id) = match (keys, n, m, id) {
        (Some(keys), Some(n), Some(m), Some(id)) => (keys, n, m, id),
        (None, None, None, None) => return Ok(()),
        _ => return Err(Rule::CommitteeSet),
    };
    if !keys.is_sorted_by(|a, b| a < b) {
        return Err(Rule::PubkeysOrder);
    }
    if usize::try_from(n) != Ok(keys.len()) {
        return Err(Rule::CommitteeN);
    }
    if !(committee_m_min(n)..=n).contains(&m) {
        return Err(Rule::CommitteeM);
    }
    match Hash::of(&[&keys.concat()]) == id {
        true => Ok(()),
        false => Err(Rule::CommitteeId),
    }
}
