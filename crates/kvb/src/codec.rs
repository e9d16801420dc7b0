//! How values are stored: compressed if that helps, and expanded within bounds.
//!
//! Compression happens before a commit queues, in the thread that commits; nobody else waits for it. Nothing is expanded
//! before the record it is in has passed all its checks, and never into more memory than the bucket's largest value.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::dictionary::Dictionary;
use crate::format::record::{ENC_DICTIONARY, ENC_RAW, ENC_ZSTD};
use crate::format::stored;
use crate::opened::Opened;
use crate::squeeze;

/// A compressed value must be shorter by at least this part of it.
const GAIN: usize = 16;

/// How values of a bucket are stored.
#[derive(Debug)]
pub(crate) struct Codec {
    /// None if values are stored as they are.
    level: Option<i32>,
    /// Shorter values are not tried.
    min: usize,
    max_value: u64,
    /// All dictionaries that values may need, the one to compress with last.
    dictionaries: ArcSwap<Vec<Arc<Dictionary>>>,
}

impl Codec {
    pub(crate) fn new(level: Option<i32>, min: usize, max_value: u32) -> Codec {
        let dictionaries = ArcSwap::default();
        Codec { level, min, max_value: u64::from(max_value), dictionaries }
    }

    /// The level, if values are compressed.
    pub(crate) fn level(&self) -> Option<i32> {
        self.level
    }

    /// All dictionaries.
    pub(crate) fn dictionaries(&self) -> Arc<Vec<Arc<Dictionary>>> {
        self.dictionaries.load_full()
    }

    /// Uses these dictionaries from now on.
    pub(crate) fn set_dictionaries(&self, dictionaries: Vec<Arc<Dictionary>>) {
        self.dictionaries.store(Arc::new(dictionaries));
    }

    /// Appends a value in the form it is to be stored in, and tells which.
    pub(crate) fn store(&self, value: &[u8], bytes: &mut Vec<u8>) -> u8 {
        if let Some(level) = self.level
            && value.len() >= self.min
        {
            let start = bytes.len();
            stored::push_varint(bytes, u64::try_from(value.len()).unwrap_or(u64::MAX));
            let room = (value.len() - value.len() / GAIN).saturating_sub(bytes.len() - start + 1);
            let dictionaries = self.dictionaries.load();
            let dictionary = dictionaries.last().map(|dictionary| &**dictionary);
            if squeeze::compress(value, level, dictionary, room, bytes) {
                return if dictionary.is_some() { ENC_DICTIONARY } else { ENC_ZSTD };
            }
            bytes.truncate(start);
        }
        bytes.extend_from_slice(value);
        ENC_RAW
    }

    /// The value of a record whose stored value is not it; `None` if that is not what such a value looks like.
    #[cold]
    pub(crate) fn expand(&self, record: &Opened<'_>) -> Option<Vec<u8>> {
        let (len, header, frame) = stored::decode(record.stored(), self.max_value)?;
        let dictionaries = self.dictionaries.load();
        let dictionary = match record.header.form() {
            ENC_ZSTD if header.dictionary == 0 => None,
            ENC_DICTIONARY => {
                let mut known = dictionaries.iter();
                Some(known.find(|dictionary| dictionary.id() == header.dictionary)?)
            }
            _ => return None,
        };
        let len = usize::try_from(len).ok()?;
        squeeze::expand(frame, len, dictionary.map(|dictionary| &**dictionary))
    }
}
