//! A store from a snapshot: all of it or nothing. Tables get their name only when everything in them was checked, and the root is that
//! of the snapshot.
//!
//! Stages, each of which can be cut off and gone on with: rows, as far as an object that is noted; the journal, from its beginning; the
//! tree, from its beginning; a check of everything; the name.

use std::collections::BTreeMap;
use std::ops::Bound;

use host::Dir;
use ledger::{Batch, Engine, EngineKind, Table};

use super::join::{self, Sink};
use super::verify::check_chunks;
use super::{Trust, Watch, manifest};
use crate::database::Database;
use crate::error::{Error, Rule};
use crate::format::checkpoint::Header;
use crate::format::manifest::Manifest;
use crate::format::mcs::whole;
use crate::format::object::Object;
use crate::format::params;
use crate::format::version::Version;
use crate::hash::Hash;
use crate::settings::{Effort, RootVersion, Settings};
use crate::store::{
    Note, Stage, Store, TIP, TipRow, first_rows, is_beyond, journal_entry, make, part_key, seq_key,
    version_key,
};
use crate::tables::{ALL, CHECKPOINTS, JOURNAL, META, NOTES, OBJECTS, PARAMS, VERSIONS};

/// Where the progress of a restore is noted.
const NOTE: &[u8] = b"restore";
/// Versions that the journal gathers before it writes them.
const TOGETHER: usize = 1 << 16;

/// What restoring came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The checkpoint.
    pub seq: u64,
    /// The root of its state, made anew from the tables.
    pub root: Hash,
    /// Objects.
    pub objects: u64,
    /// Versions that are not the newest were restored, too: not if the digest of the checkpoint was trusted, and that of the manifest not
    /// known.
    pub has_older_versions: bool,
    /// An earlier restore was gone on with.
    pub is_resumed: bool,
}

/// How far a restore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Objects up to one are there with their versions.
    Rows(Option<Hash>, u64),
    /// All rows are there; so many objects.
    Journal(u64),
    /// The journal, too.
    Tree(u64),
}

impl Progress {
    fn encode(&self, snapshot: Hash) -> Vec<u8> {
        let (stage, id, objects) = match self {
            Progress::Rows(id, objects) => (u8::from(id.is_some()), *id, *objects),
            Progress::Journal(objects) => (2, None, *objects),
            Progress::Tree(objects) => (3, None, *objects),
        };
        let mut bytes = snapshot.0.to_vec();
        bytes.push(stage);
        bytes.extend(objects.to_le_bytes());
        bytes.extend(id.unwrap_or_default().0);
        bytes
    }

    fn decode(bytes: &[u8], snapshot: Hash) -> Option<Progress> {
        let read = whole(bytes, |decoder| {
            let of = Hash(decoder.array()?);
            Ok((of, decoder.u8()?, decoder.u64()?, Hash(decoder.array()?)))
        });
        let (of, stage, objects, id) = read.ok()?;
        if of != snapshot {
            return None;
        }
        match stage {
            0 => Some(Progress::Rows(None, objects)),
            1 => Some(Progress::Rows(Some(id), objects)),
            2 => Some(Progress::Journal(objects)),
            3 => Some(Progress::Tree(objects)),
            _ => None,
        }
    }
}

/// Makes a store from a snapshot, in a directory that has none.
pub fn restore(
    dir: &dyn Dir,
    database: &Database,
    kind: EngineKind,
    settings: Settings,
    trust: Trust,
    effort: Effort,
    watch: Watch<'_>,
) -> Result<Restored, Error> {
    effort.check()?;
    let manifest = manifest(dir)?;
    trust.check(&manifest)?;
    let settings = fit(settings, &manifest)?;
    let lock = database.home().make_and_lock()?;
    let takes_older = trust.takes_older();
    let snapshot = identity(&manifest, takes_older);
    let mut engine = database.home().begin(&lock, kind, ALL)?;
    if let Begun::Other = begun(&*engine, settings, snapshot)? {
        drop(engine);
        database.home().discard_unfinished(&lock)?;
        engine = database.home().begin(&lock, kind, ALL)?;
    }
    match fill(engine, dir, &manifest, settings, takes_older, effort, watch) {
        Ok(restored) => {
            database.home().finish(&lock)?;
            Ok(restored)
        }
        Err(error @ (Error::Refused { .. } | Error::Snapshot(_))) => {
            // Nothing of a snapshot that is wrong is gone on with.
            database.home().discard_unfinished(&lock)?;
            Err(error)
        }
        Err(error) => Err(error),
    }
}

/// What is noted of a restore, so that no other one goes on with it.
fn identity(manifest: &Manifest, takes_older: bool) -> Hash {
    match takes_older {
        true => manifest.digest(),
        false => Hash::of(&[b"newest versions", &manifest.digest().0]),
    }
}

/// What is in tables that have no name yet.
enum Begun {
    /// Nothing, or the same restore.
    Ours,
    /// Something else.
    Other,
}

fn begun(engine: &dyn Engine, settings: Settings, snapshot: Hash) -> Result<Begun, Error> {
    let rows = engine.snapshot()?;
    let found = rows.get(META, b"settings")?;
    let note = rows.get(META, NOTE)?;
    Ok(match (found, note) {
        (None, None) => Begun::Ours,
        (Some(found), Some(note))
            if *found == *settings.to_bytes() && Progress::decode(&note, snapshot).is_some() =>
        {
            Begun::Ours
        }
        _ => Begun::Other,
    })
}

/// Settings that a snapshot can be gone on with.
fn fit(mut settings: Settings, manifest: &Manifest) -> Result<Settings, Error> {
    settings.check()?;
    let header = &manifest.header;
    if let Some(chain) = settings.chain_id.filter(|chain| *chain != header.chain_id) {
        let what = format!("the snapshot is of chain {}, and not of {chain}", header.chain_id);
        return Err(Error::refused(Rule::ChainId, what));
    }
    settings.chain_id = Some(header.chain_id);
    if header.state_root_version == 2 && settings.v2_at.is_none() {
        // From here on at the latest.
        settings.v2_at = Some(header.seq);
    }
    if settings.root_version(header.seq).number() != header.state_root_version {
        return Err(Error::Settings {
            found: format!("StateRoot-v{} at {}", header.state_root_version, header.seq),
            wanted: settings.describe(),
        });
    }
    Ok(settings)
}

/// Fills tables from a snapshot, and checks all of them. What was begun before is gone on with.
pub fn restore_into(
    engine: Box<dyn Engine>,
    dir: &dyn Dir,
    manifest: &Manifest,
    settings: Settings,
    effort: Effort,
    watch: Watch<'_>,
) -> Result<Restored, Error> {
    fill(engine, dir, manifest, settings, true, effort, watch)
}

/// The same, with versions that are not the newest or without.
fn fill(
    engine: Box<dyn Engine>,
    dir: &dyn Dir,
    manifest: &Manifest,
    settings: Settings,
    takes_older: bool,
    effort: Effort,
    watch: Watch<'_>,
) -> Result<Restored, Error> {
    let snapshot = identity(manifest, takes_older);
    let note = engine.snapshot()?.get(META, NOTE)?.map(|note| note.into_owned());
    let is_resumed = note.is_some();
    let mut at = match note.and_then(|note| Progress::decode(&note, snapshot)) {
        Some(at) => at,
        None => {
            let mut batch = first_rows(settings);
            batch.put(META, NOTE, &Progress::Rows(None, 0).encode(snapshot));
            engine.commit(batch)?;
            Progress::Rows(None, 0)
        }
    };
    if is_resumed {
        // Also what was read before must still be there as it was: a snapshot is refused whole.
        check_chunks(dir, manifest, effort.threads, watch)?;
    }
    let (header, _) = crate::format::checkpoint::decode_value(&manifest.checkpoint)
        .map_err(|rule| Error::refused(rule, "the checkpoint of the snapshot"))?;
    loop {
        at = match at {
            Progress::Rows(after, objects) => {
                let mut loader = Loader {
                    engine: &*engine,
                    settings,
                    takes_older,
                    tip: header.seq,
                    snapshot,
                    batch: Batch::new(),
                    batch_bytes: effort.batch,
                    last: after,
                    objects,
                };
                let (mut done, total) = (0, manifest.len());
                let mut told = |bytes: usize| {
                    done += u64::try_from(bytes).unwrap_or(0);
                    watch.tell(Stage::Reading, done, total)
                };
                join::join(dir, manifest, after, &mut loader, &mut told)?;
                let objects = loader.objects;
                let mut batch = std::mem::take(&mut loader.batch);
                batch.put(META, NOTE, &Progress::Journal(objects).encode(snapshot));
                engine.commit(batch)?;
                Progress::Journal(objects)
            }
            Progress::Journal(objects) => {
                write_journal(&*engine, settings, &header, effort)?;
                let mut batch = Batch::new();
                batch.put(CHECKPOINTS, &seq_key(header.seq), &manifest.checkpoint);
                batch.put(META, TIP, &TipRow::encode(&header, header.seq, objects));
                batch.put(META, NOTE, &Progress::Tree(objects).encode(snapshot));
                engine.commit(batch)?;
                Progress::Tree(objects)
            }
            Progress::Tree(objects) => {
                let store = make(engine, settings, effort);
                let root = check(&store, &header, objects, watch)?;
                let mut batch = Batch::new();
                batch.delete(META, NOTE);
                store.engine().commit(batch)?;
                let (seq, has_older_versions) = (header.seq, takes_older);
                return Ok(Restored { seq, root, objects, has_older_versions, is_resumed });
            }
        };
    }
}

/// Makes the tree if there is to be one, and checks everything.
fn check(store: &Store, header: &Header, objects: u64, watch: Watch<'_>) -> Result<Hash, Error> {
    let made = match store.settings().root_version(header.seq) {
        RootVersion::V1 => None,
        RootVersion::V2 => Some(store.restore_tree(objects, watch.progress)?),
    };
    let view = store.view()?;
    let named = params::state_root_version(&view.params()?)
        .map_err(|rule| Error::refused(rule, "parameters"))?;
    let version = store.settings().root_version(header.seq).number();
    if named.is_some_and(|named| named != version) {
        return Err(Error::refused(Rule::StateRootVersion, "parameters"));
    }
    let check = view.verify_all(made, watch.progress)?;
    match (check.findings.first(), check.root) {
        (None, Some(root)) => Ok(root),
        (finding, _) => {
            Err(Error::Snapshot(finding.cloned().unwrap_or_else(|| "there is no root".to_owned())))
        }
    }
}

/// Writes rows of entries.
struct Loader<'a> {
    engine: &'a dyn Engine,
    settings: Settings,
    takes_older: bool,
    tip: u64,
    snapshot: Hash,
    batch: Batch,
    batch_bytes: usize,
    /// The last object that is there with all its versions.
    last: Option<Hash>,
    objects: u64,
}

impl Loader<'_> {
    /// Commits what there is, if that is enough. Rows of an object that is not done are written again by whoever goes on.
    fn commit_if_full(&mut self) -> Result<(), Error> {
        if self.batch.byte_len() < self.batch_bytes {
            return Ok(());
        }
        let progress = Progress::Rows(self.last, self.objects);
        self.batch.put(META, NOTE, &progress.encode(self.snapshot));
        Ok(self.engine.commit(std::mem::take(&mut self.batch))?)
    }
}

impl Sink for Loader<'_> {
    fn version(
        &mut self,
        object: &Object<'_>,
        number: u64,
        version: &Version,
    ) -> Result<(), Error> {
        // The window of this store can be shorter than that of the one before.
        let is_kept = !is_beyond(version.seq, self.settings.window, self.tip);
        if number == object.version || (self.takes_older && is_kept) {
            self.batch.put(VERSIONS, &version_key(&object.id, number), &version.encode());
        }
        self.commit_if_full()
    }

    fn object(&mut self, object: &Object<'_>, bytes: &[u8], newest: &Version) -> Result<(), Error> {
        self.batch.put_parts(OBJECTS, &[&object.id.0], &[&newest.seq.to_le_bytes(), bytes]);
        self.last = Some(object.id);
        self.objects += 1;
        self.commit_if_full()
    }

    fn param(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        self.batch.put(PARAMS, name.as_bytes(), value);
        self.commit_if_full()
    }
}

/// Makes the journal from the checkpoints that versions are of, and the notes.
fn write_journal(
    engine: &dyn Engine,
    settings: Settings,
    header: &Header,
    effort: Effort,
) -> Result<(), Error> {
    wipe(engine, JOURNAL, effort.batch)?;
    wipe(engine, NOTES, effort.batch)?;
    let mut notes: BTreeMap<u64, Note> = BTreeMap::new();
    notes.insert(header.seq, Note::default());
    let mut gathered: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut count = 0;
    let mut write = |gathered: &mut BTreeMap<u64, Vec<u8>>| -> Result<(), Error> {
        let mut batch = Batch::new();
        for (seq, entries) in std::mem::take(gathered) {
            let note = notes.entry(seq).or_default();
            batch.put(JOURNAL, &part_key(seq, note.journal_rows), &entries);
            note.journal_rows += 1;
            batch.put(NOTES, &seq_key(seq), &note.encode());
        }
        Ok(engine.commit(batch)?)
    };
    let rows = engine.snapshot()?;
    for row in rows.scan(VERSIONS, (Bound::Unbounded, Bound::Unbounded))? {
        let (key, value) = row?;
        let damaged = |rule: Rule| Error::damaged(VERSIONS, &key, rule.text());
        let version = Version::decode(&value).map_err(damaged)?;
        if is_beyond(version.seq, settings.window, header.seq) {
            continue;
        }
        let (id, number) = key.split_at_checked(32).ok_or(Rule::Truncated).map_err(damaged)?;
        let id = Hash::from_slice(id).ok_or(Rule::Truncated).map_err(damaged)?;
        let number = number.try_into().map(u64::from_be_bytes);
        let number = number.map_err(|_| damaged(Rule::Truncated))?;
        gathered.entry(version.seq).or_default().extend(journal_entry(&id, number));
        count += 1;
        if count == TOGETHER {
            write(&mut gathered)?;
            count = 0;
        }
    }
    write(&mut gathered)?;
    // There is a note of the newest checkpoint, whether it wrote anything or not.
    let mut batch = Batch::new();
    let note = notes.get(&header.seq).copied().unwrap_or_default();
    batch.put(NOTES, &seq_key(header.seq), &note.encode());
    Ok(engine.commit(batch)?)
}

/// Deletes all rows of a table.
fn wipe(engine: &dyn Engine, table: Table, batch_bytes: usize) -> Result<(), Error> {
    loop {
        let mut batch = Batch::new();
        {
            let rows = engine.snapshot()?;
            for row in rows.scan(table, (Bound::Unbounded, Bound::Unbounded))? {
                batch.delete(table, &row?.0);
                if batch.byte_len() >= batch_bytes {
                    break;
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        engine.commit(batch)?;
    }
}
