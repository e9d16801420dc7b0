//! Blocks in files: hex, one a line, or binary, each with its length in front as u32le.

use std::io::{BufRead, Read};

use crate::exit::{Done, Fail};
use crate::input::from_hex;

/// Longest block that is read.
const BLOCK_MAX: u64 = 64 << 20;

/// Reads blocks one after the other.
pub(super) struct Blocks<R> {
    input: R,
    is_binary: bool,
    /// Bytes read so far.
    pub(super) bytes: u64,
}

impl<R: BufRead> Blocks<R> {
    /// Finds out which form it is: hex has only digits and line ends.
    pub(super) fn new(mut input: R) -> Done<Blocks<R>> {
        let start = input.fill_buf().map_err(cannot)?;
        let some = start.get(..start.len().min(64)).unwrap_or(start);
        let is_hex = some.iter().all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace());
        Ok(Blocks { is_binary: !is_hex, input, bytes: 0 })
    }

    /// The next block; none at the end.
    pub(super) fn next(&mut self) -> Done<Option<Vec<u8>>> {
        if self.is_binary { self.next_binary() } else { self.next_hex() }
    }

    fn next_hex(&mut self) -> Done<Option<Vec<u8>>> {
        loop {
            let mut line = Vec::new();
            let read = Read::take(&mut self.input, 2 * BLOCK_MAX + 2)
                .read_until(b'\n', &mut line)
                .map_err(cannot)?;
            if read == 0 {
                return Ok(None);
            }
            self.bytes += u64::try_from(read).unwrap_or(0);
            let text = std::str::from_utf8(&line).unwrap_or("?").trim();
            if !text.is_empty() {
                // What is no hex is no block either, and is rejected as such.
                return Ok(Some(from_hex(text).unwrap_or_default()));
            }
        }
    }

    fn next_binary(&mut self) -> Done<Option<Vec<u8>>> {
        if self.input.fill_buf().map_err(cannot)?.is_empty() {
            return Ok(None);
        }
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(cannot)?;
        let len = u64::from(u32::from_le_bytes(len));
        if len > BLOCK_MAX {
            return Err(Fail::failed(format!(
                "a block of {len} bytes is announced: this is not a file of blocks"
            )));
        }
        let mut block = Vec::new();
        let read = Read::take(&mut self.input, len).read_to_end(&mut block).map_err(cannot)?;
        self.bytes += 4 + u64::try_from(read).unwrap_or(0);
        if u64::try_from(read).is_ok_and(|read| read < len) {
            return Err(Fail::failed("the last block is cut off"));
        }
        Ok(Some(block))
    }
}

fn cannot(error: std::io::Error) -> Fail {
    Fail::failed(format!("cannot read blocks: {error}"))
}
