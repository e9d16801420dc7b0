//! The tables of the store.
//!
//! Numbers in keys are big-endian here, so that they have their order; whoever looks sees the keys of the specification.

use ledger::Table;

/// The newest record of every object, by id: u64le of its checkpoint, then its bytes.
pub const OBJECTS: Table = Table { name: "object_store", id: 1 };
/// Versions by id and number.
pub const VERSIONS: Table = Table { name: "version_index", id: 2 };
/// Checkpoints by number.
pub const CHECKPOINTS: Table = Table { name: "checkpoint_store", id: 3 };
/// Events, many a row, by checkpoint and number of the row.
pub const EVENTS: Table = Table { name: "event_log_store_recent", id: 4 };
/// Parameters by name.
pub const PARAMS: Table = Table { name: "sys_params", id: 5 };

/// The stores that the specification names.
pub const CANONICAL: &[Table] = &[OBJECTS, VERSIONS, CHECKPOINTS, EVENTS, PARAMS];

/// Private: of each checkpoint how many rows it has in other tables.
pub const NOTES: Table = Table { name: "checkpoint_notes", id: 16 };
/// Private: versions that a checkpoint wrote, for when they are pruned.
pub const JOURNAL: Table = Table { name: "prune_journal", id: 17 };
/// Private: what a checkpoint changed, for whoever follows.
pub const FEED: Table = Table { name: "change_feed", id: 18 };
/// Private: inner nodes of the state tree.
pub const TREE: Table = Table { name: "state_tree", id: 19 };
/// Private: what the store knows of itself.
pub const META: Table = Table { name: "store_meta", id: 20 };

/// All of them. There is no other: an index by owner belongs to an indexer.
pub const ALL: &[Table] =
    &[OBJECTS, VERSIONS, CHECKPOINTS, EVENTS, PARAMS, NOTES, JOURNAL, FEED, TREE, META];
