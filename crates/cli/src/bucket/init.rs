//! `kvb init`: a new bucket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use kvb::{Bucket, Compression, HashKind, Options};
use serde_json::json;

use super::Session;
use super::open::KEY_VARIABLE;
use crate::exit::{Done, Fail, about};
use crate::input;
use crate::interrupt;
use crate::secret::{self, Secrets};

/// Make a new bucket
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb init bucket.kvb
  kvb init bucket.kvb --page-size 4096 --index-mb 64 --compression zstd
  kvb init ledger.kvb --hash siphash            for keys that others choose
  kvb keygen key && kvb init secret.kvb --encrypt --key-file key
  kvb init secret.kvb --encrypt                 asks for a passphrase")]
pub(super) struct Init {
    /// The file to make; it must not exist
    bucket: PathBuf,
    #[command(flatten)]
    make: Make,
}

/// How a new bucket is made. None of it can be changed later but by making the bucket anew.
#[derive(Args, Clone)]
pub(super) struct Make {
    /// Bytes in a page: a power of two from 4096 to 65536
    #[arg(long, value_name = "BYTES", value_parser = input::size)]
    page_size: Option<u64>,
    /// Megabytes of index to make room for at once; it grows by itself
    #[arg(long, value_name = "MB")]
    index_mb: Option<u64>,
    /// Whether values are compressed, each by itself
    #[arg(long, value_name = "KIND")]
    compression: Option<CompressionArg>,
    /// Which hash finds keys: siphash if others can choose keys that collide
    #[arg(long, value_name = "KIND")]
    hash: Option<HashArg>,
    /// Pages of the journal ring, 8 to 4096
    #[arg(long, value_name = "PAGES")]
    journal_pages: Option<u64>,
    /// Longest value
    #[arg(long, value_name = "BYTES", value_parser = input::size)]
    max_value: Option<u64>,
    /// Leave out the key directories, 5 bytes a record; scans sort instead
    #[arg(long)]
    no_directories: bool,
    /// Encrypt the bucket with the key from --key-file, KVB_KEY or a prompt
    #[arg(long)]
    pub(super) encrypt: bool,
    /// The number that the bucket knows its key by
    #[arg(long, value_name = "ID", requires = "encrypt", value_parser = secret::key_id)]
    key_id: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CompressionArg {
    None,
    Zstd,
}

#[derive(Clone, Copy, ValueEnum)]
enum HashArg {
    Xxh3,
    Siphash,
}

impl Make {
    /// Changes settings to what the user asked for.
    pub(super) fn apply(&self, session: &Session<'_>, path: &Path, base: Options) -> Done<Options> {
        let mut options = base;
        if let Some(bytes) = self.page_size {
            options = options.page_size(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        if let Some(megabytes) = self.index_mb {
            options = options.index_bytes(megabytes.saturating_mul(1 << 20));
        }
        options = match self.compression {
            Some(CompressionArg::Zstd) => options.compression(Compression::Zstd),
            Some(CompressionArg::None) => options.compression(Compression::None),
            None => options,
        };
        options = match self.hash {
            Some(HashArg::Xxh3) => options.hash(HashKind::Xxh3),
            Some(HashArg::Siphash) => options.hash(HashKind::SipHash),
            None => options,
        };
        if let Some(pages) = self.journal_pages {
            options = options.journal_pages(pages);
        }
        if let Some(bytes) = self.max_value {
            let bytes = u32::try_from(bytes).map_err(|_| {
                Fail::usage("--max-value is over the format's limit of 4294967295 bytes")
            })?;
            options = options.max_value(bytes);
        }
        if self.no_directories {
            options = options.directories(false);
        }
        if self.encrypt {
            self.encrypted(session, path, options)
        } else {
            refuse_key(session, options)
        }
    }

    fn encrypted(&self, session: &Session<'_>, path: &Path, options: Options) -> Done<Options> {
        if let Some(secrets) = session.secrets()? {
            let id = secrets.id_for(self.key_id)?;
            return Ok(options.encrypted(id).keys(secrets));
        }
        match Secrets::ask_new(path)? {
            Some((id, secrets)) => Ok(options.encrypted(id).keys(secrets)),
            None => Err(no_key()),
        }
    }
}

/// A key that is not used would make somebody believe in encryption that is not there.
fn refuse_key(session: &Session<'_>, options: Options) -> Done<Options> {
    if session.key_file.is_some() {
        return Err(Fail::usage("--key-file was given, and not --encrypt"));
    }
    if std::env::var_os(KEY_VARIABLE).is_some() {
        let fail = Fail::usage(format!("{KEY_VARIABLE} is set, and --encrypt was not given"));
        return Err(fail
            .hint("add --encrypt, or unset the variable to make a bucket that is not encrypted"));
    }
    Ok(options)
}

/// Nobody can be asked for a key.
pub(super) fn no_key() -> Fail {
    Fail::usage("to encrypt, a key is needed").hint(format!(
        "give --key-file FILE (`kvb keygen FILE` makes one), set {KEY_VARIABLE}, or run this in a terminal to be asked for a passphrase"
    ))
}

impl Init {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let options = self.make.apply(session, path, Options::default())?;
        let bucket = create(path, options).map_err(about_new(path))?;
        bucket.close().map_err(about(path))?;
        session.tell(&json!({ "bucket": path.display().to_string() }), String::new)
    }
}

/// Makes a bucket, which takes a while if it has much room for an index. Ctrl-C takes the unfinished file away again.
fn create(path: &Path, options: Options) -> kvb::Result<Bucket> {
    let is_taken = path.symlink_metadata().is_ok();
    interrupt::listen();
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| Bucket::create(path, options));
        while !making.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            if interrupt::is_asked() && !is_taken {
                let _ = std::fs::remove_file(path);
                interrupt::end("kvb: interrupted; nothing was made");
            }
        }
        making.join()
    });
    made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What an error means to whoever makes a bucket.
pub(super) fn about_new(path: &Path) -> impl Fn(kvb::Error) -> Fail + '_ {
    move |error| match error {
        kvb::Error::Invalid(message) => Fail::usage(message),
        error if is_missing_directory(&error) => {
            Fail::failed(format!("there is no directory for {}", path.display()))
        }
        error => about(path)(error),
    }
}

fn is_missing_directory(error: &kvb::Error) -> bool {
    matches!(error, kvb::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}
