//! Programs of others: `strict/sealed.py`, which reads buckets, and `zstd`.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A key of a bucket as the reader is told of it.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) id: u64,
    pub(crate) bytes: [u8; 32],
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn python(script: &Path) -> Command {
    let mut command = Command::new("python3");
    // Compiled once, and not into the source tree.
    command.arg(script).env("PYTHONPYCACHEPREFIX", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn run(mut command: Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("this test needs python3 on the path: {error}"))
}

/// What a script prints.
pub(crate) fn script(path: &Path) -> Vec<u8> {
    let output = run(python(path));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn reader(buckets: &[PathBuf], now_ns: u64, keys: &[Given]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = python(&root.join("tests/strict/sealed.py"));
    command.args(buckets).arg("--info").arg("--now").arg(now_ns.to_string());
    for key in keys {
        command.arg("--key").arg(format!("{}:{}", key.id, hex(&key.bytes)));
    }
    run(command)
}

/// What `sealed.py` finds: the rows, and the commit they are the state of; or what it says is wrong.
pub(crate) fn sealed(bucket: &Path, now_ns: u64, keys: &[Given]) -> Result<(Rows, u64), String> {
    let output = reader(&[bucket.to_owned()], now_ns, keys);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("sealed: "), "the reader fell over: {errors}");
        return Err(errors);
    }
    let info: Json = serde_json::from_str(errors.trim()).unwrap();
    let rows = lines(&output).iter().map(row).collect();
    Ok((rows, info["commit_seqno"].as_u64().unwrap()))
}

/// What it finds in several buckets, which takes less time than to run it for each.
pub(crate) fn sealed_each(
    buckets: &[PathBuf],
    now_ns: u64,
    keys: &[Given],
) -> Vec<Result<Rows, String>> {
    assert!(buckets.len() > 1, "of one bucket it prints rows alone");
    let output = reader(buckets, now_ns, keys);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the reader fell over: {errors}");
    let mut found = Vec::new();
    for line in lines(&output) {
        match (line.get("bucket"), found.last_mut()) {
            (Some(_), _) => found.push(match line["error"].as_str() {
                Some(error) => Err(error.to_owned()),
                None => Ok(Rows::new()),
            }),
            (None, Some(Ok(rows))) => rows.extend([row(&line)]),
            (None, _) => panic!("a row of no bucket: {line}"),
        }
    }
    assert_eq!(found.len(), buckets.len());
    found
}

fn lines(output: &Output) -> Vec<Json> {
    let text = std::str::from_utf8(&output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn row(line: &Json) -> (Vec<u8>, Vec<u8>) {
    let field = |name: &str| from_hex(line[name].as_str().unwrap());
    (field("key"), field("value"))
}

/// Says how two sets of rows differ, without printing large values.
pub(crate) fn difference(found: &Rows, wanted: &Rows) -> Option<String> {
    if found == wanted {
        return None;
    }
    let show = |key: &[u8], rows: &Rows| match rows.get(key) {
        Some(value) => format!("{} bytes {:02x?}", value.len(), &value[..value.len().min(8)]),
        None => "nothing".to_owned(),
    };
    let mut keys: Vec<_> = found.keys().chain(wanted.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let wrong = keys.into_iter().filter(|key| found.get(*key) != wanted.get(*key));
    let lines: Vec<String> = wrong
        .take(8)
        .map(|key| format!("{key:02x?}: read {}, wanted {}", show(key, found), show(key, wanted)))
        .collect();
    Some(format!("{} rows read, {} wanted\n{}", found.len(), wanted.len(), lines.join("\n")))
}

/// Runs `zstd` with its input on stdin, so that it does not know how much that is.
fn run_zstd(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new("zstd")
        .arg("-q")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs zstd on the path: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // It may give up before it has read everything.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

/// A frame as `zstd` makes it of a stream.
pub(crate) fn squeeze_stream(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = run_zstd(&[arguments, &["-c"]].concat(), input);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A frame as `zstd` makes it of a file, whose length it knows.
pub(crate) fn squeeze_file(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("value");
    std::fs::write(&path, input).unwrap();
    let path = path.to_str().unwrap();
    squeeze_stream(&[arguments, &[path]].concat(), b"")
}

/// What `zstd -dc` makes of a frame.
pub(crate) fn expand(frame: &[u8]) -> Result<Vec<u8>, String> {
    let output = run_zstd(&["-dc"], frame);
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
