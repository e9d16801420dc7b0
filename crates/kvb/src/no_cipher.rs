//! What stands for ciphers in a build without the feature `encryption`: keys that nobody can have.

use crate::error::{Error, Result};
use crate::format::book::BookHead;
use crate::format::record::{Framed, RecordHeader, TAG};
use crate::keys::KeyProvider;

#[derive(Debug)]
pub(crate) struct BucketKey {
    never: Never,
    pub(crate) no: u16,
    pub(crate) id: u64,
}

#[derive(Debug)]
pub(crate) struct SegmentCipher {
    never: Never,
    pub(crate) salt: Option<[u8; 16]>,
    pub(crate) key_no: u16,
}

#[derive(Clone, Copy, Debug)]
enum Never {}

impl BucketKey {
    pub(crate) fn find(
        _: Option<&dyn KeyProvider>,
        _: (u64, u64),
        _: u16,
        _: u64,
    ) -> Result<BucketKey> {
        Err(Error::Invalid(
            "the bucket is encrypted, and this build cannot decrypt: its feature `encryption` is off",
        ))
    }

    pub(crate) fn check(&self) -> [u8; 16] {
        match self.never {}
    }

    pub(crate) fn hash_key(&self) -> [u8; 16] {
        match self.never {}
    }

    pub(crate) fn wrap_hash_key(&self, _: [u8; 16]) -> [u8; 16] {
        match self.never {}
    }

    pub(crate) fn salt(&self, _: &[u8; 16], _: u64) -> [u8; 16] {
        match self.never {}
    }

    pub(crate) fn mac(&self, _: &[u8], _: &[&[u8]]) -> [u8; 16] {
        match self.never {}
    }

    pub(crate) fn seal_book(&self, _: &[u8; 24], _: &[u8], _: &mut [u8]) -> [u8; TAG] {
        match self.never {}
    }

    pub(crate) fn open_book(&self, _: &BookHead, _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        match self.never {}
    }

    pub(crate) fn segment(&self, _: u64, _: Option<[u8; 16]>) -> SegmentCipher {
        match self.never {}
    }
}

impl SegmentCipher {
    pub(crate) fn seal(&self, _: &RecordHeader, _: u64, _: &mut [u8]) -> [u8; TAG] {
        match self.never {}
    }

    pub(crate) fn open(&self, _: &Framed<'_>, _: u64) -> Option<Vec<u8>> {
        match self.never {}
    }

    pub(crate) fn peek_key(&self, _: &RecordHeader, _: &[u8]) -> Vec<u8> {
        match self.never {}
    }
}
