//! The simulated disk: it behaves like a real one while power lasts, remembers everything that was
//! asked of it, and can say what a real one might hold after power was lost at any moment.
//!
//! Invariants
//! - The trace holds every change in the order it took effect, so that the initial image and a
//!   prefix of the trace determine all legal images of a crash at that point ([`Trace`]).
//! - A call that fails leaves the trace and the live bytes as they were, except where its [`Fault`]
//!   says otherwise.
//! - Boards and pins belong to the running machine and not to the medium: using them is no
//!   operation of the trace and meets no fault, and a disk made from an image has none of them.

#![allow(clippy::expect_used, reason = "a disk for tests, which fail by panicking")]

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer::{Buffer, REGION, end_of};
use crate::claim::Claim;
use crate::disk::{Disk, LockError};
use crate::map::{Board, Mapping};
use crate::pin::{Pin, Pins};

use self::blocks::{Blocks, covered, touched};

mod blocks;
mod dice;
mod dir;
mod image;
mod point;
mod trace;

pub use dir::SimDir;
pub use image::Keep;
pub use point::Point;
pub use trace::{Op, Points, Trace};

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error; nothing was changed. A failed sync leaves everything pending.
    Eio,
    /// `StorageFull`; nothing was changed.
    Enospc,
    /// The first half of the data is written, then an input/output error. Calls that write no data
    /// fail as with `Eio`.
    ShortWrite,
    /// The sync fails and the system forgets what was dirty: those sectors may still be found old,
    /// new or in between after power loss, and no later sync changes that unless they are written
    /// again. Calls that are not syncs fail as with `Eio`.
    SyncFailsThenLies,
    /// Power is lost during the call: it fails, as does every later call of any kind. What it would
    /// have written counts as pending, so it may be found after the crash, in part or whole.
    PowerLoss,
}

/// How much a disk has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// A file of so many bytes, holes included.
    Length(u64),
    /// So many bytes of blocks of 4 KiB. Holes take none, so a file may be longer, and writing to a hole may fail. An allocation
    /// that fails keeps the blocks that it got inside the file, as on ext4 and XFS.
    Blocks(u64),
}

/// One handle to a simulated file.
///
/// A clone is a handle of its own to the same file, as if it had been opened once more: it does not
/// hold the lock of the handle it came from, nor its pins. Trace and faults belong to the file.
///
/// Boards are kept apart from the bytes: they begin as zeros whatever the page holds, no image
/// contains them, and reading the page does not show them.
#[derive(Debug)]
pub struct SimDisk {
    file: Arc<Mutex<Simulated>>,
    claim: Arc<Claim>,
    pins: Arc<Pins>,
}

#[derive(Debug)]
struct Simulated {
    live: Buffer,
    initial: Arc<Vec<u8>>,
    ops: Vec<Op>,
    blocks: Blocks,
    limit: Option<Limit>,
    calls: Counted,
    reads: Counted,
    power: Arc<Power>,
}

impl SimDisk {
    /// An empty file.
    pub fn new() -> Self {
        Self::from_image(Vec::new())
    }

    /// A file with these contents, all of them durable.
    pub fn from_image(image: Vec<u8>) -> Self {
        Self::with_region(image, REGION)
    }

    /// As `from_image`, moving to larger memory, and having to be mapped again, past `region`
    /// bytes.
    pub fn with_region(image: Vec<u8>, region: u64) -> Self {
        Self::powered(image, region, Arc::default())
    }

    fn powered(image: Vec<u8>, region: u64, power: Arc<Power>) -> Self {
        let mut live = Buffer::new(region).expect("address space for a simulated file");
        live.write(0, &image).expect("memory for the contents");
        let blocks = Blocks::of_len(live.len());
        let file = Simulated {
            live,
            initial: Arc::new(image),
            ops: Vec::new(),
            blocks,
            limit: None,
            calls: Counted::default(),
            reads: Counted::default(),
            power,
        };
        Self::over(Arc::new(Mutex::new(file)), Claim::new())
    }

    fn over(file: Arc<Mutex<Simulated>>, claim: Arc<Claim>) -> Self {
        let pins = Pins::of_claim(&claim);
        SimDisk { file, claim, pins }
    }

    /// A new handle to the same file, not holding the lock.
    pub fn reopen(&self) -> Self {
        Self::over(Arc::clone(&self.file), self.claim.sibling())
    }

    /// A copy of the live contents, as a reader sees them while power lasts.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.file().live.bytes().to_vec()
    }

    /// Everything that has happened to this file.
    pub fn trace(&self) -> Trace {
        let file = self.file();
        Trace::new(Arc::clone(&file.initial), file.ops.clone())
    }

    /// Notes in the trace that the test has reached a point, such as an acknowledged commit.
    pub fn mark(&self, mark: u64) {
        self.file().ops.push(Op::Mark(mark));
    }

    /// Calls made so far of `write_at`, `set_len`, `allocate`, `punch`, `sync` and `sync_range`,
    /// failed ones included. This is the number [`SimDisk::fail`] counts in.
    pub fn op_count(&self) -> u64 {
        self.file().calls.count
    }

    /// Calls of `read_at` made so far; the number [`SimDisk::fail_read`] counts in.
    pub fn read_count(&self) -> u64 {
        self.file().reads.count
    }

    /// Lets the changing or syncing call with number `op_index`, counted from 0, fail.
    pub fn fail(&self, op_index: u64, fault: Fault) {
        self.file().calls.once.insert(op_index, fault);
    }

    /// Lets every such call from number `op_index` on fail.
    pub fn fail_from(&self, op_index: u64, fault: Fault) {
        self.file().calls.from = Some((op_index, fault));
    }

    /// Lets the `read_at` with number `read_index`, counted from 0, fail: with `PowerLoss` for
    /// good, with anything else once, as an input/output error.
    pub fn fail_read(&self, read_index: u64, fault: Fault) {
        self.file().reads.once.insert(read_index, fault);
    }

    /// Takes back all faults that have not happened yet.
    pub fn clear_faults(&self) {
        let mut file = self.file();
        file.calls.clear();
        file.reads.clear();
    }

    /// Limits the length the file may reach; calls that would pass it give `StorageFull` and change
    /// nothing.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.set_limit(bytes.map(Limit::Length));
    }

    /// The same with any limit. What is over it already stays.
    pub fn set_limit(&self, limit: Option<Limit>) {
        self.file().limit = limit;
    }

    /// Bytes of the blocks that the file has. All of those of a file that was made from an image.
    pub fn block_bytes(&self) -> u64 {
        self.file().blocks.bytes()
    }

    /// Cuts the power now, between two calls.
    pub fn power_off(&self) {
        self.file().power.cut();
    }

    /// The file as the next process finds it if the one that has it dies now while power lasts: with everything that was
    /// written, synced or not, and what was not synced can still be lost. Faults, locks and pins are gone.
    pub fn after_death(&self) -> SimDisk {
        self.buried(Arc::default())
    }

    fn buried(&self, power: Arc<Power>) -> SimDisk {
        let file = self.file();
        let left = Self::powered(file.live.bytes().to_vec(), REGION, power);
        {
            let mut found = left.file();
            found.initial = Arc::clone(&file.initial);
            found.ops.clone_from(&file.ops);
            found.blocks.clone_from(&file.blocks);
        }
        left
    }

    fn file(&self) -> MutexGuard<'_, Simulated> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Simulated {
    /// Carries out one call, or fails it as planned.
    fn run(&mut self, op: Op) -> io::Result<()> {
        self.power.check()?;
        let planned = self.calls.next();
        let fault = if self.power.dies_now() { Some(Fault::PowerLoss) } else { planned };
        match fault {
            None => self.apply(op),
            Some(Fault::Eio) => Err(injected()),
            Some(Fault::Enospc) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::ShortWrite) => {
                if let Op::Write { offset, data } = op {
                    let half = data.get(..data.len() / 2).unwrap_or_default();
                    self.apply(Op::Write { offset, data: Arc::from(half) })?;
                }
                Err(injected())
            }
            Some(Fault::SyncFailsThenLies) => {
                match op {
                    Op::Sync => self.ops.push(Op::SyncFailed { offset: 0, len: u64::MAX }),
                    Op::SyncRange { offset, len } => self.ops.push(Op::SyncFailed { offset, len }),
                    _ => {}
                }
                Err(injected())
            }
            Some(Fault::PowerLoss) => {
                self.power.cut();
                // An unfinished sync promises nothing, which is what its absence from the trace
                // says.
                if !matches!(op, Op::Sync | Op::SyncRange { .. }) {
                    // Refused or not, the caller learns only that power is gone.
                    let _outcome = self.apply(op);
                }
                self.power.check()
            }
        }
    }

    fn apply(&mut self, op: Op) -> io::Result<()> {
        match &op {
            Op::Write { offset, data } => {
                let len = u64::try_from(data.len()).unwrap_or(u64::MAX);
                self.check_length(end_of(*offset, len)?)?;
                self.take_blocks(*offset, len)?;
                self.live.write(*offset, data)?;
            }
            Op::SetLen(len) => {
                self.check_length(*len)?;
                self.live.set_len(*len)?;
                self.blocks.remove(covered(*len, u64::MAX));
            }
            Op::Allocate { offset, len } => {
                let end = end_of(*offset, *len)?;
                self.check_length(end)?;
                if let Err(full) = self.take_blocks(*offset, *len) {
                    self.take_some(*offset, *len);
                    return Err(full);
                }
                if *len > 0 && end > self.live.len() {
                    self.live.set_len(end)?;
                }
            }
            Op::Punch { offset, len } => {
                self.live.punch(*offset, *len);
                self.blocks.remove(covered(*offset, *len));
            }
            Op::Sync | Op::SyncRange { .. } | Op::SyncFailed { .. } | Op::Mark(_) => {}
        }
        self.ops.push(op);
        Ok(())
    }

    fn check_length(&self, end: u64) -> io::Result<()> {
        // A file that is over the limit already may still be rewritten or made shorter.
        match self.limit {
            Some(Limit::Length(limit)) if end > limit && end > self.live.len() => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    fn take_blocks(&mut self, offset: u64, len: u64) -> io::Result<()> {
        let range = touched(offset, len);
        let missing = self.blocks.missing(range.clone());
        match self.limit {
            Some(Limit::Blocks(limit))
                if missing > 0 && self.blocks.bytes() + missing * blocks::BLOCK > limit =>
            {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => {
                self.blocks.add(range);
                Ok(())
            }
        }
    }

    /// What is left of a full disk, for the first holes of a range.
    fn take_some(&mut self, offset: u64, len: u64) {
        let Some(Limit::Blocks(limit)) = self.limit else { return };
        let inside = len.min(self.live.len().saturating_sub(offset));
        for block in touched(offset, inside) {
            let missing = self.blocks.missing(block..block + 1) * blocks::BLOCK;
            if self.blocks.bytes() + missing > limit {
                break;
            }
            self.blocks.add(block..block + 1);
        }
    }
}

impl Default for SimDisk {
    fn default() -> Self {
        SimDisk::new()
    }
}

impl Clone for SimDisk {
    fn clone(&self) -> Self {
        self.reopen()
    }
}

impl Disk for SimDisk {
    fn len(&self) -> io::Result<u64> {
        let file = self.file();
        file.power.check()?;
        Ok(file.live.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file().run(Op::SetLen(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file().run(Op::Allocate { offset, len })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut file = self.file();
        file.power.check()?;
        match file.reads.next() {
            None => file.live.read(offset, buf),
            Some(Fault::PowerLoss) => {
                file.power.cut();
                file.power.check()
            }
            Some(_) => Err(injected()),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let data = Arc::from(buf);
        self.file().run(Op::Write { offset, data })
    }

    fn sync(&self) -> io::Result<()> {
        self.file().run(Op::Sync)
    }

    fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file().run(Op::SyncRange { offset, len })
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file().run(Op::Punch { offset, len })
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        let mut file = self.file();
        file.power.check()?;
        file.live.map(len, Arc::<Claim>::clone(&self.claim))
    }

    fn lock(&self) -> Result<(), LockError> {
        self.file().power.check().map_err(LockError::Io)?;
        self.claim.lock()
    }

    fn board(&self, offset: u64) -> io::Result<Board> {
        let mut file = self.file();
        file.power.check()?;
        file.live.board(offset, Arc::<Claim>::clone(&self.claim))
    }

    fn pin(&self, byte: u64) -> io::Result<Pin> {
        self.file().power.check()?;
        self.pins.pin(byte)
    }

    fn is_pinned(&self, below: u64) -> io::Result<bool> {
        self.file().power.check()?;
        self.pins.is_pinned(below)
    }
}

/// Calls of one kind, counted, and the faults planned for them.
#[derive(Debug, Default)]
struct Counted {
    count: u64,
    once: BTreeMap<u64, Fault>,
    from: Option<(u64, Fault)>,
}

impl Counted {
    fn next(&mut self) -> Option<Fault> {
        let number = self.count;
        self.count += 1;
        let forever = self.from.filter(|(first, _)| number >= *first).map(|(_, fault)| fault);
        self.once.remove(&number).or(forever)
    }

    fn clear(&mut self) {
        self.once.clear();
        self.from = None;
    }
}

/// The power supply of one machine: a disk alone, or a directory with its disks.
#[derive(Debug)]
struct Power {
    off: AtomicBool,
    steps: AtomicU64,
    dies_at: AtomicU64,
}

impl Default for Power {
    fn default() -> Self {
        let dies_at = AtomicU64::new(u64::MAX);
        Power { off: AtomicBool::new(false), steps: AtomicU64::new(0), dies_at }
    }
}

impl Power {
    fn check(&self) -> io::Result<()> {
        if self.off.load(Ordering::SeqCst) { Err(io::Error::other("power lost")) } else { Ok(()) }
    }

    fn cut(&self) {
        self.off.store(true, Ordering::SeqCst);
    }

    /// Counts one changing step of the machine; true if power is to fail during it.
    fn dies_now(&self) -> bool {
        self.steps.fetch_add(1, Ordering::SeqCst) >= self.dies_at.load(Ordering::SeqCst)
    }
}

fn injected() -> io::Error {
    io::Error::other("simulated input/output error")
}
