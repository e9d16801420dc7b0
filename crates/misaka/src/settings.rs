//! What a store is made with, and how much it may take.

use crate::error::Error;

/// Checkpoints whose events are kept.
pub const EVENT_RETENTION_CHECKPOINTS: u64 = 10_000;
/// Checkpoints that are kept, and whose versions are.
pub const PRUNING_WINDOW_CHECKPOINTS: u64 = 50_000;

/// Bytes of memory that a validator has for storage: 2.5 GiB of its 8.
#[allow(clippy::as_conversions, reason = "it fits where there is so much memory")]
pub const MEMORY_MAX: usize = (5_u64 << 29) as usize;

/// How rows are laid out. To change that is to count on.
const LAYOUT: u8 = 1;

/// How the root of the state is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RootVersion {
    /// A Merkle tree over the sorted list of all entries.
    V1,
    /// A tree of sixteen ways over the digests of all keys.
    V2,
}

impl RootVersion {
    /// Its number.
    pub fn number(self) -> u16 {
        match self {
            RootVersion::V1 => 1,
            RootVersion::V2 => 2,
        }
    }
}

/// What a store is made with, and cannot be changed without making it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The chain; none: that of the first checkpoint.
    pub chain_id: Option<u32>,
    /// Checkpoints whose events are kept.
    pub event_retention: u64,
    /// Checkpoints that are kept, and whose versions are.
    pub window: u64,
    /// The first checkpoint with a root of v2; none: there is none.
    pub v2_at: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            chain_id: None,
            event_retention: EVENT_RETENTION_CHECKPOINTS,
            window: PRUNING_WINDOW_CHECKPOINTS,
            v2_at: None,
        }
    }
}

impl Settings {
    /// How the root of a checkpoint is made.
    pub fn root_version(&self, seq: u64) -> RootVersion {
        match self.v2_at {
            Some(first) if seq >= first => RootVersion::V2,
            _ => RootVersion::V1,
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.window == 0 || self.event_retention == 0 {
            let wrong = "the newest checkpoint and its events are always kept: give 1 at least";
            return Err(Error::Input(wrong.to_owned()));
        }
        Ok(())
    }

    /// As they are noted in the store.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![LAYOUT];
        let optional = |number: Option<u64>| {
            let mut bytes = vec![u8::from(number.is_some())];
            bytes.extend(number.unwrap_or(0).to_be_bytes());
            bytes
        };
        bytes.extend(optional(self.chain_id.map(u64::from)));
        bytes.extend(self.event_retention.to_be_bytes());
        bytes.extend(self.window.to_be_bytes());
        bytes.extend(optional(self.v2_at));
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Settings> {
        let mut reader = ledger::Reader::new(bytes);
        if reader.u8().ok()? != LAYOUT {
            return None;
        }
        let optional = |reader: &mut ledger::Reader<'_>| -> Option<Option<u64>> {
            let is_there = reader.u8().ok()?;
            let number = u64::from_be_bytes(reader.array().ok()?);
            match is_there {
                0 => Some(None),
                1 => Some(Some(number)),
                _ => None,
            }
        };
        let chain_id = match optional(&mut reader)? {
            Some(id) => Some(u32::try_from(id).ok()?),
            None => None,
        };
        let event_retention = u64::from_be_bytes(reader.array().ok()?);
        let window = u64::from_be_bytes(reader.array().ok()?);
        let v2_at = optional(&mut reader)?;
        reader.finish().ok()?;
        Some(Settings { chain_id, event_retention, window, v2_at })
    }

    /// As somebody would ask for them.
    pub(crate) fn describe(&self) -> String {
        let mut text =
            format!("--event-retention {} --window {}", self.event_retention, self.window);
        if let Some(id) = self.chain_id {
            text.push_str(&format!(" --chain-id {id}"));
        }
        if let Some(first) = self.v2_at {
            text.push_str(&format!(" --v2-at {first}"));
        }
        text
    }
}

/// How much a store may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes of memory for all that the store holds, what a checkpoint needs while it is applied included.
    pub memory: usize,
    /// Threads that work at a checkpoint.
    pub threads: usize,
    /// Bytes of rows in a batch, where work is done in several.
    pub batch: usize,
}

impl Default for Effort {
    fn default() -> Effort {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Effort { memory: MEMORY_MAX, threads, batch: 4 << 20 }
    }
}

impl Effort {
    /// More than a validator has is refused.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.memory > MEMORY_MAX {
            true => Err(Error::Memory { asked: self.memory }),
            false => Ok(()),
        }
    }

    /// Bytes for what is kept from one checkpoint to the next; the rest is for the checkpoint and for the engine.
    pub(crate) fn kept(&self) -> usize {
        self.memory / 8 * 5
    }

    /// Bytes for entries that are sorted.
    pub(crate) fn sorted(&self) -> usize {
        self.memory / 4
    }
}
