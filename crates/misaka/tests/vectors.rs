//! Every group of the vectors.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/trace.rs"]
mod trace;

use std::collections::BTreeMap;

use misaka::format::checkpoint::{self, Header, tx_root};
use misaka::format::finality::FinalityProof;
use misaka::format::key::{self, Key};
use misaka::format::mcs::{Decoder, whole};
use misaka::format::object::{Object, Owner};
use misaka::format::params::{self, Params};
use misaka::format::snapshot::SnapshotHeader;
use misaka::format::transaction::{InputKind, Transaction, check_order};
use misaka::format::validators::set_hash;
use misaka::format::version::Version;
use misaka::root2::{root_of, root1_of};
use misaka::{Hash, Pair, Rule, hex as to_hex};
use serde_json::{Value, json};
use trace::{hash, hex, list, load, tag32, text};

#[test]
fn hashes() {
    for vector in list(&load()["hash_kat"]) {
        let message = hex(&vector["msg_hex"]);
        assert_eq!(Hash::of(&[&message]), hash(&vector["sha3_256_hex"]));
        assert_eq!(
            Hash::of_each([message.as_slice()].into_iter()),
            [hash(&vector["sha3_256_hex"])]
        );
    }
}

/// A value of a named type, as the vectors show it.
fn read(kind: &str, bytes: &[u8]) -> Result<Value, Rule> {
    let number = |value: u64| json!(value.to_string());
    let array = |item: &mut Decoder<'_>| item.array::<32>().map(|bytes| json!(to_hex(&bytes)));
    whole(bytes, |decoder| {
        Ok(match kind {
            "u8" => number(decoder.u8()?.into()),
            "u16" => number(decoder.u16()?.into()),
            "u32" => number(decoder.u32()?.into()),
            "u64" => number(decoder.u64()?),
            "bool" => json!(decoder.bool()?),
            "bytes" => json!(to_hex(decoder.bytes()?)),
            "string" => json!(decoder.string()?),
            "bytes[32]" => array(decoder)?,
            "list<u16>" => json!(decoder.list(2, Decoder::u16)?),
            "list<string>" => json!(decoder.list(4, |item| item.string().map(str::to_owned))?),
            "list<bytes[32]>" => json!(decoder.list(32, array)?),
            other => panic!("no type {other}"),
        })
    })
}

#[test]
fn mcs1() {
    let vectors = load();
    for vector in list(&vectors["mcs1_accept"]) {
        let found = read(text(&vector["type"]), &hex(&vector["hex"]));
        assert_eq!(found.as_ref(), Ok(&vector["value"]), "{vector}");
    }
    for vector in list(&vectors["mcs1_reject"]) {
        let found = read(text(&vector["type"]), &hex(&vector["hex"]));
        assert_eq!(found.unwrap_err().token(), text(&vector["reason"]), "{vector}");
    }
}

#[test]
fn objects() {
    let vectors = load();
    for vector in list(&vectors["objects"]) {
        let bytes = hex(&vector["object_bytes_hex"]);
        let object = Object::decode(&bytes).unwrap();
        assert_eq!(object.encode(), bytes);
        assert_eq!(bytes.len(), vector["mcs1_len"]);
        assert_eq!(object.id, hash(&vector["object_id_hex"]));
        assert_eq!(object.version.to_string(), vector["version"]);
        assert_eq!(object.owner.kind(), vector["owner_kind"]);
        assert_eq!(object.owner.data(), hex(&vector["owner_data_hex"]));
        assert_eq!(object.type_tag, vector["type_tag"]);
        assert_eq!(object.payload, hex(&vector["payload_hex"]));
        assert_eq!(u8::from(object.is_tombstone), vector["lifecycle_state"]);
        let digest = Hash::of(&[&bytes]);
        assert_eq!(digest, hash(&vector["digest_hex"]));
        assert_eq!(Key::Object(object.id).encode(), hex(&vector["obj_key_hex"]));
        let key = Key::Version(object.id, object.version);
        assert_eq!(key.encode(), hex(&vector["ver_key_hex"]));
        let version = Version { digest, is_tombstone: object.is_tombstone, seq: 77 };
        assert_eq!(version.encode().to_vec(), hex(&vector["ver_value_at_ckpt_77_hex"]));
        assert_eq!(Version::decode(&version.encode()), Ok(version));
    }
    for vector in list(&vectors["object_reject"]) {
        let found = Object::decode(&hex(&vector["object_bytes_hex"])).map(|_| ());
        assert_eq!(found.unwrap_err().token(), text(&vector["reason"]), "{vector}");
    }
    let vector = &vectors["object_max_payload"];
    let payload: Vec<u8> =
        (0..65_532_u32).map(|i| u8::try_from((i * 31 + 7) & 255).unwrap()).collect();
    let object = Object {
        id: hash(&vector["object_id_hex"]),
        version: 1,
        owner: Owner::Address(hash(&vector["owner_data_hex"]).0),
        type_tag: "0x2::coin::Coin<SUI>",
        payload: &payload,
        is_tombstone: false,
    };
    let bytes = object.encode();
    assert_eq!(Object::decode(&bytes), Ok(object));
    assert_eq!(bytes.len(), vector["mcs1_len"]);
    assert_eq!(Hash::of(&[&bytes]), hash(&vector["digest_hex"]));
}

#[test]
fn transactions() {
    let vectors = load();
    for vector in list(&vectors["transactions"]) {
        let bytes = hex(&vector["tx_bytes_hex"]);
        let transaction = Transaction::decode(&bytes).unwrap();
        assert_eq!(transaction.encode(), bytes);
        assert_eq!(bytes.len(), vector["mcs1_len"]);
        assert_eq!(Hash::of(&[&bytes]), hash(&vector["tx_digest_hex"]));
        let shared = transaction.inputs.iter().filter(|input| input.kind == InputKind::Shared);
        let mut shared: Vec<Hash> = shared.map(|input| input.id).collect();
        shared.sort();
        let wanted: Vec<Hash> = list(&vector["shared_input_ids_sorted"]).iter().map(hash).collect();
        assert_eq!(shared, wanted);
        assert_eq!(transaction.primary_shared_id(), wanted.first().copied());
        for len in 0..bytes.len() {
            assert!(Transaction::decode(&bytes[..len]).is_err(), "cut to {len}");
        }
    }
    for vector in list(&vectors["tx_reject"]) {
        let found = Transaction::decode(&hex(&vector["tx_bytes_hex"])).map(|_| ());
        assert_eq!(found.unwrap_err().token(), text(&vector["reason"]), "{vector}");
    }
}

#[test]
fn order_of_transactions() {
    for vector in list(&load()["det_order_v1"]) {
        let shared: BTreeMap<Hash, Option<Hash>> = list(&vector["txs"])
            .iter()
            .map(|tx| hex(&tx["tx_bytes_hex"]))
            .map(|tx| (Hash::of(&[&tx]), Transaction::decode(&tx).unwrap().primary_shared_id()))
            .collect();
        let given: Vec<(Hash, Option<Hash>)> = list(&vector["checkpoint_tx_digest_list"])
            .iter()
            .map(|digest| (hash(digest), shared[&hash(digest)]))
            .collect();
        match text(&vector["expected"]["result"]) {
            "accept" => assert_eq!(check_order(&given), Ok(())),
            _ => {
                let wanted = text(&vector["expected"]["error_code"]);
                assert_eq!(check_order(&given).unwrap_err().token(), wanted);
            }
        }
    }
}

#[test]
fn merkle_roots_of_digests() {
    for vector in list(&load()["tx_digest_merkle_root"]) {
        let count = vector["n"].as_u64().unwrap();
        let digests: Vec<Hash> = (0..count).map(|number| tag32("txd", number)).collect();
        assert_eq!(tx_root(&digests), hash(&vector["root_hex"]), "{count}");
    }
}

#[test]
fn keys() {
    let vectors = load();
    let wanted = [
        Key::Object(tag32("obj", 1)),
        Key::Version(tag32("obj", 1), 1),
        Key::Version(tag32("obj", 1), 256),
        Key::Checkpoint(0),
        Key::Checkpoint(47),
        Key::Checkpoint(50_000),
        Key::Event(258, 3, 300),
        Key::Event(47, 47, 47),
    ];
    let found = list(&vectors["keys"]);
    assert_eq!(found.len(), wanted.len());
    for (vector, key) in found.iter().zip(wanted) {
        let bytes = hex(&vector["hex"]);
        assert_eq!(key.encode(), bytes, "{}", vector["what"]);
        assert_eq!(bytes.len(), vector["len"]);
        assert_eq!(Key::decode(&bytes), Ok(key));
        for cut in 1..bytes.len() {
            assert!(Key::decode(&bytes[..cut]).is_err(), "{}, cut to {cut}", vector["what"]);
        }
        let longer = [&bytes[..], b"x"].concat();
        assert_eq!(Key::decode(&longer), Err(Rule::KeyPrefix));
    }
    let vector = &vectors["le_key_order"];
    let id = hash(&vector["object_id_hex"]);
    let numbers = |value: &Value| -> Vec<u64> {
        list(value).iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let mut versions = numbers(&vector["versions"]);
    versions.sort_by_key(|version| key::version(&id, *version));
    assert_eq!(versions, numbers(&vector["bytewise_sorted_versions"]));
}

fn params_of(value: &Value) -> Params {
    let params = value.as_object().unwrap();
    params.iter().map(|(name, value)| (name.clone(), hex(value))).collect()
}

#[test]
fn parameters() {
    let vectors = load();
    let entries = list(&vectors["sys_params"]["entries"]);
    let params: Params = entries
        .iter()
        .map(|entry| (text(&entry["name"]).to_owned(), hex(&entry["value_hex"])))
        .collect();
    assert_eq!(params::check(&params), Ok(()));
    assert_eq!(params::check(&Params::new()), Ok(()));
    for entry in entries {
        let key = Key::Param(text(&entry["name"]).to_owned());
        assert_eq!(key.encode(), hex(&entry["key_A_raw_ascii_hex"]));
        assert_eq!(Key::decode(&key.encode()), Ok(key));
    }
    for (reading, field) in [
        ("A", "key_A_raw_ascii_hex"),
        ("B", "key_B_mcs1_string_hex"),
        ("C", "key_C_prefix_plus_mcs1_name_hex"),
    ] {
        let pairs: Vec<Pair> =
            entries.iter().map(|entry| (hex(&entry[field]), hex(&entry["value_hex"]))).collect();
        assert_eq!(root1_of(&pairs), Ok(hash(&vectors["sys_params"]["root_v1"][reading])));
        assert_eq!(root_of(&pairs), Ok(hash(&vectors["sys_params"]["root_v2"][reading])));
    }
    for vector in list(&vectors["sys_params_reject"]) {
        let found = params::check(&params_of(&vector["params"]));
        assert_eq!(found.unwrap_err().token(), text(&vector["reason"]), "{vector}");
    }
    for vector in list(&vectors["committee_m_min"]) {
        let n = u32::try_from(vector["n"].as_u64().unwrap()).unwrap();
        assert_eq!(params::committee_m_min(n), vector["m_min"]);
    }
}

#[test]
fn a_committee_is_there_whole_or_not_at_all() {
    let vectors = load();
    let entries = list(&vectors["sys_params"]["entries"]);
    let whole: Params = entries
        .iter()
        .map(|entry| (text(&entry["name"]).to_owned(), hex(&entry["value_hex"])))
        .collect();
    for name in ["committee_n", "committee_m", "committee_pubkeys", "committee_id"] {
        let mut params = whole.clone();
        params.remove(name);
        assert_eq!(params::check(&params), Err(Rule::CommitteeSet), "without {name}");
    }
    for name in ["p_validator", "p_grants", "p_treasury"] {
        let mut params = whole.clone();
        params.remove(name);
        assert_eq!(params::check(&params), Err(Rule::SplitSum), "without {name}");
    }
    for (name, value) in [("r_annual", vec![1]), ("timelock_checkpoints", vec![0; 9])] {
        let mut params = whole.clone();
        params.insert(name.to_owned(), value);
        assert!(params::check(&params).is_err(), "{name}");
    }
}

#[test]
fn validators_and_finality() {
    let vectors = load();
    let vector = &vectors["validator_set"];
    let mut validators: Vec<([u8; 32], u64)> = list(&vector["entries_unsorted"])
        .iter()
        .map(|entry| {
            let power = match &entry["voting_power"] {
                Value::String(text) => text.parse().unwrap(),
                number => number.as_u64().unwrap(),
            };
            (hash(&entry["pubkey_hex"]).0, power)
        })
        .collect();
    assert_eq!(set_hash(&validators), Ok(hash(&vector["validator_set_hash_hex"])));
    assert_eq!(set_hash(&[]), Err(Rule::ValidatorSet));
    assert_eq!(set_hash(&validators[..3]), Err(Rule::ValidatorSet));
    validators[0] = validators[1];
    assert_eq!(set_hash(&validators), Err(Rule::ValidatorSet));
    let powers = |powers: [u64; 4]| {
        let members: Vec<_> = (0..4).zip(powers).map(|(key, power)| ([key; 32], power)).collect();
        set_hash(&members)
    };
    assert_eq!(powers([0; 4]), Err(Rule::ValidatorSet));
    assert_eq!(powers([u64::MAX, 1, 0, 0]), Err(Rule::ValidatorSet));
    assert!(powers([u64::MAX, 0, 0, 0]).is_ok());
    let vector = &vectors["finality_proof_v1_layout"];
    let bytes = hex(&vector["hex"]);
    assert_eq!(bytes.len(), vector["len"]);
    let proof = FinalityProof::decode(&bytes).unwrap();
    assert_eq!(proof.encode(), bytes);
    assert_eq!(set_hash(&proof.validators), Ok(proof.validator_set_hash));
    for len in 0..bytes.len() {
        assert!(FinalityProof::decode(&bytes[..len]).is_err());
    }
}

#[test]
fn state_roots() {
    let vectors = load();
    for vector in list(&vectors["state_root_vectors"]) {
        let inputs = &vector["inputs"];
        let mut pairs: Vec<Pair> = list(&inputs["objects"])
            .iter()
            .map(|object| hex(&object["object_bytes_hex"]))
            .map(|bytes| (Key::Object(Object::decode(&bytes).unwrap().id).encode(), bytes))
            .collect();
        for part in ["version_index_latest_only", "sys_params"] {
            let entries = list(&inputs[part]).iter();
            pairs.extend(entries.map(|entry| (hex(&entry["key_hex"]), hex(&entry["value_hex"]))));
        }
        let root = match vector["state_root_version"].as_u64().unwrap() {
            1 => root1_of(&pairs).unwrap(),
            _ => root_of(&pairs).unwrap(),
        };
        let expected = &vector["expected"];
        assert_eq!(root, hash(&expected["state_root_hex"]), "{}", vector["vector_id"]);
        let bytes = hex(&vector["checkpoint"]["checkpoint_header_bytes_hex"]);
        let header = Header::decode(&bytes).unwrap();
        assert_eq!(header.encode().to_vec(), bytes);
        assert_eq!(header.state_root, root);
        assert_eq!(header.digest(), hash(&expected["checkpoint_digest_hex"]));
        let digests = list(&vector["checkpoint"]["checkpoint_tx_digest_list"]);
        let digests: Vec<Hash> = digests.iter().map(hash).collect();
        assert_eq!(header.check_body(&digests), Ok(()));
        assert_eq!(header.tx_root, hash(&expected["tx_digest_merkle_root_hex"]));
        let value = checkpoint::value(&header, &digests);
        assert_eq!(value.len(), 170 + 32 * digests.len());
        assert_eq!(checkpoint::decode_value(&value), Ok((header, digests)));
    }
    for vector in list(&vectors["state_root_v2_raw"]) {
        let pairs = pairs(&vector["kv"]);
        assert_eq!(root_of(&pairs), Ok(hash(&vector["root_v2_hex"])), "{}", vector["name"]);
        assert_eq!(root1_of(&pairs), Ok(hash(&vector["root_v1_hex"])));
    }
    for vector in list(&vectors["state_root_reject"]) {
        let pairs = pairs(&vector["kv"]);
        assert_eq!(root_of(&pairs).unwrap_err().token(), text(&vector["v2"]));
        assert_eq!(root1_of(&pairs).unwrap_err().token(), text(&vector["v1"]));
    }
}

fn pairs(value: &Value) -> Vec<Pair> {
    list(value).iter().map(|entry| (hex(&entry["key_hex"]), hex(&entry["value_hex"]))).collect()
}

#[test]
fn roots_of_many() {
    let vectors = load();
    let entries = list(&vectors["sys_params"]["entries"]);
    for vector in list(&vectors["bulk"]) {
        let (count, updated) = (vector["n"].as_u64().unwrap(), vector["upd"].as_u64().unwrap());
        let mut pairs: Vec<Pair> = Vec::new();
        for i in 0..count {
            let is_tombstone = i % 10 == 9;
            let version = 1 + if i < updated { i % 600 } else { 0 } + u64::from(is_tombstone);
            let owner = match [0, 0, 0, 1, 2, 3][usize::try_from(i % 6).unwrap()] {
                1 => Owner::Object(tag32("obj", i + 1000).0),
                2 => Owner::Shared(1),
                3 if version == 1 => Owner::Immutable,
                _ => Owner::Address(tag32("addr", i % 7).0),
            };
            let payload = tag32("payload", i).0.repeat(usize::try_from(i % 5).unwrap());
            let object = Object {
                id: tag32("bulk", i),
                version,
                owner,
                type_tag: "0x2::coin::Coin<SUI>",
                payload: if is_tombstone { &[] } else { &payload },
                is_tombstone,
            };
            let bytes = object.encode();
            let entry = Version { digest: Hash::of(&[&bytes]), is_tombstone, seq: i % 1000 };
            pairs.push((Key::Object(object.id).encode(), bytes));
            pairs.push((Key::Version(object.id, version).encode(), entry.encode().to_vec()));
        }
        if vector["params"] == true {
            let params = entries.iter();
            pairs.extend(
                params.map(|entry| (hex(&entry["key_A_raw_ascii_hex"]), hex(&entry["value_hex"]))),
            );
        }
        assert_eq!(root1_of(&pairs), Ok(hash(&vector["root_v1_hex"])), "{count} objects");
        assert_eq!(root_of(&pairs), Ok(hash(&vector["root_v2_hex"])), "{count} objects");
    }
}

#[test]
fn headers_that_are_none() {
    let vectors = load();
    let bytes = hex(&vectors["state_root_vectors"][0]["checkpoint"]["checkpoint_header_bytes_hex"]);
    for (at, value) in [(0, 2), (1, 1), (162, 2), (163, 1), (164, 0), (165, 9)] {
        let mut other = bytes.clone();
        other[at] = value;
        assert_eq!(Header::decode(&other), Err(Rule::HeaderConst), "byte {at}");
    }
    assert_eq!(Header::decode(&bytes[..165]), Err(Rule::Truncated));
    assert_eq!(Header::decode(&[&bytes[..], &[0]].concat()), Err(Rule::TrailingBytes));
}

#[test]
fn snapshot_header() {
    let vector = &load()["snapshot"];
    let bytes = hex(&vector["snapshot_header_hex"]);
    let header = SnapshotHeader::decode(&bytes).unwrap();
    assert_eq!(header.encode().to_vec(), bytes);
    let of = Header::decode(&hex(&vector["checkpoint_header_bytes_hex"])).unwrap();
    assert_eq!(SnapshotHeader::of(&of, 2), header);
    assert_eq!(header.state_root, hash(&vector["state_root_hex"]));
    let mut other = bytes.clone();
    other[76] = 3;
    assert_eq!(SnapshotHeader::decode(&other), Err(Rule::StateRootVersion));
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> =
        Rule::ALL.iter().map(|rule| rule.token()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
    let is_name = |name: &&str| {
        name.bytes().all(|b| b == b'_' || b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    assert!(names.iter().all(is_name), "{names:?}");
}
