//! A plain model of an index: every version of every object in a list, and nothing clever about finding them.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use misaka::format::object::Object;
use misaka::{Checkpoint, Hash};
use misaka_indexer::{
    Counts, EventKey, EventRow, EventsOf, Holder, Index, Live, Page, Place, Record, Summary, Tip,
};

/// Names of types, some of them odd.
pub(crate) fn type_tags() -> Vec<String> {
    vec![
        "0x2::coin::Coin".to_owned(),
        String::new(),
        "zero\0byte".to_owned(),
        "\u{1F980}".to_owned(),
        (0..3000).map(|number| format!("{number:x}")).collect(),
    ]
}

/// Gives the objects of a checkpoint other types. The root is not the right one then, which an index does not look at.
pub(crate) fn vary(checkpoint: &mut Checkpoint, rng: &mut Rng) {
    let tags = type_tags();
    for bytes in &mut checkpoint.writes {
        let object = Object::decode(bytes).unwrap();
        let type_tag = tags[rng.usize(..tags.len())].as_str();
        *bytes = Object { type_tag, ..object }.encode();
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) tip: Option<Tip>,
    pub(crate) history: BTreeMap<Hash, Vec<Record>>,
    pub(crate) transactions: BTreeMap<Hash, Place>,
    pub(crate) events: BTreeMap<EventKey, Vec<u8>>,
    pub(crate) checkpoints: BTreeMap<u64, Summary>,
}

impl Model {
    pub(crate) fn apply(&mut self, checkpoint: &Checkpoint) {
        let header = &checkpoint.header;
        let seq = header.seq;
        let (mut created, mut deleted) = (0, 0);
        for bytes in &checkpoint.writes {
            let object = Object::decode(bytes).unwrap();
            let record =
                Record { id: object.id, version: object.version, seq, bytes: bytes.clone() };
            self.history.entry(object.id).or_default().push(record);
            created += u64::from(object.version == 1);
            deleted += u64::from(object.is_tombstone);
        }
        for (index, digest) in (0..).zip(&checkpoint.tx_digests) {
            self.transactions.entry(*digest).or_insert(Place { seq, index });
        }
        for event in &checkpoint.events {
            let key = EventKey { seq, tx: event.tx, number: event.number };
            assert!(self.events.insert(key, event.bytes.clone()).is_none());
        }
        let count = |number: usize| u64::try_from(number).unwrap();
        let summary = Summary {
            seq,
            digest: header.digest(),
            epoch: header.epoch,
            timestamp_ms: header.timestamp_ms,
            transactions: count(checkpoint.tx_digests.len()),
            writes: count(checkpoint.writes.len()),
            created,
            deleted,
            events: count(checkpoint.events.len()),
            event_bytes: count(checkpoint.events.iter().map(|event| event.bytes.len()).sum()),
        };
        self.checkpoints.insert(seq, summary);
        let base = self.tip.and_then(|tip| tip.base);
        self.tip = Some(Tip { seq, digest: header.digest(), base });
    }

    /// What is known to an index that was built from the objects as they are now.
    pub(crate) fn rebuilt(&self) -> Model {
        let newest = |records: &Vec<Record>| vec![records.last().unwrap().clone()];
        let history = self.history.iter().map(|(id, records)| (*id, newest(records))).collect();
        let tip = self.tip.map(|tip| Tip { base: Some(tip.seq), ..tip });
        Model { tip, history, ..Model::default() }
    }

    /// Objects that are live, and of which something holds.
    fn live(&self, is_right: impl Fn(&Object<'_>) -> bool) -> Vec<Live> {
        let newest = self.history.values().map(|records| records.last().unwrap());
        newest
            .filter(|record| {
                let object = record.object().unwrap();
                !object.is_tombstone && is_right(&object)
            })
            .map(|record| Live { id: record.id, version: record.version, seq: record.seq })
            .collect()
    }

    fn holders(&self) -> BTreeSet<Holder> {
        let records = self.history.values().flatten();
        records.filter_map(|record| Holder::of(&record.object().unwrap().owner)).collect()
    }

    /// Asks an index everything.
    pub(crate) fn check(&self, index: &dyn Index, rng: &mut Rng) {
        assert_eq!(index.tip().unwrap(), self.tip);
        self.check_lists(index, rng);
        let absent = Hash::of(&[b"absent"]);
        for (id, records) in &self.history {
            let limit = rng.u32(1..5);
            let found = pages(
                limit,
                |after| index.history(id, Page { after, limit }).unwrap(),
                |record| record.version,
            );
            assert_eq!(found, *records);
            assert_eq!(index.newest(id).unwrap().as_ref(), records.last());
            self.check_as_of(index, id, records, rng);
        }
        assert_eq!(index.history(&absent, Page::first(9)).unwrap(), []);
        assert_eq!(index.newest(&absent).unwrap(), None);
        for (digest, place) in &self.transactions {
            assert_eq!(index.transaction(digest).unwrap(), Some(*place));
        }
        assert_eq!(index.transaction(&absent).unwrap(), None);
        self.check_events(index, rng);
        for (seq, summary) in &self.checkpoints {
            assert_eq!(index.summary(*seq).unwrap(), Some(*summary));
        }
        if let Some(tip) = self.tip {
            assert_eq!(index.summary(tip.seq.wrapping_add(1)).unwrap(), None);
        }
        let count = |number: usize| u64::try_from(number).unwrap();
        let counts = Counts {
            objects: count(self.live(|_| true).len()),
            versions: count(self.history.values().map(Vec::len).sum()),
            transactions: self.checkpoints.values().map(|summary| summary.transactions).sum(),
            events: count(self.events.len()),
            checkpoints: count(self.checkpoints.len()),
        };
        assert_eq!(index.counts().unwrap(), counts);
    }

    /// Owners and types only.
    pub(crate) fn check_lists(&self, index: &dyn Index, rng: &mut Rng) {
        let mut holders = self.holders();
        holders.insert(Holder::Address([9; 32]));
        for holder in holders {
            let limit = rng.u32(1..20);
            let found = pages(
                limit,
                |after| index.owned(&holder, Page { after, limit }).unwrap(),
                |live| live.id,
            );
            assert_eq!(found, self.live(|object| Holder::of(&object.owner) == Some(holder)));
        }
        let mut tags = type_tags();
        tags.push("0x2::coin".to_owned());
        for tag in tags {
            let limit = rng.u32(1..20);
            let found = pages(
                limit,
                |after| index.of_type(&tag, Page { after, limit }).unwrap(),
                |live| live.id,
            );
            assert_eq!(found, self.live(|object| object.type_tag == tag));
        }
    }

    fn check_as_of(&self, index: &dyn Index, id: &Hash, records: &[Record], rng: &mut Rng) {
        let Some(tip) = self.tip else { return };
        let at = records[rng.usize(..records.len())].seq;
        for seq in [at.saturating_sub(1), at, at.saturating_add(1), tip.seq] {
            let found = index.as_of(id, seq);
            let wanted = records.iter().rfind(|record| record.seq <= seq);
            let is_unknown = wanted.is_none() && tip.base.is_some() && records[0].version > 1;
            if seq > tip.seq || is_unknown {
                let is_right = matches!(found, Err(misaka_indexer::Error::OutOfReach { .. }));
                assert!(is_right, "{found:?}");
            } else {
                assert_eq!(found.unwrap().as_ref(), wanted);
            }
        }
    }

    fn check_events(&self, index: &dyn Index, rng: &mut Rng) {
        let rows = |from: EventKey, to: EventKey| -> Vec<EventRow> {
            let rows = self.events.range(from..=to);
            rows.map(|(key, bytes)| EventRow { key: *key, bytes: bytes.clone() }).collect()
        };
        let limit = rng.u32(1..30);
        let ask = |of, limit| {
            pages(limit, |after| index.events(of, Page { after, limit }).unwrap(), |row| row.key)
        };
        let last = EventKey { seq: u64::MAX, tx: u32::MAX, number: u32::MAX };
        assert_eq!(ask(EventsOf::All, limit), rows(EventKey::default(), last));
        assert_eq!(index.events(EventsOf::All, Page::after(last, 5)).unwrap(), []);
        for seq in self.checkpoints.keys() {
            let from = EventKey { seq: *seq, tx: 0, number: 0 };
            let to = EventKey { seq: *seq, tx: u32::MAX, number: u32::MAX };
            assert_eq!(ask(EventsOf::Checkpoint(*seq), limit), rows(from, to));
            let tx = rng.u32(..4) * 200;
            let (from, to) = (EventKey { tx, ..from }, EventKey { tx, ..to });
            assert_eq!(ask(EventsOf::Transaction(*seq, tx), 2), rows(from, to));
        }
    }
}

/// All pages of a list.
fn pages<T, K>(
    limit: u32,
    mut page: impl FnMut(Option<K>) -> Vec<T>,
    key: impl Fn(&T) -> K,
) -> Vec<T> {
    let limit = usize::try_from(limit).unwrap();
    let mut all: Vec<T> = Vec::new();
    loop {
        let found = page(all.last().map(&key));
        assert!(found.len() <= limit);
        let is_last = found.len() < limit;
        all.extend(found);
        if is_last {
            return all;
        }
    }
}
