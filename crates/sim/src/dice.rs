//! Choices.

use fastrand::Rng;

/// One of these, each as likely as the others.
pub(crate) fn one_of<T: Copy>(rng: &mut Rng, first: T, others: &[T]) -> T {
    let at = rng.usize(..=others.len()).checked_sub(1);
    at.and_then(|at| others.get(at)).copied().unwrap_or(first)
}
