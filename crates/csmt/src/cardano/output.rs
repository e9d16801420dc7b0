//! Outputs, written as the ledger of Conway writes them.
//!
//! | output | form |
//! |---|---|
//! | neither datum nor script | `[address, value]` |
//! | the hash of a datum, no script | `[address, value, hash]` |
//! | else | `{0: address, 1: value, ? 2: [0, hash] / [1, 24(datum)], ? 3: 24(script)}` |
//!
//! A value is the coin alone, or `[coin, {policy: {name: quantity}}]` with both maps in the order of bytes. Datums and native
//! scripts keep their bytes, since their hashes are of those.

use std::collections::BTreeMap;

use super::Era;
use crate::cbor::{Encoder, Malformed};
use crate::items::Items;

/// Entries of a map whose length is written in front; longer ones end with a break.
const DEFINITE_MAX: usize = 23;

/// The bytes of a policy.
const POLICY_LEN: usize = 28;
/// The name of a token has at most so many bytes.
const NAME_LEN_MAX: usize = 32;

/// A datum of an output.
enum Datum<'a> {
    Hash([u8; 32]),
    Inline(&'a [u8]),
}

/// An output of any era.
struct Output<'a> {
    address: &'a [u8],
    value: Value<'a>,
    datum: Option<Datum<'a>>,
    /// `[language, script]`
    script: Option<Vec<u8>>,
}

/// Tokens by policy and name.
type Tokens<'a> = BTreeMap<&'a [u8], BTreeMap<&'a [u8], u64>>;

struct Value<'a> {
    coin: u64,
    tokens: Tokens<'a>,
}

/// An output of Byron, `[[24(bytes), checksum], coin]`. The ledger holds its address as the bytes of the inner list.
pub(super) fn byron(items: &mut Items<'_>) -> Result<Vec<u8>, Malformed> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let address = byron_address(items)?;
    items.field(&mut fields)?;
    let coin = items.uint()?;
    items.close(fields)?;
    Ok(simple(&address, coin))
}

/// The bytes of an address of Byron, `[24(bytes), checksum]`.
pub(super) fn byron_address(items: &mut Items<'_>) -> Result<Vec<u8>, Malformed> {
    let mut fields = items.list()?;
    items.field(&mut fields)?;
    let (_, payload) = items.encoded()?;
    items.field(&mut fields)?;
    let checksum = items.uint()?;
    items.close(fields)?;
    let mut encoder = Encoder::with_capacity(payload.len() + 12);
    encoder.array(2).tag(24).bytes(payload).uint(checksum);
    Ok(encoder.finish())
}

/// An output that is an address and coins.
pub(super) fn simple(address: &[u8], coin: u64) -> Vec<u8> {
    let mut encoder = Encoder::with_capacity(address.len() + 16);
    encoder.array(2).bytes(address).uint(coin);
    encoder.finish()
}

/// An output of Shelley or later.
pub(super) fn shelley(items: &mut Items<'_>, era: Era) -> Result<Vec<u8>, Malformed> {
    let output = if era >= Era::Babbage && items.is_map() {
        Output::from_map(items, era)?
    } else {
        Output::from_list(items, era)?
    };
    Ok(output.encode())
}

impl<'a> Output<'a> {
    /// `[address, value, ? hash of a datum]`, the last from Alonzo on
    fn from_list(items: &mut Items<'a>, era: Era) -> Result<Output<'a>, Malformed> {
        let mut fields = items.list()?;
        items.field(&mut fields)?;
        let address = address(items, era)?;
        items.field(&mut fields)?;
        let value = Value::decode(items, era)?;
        let mut datum = None;
        if era >= Era::Alonzo && items.more(&mut fields)? {
            datum = Some(Datum::Hash(items.array("the hash of a datum has 32 bytes")?));
        }
        items.close(fields)?;
        Ok(Output { address, value, datum, script: None })
    }

    fn from_map(items: &mut Items<'a>, era: Era) -> Result<Output<'a>, Malformed> {
        let start = items.clone();
        let (mut found, mut coins, mut datum, mut script) = (None, None, None, None);
        let mut pairs = items.map()?;
        while items.more(&mut pairs)? {
            let key = items.clone();
            let is_twice = match items.uint()? {
                0 => found.replace(address(items, era)?).is_some(),
                1 => coins.replace(Value::decode(items, era)?).is_some(),
                2 => datum.replace(Datum::decode(items)?).is_some(),
                3 => script.replace(decode_script(items)?).is_some(),
                _ => return Err(key.wrong("an output has no such field")),
            };
            if is_twice {
                return Err(key.wrong("a field is there twice"));
            }
        }
        let missing = || start.wrong("an output without address or value");
        let (address, value) = (found.ok_or_else(missing)?, coins.ok_or_else(missing)?);
        Ok(Output { address, value, datum, script })
    }

    fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::with_capacity(self.address.len() + 48);
        match (&self.datum, &self.script) {
            (None, None) => {
                encoder.array(2).bytes(self.address);
                self.value.encode(&mut encoder);
            }
            (Some(Datum::Hash(hash)), None) => {
                encoder.array(3).bytes(self.address);
                self.value.encode(&mut encoder);
                encoder.bytes(hash);
            }
            (datum, script) => {
                let count = 2 + usize::from(datum.is_some()) + usize::from(script.is_some());
                encoder.map(count).uint(0).bytes(self.address).uint(1);
                self.value.encode(&mut encoder);
                match datum {
                    Some(Datum::Hash(hash)) => drop(encoder.uint(2).array(2).uint(0).bytes(hash)),
                    Some(Datum::Inline(bytes)) => {
                        encoder.uint(2).array(2).uint(1).tag(24).bytes(bytes);
                    }
                    None => {}
                }
                if let Some(script) = script {
                    encoder.uint(3).tag(24).bytes(script);
                }
            }
        }
        encoder.finish()
    }
}

impl<'a> Datum<'a> {
    /// `[0, hash]` or `[1, 24(datum)]`
    fn decode(items: &mut Items<'a>) -> Result<Datum<'a>, Malformed> {
        let mut fields = items.list()?;
        items.field(&mut fields)?;
        let start = items.clone();
        let kind = items.uint()?;
        items.field(&mut fields)?;
        let datum = match kind {
            0 => Datum::Hash(items.array("the hash of a datum has 32 bytes")?),
            1 => {
                let (mut inner, bytes) = items.encoded()?;
                inner.skip()?;
                inner.finish()?;
                Datum::Inline(bytes)
            }
            _ => return Err(start.wrong("datums of this kind are not known")),
        };
        items.close(fields)?;
        Ok(datum)
    }
}

/// `24(bytes of [language, script])`. The ledger keeps the bytes of a native script, and those inside of the byte string of
/// another one.
fn decode_script(items: &mut Items<'_>) -> Result<Vec<u8>, Malformed> {
    let (mut inner, bytes) = items.encoded()?;
    let mut fields = inner.list()?;
    inner.field(&mut fields)?;
    let start = inner.clone();
    let language = inner.uint()?;
    inner.field(&mut fields)?;
    let mut encoder = Encoder::with_capacity(bytes.len());
    encoder.array(2).uint(language);
    match language {
        0 => {
            let start = inner.at();
            inner.skip()?;
            encoder.raw(inner.since(start));
        }
        1..=3 => drop(encoder.bytes(inner.byte_string()?)),
        _ => return Err(start.wrong("scripts of this language are not known")),
    }
    inner.close(fields)?;
    inner.finish()?;
    Ok(encoder.finish())
}

impl<'a> Value<'a> {
    /// `coin` or `[coin, tokens]`, the last from Mary on
    fn decode(items: &mut Items<'a>, era: Era) -> Result<Value<'a>, Malformed> {
        if items.is_uint() || era < Era::Mary {
            return Ok(Value { coin: items.uint()?, tokens: Tokens::new() });
        }
        let mut fields = items.list()?;
        items.field(&mut fields)?;
        let coin = items.uint()?;
        items.field(&mut fields)?;
        let tokens = tokens(items, era)?;
        items.close(fields)?;
        Ok(Value { coin, tokens })
    }

    fn encode(&self, encoder: &mut Encoder) {
        if self.tokens.is_empty() {
            encoder.uint(self.coin);
            return;
        }
        encoder.array(2).uint(self.coin);
        encode_map(encoder, &self.tokens, |encoder, names| {
            encode_map(encoder, names, |encoder, quantity| {
                encoder.uint(*quantity);
            });
        });
    }
}

fn encode_map<V>(
    encoder: &mut Encoder,
    map: &BTreeMap<&[u8], V>,
    encode: impl Fn(&mut Encoder, &V),
) {
    let is_definite = map.len() <= DEFINITE_MAX;
    if is_definite {
        encoder.map(map.len())
    } else {
        encoder.open_map()
    };
    for (key, value) in map {
        encode(encoder.bytes(key), value);
    }
    if !is_definite {
        encoder.end();
    }
}

/// `{policy: {name: quantity}}`. Before Conway the ledger takes the last of what is there twice, and drops quantities of zero and
/// policies without any; since then a block cannot have them.
fn tokens<'a>(items: &mut Items<'a>, era: Era) -> Result<Tokens<'a>, Malformed> {
    let is_strict = era >= Era::Conway;
    let mut tokens = Tokens::new();
    let mut policies = items.map()?;
    while items.more(&mut policies)? {
        let start = items.clone();
        let policy = items.byte_string()?;
        if policy.len() != POLICY_LEN {
            return Err(start.wrong("a policy has 28 bytes"));
        }
        let mut names = BTreeMap::new();
        let mut left = items.map()?;
        while items.more(&mut left)? {
            let start = items.clone();
            let name = items.byte_string()?;
            if name.len() > NAME_LEN_MAX {
                return Err(start.wrong("the name of a token has 32 bytes at most"));
            }
            let quantity = items.uint()?;
            let is_twice = names.insert(name, quantity).is_some();
            if is_strict && (is_twice || quantity == 0) {
                return Err(start.wrong("a token is there twice, or nothing of it"));
            }
        }
        let is_empty = names.is_empty();
        let is_twice = tokens.insert(policy, names).is_some();
        if is_strict && (is_twice || is_empty) {
            return Err(start.wrong("a policy is there twice, or without tokens"));
        }
    }
    tokens.retain(|_, names| {
        names.retain(|_, quantity| *quantity != 0);
        !names.is_empty()
    });
    Ok(tokens)
}

/// An address of Shelley or later. Up to Alonzo bytes behind the end of one were allowed, and the ledger drops them.
fn address<'a>(items: &mut Items<'a>, era: Era) -> Result<&'a [u8], Malformed> {
    let start = items.clone();
    let bytes = items.byte_string()?;
    let wrong = || start.wrong("this is not an address");
    let used = bytes.get(..address_len(bytes).ok_or_else(wrong)?).ok_or_else(wrong)?;
    if era >= Era::Babbage && used.len() != bytes.len() {
        return Err(wrong());
    }
    Ok(used)
}

/// How long an address is by its own account.
fn address_len(bytes: &[u8]) -> Option<usize> {
    const PART: usize = 28;
    match bytes.first()? >> 4 {
        // A payment part and a delegation part.
        0..=3 => Some(1 + 2 * PART),
        // A payment part and a pointer: three numbers, each up to a byte without its highest bit.
        4 | 5 => {
            let mut len = 1 + PART;
            for _ in 0..3 {
                len += 1 + bytes.get(len..)?.iter().position(|byte| byte & 0x80 == 0)?;
            }
            Some(len)
        }
        6 | 7 => Some(1 + PART),
        // Byron.
        8 => {
            let mut items = Items::new(bytes);
            items.skip().ok()?;
            Some(items.at())
        }
        _ => None,
    }
}
