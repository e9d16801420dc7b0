//! The tables of the store.

use ledger::Table;

/// Entries.
pub const KV: Table = Table { name: "kv", id: 1 };
/// Nodes of the tree by their position.
pub const CSMT: Table = Table { name: "csmt", id: 2 };
/// What takes blocks back, by point.
pub const ROLLBACKS: Table = Table { name: "rollbacks", id: 3 };
/// How far the chain was followed.
pub const CONFIG: Table = Table { name: "config", id: 4 };

/// The tables that the specification names.
pub const CANONICAL: &[Table] = &[KV, CSMT, ROLLBACKS, CONFIG];

/// Private: keys of rollback points in the order in which their blocks came, u64be.
pub const ARRIVALS: Table = Table { name: "point_arrivals", id: 16 };
/// Private: what the store knows of itself.
pub const META: Table = Table { name: "store_meta", id: 17 };
/// Private: ways to the entries of a bootstrap that is under way, in sorted runs: u32be of the run, u32be of the row.
pub const WAYS: Table = Table { name: "bootstrap_ways", id: 18 };

/// All of them.
pub const ALL: &[Table] = &[KV, CSMT, ROLLBACKS, CONFIG, ARRIVALS, META, WAYS];
