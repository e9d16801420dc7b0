//! The directory: named disks, and small files that are replaced as a whole.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::disk::Disk;

/// A flat directory of files.
///
/// Names are plain: not empty, without separators, not starting with a dot. Anything else is
/// `InvalidInput`. (Names with a leading dot are kept for temporary files.)
///
/// # Crash contract
///
/// - A name that was created, replaced or removed is durably so once the directory is synced. The
///   three methods do that themselves before they return `Ok`.
/// - If power fails before, the name is in its old state or in its new one, never in between: after
///   `replace` a reader finds all of the old bytes or all of the new ones.
/// - The contents of a disk obey the contract of [`Disk`], not this one.
/// - After an error either state may be found.
pub trait Dir: Send + Sync + fmt::Debug {
    /// Makes an empty file; `AlreadyExists` if the name is taken.
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>>;

    /// Opens a file for reading and writing; `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>>;

    /// All bytes of a small file, or nothing if there is no such file. What is no plain file, or far
    /// too long, is `InvalidData`.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;

    /// Puts a file with these bytes in the place of the named one, atomically and durably.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file; `NotFound` if there is none. Open disks of it stay usable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files, in order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Makes every change of names durable.
    fn sync(&self) -> io::Result<()>;
}

/// Refuses names that could leave the directory or collide with temporary files.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    let plain =
        !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0']);
    if plain {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain name"))
    }
}

/// The name under which a file's replacement is prepared.
pub(crate) fn temporary(name: &str) -> String {
    format!(".{name}.new")
}
