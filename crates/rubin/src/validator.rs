//! What consensus says of blocks. The store does what it needs for itself: it parses strictly, follows links, counts work,
//! checks the merkle root, and never lets a block spend what is not there. Everything else is a validator's.

use crate::block::Block;
use crate::code::Code;
use crate::coins::Coins;
use crate::hash::Hash;
use crate::header::Header;

/// What is before a header, as far as rules may ask.
#[derive(Clone, Debug)]
pub struct HeaderContext {
    /// The header's height.
    pub height: u64,
    /// The block before.
    pub parent_hash: Hash,
    /// Its header.
    pub parent: Header,
    /// Timestamps of the last eleven blocks before, or of all if there are fewer, the newest first.
    pub timestamps: Vec<u64>,
    /// Where the target changes: the timestamp of the first block of the window that ends.
    pub window_start: Option<u64>,
    /// Seconds since 1970 here, if that is to count.
    pub local_time: Option<u64>,
}

/// The rules that blocks must follow.
pub trait Validator: Send + Sync {
    /// Checks a header whose parent is known, and the merkle root with it.
    fn check_header(&self, block: &Block<'_>, context: &HeaderContext) -> Result<(), Code>;

    /// Checks as much of a header as can be checked without its parent.
    fn check_orphan(&self, block: &Block<'_>) -> Result<(), Code>;

    /// Checks the body of a block at a height against the outputs that were there before it. The coins are the validator's to
    /// go through the block with; the store looks for itself afterwards.
    fn check_body<'b>(
        &self,
        block: &'b Block<'b>,
        height: u64,
        coins: &mut Coins<'b>,
    ) -> Result<(), Code>;
}
