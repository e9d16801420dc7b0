//! A device that cannot write what it has taken. That it failed is told to everybody who syncs, and not only to the first.
//!
//! The device is a file with holes on a file system in memory that has no room for it. That needs root and loop devices; where they are
//! missing the test says so and passes.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use host::{Disk, FileDisk};

/// Larger than the memory behind the device.
const BYTES: usize = 24 << 20;

fn run(program: &str, arguments: &[&str], last: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(last).stderr(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A file system on a device that fails when it has taken some MiB.
struct Failing {
    memory: PathBuf,
    point: PathBuf,
}

impl Failing {
    fn new(dir: &Path) -> Option<Failing> {
        let failing = Failing { memory: dir.join("memory"), point: dir.join("point") };
        std::fs::create_dir(&failing.memory).unwrap();
        std::fs::create_dir(&failing.point).unwrap();
        let image = failing.memory.join("image");
        let text = image.to_str().unwrap().to_owned();
        let is_made = run("mount", &["-t", "tmpfs", "-o", "size=8m", "none"], &failing.memory)
            && run("truncate", &["-s", "64M"], &image)
            && run("mkfs.ext4", &["-F", "-q", "-O", "^has_journal", "-m", "0"], &image)
            && run("mount", &["-o", "loop", &text], &failing.point);
        if !is_made {
            println!("skipped: no loop device here (it needs root and mkfs.ext4)");
        }
        is_made.then_some(failing)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        run("umount", &[], &self.point);
        run("umount", &[], &self.memory);
    }
}

#[test]
fn what_one_sync_was_told_all_others_are() {
    let dir = tempfile::tempdir().unwrap();
    let Some(failing) = Failing::new(dir.path()) else { return };
    let disk = FileDisk::create_new(failing.point.join("file")).unwrap();
    disk.allocate(0, u64::try_from(BYTES).unwrap()).unwrap();
    disk.write_at(0, &vec![7; BYTES]).unwrap();
    // Many at once, as the threads of a store; none may believe that its part is durable.
    let part = u64::try_from(BYTES / 8).unwrap();
    let succeeded: Vec<u64> = std::thread::scope(|scope| {
        let sync = |number: u64| {
            let disk = &disk;
            move || match number % 2 {
                0 => disk.sync_range(number * part, part),
                _ => disk.sync(),
            }
        };
        let tasks: Vec<_> = (0..8).map(|number| (number, scope.spawn(sync(number)))).collect();
        let done = tasks.into_iter().filter_map(|(number, task)| {
            // A part that fitted is durable, but only if it was synced before anything failed.
            task.join().unwrap().is_ok().then_some(number)
        });
        done.collect()
    });
    assert!(succeeded.iter().all(|number| number % 2 == 0), "all was synced, says {succeeded:?}");
    for _ in 0..3 {
        disk.sync().unwrap_err();
        disk.sync_range(0, 4096).unwrap_err();
    }
}
