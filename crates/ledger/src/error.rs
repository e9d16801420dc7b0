//! What engines fail with.

use std::error::Error;

/// What kind of trouble it is, as far as a store or its user can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// There is nothing to open.
    Missing,
    /// There is something where something new should be made.
    Exists,
    /// Somebody else has it open; the process, where the engine tells.
    Locked(Option<u32>),
    /// The disk is full. Nothing was changed.
    Full,
    /// Bytes on disk are not what was written there.
    Damaged,
    /// A key is empty or too long. Nothing was changed.
    Key,
    /// Anything else.
    Other,
}

/// Why an engine did not do something.
#[derive(Debug, thiserror::Error)]
#[error("{engine} cannot {doing}: {source}")]
pub struct EngineError {
    /// Which engine.
    pub engine: &'static str,
    /// What it was doing.
    pub doing: &'static str,
    /// What kind of trouble it has.
    pub trouble: Trouble,
    /// What it said itself.
    pub source: Box<dyn Error + Send + Sync>,
}

impl EngineError {
    /// An error of an engine while it was doing something.
    pub fn new(
        engine: &'static str,
        doing: &'static str,
        trouble: Trouble,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> EngineError {
        EngineError { engine, doing, trouble, source: source.into() }
    }
}
