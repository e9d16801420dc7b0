//! A compression dictionary: what many small values have in common, so that each needs only to name it.

use crate::squeeze::Prepared;

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

    /// The id that frames name it by.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}
