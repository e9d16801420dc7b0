//! `prove`, `verify-proof`.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use misaka::format::key::{Key, param_name};
use misaka::format::object::Object;
use misaka::proof::Proof;
use misaka::{Hash, View};
use serde_json::json;

use super::Session;
use super::open::{Where, because, hash, hex};
use crate::exit::{Done, Fail};
use crate::file::sync_name;
use crate::input::to_hex;

/// Longest proof that is read: one that ends with another entry has that, and it can be of any length.
const PROOF_MAX: u64 = 64 << 20;

/// The name of a parameter, with or without what is in front of all of them.
fn param(text: &str) -> Result<Key, String> {
    let name = text.strip_prefix("sys/params/").unwrap_or(text);
    let name = param_name(name.as_bytes()).map_err(|rule| rule.text().to_owned())?;
    Ok(Key::Param(name.to_owned()))
}

/// A key of the state.
#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
struct Which {
    /// The key in hex, as `dump` prints it
    #[arg(long, value_name = "HEX", value_parser = hex)]
    key: Option<std::vec::Vec<u8>>,
    /// The newest version of an object, by its id
    #[arg(long, value_name = "ID", value_parser = hash)]
    object: Option<Hash>,
    /// The entry of the newest version of an object in the index of versions, by the object's id
    #[arg(long, value_name = "ID", value_parser = hash)]
    version_of: Option<Hash>,
    /// A parameter, by its name
    #[arg(long, value_name = "NAME", value_parser = param)]
    param: Option<Key>,
}

impl Which {
    /// The bytes of the key.
    fn key(&self, view: &View<'_>) -> Done<Vec<u8>> {
        match (&self.key, self.object, self.version_of, &self.param) {
            (Some(key), ..) => Ok(key.clone()),
            (_, Some(id), ..) => Ok(Key::Object(id).encode()),
            (_, _, Some(id), _) => {
                let found = view.object(&id).map_err(because)?;
                let (bytes, _) = found.ok_or_else(|| {
                    Fail::failed(format!("not found: there is no object {id}"))
                        .hint("--object proves that it is not there")
                })?;
                let object = Object::decode(&bytes)
                    .map_err(|rule| Fail::failed(format!("object {id} is damaged: {rule}")))?;
                Ok(Key::Version(id, object.version).encode())
            }
            (_, _, _, Some(param)) => Ok(param.encode()),
            _ => Err(Fail::usage("give --key, --object, --version-of or --param")),
        }
    }
}

/// Print a proof that a key is in the state, with its value, or that it is not
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node prove --db node --object d23f37e7...
  misaka-node prove --db node --param committee_n --out proof.bin
  misaka-node prove --db node --key 6f626a2f... --json

The first line is the proof in hex, the second the value, or `absent` if the key is not there. With --out the proof goes to a file, and
only the second line is printed. Proofs need StateRoot-v2, which begins with the checkpoint that `init --v2-at` said. Versions that
are not the newest of their object are no part of the state.")]
pub(super) struct Prove {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    which: Which,
    /// Write the proof to this file, as bytes
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Prove {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let key = self.which.key(&view)?;
        let (value, proof) = view.prove(&key).map_err(because)?;
        let root = view.tree_root().map_err(because)?;
        let seq = view.tip().map_err(because)?.map(|tip| tip.header.seq);
        let bytes = proof.encode();
        if let Some(path) = &self.out {
            write_new(path, &bytes).map_err(|error| {
                let fail = Fail::failed(format!("cannot write {}: {error}", path.display()));
                match error.kind() {
                    io::ErrorKind::AlreadyExists => fail.hint("choose another name, or remove it"),
                    _ => fail,
                }
            })?;
        }
        let value = value.map(|value| to_hex(&value));
        let proof = to_hex(&bytes);
        let facts = json!({
            "key": to_hex(&key),
            "value": value,
            "proof": proof,
            "root": root.map(|root| root.to_string()),
            "seq": seq,
        });
        session.tell(&facts, || {
            let value = value.as_deref().unwrap_or("absent");
            match self.out {
                Some(_) => format!("{value}\n"),
                None => format!("{proof}\n{value}\n"),
            }
        })
    }
}

/// Makes a file that was not there.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written.and_then(|()| sync_name(path))
}

/// What the proof is to say.
#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
struct Said {
    /// The value in hex
    #[arg(long, value_name = "HEX", value_parser = hex)]
    value: Option<std::vec::Vec<u8>>,
    /// That the key is not there
    #[arg(long)]
    absent: bool,
}

/// Check a proof; this needs no database
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node verify-proof --root 7ad1... --key 6f626a2f... --value 0100... --proof proof.bin
  misaka-node verify-proof --root 7ad1... --key 6f626a2f... --absent --proof -

The root is that of a header with StateRoot-v2. What `prove` prints is a file of the proof, and so is what --out writes. Exit code 0
if the proof holds, 1 if it does not.")]
pub(super) struct VerifyProof {
    /// The root of the state, in hex
    #[arg(long, value_name = "HEX", value_parser = hash)]
    root: Hash,
    /// The key in hex
    #[arg(long, value_name = "HEX", value_parser = hex)]
    key: std::vec::Vec<u8>,
    #[command(flatten)]
    said: Said,
    /// The file of the proof, bytes or hex; - is standard input
    #[arg(long, value_name = "FILE")]
    proof: PathBuf,
}

impl VerifyProof {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let does_not =
            |wrong: misaka::proof::Wrong| Fail::failed(format!("the proof does not hold: {wrong}"));
        let proof = Proof::decode(&read(&self.proof)?).map_err(does_not)?;
        let checked = match &self.said.value {
            Some(value) => proof.check_there(&self.root, &self.key, value),
            None => proof.check_absent(&self.root, &self.key),
        };
        checked.map_err(does_not)?;
        let facts = json!({"holds": true, "absent": self.said.absent});
        session.tell(&facts, || "OK\n".to_owned())
    }
}

/// A proof from a file. If it is hex, more lines may be behind it.
fn read(path: &Path) -> Done<Vec<u8>> {
    let mut bytes = Vec::new();
    let input: io::Result<Box<dyn Read>> = match path.as_os_str() == "-" {
        true => Ok(Box::new(io::stdin())),
        false => File::open(path).map(|file| -> Box<dyn Read> { Box::new(file) }),
    };
    let read = input.and_then(|input| input.take(PROOF_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| {
        Fail::failed(format!("cannot read the proof from {}: {error}", path.display()))
    })?;
    if crate::show::wide(bytes.len()) > PROOF_MAX {
        return Err(Fail::failed(format!("{} is too long for a proof", path.display())));
    }
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]).trim_ascii();
    Ok(std::str::from_utf8(first).ok().and_then(|text| hex(text).ok()).unwrap_or(bytes))
}
