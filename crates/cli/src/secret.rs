//! Keys of encrypted buckets: from a file, from the environment, or typed in. Never from the command line, which others can
//! read.
//!
//! A key file, and the variable, have lines of 64 hex digits, each with an id in front if there are several: `2:5f3a...`.
//! A file may instead have just the 32 bytes of one key. A key without an id is tried for every id.
//!
//! A bucket may also be under a passphrase. Then its key id is random, with the highest bit set, and the key is Argon2id of
//! the passphrase with the id as salt; so nothing but the passphrase needs to be kept.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use argon2::{Algorithm, Argon2, Params, Version};
use kvb::{Key, KeyProvider};
use zeroize::Zeroizing;

use crate::exit::{Done, Fail};
use crate::file;
use crate::input::{digit, to_hex};

/// The bit of a key id that says it is the salt of a passphrase.
const PASSPHRASE_BIT: u64 = 1 << 63;
/// What the salt begins with; the id follows, little-endian.
const SALT: &[u8; 17] = b"kvb-passphrase-v1";
/// Memory in KiB, rounds and lanes of Argon2id.
const COST: (u32, u32, u32) = (64 << 10, 3, 1);
/// Longest key file that is read.
const FILE_MAX: u64 = 1 << 20;

type Bytes = Zeroizing<[u8; 32]>;

/// Keys that the user gave.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    /// By id; those without are for any.
    keys: Vec<(Option<u64>, Bytes)>,
    /// Each by the id of the key that is made of it.
    passphrases: Vec<(u64, Zeroizing<String>)>,
}

/// True of a file that others than its owner may read or write.
#[cfg(unix)]
fn is_shared(file: &std::fs::File) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_shared(_: &std::fs::File) -> bool {
    false
}

impl Secrets {
    /// From a file or a variable, if the user named one or set it.
    pub(crate) fn given(file: Option<&Path>, variable: &str) -> Done<Option<Secrets>> {
        if let Some(path) = file {
            return Secrets::from_file(path).map(Some);
        }
        match std::env::var(variable) {
            Ok(text) => {
                let text = Zeroizing::new(text);
                Secrets::parse(&text, &format!("the variable {variable}")).map(Some)
            }
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(_) => Err(Fail::usage(format!("the variable {variable} is not text"))),
        }
    }

    fn from_file(path: &Path) -> Done<Secrets> {
        let shown = path.display();
        let cannot = |error: io::Error| {
            let fail = Fail::usage(format!("cannot read the key file {shown}: {error}"));
            match error.kind() {
                io::ErrorKind::NotFound => fail.hint(format!("`kvb keygen {shown}` makes one")),
                _ => fail,
            }
        };
        let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
        let file = std::fs::File::open(path).map_err(cannot)?;
        if is_shared(&file) {
            tracing::warn!("others may read the key file {shown}: `chmod 600 {shown}` ends that");
        }
        file.take(FILE_MAX).read_to_end(&mut bytes).map_err(cannot)?;
        if let Ok(raw) = <[u8; 32]>::try_from(bytes.as_slice()) {
            return Ok(Secrets {
                keys: vec![(None, Zeroizing::new(raw))],
                passphrases: Vec::new(),
            });
        }
        let source = format!("the key file {shown}");
        let text = std::str::from_utf8(&bytes).map_err(|_| wrong(&source))?;
        Secrets::parse(text, &source)
    }

    fn parse(text: &str, source: &str) -> Done<Secrets> {
        let mut keys = Vec::new();
        let lines = text.split(['\n', ',']).map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (id, digits) = match line.split_once(':') {
                Some((id, digits)) => {
                    (Some(parse_id(id.trim()).ok_or_else(|| wrong(source))?), digits.trim())
                }
                None => (None, line),
            };
            keys.push((id, key_of(digits).ok_or_else(|| wrong(source))?));
        }
        if keys.is_empty() {
            return Err(wrong(source));
        }
        Ok(Secrets { keys, passphrases: Vec::new() })
    }

    /// Asks for the key of an id, if there is somebody to ask. A bucket may need one that it had before, too.
    pub(crate) fn ask(bucket: &Path, id: u64, is_older: bool) -> Done<Option<Secrets>> {
        if !is_somebody_there() {
            return Ok(None);
        }
        let shown = bucket.display();
        if is_of_passphrase(id) {
            let when = if is_older { " before its last change" } else { "" };
            let passphrase = prompt(&format!("Passphrase of {shown}{when}: "))?;
            return Ok(Some(Secrets::of_passphrase(id, passphrase)));
        }
        let digits = prompt(&format!("Key {} of {shown} (64 hex digits): ", name_of(id)))?;
        let key = key_of(digits.trim()).ok_or_else(|| wrong("what you typed"))?;
        Ok(Some(Secrets { keys: vec![(Some(id), key)], passphrases: Vec::new() }))
    }

    fn of_passphrase(id: u64, passphrase: Zeroizing<String>) -> Secrets {
        Secrets { keys: Vec::new(), passphrases: vec![(id, passphrase)] }
    }

    /// Asks for a new passphrase, twice. Gives the id that goes with it.
    pub(crate) fn ask_new(bucket: &Path) -> Done<Option<(u64, Secrets)>> {
        if !is_somebody_there() {
            return Ok(None);
        }
        let passphrase = prompt(&format!("New passphrase for {}: ", bucket.display()))?;
        if passphrase.is_empty() {
            return Err(Fail::usage("the passphrase is empty"));
        }
        if *prompt("The same again: ")? != *passphrase {
            return Err(Fail::usage("the two passphrases differ"));
        }
        let id = random_u64()? | PASSPHRASE_BIT;
        Ok(Some((id, Secrets::of_passphrase(id, passphrase))))
    }

    /// The id that the user wrote in front of a key.
    pub(crate) fn id(&self) -> Option<u64> {
        self.keys.iter().find_map(|(id, _)| *id)
    }

    /// The id of the key to encrypt with: the one asked for, else the key's own, else 1.
    pub(crate) fn id_for(&self, wanted: Option<u64>) -> Done<u64> {
        let id = wanted.or_else(|| self.id()).unwrap_or(1);
        if self.has(id) { Ok(id) } else { Err(none_of(id)) }
    }

    /// True if there is a key of that id.
    pub(crate) fn has(&self, id: u64) -> bool {
        match is_of_passphrase(id) {
            true => self.passphrases.iter().any(|(own, _)| *own == id),
            false => self.keys.iter().any(|(own, _)| own.is_none_or(|own| own == id)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.passphrases.is_empty()
    }

    /// These, and others for ids that these do not have.
    pub(crate) fn or(mut self, others: Secrets) -> Secrets {
        self.keys.extend(others.keys);
        self.passphrases.extend(others.passphrases);
        self
    }

    /// These under one id only.
    pub(crate) fn only_as(mut self, id: u64) -> Secrets {
        self.keys.retain(|(own, _)| own.is_none_or(|own| own == id));
        self.keys.truncate(1);
        for (own, _) in &mut self.keys {
            *own = Some(id);
        }
        self
    }
}

impl KeyProvider for Secrets {
    fn key(&self, id: u64) -> io::Result<Option<Key>> {
        if is_of_passphrase(id) {
            let own = self.passphrases.iter().find(|(own, _)| *own == id);
            return own.map(|(_, passphrase)| derive(passphrase, id)).transpose();
        }
        let own = self.keys.iter().find(|(own, _)| *own == Some(id));
        let found = own.or_else(|| self.keys.iter().find(|(own, _)| own.is_none()));
        Ok(found.map(|(_, bytes)| Key::new(**bytes)))
    }

    fn ids(&self) -> Vec<u64> {
        self.keys.iter().map(|(id, _)| id.unwrap_or(1)).collect()
    }
}

/// Argon2id of a passphrase.
fn derive(passphrase: &str, id: u64) -> io::Result<Key> {
    let mut salt = [0; 25];
    let (name, number) = salt.split_at_mut(SALT.len());
    name.copy_from_slice(SALT);
    number.copy_from_slice(&id.to_le_bytes());
    let mut bytes = Zeroizing::new([0; 32]);
    let params = Params::new(COST.0, COST.1, COST.2, Some(32)).map_err(io::Error::other)?;
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.as_bytes(), &salt, &mut *bytes)
        .map_err(io::Error::other)?;
    Ok(Key::new(*bytes))
}

/// Somebody sees what is asked. The answer comes from the terminal, even if standard input is something else.
fn is_somebody_there() -> bool {
    io::stdin().is_terminal() || io::stderr().is_terminal()
}

fn prompt(question: &str) -> Done<Zeroizing<String>> {
    rpassword::prompt_password(question)
        .map(Zeroizing::new)
        .map_err(|error| Fail::failed(format!("cannot ask for the key: {error}")))
}

fn key_of(digits: &str) -> Option<Bytes> {
    let mut bytes = Zeroizing::new([0; 32]);
    let digits = digits.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let [high, low] = *pair else { return None };
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

fn parse_id(text: &str) -> Option<u64> {
    text.parse().ok().filter(|id| !is_of_passphrase(*id))
}

/// The id of a key, on the command line.
pub(crate) fn key_id(text: &str) -> Result<u64, String> {
    parse_id(text).ok_or_else(|| "give a number from 0 to 9223372036854775807".to_owned())
}

/// True if the key is made of a passphrase.
pub(crate) fn is_of_passphrase(id: u64) -> bool {
    id & PASSPHRASE_BIT != 0
}

/// The user means a key that is not there.
pub(crate) fn none_of(id: u64) -> Fail {
    Fail::usage(format!("there is no key {id} among those given"))
        .hint("the id in front of a key and the one asked for must be the same")
}

fn wrong(source: &str) -> Fail {
    Fail::usage(format!("{source} is not a key"))
        .hint("a key is 64 hex digits, one on a line, with an id in front if there are several (2:5f3a...); `kvb keygen FILE` makes one")
}

fn random_u64() -> Done<u64> {
    getrandom::u64()
        .map_err(|error| Fail::failed(format!("the system gives no randomness: {error}")))
}

/// How a key is called.
pub(crate) fn name_of(id: u64) -> String {
    if is_of_passphrase(id) { "of a passphrase".to_owned() } else { id.to_string() }
}

/// What to do about a key that is missing.
pub(crate) fn how_to_give(id: u64) -> String {
    if is_of_passphrase(id) {
        return "it is under a passphrase: run this in a terminal to be asked for it".to_owned();
    }
    format!(
        "give key {id} with --key-file FILE or in the environment variable KVB_KEY, or run this in a terminal to be asked for it"
    )
}

/// Writes a new random key to a file that is not there yet, for its owner alone.
pub(crate) fn generate(path: &Path, id: Option<u64>) -> Done {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes)
        .map_err(|error| Fail::failed(format!("the system gives no randomness: {error}")))?;
    let digits = Zeroizing::new(to_hex(&*bytes));
    let line = Zeroizing::new(match id {
        Some(id) => format!("{id}:{}\n", *digits),
        None => format!("{}\n", *digits),
    });
    let cannot = |error: io::Error| {
        let shown = path.display();
        if error.kind() == io::ErrorKind::AlreadyExists {
            Fail::failed(format!("{shown} is there already; a key is never written over"))
        } else {
            Fail::failed(format!("cannot write {shown}: {error}"))
        }
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(cannot)?;
    let written = io::Write::write_all(&mut file, line.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| file::sync_name(path));
    if written.is_err() {
        // Half a key opens nothing, and would be in the way of the next try.
        let _ = std::fs::remove_file(path);
    }
    written.map_err(cannot)
}
