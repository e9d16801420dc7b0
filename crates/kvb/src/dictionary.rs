//! A compression dictionary: what many small values have in common, so that each needs only to name it.

use crate::squeeze::Prepared;

/// Where a dictionary has its id, behind its magic.
const ID_AT: usize = 4;
/// Ids below are reserved for dictionaries that are registered somewhere.
pub(crate) const ID_MIN: u32 = 1 << 15;
/// Ids from here on are reserved.
pub(crate) const ID_END: u32 = 1 << 31;

/// A dictionary, ready for use.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub(crate) bytes: Vec<u8>,
    pub(crate) prepared: Prepared,
    id: u32,
}

impl Dictionary {
    /// `None` if the bytes are no dictionary that frames can name.
    pub(crate) fn new(bytes: Vec<u8>, level: i32) -> Option<Dictionary> {
        let prepared = Prepared::new(&bytes, level)?;
        let id = prepared.id()?;
        Some(Dictionary { bytes, prepared, id })
    }

    /// The same dictionary under another id. What zstd makes an id of may be the same for two that differ.
    pub(crate) fn renamed(mut bytes: Vec<u8>, id: u32, level: i32) -> Option<Dictionary> {
        bytes.get_mut(ID_AT..ID_AT + 4)?.copy_from_slice(&id.to_le_bytes());
        Dictionary::new(bytes, level)
    }

    /// The id that frames name it by.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}
