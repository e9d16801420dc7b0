//! The store of a RUBIN node: blocks, their index, the outputs that can be spent, and what it takes to take blocks back.

mod block;
mod entry;
mod hash;
mod header;
mod index;
mod outpoint;
mod set_hash;
pub mod tables;
pub mod transaction;
mod undo;
mod work;

pub use block::{Block, merkle_root};
pub use entry::UtxoEntry;
pub use hash::{Hash, NotAHash, from_hex, to_hex};
pub use header::Header;
pub use index::{BlockIndex, Status};
pub use outpoint::Outpoint;
pub use set_hash::{SetHash, TAG, utxo_set_hash};
pub use transaction::Transaction;
pub use undo::UndoRecord;
pub use work::{NotWork, Work};
