//! The overlay: index changes since the image, in memory.
//!
//! One writer, any number of readers, no lock on the way of either in the ordinary case.
//!
//! Invariants
//! - A slot, once it has a hash, keeps it; only its address changes. So a reader's probe never misses.
//! - A slot names the newest record of its key. While a commit is applied but not yet published, `undo` holds
//!   what the slot named before, so a reader that must not see the commit yet can go back one step.
//! - While a snapshot is open, `history` holds what slots named that the snapshot may still see.
//! - The overlay holds every segment it names a record of, as long as it lives.
//! - Entries of one hash are few: from [`FLOOD`] on they go to a map under a secret second hash.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use host::prefetch;
use siphasher::sip::SipHasher24;

use crate::error::Result;
use crate::format::filter::scale;
use crate::hash_filter::HashFilter;
use crate::log::Log;
use crate::opened::Opened;
use crate::sealed::Hold;
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, RwLock, Words, lock, read, write, zeroed,
};

/// Bit of an entry's address that says its record is a DELETE.
pub(crate) const DELETE_BIT: u64 = 1 << 63;
/// Keys of one hash that are compared in turn.
const FLOOD: usize = 8;
/// So many slots are looked at quickly.
const SMALL: usize = 4 << 10;

/// Which commits a reader may see.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sight<'a> {
    /// All that are published.
    Latest(&'a AtomicU64),
    /// All up to this seqno, of which a snapshot is open.
    UpTo(u64),
}

impl Sight<'_> {
    #[inline]
    fn horizon(&self) -> u64 {
        match self {
            Sight::Latest(published) => published.load(Ordering::Acquire),
            Sight::UpTo(seqno) => *seqno,
        }
    }
}

/// What a commit must keep of what it replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// Readers may see records up to this seqno while the commit is under way.
    pub(crate) published: u64,
    /// The newest open snapshot; 0 if there is none.
    pub(crate) snapshot: u64,
}

impl Keep {
    /// Nothing: nobody reads yet.
    pub(crate) const NOTHING: Keep = Keep { published: 0, snapshot: 0 };
}

/// What the overlay knows about a key.
#[derive(Debug)]
pub(crate) enum Lookup<'a> {
    /// Nothing: look further down.
    Absent,
    /// Its newest visible record, which may be a DELETE.
    Found(Opened<'a>),
}

/// Hashes numbers of slots, which nobody can choose.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, number: usize) {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
struct Flooded {
    entry: AtomicU64,
    before: Option<u64>,
}

type Flood = HashMap<(u64, u64), Vec<Flooded>>;

/// Index changes in memory.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// Hash and address alternate.
    slots: Words,
    slot_count: usize,
    used: AtomicUsize,
    filter: HashFilter,
    undo: RwLock<HashMap<usize, u64, BuildHasherDefault<Spread>>>,
    /// Replaced entries by hash.
    history: RwLock<HashMap<u64, Vec<u64>>>,
    /// The segments it names records of, by where they start, and the bytes that died in each before they got any
    /// further than here.
    segments: Mutex<BTreeMap<u64, (Hold, u64)>>,
    /// All of those bytes.
    dead_bytes: AtomicU64,
    flood: RwLock<Flood>,
    flooded: AtomicBool,
    secret: u64,
}

impl Overlay {
    /// An overlay with room for this many entries.
    pub(crate) fn with_room(entries: usize, secret: u64) -> Overlay {
        let slots = entries.saturating_add(entries / 3).max(64);
        Overlay {
            slots: zeroed(slots * 2),
            slot_count: slots,
            used: AtomicUsize::new(0),
            filter: HashFilter::for_keys(u64::try_from(slots / 4 * 3).unwrap_or(u64::MAX)),
            undo: RwLock::default(),
            history: RwLock::default(),
            segments: Mutex::default(),
            dead_bytes: AtomicU64::new(0),
            flood: RwLock::default(),
            flooded: AtomicBool::new(false),
            secret,
        }
    }

    /// Entries in it.
    pub(crate) fn len(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Shows about so many entries from all over, and tells how many.
    pub(crate) fn sample(&self, count: usize, mut visit: impl FnMut(u64, u64)) -> u64 {
        let mut shown = 0;
        // Few entries in few slots are all looked at: where they stand is chance.
        let is_small = self.len() <= count && self.slot_count <= SMALL;
        let step = if is_small { 1 } else { (self.slot_count / (count * 2)).max(1) };
        for at in (0..self.slot_count).step_by(step) {
            let (hash, entry) = self.slot(at);
            if hash != 0 {
                shown += 1;
                visit(hash, entry);
            }
        }
        shown
    }

    /// Entries it can take before it must grow.
    pub(crate) fn room(&self) -> usize {
        self.slot_count / 4 * 3
    }

    /// A copy with at least this much room; the writer's way to grow, between commits.
    pub(crate) fn grown(&self, entries: usize) -> Overlay {
        // While it is small by more at once: every time all entries are placed again.
        let times = if self.room() < SMALL { 8 } else { 2 };
        let grown = Overlay::with_room(entries.max(self.room() * times), self.secret);
        for at in 0..self.slot_count {
            let (hash, entry) = self.slot(at);
            if hash != 0 {
                grown.place(hash, entry);
            }
        }
        let mut flood = Flood::new();
        for (hashes, chain) in read(&self.flood).iter() {
            let copy = |flooded: &Flooded| Flooded {
                entry: AtomicU64::new(flooded.entry.load(Ordering::Relaxed)),
                before: None,
            };
            grown.filter.add(hashes.0);
            flood.insert(*hashes, chain.iter().map(copy).collect());
        }
        grown.used.store(self.len(), Ordering::Relaxed);
        grown.flooded.store(!flood.is_empty(), Ordering::Relaxed);
        *write(&grown.flood) = flood;
        // Who needs the history has a view of the overlay it is in.
        lock(&grown.segments).clone_from(&lock(&self.segments));
        grown.dead_bytes.store(self.dead_bytes(), Ordering::Relaxed);
        grown
    }

    /// Holds a segment that entries are about to name.
    pub(crate) fn hold(&self, segment: &Hold, start: u64) {
        lock(&self.segments).entry(start).or_insert_with(|| (Arc::clone(segment), 0));
    }

    /// Bytes of records that died before an image knew of them.
    pub(crate) fn dead_bytes(&self) -> u64 {
        self.dead_bytes.load(Ordering::Relaxed)
    }

    /// The same by where their segments start.
    pub(crate) fn dead_by_segment(&self) -> Vec<(u64, u64)> {
        let segments = lock(&self.segments);
        let dead = segments.iter().filter(|(_, (_, bytes))| *bytes > 0);
        dead.map(|(start, (_, bytes))| (*start, *bytes)).collect()
    }

    /// Notes that a record it named was replaced.
    fn bury(&self, entry: u64, record: &Opened<'_>) {
        let bytes = record.header.record_len();
        self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut segments = lock(&self.segments);
        if let Some((_, (_, dead))) = segments.range_mut(..=entry & !DELETE_BIT).next_back() {
            *dead += bytes;
        }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        // Mixed with a secret, so that hashes chosen to share low bits do not share a neighbourhood.
        let mixed = (hash ^ self.secret).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        scale(mixed, self.slot_count)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slot_count { 0 } else { at + 1 }
    }

    #[inline]
    fn slot(&self, at: usize) -> (u64, u64) {
        match self.slots.get(2 * at..2 * at + 2) {
            // Acquire: the address was stored before the hash.
            Some([hash, entry]) => (hash.load(Ordering::Acquire), entry.load(Ordering::Acquire)),
            _ => (0, 0),
        }
    }

    /// Finds a key as of the commits in sight.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        sight: Sight<'_>,
    ) -> Result<Lookup<'a>> {
        if !self.filter.may_contain(hash) {
            return Ok(Lookup::Absent);
        }
        // Order: before any slot is read. A slot read first could name a record in the middle of a batch that is
        // published only afterwards.
        let horizon = sight.horizon();
        let mut at = self.home(hash);
        loop {
            let (found, entry) = self.slot(at);
            if found == 0 {
                break;
            }
            if found == hash {
                let record = log.record(entry & !DELETE_BIT)?;
                if record.key() == key {
                    return if record.header.seqno.get() <= horizon {
                        Ok(Lookup::Found(record))
                    } else {
                        self.visible_before(log, at, key, sight)
                    };
                }
            }
            at = self.next(at);
        }
        if self.flooded.load(Ordering::Acquire) {
            return self.find_flooded(log, hash, key, sight);
        }
        Ok(Lookup::Absent)
    }

    /// The record a slot named before a commit that is not published yet, or names now that it is.
    #[cold]
    fn visible_before<'a>(
        &self,
        log: &'a Log,
        at: usize,
        key: &[u8],
        sight: Sight<'_>,
    ) -> Result<Lookup<'a>> {
        let Sight::Latest(published) = sight else {
            return self.find_replaced(log, self.slot(at).0, key, sight.horizon());
        };
        // Under the lock the writer cannot clear `undo`. If the record is still too new after that, its commit is
        // under way, and `undo` tells what the slot named before it; a slot the commit made has no such entry.
        let undo = read(&self.undo);
        // Order: as above.
        let horizon = published.load(Ordering::Acquire);
        let record = log.record(self.slot(at).1 & !DELETE_BIT)?;
        if record.header.seqno.get() <= horizon {
            return Ok(Lookup::Found(record));
        }
        match undo.get(&at) {
            None => Ok(Lookup::Absent),
            Some(before) => Ok(Lookup::Found(log.record(before & !DELETE_BIT)?)),
        }
    }

    /// The newest record of a key up to a seqno, among those that others replaced.
    #[cold]
    fn find_replaced<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        horizon: u64,
    ) -> Result<Lookup<'a>> {
        let history = read(&self.history);
        // Newest last: the first that is old enough is the one.
        for entry in history.get(&hash).into_iter().flatten().rev() {
            let record = log.record(entry & !DELETE_BIT)?;
            if record.key() == key && record.header.seqno.get() <= horizon {
                return Ok(Lookup::Found(record));
            }
        }
        Ok(Lookup::Absent)
    }

    #[cold]
    fn find_flooded<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        sight: Sight<'_>,
    ) -> Result<Lookup<'a>> {
        let flood = read(&self.flood);
        let horizon = sight.horizon();
        for flooded in flood.get(&(hash, self.second_hash(key))).into_iter().flatten() {
            let record = log.record(flooded.entry.load(Ordering::Acquire) & !DELETE_BIT)?;
            if record.key() != key {
                continue;
            }
            if record.header.seqno.get() <= horizon {
                return Ok(Lookup::Found(record));
            }
            return match flooded.before {
                _ if matches!(sight, Sight::UpTo(_)) => self.find_replaced(log, hash, key, horizon),
                None => Ok(Lookup::Absent),
                Some(before) => Ok(Lookup::Found(log.record(before & !DELETE_BIT)?)),
            };
        }
        Ok(Lookup::Absent)
    }

    fn second_hash(&self, key: &[u8]) -> u64 {
        SipHasher24::new_with_keys(self.secret, !self.secret).hash(key)
    }

    /// True if some key of this hash has an entry.
    pub(crate) fn has_hash(&self, hash: u64) -> bool {
        self.peek(hash).is_some()
    }

    /// Loads the home of a hash and the filter's word into the cache; a batch does this for all its keys first.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) {
        self.touch_home(hash);
        self.touch_filter(hash);
    }

    #[inline]
    pub(crate) fn touch_home(&self, hash: u64) {
        if let Some(slot) = self.slots.get(2 * self.home(hash)) {
            prefetch(slot);
        }
    }

    #[inline]
    pub(crate) fn touch_filter(&self, hash: u64) {
        self.filter.touch(hash);
    }

    /// False if no key of this hash has an entry.
    #[inline]
    pub(crate) fn may_have_hash(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The first entry of a hash, if there is one.
    #[inline]
    pub(crate) fn peek(&self, hash: u64) -> Option<u64> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            match self.slot(at) {
                (0, _) => return None,
                (found, entry) if found == hash => return Some(entry),
                _ => at = self.next(at),
            }
        }
    }

    /// Loads the record that a hash names, which will be compared with the next one of its key.
    #[inline]
    pub(crate) fn touch_named(&self, log: &Log, hash: u64) {
        if let Some(entry) = self.peek(hash) {
            log.touch(entry & !DELETE_BIT, 1);
        }
    }

    /// Writer only: names a record unless a newer one of its key has an entry. There must be room. The record was
    /// published long ago.
    pub(crate) fn set_if_newest(&self, log: &Log, hash: u64, entry: u64) -> Result<()> {
        // Mostly there is none of its hash, and the record stays unread: it may be on a disk.
        if !self.has_hash(hash) {
            return self.set(log, hash, entry, Keep::NOTHING);
        }
        let record = log.record(entry & !DELETE_BIT)?;
        let seqno = record.header.seqno.get();
        match self.find(log, hash, record.key(), Sight::UpTo(u64::MAX))? {
            Lookup::Found(known) if known.header.seqno.get() >= seqno => {
                if known.header.seqno.get() > seqno {
                    self.bury(entry, &record);
                }
                Ok(())
            }
            _ => self.set(log, hash, entry, Keep::NOTHING),
        }
    }

    /// Writer only: names the newest record of a key, and keeps what it replaces for those who may see no further.
    /// There must be room.
    pub(crate) fn set(&self, log: &Log, hash: u64, entry: u64, keep: Keep) -> Result<()> {
        let mut at = self.home(hash);
        let mut others = 0;
        // The key is read only if a slot has the same hash: mostly none has.
        let mut own_key = None;
        loop {
            let (found, before) = self.slot(at);
            if found == 0 {
                break;
            }
            if found == hash {
                // A record that cannot be read takes no part in this; the lookup that meets it says so.
                let own = || log.try_key(entry & !DELETE_BIT);
                let key = own_key.get_or_insert_with(own).as_deref();
                let known = log.record(before & !DELETE_BIT).ok();
                if let (Some(key), Some(known)) = (key, known)
                    && known.key() == key
                {
                    self.bury(before, &known);
                    let seqno = known.header.seqno.get();
                    if seqno <= keep.snapshot {
                        self.remember(hash, before);
                    }
                    if seqno <= keep.published {
                        write(&self.undo).insert(at, before);
                    }
                    self.store(at, entry);
                    return Ok(());
                }
                others += 1;
            }
            at = self.next(at);
        }
        if others >= FLOOD {
            let own = log.record(entry & !DELETE_BIT)?;
            return self.set_flooded(log, hash, own.key(), entry, keep);
        }
        self.place_at(at, hash, entry);
        self.used.store(self.len() + 1, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn set_flooded(&self, log: &Log, hash: u64, key: &[u8], entry: u64, keep: Keep) -> Result<()> {
        let second = self.second_hash(key);
        let mut flood = write(&self.flood);
        let chain = flood.entry((hash, second)).or_default();
        for flooded in chain.iter_mut() {
            let before = flooded.entry.load(Ordering::Relaxed);
            let known = log.record(before & !DELETE_BIT)?;
            if known.key() == key {
                self.bury(before, &known);
                if known.header.seqno.get() <= keep.snapshot {
                    self.remember(hash, before);
                }
                if known.header.seqno.get() <= keep.published {
                    flooded.before = Some(before);
                }
                flooded.entry.store(entry, Ordering::Release);
                return Ok(());
            }
        }
        chain.push(Flooded { entry: AtomicU64::new(entry), before: None });
        drop(flood);
        self.filter.add(hash);
        self.used.store(self.len() + 1, Ordering::Relaxed);
        self.flooded.store(true, Ordering::Release);
        Ok(())
    }

    fn remember(&self, hash: u64, entry: u64) {
        let mut history = write(&self.history);
        history.entry(hash).or_default().push(entry);
    }

    /// Writer only: the commit is published, nobody needs to go back any more.
    pub(crate) fn forget_undo(&self) {
        write(&self.undo).clear();
    }

    /// Writer only: no snapshot is open.
    pub(crate) fn forget_history(&self) {
        if !read(&self.history).is_empty() {
            *write(&self.history) = HashMap::new();
        }
    }

    fn place(&self, hash: u64, entry: u64) {
        let mut at = self.home(hash);
        while self.slot(at).0 != 0 {
            at = self.next(at);
        }
        self.place_at(at, hash, entry);
    }

    fn place_at(&self, at: usize, hash: u64, entry: u64) {
        self.filter.add(hash);
        self.store(at, entry);
        if let Some(slot) = self.slots.get(2 * at) {
            // Release: whoever sees the hash sees the address.
            slot.store(hash, Ordering::Release);
        }
    }

    fn store(&self, at: usize, entry: u64) {
        if let Some(slot) = self.slots.get(2 * at + 1) {
            slot.store(entry, Ordering::Release);
        }
    }

    /// Every entry, in no order: hash and address with its DELETE bit.
    pub(crate) fn for_each(&self, visit: impl FnMut(u64, u64)) {
        self.for_each_beside(&Marks::default(), visit);
    }

    /// The same without those of hashes that are marked.
    pub(crate) fn for_each_beside(&self, marks: &Marks, mut visit: impl FnMut(u64, u64)) {
        for at in 0..self.slot_count {
            let (hash, entry) = self.slot(at);
            if hash != 0 && !marks.has(at) {
                visit(hash, entry);
            }
        }
        let flood = read(&self.flood);
        for ((hash, _), chain) in flood.iter() {
            // Some of a flooded hash always have slots.
            if self.slots_of(*hash).any(|at| marks.has(at)) {
                continue;
            }
            for flooded in chain {
                visit(*hash, flooded.entry.load(Ordering::Acquire));
            }
        }
    }

    /// Marks a hash, if it is there.
    pub(crate) fn mark(&self, hash: u64, marks: &mut Marks) {
        if self.filter.may_contain(hash) {
            self.slots_of(hash).for_each(|at| marks.add(at));
        }
    }

    fn slots_of(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let all = std::iter::successors(Some(self.home(hash)), |at| Some(self.next(*at)));
        let all = all.map(|at| (at, self.slot(at).0)).take_while(|(_, found)| *found != 0);
        all.filter_map(move |(at, found)| (found == hash).then_some(at))
    }
}

/// Slots of one overlay: a bit each.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    words: Vec<u64>,
}

impl Marks {
    fn add(&mut self, at: usize) {
        if self.words.len() <= at / 64 {
            self.words.resize(at / 64 + 1, 0);
        }
        if let Some(word) = self.words.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn has(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// It was looked for in its home only, and batches of cold lookups waited for a third of their records one by one.
    #[test]
    fn an_entry_is_told_wherever_it_stands() {
        let overlay = Overlay::with_room(3000, 7);
        let hashes = || (1..=3000_u64).map(|number| number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        hashes().zip(1..).for_each(|(hash, entry)| overlay.place(hash, entry));
        let is_home = |hash: &u64| overlay.slot(overlay.home(*hash)).0 == *hash;
        assert!(hashes().filter(|hash| !is_home(hash)).count() > 500, "all are at home");
        assert!(hashes().zip(1..).all(|(hash, entry)| overlay.peek(hash) == Some(entry)));
    }
}
