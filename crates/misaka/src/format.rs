//! Bytes that the specification fixes, each structure in a file.

pub mod checkpoint;
pub mod finality;
pub mod key;
pub mod manifest;
pub mod mcs;
pub mod node;
pub mod object;
pub mod params;
pub mod snapshot;
pub mod transaction;
pub mod validators;
pub mod version;
