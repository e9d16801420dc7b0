//! `prove`, `prove-prefix`, `verify-proof`, `verify-prefix`.

use std::io::Read;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use csmt::proof::{self, Completeness, Exclusion, Form, Inclusion, Leaf};
use csmt::{Bits, Hash, Path, PathKind};
use serde_json::json;

use super::Session;
use super::make::tip;
use super::open::{PathArg, Where, address, because, hash, hex};
use crate::exit::{Done, Fail};
use crate::input::to_hex;
use crate::show;

/// Longest proof that is read, as text, and longest list of leaves.
const PROOF_MAX: u64 = 64 << 20;

/// A form of a proof, as an argument.
#[derive(Clone, Copy, ValueEnum)]
enum FormArg {
    /// Four fields
    V4,
    /// Five fields, the root among them
    V5,
    /// Without key and value
    Compact,
    /// The same as Plutus data
    Plutus,
}

impl From<FormArg> for Form {
    fn from(argument: FormArg) -> Form {
        match argument {
            FormArg::V4 => Form::V4,
            FormArg::V5 => Form::V5,
            FormArg::Compact => Form::Compact,
            FormArg::Plutus => Form::Plutus,
        }
    }
}

/// Print a proof that an entry is there, or that it is not
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt prove --db utxos 825820...00
  utxo-csmt prove --db utxos 825820...00 --form compact
  utxo-csmt prove --db utxos 8258...05 --absent --address addr1q9...

The proof is printed in hex. With --path address, what is not there can be proved only for an address: without it, nobody knows
where in the tree it would be.")]
pub(super) struct Prove {
    #[command(flatten)]
    place: Where,
    /// The key in hex
    #[arg(value_name = "KEY", value_parser = hex)]
    key: std::vec::Vec<u8>,
    /// How the proof is written down
    #[arg(long, value_enum, default_value = "v4")]
    form: FormArg,
    /// That it is not there
    #[arg(long, conflicts_with = "form")]
    absent: bool,
    /// The address of an entry that is not there, in hex or bech32
    #[arg(long, value_parser = address, requires = "absent")]
    address: Option<std::vec::Vec<u8>>,
}

impl Prove {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let kind = store.settings().path;
        let mut view = store.view().map_err(because)?;
        let root = view.root().map_err(because)?;
        let key = to_hex(&self.key);
        let (bytes, form) = if self.absent {
            let path = absent_path(kind, &self.key, self.address.as_deref())?;
            let proof = view.prove_absent(&path).map_err(because)?;
            let proof = proof.ok_or_else(|| Fail::failed(format!("{key} is there")))?;
            (proof.to_bytes(), "absent")
        } else {
            let proof = view.prove(&self.key).map_err(because)?;
            let proof = proof.ok_or_else(|| {
                Fail::failed(format!("not found: {key}"))
                    .hint("--absent proves that it is not there")
            })?;
            // What is there has a root.
            let form = self.form.to_possible_value().map_or("v4", |_| name(self.form));
            (proof.to_form(self.form.into(), &root.unwrap_or_default()), form)
        };
        let facts = json!({
            "key": key,
            "form": form,
            "proof": to_hex(&bytes),
            "root": root.map(|root| root.to_string()),
            "tip": tip(view.tip()),
        });
        session.tell(&facts, || format!("{}\n", to_hex(&bytes)))
    }
}

fn name(form: FormArg) -> &'static str {
    match form {
        FormArg::V4 => "v4",
        FormArg::V5 => "v5",
        FormArg::Compact => "compact",
        FormArg::Plutus => "plutus",
    }
}

/// Where an entry would be.
fn absent_path(kind: PathKind, key: &[u8], address: Option<&[u8]>) -> Done<Path> {
    let mut bits = match (kind, address) {
        (PathKind::Raw, None) => Bits::default(),
        (PathKind::Raw, Some(_)) => {
            return Err(Fail::usage("with --path raw the address has nothing to do with it"));
        }
        (PathKind::Address, Some(address)) => Bits::from(&PathKind::of_address(address)),
        (PathKind::Address, None) => {
            return Err(Fail::usage("nobody knows where it would be without its address")
                .hint("give --address"));
        }
    };
    let wrong = |error: csmt::TooLong| Fail::usage(error.to_string());
    bits.append(&Path::of_bytes(key).map_err(wrong)?);
    bits.finish().map_err(wrong)
}

/// A prefix: bits, hex, or an address.
#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
struct Prefix {
    /// The prefix: bits as 0b0110, or bytes in hex
    #[arg(long, value_name = "BITS|HEX", value_parser = prefix)]
    prefix: Option<Path>,
    /// All entries of an address, in hex or bech32
    #[arg(long, value_parser = address)]
    address: Option<std::vec::Vec<u8>>,
}

impl Prefix {
    fn path(&self) -> Path {
        match (&self.prefix, &self.address) {
            (Some(prefix), _) => prefix.clone(),
            (None, Some(address)) => PathKind::of_address(address),
            (None, None) => Path::default(),
        }
    }
}

/// Bits with `0b` in front, or nothing but zeros and ones in a number that is no hex; otherwise hex.
fn prefix(text: &str) -> Result<Path, String> {
    let wrong = || "give bits as 0b0110, or pairs of hex digits".to_owned();
    match text.strip_prefix("0b") {
        Some(bits) => Path::parse(bits).ok_or_else(wrong),
        None => Path::of_bytes(&hex(text).map_err(|_| wrong())?).map_err(|error| error.to_string()),
    }
}

/// Print all leaves below a prefix, and the proof that these are all
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt prove-prefix --db utxos --address addr1q9... > proof.json
  utxo-csmt prove-prefix --db utxos --prefix 0b0110

The first line is the proof in hex, the others are the leaves: path in bits, and digest in hex.")]
pub(super) struct ProvePrefix {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    prefix: Prefix,
}

impl ProvePrefix {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let mut view = store.view().map_err(because)?;
        let root = view.root().map_err(because)?;
        let (leaves, proof) = view.prove_prefix(&self.prefix.path()).map_err(because)?;
        let proof = match (proof, root) {
            (Some(proof), _) => proof,
            (None, None) => Completeness::Nothing(Exclusion::Empty),
            (None, Some(_)) => {
                return Err(Fail::failed(
                    "the prefix goes on behind an entry: no proof has a form for that",
                ));
            }
        };
        let proof = to_hex(&proof.to_bytes());
        let leaf = |(path, value): &Leaf| (path.to_string(), value.to_string());
        let leaves: Vec<(String, String)> = leaves.iter().map(leaf).collect();
        let facts = json!({
            "prefix": self.prefix.path().to_string(),
            "proof": proof,
            "leaves": leaves,
            "root": root.map(|root| root.to_string()),
            "tip": tip(view.tip()),
        });
        session.tell(&facts, || {
            let mut text = format!("{proof}\n");
            leaves.iter().for_each(|(path, value)| text.push_str(&format!("{path} {value}\n")));
            text
        })
    }
}

/// The root that a proof is checked against.
#[derive(Args, Clone)]
struct Against {
    /// The root, in hex; `none` for a tree without entries
    #[arg(long, value_name = "HEX", value_parser = root)]
    root: RootArg,
    /// The proof: hex, or a file of hex or of bytes; - is standard input
    #[arg(long, value_name = "HEX|FILE")]
    proof: String,
}

#[derive(Clone)]
struct RootArg(Option<Hash>);

fn root(text: &str) -> Result<RootArg, String> {
    match text {
        "none" => Ok(RootArg(None)),
        text => hash(text).map(|hash| RootArg(Some(hash))),
    }
}

impl Against {
    /// The bytes of the proof. A file may have more lines behind it.
    fn bytes(&self) -> Done<Vec<u8>> {
        if let Ok(bytes) = hex(&self.proof)
            && !bytes.is_empty()
        {
            return Ok(bytes);
        }
        let bytes = read(&PathBuf::from(&self.proof), "the proof")?;
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or(&[]).trim_ascii();
        Ok(std::str::from_utf8(first).ok().and_then(|text| hex(text).ok()).unwrap_or(bytes))
    }
}

fn read(path: &PathBuf, what: &str) -> Done<Vec<u8>> {
    let mut bytes = Vec::new();
    let input: std::io::Result<Box<dyn Read>> = match path.as_os_str() == "-" {
        true => Ok(Box::new(std::io::stdin())),
        false => std::fs::File::open(path).map(|file| -> Box<dyn Read> { Box::new(file) }),
    };
    // A byte more than there may be: whoever checks a part would not have seen what is behind it.
    input.and_then(|input| input.take(PROOF_MAX + 1).read_to_end(&mut bytes)).map_err(|error| {
        Fail::failed(format!("cannot read {what} from {}: {error}", path.display()))
    })?;
    match show::wide(bytes.len()) > PROOF_MAX {
        true => Err(Fail::failed(format!(
            "{} is too long: of {what} no more than {} are read",
            path.display(),
            show::size(PROOF_MAX)
        ))),
        false => Ok(bytes),
    }
}

/// Check a proof; this needs no database
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt verify-proof --root ROOT --key 825820...00 --value 8258... --proof proof.hex
  utxo-csmt verify-proof --root ROOT --key 74657374 --value 64617461 --path raw --proof 849820...
  utxo-csmt verify-proof --root ROOT --key 8258...05 --absent --address addr1q9... --proof proof.hex

Exit code 0 if the proof holds, 1 if it does not. Without --value it is told which digest the value has; a compact form needs it.")]
pub(super) struct VerifyProof {
    #[command(flatten)]
    against: Against,
    /// The key in hex
    #[arg(long, value_name = "HEX", value_parser = hex)]
    key: std::vec::Vec<u8>,
    /// The value in hex
    #[arg(long, value_name = "HEX", value_parser = hex, conflicts_with = "absent")]
    value: Option<std::vec::Vec<u8>>,
    /// How the proof is written down. Default: v4 or v5, whichever it is
    #[arg(long, value_enum, conflicts_with = "absent")]
    form: Option<FormArg>,
    /// What paths of that tree are made of
    #[arg(long, value_enum, default_value = "address")]
    path: PathArg,
    /// The proof is that the key is not there
    #[arg(long)]
    absent: bool,
    /// The address, in hex or bech32, if there is no value to tell it
    #[arg(long, value_parser = address)]
    address: Option<std::vec::Vec<u8>>,
}

impl VerifyProof {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let bytes = self.against.bytes()?;
        let kind: PathKind = self.path.into();
        let digest = if self.absent {
            let path = absent_path(kind, &self.key, self.address.as_deref())?;
            let proof = Exclusion::from_bytes(&bytes).map_err(|wrong| refused(&wrong.into()))?;
            proof.verify(self.against.root.0.as_ref(), &path).map_err(|wrong| refused(&wrong))?;
            None
        } else {
            Some(self.check_inclusion(kind, &bytes)?)
        };
        let facts = json!({
            "holds": true,
            "value_digest": digest.map(|digest| digest.to_string()),
        });
        session.tell(&facts, || match digest {
            Some(digest) if self.value.is_none() => {
                format!("OK, the value has the digest {digest}\n")
            }
            _ => "OK\n".to_owned(),
        })
    }

    /// Gives the digest of the value.
    fn check_inclusion(&self, kind: PathKind, bytes: &[u8]) -> Done<Hash> {
        let root = self.against.root.0.ok_or_else(|| {
            Fail::failed("the proof does not hold: a tree without entries has none to prove")
        })?;
        let form = match self.form {
            Some(form) => form.into(),
            // Arrays of four and of five.
            None if bytes.first() == Some(&0x85) => Form::V5,
            None => Form::V4,
        };
        // What the proof itself says counts only where the user does not.
        let own = match form {
            Form::V4 => Inclusion::from_v4(bytes).ok(),
            Form::V5 => Inclusion::from_v5(bytes).ok().map(|(proof, _)| proof),
            Form::Compact | Form::Plutus => None,
        };
        let digest = match (&self.value, &own) {
            (Some(value), _) => Hash::of(value),
            (None, Some(own)) => own.value,
            (None, None) => {
                return Err(
                    Fail::usage("this form does not have the value in it").hint("give --value")
                );
            }
        };
        let path = match (kind, &self.value, &self.address, &own) {
            (PathKind::Raw, ..) => {
                Path::of_bytes(&self.key).map_err(|error| Fail::usage(error.to_string()))?
            }
            (PathKind::Address, _, Some(address), _) => {
                absent_path(kind, &self.key, Some(address))?
            }
            (PathKind::Address, Some(value), None, _) => {
                kind.path(&self.key, value).map_err(|error| Fail::usage(error.to_string()))?
            }
            (PathKind::Address, None, None, Some(own)) => {
                // Whichever address it is: the rest must be the key.
                if kind.key(&own.key).as_deref() != Some(&self.key) {
                    return Err(refused(&proof::Refused::Other("key")));
                }
                own.key.clone()
            }
            (PathKind::Address, None, None, None) => {
                return Err(
                    Fail::usage("nothing tells the address").hint("give --value or --address")
                );
            }
        };
        proof::verify(form, bytes, &root, &path, &digest).map_err(|wrong| refused(&wrong))?;
        Ok(digest)
    }
}

fn refused(wrong: &proof::Refused) -> Fail {
    Fail::failed(format!("the proof does not hold: {wrong}"))
}

/// Refuses a path that is not that of an output: a branch in the place of one hides what is below it, and no proof can tell.
fn is_output(path: &Path) -> Done {
    match PathKind::Address.key(path) {
        Some(key) if csmt::cardano::is_key(&key) => Ok(()),
        _ => Err(Fail::failed(format!(
            "the proof does not hold: {path} is not the path of an output, and may hide some"
        ))),
    }
}

/// Check a proof that some leaves are all below a prefix; this needs no database
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt prove-prefix --db utxos --prefix 0b0110 > all
  utxo-csmt verify-prefix --root ROOT --prefix 0b0110 --proof all --leaves all

A file of leaves has one a line: path in bits, a space, digest in hex. What `prove-prefix` prints is a file of both. Exit code 0 if
the proof holds, 1 if it does not.

With --address every path must be that of an output. With --prefix nothing is known of the keys, and a leaf may be a branch that hides
entries: look whether each path ends where a key can end.")]
pub(super) struct VerifyPrefix {
    #[command(flatten)]
    against: Against,
    #[command(flatten)]
    prefix: Prefix,
    /// The file of leaves
    #[arg(long, value_name = "FILE")]
    leaves: PathBuf,
}

impl VerifyPrefix {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let bytes = self.against.bytes()?;
        let leaves = self.leaves()?;
        if self.prefix.prefix.is_none() && self.prefix.address.is_some() {
            leaves.iter().try_for_each(|(path, _)| is_output(path))?;
        }
        let proof = Completeness::from_bytes(&bytes).map_err(|wrong| refused(&wrong.into()))?;
        let root = self.against.root.0.as_ref();
        proof.verify(root, &self.prefix.path(), &leaves).map_err(|wrong| refused(&wrong))?;
        session.tell(&json!({"holds": true, "leaves": leaves.len()}), || "OK\n".to_owned())
    }

    fn leaves(&self) -> Done<Vec<Leaf>> {
        let bytes = read(&self.leaves, "the leaves")?;
        let text = String::from_utf8(bytes).map_err(|_| Fail::failed("the leaves are not text"))?;
        let mut leaves = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            // A line without a space is the proof, if both are in one file.
            if line.is_empty() || (number == 0 && !line.contains(' ')) {
                continue;
            }
            let leaf = line
                .split_once(' ')
                .and_then(|(path, value)| Some((Path::parse(path)?, hash(value.trim()).ok()?)));
            leaves.push(leaf.ok_or_else(|| {
                Fail::failed(format!(
                    "line {} of the leaves is not a path and a digest",
                    number + 1
                ))
            })?);
        }
        Ok(leaves)
    }
}
