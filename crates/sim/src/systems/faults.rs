//! Calls of a disk that are to fail, and those of them that did.

use host::{Fault, Op, SimDisk};

use crate::Tally;

/// What was planned for one disk.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    calls: Vec<Call>,
    /// The number of the read that fails, and how many came before it when that was planned.
    read: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Call {
    at: u64,
    fault: Fault,
    is_lasting: bool,
    /// Syncs that had failed before.
    failed_syncs: usize,
}

fn failed_syncs(disk: &SimDisk) -> usize {
    disk.trace().ops().iter().filter(|op| matches!(op, Op::SyncFailed { .. })).count()
}

impl Faults {
    /// Lets a call fail, so many from now, or all from then on.
    pub(crate) fn fail(&mut self, disk: &SimDisk, calls: u64, fault: Fault, is_lasting: bool) {
        let at = disk.op_count() + calls;
        match is_lasting {
            true => disk.fail_from(at, fault),
            false => disk.fail(at, fault),
        }
        // One that has not begun yet gives way to it, as it does on the disk.
        let is_over = |call: &Call| match is_lasting {
            true => call.is_lasting && call.at >= disk.op_count(),
            false => !call.is_lasting && call.at == at,
        };
        self.calls.retain(|call| !is_over(call));
        self.calls.push(Call { at, fault, is_lasting, failed_syncs: failed_syncs(disk) });
    }

    /// Lets a read fail, so many from now.
    pub(crate) fn fail_read(&mut self, disk: &SimDisk, reads: u64) {
        let before = disk.read_count();
        disk.fail_read(before + reads, Fault::Eio);
        self.read = Some((before + reads, reads));
    }

    /// Counts what failed, before the disk forgets what was planned. When power fails, the last call fails for that.
    pub(crate) fn count(&mut self, disk: &SimDisk, is_off: bool, tally: &mut Tally) {
        let made = disk.op_count().saturating_sub(u64::from(is_off));
        for call in self.calls.drain(..).filter(|call| call.at < made) {
            match call.fault {
                Fault::Enospc => tally.count("calls that found no room"),
                Fault::SyncFailsThenLies if failed_syncs(disk) > call.failed_syncs => {
                    tally.count("syncs that failed");
                }
                _ => tally.count("calls that failed"),
            }
        }
        if self.read.is_some_and(|(at, _)| at < disk.read_count()) {
            tally.count("reads that failed");
            self.read = None;
        }
    }

    /// A read that has not failed yet may be one of the process that opens the disk next. True if it is to fail there.
    pub(crate) fn begin_anew(&mut self, disk: &SimDisk) -> bool {
        if let Some((_, reads)) = self.read.take() {
            self.fail_read(disk, reads);
        }
        self.read.is_some()
    }

    /// Nothing fails from now on.
    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.read = None;
    }
}
