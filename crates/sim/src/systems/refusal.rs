//! Why a ledger did not do something: the machine failed, which needs an excuse, or the ledger said no.

use ledger::{EngineError, Trouble};

/// Why something was not done.
pub(crate) enum Refusal {
    /// The machine failed.
    Machine { is_full: bool, what: String },
    /// A rule forbids it, or something is wrong with the store.
    Other(String),
}

impl Refusal {
    pub(crate) fn engine(error: &EngineError) -> Refusal {
        match error.trouble {
            Trouble::Full => Refusal::Machine { is_full: true, what: error.to_string() },
            Trouble::Other => Refusal::Machine { is_full: false, what: error.to_string() },
            _ => Refusal::Other(error.to_string()),
        }
    }

    pub(crate) fn io(error: &impl ToString) -> Refusal {
        Refusal::Machine { is_full: false, what: error.to_string() }
    }

    /// What the store said.
    pub(crate) fn said(self) -> String {
        match self {
            Refusal::Machine { what, .. } | Refusal::Other(what) => what,
        }
    }
}

/// Errors of ledgers differ in what their rules are, and not in how a machine fails.
macro_rules! refusals {
    ($($error:ty),*) => {
        $(impl From<$error> for Refusal {
            fn from(error: $error) -> Refusal {
                type Error = $error;
                match error {
                    Error::Engine(error) => Refusal::engine(&error),
                    Error::Io { source, .. } => Refusal::io(&source),
                    other => Refusal::Other(other.to_string()),
                }
            }
        })*
    };
}

refusals!(csmt::Error, misaka::Error, misaka_indexer::Error, rubin::Error);
