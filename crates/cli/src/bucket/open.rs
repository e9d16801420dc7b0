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
        Secrets::given(self.key_file.as_deref(), KEY_VARIABLE)
    }

    /// Does something that may need keys: with those the user gave, and again with others that are asked for.
    pub(super) fn with_keys<T>(
        &self,
        path: &Path,
        options: &Options,
        mut task: impl FnMut(Options) -> kvb::Result<T>,
    ) -> Done<T> {
        let mut secrets = self.secrets()?.unwrap_or_default();
        ask_for_missing(path, &mut secrets, |secrets| task(with(options.clone(), secrets)))
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

/// Options that have these keys, if there are any: a bucket that is not encrypted takes none.
pub(super) fn with(options: Options, secrets: &Secrets) -> Options {
    if secrets.is_empty() { options } else { options.keys(secrets.clone()) }
}

/// Does something with keys, and again with those that turn out to be missing, as long as somebody knows them.
pub(super) fn ask_for_missing<T>(
    path: &Path,
    secrets: &mut Secrets,
    mut task: impl FnMut(&Secrets) -> kvb::Result<T>,
) -> Done<T> {
    let mut asked = Vec::new();
    loop {
        let result = task(secrets);
        if let Err(Error::KeyMissing { id }) = &result
            && !asked.contains(id)
            && let Some(more) = Secrets::ask(path, *id, !asked.is_empty())?
        {
            asked.push(*id);
            *secrets = std::mem::take(secrets).or(more);
            continue;
        }
        return result.map_err(about(path));
    }
}
