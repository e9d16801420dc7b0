//! A batch: mutations that become durable and visible together, or not at all.
//!
//! A batch is kept as the very bytes that go to the log, less what only the commit knows (seqno, time, hash,
//! mark, CRCs), so that committing stamps records where they lie and writes them without another copy.

use std::time::Duration;

use zerocopy::FromBytes;

use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::format::record::{self, DELETE, ENC_RAW, Framed, KEY_MAX, PUT, RecordHeader};

const SECOND_NS: u64 = 1_000_000_000;

/// Mutations in the order they were added; the last one on a key wins.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
    pub(crate) puts: u64,
    pub(crate) value_max: usize,
    pub(crate) key_max: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// An empty batch with room for this many bytes of records.
    pub fn with_capacity(bytes: usize) -> Batch {
        Batch { bytes: Vec::with_capacity(bytes), ..Batch::default() }
    }

    /// Adds a put.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Batch {
        self.push(PUT, key.as_ref(), value.as_ref(), Life::Forever)
    }

    /// Adds a put that expires. Durations are rounded up to whole seconds, zero to one.
    pub fn put_for(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> &mut Batch {
        self.push(PUT, key.as_ref(), value.as_ref(), Life::For(ttl_secs(ttl)))
    }

    /// Adds a put that expires at a nanosecond since 1970, to the nanosecond. One that is over hides the key as a delete
    /// would. One more than 136 years ahead is brought forward to there.
    pub fn put_until(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        unix_ns: u64,
    ) -> &mut Batch {
        self.push(PUT, key.as_ref(), value.as_ref(), Life::Until(unix_ns))
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Batch {
        self.push(DELETE, key.as_ref(), &[], Life::Forever)
    }

    /// How many mutations the batch holds.
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// True if the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Forgets all mutations and keeps the memory.
    pub fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *self = Batch { bytes, ..Batch::default() };
    }

    fn push(&mut self, kind: u8, key: &[u8], value: &[u8], life: Life) -> &mut Batch {
        // What is too long is refused at commit, before anything is written. Until then only its length is
        // kept, because the record's own fields may not be able to hold it.
        self.value_max = self.value_max.max(value.len());
        self.key_max = self.key_max.max(key.len());
        if key.len() <= KEY_MAX && u32::try_from(value.len()).is_ok() {
            let at = self.bytes.len();
            record::push(&mut self.bytes, kind, key, value, life.ttl_secs());
            life.note(self.bytes.get_mut(at..));
        }
        self.count += 1;
        self.puts += u64::from(kind == PUT);
        self
    }

    /// The same mutations with values in the form they are stored in, and whatever else `enc` asks for.
    pub(crate) fn stored_by(self, codec: &Codec, enc: u8) -> Batch {
        if codec.level().is_none() && enc == 0 {
            return self;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut rest = self.bytes.as_slice();
        while let Some(record) = RecordHeader::of(rest).and_then(|head| Framed::split(head, rest)) {
            let header = record.header;
            let ttl_secs = header.ttl_secs.get();
            let at = bytes.len();
            record::push_with(&mut bytes, header.kind, record.key(), ttl_secs, enc, |bytes| {
                if header.kind == PUT { codec.store(record.value(), bytes) } else { ENC_RAW }
            });
            Life::of(header).note(bytes.get_mut(at..));
            let len = usize::try_from(header.record_len()).unwrap_or(usize::MAX);
            rest = rest.get(len..).unwrap_or(&[]);
        }
        Batch { bytes, ..self }
    }

    /// Refuses keys and values over the limits.
    pub(crate) fn check(&self, max_value: u32) -> Result<()> {
        let too_large = |what, len: usize, max: u64| Error::TooLarge {
            what,
            len: u64::try_from(len).unwrap_or(u64::MAX),
            max,
        };
        if self.key_max > KEY_MAX {
            return Err(too_large("key", self.key_max, 65_535));
        }
        if u64::try_from(self.value_max).unwrap_or(u64::MAX) > u64::from(max_value) {
            return Err(too_large("value", self.value_max, u64::from(max_value)));
        }
        Ok(())
    }
}

/// How long a record counts.
///
/// A record that is not committed has no stamp yet. In its place stands the deadline, if the caller gave one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Forever,
    For(u32),
    Until(u64),
}

impl Life {
    /// Of a record in a batch.
    pub(crate) fn of(header: &RecordHeader) -> Life {
        match (header.ttl_secs.get(), header.timestamp_ns.get()) {
            (0, _) => Life::Forever,
            (secs, 0) => Life::For(secs),
            (_, deadline) => Life::Until(deadline),
        }
    }

    fn ttl_secs(self) -> u32 {
        match self {
            Life::Forever => 0,
            Life::For(secs) => secs,
            Life::Until(_) => 1,
        }
    }

    fn note(self, record: Option<&mut [u8]>) {
        if let (Life::Until(deadline), Some(record)) = (self, record)
            && let Ok((header, _)) = RecordHeader::mut_from_prefix(record)
        {
            // Nothing lived before 1970.
            header.timestamp_ns.set(deadline.max(1));
        }
    }

    /// Stamp and time to live of a record that is committed now. Only whole seconds can be told, so that of one with a
    /// deadline is stamped up to a second early.
    pub(crate) fn stamp(self, now_ns: u64) -> (u64, u32) {
        match self {
            Life::Forever => (now_ns, 0),
            Life::For(secs) => (now_ns, secs),
            Life::Until(deadline) => {
                let left = deadline.saturating_sub(now_ns).div_ceil(SECOND_NS).max(1);
                let secs = u32::try_from(left).unwrap_or(u32::MAX);
                let stamp = deadline.saturating_sub(u64::from(secs) * SECOND_NS);
                (stamp.min(now_ns), secs)
            }
        }
    }
}

fn ttl_secs(ttl: Duration) -> u32 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    u32::try_from(whole.max(1)).unwrap_or(u32::MAX)
}
