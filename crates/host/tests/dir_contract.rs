//! One contract, every directory, and what the simulated one does when power fails.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::io::ErrorKind;

use host::{Dir, Fault, FileDir, MemoryDir, SimDir};

fn contract(dir: &dyn Dir) {
    assert!(dir.names().unwrap().is_empty());
    let disk = dir.create("b").unwrap();
    disk.lock().unwrap();
    disk.write_at(0, b"bytes").unwrap();
    disk.sync().unwrap();
    assert_eq!(dir.create("b").unwrap_err().kind(), ErrorKind::AlreadyExists);
    let again = dir.open("b").unwrap();
    let mut bytes = [0; 5];
    again.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"bytes");
    again.lock().unwrap_err();
    drop(disk);
    again.lock().unwrap();

    assert_eq!(dir.open("a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(dir.read("a").unwrap(), None);
    dir.replace("a", b"first").unwrap();
    dir.replace("a", b"2nd").unwrap();
    assert_eq!(dir.read("a").unwrap().unwrap(), b"2nd");
    assert_eq!(dir.open("a").unwrap().len().unwrap(), 3);
    dir.replace("empty", b"").unwrap();
    assert_eq!(dir.read("empty").unwrap().unwrap(), b"");
    assert_eq!(dir.names().unwrap(), ["a", "b", "empty"]);
    dir.sync().unwrap();

    dir.remove("b").unwrap();
    assert_eq!(dir.remove("b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(dir.read("b").unwrap(), None);
    again.read_at(0, &mut bytes).unwrap();
    dir.create("b").unwrap();
    assert_eq!(dir.read("b").unwrap().unwrap(), b"");
    assert_eq!(dir.names().unwrap(), ["a", "b", "empty"]);

    for name in ["", ".", "..", ".hidden", "a/b", "/a", "../a", "a\\b", "c:a", "a\0"] {
        let errors = [
            dir.create(name).unwrap_err(),
            dir.open(name).unwrap_err(),
            dir.read(name).unwrap_err(),
            dir.replace(name, b"").unwrap_err(),
            dir.remove(name).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
        }
    }
}

#[test]
fn a_real_directory_keeps_the_contract() {
    let place = tempfile::tempdir().unwrap();
    contract(&FileDir::new(place.path()));
}

#[test]
fn a_directory_in_memory_keeps_the_contract() {
    contract(&MemoryDir::new());
}

#[test]
fn a_simulated_directory_keeps_the_contract() {
    contract(&SimDir::new());
}

#[test]
fn leftovers_of_an_interrupted_replacement_do_no_harm() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join(".a.new"), [9; 1000]).unwrap();
    std::fs::create_dir(place.path().join("sub")).unwrap();
    let dir = FileDir::new(place.path());
    assert!(dir.names().unwrap().is_empty());
    dir.replace("a", b"fresh").unwrap();
    assert_eq!(dir.read("a").unwrap().unwrap(), b"fresh");
    assert!(!place.path().join(".a.new").exists());
}

/// Runs a change of a directory that holds "a" with power failing at each of its steps, and gives
/// every directory that may be found, with the word whether the change had returned.
fn interrupted(change: fn(&SimDir) -> std::io::Result<()>, mut check: impl FnMut(&SimDir, bool)) {
    let prepared = || {
        let dir = SimDir::new();
        dir.replace("a", &[1; 3000]).unwrap();
        dir
    };
    let dir = prepared();
    let first = dir.step_count();
    change(&dir).unwrap();
    let steps = dir.step_count() - first;
    assert!(steps >= 2);
    for step in 0..=steps {
        let dir = prepared();
        dir.power_off_at(first + step);
        let returned = change(&dir).is_ok();
        assert_eq!(returned, step == steps);
        assert_eq!(dir.read("a").is_ok(), returned, "without power nothing works");
        for seed in 0..200 {
            check(&dir.after_power_loss(seed), returned);
        }
    }
}

#[test]
fn a_replacement_is_all_or_nothing() {
    let (mut old, mut new) = (0, 0);
    interrupted(
        |dir| dir.replace("a", &[2; 5000]),
        |found, returned| {
            let bytes = found.read("a").unwrap().expect("one of the two files is there");
            if bytes == [1; 3000] {
                assert!(!returned, "the old file came back");
                old += 1;
            } else {
                assert!(bytes == [2; 5000], "a mixture of {} bytes", bytes.len());
                new += u32::from(!returned);
            }
            assert_eq!(found.names().unwrap(), ["a"]);
            found.replace("a", b"next").unwrap();
            assert_eq!(found.read("a").unwrap().unwrap(), b"next");
        },
    );
    assert!(old > 0 && new > 0, "both outcomes of an interruption are found: {old} and {new}");
}

#[test]
fn creation_and_removal_are_durable_once_they_return() {
    let mut outcomes = [0; 4];
    interrupted(
        |dir| dir.create("b").map(drop),
        |found, returned| {
            let there = found.names().unwrap() == ["a", "b"];
            assert!(there || !returned);
            outcomes[usize::from(there)] += 1;
        },
    );
    interrupted(
        |dir| dir.remove("a"),
        |found, returned| {
            let there = found.read("a").unwrap().is_some();
            assert!(!there || !returned);
            outcomes[2 + usize::from(there)] += 1;
        },
    );
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn contents_obey_their_own_syncs() {
    let dir = SimDir::new();
    let disk = dir.create("a").unwrap();
    disk.write_at(0, &[1; 1000]).unwrap();
    disk.sync().unwrap();
    disk.write_at(1000, &[2; 1000]).unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let bytes = dir.after_power_loss(seed).read("a").unwrap().unwrap();
        assert_eq!(bytes[..1000], [1; 1000]);
        lengths.insert(bytes.len());
    }
    assert_eq!(Vec::from_iter(lengths), [1000, 2000]);
}

#[test]
fn one_disk_losing_power_stops_the_directory() {
    let dir = SimDir::new();
    let (first, second) = (dir.create("a").unwrap(), dir.create("b").unwrap());
    dir.disk("a").unwrap().fail(0, Fault::PowerLoss);
    second.write_at(0, b"x").unwrap();
    first.write_at(0, b"x").unwrap_err();
    second.write_at(0, b"x").unwrap_err();
    dir.create("c").unwrap_err();
    dir.names().unwrap_err();
    assert!(dir.disk("c").is_none());
    assert_eq!(dir.after_power_loss(1).names().unwrap(), ["a", "b"]);
}

#[test]
fn directories_are_made_with_those_above_them() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a/b/c");
    for _ in 0..2 {
        FileDir::make(&path).unwrap();
        assert!(path.is_dir());
    }
    std::fs::write(place.path().join("a/file"), b"1").unwrap();
    assert_eq!(FileDir::list(place.path().join("a")).unwrap(), ["b", "file"]);
    assert!(FileDir::make(place.path().join("a/file")).is_err(), "a file is in the way");
    assert!(FileDir::make(place.path().join("a/file/below")).is_err());
    assert_eq!(FileDir::list(place.path().join("nowhere")).unwrap(), [""; 0]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o007, 0, "{mode:o}");
    }
    FileDir::remove_all(place.path().join("a")).unwrap();
    FileDir::remove_all(place.path().join("a")).unwrap();
    assert_eq!(FileDir::list(place.path()).unwrap(), [""; 0]);
}

/// A directory may come from somebody else, with links in it that lead to the files of whoever uses it.
#[cfg(unix)]
#[test]
fn links_are_neither_followed_nor_written_through() {
    let home = tempfile::tempdir().unwrap();
    let precious = home.path().join("precious");
    std::fs::write(&precious, b"mine").unwrap();
    let path = home.path().join("store");
    FileDir::make(&path).unwrap();
    for name in ["a", ".a.new"] {
        std::os::unix::fs::symlink(&precious, path.join(name)).unwrap();
    }
    let dir = FileDir::new(&path);
    let refused = |error: std::io::Error| {
        assert!(error.to_string().contains("symbolic link"), "{error}");
    };
    refused(dir.read("a").unwrap_err());
    refused(dir.open("a").unwrap_err());
    refused(dir.replace("a", b"theirs").unwrap_err());
    std::fs::remove_file(path.join("a")).unwrap();
    // What an interrupted replacement left may be a link, too.
    dir.replace("a", b"theirs").unwrap();
    assert_eq!(dir.read("a").unwrap().unwrap(), b"theirs");
    assert_eq!(std::fs::read(&precious).unwrap(), b"mine");
}
