//! What differs between operating systems: positioned reads and writes, allocation, punching.

#![allow(clippy::expect_used, reason = "a part of a fixed buffer")]

use std::fs::{File, OpenOptions};
use std::io;

/// Zeros are written in pieces of this size.
const CHUNK: usize = 64 * 1024;

/// Readable by everyone, writable by the owner, less what the user's mask takes away.
#[cfg(unix)]
pub(super) fn set_mode(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o644);
}

#[cfg(not(unix))]
pub(super) fn set_mode(_options: &mut OpenOptions) {}

/// Opens a file once more, whatever its name is by now, to read and write.
#[cfg(target_os = "linux")]
pub(super) fn open_again(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path)
}

/// Elsewhere there is no way that is known to be right.
#[cfg(not(target_os = "linux"))]
pub(super) fn open_again(_file: &File) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes one directory that nobody but owner and group can enter.
pub(super) fn make_dir(path: &std::path::Path) -> std::io::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no modes to set"))]
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o750);
    builder.create(path)
}

/// Gives a file the owner and group of another, if this process may do that.
#[cfg(unix)]
pub(super) fn set_owner(file: &std::fs::File, like: &std::fs::Metadata) {
    use std::os::unix::fs::MetadataExt;
    let _best_effort = std::os::unix::fs::fchown(file, Some(like.uid()), Some(like.gid()));
}

#[cfg(not(unix))]
pub(super) fn set_owner(_file: &std::fs::File, _like: &std::fs::Metadata) {}

/// True if two descriptions are of one file.
#[cfg(unix)]
pub(super) fn is_same(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// The platform does not tell; the lock does.
#[cfg(not(unix))]
pub(super) fn is_same(_a: &std::fs::Metadata, _b: &std::fs::Metadata) -> bool {
    false
}

#[cfg(unix)]
pub(super) fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, offset)
}

#[cfg(unix)]
pub(super) fn write_all_at(file: &File, buf: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, buf, offset)
}

#[cfg(windows)]
pub(super) fn read_exact_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    let (mut buf, mut offset) = (buf, offset);
    while !buf.is_empty() {
        let count = match file.seek_read(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        buf = buf.get_mut(count..).ok_or(io::ErrorKind::InvalidData)?;
        offset += u64::try_from(count).map_err(|_| io::ErrorKind::InvalidData)?;
    }
    Ok(())
}

#[cfg(windows)]
pub(super) fn write_all_at(file: &File, buf: &[u8], offset: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt;
    let (mut buf, mut offset) = (buf, offset);
    while !buf.is_empty() {
        let count = match file.seek_write(buf, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        buf = buf.get(count..).ok_or(io::ErrorKind::InvalidData)?;
        offset += u64::try_from(count).map_err(|_| io::ErrorKind::InvalidData)?;
    }
    Ok(())
}

/// Reserves blocks and extends the length.
#[cfg(target_os = "linux")]
pub(super) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, rustix::fs::FallocateFlags::empty(), offset, len)
}

/// Gives blocks back and keeps the length.
#[cfg(target_os = "linux")]
pub(super) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
}

#[cfg(target_os = "linux")]
fn fallocate(
    file: &File,
    flags: rustix::fs::FallocateFlags,
    offset: u64,
    len: u64,
) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(file, flags, offset, len) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn punch(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// True if the file system does not know the call, as opposed to failing at it.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    // ENOSYS and EOPNOTSUPP both map to this kind.
    error.kind() == io::ErrorKind::Unsupported
}

/// Writes zeros from one position up to another.
pub(super) fn write_zeros(file: &File, from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; CHUNK];
    let mut at = from;
    while at < to {
        let count = usize::try_from(to - at).map_or(CHUNK, |left| left.min(CHUNK));
        let piece = zeros.get(..count).expect("a piece is at most one chunk");
        write_all_at(file, piece, at)?;
        at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_cover_exactly_the_range() {
        let file = tempfile::tempfile().unwrap();
        let before = vec![7; 3 * CHUNK];
        write_all_at(&file, &before, 0).unwrap();
        let (from, to) = (100, 2 * u64::try_from(CHUNK).unwrap() + 3);
        write_zeros(&file, from, to).unwrap();
        let mut after = vec![1; 3 * CHUNK];
        read_exact_at(&file, &mut after, 0).unwrap();
        let range = usize::try_from(from).unwrap()..usize::try_from(to).unwrap();
        for (at, byte) in after.iter().enumerate() {
            assert_eq!(*byte, if range.contains(&at) { 0 } else { 7 }, "at {at}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_missing_calls_count_as_unsupported() {
        use rustix::io::Errno;
        assert!(is_unsupported(&Errno::OPNOTSUPP.into()));
        assert!(is_unsupported(&Errno::NOSYS.into()));
        assert!(!is_unsupported(&Errno::NOSPC.into()));
        assert!(!is_unsupported(&Errno::IO.into()));
    }
}
