//! Going through a snapshot: every object with its versions, though they are far apart in the stream. Two readers, each with a thread that
//! reads chunks and checks them before anybody looks at them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Scope;

use host::Dir;

use super::read_chunk;
use crate::error::{Error, Rule};
use crate::format::key::Key;
use crate::format::manifest::Manifest;
use crate::format::mcs::Decoder;
use crate::format::object::Object;
use crate::format::snapshot::{Pair, entry};
use crate::format::version::Version;
use crate::hash::{Hash, hex};

/// Chunks that are read before they are needed.
const AHEAD: usize = 2;
/// Where versions begin.
const VERSIONS: &[u8] = b"ver/";

/// Who is given the entries of a snapshot.
pub(super) trait Sink {
    /// A version of an object; they come in the order of their keys, before the object.
    fn version(&mut self, object: &Object<'_>, number: u64, version: &Version)
    -> Result<(), Error>;

    /// An object, its bytes, and its newest version.
    fn object(&mut self, object: &Object<'_>, bytes: &[u8], newest: &Version) -> Result<(), Error>;

    /// A parameter. They come after all objects.
    fn param(&mut self, name: &str, value: &[u8]) -> Result<(), Error>;
}

fn refused(rule: Rule, key: &[u8]) -> Error {
    Error::refused(rule, format!("entry {}", hex(key)))
}

/// Checks a chunk against the manifest and against itself: entries in order, as many as there should be.
pub(super) fn check_chunk(manifest: &Manifest, number: usize, bytes: &[u8]) -> Result<(), Error> {
    let Some(chunk) = manifest.chunks.get(number) else { return Ok(()) };
    let before = number.checked_sub(1).and_then(|number| manifest.chunks.get(number));
    let mut last: Option<&[u8]> = before.map(|before| before.last.as_slice());
    let (mut entries, mut first) = (0, None);
    let mut decoder = Decoder::new(bytes);
    while let Some((key, _)) =
        entry(&mut decoder).map_err(|rule| Error::refused(rule, format!("chunk {number}")))?
    {
        if last.is_some_and(|last| last >= key) {
            return Err(refused(Rule::KeyOrder, key));
        }
        last = Some(key);
        first.get_or_insert(key);
        entries += 1;
    }
    let is_right = entries == chunk.entries
        && first == Some(chunk.first.as_slice())
        && last == Some(chunk.last.as_slice());
    match is_right {
        true => Ok(()),
        false => {
            Err(Error::Snapshot(format!("chunk {number} is not what the manifest says of it")))
        }
    }
}

/// The entries of chunks, one after the other.
struct Cursor {
    chunks: Receiver<Result<Vec<u8>, Error>>,
    bytes: Vec<u8>,
    at: usize,
    /// Lengths of the next entry, whole, and of its key.
    next: Option<(usize, usize)>,
}

impl Cursor {
    /// Reads chunks from a number on, in a thread of its own.
    fn new<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        dir: &'env dyn Dir,
        manifest: &'env Manifest,
        first: usize,
    ) -> Cursor {
        let (send, chunks) = sync_channel(AHEAD);
        scope.spawn(move || {
            for (number, chunk) in manifest.chunks.iter().enumerate().skip(first) {
                let chunk = read_chunk(dir, chunk, number).and_then(|bytes| {
                    check_chunk(manifest, number, &bytes)?;
                    Ok(bytes)
                });
                let is_last = chunk.is_err();
                // Whoever reads may have seen enough.
                if send.send(chunk).is_err() || is_last {
                    return;
                }
            }
        });
        Cursor { chunks, bytes: Vec::new(), at: 0, next: None }
    }

    /// The next entry, which stays the next one.
    fn peek(&mut self) -> Result<Option<Pair<'_>>, Error> {
        if self.next.is_none() {
            if self.at == self.bytes.len() {
                match self.chunks.recv() {
                    Ok(chunk) => self.bytes = chunk?,
                    Err(_) => return Ok(None),
                }
                self.at = 0;
            }
            let mut decoder = Decoder::new(self.bytes.get(self.at..).unwrap_or(&[]));
            let before = decoder.remaining();
            let found = entry(&mut decoder).map_err(|rule| refused(rule, &[]))?;
            let Some((key, _)) = found else { return Ok(None) };
            self.next = Some((before - decoder.remaining(), key.len()));
        }
        let Some((whole, key)) = self.next else { return Ok(None) };
        let bytes = self.bytes.get(self.at..self.at + whole).unwrap_or(&[]);
        let (key, value) = (bytes.get(4..4 + key), bytes.get(8 + key..));
        Ok(key.zip(value))
    }

    fn skip(&mut self) {
        if let Some((whole, _)) = self.next.take() {
            self.at += whole;
        }
    }
}

/// Versions of one object.
#[derive(Default)]
struct Group {
    count: u64,
    least: u64,
    newest: Option<(u64, Version)>,
}

/// Gives all entries to whoever wants them, from the object after one on.
pub(super) fn join(
    dir: &dyn Dir,
    manifest: &Manifest,
    after: Option<Hash>,
    sink: &mut dyn Sink,
    told: &mut dyn FnMut(usize) -> Result<(), Error>,
) -> Result<(), Error> {
    // The first key that is of interest, of an object and of a version. From the beginning on that is every key: what is none of the
    // stores is not to be passed over.
    let objects_from = after.map_or_else(Vec::new, |id| [b"obj/", id.0.as_slice(), &[0]].concat());
    let versions_from =
        after.map_or(VERSIONS.to_vec(), |id| [VERSIONS, id.0.as_slice(), b"0"].concat());
    let chunk_of =
        |key: &[u8]| manifest.chunks.partition_point(|chunk| chunk.last.as_slice() < key);
    std::thread::scope(|scope| {
        let mut objects = Cursor::new(scope, dir, manifest, chunk_of(&objects_from));
        let mut versions = Cursor::new(scope, dir, manifest, chunk_of(&versions_from));
        while let Some((key, _)) = versions.peek()?
            && key < versions_from.as_slice()
        {
            versions.skip();
        }
        let mut bytes = Vec::new();
        loop {
            let Some((key, value)) = objects.peek()? else { break };
            if key >= VERSIONS {
                break;
            }
            if key < objects_from.as_slice() {
                objects.skip();
                continue;
            }
            match Key::decode(key).map_err(|rule| refused(rule, key))? {
                Key::Object(id) => {
                    bytes.clear();
                    bytes.extend_from_slice(value);
                    let object = Object::decode(&bytes).map_err(|rule| refused(rule, key))?;
                    if object.id != id {
                        return Err(refused(Rule::ObjectId, key));
                    }
                    let newest = group(&mut versions, manifest, &object, sink)?;
                    sink.object(&object, &bytes, &newest)?;
                }
                Key::Param(name) => sink.param(&name, value)?,
                _ => return Err(refused(Rule::KeyPrefix, key)),
            }
            objects.skip();
            told(8 + bytes.len())?;
        }
        if let Some((key, _)) = versions.peek()? {
            return Err(refused(Rule::VersionMismatch, key));
        }
        Ok(())
    })
}

/// The versions of an object. Gives the newest one.
fn group(
    versions: &mut Cursor,
    manifest: &Manifest,
    object: &Object<'_>,
    sink: &mut dyn Sink,
) -> Result<Version, Error> {
    let here = |rule| Error::refused(rule, format!("object {}", object.id));
    let mut group = Group::default();
    while let Some((key, value)) = versions.peek()? {
        let Key::Version(id, number) = Key::decode(key).map_err(|rule| refused(rule, key))? else {
            return Err(refused(Rule::KeyPrefix, key));
        };
        if id > object.id {
            break;
        }
        if id < object.id {
            return Err(refused(Rule::VersionMismatch, key));
        }
        let version = Version::decode(value).map_err(|rule| refused(rule, key))?;
        if version.seq > manifest.header.seq {
            return Err(refused(Rule::VersionSeq, key));
        }
        if number == 0 {
            return Err(refused(Rule::BadVersion, key));
        }
        group.count += 1;
        group.least = if group.count == 1 { number } else { group.least.min(number) };
        if group.newest.is_none_or(|(newest, _)| newest < number) {
            group.newest = Some((number, version));
        }
        sink.version(object, number, &version)?;
        versions.skip();
    }
    let (number, newest) = group.newest.ok_or_else(|| here(Rule::VersionMismatch))?;
    // No key is there twice, so as many as there are numbers is all of them.
    if number - group.least != group.count - 1 {
        return Err(here(Rule::VersionGap));
    }
    match number == object.version && newest.is_tombstone == object.is_tombstone {
        true => Ok(newest),
        false => Err(here(Rule::VersionMismatch)),
    }
}
