//! The tables of the store.

use ledger::Table;

/// Header bytes by block hash.
pub const HEADERS: Table = Table { name: "headers_by_hash", id: 1 };
/// Block bytes by block hash.
pub const BLOCKS: Table = Table { name: "blocks_by_hash", id: 2 };
/// [`BlockIndex`](crate::BlockIndex) by block hash.
pub const INDEX: Table = Table { name: "block_index_by_hash", id: 3 };
/// [`UtxoEntry`](crate::UtxoEntry) by [`Outpoint`](crate::Outpoint).
pub const UTXO: Table = Table { name: "utxo_by_outpoint", id: 4 };
/// [`UndoRecord`](crate::UndoRecord) by block hash.
pub const UNDO: Table = Table { name: "undo_by_block_hash", id: 5 };

/// The tables that the specification names.
pub const CANONICAL: &[Table] = &[HEADERS, BLOCKS, INDEX, UTXO, UNDO];

/// Private: hashes of the applied chain by height, u64be.
pub const HEIGHTS: Table = Table { name: "header_hash_by_height", id: 16 };
/// Private: why a block is invalid, as the code of the rule it breaks, by block hash.
pub const REASONS: Table = Table { name: "reject_reason_by_hash", id: 17 };
/// Private: blocks that wait for their parent, with its hash, by block hash.
pub const ORPHANS: Table = Table { name: "orphan_parent_by_hash", id: 19 };
/// Private: what the store knows of itself.
pub const META: Table = Table { name: "store_meta", id: 18 };

/// All of them.
pub const ALL: &[Table] = &[HEADERS, BLOCKS, INDEX, UTXO, UNDO, HEIGHTS, REASONS, ORPHANS, META];
