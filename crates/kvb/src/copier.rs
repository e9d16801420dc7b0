//! Writing a bucket that holds given records and nothing else: what backups, restores, repairs and changes of key end in.
//!
//! Records come in the order of their keys and keep seqno, stamp and deadline. They go to segments of moved records, one
//! behind the other, as after a compaction of everything. Nothing counts before [`Copier::finish`]: until then the new file
//! is a bucket with a part of the records, under a name that nobody uses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::{Disk, Env};
use zerocopy::little_endian::U64;

use crate::bucket::Bucket;
use crate::core::{Core, Fixed, Position, lock};
use crate::error::{Error, Result};
use crate::format::lineage::Lineage;
use crate::format::record::{DELETE, ENC_RAW, ENC_ZSTD, RecordHeader};
use crate::format::superblock::{FLAG_NO_DIRECTORY, FLAG_SIPHASH, FLAG_ZSTD};
use crate::opened::Opened;
use crate::options::{Compression, Durability, HashKind, Options};
use crate::output::{ORIGIN_NONE, Output, OutputPages};

/// Largest segment written, in bytes.
const OUTPUT_BYTES: u64 = 64 << 20;
/// Most records in one.
const OUTPUT_RECORDS: u64 = 512 << 10;
/// Records between two index images. Each leaves a hole in the file where it was, so there should be one.
const IMAGE_RECORDS: usize = 4 << 20;

impl Options {
    /// Options for a bucket made like one that is there, opened with these options.
    pub(crate) fn like(fixed: &Fixed, opened_with: &Options) -> Options {
        let is = |flag: u64| fixed.flags & flag != 0;
        Options {
            page_size: u32::try_from(fixed.geometry.page_size).unwrap_or(4096),
            index_bytes: fixed.geometry.paddr(fixed.index_page_min),
            journal_pages: fixed.journal_page_count,
            max_value: fixed.max_value,
            segment_bytes_max: fixed.geometry.paddr(fixed.segment_page_max),
            hash: if is(FLAG_SIPHASH) { HashKind::SipHash } else { HashKind::Xxh3 },
            directories: !is(FLAG_NO_DIRECTORY),
            compression: if is(FLAG_ZSTD) { Compression::Zstd } else { Compression::None },
            ..opened_with.clone()
        }
    }
}

/// A bucket being written.
pub(crate) struct Copier {
    bucket: Bucket,
    output: Option<Output>,
    scratch: Vec<u8>,
    /// Bytes of records still to come, estimated.
    bytes_ahead: u64,
    /// Records written.
    pub(crate) records: u64,
    /// Bytes of them.
    pub(crate) bytes: u64,
}

impl Copier {
    /// Makes a bucket on an empty disk, for about so many bytes of records up to a seqno. It goes on from the time of the
    /// clock they were stamped by.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
        bytes_ahead: u64,
        seqno: u64,
        clock_ns: u64,
    ) -> Result<Copier> {
        let options =
            options.background(false).durability(Durability::Relaxed).overlay_min(IMAGE_RECORDS);
        let bucket = Bucket::create_on(disk, env, options)?;
        let core = bucket.core();
        {
            // As if the records had been committed here one after the other.
            let mut writer = core.lock_writer();
            let mut keeper = core.lock_keeper();
            writer.next_seqno = writer.next_seqno.max(seqno + 1);
            keeper.tail_seqno = writer.next_seqno;
            keeper.dropped_seqno = seqno;
            *lock(&core.position) = Position { seqno, paddr: 0 };
            core.published.store(seqno, Ordering::Release);
            core.clock.go_on_from(clock_ns);
        }
        let scratch = Vec::new();
        Ok(Copier { bucket, output: None, scratch, bytes_ahead, records: 0, bytes: 0 })
    }

    fn core(&self) -> &Core {
        self.bucket.core()
    }

    /// Adds the next record: a header of which seqno, stamp, kind and time to live count, a key, and a value as it is
    /// stored in `form`, which `expand` gives in the clear if this bucket stores it otherwise.
    pub(crate) fn push(
        &mut self,
        header: &RecordHeader,
        key: &[u8],
        stored: &[u8],
        expand: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        let core = self.bucket.core();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let form = match header.form() {
            ENC_RAW if header.kind == DELETE || core.codec.level().is_none() => {
                scratch.extend_from_slice(stored);
                ENC_RAW
            }
            ENC_RAW => core.codec.store(stored, &mut scratch),
            ENC_ZSTD if core.codec.level().is_some() => {
                scratch.extend_from_slice(stored);
                ENC_ZSTD
            }
            _ => core.codec.store(&expand()?, &mut scratch),
        };
        let mut header = *header;
        header.enc = form | core.fixed.enc();
        header.hash64 = U64::new(core.hash.hash64(key));
        header.val_len.set(u32::try_from(scratch.len()).unwrap_or(u32::MAX));
        let pushed = self.push_stored(header, key, &scratch);
        self.scratch = scratch;
        pushed
    }

    fn push_stored(&mut self, header: RecordHeader, key: &[u8], stored: &[u8]) -> Result<()> {
        let len = header.record_len();
        let is_full = |output: &Output, core: &Core| {
            !output.fits(core, len) || output.segment.count() >= OUTPUT_RECORDS
        };
        if self.output.as_ref().is_some_and(|output| is_full(output, self.core())) {
            self.close_output()?;
        }
        if self.output.is_none() {
            self.output = Some(self.core().begin_copy(len, self.bytes_ahead)?);
        }
        let core = self.bucket.core();
        let output = self.output.as_mut().ok_or(Error::NoSpace)?;
        output.push_as(core, header, key, stored, ORIGIN_NONE)?;
        self.records += 1;
        self.bytes += len;
        self.bytes_ahead = self.bytes_ahead.saturating_sub(len);
        Ok(())
    }

    fn close_output(&mut self) -> Result<()> {
        let Some(mut output) = self.output.take() else { return Ok(()) };
        let core = self.core();
        let entry = core.finish_output(&mut output, false)?;
        core.apply_output(&output)?;
        core.freeze_wanted.store(true, Ordering::Release);
        core.end_moving(Some(entry.seg_id.get()))
    }

    /// Adds the next record as it was found in another bucket.
    pub(crate) fn push_opened(
        &mut self,
        record: &Opened<'_>,
        expand: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<()> {
        self.push(record.header, record.key(), record.stored(), expand)
    }

    /// Writes what is left and closes the bucket, of which it is known what it is a copy of.
    pub(crate) fn finish(mut self, lineage: Option<Lineage>) -> Result<(u64, u64)> {
        self.close_output()?;
        self.core().lock_keeper().lineage = lineage;
        let core = self.core();
        core.freeze_any();
        core.merge()?;
        let (records, bytes) = (self.records, self.bytes);
        self.bucket.flush()?;
        self.trim()?;
        self.bucket.close()?;
        Ok((records, bytes))
    }
}

impl Copier {
    /// Cuts off what is free at the end of the file. Nobody else has it open, and nothing counts yet, so the order of steps
    /// does not matter.
    fn trim(&self) -> Result<()> {
        let core = self.core();
        let mut keeper = core.lock_keeper();
        let spares = [keeper.image_spare.take(), keeper.table_spare.take()];
        for spare in spares.into_iter().flatten() {
            keeper.space.give_back(spare);
        }
        keeper.space.lower_high_water();
        keeper.b_page = keeper.space.high_water();
        let b_page = keeper.b_page;
        keeper.space.set_raw_end(b_page);
        keeper.full_checkpoint(core)?;
        // Where the checkpoint needed room after all, it stands behind that.
        let len = core.geometry().paddr(keeper.b_page + 1);
        core.disk.set_len(len).map_err(Error::io("cut off free space"))?;
        core.disk.sync().map_err(Error::io("sync the new file"))
    }
}

impl Core {
    /// Begins a segment of records that are nowhere in this bucket yet.
    fn begin_copy(&self, record_len: u64, bytes_ahead: u64) -> Result<Output> {
        let geometry = self.geometry();
        let style = self.fixed.style();
        let least =
            crate::segment::sealed_page_count(geometry, style, style.header_len() + record_len, 1);
        // Side data takes about an eighth of small records.
        let wanted = geometry.pages((bytes_ahead + bytes_ahead / 4 + (16 << 10)).min(OUTPUT_BYTES));
        self.is_moving.store(true, Ordering::Release);
        self.begin_output(OutputPages { wanted: least.max(wanted), least }, 0, false)
    }
}
