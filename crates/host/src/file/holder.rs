//! Who holds a file's lock, as far as the system tells.

use std::fs::File;

/// The kernel hands its table out in pieces, and a line is skipped if locks before it go away
/// between two of them. Pins come and go all the time, so one look is not enough.
#[cfg(target_os = "linux")]
const TRIES: u32 = 10;

/// The process that holds the lock on this file.
#[cfg(target_os = "linux")]
pub(super) fn holder(file: &File) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata().ok()?;
    let wanted = Inode {
        major: rustix::fs::major(found.dev()),
        minor: rustix::fs::minor(found.dev()),
        number: found.ino(),
    };
    let read = || std::fs::read_to_string("/proc/locks").ok();
    (0..TRIES).find_map(|_| in_table(&read()?, &wanted))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn holder(_file: &File) -> Option<u32> {
    None
}

/// A file as the kernel's table of locks names it.
#[cfg(target_os = "linux")]
#[derive(PartialEq, Eq)]
struct Inode {
    major: u32,
    minor: u32,
    number: u64,
}

/// Finds the holder in the kernel's table, whose lines read
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:123456 0 EOF`. Waiters have an arrow in the second column.
#[cfg(target_os = "linux")]
fn in_table(table: &str, wanted: &Inode) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next()? != "FLOCK" {
            return None;
        }
        let pid: u32 = fields.nth(2)?.parse().ok()?;
        let mut inode = fields.next()?.split(':');
        let found = Inode {
            major: u32::from_str_radix(inode.next()?, 16).ok()?,
            minor: u32::from_str_radix(inode.next()?, 16).ok()?,
            number: inode.next()?.parse().ok()?,
        };
        // The kernel writes 0 for a process outside this pid namespace.
        (found == *wanted && pid != 0).then_some(pid)
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const TABLE: &str = "\
1: POSIX  ADVISORY  WRITE 11 fe:00:500 0 EOF
2: FLOCK  ADVISORY  READ 12 fe:00:501 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fe:00:500 0 EOF
3: FLOCK  ADVISORY  WRITE 14 fe:01:500 0 EOF
4: FLOCK  ADVISORY  WRITE 15 fe:00:500 0 EOF
5: FLOCK  ADVISORY  WRITE 0 fe:00:502 0 EOF
6: OFDLCK ADVISORY  READ 16 fe:00:503 4611686018427387904 4611686018427387904
garbage
";

    fn find(number: u64) -> Option<u32> {
        in_table(TABLE, &Inode { major: 0xfe, minor: 0, number })
    }

    #[test]
    fn the_holder_is_the_flock_of_the_same_device_and_inode() {
        assert_eq!(find(500), Some(15));
        assert_eq!(find(501), Some(12));
        assert_eq!(find(502), None, "a process of another namespace has no name here");
        assert_eq!(find(503), None, "a pin is not the lock");
        assert_eq!(find(504), None);
    }
}
