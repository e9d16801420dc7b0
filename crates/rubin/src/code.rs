//! The codes by which implementations tell each other which rule a block breaks.

use std::fmt;
use std::str::FromStr;

macro_rules! codes {
    ($( $(#[$meta:meta])* $name:ident = $text:literal, )*) => {
        /// The rule that a block or a transaction breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $( $(#[$meta])* $name, )*
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Code] = &[ $( Code::$name, )* ];

            /// As all implementations write it.
            pub fn as_str(self) -> &'static str {
                match self { $( Code::$name => $text, )* }
            }
        }
    };
}

codes! {
    /// A transaction is not well formed.
    TxParse = "TX_ERR_PARSE",
    /// A signature does not hold.
    TxSigInvalid = "TX_ERR_SIG_INVALID",
    /// More goes out than comes in.
    TxValueConservation = "TX_ERR_VALUE_CONSERVATION",
    /// A nonce is zero.
    TxNonceInvalid = "TX_ERR_TX_NONCE_INVALID",
    /// A sequence number is out of range.
    TxSequenceInvalid = "TX_ERR_SEQUENCE_INVALID",
    /// There is no such covenant, or its data is not as it should be.
    TxCovenantTypeInvalid = "TX_ERR_COVENANT_TYPE_INVALID",
    /// An input spends what is not there.
    TxMissingUtxo = "TX_ERR_MISSING_UTXO",
    /// A coinbase is spent too early.
    TxCoinbaseImmature = "TX_ERR_COINBASE_IMMATURE",
    /// Something that is not active yet.
    TxDeploymentInactive = "TX_ERR_DEPLOYMENT_INACTIVE",
    /// Signatures of another kind.
    TxSigAlgInvalid = "TX_ERR_SIG_ALG_INVALID",
    /// Two transactions of a block have one nonce.
    TxNonceReplay = "TX_ERR_NONCE_REPLAY",
    /// A key or signature of another length.
    TxSigNoncanonical = "TX_ERR_SIG_NONCANONICAL",
    /// Too much witness.
    TxWitnessOverflow = "TX_ERR_WITNESS_OVERFLOW",
    /// It is too early.
    TxTimelockNotMet = "TX_ERR_TIMELOCK_NOT_MET",
    /// The block is too heavy.
    BlockWeightExceeded = "BLOCK_ERR_WEIGHT_EXCEEDED",
    /// Too many bytes of anchors.
    BlockAnchorBytesExceeded = "BLOCK_ERR_ANCHOR_BYTES_EXCEEDED",
    /// The hash is not below the target.
    BlockPowInvalid = "BLOCK_ERR_POW_INVALID",
    /// The target is another.
    BlockTargetInvalid = "BLOCK_ERR_TARGET_INVALID",
    /// It does not follow the block that it should.
    BlockLinkageInvalid = "BLOCK_ERR_LINKAGE_INVALID",
    /// The root is not that of the transactions.
    BlockMerkleInvalid = "BLOCK_ERR_MERKLE_INVALID",
    /// The coinbase is not as it should be.
    BlockCoinbaseInvalid = "BLOCK_ERR_COINBASE_INVALID",
    /// The coinbase takes too much.
    BlockSubsidyExceeded = "BLOCK_ERR_SUBSIDY_EXCEEDED",
    /// The timestamp is not above the median of those before.
    BlockTimestampOld = "BLOCK_ERR_TIMESTAMP_OLD",
    /// The timestamp is too far ahead of the clock here.
    BlockTimestampFuture = "BLOCK_ERR_TIMESTAMP_FUTURE",
    /// The block is not well formed.
    BlockParse = "BLOCK_ERR_PARSE",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// No such code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such code")]
pub struct NotACode;

impl FromStr for Code {
    type Err = NotACode;

    fn from_str(text: &str) -> Result<Code, NotACode> {
        Code::ALL.iter().find(|code| code.as_str() == text).copied().ok_or(NotACode)
    }
}
