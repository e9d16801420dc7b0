//! The forms of a dump: kvb's own text, JSON lines, and the text of `mdb_dump`.
//!
//! kvb's text has one row a line: key, tab, value, and for rows that expire another tab and the nanosecond since 1970.
//! Printable ASCII stands for itself; a backslash is `\\`, a tab `\t`, a line feed `\n`, a carriage return `\r`, any other
//! byte `\x` and two hex digits, and so is a `#` that begins a key. Lines that begin with `#` are not rows. The first line is
//! `# kvb dump 1`; such a dump ends with `# end` and the number of rows, so that one cut short is noticed.
//!
//! JSON lines have one object a row with `key` and `value` in hex and `expires_at` in nanoseconds since 1970 or null; other
//! fields are ignored. A dump begins with an object that has `kvb_dump` and ends with one that has `end`.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::exit::{Done, Fail};
use crate::input::{KEY_MAX, digit, from_hex, push_hex, to_hex};
use crate::{interrupt, show};

/// Longest line beside what a value takes: the longest key, and names of fields. No line before the rows is longer.
const LINE_ROOM: u64 = 4 * KEY_MAX + 4096;
/// What rows look like.
const JSON_ROW: &str =
    "a row has `key` and `value` in hex, and may have `expires_at` in nanoseconds since 1970";
/// What `mdb_dump -a` writes.
const SEVERAL: &str = "another database begins here; dump one at a time, with mdb_dump -s NAME";

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Form {
    /// Readable, one row a line
    Text,
    /// One JSON object a line
    Json,
    /// As mdb_dump writes and mdb_load reads; rows lose their deadlines
    Mdb,
}

/// A row of a dump.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) expires_at: Option<u64>,
}

/// Writes rows.
pub(super) struct FormWriter<'a> {
    out: &'a mut dyn Write,
    form: Form,
    count: u64,
    line: String,
}

impl<'a> FormWriter<'a> {
    /// Begins a dump of a bucket with these settings.
    pub(super) fn begin(
        out: &'a mut dyn Write,
        form: Form,
        settings: &[(&'static str, String)],
    ) -> io::Result<FormWriter<'a>> {
        match form {
            Form::Text => {
                writeln!(out, "# kvb dump 1")?;
                for (name, value) in settings {
                    writeln!(out, "# {name}={value}")?;
                }
            }
            Form::Json => {
                let mut head = json!({ "kvb_dump": 1 });
                if let Some(head) = head.as_object_mut() {
                    for (name, value) in settings {
                        head.insert((*name).to_owned(), Value::String(value.clone()));
                    }
                }
                writeln!(out, "{head}")?;
            }
            Form::Mdb => writeln!(out, "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END")?,
        }
        Ok(FormWriter { out, form, count: 0, line: String::new() })
    }

    /// Writes a row.
    pub(super) fn row(&mut self, key: &[u8], value: &[u8], until: Option<u64>) -> io::Result<()> {
        self.count += 1;
        self.line.clear();
        match self.form {
            Form::Text => {
                let start = self.line.len();
                escape(&mut self.line, key);
                if self.line.get(start..).is_some_and(|key| key.starts_with('#')) {
                    self.line.replace_range(start..=start, "\\x23");
                }
                self.line.push('\t');
                escape(&mut self.line, value);
                if let Some(until) = until {
                    self.line.push('\t');
                    self.line.push_str(&until.to_string());
                }
            }
            Form::Json => {
                let row =
                    json!({ "key": to_hex(key), "value": to_hex(value), "expires_at": until });
                self.line = row.to_string();
            }
            Form::Mdb => {
                self.line.push(' ');
                push_hex(&mut self.line, key);
                self.line.push_str("\n ");
                push_hex(&mut self.line, value);
            }
        }
        self.line.push('\n');
        self.out.write_all(self.line.as_bytes())
    }

    /// Ends the dump and tells how many rows it has.
    pub(super) fn end(self) -> io::Result<u64> {
        match self.form {
            Form::Text => writeln!(self.out, "# end {}", self.count)?,
            Form::Json => writeln!(self.out, "{}", json!({ "end": self.count }))?,
            Form::Mdb => writeln!(self.out, "DATA=END")?,
        }
        Ok(self.count)
    }
}

fn escape(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\\' => line.push_str("\\\\"),
            b'\t' => line.push_str("\\t"),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b' '..=b'~' => line.push(char::from(*byte)),
            _ => {
                line.push_str("\\x");
                push_hex(line, &[*byte]);
            }
        }
    }
}

/// What a line of JSON says, as far as it counts. Whatever else is in it takes no memory.
#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonRow<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
    /// Nanoseconds since 1970.
    expires_at: Option<u64>,
    /// Of the first line: the version.
    kvb_dump: Option<u64>,
    /// Of the last line: the number of rows.
    end: Option<u64>,
}

/// Reads rows in whichever form they are.
pub(super) struct FormReader<R> {
    input: R,
    form: Form,
    line: Vec<u8>,
    /// Lines read so far.
    line_no: u64,
    /// Bytes read so far.
    pub(super) bytes: u64,
    /// Longest value that a row can have. Not known before the bucket is, and until then no row is read to its end.
    value_max: Option<u64>,
    /// The first row is longer than anything before the rows, and its end is not read yet.
    is_cut: bool,
    rows: u64,
    /// The dump says itself where it ends.
    has_end: bool,
    is_ended: bool,
    /// Of mdb_dump's two ways to write bytes, the readable one.
    is_print: bool,
    /// How the bucket was made, if the dump tells.
    pub(super) settings: Vec<(String, String)>,
    /// The first row, if it was read to find out the form.
    is_pending: bool,
}

impl<R: BufRead> FormReader<R> {
    /// Finds out the form and reads what comes before the rows.
    pub(super) fn open(input: R) -> Done<FormReader<R>> {
        let mut reader = FormReader {
            input,
            form: Form::Text,
            line: Vec::new(),
            line_no: 0,
            bytes: 0,
            value_max: None,
            is_cut: false,
            rows: 0,
            has_end: false,
            is_ended: false,
            is_print: false,
            settings: Vec::new(),
            is_pending: false,
        };
        reader.is_pending = reader.read_line()?;
        if reader.line.starts_with(b"{") {
            reader.form = Form::Json;
        } else if reader.line.starts_with(b"VERSION=") {
            reader.form = Form::Mdb;
        } else if reader.line.starts_with(b"# kvb dump") && reader.line != b"# kvb dump 1" {
            return Err(reader.wrong("this version of a dump is not known; upgrade"));
        }
        match reader.form {
            Form::Text => reader.read_text_head()?,
            Form::Json => reader.read_json_head()?,
            Form::Mdb => reader.read_mdb_head()?,
        }
        Ok(reader)
    }

    /// No row has a longer value than this.
    pub(super) fn set_value_max(&mut self, bytes: u64) {
        self.value_max = Some(bytes);
    }

    /// The next row, or none at the end.
    pub(super) fn next(&mut self, entry: &mut Entry) -> Done<bool> {
        loop {
            if self.is_ended {
                return self.check_end();
            }
            if !self.take_line()? {
                return self.finish();
            }
            let is_row = match self.form {
                Form::Text => self.text_row(entry)?,
                Form::Json => self.json_row(entry)?,
                Form::Mdb => self.mdb_row(entry)?,
            };
            if is_row {
                self.check_lengths(entry)?;
                self.rows += 1;
                return Ok(true);
            }
        }
    }

    /// The line that is there already, or the next one.
    fn take_line(&mut self) -> Done<bool> {
        if !std::mem::take(&mut self.is_pending) {
            return self.read_line();
        }
        if std::mem::take(&mut self.is_cut) {
            self.read_on()?;
        }
        Ok(true)
    }

    /// What no bucket takes is refused here, where its line is known, and not with all the rows of a commit.
    fn check_lengths(&self, entry: &Entry) -> Done {
        let value_max = self.value_max.unwrap_or(0);
        let lens = [("key", entry.key.len(), KEY_MAX), ("value", entry.value.len(), value_max)];
        for (what, len, max) in lens {
            if u64::try_from(len).unwrap_or(u64::MAX) > max {
                return Err(
                    self.wrong(&format!("{what} of {len} bytes is over the limit of {max}"))
                );
            }
        }
        Ok(())
    }

    /// Nothing may follow the end: it would be rows that nobody loads.
    fn check_end(&mut self) -> Done<bool> {
        while self.read_line()? {
            if self.form == Form::Mdb && self.line.starts_with(b"VERSION=") {
                return Err(self.wrong(SEVERAL));
            }
            if !self.line.is_empty() {
                return Err(
                    self.wrong("the dump ended before this line; load what follows by itself")
                );
            }
        }
        Ok(false)
    }

    fn finish(&mut self) -> Done<bool> {
        if self.has_end && !self.is_ended {
            return Err(Fail::failed(format!(
                "the dump ends early, after {}: its last line is missing",
                show::many(self.rows, "row", "rows")
            )));
        }
        Ok(false)
    }

    fn read_line(&mut self) -> Done<bool> {
        if self.is_cut {
            return Err(self.wrong("no line before the rows is as long as this"));
        }
        self.line.clear();
        self.read_on()
    }

    /// Reads up to the end of the line. Each byte of a value is four letters at most.
    fn read_on(&mut self) -> Done<bool> {
        let max = self.value_max.unwrap_or(0).saturating_mul(4).saturating_add(LINE_ROOM);
        let so_far = u64::try_from(self.line.len()).unwrap_or(u64::MAX);
        let room = max.saturating_sub(so_far);
        let read = io::Read::take(&mut self.input, room)
            .read_until(b'\n', &mut self.line)
            .map_err(|error| match interrupt::is_asked() {
                true => Fail::interrupted("interrupted"),
                false => Fail::failed(format!("cannot read the dump: {error}")),
            })?;
        let read = u64::try_from(read).unwrap_or(u64::MAX);
        self.bytes += read;
        self.line_no += u64::from(read > 0 && so_far == 0);
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        } else if read == room {
            if self.value_max.is_some() {
                return Err(self.wrong("no row of this bucket can be as long as this line"));
            }
            self.is_cut = true;
        }
        Ok(read > 0)
    }

    fn wrong(&self, message: &str) -> Fail {
        Fail::failed(format!("line {}: {message}", self.line_no))
    }

    fn read_text_head(&mut self) -> Done {
        self.has_end = self.line == b"# kvb dump 1";
        // Lines about the bucket, up to the first that is not one.
        while self.is_pending && self.line.starts_with(b"#") && !self.line.starts_with(b"# end") {
            let text = String::from_utf8_lossy(&self.line).into_owned();
            if let Some((name, value)) = text.trim_start_matches('#').split_once('=')
                && self.has_end
            {
                self.settings.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            self.is_pending = self.read_line()?;
        }
        Ok(())
    }

    fn text_row(&mut self, entry: &mut Entry) -> Done<bool> {
        if self.has_end
            && let Some(rest) = self.line.strip_prefix(b"# end ")
        {
            let count = std::str::from_utf8(rest).ok().and_then(|count| count.trim().parse().ok());
            return self.ended(count);
        }
        if self.line.starts_with(b"#") || self.line.is_empty() {
            return Ok(false);
        }
        let mut cells = self.line.split(|byte| *byte == b'\t');
        let (key, value, until) = (cells.next(), cells.next(), cells.next());
        let (Some(key), Some(value), None) = (key, value, cells.next()) else {
            return Err(self.wrong(
                "a row is a key, a tab and a value, and may have another tab and a deadline",
            ));
        };
        let is_whole = unescape(key, &mut entry.key) && unescape(value, &mut entry.value);
        if !is_whole {
            return Err(
                self.wrong("after a backslash there must be \\, t, n, r or x and two hex digits")
            );
        }
        entry.expires_at = match until.map(|until| std::str::from_utf8(until).map(str::parse)) {
            None => None,
            Some(Ok(Ok(until))) => Some(until),
            Some(_) => return Err(self.wrong("a deadline is a number of nanoseconds since 1970")),
        };
        Ok(true)
    }

    /// The dump says that it ends here, after so many rows.
    fn ended(&mut self, count: Option<u64>) -> Done<bool> {
        if count != Some(self.rows) {
            return Err(self.wrong(&format!(
                "the dump says that it has {} rows, and {} were read",
                count.map_or_else(|| "an unknown number of".to_owned(), |count| count.to_string()),
                self.rows
            )));
        }
        self.is_ended = true;
        Ok(false)
    }

    fn read_json_head(&mut self) -> Done {
        let Ok(JsonRow { kvb_dump: Some(version), .. }) = serde_json::from_slice(&self.line) else {
            return Ok(());
        };
        if version != 1 {
            return Err(self.wrong("this version of a dump is not known; upgrade"));
        }
        self.has_end = true;
        self.is_pending = false;
        let head: Option<Value> = serde_json::from_slice(&self.line).ok();
        for (name, value) in head.as_ref().and_then(Value::as_object).into_iter().flatten() {
            if let Some(value) = value.as_str() {
                self.settings.push((name.clone(), value.to_owned()));
            }
        }
        Ok(())
    }

    fn json_row(&mut self, entry: &mut Entry) -> Done<bool> {
        if self.line.is_empty() {
            return Ok(false);
        }
        if self.line.trim_ascii_start().starts_with(b"[") {
            return Err(self.wrong(JSON_ROW));
        }
        let row: JsonRow<'_> = serde_json::from_slice(&self.line).map_err(|error| {
            match error.is_data() {
                // It may repeat all that is in the line.
                true => self.wrong(JSON_ROW),
                false => self.wrong(&format!("this is not JSON: {error}")),
            }
        })?;
        if let Some(count) = row.end {
            return self.ended(Some(count));
        }
        let bytes = |digits: Option<Cow<'_, str>>| {
            let digits = digits?;
            from_hex(digits.strip_prefix("0x").unwrap_or(&digits))
        };
        let (Some(key), Some(value)) = (bytes(row.key), bytes(row.value)) else {
            return Err(self.wrong(JSON_ROW));
        };
        *entry = Entry { key, value, expires_at: row.expires_at };
        Ok(true)
    }

    fn read_mdb_head(&mut self) -> Done {
        self.has_end = true;
        while self.line != b"HEADER=END" {
            match self.line.as_slice() {
                b"format=print" => self.is_print = true,
                b"duplicates=1" => {
                    return Err(self.wrong(
                        "the database has several values for one key, which a bucket has not",
                    ));
                }
                _ => {}
            }
            if !self.read_line()? {
                return Err(self.wrong("the dump has no HEADER=END"));
            }
        }
        self.is_pending = false;
        Ok(())
    }

    fn mdb_row(&mut self, entry: &mut Entry) -> Done<bool> {
        if self.line == b"DATA=END" {
            self.is_ended = true;
            return Ok(false);
        }
        if self.line.starts_with(b"VERSION=") {
            return Err(self.wrong(SEVERAL));
        }
        entry.expires_at = None;
        entry.key = self.mdb_bytes()?;
        if !self.read_line()? {
            return Err(self.wrong("a key has no value"));
        }
        entry.value = self.mdb_bytes()?;
        Ok(true)
    }

    fn mdb_bytes(&self) -> Done<Vec<u8>> {
        let text = self.line.strip_prefix(b" ");
        let bytes = text.and_then(|text| match self.is_print {
            true => unprint(text),
            false => from_hex(std::str::from_utf8(text).ok()?),
        });
        bytes.ok_or_else(|| {
            self.wrong(match self.is_print {
                // Some versions do not escape backslashes, and then nobody knows what was meant.
                true => "this is no line of mdb_dump -p; dump without -p",
                false => "this is no line of mdb_dump",
            })
        })
    }
}

/// Undoes [`escape`]. False if it is not made by that.
fn unescape(text: &[u8], bytes: &mut Vec<u8>) -> bool {
    bytes.clear();
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        let plain = match byte {
            b'\\' => match rest.next() {
                Some(b'\\') => b'\\',
                Some(b't') => b'\t',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b'x') => {
                    let mut half = || rest.next().and_then(|half| digit(*half));
                    match (half(), half()) {
                        (Some(high), Some(low)) => high << 4 | low,
                        _ => return false,
                    }
                }
                _ => return false,
            },
            byte => *byte,
        };
        bytes.push(plain);
    }
    true
}

/// Bytes as `mdb_dump -p` writes them: a backslash and two hex digits, or another backslash.
fn unprint(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        let plain = match byte {
            b'\\' => match rest.next()? {
                b'\\' => b'\\',
                high => digit(*high)? << 4 | digit(*rest.next()?)?,
            },
            byte => *byte,
        };
        bytes.push(plain);
    }
    Some(bytes)
}
