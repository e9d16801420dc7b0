//! Bytes, times and tables as people read them.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use indicatif::{HumanBytes, HumanCount};

use crate::input::push_hex;

/// Text if all of it can be read and nothing is ambiguous, else `0x` and hex.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    match readable(bytes) {
        Some(text) => text.to_owned(),
        None => hex(bytes),
    }
}

/// The bytes as text, if that is all printable and cannot be taken for hex or for nothing.
fn readable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = !text.is_empty() && !text.starts_with("0x") && !text.contains('\u{fffd}');
    (is_plain && text.chars().all(is_printable)).then_some(text)
}

fn is_printable(letter: char) -> bool {
    // Marks that change how the rest is shown are not readable, and neither is what is invisible, or private.
    let is_hidden = matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..);
    !letter.is_control() && !is_hidden
}

/// Whether what goes to a terminal, or not to one, may have colors.
pub(crate) fn has_colors(is_terminal: bool) -> bool {
    is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `0x` and hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("0x");
    push_hex(&mut text, bytes);
    text
}

/// Text or hex of the beginning of something, cut off if it is long.
pub(crate) fn short(known: &[u8], len: u64, max: usize) -> String {
    let first = known.get(..max).unwrap_or(known);
    if u64::try_from(first.len()).is_ok_and(|shown| shown < len) {
        return format!("{}... ({len} bytes)", bytes(first));
    }
    bytes(first)
}

/// The same of something that is all known.
pub(crate) fn short_of(all: &[u8], max: usize) -> String {
    short(all, u64::try_from(all.len()).unwrap_or(u64::MAX), max)
}

/// A number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

/// A number with marks between thousands.
pub(crate) fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// So many of something.
pub(crate) fn many(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Nanoseconds since 1970.
pub(crate) fn time(unix_ns: u64) -> String {
    let since = Duration::from_nanos(unix_ns);
    let time = SystemTime::UNIX_EPOCH + since;
    let text = humantime::format_rfc3339(time).to_string();
    // Whole seconds say enough, unless there is more.
    text.replace(".000000000Z", "Z")
}

/// How long something took.
pub(crate) fn seconds(took: Duration) -> String {
    let secs = took.as_secs_f64();
    match secs {
        _ if secs >= 100.0 => format!("{secs:.0} s"),
        _ if secs >= 1.0 => format!("{secs:.1} s"),
        _ if secs >= 1e-3 => format!("{:.1} ms", secs * 1e3),
        _ => format!("{:.1} us", secs * 1e6),
    }
}

/// How many a second.
pub(crate) fn rate(number: u64, took: Duration) -> String {
    format!("{}/s", count(per_second(number, took)))
}

/// How many a second, as a number.
#[allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate, rounded"
)]
pub(crate) fn per_second(number: u64, took: Duration) -> u64 {
    (number as f64 / took.as_secs_f64().max(1e-9)).round() as u64
}

/// Rows of cells in columns that fit. The first row is the heading; the columns named stand to the right.
pub(crate) fn table(rows: &[Vec<String>], to_the_right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let shape = |at: usize| (width(at), to_the_right.contains(&at));
    let shapes: Vec<(usize, bool)> = (0..columns).map(shape).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, (width, is_right)) in row.iter().zip(&shapes) {
            let gap = if line.is_empty() { "" } else { "  " };
            let padding = width - cell.chars().count();
            let _ = match is_right {
                true => write!(line, "{gap}{}{cell}", " ".repeat(padding)),
                false => write!(line, "{gap}{cell}{}", " ".repeat(padding)),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Names and what they are, one a line.
pub(crate) fn list(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in facts {
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

/// A length as a number of any machine.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
