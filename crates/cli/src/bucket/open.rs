//! Opening buckets with whatever keys the user gave, or is asked for.

use std::path::Path;

use kvb::{Bucket, Error, Options, Reader};

use super::Session;
use crate::exit::{Done, about};
use crate::secret::Secrets;

/// The variable with the key.
pub(super) const KEY_VARIABLE: &str = "KVB_KEY";

/// Files made from now on are not readable by anyone who may not read this one.
pub(super) fn keep_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let Ok(meta) = std::fs::metadata(path) {
            let usual = rustix::process::umask(rustix::fs::Mode::empty());
            let hidden = rustix::fs::Mode::from_raw_mode(!meta.mode() & 0o077);
            rustix::process::umask(usual | hidden);
        }
    }
}

impl Session<'_> {
    /// The keys that the user gave, if any.
    pub(super) fn secrets(&self) -> Done<Option<Secrets>> {
        Secrets::given(self.common.key_file.as_deref(), KEY_VARIABLE)
    }

    /// Does something that may need keys: with those the user gave, and else again with one that is asked for.
    pub(super) fn with_keys<T>(
        &self,
        path: &Path,
        options: &Options,
        mut task: impl FnMut(Options) -> kvb::Result<T>,
    ) -> Done<T> {
        let given = self.secrets()?;
        let options = match &given {
            Some(secrets) => options.clone().keys(secrets.clone()),
            None => options.clone(),
        };
        let result = match task(options.clone()) {
            Err(Error::KeyMissing { id }) if given.is_none() => match Secrets::ask(path, id)? {
                Some(secrets) => task(options.keys(secrets)),
                None => Err(Error::KeyMissing { id }),
            },
            result => result,
        };
        result.map_err(about(path))
    }

    /// Opens a bucket for reading, beside a writer or without one.
    pub(super) fn reader(&self, path: &Path) -> Done<Reader> {
        self.with_keys(path, &Options::default(), |options| Reader::open_with(path, options))
    }

    /// Opens a bucket for writing.
    pub(super) fn writer(&self, path: &Path, options: &Options) -> Done<Bucket> {
        self.with_keys(path, options, |options| Bucket::open(path, options))
    }
}
