//! `kvb keygen` and `rekey`: making keys, and changing those of a bucket.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use kvb::{Error, Options};
use serde_json::json;

use super::Session;
use super::care::beside_bar;
use super::init::no_key;
use super::open::{ask_for_missing, with};
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::secret::{self, Secrets};
use crate::{interrupt, show};

/// The variable with the new key of a rotation.
const NEW_KEY_VARIABLE: &str = "KVB_NEW_KEY";

/// Make a random key in a file that only you can read
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb keygen key
  kvb keygen key2 --id 2                        with the number a bucket knows it by

Whoever loses the key loses the bucket: keep a copy elsewhere.")]
pub(super) struct Keygen {
    /// The file to make; it must not exist
    file: PathBuf,
    /// The number that buckets know the key by
    #[arg(long, value_parser = secret::key_id)]
    id: Option<u64>,
}

impl Keygen {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        secret::generate(&self.file, self.id)?;
        let facts = json!({ "written_to": self.file.display().to_string(), "id": self.id });
        session.tell(&facts, String::new)
    }
}

/// Encrypt a bucket, decrypt it, or change its key
#[derive(Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  kvb keygen key && kvb rekey encrypt bucket.kvb --key-file key
  kvb rekey rotate bucket.kvb --key-file key --new-key-file key2
  kvb rekey decrypt bucket.kvb --key-file key2"
)]
pub(super) struct Rekey {
    #[command(subcommand)]
    how: How,
}

#[derive(Subcommand)]
enum How {
    Encrypt(Encrypt),
    Decrypt(Decrypt),
    Rotate(Rotate),
}

/// Encrypt a bucket that is not
#[derive(Args)]
#[command(after_help = "\
The bucket is written anew and takes the place of the old file when it is whole and verified. The disk may keep what was in
the old file's blocks until it uses them again, and so may backups: make a new bucket on a new disk if that matters.

Examples:
  kvb rekey encrypt bucket.kvb --key-file key
  kvb rekey encrypt bucket.kvb                  asks for a passphrase")]
struct Encrypt {
    /// The bucket
    bucket: PathBuf,
    /// The number that the bucket knows the key by
    #[arg(long, value_name = "ID", value_parser = secret::key_id)]
    key_id: Option<u64>,
}

/// Decrypt a bucket: afterwards anyone can read it
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb rekey decrypt bucket.kvb --key-file key")]
struct Decrypt {
    /// The bucket
    bucket: PathBuf,
}

/// Encrypt everything anew with another key
#[derive(Args)]
#[command(after_help = "\
The new key is taken from --new-key-file, from the environment variable KVB_NEW_KEY, or asked for. If the rotation is
interrupted, both keys are needed to open the bucket until it was run again to its end. Free space is overwritten.

Examples:
  kvb rekey rotate bucket.kvb --key-file key --new-key-file key2")]
struct Rotate {
    /// The bucket
    bucket: PathBuf,
    /// File with the new key
    #[arg(long, value_name = "FILE")]
    new_key_file: Option<PathBuf>,
    /// The number that the bucket knows the new key by. Default: one more than the old one
    #[arg(long, value_name = "ID", value_parser = secret::key_id)]
    new_key_id: Option<u64>,
}

impl Rekey {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        match self.how {
            How::Encrypt(args) => args.run(session),
            How::Decrypt(args) => args.run(session),
            How::Rotate(args) => args.run(session),
        }
    }
}

impl Encrypt {
    fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        refuse_unless(path, false)?;
        let (id, secrets) = match session.secrets()? {
            Some(secrets) => (secrets.id_for(self.key_id)?, secrets),
            None => Secrets::ask_new(path)?.ok_or_else(no_key)?,
        };
        remake(session, path, Options::default(), |options| options.encrypted(id).keys(secrets))
    }
}

impl Decrypt {
    fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        refuse_unless(path, true)?;
        // Asked for before the bar is there.
        let mut opened = None;
        session.with_keys(path, &Options::default(), |options| {
            kvb::Reader::open_with(path, options.clone())?;
            opened = Some(options);
            Ok(())
        })?;
        remake(session, path, opened.unwrap_or_default(), Options::plain)
    }
}

/// Writes a bucket anew with other settings.
fn remake(
    session: &mut Session<'_>,
    path: &Path,
    options: Options,
    change: impl FnOnce(Options) -> Options,
) -> Done {
    interrupt::listen();
    let mut bar = Bar::bytes("copying", Some(0), session.common.quiet);
    let done = kvb::remake(path, options, change, &mut bar.watch());
    bar.clear();
    let done = done.map_err(about(path))?;
    let facts = json!({ "records": done.records, "bytes": done.bytes, "seqno": done.seqno });
    session.report(&facts, || {
        format!(
            "{} of {} written anew",
            show::many(done.records, "record", "records"),
            show::size(done.bytes)
        )
    })
}

/// Refuses a bucket that is encrypted already, or is not.
fn refuse_unless(path: &Path, is_encrypted: bool) -> Done {
    match kvb::Reader::open(path) {
        Ok(_) if is_encrypted => Err(Fail::failed(format!(
            "{} is not encrypted, and nothing was changed",
            path.display()
        ))),
        Err(Error::KeyMissing { .. }) if !is_encrypted => {
            let fail = format!("{} is encrypted already, and nothing was changed", path.display());
            Err(Fail::failed(fail).hint("`kvb rekey rotate` changes its key"))
        }
        Ok(_) | Err(Error::KeyMissing { .. }) => Ok(()),
        Err(error) => Err(about(path)(error)),
    }
}

impl Rotate {
    fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let current = match kvb::Reader::open(path) {
            Err(Error::KeyMissing { id }) => id,
            Ok(_) => {
                let fail = format!("{} is not encrypted, and nothing was changed", path.display());
                return Err(Fail::failed(fail).hint("`kvb rekey encrypt` encrypts it"));
            }
            Err(error) => return Err(about(path)(error)),
        };
        let mut keys = session.secrets()?.unwrap_or_default();
        let new = Secrets::given(self.new_key_file.as_deref(), NEW_KEY_VARIABLE)?;
        let wanted = self.new_key_id.or_else(|| new.as_ref().and_then(Secrets::id));
        let is_wanted = wanted.is_none_or(|id| id == current);
        let begun =
            new.as_ref().filter(|_| is_wanted).and_then(|new| begun(path, current, new, &keys));
        let is_begun = begun.is_some();
        keys = begun.unwrap_or(keys);
        let old_id = ask_for_missing(path, &mut keys, |keys| old_id(path, keys))?;
        let (new_id, keys) = if old_id.is_some() && (is_begun || new.is_none() && is_wanted) {
            (current, keys)
        } else {
            let (id, new) = self.new_key(new, wanted, current)?;
            (id, new.or(keys))
        };
        let bucket = kvb::Bucket::open(path, Options::default().keys(keys)).map_err(about(path))?;
        let total = bucket.stats().map_err(about(path))?.bytes_live;
        let done = beside_bar(&bucket, "encrypting", total, session.common.quiet, || {
            bucket.rotate_key(new_id)
        })
        .map_err(about(path))?;
        bucket.close().map_err(about(path))?;
        let facts = json!({
            "key_id": new_id.to_string(),
            "segments": done.segments,
            "records": done.records,
            "bytes": done.bytes,
            "complete": done.is_complete,
        });
        session.report(&facts, || {
            format!(
                "{} of {} now under key {}",
                show::many(done.records, "record", "records"),
                show::size(done.bytes),
                secret::name_of(new_id)
            )
        })?;
        if done.is_complete {
            return Ok(());
        }
        Err(Fail::failed("somebody still reads what is under the old key, so both keys are needed")
            .hint("run the same command again when they are done"))
    }

    /// The key to rotate to, and its id.
    fn new_key(
        &self,
        given: Option<Secrets>,
        wanted: Option<u64>,
        current: u64,
    ) -> Done<(u64, Secrets)> {
        let Some(given) = given else {
            return Secrets::ask_new(&self.bucket)?.ok_or_else(|| {
                Fail::usage("to rotate, a new key is needed").hint(format!(
                    "give --new-key-file FILE (`kvb keygen FILE` makes one), set {NEW_KEY_VARIABLE}, or run this in a terminal to be asked for a passphrase"
                ))
            });
        };
        let next = current.checked_add(1).filter(|id| !secret::is_of_passphrase(*id));
        let id = wanted.or(next).unwrap_or(1);
        if id == current {
            let fail = Fail::usage(format!("the bucket knows a key by the number {id} already"));
            return Err(fail.hint("give another one with --new-key-id"));
        }
        let new = given.only_as(id);
        if new.has(id) { Ok((id, new)) } else { Err(secret::none_of(id)) }
    }
}

/// If a rotation to this very key was begun and did not get to its end, the bucket is under it already. Then these are the
/// keys that open it; one that the user did not give may still be missing.
fn begun(path: &Path, current: u64, new: &Secrets, keys: &Secrets) -> Option<Secrets> {
    let new = new.clone().only_as(current);
    if !new.has(current) {
        return None;
    }
    let both = new.or(keys.clone());
    let is_begun = match old_id(path, &both) {
        Ok(old) => old.is_some(),
        Err(Error::KeyMissing { .. }) => true,
        Err(_) => false,
    };
    is_begun.then_some(both)
}

/// The id of the key that a bucket is still under, beside the one it is being rotated to.
fn old_id(path: &Path, keys: &Secrets) -> kvb::Result<Option<u64>> {
    let reader = kvb::Reader::open_with(path, with(Options::default(), keys))?;
    Ok(reader.survey()?.settings.old_key_id)
}
