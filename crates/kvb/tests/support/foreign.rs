//! Programs of others: `strict/reader.py` and `strict/sealed.py`, which read buckets, and `zstd`.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

use crate::rows::Rows;

/// A key of a bucket as the reader is told of it.
#[derive(Clone, Copy)]
pub(crate) struct Given {
    pub(crate) id: u64,
    pub(crate) bytes: [u8; 32],
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
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

/// What a script of `tests/strict` prints about some files.
pub(crate) fn script(name: &str, files: &[PathBuf]) -> Vec<u8> {
    let mut command = python(&strict_dir().join(name));
    command.args(files);
    let output = run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn strict_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strict")
}

fn reader(name: &str, buckets: &[PathBuf], now_ns: u64, keys: &[Given]) -> Output {
    let mut command = python(&strict_dir().join(name));
    command.args(buckets).arg("--info").arg("--now").arg(now_ns.to_string());
    for key in keys {
        command.arg("--key").arg(format!("{}:{}", key.id, hex(&key.bytes)));
    }
    run(command)
}

/// What `reader.py` finds: the rows, and the commit they are the state of; or what it says is wrong.
pub(crate) fn strict(bucket: &Path, now_ns: u64) -> Result<(Rows, u64), String> {
    let output = reader("reader.py", &[bucket.to_owned()], now_ns, &[]);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let rows: Vec<_> = lines(&output).iter().map(row).collect();
    assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0), "rows are not in key order");
    Ok((rows.into_iter().collect(), seqno(&output)))
}

/// What `sealed.py` finds: the rows, and the commit they are the state of; or what it says is wrong.
pub(crate) fn sealed(bucket: &Path, now_ns: u64, keys: &[Given]) -> Result<(Rows, u64), String> {
    let output = reader("sealed.py", &[bucket.to_owned()], now_ns, keys);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("sealed: "), "the reader fell over: {errors}");
        return Err(errors);
    }
    Ok((lines(&output).iter().map(row).collect(), seqno(&output)))
}

/// The commit that a reader names beside the rows.
fn seqno(output: &Output) -> u64 {
    let info: Json = serde_json::from_slice(&output.stderr).unwrap();
    info["commit_seqno"].as_u64().unwrap()
}

/// What it finds in several buckets, which takes less time than to run it for each.
pub(crate) fn sealed_each(
    buckets: &[PathBuf],
    now_ns: u64,
    keys: &[Given],
) -> Vec<Result<Rows, String>> {
    assert!(buckets.len() > 1, "of one bucket it prints rows alone");
    let output = reader("sealed.py", buckets, now_ns, keys);
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
