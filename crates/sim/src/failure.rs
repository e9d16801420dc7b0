//! What a simulation found.

use std::fmt;

/// Something that must not be, and at which step of the history it was noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Number of the step, from 0.
    pub step: usize,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}
