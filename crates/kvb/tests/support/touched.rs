//! Whether anybody touched a file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files below a directory, with what tells whether they were touched.
pub(crate) fn files(path: &Path) -> Vec<(PathBuf, u64, i64, i64, u64)> {
    let mut found = Vec::new();
    let mut open = vec![path.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::metadata(&path).unwrap();
            found.push((path.clone(), meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()));
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
