//! zstd, as far as the bucket needs it: one frame at a time, with contexts that each thread keeps.

#[cfg(feature = "zstd")]
pub(crate) use with::{Prepared, compress, expand, train};
#[cfg(not(feature = "zstd"))]
pub(crate) use without::{Prepared, compress, expand, train};

/// True if this build can compress and expand.
pub(crate) const IS_AVAILABLE: bool = cfg!(feature = "zstd");

#[cfg(feature = "zstd")]
mod with {
    use std::cell::RefCell;
    use std::fmt;

    use zstd::zstd_safe::{
        CCtx, CDict, CParameter, DCtx, DDict, ResetDirective, find_frame_compressed_size,
    };

    use crate::dictionary::Dictionary;

    /// Largest window as a power of two: what every decoder is asked to manage.
    const WINDOW_LOG: u32 = 23;
    /// Scratch memory kept from one value to the next.
    const SCRATCH_KEPT: usize = 256 << 10;

    thread_local! {
        static COMPRESS: RefCell<(CCtx<'static>, Vec<u8>)> = RefCell::new((CCtx::create(), Vec::new()));
        static EXPAND: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
    }

    /// A dictionary made ready for use.
    pub(crate) struct Prepared {
        compress: CDict<'static>,
        expand: DDict<'static>,
    }

    impl Prepared {
        /// `None` if the bytes are no dictionary.
        pub(crate) fn new(bytes: &[u8], level: i32) -> Option<Prepared> {
            Some(Prepared {
                compress: CDict::try_create(bytes, level)?,
                expand: DDict::try_create(bytes)?,
            })
        }

        /// The id that frames name it by.
        pub(crate) fn id(&self) -> Option<u32> {
            self.expand.get_dict_id().map(std::num::NonZero::get)
        }
    }

    impl fmt::Debug for Prepared {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Prepared").field("id", &self.id()).finish_non_exhaustive()
        }
    }

    /// Appends a frame of at most `room` bytes; false if it would be longer.
    pub(crate) fn compress(
        value: &[u8],
        level: i32,
        dictionary: Option<&Dictionary>,
        room: usize,
        bytes: &mut Vec<u8>,
    ) -> bool {
        COMPRESS.with_borrow_mut(|(context, scratch)| {
            scratch.clear();
            scratch.shrink_to(SCRATCH_KEPT);
            scratch.reserve(room);
            let written = match dictionary {
                Some(dictionary) => {
                    context.compress_using_cdict(scratch, value, &dictionary.prepared.compress)
                }
                None => context
                    .reset(ResetDirective::SessionAndParameters)
                    .and_then(|_| context.set_parameter(CParameter::CompressionLevel(level)))
                    .and_then(|_| match level {
                        // Only the highest levels would go further.
                        17.. => context.set_parameter(CParameter::WindowLog(WINDOW_LOG)),
                        _ => Ok(0),
                    })
                    .and_then(|_| context.compress2(scratch, value)),
            };
            let is_short = written.is_ok_and(|len| len <= room);
            if is_short {
                bytes.extend_from_slice(scratch);
            }
            is_short
        })
    }

    /// The value in a frame, if the frame is whole, alone, and holds exactly `len` bytes.
    pub(crate) fn expand(
        frame: &[u8],
        len: usize,
        dictionary: Option<&Dictionary>,
    ) -> Option<Vec<u8>> {
        if find_frame_compressed_size(frame).ok()? != frame.len() {
            return None;
        }
        let mut value = Vec::with_capacity(len);
        let written = EXPAND.with_borrow_mut(|context| match dictionary {
            Some(dictionary) => {
                context.decompress_using_ddict(&mut value, frame, &dictionary.prepared.expand)
            }
            None => context.decompress(&mut value, frame),
        });
        (written.ok()? == len && value.len() == len).then_some(value)
    }

    /// A dictionary of at most `max` bytes for values like these, which stand one behind the other.
    pub(crate) fn train(samples: &[u8], lens: &[usize], max: usize) -> Option<Vec<u8>> {
        zstd::dict::from_continuous(samples, lens, max).ok()
    }
}

#[cfg(not(feature = "zstd"))]
mod without {
    use crate::dictionary::Dictionary;

    #[derive(Debug)]
    pub(crate) enum Prepared {}

    impl Prepared {
        pub(crate) fn new(_: &[u8], _: i32) -> Option<Prepared> {
            None
        }

        pub(crate) fn id(&self) -> Option<u32> {
            match *self {}
        }
    }

    pub(crate) fn compress(
        _: &[u8],
        _: i32,
        dictionary: Option<&Dictionary>,
        _: usize,
        _: &mut Vec<u8>,
    ) -> bool {
        match dictionary {
            Some(dictionary) => match dictionary.prepared {},
            None => false,
        }
    }

    pub(crate) fn expand(_: &[u8], _: usize, _: Option<&Dictionary>) -> Option<Vec<u8>> {
        None
    }

    pub(crate) fn train(_: &[u8], _: &[usize], _: usize) -> Option<Vec<u8>> {
        None
    }
}
