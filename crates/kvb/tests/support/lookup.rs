//! Looking up a key, whoever has the bucket open.

#![allow(dead_code, reason = "every test file uses a part of this")]

use kvb::{Bucket, Reader};

pub(crate) trait Lookup {
    fn value(&self, key: &[u8]) -> kvb::Result<Option<Vec<u8>>>;
}

impl Lookup for Bucket {
    fn value(&self, key: &[u8]) -> kvb::Result<Option<Vec<u8>>> {
        Ok(self.get(key)?.map(|value| value.to_vec()))
    }
}

impl Lookup for Reader {
    fn value(&self, key: &[u8]) -> kvb::Result<Option<Vec<u8>>> {
        Ok(self.get(key)?.map(|value| value.to_vec()))
    }
}
