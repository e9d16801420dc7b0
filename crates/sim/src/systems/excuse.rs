//! What a call may fail for. An error without an excuse is a failure of the system.

/// What was done to the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Excuse {
    /// When power fails, as the machine counts, and what it leaves.
    pub(crate) power: Option<(u64, u64)>,
    pub(crate) is_faulty: bool,
    /// Bytes that the file may have.
    pub(crate) limit: Option<u64>,
}

impl Excuse {
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
        let (at, _) = self.power.as_mut()?;
        *at = at.saturating_sub(count);
        Some(*at)
    }
}
