//! File systems of our own, in a file each, that can lose power.
//!
//! The power cut is real: the file system is shut down by ioctl without flushing its journal, so what was not synced is
//! gone when it is mounted again. That needs root, loop devices and a `mkfs`; where one is missing the tests say so and
//! pass. `KVB_POWER_CUTS=n` makes n cuts where a test makes a few.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]
#![allow(dead_code, reason = "every test file uses a part of this")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A file system that is unmounted when this is dropped.
pub(crate) struct Mounted {
    image: PathBuf,
    point: PathBuf,
}

/// How often power is cut.
pub(crate) fn cuts() -> usize {
    std::env::var("KVB_POWER_CUTS").map_or(32, |text| text.parse().expect("a number of cuts"))
}

/// Says why a test is skipped, past the harness, which keeps what is printed by tests that pass.
pub(crate) fn skipped(why: &str) {
    writeln!(std::io::stderr(), "skipped: {why}").expect("a standard error");
}

impl Mounted {
    /// Makes and mounts a file system of a kind, with words for its mkfs behind it (`ext4`, `xfs`, `ext4 -O fast_commit`), in
    /// a file under a directory; says so if it cannot.
    pub(crate) fn new(kind: &str, dir: &Path) -> Option<Mounted> {
        // The smallest that mkfs.xfs makes; the file has holes.
        Mounted::of_size(kind, dir, "300M")
    }

    pub(crate) fn of_size(kind: &str, dir: &Path, size: &str) -> Option<Mounted> {
        let mounted = Mounted { image: dir.join("image"), point: dir.join("mnt") };
        std::fs::create_dir(&mounted.point).expect("a directory to mount at");
        let mut words = kind.split(' ');
        let program = format!("mkfs.{}", words.next().expect("a kind"));
        let force = if program == "mkfs.ext4" { "-F" } else { "-f" };
        let words: Vec<&str> = [force, "-q"].into_iter().chain(words).collect();
        let made =
            run("truncate", &["-s", size], &mounted.image) && run(&program, &words, &mounted.image);
        if made && mounted.mount() {
            return Some(mounted);
        }
        skipped(&format!("no {kind} on a loop device here (it needs root and {program})"));
        None
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    fn mount(&self) -> bool {
        let image = self.image.to_str().expect("a plain path");
        run("mount", &["-o", "loop", image], &self.point)
    }

    fn unmount(&self) -> bool {
        run("umount", &[], &self.point)
    }

    /// Cuts the power under a process that works on the file system. What is returned kills the process, mounts the
    /// file system again and tells whether that came back; until then its output can be read.
    ///
    /// The process stands still while the power goes: unlike real power loss, the ioctl lets a sync that is under way
    /// return success for bytes it then drops. What was acknowledged before counts, what was only written is lost.
    pub(crate) fn cut_under<'a>(&'a self, child: &'a mut Child) -> impl FnOnce() -> bool + use<'a> {
        assert!(run("kill", &["-STOP"], Path::new(&child.id().to_string())));
        // Until it stands, and what it said has been read.
        std::thread::sleep(Duration::from_millis(30));
        let script = "import fcntl,os,struct,sys; \
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
        assert!(run("python3", &["-c", script], &self.point), "the power cannot be cut");
        || {
            child.kill().expect("a process to kill");
            child.wait().expect("a process that was killed");
            self.unmount() && self.mount()
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn run(program: &str, arguments: &[&str], last: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(last).stderr(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
