//! A batch: mutations that become durable and visible together, or not at all.
//!
//! A batch is kept as the very bytes that go to the log, less what only the commit knows (seqno, time, hash,
//! mark, CRCs), so that committing stamps records where they lie and writes them without another copy.

use std::time::Duration;

use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::format::record::{self, DELETE, ENC_RAW, Framed, KEY_MAX, PUT, RecordHeader};

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
        self.push(PUT, key.as_ref(), value.as_ref(), 0)
    }

    /// Adds a put that expires. Durations are rounded up to whole seconds, zero to one.
    pub fn put_for(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> &mut Batch {
        self.push(PUT, key.as_ref(), value.as_ref(), ttl_secs(ttl))
    }

    /// Adds a delete.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Batch {
        self.push(DELETE, key.as_ref(), &[], 0)
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

    fn push(&mut self, kind: u8, key: &[u8], value: &[u8], ttl_secs: u32) -> &mut Batch {
        // What is too long is refused at commit, before anything is written. Until then only its length is
        // kept, because the record's own fields may not be able to hold it.
        self.value_max = self.value_max.max(value.len());
        self.key_max = self.key_max.max(key.len());
        if key.len() <= KEY_MAX && u32::try_from(value.len()).is_ok() {
            record::push(&mut self.bytes, kind, key, value, ttl_secs);
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
            record::push_with(&mut bytes, header.kind, record.key(), ttl_secs, enc, |bytes| {
                if header.kind == PUT { codec.store(record.value(), bytes) } else { ENC_RAW }
            });
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

fn ttl_secs(ttl: Duration) -> u32 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    u32::try_from(whole.max(1)).unwrap_or(u32::MAX)
}
