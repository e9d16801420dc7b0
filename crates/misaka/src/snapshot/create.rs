//! Making a snapshot while checkpoints go on being applied.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use host::Dir;

use super::{MANIFEST, UNFINISHED, Watch, chunk_name, read_file};
use crate::error::{Error, Rule};
use crate::format::checkpoint::value;
use crate::format::key::Key;
use crate::format::manifest::{CHUNK_LEAST, Chunk, MANIFEST_MAX, Manifest};
use crate::format::mcs::Decoder;
use crate::format::snapshot::{SnapshotHeader, entry, put_entry};
use crate::hash::{Hash, hex};
use crate::store::{Stage, Store, Take, View};
use crate::tables::PARAMS;

/// Bytes of a chunk, about.
pub const CHUNK_BYTES: usize = 4 << 20;
/// After so many chunks the next ones have twice as many bytes, so that the manifest has room for them.
const DOUBLED: usize = 1 << 14;
/// Most bytes that a chunk is filled up to. The last entry in it may go beyond.
const FILLED_MAX: usize = 32 << 20;
/// Most bytes of an entry with its two lengths, so that no chunk is longer than one can be.
const ENTRY_MAX: usize = 96 << 20;

/// What making a snapshot came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Created {
    /// The manifest.
    pub manifest: Manifest,
    /// Chunks that were there already.
    pub resumed: usize,
}

/// Makes a snapshot of the newest checkpoint in a directory, which is empty or has the beginning of the same one. Chunks have about so
/// many bytes.
pub fn create(
    store: &Store,
    dir: &dyn Dir,
    chunk_bytes: usize,
    threads: usize,
    watch: Watch<'_>,
) -> Result<Created, Error> {
    let view = store.view()?;
    let tip = view.tip()?.ok_or(Error::NoCheckpoint)?;
    let version = store.settings().root_version(tip.header.seq).number();
    let header = SnapshotHeader::of(&tip.header, version);
    let kept = view.checkpoint(tip.header.seq)?;
    let (_, digests) =
        kept.ok_or_else(|| Error::Inconsistent("the newest checkpoint is missing".to_owned()))?;
    let checkpoint = value(&tip.header, &digests);
    let mut manifest = Manifest { header, checkpoint, chunks: Vec::new() };
    let room = MANIFEST_MAX.checked_sub(manifest.encode().len()).ok_or_else(no_room)?;
    if dir.read(MANIFEST).map_err(Error::io("read the manifest"))?.is_some() {
        let found = super::manifest(dir)?;
        if found.header == header {
            let resumed = found.chunks.len();
            return Ok(Created { manifest: found, resumed });
        }
        return Err(Error::NotEmpty(format!(
            "the directory: the snapshot of {}",
            found.header.seq
        )));
    }
    let chunks = &mut manifest.chunks;
    *chunks = begin(dir, &header, chunk_bytes)?;
    let resumed = chunks.len();
    let last = chunks.last().map(|chunk| chunk.last.clone());
    let mut done: u64 = chunks.iter().map(|chunk| chunk.len).sum();
    let taken = chunks.iter().map(|chunk| CHUNK_LEAST + chunk.first.len() + chunk.last.len());
    let room = room.checked_sub(taken.sum()).ok_or_else(no_room)?;
    let (send, receive) = sync_channel(threads.max(1));
    let receive = &Mutex::new(receive);
    chunks.extend(std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..threads.max(1)).map(|_| scope.spawn(move || write_chunks(dir, receive))).collect();
        let mut sender =
            Sender { send, number: resumed, bytes: Vec::new(), chunk_bytes, room, keys: [0; 2] };
        let mut take = |key: &[u8], value: &[u8]| {
            if sender.add(key, value)? {
                done += u64::try_from(sender.bytes.len()).unwrap_or(0);
                watch.tell(Stage::Writing, done, 0)?;
                sender.send()?;
            }
            Ok(())
        };
        let sent = entries(&view, last.as_deref(), &mut take);
        let sent = sent.and_then(|()| sender.send());
        drop(sender);
        let mut written = Vec::new();
        let mut failed = sent.err();
        for writer in writers {
            match writer.join() {
                Ok(Ok(mut chunks)) => written.append(&mut chunks),
                Ok(Err(error)) => failed = Some(error),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        written.sort_unstable_by_key(|(number, _)| *number);
        Ok(written.into_iter().map(|(_, chunk)| chunk).collect::<Vec<_>>())
    })?);
    dir.replace(MANIFEST, &manifest.encode()).map_err(Error::io("write the manifest"))?;
    dir.remove(UNFINISHED).map_err(Error::io("remove a note"))?;
    Ok(Created { manifest, resumed })
}

fn no_room() -> Error {
    Error::Input(format!(
        "no snapshot can be made: its manifest would have more than the {MANIFEST_MAX} bytes that are read of one"
    ))
}

/// Bytes that a chunk is filled up to. They grow, so that there are never too many chunks.
fn filled(chunk_bytes: usize, number: usize) -> usize {
    chunk_bytes.saturating_mul(1 << (number / DOUBLED).min(3)).min(FILLED_MAX)
}

/// Gives all entries after a key.
fn entries(view: &View<'_>, after: Option<&[u8]>, take: Take<'_>) -> Result<(), Error> {
    let after = after.map(Key::decode).transpose();
    let after = after.map_err(|rule| Error::Snapshot(rule.to_string()))?;
    match after {
        None => view.for_each_object(None, take)?,
        Some(Key::Object(id)) => view.for_each_object(Some(id), take)?,
        _ => {}
    }
    if !matches!(after, Some(Key::Version(..))) {
        let from = after.as_ref().map(Key::encode).unwrap_or_default();
        view.for_each(PARAMS, &mut |key, value| match key > from.as_slice() {
            true => take(key, value),
            false => Ok(()),
        })?;
    }
    let after = match after {
        Some(Key::Version(id, version)) => Some((id, version)),
        _ => None,
    };
    view.for_each_version(after, take)
}

/// Bytes of a chunk on their way to whoever writes it.
struct Sender {
    send: SyncSender<(usize, Vec<u8>)>,
    number: usize,
    bytes: Vec<u8>,
    chunk_bytes: usize,
    /// Bytes that the manifest has left.
    room: usize,
    /// Bytes of the first key and of the last one.
    keys: [usize; 2],
}

impl Sender {
    /// Adds an entry. True if that is enough for a chunk.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        if 8 + key.len() + value.len() > ENTRY_MAX {
            return Err(Error::Input(format!(
                "no snapshot can be made: the value of {} has {} bytes, and an entry no more than {ENTRY_MAX}",
                hex(key),
                value.len()
            )));
        }
        let [first, _] = self.keys;
        self.keys = [if self.bytes.is_empty() { key.len() } else { first }, key.len()];
        put_entry(&mut self.bytes, key, value);
        Ok(self.bytes.len() >= filled(self.chunk_bytes, self.number))
    }

    fn send(&mut self) -> Result<(), Error> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let [first, last] = self.keys;
        self.room = self.room.checked_sub(CHUNK_LEAST + first + last).ok_or_else(no_room)?;
        let next = Vec::with_capacity(self.chunk_bytes.min(FILLED_MAX));
        let bytes = std::mem::replace(&mut self.bytes, next);
        let gone = |_| Error::Snapshot("a chunk could not be written".to_owned());
        self.send.send((self.number, bytes)).map_err(gone)?;
        self.number += 1;
        Ok(())
    }
}

fn write_chunks(
    dir: &dyn Dir,
    receive: &Mutex<Receiver<(usize, Vec<u8>)>>,
) -> Result<Vec<(usize, Chunk)>, Error> {
    let mut written = Ok(Vec::new());
    loop {
        let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, bytes)) = next else { return written };
        // After a fault the rest is taken all the same: whoever sends must not wait for ever.
        written = written.and_then(|mut written| {
            let chunk = describe(&bytes)?;
            let name = chunk_name(number, &chunk.digest);
            dir.replace(&name, &bytes).map_err(Error::io(format!("write {name}")))?;
            written.push((number, chunk));
            Ok(written)
        });
    }
}

/// What the manifest says of a chunk.
fn describe(bytes: &[u8]) -> Result<Chunk, Error> {
    let wrong = |rule: Rule| Error::Snapshot(rule.to_string());
    let mut decoder = Decoder::new(bytes);
    let (mut entries, mut first, mut last) = (0, None, [].as_slice());
    while let Some((key, _)) = entry(&mut decoder).map_err(wrong)? {
        entries += 1;
        first.get_or_insert(key);
        last = key;
    }
    Ok(Chunk {
        len: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        entries,
        first: first.unwrap_or_default().to_vec(),
        last: last.to_vec(),
        digest: Hash::of(&[bytes]),
    })
}

/// Makes the directory ready. Gives the chunks that are there of the same snapshot, as far as they are what was written.
fn begin(dir: &dyn Dir, header: &SnapshotHeader, chunk_bytes: usize) -> Result<Vec<Chunk>, Error> {
    let cannot = |source| Error::Io { doing: "begin the snapshot".to_owned(), source };
    let mut note = header.encode().to_vec();
    note.extend(u64::try_from(chunk_bytes).unwrap_or(u64::MAX).to_le_bytes());
    let names = dir.names().map_err(cannot)?;
    match dir.read(UNFINISHED).map_err(cannot)? {
        Some(found) if found == note => {}
        Some(_) => {
            // Of an older checkpoint: its state is gone, and so it cannot be gone on with.
            for name in names.iter().filter(|name| name.starts_with("chunk-")) {
                dir.remove(name).map_err(cannot)?;
            }
            dir.replace(UNFINISHED, &note).map_err(cannot)?;
            return Ok(Vec::new());
        }
        None if names.is_empty() => dir.replace(UNFINISHED, &note).map_err(cannot)?,
        None => return Err(Error::NotEmpty("the directory of the snapshot".to_owned())),
    }
    let mut chunks: Vec<Chunk> = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("chunk-")) {
        let chunk = read_file(dir, name).ok().flatten().and_then(|bytes| describe(&bytes).ok());
        // The last one can be shorter; it is quickly made again.
        let is_whole = |chunk: &Chunk| {
            *name == chunk_name(chunks.len(), &chunk.digest)
                && usize::try_from(chunk.len)
                    .is_ok_and(|len| len >= filled(chunk_bytes, chunks.len()))
        };
        match chunk.filter(is_whole) {
            Some(chunk) => chunks.push(chunk),
            None => break,
        }
    }
    // What is not gone on with would be in the way.
    for name in names.iter().filter(|name| name.starts_with("chunk-")).skip(chunks.len()) {
        dir.remove(name).map_err(cannot)?;
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, DOUBLED, ENTRY_MAX, FILLED_MAX, filled};
    use crate::format::manifest::{CHUNK_LEAST, CHUNK_MAX, MANIFEST_MAX};

    #[test]
    fn the_manifest_of_two_tebibytes_can_be_read() {
        let key = "ver/".len() + 32 + 1 + 8;
        let count = MANIFEST_MAX / (CHUNK_LEAST + 2 * key) - 1;
        let bytes: usize = (0..count).map(|number| filled(CHUNK_BYTES, number)).sum();
        assert!(bytes > 2 << 40, "{bytes}");
        assert_eq!(filled(CHUNK_BYTES, DOUBLED - 1), CHUNK_BYTES);
        assert_eq!(filled(CHUNK_BYTES, usize::MAX), FILLED_MAX);
        assert_eq!(filled(usize::MAX, usize::MAX), FILLED_MAX);
        assert!(u64::try_from(FILLED_MAX + ENTRY_MAX).unwrap_or(u64::MAX) <= CHUNK_MAX);
    }
}
