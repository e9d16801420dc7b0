//! Everything checked against everything: objects against versions, checkpoints against each other, notes against rows, and the root
//! against the newest header.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use ledger::{Batch, Bytes, Snapshot, Table};

use super::open::{tip_of, tree_of};
use super::prune::{check_rows, is_beyond, note_of};
use super::roots::{Progress, Stage};
use super::rows::{Note, ObjectRow, decode_version_key, journal_entries, part_key};
use super::view::{View, oldest};
use super::{Store, Tip, events};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Rule};
use crate::format::checkpoint::decode_value;
use crate::format::object::Object;
use crate::format::version::Version;
use crate::hash::{Hash, hex};
use crate::settings::RootVersion;
use crate::tables::{CHECKPOINTS, EVENTS, FEED, JOURNAL, NOTES, OBJECTS, TREE, VERSIONS};

/// Findings that are listed; there may be more.
const FINDINGS: usize = 1000;

/// What was looked at, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// Objects, tombstones included.
    pub objects: u64,
    /// Versions.
    pub versions: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Events.
    pub events: u64,
    /// The root of the state, made anew.
    pub root: Option<Hash>,
    /// What is wrong, each with its place.
    pub findings: Vec<String>,
}

impl Check {
    fn find(&mut self, what: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(what);
        }
    }

    /// Of the checkpoints from one up to another nothing is noted.
    fn find_missing(&mut self, first: u64, end: u64) {
        match end.saturating_sub(first) {
            0 => {}
            1 => self.find(format!("nothing is noted of checkpoint {first}")),
            _ => self.find(format!("nothing is noted of the checkpoints {first} to {}", end - 1)),
        }
    }

    /// Goes on with what can be told of damage, and not with what cannot.
    fn note<T>(&mut self, result: Result<T, Error>) -> Result<Option<T>, Error> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ (Error::Damaged { .. } | Error::Inconsistent(_))) => {
                self.find(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Store {
    /// Looks at everything.
    pub fn verify(&self, progress: Progress<'_>) -> Result<Check, Error> {
        self.view()?.verify(progress)
    }
}

impl View<'_> {
    /// Looks at everything.
    pub fn verify(&self, progress: Progress<'_>) -> Result<Check, Error> {
        self.verify_all(None, progress)
    }

    /// The same; the root need not be made if it was just made from the same rows.
    pub(crate) fn verify_all(
        &self,
        made: Option<Hash>,
        progress: Progress<'_>,
    ) -> Result<Check, Error> {
        let mut check = Check::default();
        let snapshot = &*self.snapshot;
        let Some(tip) = tip_of(snapshot)? else {
            for table in crate::tables::CANONICAL {
                if self.measure(*table)?.0 > 0 {
                    check.find(format!("{} has rows, and there is no checkpoint", table.name));
                }
            }
            return Ok(check);
        };
        let by_seq = self.check_versions(&tip, &mut check, progress)?;
        if check.objects != tip.objects {
            check.find(format!(
                "there are {} objects, and {} are noted",
                check.objects, tip.objects
            ));
        }
        self.check_checkpoints(&tip, &mut check)?;
        self.check_notes(&tip, by_seq, &mut check)?;
        check.root = match made {
            Some(root) => Some(root),
            None => self.check_roots(&tip, &mut check, progress)?,
        };
        if check.root.is_some_and(|root| root != tip.header.state_root) {
            check.find(Rule::StateRoot.to_string());
        }
        Ok(check)
    }

    /// Objects and versions side by side. Gives how many versions there are of each checkpoint of the window.
    fn check_versions(
        &self,
        tip: &Tip,
        check: &mut Check,
        progress: Progress<'_>,
    ) -> Result<HashMap<u64, u64>, Error> {
        let window = self.store.settings().window;
        let mut by_seq = HashMap::new();
        let mut versions = scan(&*self.snapshot, VERSIONS)?.peekable();
        for row in scan(&*self.snapshot, OBJECTS)? {
            let (key, value) = row?;
            check.objects += 1;
            if check.objects.is_multiple_of(4096) {
                progress(Stage::Checking, check.objects, tip.objects);
            }
            while let Some(Ok((other, _))) =
                versions.next_if(|row| row.as_ref().is_ok_and(|(other, _)| key_id(other) < &*key))
            {
                check.find(format!("version {} is of no object", hex(&other)));
            }
            let damaged = |rule: Rule| Error::damaged(OBJECTS, &key, rule.text());
            let object = ObjectRow::decode(&value).and_then(|row| {
                let object = Object::decode(row.bytes)?;
                match object.id.0 == *key {
                    true => Ok((row, object)),
                    false => Err(Rule::ObjectId),
                }
            });
            let Some((row, object)) = check.note(object.map_err(damaged))? else { continue };
            // Number, checkpoint, and the entry of the last one.
            let mut last: Option<(u64, Version)> = None;
            while let Some(row) = versions
                .next_if(|row| row.as_ref().map_or(true, |(other, _)| key_id(other) == &*key))
            {
                let (key, value) = row?;
                check.versions += 1;
                let damaged = |rule: Rule| Error::damaged(VERSIONS, &key, rule.text());
                let entry = Version::decode(&value).and_then(|entry| {
                    Ok((decode_version_key(&key).ok_or(Rule::Truncated)?.1, entry))
                });
                let Some((number, entry)) = check.note(entry.map_err(damaged))? else { continue };
                let at = || format!("object {}, version {number}", object.id);
                if let Some((before, older)) = last {
                    if before.checked_add(1) != Some(number) {
                        check.find(format!("{}: {}", at(), Rule::VersionGap));
                    }
                    if older.seq > entry.seq {
                        check.find(format!("{}: {}", at(), Rule::VersionSeq));
                    }
                    if older.is_tombstone {
                        check.find(format!("{}: {}", at(), Rule::WriteToTombstone));
                    }
                }
                if entry.seq > tip.header.seq {
                    check.find(format!("{}: {}", at(), Rule::VersionSeq));
                }
                if !is_beyond(entry.seq, window, tip.header.seq) {
                    *by_seq.entry(entry.seq).or_insert(0) += 1;
                } else if number != object.version {
                    check.find(format!("{} should have been pruned", at()));
                }
                last = Some((number, entry));
            }
            let wanted = Version {
                digest: Hash::of(&[row.bytes]),
                is_tombstone: object.is_tombstone,
                seq: row.seq,
            };
            if last != Some((object.version, wanted)) {
                check.find(format!("object {}: {}", object.id, Rule::VersionMismatch));
            }
        }
        for row in versions {
            check.find(format!("version {} is of no object", hex(&row?.0)));
        }
        Ok(by_seq)
    }

    fn check_checkpoints(&self, tip: &Tip, check: &mut Check) -> Result<(), Error> {
        let Some((from, to)) = self.checkpoints()? else { return Ok(()) };
        let mut wanted = from;
        let mut prev = None;
        for row in scan(&*self.snapshot, CHECKPOINTS)? {
            let (key, value) = row?;
            check.checkpoints += 1;
            let seq = <[u8; 8]>::try_from(&*key).map(u64::from_be_bytes).unwrap_or(u64::MAX);
            if seq != wanted {
                check.find(format!("there is checkpoint {seq} where {wanted} should be"));
            }
            wanted = seq.saturating_add(1);
            let damaged = |rule: Rule| Error::damaged(CHECKPOINTS, &key, rule.text());
            let Some((header, _)) = check.note(decode_value(&value).map_err(damaged))? else {
                continue;
            };
            if header.seq != seq {
                check.find(format!("the header of checkpoint {seq} says {}", header.seq));
            }
            if prev.is_some_and(|prev| prev != header.prev_digest) {
                check.find(format!("checkpoint {seq}: {}", Rule::PrevDigest));
            }
            prev = Some(header.digest());
            if seq == to && header != tip.header {
                check.find("the newest checkpoint is not the tip".to_owned());
            }
        }
        if wanted != to.saturating_add(1) {
            check.find(format!("checkpoints from {wanted} on are missing"));
        }
        Ok(())
    }

    /// Notes against the rows that they count.
    fn check_notes(
        &self,
        tip: &Tip,
        mut by_seq: HashMap<u64, u64>,
        check: &mut Check,
    ) -> Result<(), Error> {
        let snapshot = &*self.snapshot;
        let settings = self.store.settings();
        let (mut event_rows, mut feed_rows, mut journal_rows) = (0_u64, 0_u64, 0_u64);
        // The next that should be noted: how many there should be is not counted on.
        let mut wanted = Some(oldest(tip, settings.window.max(settings.event_retention)));
        for row in scan(snapshot, NOTES)? {
            let (key, _) = row?;
            let Ok(seq) = <[u8; 8]>::try_from(&*key).map(u64::from_be_bytes) else {
                check.find(format!("there are notes of no checkpoint, under {}", hex(&key)));
                continue;
            };
            if let Some(first) = wanted.filter(|wanted| *wanted <= seq.min(tip.header.seq)) {
                check.find_missing(first, seq.min(tip.header.seq.saturating_add(1)));
                wanted = seq.checked_add(1);
            }
            let Some(Some(note)) = check.note(note_of(snapshot, seq))? else { continue };
            if is_beyond(seq, settings.window.max(settings.event_retention), tip.header.seq) {
                check.find(format!("the notes of checkpoint {seq} should have been pruned"));
            }
            if !is_beyond(seq, settings.event_retention, tip.header.seq) {
                event_rows += u64::from(note.event_rows);
                feed_rows += u64::from(note.feed_rows);
                self.check_events(seq, note, check)?;
                if note.feed_rows > 0
                    && let Some(change) = check.note(self.change(seq))?
                {
                    self.check_change(seq, &change, check)?;
                }
            }
            if !is_beyond(seq, settings.window, tip.header.seq) {
                journal_rows += u64::from(note.journal_rows);
                let found = by_seq.remove(&seq).unwrap_or(0);
                let noted = self.count_journal(seq, note, check)?;
                if found != noted {
                    check.find(format!(
                        "checkpoint {seq} wrote {noted} versions, {found} are there"
                    ));
                }
            }
        }
        if let (Some(first), Some(end)) = (wanted, tip.header.seq.checked_add(1)) {
            check.find_missing(first, end);
        }
        for (seq, count) in by_seq.into_iter().collect::<BTreeMap<_, _>>() {
            check.find(format!("{count} versions of checkpoint {seq} are noted nowhere"));
        }
        for (table, noted) in [(EVENTS, event_rows), (FEED, feed_rows), (JOURNAL, journal_rows)] {
            let (found, _) = self.measure(table)?;
            if found != noted {
                check.find(format!("{} has {found} rows, and {noted} are noted", table.name));
            }
        }
        Ok(())
    }

    fn check_events(&self, seq: u64, note: Note, check: &mut Check) -> Result<(), Error> {
        let events = check.note(events::read(&*self.snapshot, seq, note))?.unwrap_or_default();
        let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
        check.events += count;
        if count != note.events {
            check.find(format!("checkpoint {seq} has {count} events, {} are noted", note.events));
        }
        if !events.is_sorted_by_key(|event| (event.tx, event.number)) {
            check.find(format!("the events of checkpoint {seq} are not in order"));
        }
        Ok(())
    }

    /// What the feed says against what the stores say.
    fn check_change(&self, seq: u64, change: &Checkpoint, check: &mut Check) -> Result<(), Error> {
        let kept = check.note(self.checkpoint(seq))?.flatten();
        if kept.is_some_and(|(header, digests)| {
            header != change.header || digests != change.tx_digests
        }) {
            check.find(format!("the feed has another checkpoint {seq} than the store"));
        }
        let digests = Hash::of_each(change.writes.iter().map(Vec::as_slice));
        for (bytes, digest) in change.writes.iter().zip(digests) {
            let Ok(object) = Object::decode(bytes) else {
                check.find(format!("the feed has bytes of no object in checkpoint {seq}"));
                continue;
            };
            let version = check.note(self.version(&object.id, object.version))?.flatten();
            if version.is_some_and(|version| version.digest != digest || version.seq != seq) {
                check.find(format!(
                    "object {}, version {}: the feed has another than the index",
                    object.id, object.version
                ));
            }
        }
        Ok(())
    }

    fn count_journal(&self, seq: u64, note: Note, check: &mut Check) -> Result<u64, Error> {
        let mut count = 0;
        let rows = check_rows(&*self.snapshot, JOURNAL, seq, note.journal_rows);
        if check.note(rows)?.is_none() {
            return Ok(0);
        }
        for part in 0..note.journal_rows {
            let key = part_key(seq, part);
            match self.snapshot.get(JOURNAL, &key)?.as_deref().map(journal_entries) {
                Some(Some(entries)) => {
                    count += u64::try_from(entries.len()).unwrap_or(0);
                    for (id, number) in entries {
                        let version = check.note(self.version(&id, number))?.flatten();
                        if version.is_none_or(|version| version.seq != seq) {
                            check.find(format!(
                                "object {id}, version {number} is not of checkpoint {seq}, as the journal says"
                            ));
                        }
                    }
                }
                Some(None) => check.find(format!("a row of the journal of {seq} is damaged")),
                None => check.find(format!("a row of the journal of {seq} is missing")),
            }
        }
        Ok(count)
    }

    /// The root made anew; of v2 with every row of the tree.
    fn check_roots(
        &self,
        tip: &Tip,
        check: &mut Check,
        progress: Progress<'_>,
    ) -> Result<Option<Hash>, Error> {
        let snapshot = &*self.snapshot;
        let version = self.store.settings().root_version(tip.header.seq);
        let top = check.note(tree_of(snapshot))?.flatten();
        match (version, top) {
            (RootVersion::V1, _) => {
                let root = self.full_root(RootVersion::V1, progress);
                check.note(root)
            }
            (RootVersion::V2, None) => {
                check.find("the state tree is missing".to_owned());
                Ok(None)
            }
            (RootVersion::V2, Some(top)) => {
                // Every row that the tree should have, compared with the one it has.
                let seen = RefCell::new((0_u64, Vec::new()));
                let mut compare = |rows: Batch| {
                    let mut seen = seen.borrow_mut();
                    for change in rows.iter() {
                        seen.0 += 1;
                        let found = snapshot.get(TREE, change.key)?;
                        if found.as_deref() != change.value {
                            seen.1.push(format!(
                                "the node {} is not what it should be",
                                hex(change.key)
                            ));
                        }
                    }
                    Ok(())
                };
                let made =
                    self.store.full_tree(snapshot, tip.objects, progress, Some(&mut compare));
                let made = check.note(made)?;
                let (nodes, findings) = seen.into_inner();
                findings.into_iter().for_each(|finding| check.find(finding));
                let (rows, _) = self.measure(TREE)?;
                if made.is_some() && rows != nodes {
                    check.find(format!("the state tree has {rows} rows, and should have {nodes}"));
                }
                if made.is_some_and(|made| made != top) {
                    check.find("what is noted of the state tree is not its top".to_owned());
                }
                Ok(made.map(|made| made.digest()))
            }
        }
    }
}

type Row<'a> = Result<(Bytes<'a>, Bytes<'a>), Error>;

fn scan(snapshot: &dyn Snapshot, table: Table) -> Result<impl Iterator<Item = Row<'_>>, Error> {
    let rows = snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded))?;
    Ok(rows.map(|row| Ok(row?)))
}

fn key_id(key: &[u8]) -> &[u8] {
    key.get(..32).unwrap_or(key)
}
