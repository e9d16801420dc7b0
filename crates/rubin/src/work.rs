//! Work: how much it takes to find a block. Numbers without bound, because a chain of easy blocks may be long and a hard one
//! has more than 256 bits.

use std::fmt;
use std::str::FromStr;

use num_bigint::BigUint;

/// Work of a block, or of a chain up to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(BigUint);

impl Work {
    /// None.
    pub fn zero() -> Work {
        Work::default()
    }

    /// What a target takes: 2^256 / target, rounded down. A target of zero has none.
    pub fn of_target(target: &[u8; 32]) -> Option<Work> {
        let target = BigUint::from_bytes_be(target);
        let all = BigUint::from(1_u8) << 256;
        (target != BigUint::ZERO).then(|| Work(all / target))
    }

    /// As stored: big-endian without leading zeros; nothing at all for zero.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.0 == BigUint::ZERO { Vec::new() } else { self.0.to_bytes_be() }
    }

    /// As stored; none if there are leading zeros.
    pub fn from_bytes(bytes: &[u8]) -> Option<Work> {
        (bytes.first() != Some(&0)).then(|| Work(BigUint::from_bytes_be(bytes)))
    }

    /// This and more.
    pub fn plus(&self, more: &Work) -> Work {
        Work(&self.0 + &more.0)
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Not a decimal number without leading zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work is a decimal number without leading zeros")]
pub struct NotWork;

impl FromStr for Work {
    type Err = NotWork;

    fn from_str(text: &str) -> Result<Work, NotWork> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
            && text.len() <= 1000;
        let number = is_plain.then(|| text.parse().ok()).flatten();
        number.map(Work).ok_or(NotWork)
    }
}
