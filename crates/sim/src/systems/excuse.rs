//! What a call may fail for. An error without an excuse is a failure of the system.

use host::{Disk, Limit, SimDisk};

/// What was done to the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuse {
    /// When power fails, as the machine counts, and what it leaves.
    pub(crate) power: Option<(u64, u64)>,
    /// When it fails once more, as the machine counts that recovers from it, and what that leaves.
    again: Option<(u64, u64)>,
    pub(crate) is_faulty: bool,
    /// What the disk has room for.
    pub(crate) limit: Option<Limit>,
}

impl Excuse {
    /// From now on the disk has no more than so much room: half of the time as a length, else in blocks.
    pub(crate) fn fill(&mut self, disk: &SimDisk, room: u64) {
        self.limit = Some(match room % 2 {
            0 => Limit::Length(disk.len().unwrap_or(0) + room),
            _ => Limit::Blocks(disk.block_bytes() + room),
        });
        disk.set_limit(self.limit);
    }

    /// Power fails, and perhaps again while somebody recovers from that.
    pub(crate) fn lose_power(&mut self, at: u64, image: u64, again: Option<u64>) {
        self.power = Some((at, image));
        self.again = again.map(|at| (at, !image));
    }

    /// A call may find no room.
    pub(crate) fn covers_full(&self) -> bool {
        self.limit.is_some() || self.is_faulty
    }

    /// A call may fail.
    pub(crate) fn covers_failure(&self) -> bool {
        self.power.is_some() || self.is_faulty
    }

    /// Nothing fails from now on. Something may have failed already, and what has stopped stays so.
    pub(crate) fn relieve(&mut self) {
        *self = Excuse { is_faulty: self.is_faulty, ..Excuse::default() };
    }

    /// What power leaves that is gone.
    pub(crate) fn take_image(&mut self) -> u64 {
        self.power.take().map_or(0, |(_, image)| image)
    }

    /// Another process begins when the machine has counted so far, and it counts anew. Power that fails later, perhaps while the
    /// process recovers, fails so far from there.
    pub(crate) fn begin_anew(&mut self, count: u64) -> Option<u64> {
        self.is_faulty = false;
        if self.power.is_none() {
            self.power = self.again.take();
            return self.power.map(|(at, _)| at);
        }
        let (at, _) = self.power.as_mut()?;
        *at = at.saturating_sub(count);
        Some(*at)
    }
}
