//! Telling the processor what will be read soon.

#![allow(unsafe_code)]

/// Asks for the cache line a value begins in. Unlike a load nobody has to wait for it, so that what comes next is not held up.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    let place = std::ptr::from_ref(value);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it reads nothing, and `SSE` is part of the architecture.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    // A load would do elsewhere, but somebody may be writing there.
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
