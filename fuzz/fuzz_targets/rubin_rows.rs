//! Any bytes to the decoders of RUBIN's rows. What is taken is the only encoding of what it says.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rubin::{Block, BlockIndex, Header, Manifest, Transaction, UndoRecord, UtxoEntry};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(entry) = UtxoEntry::decode(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    if let Ok(undo) = UndoRecord::decode(bytes) {
        assert_eq!(undo.encode(), bytes);
    }
    if let Ok(index) = BlockIndex::decode(bytes) {
        assert_eq!(index.encode(), bytes);
    }
    if let Ok(header) = Header::decode(bytes) {
        assert_eq!(header.encode(), bytes);
    }
    if let Ok(manifest) = Manifest::decode(bytes) {
        assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
    }
    let _ = Transaction::decode(bytes);
    let _ = Block::decode(bytes);
});
