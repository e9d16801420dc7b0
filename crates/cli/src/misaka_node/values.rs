//! Values of JSON cut out of a stream, so that each can be read for itself: one a line, any number of lines each, or in an array.
//!
//! No more than one value is in memory, and not more of that than a limit.

use std::io::{self, BufRead};

/// A value of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// The line that it begins in, from 1.
    pub(super) line: u64,
    /// Its bytes, from one brace to the other.
    pub(super) bytes: Vec<u8>,
}

/// Why there is no value.
#[derive(Debug)]
pub(super) enum Wrong {
    /// The input cannot be read.
    Input(io::Error),
    /// It is not what it should be, in this line.
    Form(u64, &'static str),
}

/// Where the stream is between values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In no array.
    Outside,
    /// Behind the bracket that opens an array.
    Opened,
    /// Behind a value of an array.
    Behind,
    /// Behind a comma.
    Comma,
}

/// Objects of JSON in a stream.
pub(super) struct Values<R> {
    input: R,
    max: usize,
    place: Place,
    line: u64,
    read: u64,
}

impl<R: BufRead> Values<R> {
    /// Values of an input, of so many bytes each at most.
    pub(super) fn new(input: R, max: usize) -> Values<R> {
        Values { input, max, place: Place::Outside, line: 1, read: 0 }
    }

    /// Bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.read
    }

    /// The next value; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Wrong> {
        loop {
            let Some(byte) = self.peek()? else {
                return match self.place {
                    Place::Outside => Ok(None),
                    _ => Err(Wrong::Form(self.line, "the list is cut off")),
                };
            };
            match (byte, self.place) {
                (b' ' | b'\t' | b'\r' | b'\n', _) => {}
                (b'[', Place::Outside) => self.place = Place::Opened,
                (b']', Place::Opened | Place::Behind) => self.place = Place::Outside,
                (b',', Place::Behind) => self.place = Place::Comma,
                (b'{', Place::Behind) => {
                    return Err(Wrong::Form(self.line, "there is no comma between two values"));
                }
                (b'{', place) => {
                    if place != Place::Outside {
                        self.place = Place::Behind;
                    }
                    return self.take().map(Some);
                }
                _ => return Err(Wrong::Form(self.line, "this is not a checkpoint as JSON")),
            }
            self.line += u64::from(byte == b'\n');
            self.input.consume(1);
            self.read += 1;
        }
    }

    /// The next byte, if there is one.
    fn peek(&mut self) -> Result<Option<u8>, Wrong> {
        loop {
            match self.input.fill_buf() {
                Ok(bytes) => return Ok(bytes.first().copied()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Wrong::Input(error)),
            }
        }
    }

    /// All from a brace to the one that closes it.
    fn take(&mut self) -> Result<Value, Wrong> {
        let first = self.line;
        let mut bytes = Vec::new();
        let mut braces = Braces::default();
        loop {
            if self.peek()?.is_none() {
                return Err(Wrong::Form(first, "the checkpoint that begins here is cut off"));
            }
            let chunk = self.input.fill_buf().map_err(Wrong::Input)?;
            let end =
                braces.end(chunk).map_err(|wrong| Wrong::Form(first + braces.lines, wrong))?;
            let used = end.unwrap_or(chunk.len());
            if used > self.max - bytes.len() {
                return Err(Wrong::Form(first, "the checkpoint that begins here is too long"));
            }
            bytes.extend_from_slice(chunk.get(..used).unwrap_or(chunk));
            self.input.consume(used);
            self.read += crate::show::wide(used);
            if end.is_some() {
                self.line += braces.lines;
                return Ok(Value { line: first, bytes });
            }
        }
    }
}

/// How deep in braces a text is.
#[derive(Default)]
struct Braces {
    depth: u64,
    is_text: bool,
    is_escaped: bool,
    lines: u64,
}

impl Braces {
    /// Where the first brace is closed, if that is in these bytes.
    fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        for (at, byte) in bytes.iter().enumerate() {
            if self.is_text {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.is_text = false,
                    b'\n' => return Err("a text does not end in this line"),
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.is_text = true,
                b'{' => self.depth += 1,
                b'}' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(at + 1));
                    }
                }
                b'\n' => self.lines += 1,
                _ => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::io::BufReader;

    use super::*;

    /// A value with its line, or why there is none.
    type Found = Result<(u64, String), (u64, &'static str)>;

    /// All values of a text, read a few bytes at a time; the last one is why there are no more, if that is not the end.
    fn values(text: &str, max: usize) -> Vec<Found> {
        let mut found = Vec::new();
        for at_once in [1, 3, 4096] {
            let input = BufReader::with_capacity(at_once, text.as_bytes());
            let mut values = Values::new(input, max);
            let mut now = Vec::new();
            loop {
                match values.next() {
                    Ok(Some(value)) => {
                        now.push(Ok((value.line, String::from_utf8(value.bytes).unwrap())));
                    }
                    Ok(None) => break,
                    Err(Wrong::Form(line, wrong)) => {
                        now.push(Err((line, wrong)));
                        break;
                    }
                    Err(Wrong::Input(error)) => panic!("{error}"),
                }
            }
            assert!(found.is_empty() || found == now);
            found = now;
        }
        found
    }

    fn good(line: u64, text: &str) -> Found {
        Ok((line, text.to_owned()))
    }

    #[test]
    fn values_stand_in_lines_or_in_arrays() {
        assert_eq!(values("", 9), []);
        assert_eq!(values(" \n\n", 9), []);
        assert_eq!(values("{}\n\r\n{\"a\":1}", 9), [good(1, "{}"), good(3, "{\"a\":1}")]);
        assert_eq!(values("[]", 9), []);
        assert_eq!(values("[\n{},\n {\n}\n]\n", 9), [good(2, "{}"), good(3, "{\n}")]);
        assert_eq!(values("[{}][{}] {}", 9).len(), 3);
        let tricky = r#"{"}":"\"}{\\","a":[{}]}"#;
        assert_eq!(values(tricky, 99), [good(1, tricky)]);
    }

    #[test]
    fn what_is_something_else_is_told_with_its_line() {
        let wrong = |text, max| values(text, max).pop().unwrap().unwrap_err();
        assert_eq!(wrong("x", 9).0, 1);
        assert_eq!(wrong("{}\n\n5", 9).0, 3);
        assert_eq!(wrong("[{} {}]", 9).1, "there is no comma between two values");
        for text in ["[,{}]", "[{},]", "[{},,{}]", "]", "[[{}]]", "{},{}", "[1]"] {
            assert_eq!(wrong(text, 9).1, "this is not a checkpoint as JSON", "{text}");
        }
        assert_eq!(wrong("[{}\n", 9), (2, "the list is cut off"));
        assert_eq!(wrong("\n{\"a\":{}", 9).0, 2);
        assert_eq!(wrong("\n{\"a\":{}", 9).1, "the checkpoint that begins here is cut off");
        assert_eq!(wrong("{\n\"a\n\":1}", 9), (2, "a text does not end in this line"));
    }

    #[test]
    fn nothing_longer_than_the_limit_is_gathered() {
        assert_eq!(values("{\"a\":1}{}", 7).len(), 2);
        let wrong = values(&format!("{{}}{{\"{}", "a".repeat(10_000)), 6).pop().unwrap();
        assert_eq!(wrong, Err((1, "the checkpoint that begins here is too long")));
    }
}
