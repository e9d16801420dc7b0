//! Making a failing history shorter.

use crate::{Failure, System};

/// The shortest history found that still fails under a seed: what is behind the failure goes first, then pieces of it, larger
/// ones before smaller ones, until no single step can be left out. `None` if the seed does not fail.
pub fn shrink<S: System + ?Sized>(system: &S, seed: u64) -> Option<(Vec<S::Step>, Failure)> {
    let mut steps = system.history(seed);
    let mut failure = system.run(seed, &steps).err()?;
    steps.truncate(failure.step + 1);
    let mut size = steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut is_shorter = false;
        while at < steps.len() {
            let mut rest = steps.clone();
            rest.drain(at..(at + size).min(steps.len()));
            match system.run(seed, &rest) {
                Err(other) => {
                    rest.truncate(other.step + 1);
                    (steps, failure, is_shorter) = (rest, other, true);
                }
                Ok(_) => at += size,
            }
        }
        match size {
            1 if !is_shorter => return Some((steps, failure)),
            1 => {}
            _ => size = size.div_ceil(2),
        }
    }
}
