//! Pages and the runs of pages that hold one thing.

#![allow(clippy::expect_used, reason = "sizes that mount has checked")]

use crate::error::{Result, What};
use crate::format::Corrupt;

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    /// First page.
    pub(crate) start_page: u64,
    /// Length in pages.
    pub(crate) page_count: u64,
}

impl Extent {
    pub(crate) fn new(start_page: u64, page_count: u64) -> Extent {
        Extent { start_page, page_count }
    }

    /// The page behind the last one.
    pub(crate) fn end_page(&self) -> u64 {
        self.start_page + self.page_count
    }

    /// Fails unless the extent lies in `[from, to)` and is not empty. `at` is where it was named.
    pub(crate) fn check_within(&self, from: u64, to: u64, at: u64) -> Result<()> {
        let end = self.start_page.checked_add(self.page_count);
        match end {
            Some(end) if self.page_count > 0 && self.start_page >= from && end <= to => Ok(()),
            _ => Err(Corrupt { what: What::Region, at }.into()),
        }
    }
}

/// Page arithmetic of one bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Bytes in a page.
    pub(crate) page_size: u64,
}

impl Geometry {
    /// Byte offset of a page. What a damaged file says of pages may be past all bytes.
    #[inline]
    pub(crate) fn paddr(&self, page: u64) -> u64 {
        page.saturating_mul(self.page_size)
    }

    /// The page a byte is in.
    #[inline]
    pub(crate) fn page(&self, paddr: u64) -> u64 {
        paddr >> self.page_size.trailing_zeros()
    }

    /// Pages that hold so many bytes.
    pub(crate) fn pages(&self, bytes: u64) -> u64 {
        // A shift: this is asked for every record.
        (bytes + self.page_size - 1) >> self.page_size.trailing_zeros()
    }

    /// The page size as a buffer length.
    pub(crate) fn page_len(&self) -> usize {
        usize::try_from(self.page_size).expect("a page is at most 64 KiB")
    }
}
