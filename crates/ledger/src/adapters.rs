//! Engines behind the trait, one a file.

#[cfg(feature = "fjall")]
pub(crate) mod fjall;
pub(crate) mod kvb;
pub(crate) mod memory;
#[cfg(feature = "redb")]
pub(crate) mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocksdb;
