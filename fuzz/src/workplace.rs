//! A directory for programs that want files, and command lines of theirs. `run.sh` says where.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory, which is gone with this.
pub struct Workplace(PathBuf);

impl Workplace {
    /// An empty one.
    pub fn new(name: &str) -> Workplace {
        let path = std::env::temp_dir().join(format!("kvb-fuzz-{name}-{}", std::process::id()));
        // What a process of the same number left behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Workplace(path)
    }

    /// The path of something in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A command line: words, and `@NAME` for the path of something in it.
    pub fn line(&self, words: &str) -> Vec<OsString> {
        let word = |word: &str| match word.strip_prefix('@') {
            Some(name) => self.path(name).into(),
            None => word.into(),
        };
        words.split_whitespace().map(word).collect()
    }

    /// Makes a directory of it like another one.
    pub fn copy(&self, from: &str, to: &str) {
        let (from, to) = (self.path(from), self.path(to));
        let _ = fs::remove_dir_all(&to);
        copy(&from, &to);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(&from, &to),
            false => drop(fs::copy(from, to).unwrap()),
        }
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
