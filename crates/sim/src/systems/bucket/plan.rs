//! What a bucket is made with.

use fastrand::Rng;
use kvb::{Compression, HashKind, Key, Keyring, Options};

use crate::dice::one_of;

/// Eight bytes that make XXH3 leave out the next eight: keys that begin with them share one hash.
const COLLIDING: [u8; 8] = [0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];

/// Settings of a bucket, and its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    page_size: u32,
    segment_pages: u32,
    hash: HashKind,
    directories: bool,
    compressed: bool,
    encrypted: bool,
    overlay_min: usize,
    is_colliding: bool,
    /// Large commits, all of them journalled.
    pub(crate) fills_journal: bool,
    /// How many keys there are.
    pub(crate) keys: u16,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn draw(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed);
        let one_in = |rng: &mut Rng, count: u8| rng.u8(..count) == 0;
        Plan {
            page_size: if one_in(&mut rng, 4) { 16_384 } else { 4096 },
            segment_pages: one_of(&mut rng, 4, &[4, 16, 64]),
            hash: if one_in(&mut rng, 4) { HashKind::SipHash } else { HashKind::Xxh3 },
            directories: !one_in(&mut rng, 4),
            compressed: one_in(&mut rng, 3),
            encrypted: one_in(&mut rng, 4),
            overlay_min: one_of(&mut rng, 1, &[8, 40, 1000]),
            is_colliding: one_in(&mut rng, 6),
            fills_journal: one_in(&mut rng, 6),
            keys: one_of(&mut rng, 5, &[40, 300]),
        }
    }

    pub(crate) fn options(&self) -> Options {
        let options = Options::default()
            .background(false)
            .page_size(self.page_size)
            .segment_bytes_max(u64::from(self.page_size) * u64::from(self.segment_pages))
            .hash(self.hash)
            .directories(self.directories)
            .overlay_min(self.overlay_min)
            .compression_min(16)
            .compression(if self.compressed { Compression::Zstd } else { Compression::None });
        match self.encrypted {
            true => options.encrypted(7).keys(Keyring::new().with(7, Key::new([7; 32]))),
            false => options,
        }
    }

    /// The key of a number.
    pub(crate) fn key(&self, number: u16) -> Vec<u8> {
        let number = number.to_be_bytes();
        if self.is_colliding {
            let mut key = COLLIDING.to_vec();
            key.extend([0; 6]);
            key.extend(number);
            key.extend([9; 16]);
            return key;
        }
        let [high, low] = number;
        let mut key = number.to_vec();
        key.resize(2 + usize::from(low ^ high) % 60, b'k');
        key
    }

    /// The number of a key, if it is one of them.
    pub(crate) fn number(&self, key: &[u8]) -> Option<u16> {
        let at = if self.is_colliding { 14 } else { 0 };
        let number = u16::from_be_bytes(key.get(at..at + 2)?.try_into().ok()?);
        (number < self.keys && self.key(number) == key).then_some(number)
    }
}
