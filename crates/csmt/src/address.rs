//! The address of an output, read without decoding the rest.

use crate::cbor::Malformed;

/// The raw address of a Cardano output in CBOR: element 0 of a list, or what a map has under 0.
pub fn address(output: &[u8]) -> Result<&[u8], Malformed> {
    let mut items = Items { bytes: output, at: 0 };
    let start = items.at;
    match items.head()? {
        (4, Some(0)) => Err(Malformed { at: start, wrong: "the list of an output is empty" }),
        (4, _) => items.byte_string(),
        (5, count) => {
            let mut left = count;
            loop {
                match (&mut left, items.bytes.get(items.at)) {
                    (Some(0), _) | (None, Some(0xff)) => {
                        return Err(Malformed { at: items.at, wrong: "there is no field 0" });
                    }
                    (Some(left), _) => *left -= 1,
                    (None, _) => {}
                }
                let at = items.at;
                if items.head()? == (0, Some(0)) {
                    return items.byte_string();
                }
                items.at = at;
                items.skip()?;
                items.skip()?;
            }
        }
        _ => Err(Malformed { at: start, wrong: "an output is a list or a map" }),
    }
}

/// Items of CBOR as others write it, lengths unknown ones among them.
struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    fn end(&self) -> Malformed {
        Malformed { at: self.at, wrong: "the bytes end too early" }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or_else(|| self.end())?;
        let bytes = self.bytes.get(self.at..end).ok_or_else(|| self.end())?;
        self.at = end;
        Ok(bytes)
    }

    /// The major type and the number of a head; none for a length that is not known, and for a break.
    fn head(&mut self) -> Result<(u8, Option<u64>), Malformed> {
        let first = self.take(1)?.first().copied().unwrap_or(0);
        let len = match first & 0x1f {
            info @ 0..24 => return Ok((first >> 5, Some(u64::from(info)))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            31 => return Ok((first >> 5, None)),
            _ => return Err(Malformed { at: self.at, wrong: "this is not CBOR" }),
        };
        let number = self.take(len)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Ok((first >> 5, Some(number)))
    }

    fn byte_string(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.at;
        match self.head()? {
            (2, Some(len)) => {
                let len = usize::try_from(len).map_err(|_| self.end())?;
                self.take(len)
            }
            _ => Err(Malformed { at: start, wrong: "an address is a byte string in one piece" }),
        }
    }

    /// Passes over an item, whatever is in it. What is nested costs no stack.
    fn skip(&mut self) -> Result<(), Malformed> {
        // Items left on each level; none where a break ends it.
        let mut open: Vec<Option<u64>> = vec![Some(1)];
        while let Some(level) = open.last_mut() {
            match level {
                Some(0) => {
                    open.pop();
                    continue;
                }
                Some(left) => *left -= 1,
                None if self.bytes.get(self.at) == Some(&0xff) => {
                    self.at += 1;
                    open.pop();
                    continue;
                }
                None => {}
            }
            match self.head()? {
                (0 | 1, Some(_)) | (7, Some(_)) => {}
                (2 | 3, Some(len)) => {
                    let len = usize::try_from(len).map_err(|_| self.end())?;
                    self.take(len)?;
                }
                (2..=5, None) => open.push(None),
                (4, Some(count)) => open.push(Some(count)),
                (5, Some(count)) => {
                    open.push(Some(count.checked_mul(2).ok_or_else(|| self.end())?));
                }
                (6, Some(_)) => open.push(Some(1)),
                _ => return Err(Malformed { at: self.at, wrong: "this is not CBOR" }),
            }
        }
        Ok(())
    }
}
