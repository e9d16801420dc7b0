//! How long tasks tell how far they have come, and how they are stopped.

use std::cell::Cell;

use crate::error::{Error, Result};

/// How far a long task has come.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// What is being done.
    pub stage: &'static str,
    /// Bytes done of this stage.
    pub done: u64,
    /// Bytes of this stage.
    pub total: u64,
    is_stopped: &'a Cell<bool>,
}

impl Progress<'_> {
    /// Asks the task to end here. It gives [`Error::Interrupted`](crate::Error::Interrupted) and leaves no half-written file behind.
    pub fn stop(&self) {
        self.is_stopped.set(true);
    }
}

/// Tells whoever waits, and stops if they ask for it.
pub(crate) fn report(
    progress: &mut dyn FnMut(Progress<'_>),
    stage: &'static str,
    done: u64,
    total: u64,
) -> Result<()> {
    let is_stopped = Cell::new(false);
    progress(Progress { stage, done, total, is_stopped: &is_stopped });
    if is_stopped.get() { Err(Error::Interrupted) } else { Ok(()) }
}
