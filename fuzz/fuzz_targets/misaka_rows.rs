//! Any bytes to the decoders of MCS-1. What is taken is the only encoding of what it says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use misaka::Checkpoint;
use misaka::format::checkpoint::{Header, decode_value};
use misaka::format::finality::FinalityProof;
use misaka::format::key::Key;
use misaka::format::manifest::Manifest;
use misaka::format::object::Object;
use misaka::format::snapshot::SnapshotHeader;
use misaka::format::transaction::Transaction;
use misaka::format::version::Version;
use misaka::format::{node, validators};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(object) = Object::decode(bytes) {
        assert_eq!(object.encode(), bytes);
    }
    if let Ok(key) = Key::decode(bytes) {
        assert_eq!(key.encode(), bytes);
    }
    if let Ok(proof) = FinalityProof::decode(bytes) {
        assert_eq!(proof.encode(), bytes);
    }
    if let Ok(version) = Version::decode(bytes) {
        assert_eq!(version.encode(), bytes);
    }
    if let Ok(transaction) = Transaction::decode(bytes) {
        assert_eq!(transaction.encode(), bytes);
    }
    if let Ok(header) = SnapshotHeader::decode(bytes) {
        assert_eq!(header.encode(), bytes);
    }
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), bytes);
    }
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert_eq!(manifest.encode(), bytes);
    }
    if let Ok(checkpoint) = Checkpoint::decode(bytes) {
        assert_eq!(checkpoint.encode(), bytes);
    }
    let _ = decode_value(bytes);
    let _ = validators::decode(bytes);
    let _ = node::decode(bytes);
    let _ = node::decode_top(bytes);
});
