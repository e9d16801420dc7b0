//! The bulletin: a page of the file in which a writer tells readers in other processes where it is.
//!
//! It is a notice and never part of what is durable: mounting a bucket for writing does not look at it, and a reader
//! looks at it only to see whether something has changed, and how far a living writer has published. Words:
//!
//! | word | meaning |
//! |---|---|
//! | 0 | session: a random number per writer; 0 while a writer mounts |
//! | 1 | highest seqno readers may see |
//! | 2 | how often space was given up, raised before anything is written over it |
//! | 3 | id of the index image |
//!
//! A writer that is alive has a pin on byte 0 of the file's lock space. A reader that needs what it sees to stay pins the
//! byte of the epoch it mounted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::{Board, Disk, Pin};

use crate::core::Fixed;
use crate::error::{Error, Result};

/// The byte of the lock space that a writer pins.
const WRITER_BYTE: u64 = 0;

const SESSION: usize = 0;
const PUBLISHED: usize = 1;
const RETIRED: usize = 2;
const IMAGE: usize = 3;

/// What must not change while a reader looks at the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) session: u64,
    retired: u64,
}

/// The bulletin of a bucket.
#[derive(Debug)]
pub(crate) struct Bulletin {
    board: Board,
    disk: Arc<dyn Disk>,
    /// A writer's sign of life.
    _alive: Option<Pin>,
}

impl Bulletin {
    /// A reader's.
    pub(crate) fn read(disk: &Arc<dyn Disk>, fixed: &Fixed) -> Result<Bulletin> {
        let board = board(disk, fixed)?;
        Ok(Bulletin { board, disk: Arc::clone(disk), _alive: None })
    }

    /// A writer's, which has the bucket's lock and has not changed anything yet.
    pub(crate) fn take_over(disk: &Arc<dyn Disk>, fixed: &Fixed) -> Result<Bulletin> {
        let board = board(disk, fixed)?;
        // Order: whoever sees the sign of life must not believe what the last writer left here.
        board.store(SESSION, 0, Ordering::SeqCst);
        // Where nobody can pin, readers do not know of the writer: they see what is written before it is published.
        let alive = disk.pin(WRITER_BYTE).ok();
        Ok(Bulletin { board, disk: Arc::clone(disk), _alive: alive })
    }

    /// Begins a session at a seqno.
    pub(crate) fn begin(&self, session: u64, published: u64, image_id: u64) {
        self.board.store(PUBLISHED, published, Ordering::Release);
        self.board.store(IMAGE, image_id, Ordering::Release);
        self.board.store(SESSION, session.max(1), Ordering::SeqCst);
    }

    /// Readers may see everything up to a seqno.
    #[inline]
    pub(crate) fn publish(&self, seqno: u64) {
        self.board.store(PUBLISHED, seqno, Ordering::Release);
    }

    /// There is a new image.
    pub(crate) fn note_image(&self, id: u64) {
        self.board.store(IMAGE, id, Ordering::Release);
    }

    /// Space is about to be written over that readers may look at: they must look again.
    pub(crate) fn retire(&self) {
        let count = self.board.load(RETIRED, Ordering::Relaxed);
        self.board.store(RETIRED, count.wrapping_add(1), Ordering::SeqCst);
    }

    /// True if a reader may still need what checkpoints from this epoch on do not name.
    pub(crate) fn is_needed(&self, epoch: u64) -> Result<bool> {
        self.disk.is_pinned(epoch).map_err(Error::io("ask for readers"))
    }

    /// What a reader compares before and after it looks at the file.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            session: self.board.load(SESSION, Ordering::Acquire),
            retired: self.board.load(RETIRED, Ordering::Acquire),
        }
    }

    /// The seqno up to which readers may see.
    #[inline]
    pub(crate) fn published(&self) -> u64 {
        self.board.load(PUBLISHED, Ordering::Acquire)
    }

    /// The writer's image.
    pub(crate) fn image_id(&self) -> u64 {
        self.board.load(IMAGE, Ordering::Acquire)
    }

    /// All its words, in their order.
    pub(crate) fn words(&self) -> [u64; 4] {
        [SESSION, PUBLISHED, RETIRED, IMAGE].map(|word| self.board.load(word, Ordering::Acquire))
    }

    /// True if a writer is alive.
    pub(crate) fn has_writer(&self) -> Result<bool> {
        self.disk.is_pinned(WRITER_BYTE + 1).map_err(Error::io("ask for a writer"))
    }

    /// Keeps everything that a checkpoint of this epoch names from being given up.
    pub(crate) fn pin(&self, epoch: u64) -> Result<Pin> {
        self.disk.pin(epoch.max(WRITER_BYTE + 1)).map_err(Error::io("pin the bucket's space"))
    }
}

fn board(disk: &Arc<dyn Disk>, fixed: &Fixed) -> Result<Board> {
    let at = fixed.geometry.paddr(fixed.bulletin_page);
    disk.board(at).map_err(Error::io("map the bulletin"))
}
