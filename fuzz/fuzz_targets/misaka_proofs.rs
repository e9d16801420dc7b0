//! Any bytes as proofs over a MISAKA state. None says that something else is there, or that nothing is.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use misaka::Hash;
use misaka::proof::Proof;
use misaka::root2::root_of;

const THERE: (&[u8], &[u8]) = (b"key 3", b"value 3");

static ROOT: LazyLock<Hash> = LazyLock::new(|| {
    let entry =
        |number| (format!("key {number}").into_bytes(), format!("value {number}").into_bytes());
    let entries: Vec<_> = (0..9).map(entry).collect();
    root_of(&entries).unwrap()
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(proof) = Proof::decode(bytes) else { return };
    assert_eq!(proof.encode(), bytes);
    assert!(proof.check_there(&ROOT, THERE.0, b"another value").is_err());
    assert!(proof.check_there(&ROOT, b"another key", THERE.1).is_err());
    assert!(proof.check_absent(&ROOT, THERE.0).is_err());
});
