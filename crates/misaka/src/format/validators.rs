//! The validator set, and the digest that headers have of it.

use super::mcs::whole;
use crate::error::Rule;
use crate::hash::Hash;

/// Fewest members.
pub const MIN_VALIDATOR_SET_SIZE: usize = 4;

/// A member: its key, and its power.
pub type Validator = ([u8; 32], u64);

/// The digest of a set. The order that it is given in does not matter.
pub fn set_hash(validators: &[Validator]) -> Result<Hash, Rule> {
    let mut sorted = validators.to_vec();
    sorted.sort_unstable();
    let has_twice = sorted.windows(2).any(|two| matches!(two, [a, b] if a.0 == b.0));
    let power = sorted.iter().try_fold(0_u64, |sum, (_, power)| sum.checked_add(*power));
    if sorted.len() < MIN_VALIDATOR_SET_SIZE || has_twice || power.is_none_or(|power| power == 0) {
        return Err(Rule::ValidatorSet);
    }
    let bytes: Vec<u8> = sorted
        .iter()
        .flat_map(|(key, power)| key.iter().copied().chain(power.to_le_bytes()))
        .collect();
    Ok(Hash::of(&[&bytes]))
}

/// Reads `list<{pubkey, power}>`.
pub fn decode(bytes: &[u8]) -> Result<Vec<Validator>, Rule> {
    whole(bytes, |decoder| decoder.list(40, |item| Ok((item.array()?, item.u64()?))))
}
