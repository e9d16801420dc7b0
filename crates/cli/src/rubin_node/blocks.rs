//! Blocks in files: hex, one a line, or binary, each with its length in front as u32le.

use std::io::{BufRead, BufReader, Chain, Cursor, Read};

use crate::exit::{Done, Fail};
use crate::feed::Feed;
use crate::input::from_hex;
use crate::show;

/// Longest block that is read. No block of a quarter of it is valid.
const BLOCK_MAX: u64 = 16 << 20;
/// Bytes of a length.
const LEN: usize = 4;
const BUFFER: usize = 1 << 20;

const FEED: Feed = Feed { thing: ["block", "blocks"], taken: "imported" };

/// Reads blocks one after the other.
pub(super) struct Blocks<R> {
    input: BufReader<Chain<Cursor<Vec<u8>>, R>>,
    is_binary: bool,
    /// Bytes read so far.
    pub(super) bytes: u64,
}

impl<R: Read> Blocks<R> {
    /// Finds out which form it is: hex has only digits and line ends, and no length that is taken has only these.
    pub(super) fn new(mut input: R) -> Done<Blocks<R>> {
        let mut start = Vec::new();
        Read::take(&mut input, show::wide(LEN)).read_to_end(&mut start).map_err(cannot)?;
        let is_hex =
            start.iter().all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace());
        let input = BufReader::with_capacity(BUFFER, Cursor::new(start).chain(input));
        Ok(Blocks { is_binary: !is_hex, input, bytes: 0 })
    }

    /// The next block; none at the end.
    pub(super) fn next(&mut self) -> Done<Option<Vec<u8>>> {
        if self.is_binary { self.next_binary() } else { self.next_hex() }
    }

    fn next_hex(&mut self) -> Done<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let most = 2 * BLOCK_MAX + 2;
            let read =
                Read::take(&mut self.input, most).read_until(b'\n', &mut line).map_err(cannot)?;
            if read == 0 {
                return Ok(None);
            }
            self.bytes += show::wide(read);
            if show::wide(read) == most && !line.ends_with(b"\n") {
                return Err(Fail::failed(
                    "a line is longer than any block: this is not a file of blocks",
                ));
            }
            let text = std::str::from_utf8(&line).unwrap_or("?").trim();
            if !text.is_empty() {
                // What is no hex is no block either, and is rejected as such.
                return Ok(Some(from_hex(text).unwrap_or_default()));
            }
        }
    }

    fn next_binary(&mut self) -> Done<Option<Vec<u8>>> {
        let Some(len) = self.take(show::wide(LEN))? else { return Ok(None) };
        let len = len.first_chunk().copied().map_or(0, u32::from_le_bytes);
        if u64::from(len) > BLOCK_MAX {
            return Err(Fail::failed(format!(
                "a block of {len} bytes is announced: this is not a file of blocks"
            )));
        }
        if len == 0 {
            return Ok(Some(Vec::new()));
        }
        self.take(len.into())?.map(Some).ok_or_else(cut_off)
    }

    /// So many bytes, or none at the end.
    fn take(&mut self, len: u64) -> Done<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        let read = Read::take(&mut self.input, len).read_to_end(&mut bytes).map_err(cannot)?;
        self.bytes += show::wide(read);
        match show::wide(read) {
            0 => Ok(None),
            read if read < len => Err(cut_off()),
            _ => Ok(Some(bytes)),
        }
    }
}

fn cut_off() -> Fail {
    Fail::failed("the last block is cut off")
}

fn cannot(error: std::io::Error) -> Fail {
    FEED.cannot(error)
}
