//! Snapshots: the state after a checkpoint in files that anybody can check.
//!
//! ```text
//! chunk-00000000-0123456789abcdef   entries: u32le length, key, u32le length, value; ascending by key over all chunks
//! chunk-00000001-...                its name ends with the beginning of its digest
//! manifest                          what it is of, and the chunks with their digests: written last
//! ```
//!
//! The entries are all objects, all parameters, and the versions that are kept. While a snapshot is made there is `unfinished` and no
//! manifest; whoever makes it again at the same checkpoint goes on after the last whole chunk.

mod create;
mod join;
mod restore;
mod verify;
mod walk;

use std::io;

use host::Dir;

pub use create::{CHUNK_BYTES, Created, create};
pub use restore::{Restored, restore, restore_into};
pub use verify::{Trust, Verified, verify};
pub use walk::for_each_object;

use crate::error::Error;
use crate::format::manifest::{CHUNK_MAX, Chunk, Manifest};
use crate::hash::Hash;
use crate::store::Stage;

/// The name of the manifest.
pub const MANIFEST: &str = "manifest";
/// What a directory has as long as its snapshot is not whole.
const UNFINISHED: &str = "unfinished";

/// Who is told how far something is, and who can end it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told of the stage, how much is done, of how much; 0 if nobody knows.
    pub progress: &'a (dyn Fn(Stage, u64, u64) + Sync),
    /// Asked now and then.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch<'_> {
    /// Nobody.
    pub const NOBODY: Watch<'static> = Watch { progress: &|_, _, _| {}, stop: &|| false };

    fn tell(&self, stage: Stage, done: u64, total: u64) -> Result<(), Error> {
        (self.progress)(stage, done, total);
        if (self.stop)() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The file of a chunk.
pub fn chunk_name(number: usize, digest: &Hash) -> String {
    let mut name = format!("chunk-{number:08}-{digest}");
    name.truncate("chunk-00000000-".len() + 16);
    name
}

/// Reads the manifest of a snapshot, and checks it against itself.
pub fn manifest(dir: &dyn Dir) -> Result<Manifest, Error> {
    let Some(bytes) = dir.read(MANIFEST).map_err(Error::io("read the manifest"))? else {
        let is_begun = dir.read(UNFINISHED).map_err(Error::io("read the directory"))?.is_some();
        let wrong = match is_begun {
            true => "it is not finished: `misaka-node snapshot create` goes on with it",
            false => "there is no manifest",
        };
        return Err(Error::Snapshot(wrong.to_owned()));
    };
    Manifest::decode(&bytes).map_err(Error::Snapshot)
}

/// The bytes of a chunk's file; nothing if there is none. What is longer than a chunk can be is `InvalidData`.
fn read_file(dir: &dyn Dir, name: &str) -> io::Result<Option<Vec<u8>>> {
    match dir.read(name) {
        // Too long for a small file.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let disk = dir.open(name)?;
            let len = disk.len()?;
            let len = usize::try_from(len).ok().filter(|_| len <= CHUNK_MAX).ok_or(error)?;
            let mut bytes = vec![0; len];
            disk.read_at(0, &mut bytes)?;
            Ok(Some(bytes))
        }
        read => read,
    }
}

/// Reads a chunk, and checks its length and its digest.
fn read_chunk(dir: &dyn Dir, chunk: &Chunk, number: usize) -> Result<Vec<u8>, Error> {
    let name = chunk_name(number, &chunk.digest);
    let wrong = |what: String| Error::Snapshot(format!("{name} {what}"));
    let bytes = match read_file(dir, &name) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Err(wrong("is missing".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(wrong("is no file, or has more bytes than a chunk can have".to_owned()));
        }
        Err(source) => return Err(Error::Io { doing: format!("read {name}"), source }),
    };
    if u64::try_from(bytes.len()) != Ok(chunk.len) {
        return Err(wrong(format!("has {} bytes, and should have {}", bytes.len(), chunk.len)));
    }
    match Hash::of(&[&bytes]) == chunk.digest {
        true => Ok(bytes),
        false => Err(wrong("is damaged: its digest is not that of the manifest".to_owned())),
    }
}
