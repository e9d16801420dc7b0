//! The one error of the crate.

use std::io;

use host::LockError;

pub use crate::format::{Corrupt, What};

/// Result of a bucket operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a bucket operation did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system failed. If it failed a write, the bucket takes no more writes until it is
    /// opened again; what was acknowledged is safe.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes on disk are not what was written there. A [`Reader`](crate::Reader) still reads what is intact if a superblock
    /// holds, and [`repair`](crate::repair) makes a new bucket of every intact record.
    #[error("the bucket has a {0}")]
    Corrupt(Corrupt),
    /// Another writer has the bucket open. Wait for it, stop it, or open read-only.
    #[error("the bucket is open for writing by {}", holder(*pid))]
    Locked {
        /// The other writer, where the system tells.
        pid: Option<u32>,
    },
    /// The bucket was written by software newer than this. Upgrade.
    #[error("bucket format {found} is not supported; this software reads format {supported}")]
    Version {
        /// What the bucket asks for.
        found: String,
        /// What this code knows.
        supported: u16,
    },
    /// The bucket is encrypted, and nobody gave the key. Open it with [`Options::keys`](crate::Options::keys).
    #[error("the bucket is encrypted and key {id} was not given")]
    KeyMissing {
        /// What the bucket calls the key.
        id: u64,
    },
    /// The key given is not the one the bucket was made with.
    #[error("the key given as key {id} is not the one this bucket is encrypted with")]
    KeyWrong {
        /// What the bucket calls the key.
        id: u64,
    },
    /// The caller's mistake; nothing was changed.
    #[error("{0}")]
    Invalid(&'static str),
    /// A key or value is over the bucket's limit; nothing was changed.
    #[error("{what} of {len} bytes is over the limit of {max}")]
    TooLarge {
        /// Which one.
        what: &'static str,
        /// Its length.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// The disk is full; nothing was changed. Deletes still work, and so does everything once there is room.
    #[error("no space left on the disk; delete keys or free space and try again")]
    NoSpace,
    /// An earlier write failed, so no further one is safe. Drop the bucket and open it again.
    #[error("writing stopped after an earlier error ({0}); open the bucket again to recover")]
    Stopped(String),
    /// Whoever was told of the progress asked to stop. Nothing was changed.
    #[error("stopped before it was done; nothing was changed")]
    Interrupted,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    /// Wraps what the system said with what was being done.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { doing, source }
    }

    /// Damage of a structure at a byte of the file.
    pub(crate) fn corrupt(what: What, at: u64) -> Error {
        Error::Corrupt(Corrupt { what, at })
    }

    /// A copy for everyone who waited for the same failed commit.
    pub(crate) fn share(&self) -> Error {
        match self {
            Error::Io { doing, source } => {
                Error::Io { doing, source: io::Error::new(source.kind(), source.to_string()) }
            }
            Error::Corrupt(corrupt) => Error::Corrupt(*corrupt),
            Error::NoSpace => Error::NoSpace,
            other => Error::Stopped(other.to_string()),
        }
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Error {
        Error::Corrupt(corrupt)
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Error {
        match error {
            LockError::Held { pid } => Error::Locked { pid },
            LockError::Io(source) => Error::Io { doing: "lock the bucket", source },
        }
    }
}
