//! Sorting items by numbers that are spread evenly, as hashes are.
//!
//! Items are dealt out into as many heaps as there are items, by the upper bits of what their numbers differ in; each heap
//! is sorted by itself. Numbers that are spread evenly make heaps of one or two, so the cost is linear. Numbers that are
//! not make larger heaps, at worst one, which costs what a sort costs.

/// Fewer items are sorted as they are.
const FEW: usize = 64;

/// Sorts items by `key`, which orders items with different numbers as the numbers do.
pub(crate) fn sort_spread<T: Copy, K: Ord>(
    items: &mut Vec<T>,
    number: impl Fn(&T) -> u64,
    key: impl Fn(&T) -> K,
) {
    let (mut least, mut most) = (u64::MAX, 0);
    for item in items.iter() {
        least = least.min(number(item));
        most = most.max(number(item));
    }
    let is_countable = u32::try_from(items.len()).is_ok();
    if items.len() < FEW || least == most || !is_countable {
        items.sort_unstable_by_key(key);
        return;
    }
    let heaps = items.len().next_power_of_two();
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(heaps.ilog2());
    let index = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
    let heap = |item: &T| usize::try_from((number(item) - least) >> shift).unwrap_or(usize::MAX);
    // Where each heap begins, and when all are dealt, where it ends.
    let mut bounds = vec![0_u32; heaps];
    for item in items.iter() {
        if let Some(count) = bounds.get_mut(heap(item)) {
            *count += 1;
        }
    }
    let mut total = 0;
    for bound in &mut bounds {
        total += std::mem::replace(bound, total);
    }
    let mut dealt = items.clone();
    for item in items.iter() {
        if let Some(at) = bounds.get_mut(heap(item)) {
            if let Some(place) = dealt.get_mut(index(*at)) {
                *place = *item;
            }
            *at += 1;
        }
    }
    let mut from = 0;
    for to in bounds.into_iter().map(index) {
        if to - from > 1
            && let Some(part) = dealt.get_mut(from..to)
        {
            part.sort_unstable_by_key(&key);
        }
        from = to;
    }
    *items = dealt;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut items: Vec<(u64, u32)>) {
        let mut sorted = items.clone();
        sorted.sort_unstable();
        sort_spread(&mut items, |item| item.0, |item| *item);
        assert_eq!(items, sorted);
    }

    #[test]
    fn sorts_as_the_library_does() {
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..200 {
            let count = rng.usize(0..if round % 20 == 0 { 20_000 } else { 300 });
            let bits = rng.u32(0..64);
            let base = rng.u64(..) >> 1;
            let number = |rng: &mut fastrand::Rng| base + (rng.u64(..) >> bits >> 1);
            check((0..count).map(|_| (number(&mut rng), rng.u32(..5))).collect());
        }
        check((0..1000).map(|id| (7, 1000 - id)).collect());
        check((0..1000).map(|id| (u64::from(id % 2) * u64::MAX, id)).collect());
        check((0..1000).map(|id| (u64::from(id / 999) << 63, id)).collect());
        check((0..1000).map(|id| (u64::MAX - u64::from(id), id)).collect());
    }
}
