//! Items of CBOR as others write it: heads longer than they have to be, lengths unknown ones among them.
//!
//! Invariants
//! - What is nested costs no stack, and what a head promises is never allocated: only bytes that are there count.
//! - Positions are those in the bytes that were given first, also inside of byte strings that hold CBOR.

use crate::cbor::Malformed;

const UINT: u8 = 0;
const BYTES: u8 = 2;
const LIST: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const BREAK: u8 = 0xff;

/// Items that are left of a list, or pairs of a map; none where a break ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left(Option<u64>);

/// A level of what is passed over.
enum Level {
    /// So many items more.
    Items(u64),
    /// Items up to a break.
    List,
    /// Pairs up to a break, and whether a value must come.
    Map { is_value: bool },
    /// Pieces of a string up to a break, each of this major type.
    Pieces(u8),
}

/// Reads items one behind the other.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Items<'a> {
        Items { bytes, at: 0 }
    }

    pub(crate) fn wrong(&self, wrong: &'static str) -> Malformed {
        Malformed { at: self.at, wrong }
    }

    fn end(&self) -> Malformed {
        self.wrong("the bytes end too early")
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let bytes = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.end())?;
        self.at += bytes.len();
        Ok(bytes)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The major type and the number of a head; none for a length that is not known, and for a break.
    fn head(&mut self) -> Result<(u8, Option<u64>), Malformed> {
        let start = self.clone();
        let first = self.take(1)?.first().copied().unwrap_or(0);
        let len = match first & 0x1f {
            info @ 0..24 => return Ok((first >> 5, Some(u64::from(info)))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            31 => return Ok((first >> 5, None)),
            _ => return Err(start.wrong("this is not CBOR")),
        };
        let number = self.take(len)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Ok((first >> 5, Some(number)))
    }

    /// The number of a head of a major type that has one.
    fn number(&mut self, major: u8, wanted: &'static str) -> Result<u64, Malformed> {
        let start = self.clone();
        match self.head()? {
            (found, Some(number)) if found == major => Ok(number),
            _ => Err(start.wrong(wanted)),
        }
    }

    pub(crate) fn uint(&mut self) -> Result<u64, Malformed> {
        self.number(UINT, "this should be a number")
    }

    /// A byte string in one piece.
    pub(crate) fn byte_string(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.number(BYTES, "this should be a byte string in one piece")?;
        self.take(len)
    }

    pub(crate) fn is_map(&self) -> bool {
        self.peek().is_some_and(|first| first >> 5 == MAP)
    }

    fn open(&mut self, major: u8, wanted: &'static str) -> Result<Left, Malformed> {
        let start = self.clone();
        match self.head()? {
            (found, left) if found == major => Ok(Left(left)),
            _ => Err(start.wrong(wanted)),
        }
    }

    pub(crate) fn list(&mut self) -> Result<Left, Malformed> {
        self.open(LIST, "this should be a list")
    }

    pub(crate) fn map(&mut self) -> Result<Left, Malformed> {
        self.open(MAP, "this should be a map")
    }

    /// Whether an item, or a pair, comes; passes over the break if not.
    pub(crate) fn more(&mut self, left: &mut Left) -> Result<bool, Malformed> {
        match &mut left.0 {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => match self.peek() {
                None => Err(self.end()),
                Some(BREAK) => {
                    self.at += 1;
                    left.0 = Some(0);
                    Ok(false)
                }
                Some(_) => Ok(true),
            },
        }
    }

    /// An item must come.
    pub(crate) fn field(&mut self, left: &mut Left) -> Result<(), Malformed> {
        match self.more(left)? {
            true => Ok(()),
            false => Err(self.wrong("a field is missing")),
        }
    }

    /// Passes over an item, whatever is in it.
    pub(crate) fn skip(&mut self) -> Result<(), Malformed> {
        let mut open = Vec::new();
        self.enter(&mut open)?;
        while let Some(level) = open.last_mut() {
            let is_break = self.peek() == Some(BREAK);
            match level {
                Level::Items(0) => {
                    open.pop();
                    continue;
                }
                Level::Items(left) => {
                    *left -= 1;
                    // The level is done with its last item, so chains of tags and lists do not pile up.
                    if *left == 0 {
                        open.pop();
                    }
                }
                Level::List | Level::Pieces(_) | Level::Map { is_value: false } if is_break => {
                    self.at += 1;
                    open.pop();
                    continue;
                }
                Level::List => {}
                Level::Map { is_value } => *is_value = !*is_value,
                Level::Pieces(major) => {
                    let major = *major;
                    let len = self.number(major, "a piece of a string is of another type")?;
                    self.take(len)?;
                    continue;
                }
            }
            self.enter(&mut open)?;
        }
        Ok(())
    }

    /// Passes over the head of an item, and the whole of it if nothing is nested in it.
    fn enter(&mut self, open: &mut Vec<Level>) -> Result<(), Malformed> {
        let start = self.clone();
        match self.head()? {
            (0 | 1 | 7, Some(_)) => {}
            (2 | 3, Some(len)) => drop(self.take(len)?),
            (major @ (2 | 3), None) => open.push(Level::Pieces(major)),
            (LIST, Some(count)) => open.push(Level::Items(count)),
            (LIST, None) => open.push(Level::List),
            (MAP, Some(count)) => {
                open.push(Level::Items(count.checked_mul(2).ok_or_else(|| self.end())?));
            }
            (MAP, None) => open.push(Level::Map { is_value: false }),
            (TAG, Some(_)) => open.push(Level::Items(1)),
            _ => return Err(start.wrong("this is not CBOR")),
        }
        Ok(())
    }
}

#[cfg(feature = "cardano")]
const NULL: u8 = 0xf6;
/// The tag of a byte string that holds CBOR.
#[cfg(feature = "cardano")]
const ENCODED: u64 = 24;

/// What only blocks need.
#[cfg(feature = "cardano")]
impl<'a> Items<'a> {
    /// From a position on.
    pub(crate) fn from(bytes: &'a [u8], at: usize) -> Items<'a> {
        Items { bytes, at }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Nothing must be left.
    pub(crate) fn finish(&self) -> Result<(), Malformed> {
        if self.is_done() { Ok(()) } else { Err(self.wrong("there are bytes behind the end")) }
    }

    /// The bytes from a position that was passed up to here.
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or(&[])
    }

    /// A byte string of a length.
    pub(crate) fn array<const N: usize>(
        &mut self,
        wanted: &'static str,
    ) -> Result<[u8; N], Malformed> {
        let start = self.clone();
        self.byte_string()?.try_into().map_err(|_| start.wrong(wanted))
    }

    /// A byte string that holds CBOR, with its tag. Gives its items, and its bytes.
    pub(crate) fn encoded(&mut self) -> Result<(Items<'a>, &'a [u8]), Malformed> {
        let start = self.clone();
        if self.number(TAG, "this should be CBOR in a byte string")? != ENCODED {
            return Err(start.wrong("this should be CBOR in a byte string"));
        }
        let bytes = self.byte_string()?;
        let inner = self.bytes.get(..self.at).unwrap_or(&[]);
        Ok((Items { bytes: inner, at: self.at - bytes.len() }, bytes))
    }

    /// Passes over a tag if it is there.
    pub(crate) fn pass_tag(&mut self, tag: u64) {
        let start = self.at;
        if !matches!(self.head(), Ok((TAG, Some(found))) if found == tag) {
            self.at = start;
        }
    }

    /// Passes over null if it is there.
    pub(crate) fn pass_null(&mut self) -> bool {
        let is_null = self.peek() == Some(NULL);
        self.at += usize::from(is_null);
        is_null
    }

    pub(crate) fn is_uint(&self) -> bool {
        self.peek().is_some_and(|first| first >> 5 == UINT)
    }

    /// No item must come.
    pub(crate) fn close(&mut self, mut left: Left) -> Result<(), Malformed> {
        match self.more(&mut left)? {
            true => Err(self.wrong("there is a field too many")),
            false => Ok(()),
        }
    }

    /// Passes over what is left of a list, and gives how many items that were.
    pub(crate) fn skip_list(&mut self, mut left: Left) -> Result<u64, Malformed> {
        let mut count = 0;
        while self.more(&mut left)? {
            self.skip()?;
            count += 1;
        }
        Ok(count)
    }
}
