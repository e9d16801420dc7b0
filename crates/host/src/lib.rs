//! What the store asks of the machine: a [`Disk`], a [`Dir`], time and randomness ([`Env`]).
//!
//! Each comes three times: real ([`FileDisk`], [`FileDir`], [`SystemEnv`]), in memory
//! ([`MemoryDisk`], [`MemoryDir`], [`ManualEnv`]), and simulated ([`SimDisk`], [`SimDir`]) with
//! power loss, torn and reordered sectors and failing calls. Files, clocks and randomness appear
//! nowhere else in the workspace.
//!
//! ```
//! use host::{Disk, Keep, SimDisk};
//!
//! let disk = SimDisk::new();
//! disk.write_at(0, b"synced").unwrap();
//! disk.sync().unwrap();
//! disk.write_at(0, b"later!").unwrap();
//!
//! // What a real disk may hold if power fails now: the old bytes, or the new ones.
//! let trace = disk.trace();
//! assert_eq!(trace.image(trace.len(), Keep::None), b"synced");
//! assert_eq!(trace.image(trace.len(), Keep::All), b"later!");
//! ```

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

mod buffer;
mod claim;
mod crc;
mod dir;
mod disk;
mod env;
mod file;
mod locks;
mod map;
mod memory;
mod pin;
pub mod planted;
mod prefetch;
mod sim;
mod words;

pub use crc::crc32c_short;
pub use dir::Dir;
pub use disk::{Disk, LockError, SECTOR};
pub use env::{Env, ManualEnv, SystemEnv};
pub use file::{FileDir, FileDisk};
pub use map::{Board, Mapping};
pub use memory::{MemoryDir, MemoryDisk};
pub use pin::Pin;
pub use prefetch::prefetch;
pub use sim::{Fault, Keep, Limit, Op, Point, Points, SimDir, SimDisk, Trace};
pub use words::Words;
