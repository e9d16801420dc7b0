//! Shared locks on single bytes of an open file, which neither the standard library nor rustix
//! offers. The `unsafe` here is one system call.
//!
//! They belong to the open file description, as Linux calls it. Unlike the older locks of a process
//! they tell two handles of one process apart, and closing one handle does not end the locks of
//! another. They know nothing of `flock`, which is behind the exclusive lock of a disk, on any file
//! system that is not a network's.
//!
//! All of them lie from 2^62 on, where no file has bytes, so that a program that locks ranges of
//! contents does not meet them. Within one handle they do not count: the one who takes a lock
//! twice must see to it that it is given back once.

#![allow(unsafe_code)]

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use of_description::{give_back, is_shared, share};

/// 32-bit systems have other structures for positions this far out, and are left out.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod of_description {
    use std::fs::File;
    use std::io;
    use std::ops::Range;
    use std::os::fd::AsRawFd;

    use libc::{F_OFD_GETLK, F_OFD_SETLK, F_RDLCK, F_UNLCK, F_WRLCK, c_int, c_short};

    /// Where the lock space begins.
    const BASE: u64 = 1 << 62;

    /// Takes the lock of a byte. It stays shared: many may have it.
    pub(crate) fn share(file: &File, byte: u64) -> io::Result<()> {
        call(file, F_OFD_SETLK, F_RDLCK, byte..byte + 1).map(drop)
    }

    /// Gives the lock of a byte back.
    pub(crate) fn give_back(file: &File, byte: u64) -> io::Result<()> {
        call(file, F_OFD_SETLK, F_UNLCK, byte..byte + 1).map(drop)
    }

    /// True if somebody else has the lock of a byte less than `below`.
    pub(crate) fn is_shared(file: &File, below: u64) -> io::Result<bool> {
        // To the system a range of no bytes has no end.
        if below == 0 {
            return Ok(false);
        }
        // A shared lock is in the way of an exclusive one, which is asked for and not taken.
        let found = call(file, F_OFD_GETLK, F_WRLCK, 0..below)?;
        Ok(c_int::from(found.l_type) != F_UNLCK)
    }

    fn call(
        file: &File,
        command: c_int,
        kind: c_int,
        bytes: Range<u64>,
    ) -> io::Result<libc::flock> {
        let impossible = |_| io::Error::from(io::ErrorKind::InvalidInput);
        // SAFETY: the structure consists of numbers, for which zero is a value. `l_pid` must be 0.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = c_short::try_from(kind).map_err(impossible)?;
        lock.l_whence = c_short::try_from(libc::SEEK_SET).map_err(impossible)?;
        lock.l_start = i64::try_from(BASE + bytes.start).map_err(impossible)?;
        lock.l_len = i64::try_from(bytes.end - bytes.start).map_err(impossible)?;
        loop {
            // SAFETY: the descriptor is open while `file` is borrowed, and all commands used here
            // take a pointer to this structure, which lives and is not shared during the call.
            let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
            if result != -1 {
                return Ok(lock);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub(crate) use none::{give_back, is_shared, share};

/// Elsewhere nobody can share a lock, so nobody has one.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod none {
    use std::fs::File;
    use std::io;

    pub(crate) fn share(_file: &File, _byte: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn give_back(_file: &File, _byte: u64) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn is_shared(_file: &File, _below: u64) -> io::Result<bool> {
        Ok(false)
    }
}
