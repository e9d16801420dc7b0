//! What a store takes while it works: another thread looks at the disk and at the memory of the process.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Result;

use crate::engine::{Engine, Space};
use crate::machine;

/// How often the thread looks, and at which of those looks an engine is asked what it takes: that costs it some work.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const ASK_EVERY: usize = 8;

/// The most that was taken.
#[derive(Default)]
pub(super) struct Most {
    pub disk: u64,
    /// Anonymous memory of the process.
    pub anon: u64,
    /// What the engine said when its segments took the most.
    pub space: Option<Space>,
    /// Bytes on the disk without index images, if the engine says how large those are.
    pub without_index: Option<u64>,
}

/// Does `work` while another thread looks.
pub(super) fn with_looks<T, E: Engine>(
    dir: &Path,
    engine: &E,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Most)> {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let looker = scope.spawn(move || look(dir, engine, &is_done));
        let result = work();
        drop(done);
        let most = looker.join().expect("no panics")?;
        Ok((result?, most))
    })
}

fn look<E: Engine>(dir: &Path, engine: &E, is_done: &Receiver<()>) -> Result<Most> {
    let mut most = Most::default();
    let mut last = None;
    for number in 0.. {
        let is_last = is_done.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout);
        let disk = machine::disk_bytes(dir)?;
        most.disk = most.disk.max(disk);
        most.anon = most.anon.max(machine::anon_bytes()?);
        if is_last || number % ASK_EVERY == 0 {
            last = engine.space()?;
            let largest = |space: &Space| space.segments;
            most.space = most.space.into_iter().chain(last).max_by_key(largest);
        }
        // An image that has grown since the last answer counts too much here, not too little.
        let without_index = last.map(|space| space.without_index(disk));
        most.without_index = most.without_index.max(without_index);
        if is_last {
            break;
        }
    }
    Ok(most)
}
