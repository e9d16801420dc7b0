//! What a validator must not take, each rule by its name, and why the store did not do something.

use ledger::{EngineError, Table};

use crate::hash::hex;

/// A rule that something breaks. The names are those of the specification where it has one.
macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident $token:literal $text:literal,)*) => {
        /// A rule that something breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $text] $name,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$name,)*];

            /// Its name.
            pub fn token(self) -> &'static str {
                match self {
                    $(Rule::$name => $token,)*
                }
            }

            /// What it asks for.
            pub fn text(self) -> &'static str {
                match self {
                    $(Rule::$name => $text,)*
                }
            }
        }
    };
}

rules! {
    Truncated "TRUNCATED" "the bytes end before the value does",
    TrailingBytes "TRAILING_BYTES" "nothing follows a value",
    BadBool "BAD_BOOL" "a bool is 00 or 01",
    BadUtf8 "BAD_UTF8" "a string is UTF-8",
    BadFormatVersion "BAD_FORMAT_VERSION" "the format version is 1",
    BadOwnerKind "BAD_OWNER_KIND" "the kind of an owner is 0 to 3",
    BadOwnerDataLen "BAD_OWNER_DATA_LEN" "an owner has as many bytes as its kind says",
    BadLifecycle "BAD_LIFECYCLE" "an object is live, 0, or a tombstone, 1",
    TombstonePayload "TOMBSTONE_PAYLOAD" "a tombstone has no payload",
    BadVersion "BAD_VERSION" "versions begin with 1",
    BadInputKind "BAD_INPUT_KIND" "the kind of an input is 0 to 2",
    BadAccess "BAD_ACCESS" "the access of an input is 0 or 1",
    BadInputPresence "BAD_INPUT_PRESENCE" "an input that is not shared has a version and a digest, a shared one has neither",
    ActionKind "ERR_ACTION_KIND_UNSUPPORTED" "the kind of an action is 1 to 4",
    NoActions "NO_ACTIONS" "a transaction has an action",
    BadArgRef "BAD_ARG_REF" "an argument of a call is one of the inputs",
    BadSignatureScheme "BAD_SIGNATURE_SCHEME" "the signature scheme is 1, Ed25519",
    GasPayment "ERR_GAS_PAYMENT_OBJECT_INVALID" "gas is paid from an input that is owned and mutable",
    DetOrder "ERR_DET_ORDER_MISMATCH" "transactions with a shared input come first, by its id; then all by digest",
    HeaderConst "BAD_HEADER_CONST" "the format, the ordering rule and the execution rule of a header are 1",
    TxCount "TX_COUNT_MISMATCH" "the header counts the digests of the body",
    TxMerkle "ERR_TX_MERKLE_MISMATCH" "the header has the Merkle root over the digests of the body",
    StateRootVersion "STATE_ROOT_VERSION" "sys/params/state_root_version is 1 before the checkpoint that brings v2, and 2 from there on",
    PubkeysOrder "PUBKEYS_NOT_STRICTLY_ASCENDING" "keys of the committee ascend, each once",
    CommitteeN "COMMITTEE_N_MISMATCH" "committee_n counts the keys of the committee",
    CommitteeM "COMMITTEE_M_RANGE" "committee_m is at least two thirds of committee_n, and not more than it",
    CommitteeId "COMMITTEE_ID_MISMATCH" "committee_id is SHA3-256 of the keys of the committee",
    CommitteeSet "COMMITTEE_INCOMPLETE" "the parameters of the committee are there all or none",
    SplitSum "SPLIT_SUM" "p_validator, p_grants and p_treasury are 10,000 basis points together",
    ValidatorSet "BAD_VALIDATOR_SET" "a validator set has 4 members at least, each once, in the order of their keys, with some power that fits 64 bits",
    DuplicateKey "DUPLICATE_KEY" "every key of the state is there once",
    DuplicatePath "ERR_STATE_ROOT_DUPLICATE_PATH" "every path of the state tree is there once",
    ChainId "CHAIN_ID_MISMATCH" "the header is of this chain",
    SeqNotNext "CHECKPOINT_SEQ_NOT_NEXT" "a checkpoint follows the newest one",
    PrevDigest "PREV_CHECKPOINT_DIGEST_MISMATCH" "the header has the digest of the checkpoint before",
    VersionNotNext "VERSION_NOT_NEXT" "a new object has version 1, and each write the next one",
    WriteToTombstone "WRITE_TO_TOMBSTONE" "what was deleted is not written again",
    WriteToImmutable "WRITE_TO_IMMUTABLE" "what is immutable is not written again",
    BadParamName "BAD_PARAM_NAME" "the name of a parameter has 1 to 1,024 bytes of printable ASCII",
    DuplicateParam "DUPLICATE_PARAM" "a checkpoint changes a parameter once",
    DuplicateEvent "DUPLICATE_EVENT" "every event of a checkpoint has a number of its own",
    StateRoot "STATE_ROOT_MISMATCH" "the header has the root of the state after it",
    RootBeforeV2 "V1_ROOT_MISMATCH_AT_MIGRATION" "before v2 begins, the v1 root of the state is that of the newest header",
    KeyPrefix "UNKNOWN_KEY" "keys are those of the stores",
    KeyOrder "KEYS_NOT_ASCENDING" "entries of a snapshot ascend by key, each key once",
    ObjectId "OBJECT_ID_MISMATCH" "an object is under its own id",
    VersionMismatch "VERSION_INDEX_MISMATCH" "the highest version of an object is that of its record, with its digest and its lifecycle",
    VersionGap "VERSION_GAP" "the versions of an object have no gap",
    VersionSeq "VERSION_CHECKPOINT_AFTER_TIP" "no version is of a checkpoint after the newest one, and none is older than the one before it",
    ValidatorSetHash "ERR_WS_VALIDATOR_SET_MISMATCH" "the validator set is the one that is trusted",
    CheckpointDigest "CHECKPOINT_DIGEST_MISMATCH" "the digest is that of the header",
    ManifestDigest "MANIFEST_DIGEST_MISMATCH" "the digest is that of the manifest",
    SnapshotHeader "SNAPSHOT_HEADER_MISMATCH" "the header of a snapshot says what that of its checkpoint says",
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.token(), self.text())
    }
}

/// A fault of the store, or of whoever asked it. Nothing is changed by whatever ends with one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A rule is broken.
    #[error("{rule} ({what})")]
    Refused {
        /// The rule.
        rule: Rule,
        /// Where, and by what.
        what: String,
    },
    /// A row of a table is not what was written there.
    #[error("{table} has a damaged row under {key}: {wrong}; restore the database from a snapshot")]
    Damaged {
        /// The table.
        table: &'static str,
        /// The key, in hex.
        key: String,
        /// What is wrong.
        wrong: String,
    },
    /// Rows do not fit together.
    #[error("the stores do not fit together: {0}; restore the database from a snapshot")]
    Inconsistent(String),
    /// A snapshot is not what was written.
    #[error("the snapshot cannot be used: {0}")]
    Snapshot(String),
    /// There is nothing yet.
    #[error("there is no database in {0}: `misaka-node init --db ...` makes one")]
    NotInitialised(String),
    /// There are rows, and none of them is the store's own.
    #[error("the database is of another program")]
    Foreign,
    /// There is something already.
    #[error("there is something in {0} already: choose another directory")]
    NotEmpty(String),
    /// The database was made with other settings.
    #[error("the database was made with {found}, and {wanted} was asked for")]
    Settings {
        /// What it has.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// Nothing was applied yet.
    #[error("there is no checkpoint yet")]
    NoCheckpoint,
    /// A checkpoint is not kept any more, or not there yet.
    #[error("the checkpoint {seq} is not kept: {kept}")]
    NotKept {
        /// Which.
        seq: u64,
        /// What is.
        kept: String,
    },
    /// There is no tree.
    #[error("there is no state tree: proofs need StateRoot-v2, which begins at {0}")]
    NoTree(String),
    /// More memory than a validator has for storage.
    #[error("{asked} bytes of memory were asked for, and storage has {max}", max = crate::MEMORY_MAX)]
    Memory {
        /// How many.
        asked: usize,
    },
    /// Another process has the database.
    #[error("the database is in use by {}", holder(*.0))]
    Locked(Option<u32>),
    /// What was given cannot be used.
    #[error("{0}")]
    Input(String),
    /// Somebody asked for an end.
    #[error("interrupted")]
    Interrupted,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    pub(crate) fn refused(rule: Rule, what: impl Into<String>) -> Error {
        Error::Refused { rule, what: what.into() }
    }

    pub(crate) fn damaged(table: Table, key: &[u8], wrong: impl ToString) -> Error {
        Error::Damaged { table: table.name, key: hex(key), wrong: wrong.to_string() }
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, source }
    }

    /// The rule that is broken, if it is that.
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Error::Refused { rule, .. } => Some(*rule),
            _ => None,
        }
    }
}
