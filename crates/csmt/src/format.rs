//! Rows as they are stored, each structure in a file of its own.

pub mod config;
pub mod node;
pub mod point;
pub mod rollback;
pub mod tuft;
