//! Documents name only what is there: files, headings, and the source files that they walk through.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every document of the project.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root(), root().join("docs"), root().join("bench")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.starts_with(root().join("docs")) {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// A document without its fenced blocks, which quote what others say.
fn prose(text: &str) -> String {
    let mut is_fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// What stands between the parentheses of `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(str::to_owned).collect()
}

/// The name that a heading is linked by.
fn anchor(heading: &str) -> String {
    let kept = |letter: char| match letter {
        ' ' => Some('-'),
        letter if letter.is_alphanumeric() || "-_".contains(letter) => Some(letter),
        _ => None,
    };
    heading.trim_start_matches('#').trim().to_lowercase().chars().filter_map(kept).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for document in documents() {
        let text = prose(&std::fs::read_to_string(&document).unwrap());
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => document.clone(),
                path => plain(&document.parent().unwrap().join(path)),
            };
            let place = document.strip_prefix(root()).unwrap().display();
            assert!(target.exists(), "{place}: {link} is not there");
            assert!(target.starts_with(root()), "{place}: {link} is not part of the project");
            if !heading.is_empty() {
                let text = prose(&std::fs::read_to_string(&target).unwrap());
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| anchor(line) == heading),
                    "{place}: no such heading: {link}"
                );
            }
            count += 1;
        }
    }
    assert!(count > 100, "only {count} links were found");
}

/// Where the names in a document may begin: at the top, among the crates, in a crate or its sources, beside the document.
fn places(document: &Path) -> Vec<PathBuf> {
    let crates = root().join("crates");
    let own = std::fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path());
    let own = own.flat_map(|path| [path.join("src"), path]);
    let beside = document.parent().unwrap().to_owned();
    own.chain([root(), crates.clone(), beside]).collect()
}

/// Names of source files in backticks, as `kvb/src/log.rs` or `crates/kvb/src/log.rs`.
#[test]
fn source_files_that_are_named_are_there() {
    let mut count = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        // What was decided or changed once may be gone by now.
        if document.starts_with(root().join("docs/decisions")) || document.ends_with("CHANGELOG.md")
        {
            continue;
        }
        for name in prose(&text).split('`').skip(1).step_by(2) {
            let is_source = [".rs", ".py", ".sh", ".toml"].iter().any(|end| name.ends_with(end));
            if !is_source || !name.contains('/') || name.contains([' ', '*', '<']) {
                continue;
            }
            let is_there = places(&document).iter().any(|place| place.join(name).exists());
            assert!(
                is_there,
                "{}: there is no {name}",
                document.strip_prefix(root()).unwrap().display()
            );
            count += 1;
        }
    }
    assert!(count > 100, "only {count} names were found");
}

/// Every page of the book is in its table of contents.
#[test]
fn the_book_has_every_page() {
    let docs = root().join("docs");
    let summary = links(&std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
    for document in documents() {
        let Ok(page) = document.strip_prefix(&docs) else { continue };
        let page = page.to_str().unwrap();
        assert!(page == "SUMMARY.md" || summary.iter().any(|link| link == page), "{page}");
    }
}
