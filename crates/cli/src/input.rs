//! Keys and values as arguments: a file's name, `0x` and hex digits, the words themselves with `--text`, or `-` for standard
//! input.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;

use crate::exit::{Done, Fail};

/// Longest key and longest value that any bucket has. No more is read of what never ends.
pub(crate) const KEY_MAX: u64 = 65_535;
const VALUE_MAX: u64 = 4_294_967_295;

/// Reads arguments; standard input only once.
pub(crate) struct Input {
    is_text: bool,
    is_stdin_taken: bool,
}

impl Input {
    pub(crate) fn new(is_text: bool) -> Input {
        Input { is_text, is_stdin_taken: false }
    }

    /// The key, or part of one, that an argument stands for.
    pub(crate) fn key(&mut self, what: &str, argument: &OsString) -> Done<Vec<u8>> {
        self.read(what, argument, KEY_MAX)
    }

    /// The value that an argument stands for.
    pub(crate) fn value(&mut self, argument: &OsString) -> Done<Vec<u8>> {
        self.read("value", argument, VALUE_MAX)
    }

    fn read(&mut self, what: &str, argument: &OsString, max: u64) -> Done<Vec<u8>> {
        if argument == "-" {
            return self.read_stdin(what, max);
        }
        if self.is_text {
            return Ok(argument.as_encoded_bytes().to_vec());
        }
        if let Some(digits) = argument.to_str().and_then(|text| text.strip_prefix("0x")) {
            return from_hex(digits).ok_or_else(|| {
                Fail::usage(format!(
                    "{what} {} is not hex: 0x must be followed by pairs of hex digits",
                    argument.display()
                ))
                .hint(format!(
                    "a file of that name is ./{0}, the word itself -t {0}",
                    argument.display()
                ))
            });
        }
        read_file(what, argument, max)
    }

    fn read_stdin(&mut self, what: &str, max: u64) -> Done<Vec<u8>> {
        if self.is_stdin_taken {
            return Err(Fail::usage("only one of key and value can come from standard input"));
        }
        self.is_stdin_taken = true;
        let bytes = read_all(std::io::stdin().lock(), max)
            .map_err(|error| Fail::failed(format!("cannot read the {what}: {error}")))?;
        bytes.ok_or_else(|| too_long(what, max))
    }
}

/// All that there is, unless it is too long.
fn read_all(input: impl Read, max: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = input.take(max + 1).read_to_end(&mut bytes)?;
    Ok(u64::try_from(read).is_ok_and(|read| read <= max).then_some(bytes))
}

fn too_long(what: &str, max: u64) -> Fail {
    Fail::failed(format!("the {what} is over the limit of {max} bytes"))
}

fn read_file(what: &str, name: &OsStr, max: u64) -> Done<Vec<u8>> {
    let read = std::fs::File::open(Path::new(name)).and_then(|file| read_all(file, max));
    let bytes = read.map_err(|error| {
        let shown = name.display();
        if error.kind() == std::io::ErrorKind::NotFound {
            Fail::usage(format!("there is no file {shown} to read the {what} from")).hint(format!(
                "a {what} is a file's name, hex as 0x{}, the word itself with -t {shown}, or - for standard input",
                hex_of_a_few(name)
            ))
        } else {
            Fail::failed(format!("cannot read the {what} from {shown}: {error}"))
        }
    })?;
    bytes.ok_or_else(|| too_long(what, max))
}

/// An example made of what the user wrote.
fn hex_of_a_few(name: &OsStr) -> String {
    let bytes = name.as_encoded_bytes();
    to_hex(bytes.get(..bytes.len().min(8)).unwrap_or(bytes))
}

/// Pairs of hex digits as bytes.
pub(crate) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| match *pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    digits.chunks(2).map(pair).collect()
}

/// The worth of a hex digit.
pub(crate) fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Bytes as pairs of hex digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    push_hex(&mut text, bytes);
    text
}

/// The same at the end of a text.
pub(crate) fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    for byte in bytes {
        for half in [byte >> 4, byte & 15] {
            text.extend(DIGITS.get(usize::from(half)));
        }
    }
}

/// A length of time: seconds, or a number with a unit.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    if let Ok(secs) = text.parse() {
        return Ok(std::time::Duration::from_secs(secs));
    }
    humantime::parse_duration(text)
        .map_err(|_| "give seconds, or a number with a unit as in 90m, 12h, 30days".to_owned())
}

/// A number of bytes, with an optional unit of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "give bytes, or a number with a unit as in 64KiB, 16M, 1G".to_owned();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or("").to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// A byte of a file: decimal, or hex after `0x`.
pub(crate) fn offset(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "give a byte of the file, decimal or as 0x1000".to_owned())
}
