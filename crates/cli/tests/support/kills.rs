//! How often a program is killed.

/// So many rounds of so many kills: one, or what `KVB_KILLS` asks for. A round begins anew, so that the last kills of a thousand
/// take no longer than the first.
pub(crate) fn rounds(kills: usize) -> usize {
    let all = std::env::var("KVB_KILLS").map_or(kills, |text| text.parse().unwrap());
    all.div_ceil(kills).max(1)
}
