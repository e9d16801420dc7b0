//! The floor's index: one flat open-addressing table of 16-byte slots with linear probing.
//!
//! Invariants: the slot count is a power of two and at most 7/8 are used, so every probe ends at
//! an empty slot. `offset` is never zero in a used slot. Removal shifts the run back; there are no
//! tombstones.

use std::fs::File;
use std::io::{Read, Seek};
use std::mem::size_of;

use anyhow::{Result, ensure};

const SLOT_COUNT_MIN: usize = 1024;

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Slot {
    pub hash: u64,
    pub offset: u64,
}

pub struct Table {
    slots: Vec<Slot>,
    used: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: vec![Slot::default(); SLOT_COUNT_MIN], used: 0 }
    }
}

impl Table {
    /// The offset under `hash` for which `same` holds.
    pub fn get(&self, hash: u64, same: impl Fn(u64) -> bool) -> Option<u64> {
        let slot = self.slots[self.probe(hash, same)];
        (slot.offset != 0).then_some(slot.offset)
    }

    /// Sets `slot`, in place of the one for which `same` holds.
    pub fn insert(&mut self, slot: Slot, same: impl Fn(u64) -> bool) {
        if self.used * 8 >= self.slots.len() * 7 {
            self.grow();
        }
        let position = self.probe(slot.hash, same);
        self.used += usize::from(self.slots[position].offset == 0);
        self.slots[position] = slot;
    }

    /// Removes the slot under `hash` for which `same` holds.
    pub fn remove(&mut self, hash: u64, same: impl Fn(u64) -> bool) {
        let mask = self.slots.len() - 1;
        let mut hole = self.probe(hash, same);
        if self.slots[hole].offset == 0 {
            return;
        }
        self.used -= 1;
        let mut position = hole;
        loop {
            position = (position + 1) & mask;
            let slot = self.slots[position];
            if slot.offset == 0 {
                break;
            }
            // A slot may fill the hole only if that does not put it before its home.
            let home = slot.hash as usize & mask;
            if position.wrapping_sub(home) & mask >= position.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = position;
            }
        }
        self.slots[hole] = Slot::default();
    }

    /// Reads a table written from [`Table::as_bytes`], from here to the end of `file`.
    pub fn read(file: &mut File) -> Result<Self> {
        let rest_len = file.metadata()?.len() - file.stream_position()?;
        let slot_count = usize::try_from(rest_len)? / size_of::<Slot>();
        ensure!(slot_count.is_power_of_two(), "the saved table is damaged");
        let mut slots = vec![Slot::default(); slot_count];
        // SAFETY: `Slot` is two integers without padding; any bytes are a valid slot.
        let (_, bytes, _) = unsafe { slots.align_to_mut::<u8>() };
        file.read_exact(bytes)?;
        let used = slots.iter().filter(|slot| slot.offset != 0).count();
        Ok(Self { slots, used })
    }

    /// The slots as they are in memory.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `Slot` is two integers without padding.
        unsafe { self.slots.align_to::<u8>().1 }
    }

    /// The position of the slot for which `same` holds, or of the empty slot that ends its run.
    fn probe(&self, hash: u64, same: impl Fn(u64) -> bool) -> usize {
        let mask = self.slots.len() - 1;
        let mut position = hash as usize & mask;
        loop {
            let slot = self.slots[position];
            if slot.offset == 0 || (slot.hash == hash && same(slot.offset)) {
                return position;
            }
            position = (position + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let bigger = vec![Slot::default(); self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, bigger) {
            if slot.offset != 0 {
                let position = self.probe(slot.hash, |_| false);
                self.slots[position] = slot;
            }
        }
    }
}
