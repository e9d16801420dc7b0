//! A limit on how long something may take, so that a hang is a failure and not a stuck run.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]
#![allow(dead_code, reason = "every test file uses a part of this")]

use std::sync::mpsc;
use std::time::Duration;

/// Runs `work` and panics if it takes longer than `limit`. A thread that hangs is left behind.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, outcome) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(what.to_owned())
        .spawn(move || drop(done.send(work())))
        .expect("a thread for the test");
    match outcome.recv_timeout(limit) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what} did not end within {limit:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("{what} ended without a word"),
        },
    }
}
