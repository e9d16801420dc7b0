//! Choices.

use fastrand::Rng;

/// One of these, each as likely as the others.
pub(crate) fn one_of<T: Copy>(rng: &mut Rng, first: T, others: &[T]) -> T {
    let at = rng.usize(..=others.len()).checked_sub(1);
    at.and_then(|at| others.get(at)).copied().unwrap_or(first)
}

/// Seconds that a clock jumps by: mostly less than some hours, sometimes days.
pub(crate) fn clock_jump(rng: &mut Rng) -> i64 {
    match rng.u8(..4) {
        0 => rng.i64(-300_000..300_000),
        _ => rng.i64(-4000..10_000),
    }
}
