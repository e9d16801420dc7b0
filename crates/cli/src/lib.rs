//! The programs of this project, and what they share: arguments, output, progress, interruption, exit codes.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | not found, a check failed, or something went wrong |
//! | 2 | wrong usage |
//! | 130 | interrupted |
//!
//! Data goes to standard output, words to standard error.

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

mod bar;
pub mod bucket;
mod engine;
mod exit;
mod feed;
mod file;
mod input;
mod interrupt;
mod logging;
mod manual;
pub mod misaka_indexer;
pub mod misaka_node;
pub mod rubin_node;
mod secret;
mod session;
mod show;
pub mod utxo_csmt;
mod verdict;

pub use exit::finish;
